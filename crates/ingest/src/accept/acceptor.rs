//! The path that every point takes, once.
//!
//! 1. Wait while the pipeline is full.
//! 2. Names to metric ids, under one shared lock; names never seen get a policy and an id, under one exclusive lock
//!    (`resolve.rs`, `new_metrics.rs`).
//! 3. One record appended to the journal, on a thread that may wait for the disk (`append_queue.rs`).
//! 4. One slot store a point, there too, under one lock of the memtable. From here on a reader sees them. While points
//!    spill, this step is left to `flush/read_back.rs`.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use carbon::RejectReason;
use host::{Clock, JudgingTime, Now};
use metadata::Registry;
use metric::Timestamp;

use super::{
    append_queue::{AppendQueue, Taken, place_before},
    batch::{Batch, Example, TIMELESS},
    gate::pass,
    quotas::Quotas,
    rejects::{RejectExample, Rejects},
    resolve::Resolver,
};
use crate::{back_pressure::BackPressure, protocol::Protocol, spill::Spill, wal::Journal};

/// Interval between two looks for metrics in place of deleted ones, and looks at most: a deletion takes milliseconds.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
const MOST_LOOKS: u32 = 1000;

/// When the journal is put on the disk for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    /// In groups, this long apart: a lost machine (not a killed process) loses at most this.
    Every(Duration),
    /// Before the next bytes of a connection are read.
    Always,
}

/// Counters of the acceptor.
#[derive(Debug, Default)]
pub(crate) struct AcceptCounters {
    points: [AtomicU64; Protocol::ALL.len()],
    rejects: [AtomicU64; RejectReason::ALL.len()],
    batches: AtomicU64,
}

impl AcceptCounters {
    pub(crate) fn points(&self) -> [(Protocol, u64); Protocol::ALL.len()] {
        Protocol::ALL.map(|protocol| (protocol, self.points[protocol as usize].load(Relaxed)))
    }

    pub(crate) fn rejects(&self) -> [(RejectReason, u64); RejectReason::ALL.len()] {
        RejectReason::ALL.map(|reason| (reason, self.rejects[reason as usize].load(Relaxed)))
    }

    pub(crate) fn batches(&self) -> u64 {
        self.batches.load(Relaxed)
    }
}

/// Why points are not accepted at this moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The journal fails.
    pub(crate) journal: Option<String>,
    /// Senders wait for room.
    pub(crate) full: Option<String>,
}

/// The owners that an acceptor hands points to.
pub(crate) struct AcceptorParts {
    pub(crate) resolver: Resolver,
    pub(crate) quotas: Arc<Quotas>,
    pub(crate) queue: Arc<AppendQueue>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) back_pressure: Arc<BackPressure>,
    pub(crate) spill: Arc<Spill>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) time: Arc<JudgingTime>,
    pub(crate) sync: Sync,
}

/// Accepts batches of points from every receiver.
pub struct Acceptor {
    to: AcceptorParts,
    counters: AcceptCounters,
    rejects: Rejects,
    /// Batches made so far, each for a connection or a request.
    senders: AtomicU64,
}

impl Acceptor {
    pub(crate) fn new(to: AcceptorParts) -> Acceptor {
        Acceptor { to, counters: AcceptCounters::default(), rejects: Rejects::default(), senders: AtomicU64::new(0) }
    }

    /// An empty batch for a connection.
    pub fn batch(&self, protocol: Protocol) -> Batch {
        Batch::new(protocol, self.senders.fetch_add(1, Relaxed), self.to.resolver.registry().clone())
    }

    /// The time that points get which come without one, Unix seconds: the clock's, unless it is known to be wrong.
    pub(crate) fn now(&self) -> Timestamp {
        match self.to.time.is_doubtful() {
            true => self.to.time.for_points_without_time(),
            false => self.to.clock.now(),
        }
    }

    /// For decoders that fill a batch: as [`Acceptor::now`], so that the batch knows which points came without a time.
    pub(crate) fn time_for_none(&self) -> Timestamp {
        self.now().saturating_add(TIMELESS)
    }

    /// The time by which points are judged.
    pub(crate) fn time(&self) -> &Arc<JudgingTime> {
        &self.to.time
    }

    /// The clock of receivers.
    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.to.clock
    }

    /// Accepts every point of the batch, and leaves it empty. Waits while the pipeline is full, which is how
    /// back-pressure reaches the socket, and until the disk takes the record. Counts every point that is rejected.
    pub async fn accept(&self, batch: &mut Batch) {
        if let Some(mut gate) = batch.gate.take() {
            pass(&mut gate, batch, self.to.clock.instant());
            batch.gate = Some(gate);
        }
        if self.to.quotas.count_points() {
            self.to.quotas.pass(batch, self.to.clock.now());
        }
        self.report_rejects(batch);
        if batch.is_empty() {
            return;
        }
        if self.to.time.is_doubtful() {
            self.witness(batch);
        }
        let AcceptorParts { back_pressure, spill, journal, sync, .. } = &self.to;
        if back_pressure.is_closed() {
            spill.begin_if_full().await;
        }
        if back_pressure.is_closed() {
            back_pressure.wait().await;
        }
        let now = self.to.time.now();
        for _ in 0..MOST_LOOKS {
            let left = self.take(batch, now).await;
            if left.is_empty() {
                batch.sent.clear();
                break;
            }
            batch.keep(&left);
            // Their metrics were deleted after they were found. When the registry knows that, the points make new ones.
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        for place in 0..batch.sent.len() {
            let sample = batch.name(&batch.sent[place]).to_vec();
            batch.reject_sample(RejectReason::BeingDeleted, &sample);
        }
        self.report_rejects(batch);
        batch.clear();
        self.counters.batches.fetch_add(1, Relaxed);
        if *sync == Sync::Always {
            journal.synced().await;
        }
    }

    /// Makes the metrics that the points of a batch would make, and leaves it empty: none of its points is accepted. Counts the
    /// names that are refused.
    pub(crate) fn make_metrics(&self, batch: &mut Batch) {
        self.to.resolver.resolve(batch, &self.to.time);
        self.report_rejects(batch);
        batch.clear();
    }

    /// Finds the metrics of all points, and takes these to the journal and memory. Returns the places of those whose metrics
    /// were deleted in between.
    async fn take(&self, batch: &mut Batch, now: Now) -> Vec<usize> {
        self.to.resolver.resolve(batch, &self.to.time);
        let resolved = batch.resolved.len();
        let taken = match resolved {
            0 => Taken::nothing(),
            _ => self.to.queue.take(std::mem::take(&mut batch.resolved), now).await,
        };
        let deleted = taken.deleted.iter().map(|&place| place_before(&batch.left_out, place)).collect();
        self.count(batch, resolved, taken);
        deleted
    }

    /// One point says what time its sender has. The program's own metrics have the clock's.
    #[cold]
    fn witness(&self, batch: &Batch) {
        if batch.protocol != Protocol::Own
            && let Some(first) = batch.sent.first()
        {
            let is_senders_own = batch.is_remote && !batch.has_timeless;
            self.to.time.witness(batch.sender, i64::from(first.time), is_senders_own);
        }
    }

    /// Counts what was rejected while decoding.
    fn report_rejects(&self, batch: &mut Batch) {
        if batch.rejected() == 0 {
            return;
        }
        for reason in RejectReason::ALL {
            let count = std::mem::take(&mut batch.rejected[reason as usize]);
            self.counters.rejects[reason as usize].fetch_add(u64::from(count), Relaxed);
            if let Some(gate) = &batch.gate {
                gate.listener.count_rejects(reason, count);
            }
            if let Some(tally) = &mut batch.tally {
                tally.count(reason, count);
            }
        }
        let (time, protocol) = (self.now(), batch.protocol);
        if let Some(tally) = &mut batch.tally {
            batch.examples.iter().for_each(|example| tally.keep(example.reason, &example.sample));
        }
        let examples = batch.examples.drain(..);
        self.rejects.keep(examples.map(|Example { reason, sample, limit }| RejectExample {
            time,
            protocol,
            reason,
            limit,
            sample,
        }));
    }

    /// Counts what became of the points of a batch.
    fn count(&self, batch: &mut Batch, resolved: usize, taken: Taken) {
        let accepted = resolved - taken.rejected.len() - taken.deleted.len();
        self.counters.points[batch.protocol as usize].fetch_add(accepted as u64, Relaxed);
        if let Some(gate) = &batch.gate {
            gate.listener.count_points(accepted as u64);
        }
        if let Some(tally) = &mut batch.tally {
            tally.points += accepted as u64;
        }
        batch.resolved = taken.points;
        for (point, reason) in taken.rejected {
            let name = self.to.resolver.registry().read().name(point.metric).to_owned();
            batch.reject_sample(reason, format!("{name} {} {}", point.value, point.time).as_bytes());
        }
        self.report_rejects(batch);
    }

    /// Why points are not accepted at this moment.
    pub(crate) fn refusal(&self) -> Refusal {
        let AcceptorParts { journal, back_pressure, .. } = &self.to;
        let journal = journal.is_failing().then(|| "the journal cannot be written; is the disk full?".to_owned());
        Refusal { journal, full: back_pressure.reason().map(|reason| format!("senders wait: {reason}")) }
    }

    /// The registry the names are in.
    pub(crate) fn registry(&self) -> &Arc<Registry> {
        self.to.resolver.registry()
    }

    /// The last rejected inputs, newest first.
    pub(crate) fn rejects(&self) -> Vec<RejectExample> {
        self.rejects.last()
    }

    pub(crate) fn counters(&self) -> &AcceptCounters {
        &self.counters
    }
}
