//! Damage: what was found that cannot be read, and what it costs, for operators.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use metric::{MetricId, Timestamp};

/// Findings that are kept as examples; all are counted.
const EXAMPLES: usize = 256;

/// Ranges of metrics that are kept apart in [`LostPoints`].
const RANGES: usize = 256;

/// Bytes that could not be read as what they should be.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Damage {
    /// When it was found, Unix seconds.
    pub found_at: Timestamp,
    /// The kind of thing: "block of rows", "journal record", "names record", "file of rows", …
    pub what: &'static str,
    /// The file, relative to the data folder where that is known.
    pub file: String,
    /// What was found instead of what was expected.
    pub how: String,
    /// Bytes that cannot be read.
    pub bytes: u64,
    /// Where the bytes were moved, if they were.
    pub moved_to: Option<String>,
    /// First and last of the metrics that may be touched, by id, where that is known.
    pub metrics: Option<(MetricId, MetricId)>,
    /// From and until of the points that may be touched, Unix seconds, where that is known.
    pub span: Option<(Timestamp, Timestamp)>,
}

/// The damage found since the start, shared by everything that reads files. A clone shares it.
#[derive(Debug, Clone, Default)]
pub struct DamageLog {
    found: Arc<Mutex<Found>>,
}

#[derive(Debug, Default)]
struct Found {
    count: u64,
    bytes: u64,
    /// Findings that are over.
    mended: u64,
    examples: VecDeque<Damage>,
    lost: LostPoints,
}

/// The points that damage may have cost since the start.
#[derive(Debug, Clone, Default)]
pub struct LostPoints {
    /// First and last metric, and the time behind the newest point that may be lost. At most [`RANGES`].
    ranges: Vec<(MetricId, MetricId, Timestamp)>,
}

impl LostPoints {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The time behind the newest point of a metric that may be lost.
    pub fn until(&self, metric: MetricId) -> Option<Timestamp> {
        let touches = |&&(first, last, _): &&(MetricId, MetricId, Timestamp)| first <= metric && metric <= last;
        self.ranges.iter().filter(touches).map(|&(_, _, until)| until).max()
    }

    fn add(&mut self, damage: &Damage) {
        let (first, last) = damage.metrics.unwrap_or((MetricId(0), MetricId::NONE));
        let until = damage.span.map_or(damage.found_at, |(_, until)| until);
        let same = self.ranges.iter_mut().find(|range| (range.0, range.1) == (first, last));
        match same {
            Some(range) => range.2 = range.2.max(until),
            None => self.ranges.push((first, last, until)),
        }
        if RANGES < self.ranges.len() {
            let all = |one: (MetricId, MetricId, Timestamp), other: (MetricId, MetricId, Timestamp)| {
                (one.0.min(other.0), one.1.max(other.1), one.2.max(other.2))
            };
            self.ranges = self.ranges.drain(..).reduce(all).into_iter().collect();
        }
    }
}

impl DamageLog {
    /// Nothing found yet.
    pub fn new() -> DamageLog {
        DamageLog::default()
    }

    /// Keeps a finding, unless the same bytes were reported before. Returns whether it is new: only then does the
    /// caller log it.
    pub fn report(&self, damage: Damage) -> bool {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same =
            |known: &Damage| (known.what, &known.file, &known.how) == (damage.what, &damage.file, &damage.how);
        if found.examples.iter().any(is_same) {
            return false;
        }
        found.count += 1;
        found.bytes += damage.bytes;
        found.lost.add(&damage);
        if found.examples.len() == EXAMPLES {
            found.examples.pop_front();
        }
        found.examples.push_back(damage);
        true
    }

    /// Ends the findings that are over, because a file can be read again. Their points are not lost.
    pub fn mend(&self, is_over: impl Fn(&Damage) -> bool) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let before = found.examples.len();
        found.examples.retain(|damage| !is_over(damage));
        found.mended += (before - found.examples.len()) as u64;
        // Unless findings are forgotten, whose points may still be lost.
        if found.count == found.mended + found.examples.len() as u64 {
            let mut lost = LostPoints::default();
            found.examples.iter().for_each(|damage| lost.add(damage));
            found.lost = lost;
        }
    }

    /// Findings since the start that are over.
    pub fn mended(&self) -> u64 {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).mended
    }

    /// Findings and their bytes since the start, with those that are over.
    pub fn totals(&self) -> (u64, u64) {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        (found.count, found.bytes)
    }

    /// The points that may be lost.
    pub fn lost_points(&self) -> LostPoints {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).lost.clone()
    }

    /// The last findings, oldest first.
    pub fn examples(&self) -> Vec<Damage> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.examples.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_points_are_those_of_the_metrics_and_times_that_damage_names() {
        let log = DamageLog::new();
        let of = |file: usize, metrics, span| {
            let file = file.to_string();
            Damage { found_at: 5000, file, metrics, span, ..Damage::default() }
        };
        let metrics = |first, last| Some((MetricId(first), MetricId(last)));
        assert!(log.lost_points().is_empty());
        log.report(of(0, metrics(3, 5), Some((100, 200))));
        log.report(of(1, metrics(5, 9), Some((100, 300))));
        let lost = log.lost_points();
        let until = |metric| lost.until(MetricId(metric));
        assert_eq!([until(2), until(3), until(5), until(9), until(10)], [None, Some(200), Some(300), Some(300), None]);
        for n in 0..=RANGES as u32 {
            log.report(of(2 + n as usize, metrics(20 + n, 20 + n), Some((100, 150))));
        }
        let lost = log.lost_points();
        assert_eq!(
            (lost.until(MetricId(2)), lost.until(MetricId(10))),
            (None, Some(300)),
            "too many: all between them"
        );
        log.report(of(1000, None, None));
        assert_eq!(log.lost_points().until(MetricId(2)), Some(5000), "nothing is known");
    }

    #[test]
    fn a_file_that_can_be_read_again_has_lost_nothing() {
        let log = DamageLog::new();
        let of = |file: &str, metric| {
            let metrics = Some((MetricId(metric), MetricId(metric)));
            Damage { file: file.to_owned(), metrics, span: Some((0, 10)), ..Damage::default() }
        };
        log.report(of("a", 1));
        log.report(of("b", 2));
        log.mend(|damage| damage.file == "a");
        assert_eq!((log.totals().0, log.mended(), log.examples()), (2, 1, vec![of("b", 2)]));
        let lost = log.lost_points();
        assert_eq!((lost.until(MetricId(1)), lost.until(MetricId(2))), (None, Some(10)));
        assert!(log.report(of("a", 1)), "it is a new finding then");
        assert_eq!(log.totals().0, 3);
    }

    #[test]
    fn the_same_damage_is_counted_once_and_examples_are_bounded() {
        let log = DamageLog::new();
        let damage = |n: usize| Damage { what: "block of rows", file: n.to_string(), bytes: 2, ..Damage::default() };
        assert!(log.report(damage(0)));
        assert!(!log.clone().report(damage(0)));
        assert_eq!(log.totals(), (1, 2));
        for n in 1..=EXAMPLES {
            log.report(damage(n));
        }
        assert_eq!((log.totals().0, log.examples().len()), (EXAMPLES as u64 + 1, EXAMPLES));
    }
}
