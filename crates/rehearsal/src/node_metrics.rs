//! The metrics that nodes share, by number.

use metric::Aggregation;

/// A metric, by number: its method is that of the number among all methods, around.
pub(crate) type Number = usize;

/// The method of a metric.
pub(crate) fn method_of(metric: Number) -> Aggregation {
    Aggregation::ALL[metric % Aggregation::ALL.len()]
}

/// The name of a metric: its method, and a letter for each round of all methods.
pub(crate) fn name_of(metric: Number) -> String {
    let letter = char::from(b'a' + (metric / Aggregation::ALL.len()) as u8);
    format!("{}.{letter}", method_of(metric).name())
}
