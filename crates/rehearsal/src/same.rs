//! When two values are the same.

/// Equal to within what sums in another order may differ by.
pub(crate) fn is_same(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan() || (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
}
