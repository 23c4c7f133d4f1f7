//! Spilled points back to memory, as the store makes room; see `spill.rs`.
//!
//! Points are placed by the time at which they were accepted, as in a recovery; a crash on the way replays them again,
//! which changes nothing.

use std::{
    io,
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};

use metadata::{PolicyId, Registry};
use metric::{MetricId, Timestamp};
use parking_lot::Mutex;

use super::row_writer::RowWriter;
use crate::{
    back_pressure::BackPressure,
    backoff::store_backoff,
    memtable::{MayTake, Memtable},
    policy_table::{JournalPolicyIds, Policies},
    spill::Spill,
    wal::{self, Exclusive, Journal, Journalled, Record, ResolvedPoint, Segment},
};

/// So much of the journal is read back while senders wait, at the end: some milliseconds of work.
const LAST_BYTES: u64 = 2 << 20;

/// Points stored under one lock.
const GROUP: usize = 4096;

/// Poll interval for free memory.
const POLL: Duration = Duration::from_millis(10);

/// The owners between which points are moved.
pub(crate) struct ReadBackParts {
    pub(crate) registry: Arc<Registry>,
    pub(crate) policies: Arc<Policies>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) memtable: Arc<Memtable>,
    pub(crate) back_pressure: Arc<BackPressure>,
    pub(crate) spill: Arc<Spill>,
    pub(crate) writer: Arc<RowWriter>,
}

/// Reads spilled points back.
pub(crate) struct ReadBack {
    with: ReadBackParts,
    ids: Mutex<JournalPolicyIds>,
}

impl ReadBack {
    /// `ids` are those that the segments read by a recovery gave policies.
    pub(crate) fn new(with: ReadBackParts, ids: JournalPolicyIds) -> ReadBack {
        ReadBack { with, ids: Mutex::new(ids) }
    }

    /// Reads points back whenever some are spilled, until the task is aborted.
    pub(crate) async fn run(self: Arc<ReadBack>) {
        let mut backoff = store_backoff();
        loop {
            self.with.spill.begun().await;
            match self.read_back().await {
                Ok(()) => {
                    backoff.reset();
                    self.with.spill.reading.worked("spilled points can be read back again");
                    tracing::info!("every spilled point is in memory again, or stored");
                }
                Err(error) => {
                    self.with.journal.counters().errors.fetch_add(1, SeqCst);
                    let message = "cannot read spilled points back; they stay in the journal; retrying";
                    self.with.spill.reading.failed(&error, message);
                    tokio::time::sleep(backoff.next_wait()).await;
                }
            }
        }
    }

    /// Reads every spilled point back, as there is room; at the end nothing is spilled any more.
    async fn read_back(&self) -> io::Result<()> {
        let ReadBackParts { journal, memtable, spill, .. } = &self.with;
        let may_take = memtable.may_take().await;
        loop {
            let (current, length) = journal.current();
            let is_closed = |segment: &Segment| (spill.position()..current).contains(&segment.number);
            let closed: Vec<Segment> = journal.folder().segments()?.into_iter().filter(is_closed).collect();
            for segment in closed {
                self.read_back_segment(segment, may_take).await?;
            }
            spill.set_position(current);
            self.room().await;
            if length <= LAST_BYTES && self.end()? {
                return Ok(());
            }
            // Points accepted meanwhile become a closed segment.
            journal.begin_segment()?;
        }
    }

    async fn read_back_segment(&self, segment: Segment, may_take: MayTake) -> io::Result<()> {
        self.room().await;
        let number = segment.number;
        let journal = self.with.journal.clone();
        let read = tokio::task::spawn_blocking(move || journal.folder().read(&segment)).await;
        let bytes = read.map_err(io::Error::other)??;
        let mut records = wal::records(&bytes);
        for (length, record) in records.by_ref() {
            match record {
                Record::Points { now, points } => {
                    let points: Vec<ResolvedPoint> = points.collect();
                    for group in points.chunks(GROUP) {
                        self.room().await;
                        self.with.memtable.apply_spilled(Journalled::read_back(group, now));
                        tokio::task::yield_now().await;
                    }
                    self.with.spill.read_back(points.len() as u64, length as u64);
                }
                Record::Metrics { now, metrics } => {
                    for (metric, policy) in self.changed_policies(&metrics) {
                        self.change_policy(metric, policy, now, may_take).await;
                    }
                }
                Record::Policy { id, policy } => {
                    let known = self.with.policies.intern(&policy);
                    self.ids.lock().insert(id, known);
                }
            }
        }
        self.with.journal.counters().damaged_bytes.fetch_add(records.replayed.damaged_bytes, SeqCst);
        self.with.spill.set_position(number + 1);
        Ok(())
    }

    /// Waits until there is room in memory.
    async fn room(&self) {
        while !self.with.back_pressure.has_room() {
            self.with.back_pressure.ask_for_flush();
            tokio::time::sleep(POLL).await;
        }
    }

    /// Reads the last segment while appends wait. Returns false when it has become too long for that.
    fn end(&self) -> io::Result<bool> {
        let ReadBackParts { journal, memtable, spill, .. } = &self.with;
        let exclusive: Exclusive<'_> = journal.exclusive();
        let (current, length) = journal.current();
        if spill.position() != current || length > 2 * LAST_BYTES {
            return Ok(false);
        }
        let segments = journal.folder().segments()?;
        let Some(last) = segments.iter().find(|segment| segment.number == current) else {
            return Err(io::Error::other(format!("segment {current} of the journal is gone")));
        };
        let bytes = journal.folder().read(last)?;
        for (length, record) in wal::records(&bytes) {
            // Metrics that were created while points spilled have their policy; none was given another.
            if let Record::Points { now, points } = record {
                let points: Vec<ResolvedPoint> = points.collect();
                memtable.apply_spilled(Journalled::read_back(&points, now));
                spill.read_back(points.len() as u64, length as u64);
            }
        }
        spill.end(&exclusive);
        Ok(true)
    }

    /// The metrics of a record that come under another policy from here on. There are none unless rules changed before
    /// a restart: while points spill, existing metrics keep their policies.
    fn changed_policies(&self, metrics: &[(MetricId, u16, &str)]) -> Vec<(MetricId, PolicyId)> {
        let ids = self.ids.lock();
        let memtable = self.with.memtable.lock();
        let changed = |&(metric, policy, _): &(MetricId, u16, &str)| {
            let policy = *ids.get(&policy)?;
            (metric < memtable.end() && memtable.policy(metric) != Some(policy)).then_some((metric, policy))
        };
        metrics.iter().filter_map(changed).collect()
    }

    /// Gives a metric another policy once everything that came under the one before is stored.
    async fn change_policy(&self, metric: MetricId, policy: PolicyId, now: Timestamp, may_take: MayTake) {
        loop {
            let job = {
                let mut memtable = self.with.memtable.lock();
                let job = memtable.take(metric, may_take);
                if job.is_none() && !memtable.is_pending(metric) {
                    memtable.set_policy(metric, policy);
                    break;
                }
                job
            };
            match job {
                Some(job) => self.with.writer.write_after_names(vec![job], &self.with.journal).await,
                None => tokio::time::sleep(POLL).await,
            }
        }
        self.with.registry.set_policy(metric, policy, now);
    }
}
