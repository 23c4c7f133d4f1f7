//! Columns of packed doubles, for carbonapi.

/// Writes packed doubles, with `absent` for absent values.
pub(super) fn doubles(values: &[f64], absent: f64, out: &mut Vec<u8>) {
    let begin = out.len();
    out.resize(begin + 8 * values.len(), 0);
    for (bytes, &value) in out[begin..].chunks_exact_mut(8).zip(values) {
        bytes.copy_from_slice(&if value.is_nan() { absent } else { value }.to_le_bytes());
    }
}
