//! MessagePack as msgpack-python writes it. docs/decisions/10-libraries.md says why this is not a library.

/// Begins an array of `len` values.
pub(crate) fn array(out: &mut Vec<u8>, len: usize) {
    head(out, len, 0x90, 15, None, 0xdc, 0xdd);
}

/// Begins a map of `len` pairs.
pub(crate) fn map(out: &mut Vec<u8>, len: usize) {
    head(out, len, 0x80, 15, None, 0xde, 0xdf);
}

/// Writes a text.
pub(crate) fn text(out: &mut Vec<u8>, text: &str) {
    head(out, text.len(), 0xa0, 31, Some(0xd9), 0xda, 0xdb);
    out.extend_from_slice(text.as_bytes());
}

fn head(out: &mut Vec<u8>, len: usize, fix: u8, most: usize, one: Option<u8>, two: u8, four: u8) {
    match (len, one) {
        (len, _) if len <= most => out.push(fix | len as u8),
        (len @ 0..=0xff, Some(one)) => out.extend_from_slice(&[one, len as u8]),
        (len @ 0..=0xffff, _) => {
            out.push(two);
            out.extend_from_slice(&(len as u16).to_be_bytes());
        }
        (len, _) => {
            out.push(four);
            out.extend_from_slice(&(len as u32).to_be_bytes());
        }
    }
}

/// Writes a whole number in the fewest bytes.
pub(crate) fn int(out: &mut Vec<u8>, value: i64) {
    match value {
        0..=0x7f => out.push(value as u8),
        0x80..=0xff => out.extend_from_slice(&[0xcc, value as u8]),
        0x100..=0xffff => {
            out.push(0xcd);
            out.extend_from_slice(&(value as u16).to_be_bytes());
        }
        0x1_0000..=0xffff_ffff => {
            out.push(0xce);
            out.extend_from_slice(&(value as u32).to_be_bytes());
        }
        0x1_0000_0000.. => {
            out.push(0xcf);
            out.extend_from_slice(&value.to_be_bytes());
        }
        -0x20..=-1 => out.push(value as u8),
        -0x80..=-0x21 => out.extend_from_slice(&[0xd0, value as u8]),
        -0x8000..=-0x81 => {
            out.push(0xd1);
            out.extend_from_slice(&(value as i16).to_be_bytes());
        }
        -0x8000_0000..=-0x8001 => {
            out.push(0xd2);
            out.extend_from_slice(&(value as i32).to_be_bytes());
        }
        ..=-0x8000_0001 => {
            out.push(0xd3);
            out.extend_from_slice(&value.to_be_bytes());
        }
    }
}

/// Writes a number, always as a float: carbonapi reads a whole number among values as an absent one.
pub(crate) fn float(out: &mut Vec<u8>, value: f64) {
    let mut bytes = [0xcb; 9];
    bytes[1..].copy_from_slice(&value.to_be_bytes());
    out.extend_from_slice(&bytes);
}

/// Writes true or false.
pub(crate) fn boolean(out: &mut Vec<u8>, value: bool) {
    out.push(if value { 0xc3 } else { 0xc2 });
}

/// Writes nil.
pub(crate) fn nil(out: &mut Vec<u8>) {
    out.push(0xc0);
}
