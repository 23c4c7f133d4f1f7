//! Durations, counted by how long they were.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// Upper bounds of the buckets of every duration histogram, in seconds.
pub const BUCKETS: [f64; 12] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];

/// Durations, counted by how long they were.
#[derive(Debug, Default)]
pub(crate) struct Durations {
    // The last one counts durations above every bound.
    buckets: [AtomicU64; BUCKETS.len() + 1],
    nanoseconds: AtomicU64,
}

impl Durations {
    pub(crate) fn observe(&self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let bucket = BUCKETS.iter().position(|&bound| seconds <= bound).unwrap_or(BUCKETS.len());
        self.buckets[bucket].fetch_add(1, Relaxed);
        self.nanoseconds.fetch_add(duration.as_nanos() as u64, Relaxed);
    }

    pub(crate) fn snapshot(&self) -> Histogram {
        let mut total = 0;
        let cumulative = std::array::from_fn(|i| {
            total += self.buckets[i].load(Relaxed);
            total
        });
        let count = total + self.buckets[BUCKETS.len()].load(Relaxed);
        Histogram { cumulative, count, seconds: self.nanoseconds.load(Relaxed) as f64 / 1e9 }
    }
}

/// A histogram of durations at one moment.
#[derive(Debug, Clone, Default)]
pub struct Histogram {
    /// How many took at most [`Histogram::BOUNDS`] seconds, for each bound.
    pub cumulative: [u64; BUCKETS.len()],
    /// How many there were.
    pub count: u64,
    /// Their sum in seconds.
    pub seconds: f64,
}

impl Histogram {
    /// Upper bounds of the buckets, in seconds.
    pub const BOUNDS: [f64; BUCKETS.len()] = BUCKETS;
}
