//! Which metrics are due to say in the shared tables that points came for them, or that they were read.
//!
//! BigGraphite's `clean` deletes what has not said so for three days. Saying it with every point would be a
//! second write for each, so each metric says it once in a while.

use metric::{MetricId, Timestamp};

/// When each metric last said it, by number: four bytes a metric.
#[derive(Debug)]
pub struct Touches {
    every: u32,
    // Unix seconds; 0 where nothing was said since the start.
    last: Vec<u32>,
    // When this began: until it is `every` ago, metrics of which nothing is known are spread over that time.
    began: Timestamp,
}

impl Touches {
    /// Metrics say it every so many seconds. `now` is Unix seconds.
    pub fn new(every: u32, now: Timestamp) -> Touches {
        Touches { every: every.max(1), last: Vec::new(), began: now }
    }

    /// Notes that something happened to a metric, and returns whether it is to be said now; then it counts as said.
    pub fn is_due(&mut self, metric: MetricId, now: Timestamp) -> bool {
        let every = Timestamp::from(self.every);
        let index = metric.index();
        if index >= self.last.len() {
            self.last.resize(index + 1, 0);
        }
        let last = match self.last[index] {
            // After a restart nobody knows: each at a place of its own in the first span.
            0 => self.began - Timestamp::from(scattered(metric) % self.every),
            known => Timestamp::from(known),
        };
        let is_due = now - last >= every;
        // Remembered also when it is not due, so that the place is taken once.
        self.last[index] = u32::try_from(if is_due { now } else { last }).unwrap_or(u32::MAX).max(1);
        is_due
    }

    /// Notes that it was said: the metric was created.
    pub fn said(&mut self, metric: MetricId, now: Timestamp) {
        let index = metric.index();
        if index >= self.last.len() {
            self.last.resize(index + 1, 0);
        }
        self.last[index] = u32::try_from(now).unwrap_or(u32::MAX).max(1);
    }
}

/// Numbers in a row become numbers all over (Fibonacci hashing).
fn scattered(metric: MetricId) -> u32 {
    metric.0.wrapping_mul(0x9E37_79B9)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u32 = 86_400;
    const NOW: Timestamp = 1_700_000_000;

    #[test]
    fn a_metric_says_it_once_in_a_while() {
        let mut touches = Touches::new(DAY, NOW);
        touches.said(MetricId(7), NOW);
        assert!(!touches.is_due(MetricId(7), NOW + 3600));
        assert!(touches.is_due(MetricId(7), NOW + 86_400));
        assert!(!touches.is_due(MetricId(7), NOW + 86_401));
        assert!(touches.is_due(MetricId(7), NOW + 2 * 86_400));
    }

    #[test]
    fn after_a_restart_metrics_are_spread_over_the_span() {
        let mut touches = Touches::new(DAY, NOW);
        let due_in_hour =
            |hour: i64| (0..24_000).map(MetricId).filter(|&m| touches.is_due(m, NOW + hour * 3600)).count();
        let counts: Vec<usize> = (0..=24).map(due_in_hour).collect();
        assert!(counts.iter().all(|&count| count < 2000), "{counts:?}");
        assert_eq!(counts.iter().sum::<usize>(), 24_000, "every one of them within the span");
    }
}
