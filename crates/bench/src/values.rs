//! The values to send: gauges and counters as monitoring has them, the same in every run.

use clap::ValueEnum;

use crate::names::{Kind, mix};

/// The kinds of values to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Values {
    /// By name: 47 % gauges, 53 % counters
    #[default]
    Mixed,
    /// Readings with two decimals that wander
    Gauges,
    /// Whole numbers that never fall
    Counters,
}

impl Values {
    /// The kind of a metric whose name suggests `named`.
    pub(crate) fn kind(self, named: Kind) -> Kind {
        match self {
            Values::Mixed => named,
            Values::Gauges => Kind::Gauge,
            Values::Counters => Kind::Counter,
        }
    }
}

/// Largest step of a gauge in one interval, in hundredths, by temper of the series. Fleets have calm and lively metrics;
/// one temper for all would suit some codecs and not others.
const GAUGE_STEPS: [u64; 8] = [0, 2, 5, 25, 50, 100, 250, 500];
/// Usual growth of a counter in one interval, by temper too.
const COUNTER_STEPS: [u64; 8] = [0, 1, 6, 60, 100, 600, 2_000, 10_000];

/// The values of one series, one after another.
#[derive(Debug, Clone)]
pub(crate) struct Walk {
    kind: Kind,
    step: u64,
    random: u64,
    /// Hundredths for a gauge, units for a counter.
    value: i64,
}

impl Walk {
    /// The series with this index, before its first point.
    pub(crate) fn new(seed: u64, index: u64, kind: Kind) -> Walk {
        let random = mix(seed ^ mix(index.wrapping_add(1)));
        let (temper, start) = ((random % 8) as usize, random >> 8);
        match kind {
            Kind::Gauge => Walk { kind, step: GAUGE_STEPS[temper], random, value: (start % 10_000) as i64 },
            Kind::Counter => Walk { kind, step: COUNTER_STEPS[temper], random, value: (start % 100_000_000) as i64 },
        }
    }

    /// The next value.
    pub(crate) fn advance(&mut self) -> Value {
        self.random = mix(self.random);
        match self.kind {
            Kind::Gauge => {
                let moved = (self.random % (2 * self.step + 1)) as i64 - self.step as i64;
                // Gauges are shares, loads and sizes: never negative.
                self.value = (self.value + moved).abs();
                Value::Hundredths(self.value)
            }
            Kind::Counter => {
                // Half to one and a half times the usual growth.
                let grown = self.step / 2 + if self.step == 0 { 0 } else { self.random % (self.step + 1) };
                self.value += grown as i64;
                Value::Units(self.value)
            }
        }
    }
}

/// A value with an exact decimal text, so that reading it back can be exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value {
    /// A number with two decimals; never negative.
    Hundredths(i64),
    /// A whole number; never negative.
    Units(i64),
}

impl Value {
    /// The double nearest to the text, which every server reads.
    pub(crate) fn number(self) -> f64 {
        match self {
            // Division rounds correctly and both sides are exact, so this is the double nearest to the decimal.
            Value::Hundredths(hundredths) => hundredths as f64 / 100.0,
            Value::Units(units) => units as f64,
        }
    }

    /// Appends the decimal text.
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        match self {
            Value::Hundredths(hundredths) => {
                let (whole, cents) = (hundredths / 100, (hundredths % 100) as u8);
                write_whole(whole as u64, out);
                out.extend_from_slice(&[b'.', b'0' + cents / 10, b'0' + cents % 10]);
            }
            Value::Units(units) => write_whole(units as u64, out),
        }
    }
}

/// Appends a whole number in decimal.
pub(crate) fn write_whole(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(seed: u64, index: u64, kind: Kind) -> Vec<Value> {
        let mut walk = Walk::new(seed, index, kind);
        (0..1_000).map(|_| walk.advance()).collect()
    }

    #[test]
    fn values_depend_on_the_seed_and_the_series_alone() {
        assert_eq!(walk(1, 5, Kind::Gauge), walk(1, 5, Kind::Gauge));
        assert_ne!(walk(1, 5, Kind::Gauge), walk(2, 5, Kind::Gauge));
        assert_ne!(walk(1, 5, Kind::Gauge), walk(1, 6, Kind::Gauge));
    }

    #[test]
    fn counters_never_fall_and_gauges_are_never_negative() {
        for index in 0..64 {
            let counters = walk(3, index, Kind::Counter);
            assert!(counters.windows(2).all(|pair| pair[0].number() <= pair[1].number()));
            assert!(walk(3, index, Kind::Gauge).iter().all(|value| 0.0 <= value.number()));
        }
    }

    #[test]
    fn the_text_and_the_number_are_the_same_double() {
        for index in 0..64 {
            for kind in [Kind::Gauge, Kind::Counter] {
                for value in walk(4, index, kind) {
                    let mut text = Vec::new();
                    value.write(&mut text);
                    let text = String::from_utf8(text).expect("digits are ASCII");
                    assert_eq!(text.parse::<f64>(), Ok(value.number()), "{text}");
                }
            }
        }
    }
}
