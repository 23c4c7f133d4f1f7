//! Values as Python prints them, for csv and raw.

use crate::encode::python::{write_float, write_whole};

/// Writes `repr(value)` of a Python float, int, or None.
pub(super) fn python_value(value: f64, integers: bool, null: &[u8], out: &mut Vec<u8>) {
    if value.is_nan() {
        out.extend_from_slice(null);
    } else if value.is_infinite() {
        out.extend_from_slice(if value < 0.0 { b"-inf" } else { b"inf" });
    } else if integers {
        write_whole(out, value);
    } else {
        write_float(out, value);
    }
}
