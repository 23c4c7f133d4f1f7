//! When each metric is next due to be reported as seen.
//!
//! BigGraphite's `clean` deletes metrics whose rows say nothing for three days. A report with every point would double the
//! writes, so each metric is reported once per interval.

use metric::{MetricId, Timestamp};

/// The latest report of each metric: four bytes a metric.
#[derive(Debug)]
pub(crate) struct Schedule {
    every: u32,
    // By metric id: Unix seconds; 0 where nothing was reported since the start.
    last: Vec<u32>,
    // When this process began: in the first interval, metrics without a report are spread over it.
    began: Timestamp,
}

impl Schedule {
    /// One report per metric every `every` seconds; `now` is Unix seconds.
    pub(crate) fn new(every: u32, now: Timestamp) -> Schedule {
        Schedule { every: every.max(1), last: Vec::new(), began: now }
    }

    /// Whether a metric that was just seen is due; then it counts as reported.
    pub(crate) fn is_due(&mut self, metric: MetricId, now: Timestamp) -> bool {
        let (every, offset) = (Timestamp::from(self.every), Timestamp::from(scattered(metric) % self.every));
        let began = self.began;
        let slot = self.slot(metric);
        let last = match *slot {
            // Unknown after a restart: each metric has its own offset into the first interval.
            0 => began - offset,
            known => Timestamp::from(known),
        };
        let is_due = now - last >= every;
        // Kept also when not due, so that the offset is used once.
        *slot = seconds(if is_due { now } else { last });
        is_due
    }

    /// Notes that a metric was reported: its creation is a report.
    pub(crate) fn reported(&mut self, metric: MetricId, now: Timestamp) {
        *self.slot(metric) = seconds(now);
    }

    fn slot(&mut self, metric: MetricId) -> &mut u32 {
        let index = metric.index();
        if index >= self.last.len() {
            self.last.resize(index + 1, 0);
        }
        &mut self.last[index]
    }
}

fn seconds(time: Timestamp) -> u32 {
    u32::try_from(time).unwrap_or(u32::MAX).max(1)
}

/// Spreads consecutive ids over all numbers (Fibonacci hashing).
fn scattered(metric: MetricId) -> u32 {
    metric.0.wrapping_mul(0x9E37_79B9)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u32 = 86_400;
    const NOW: Timestamp = 1_700_000_000;

    #[test]
    fn a_metric_is_due_once_per_interval() {
        let mut schedule = Schedule::new(DAY, NOW);
        let metric = MetricId(7);
        schedule.reported(metric, NOW);
        assert!(!schedule.is_due(metric, NOW + 3600));
        assert!(schedule.is_due(metric, NOW + 86_400));
        assert!(!schedule.is_due(metric, NOW + 86_401));
        assert!(schedule.is_due(metric, NOW + 2 * 86_400));
    }

    #[test]
    fn after_a_restart_metrics_are_spread_over_the_interval() {
        let mut schedule = Schedule::new(DAY, NOW);
        let due_in_hour =
            |hour: i64| (0..24_000).filter(|&id| schedule.is_due(MetricId(id), NOW + hour * 3600)).count();
        let counts: Vec<usize> = (0..=24).map(due_in_hour).collect();
        assert!(counts.iter().all(|&count| count < 2000), "{counts:?}");
        assert_eq!(counts.iter().sum::<usize>(), 24_000, "every metric within the interval");
    }
}
