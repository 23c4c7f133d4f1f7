//! Everything that ingestion counts, read from the owners at one moment.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use carbon::RejectReason;

use crate::{
    accept::{Acceptor, NewMetrics},
    back_pressure::BackPressure,
    counters::Histogram,
    flush::{FlushCycle, RowWriter},
    memtable::Memtable,
    protocol::Protocol,
    read::Reader,
    registration::Registration,
    spill::Spill,
    store_health::StoreHealth,
    wal::Journal,
};

/// Everything that ingestion counts, at one moment. Totals since the start unless said otherwise.
#[derive(Debug, Clone)]
pub struct CountersSnapshot {
    /// Points accepted, by protocol.
    pub points: [(Protocol, u64); Protocol::ALL.len()],
    /// Points, lines and frames rejected, by reason.
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

/// The owners that count.
pub(crate) struct Stats {
    pub(crate) acceptor: Arc<Acceptor>,
    pub(crate) new_metrics: Arc<NewMetrics>,
    pub(crate) back_pressure: Arc<BackPressure>,
    pub(crate) spill: Arc<Spill>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) memtable: Arc<Memtable>,
    pub(crate) health: Arc<StoreHealth>,
    pub(crate) registration: Arc<Registration>,
    pub(crate) cycle: Arc<FlushCycle>,
    pub(crate) writer: Arc<RowWriter>,
    pub(crate) reader: Arc<Reader>,
}

impl Stats {
    pub(crate) fn snapshot(&self) -> CountersSnapshot {
        let (accept, flush, read) = (self.acceptor.counters(), self.writer.counters(), self.reader.counters());
        let journal = self.journal.counters();
        CountersSnapshot {
            points: accept.points(),
            rejects: accept.rejects(),
            batches: accept.batches(),
            created: self.new_metrics.created(),
            stalled_seconds: self.back_pressure.waited_seconds(),
            journal_errors: journal.errors.load(Relaxed),
            store_errors: flush.store_errors.load(Relaxed) + self.registration.errors(),
            cycles: self.cycle.cycles(),
            flushed_metrics: flush.metrics.load(Relaxed),
            flushed_points: flush.points.load(Relaxed),
            replayed_points: journal.replayed_points.load(Relaxed),
            damaged_bytes: journal.damaged_bytes.load(Relaxed),
            fetches: read.series.load(Relaxed),
            flush: flush.groups.snapshot(),
            fetch: read.requests.snapshot(),
            sync: self.journal.sync_seconds(),
            journal_bytes: self.journal.bytes(),
            sync_age: self.journal.sync_age(),
            held_slots: self.back_pressure.slots(),
            parked_points: self.spill.points(),
            parked_bytes: self.spill.bytes(),
            parked_points_total: self.spill.total(),
            store_failing: self.health.is_away(),
            store_problem: self.health.problem().map(|problem| problem.why),
            flushing_metrics: self.memtable.lock().jobs() as u64,
            stalled: self.back_pressure.is_closed(),
            journal_failing: self.journal.is_failing(),
        }
    }
}
