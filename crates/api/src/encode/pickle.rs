//! Pickles of lists, dicts, tuples, texts, numbers and None, in protocol 2.
//!
//! Every Python reads protocol 2. No pickle names a class, so an unpickler's list of allowed classes does not matter.
//! Nothing is memoized: readers do not need it.

/// Begins a pickle.
pub(crate) fn begin(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\x80\x02");
}

/// Ends a pickle.
pub(crate) fn end(out: &mut Vec<u8>) {
    out.push(b'.');
}

/// Writes a list of the values that `items` writes.
pub(crate) fn list(out: &mut Vec<u8>, items: impl FnOnce(&mut Vec<u8>)) {
    list_begin(out);
    items(out);
    list_end(out);
}

/// Begins a list whose values are written in chunks.
pub(crate) fn list_begin(out: &mut Vec<u8>) {
    out.extend_from_slice(b"](");
}

/// Ends a list.
pub(crate) fn list_end(out: &mut Vec<u8>) {
    out.push(b'e');
}

/// Writes a dict of the keys and values that `items` writes in turn.
pub(crate) fn dict(out: &mut Vec<u8>, items: impl FnOnce(&mut Vec<u8>)) {
    dict_begin(out);
    items(out);
    dict_end(out);
}

/// Begins a dict whose values are written in chunks.
pub(crate) fn dict_begin(out: &mut Vec<u8>) {
    out.extend_from_slice(b"}(");
}

/// Ends a dict.
pub(crate) fn dict_end(out: &mut Vec<u8>) {
    out.push(b'u');
}

/// Makes a tuple of the last two values.
pub(crate) fn pair(out: &mut Vec<u8>) {
    out.push(0x86);
}

/// Writes a text.
pub(crate) fn text(out: &mut Vec<u8>, text: &str) {
    out.push(b'X');
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// Writes a whole number.
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

/// Writes a number.
pub(crate) fn float(out: &mut Vec<u8>, value: f64) {
    let mut bytes = [b'G'; 9];
    bytes[1..].copy_from_slice(&value.to_be_bytes());
    out.extend_from_slice(&bytes);
}

/// Writes True or False.
pub(crate) fn boolean(out: &mut Vec<u8>, value: bool) {
    out.push(if value { 0x88 } else { 0x89 });
}

/// Writes None.
pub(crate) fn none(out: &mut Vec<u8>) {
    out.push(b'N');
}
