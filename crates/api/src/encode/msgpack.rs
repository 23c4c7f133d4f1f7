//! MessagePack as msgpack-python writes it: each value in the fewest bytes, except that numbers are always floats.

use rmp::encode::{write_array_len, write_bool, write_f64, write_map_len, write_nil, write_sint, write_str};

/// A `Vec` takes every byte.
const NO_ERROR: &str = "writing to memory succeeds";

/// Begins an array of `len` values.
pub(crate) fn array(out: &mut Vec<u8>, len: usize) {
    write_array_len(out, len as u32).expect(NO_ERROR);
}

/// Begins a map of `len` pairs.
pub(crate) fn map(out: &mut Vec<u8>, len: usize) {
    write_map_len(out, len as u32).expect(NO_ERROR);
}

/// Writes a text.
pub(crate) fn text(out: &mut Vec<u8>, text: &str) {
    write_str(out, text).expect(NO_ERROR);
}

/// Writes a whole number.
pub(crate) fn int(out: &mut Vec<u8>, value: i64) {
    write_sint(out, value).expect(NO_ERROR);
}

/// Writes a number, always as a float: carbonapi reads a whole number among values as an absent one.
pub(crate) fn float(out: &mut Vec<u8>, value: f64) {
    write_f64(out, value).expect(NO_ERROR);
}

/// Writes true or false.
pub(crate) fn boolean(out: &mut Vec<u8>, value: bool) {
    write_bool(out, value).expect(NO_ERROR);
}

/// Writes nil.
pub(crate) fn nil(out: &mut Vec<u8>) {
    write_nil(out).expect(NO_ERROR);
}
