//! Carbon's eight aggregation methods, as folds over points in time order.

use std::{fmt, str::FromStr};

/// How a coarse slot aggregates its points. The names are carbon's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Aggregation {
    /// The mean of the points there are.
    #[default]
    Average,
    /// Their sum.
    Sum,
    /// The latest by time.
    Last,
    /// The largest.
    Max,
    /// The smallest.
    Min,
    /// The mean over all slots, an absent one counting as zero.
    AvgZero,
    /// The value farthest from zero, with its sign.
    AbsMax,
    /// The value nearest to zero, with its sign.
    AbsMin,
}

/// The content of a coarse slot: enough to go on aggregating. For the averages `value` is the sum, for the other
/// methods the answer. `count` is the number of stage-0 slots folded in; with zero, `value` has no meaning.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Partial {
    /// Sum, extreme or latest value, as the method has it.
    pub value: f64,
    /// Stage-0 slots folded in.
    pub count: u32,
}

/// A count that stands for itself and everything above: BigGraphite's tables keep counts as a `smallint`, and a
/// larger one is stored as this.
pub const SATURATED_COUNT: u32 = 32_767;

impl Partial {
    /// Nothing known.
    pub const NONE: Partial = Partial { value: f64::NAN, count: 0 };

    /// A single point.
    pub fn point(value: f64) -> Partial {
        Partial { value, count: 1 }
    }
}

impl Aggregation {
    /// Every method, in the order of whisper's ids (1 to 8).
    pub const ALL: [Aggregation; 8] = [
        Aggregation::Average,
        Aggregation::Sum,
        Aggregation::Last,
        Aggregation::Max,
        Aggregation::Min,
        Aggregation::AvgZero,
        Aggregation::AbsMax,
        Aggregation::AbsMin,
    ];

    /// Carbon's name.
    pub fn name(self) -> &'static str {
        match self {
            Aggregation::Average => "average",
            Aggregation::Sum => "sum",
            Aggregation::Last => "last",
            Aggregation::Max => "max",
            Aggregation::Min => "min",
            Aggregation::AvgZero => "avg_zero",
            Aggregation::AbsMax => "absmax",
            Aggregation::AbsMin => "absmin",
        }
    }

    /// Folds `later` into `earlier`; every point of `later` comes after those of `earlier`.
    pub fn merge(self, earlier: Partial, later: Partial) -> Partial {
        if earlier.count == 0 {
            return later;
        }
        if later.count == 0 {
            return earlier;
        }
        let (a, b) = (earlier.value, later.value);
        let value = match self {
            Aggregation::Average | Aggregation::Sum | Aggregation::AvgZero => a + b,
            Aggregation::Last => b,
            Aggregation::Max => {
                if b > a {
                    b
                } else {
                    a
                }
            }
            Aggregation::Min => {
                if b < a {
                    b
                } else {
                    a
                }
            }
            // Python's max and min keep the first of equals, and whisper uses them with key=abs.
            Aggregation::AbsMax => {
                if b.abs() > a.abs() {
                    b
                } else {
                    a
                }
            }
            Aggregation::AbsMin => {
                if b.abs() < a.abs() {
                    b
                } else {
                    a
                }
            }
        };
        Partial { value, count: earlier.count.saturating_add(later.count) }
    }

    /// The value that a reader sees, or NaN with too few points. `expected` is the number of stage-0
    /// slots that fit in the coarse slot; whisper's rule: known / expected ≥ xFilesFactor, and at least one. A count of
    /// exactly [`SATURATED_COUNT`] may stand for any larger one, and passes for complete.
    pub fn finish(self, partial: Partial, expected: u32, x_files_factor: f64) -> f64 {
        let known = if partial.count == SATURATED_COUNT { expected } else { partial.count };
        if partial.count == 0 || f64::from(known) / f64::from(expected) < x_files_factor {
            return f64::NAN;
        }
        match self {
            Aggregation::Average => partial.value / f64::from(partial.count),
            Aggregation::AvgZero => partial.value / f64::from(expected),
            _ => partial.value,
        }
    }

    /// A slot written directly at a coarse stage stands for all `expected` points of it: the partial that
    /// `finish` turns back into `value`.
    pub fn whole(self, value: f64, expected: u32) -> Partial {
        match self {
            Aggregation::Average | Aggregation::AvgZero => {
                Partial { value: value * f64::from(expected), count: expected }
            }
            _ => Partial { value, count: expected },
        }
    }
}

impl fmt::Display for Aggregation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A method that carbon does not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not an aggregation method; use one of average, sum, last, max, min, avg_zero, absmax, absmin")]
pub struct UnknownAggregation(pub String);

/// Carbon's names, and `avg`, which go-carbon and metrictank accept.
impl FromStr for Aggregation {
    type Err = UnknownAggregation;

    fn from_str(text: &str) -> Result<Aggregation, UnknownAggregation> {
        if text == "avg" {
            return Ok(Aggregation::Average);
        }
        let known = Aggregation::ALL.into_iter().find(|method| method.name() == text);
        known.ok_or_else(|| UnknownAggregation(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aggregate(method: Aggregation, points: &[f64], expected: u32, x_files_factor: f64) -> f64 {
        let all = points.iter().fold(Partial::NONE, |all, &value| method.merge(all, Partial::point(value)));
        method.finish(all, expected, x_files_factor)
    }

    #[test]
    fn every_method_folds_as_whisper_does() {
        let points = [3.0, -7.0, 1.0, 5.0];
        let expected = [0.5, 2.0, 5.0, 5.0, -7.0, 0.25, -7.0, 1.0];
        for (method, want) in Aggregation::ALL.into_iter().zip(expected) {
            assert_eq!(aggregate(method, &points, 8, 0.5), want, "{method}");
        }
    }

    #[test]
    fn too_few_points_give_nan() {
        assert!(aggregate(Aggregation::Sum, &[1.0], 4, 0.5).is_nan());
        assert_eq!(aggregate(Aggregation::Sum, &[1.0, 2.0], 4, 0.5), 3.0);
        assert!(aggregate(Aggregation::Sum, &[], 4, 0.0).is_nan());
    }

    #[test]
    fn a_count_that_the_tables_cannot_tell_apart_counts_as_complete() {
        let finish = |count| Aggregation::Sum.finish(Partial { value: 7.0, count }, 86_400, 0.5);
        assert_eq!(finish(SATURATED_COUNT), 7.0);
        assert!(finish(SATURATED_COUNT - 1).is_nan() && finish(SATURATED_COUNT + 1).is_nan());
        assert_eq!(Aggregation::Sum.finish(Partial { value: 7.0, count: SATURATED_COUNT }, SATURATED_COUNT, 1.0), 7.0);
        assert_eq!(Aggregation::Average.finish(Partial { value: 65_534.0, count: SATURATED_COUNT }, 86_400, 1.0), 2.0);
    }

    #[test]
    fn a_whole_slot_reads_back_as_written() {
        for method in Aggregation::ALL {
            assert_eq!(method.finish(method.whole(2.5, 60), 60, 1.0), 2.5, "{method}");
        }
    }

    #[test]
    fn names_are_carbons() {
        assert_eq!("avg_zero".parse(), Ok(Aggregation::AvgZero));
        assert_eq!("avg".parse(), Ok(Aggregation::Average));
        assert!("Average".parse::<Aggregation>().is_err());
    }
}
