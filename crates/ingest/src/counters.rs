//! What happened, in numbers. Counted a batch at a time, read when somebody asks.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use carbon::RejectReason;
use parking_lot::Mutex;

/// How points came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Plaintext over TCP.
    LineTcp,
    /// Plaintext over UDP.
    LineUdp,
    /// Pickle over TCP.
    Pickle,
    /// Protobuf over TCP.
    Protobuf,
    /// HTTP POST, whatever the body.
    Http,
    /// Our own metrics.
    Own,
}

impl Protocol {
    /// Every protocol, in the order of the variants.
    pub const ALL: [Protocol; 6] =
        [Protocol::LineTcp, Protocol::LineUdp, Protocol::Pickle, Protocol::Protobuf, Protocol::Http, Protocol::Own];

    /// The label of its counters.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::LineTcp => "line_tcp",
            Protocol::LineUdp => "line_udp",
            Protocol::Pickle => "pickle",
            Protocol::Protobuf => "protobuf",
            Protocol::Http => "http",
            Protocol::Own => "own",
        }
    }
}

/// Upper bounds of the buckets of every duration histogram, in seconds.
pub const BUCKETS: [f64; 12] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];

/// Durations, counted by how long they were.
#[derive(Debug, Default)]
pub(crate) struct Durations {
    // The last one counts what is longer than every bound.
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

    fn snapshot(&self) -> Histogram {
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

/// The time that receivers wait, all of them together, those included that wait now: a stall that lasts must be
/// seen while it lasts.
#[derive(Debug, Default)]
pub(crate) struct Stalls {
    waits: Mutex<Waits>,
}

#[derive(Debug, Default)]
struct Waits {
    /// How long they waited until `at`.
    until: Duration,
    at: Option<Instant>,
    /// How many wait since then.
    now: u32,
}

impl Waits {
    fn reckon(&mut self, now: Instant) -> Duration {
        let since = self.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.at = Some(now);
        self.until += since * self.now;
        self.until
    }
}

/// A receiver that waits, until it is dropped.
#[derive(Debug)]
pub(crate) struct Stall<'a>(&'a Stalls);

impl Stalls {
    /// Somebody begins to wait.
    pub(crate) fn begin(&self) -> Stall<'_> {
        let mut waits = self.waits.lock();
        waits.reckon(Instant::now());
        waits.now += 1;
        Stall(self)
    }

    fn so_far(&self) -> Duration {
        self.waits.lock().reckon(Instant::now())
    }
}

impl Drop for Stall<'_> {
    fn drop(&mut self) {
        let mut waits = self.0.waits.lock();
        waits.reckon(Instant::now());
        waits.now -= 1;
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    points: [AtomicU64; Protocol::ALL.len()],
    rejects: [AtomicU64; RejectReason::ALL.len()],
    pub(crate) batches: AtomicU64,
    pub(crate) created: AtomicU64,
    pub(crate) stalls: Stalls,
    pub(crate) journal_errors: AtomicU64,
    pub(crate) store_errors: AtomicU64,
    pub(crate) cycles: AtomicU64,
    pub(crate) flushed_metrics: AtomicU64,
    pub(crate) flushed_points: AtomicU64,
    pub(crate) replayed_points: AtomicU64,
    pub(crate) damaged_bytes: AtomicU64,
    pub(crate) fetches: AtomicU64,
    pub(crate) flush: Durations,
    pub(crate) fetch: Durations,
    pub(crate) sync: Durations,
}

impl Counters {
    pub(crate) fn accepted(&self, protocol: Protocol, points: u64) {
        self.points[protocol as usize].fetch_add(points, Relaxed);
    }

    pub(crate) fn refused(&self, reason: RejectReason, points: u64) {
        self.rejects[reason as usize].fetch_add(points, Relaxed);
    }

    pub(crate) fn snapshot(&self) -> CountersSnapshot {
        CountersSnapshot {
            points: Protocol::ALL.map(|protocol| (protocol, self.points[protocol as usize].load(Relaxed))),
            rejects: RejectReason::ALL.map(|reason| (reason, self.rejects[reason as usize].load(Relaxed))),
            batches: self.batches.load(Relaxed),
            created: self.created.load(Relaxed),
            stalled_seconds: self.stalls.so_far().as_secs_f64(),
            journal_errors: self.journal_errors.load(Relaxed),
            store_errors: self.store_errors.load(Relaxed),
            cycles: self.cycles.load(Relaxed),
            flushed_metrics: self.flushed_metrics.load(Relaxed),
            flushed_points: self.flushed_points.load(Relaxed),
            replayed_points: self.replayed_points.load(Relaxed),
            damaged_bytes: self.damaged_bytes.load(Relaxed),
            fetches: self.fetches.load(Relaxed),
            flush: self.flush.snapshot(),
            fetch: self.fetch.snapshot(),
            sync: self.sync.snapshot(),
            ..CountersSnapshot::empty()
        }
    }
}

/// Everything that ingestion counts, at one moment. Totals since the start unless said otherwise.
#[derive(Debug, Clone)]
pub struct CountersSnapshot {
    /// Points accepted, by protocol.
    pub points: [(Protocol, u64); Protocol::ALL.len()],
    /// Points, lines and frames refused, by reason.
    pub rejects: [(RejectReason, u64); RejectReason::ALL.len()],
    /// Batches accepted.
    pub batches: u64,
    /// Metrics created.
    pub created: u64,
    /// Seconds that receivers waited because the pipeline was full, all connections together, those that wait now
    /// included.
    pub stalled_seconds: f64,
    /// Failed appends and syncs of the journal.
    pub journal_errors: u64,
    /// Failed calls of the driver.
    pub store_errors: u64,
    /// Flush cycles ended.
    pub cycles: u64,
    /// Metrics written out.
    pub flushed_metrics: u64,
    /// Stage-0 points written out.
    pub flushed_points: u64,
    /// Points replayed from the journal at the start.
    pub replayed_points: u64,
    /// Bytes of the journal that held no whole record at the start.
    pub damaged_bytes: u64,
    /// Series read.
    pub fetches: u64,
    /// How long it took to write a group of metrics to the driver.
    pub flush: Histogram,
    /// How long it took to read the series of a request.
    pub fetch: Histogram,
    /// How long an fsync of the journal took.
    pub sync: Histogram,
    /// Now: bytes of the journal on disk.
    pub journal_bytes: u64,
    /// Now: seconds since all that was appended was on the disk.
    pub sync_age: f64,
    /// Now: slots held in memory, unflushed.
    pub held_slots: u64,
    /// Now: points that are in the journal alone: accepted, not stored, not readable yet.
    pub parked_points: u64,
    /// Now: bytes of the journal's records of those points.
    pub parked_bytes: u64,
    /// Points that were parked, some of them read back since.
    pub parked_points_total: u64,
    /// Now: whether the store does not take points, so that they are kept here.
    pub store_failing: bool,
    /// Now: why it does not.
    pub store_problem: Option<String>,
    /// Now: metrics that are being written out.
    pub flushing_metrics: u64,
    /// Now: whether receivers are made to wait.
    pub stalled: bool,
    /// Now: whether the journal cannot be written, so that nothing is accepted.
    pub journal_failing: bool,
}

impl CountersSnapshot {
    fn empty() -> CountersSnapshot {
        CountersSnapshot {
            points: Protocol::ALL.map(|protocol| (protocol, 0)),
            rejects: RejectReason::ALL.map(|reason| (reason, 0)),
            batches: 0,
            created: 0,
            stalled_seconds: 0.0,
            journal_errors: 0,
            store_errors: 0,
            cycles: 0,
            flushed_metrics: 0,
            flushed_points: 0,
            replayed_points: 0,
            damaged_bytes: 0,
            fetches: 0,
            flush: Histogram::default(),
            fetch: Histogram::default(),
            sync: Histogram::default(),
            journal_bytes: 0,
            sync_age: 0.0,
            held_slots: 0,
            parked_points: 0,
            parked_bytes: 0,
            parked_points_total: 0,
            store_failing: false,
            store_problem: None,
            flushing_metrics: 0,
            stalled: false,
            journal_failing: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_wait_are_counted_while_they_wait_each_of_them() {
        let waits = |until: u64, at: Instant, now: u32| Waits { until: Duration::from_secs(until), at: Some(at), now };
        let (before, second) = (Instant::now(), Duration::from_secs(1));
        assert_eq!(waits(5, before, 0).reckon(before + 10 * second), 5 * second);
        assert_eq!(waits(5, before, 2).reckon(before + 10 * second), 25 * second);
        let mut waits = waits(0, before, 3);
        waits.reckon(before + second);
        assert_eq!(waits.reckon(before + 2 * second), 6 * second);
    }

    #[test]
    fn a_stall_that_ends_is_counted_no_further() {
        let stalls = Stalls::default();
        let stall = stalls.begin();
        std::thread::sleep(Duration::from_millis(2));
        assert!(stalls.so_far() >= Duration::from_millis(2));
        drop(stall);
        let waited = stalls.so_far();
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(stalls.so_far(), waited);
    }
}
