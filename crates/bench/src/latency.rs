//! Percentiles of measured times.

use std::time::Duration;

use serde::Serialize;

/// Milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Latency {
    pub(crate) count: usize,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

impl Latency {
    /// `None` without times. Percentiles are by nearest rank: each is a measured time.
    pub(crate) fn of(mut times: Vec<Duration>) -> Option<Latency> {
        times.sort();
        let max = times.last()?.as_secs_f64() * 1e3;
        let rank = |percent: usize| {
            let rank = (times.len() * percent).div_ceil(100).max(1);
            times[rank - 1].as_secs_f64() * 1e3
        };
        Some(Latency { count: times.len(), p50: rank(50), p90: rank(90), p99: rank(99), max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_measured_times() {
        let times: Vec<Duration> = (1..=200).rev().map(Duration::from_millis).collect();
        let latency = Latency::of(times).expect("there are times");
        assert_eq!(
            (latency.count, latency.p50, latency.p90, latency.p99, latency.max),
            (200, 100.0, 180.0, 198.0, 200.0)
        );
    }

    #[test]
    fn one_time_is_every_percentile_and_no_time_is_none() {
        let latency = Latency::of(vec![Duration::from_millis(3)]).expect("there is a time");
        assert_eq!((latency.p50, latency.p99, latency.max), (3.0, 3.0, 3.0));
        assert_eq!(Latency::of(vec![]), None);
    }
}
