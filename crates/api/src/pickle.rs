//! Pickles, written: plain lists, dicts, tuples, texts, numbers and None, protocol 2.
//!
//! Protocol 2 is read by every Python there is, and nothing here names a class, so no unpickler's list of
//! allowed classes matters. Nothing is memoized either: readers do not need it.

/// Begins a pickle.
pub(crate) fn begin(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\x80\x02");
}

/// Ends it.
pub(crate) fn end(out: &mut Vec<u8>) {
    out.push(b'.');
}

/// A list of the values that `items` writes.
pub(crate) fn list(out: &mut Vec<u8>, items: impl FnOnce(&mut Vec<u8>)) {
    list_begin(out);
    items(out);
    list_end(out);
}

/// `[`, for lists whose values come in pieces.
pub(crate) fn list_begin(out: &mut Vec<u8>) {
    out.extend_from_slice(b"](");
}

/// `]`.
pub(crate) fn list_end(out: &mut Vec<u8>) {
    out.push(b'e');
}

/// A dict of the keys and values that `items` writes in turn.
pub(crate) fn dict(out: &mut Vec<u8>, items: impl FnOnce(&mut Vec<u8>)) {
    dict_begin(out);
    items(out);
    dict_end(out);
}

/// `{`, for dicts whose values come in pieces.
pub(crate) fn dict_begin(out: &mut Vec<u8>) {
    out.extend_from_slice(b"}(");
}

/// `}`.
pub(crate) fn dict_end(out: &mut Vec<u8>) {
    out.push(b'u');
}

/// Makes a tuple of the two values before.
pub(crate) fn pair(out: &mut Vec<u8>) {
    out.push(0x86);
}

/// A text.
pub(crate) fn text(out: &mut Vec<u8>, text: &str) {
    out.push(b'X');
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// A whole number.
pub(crate) fn int(out: &mut Vec<u8>, value: i64) {
    match i32::try_from(value) {
        Ok(value) => {
            out.push(b'J');
            out.extend_from_slice(&value.to_le_bytes());
        }
        Err(_) => {
            out.extend_from_slice(b"\x8a\x08");
            out.extend_from_slice(&value.to_le_bytes());
        }
    }
}

/// A number.
pub(crate) fn float(out: &mut Vec<u8>, value: f64) {
    let mut bytes = [b'G'; 9];
    bytes[1..].copy_from_slice(&value.to_be_bytes());
    out.extend_from_slice(&bytes);
}

/// True or False.
pub(crate) fn boolean(out: &mut Vec<u8>, value: bool) {
    out.push(if value { 0x88 } else { 0x89 });
}

/// None.
pub(crate) fn none(out: &mut Vec<u8>) {
    out.push(b'N');
}
