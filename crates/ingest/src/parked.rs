//! Parked points: those that are in the journal and not in memory, because memory is full and the store does not
//! take what is there.
//!
//! 1. Parking begins with a segment of its own, while nobody appends: what is in older segments is in memory or
//!    stored, what is in this one and later is parked. *All* points are parked from then on, so that the order in
//!    which they came stays the order of the journal.
//! 2. When the store has made room, the segments are read back, oldest first, as much as there is room for. Points
//!    that come meanwhile are parked behind them.
//! 3. When only little is left, the rest is read while nobody appends, and parking ends.
//!
//! A cycle trims the journal only up to the segment that is being read back. What is read back is placed by the time
//! at which it was accepted, as in a replay; a crash on the way replays it again, which changes nothing.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use carbon::RejectReason;
use metadata::PolicyId;
use metric::{MetricId, Timestamp};
use parking_lot::Mutex;
use tokio::{sync::Notify, task::JoinHandle};

use crate::{
    Ingest,
    health::{Backoff, Health},
    held::NO_POLICY,
    journal::{self, NumberedPoint, Record, Segment},
    replay::PolicyIds,
};

/// Nothing is parked.
const NOWHERE: u64 = u64::MAX;

/// So much of the journal is read back while senders wait, at the end: some milliseconds of work.
const LAST_BYTES: u64 = 2 << 20;

/// Points that are held under one lock.
const AT_ONCE: usize = 4096;

/// How often it is looked whether there is room.
const LOOK: Duration = Duration::from_millis(10);

/// Where parked points are, and how many.
#[derive(Debug)]
pub(crate) struct Parked {
    /// The first segment of which not every point is in memory.
    position: AtomicU64,
    points: AtomicU64,
    bytes: AtomicU64,
    /// Points that were parked since the start.
    total: AtomicU64,
    beginning: Mutex<()>,
    begun: Notify,
    ids: Mutex<PolicyIds>,
    reading: Health,
}

/// What a replay left in the journal because memory was full.
#[derive(Debug, Default)]
pub(crate) struct LeftParked {
    /// The first segment that was not read.
    pub(crate) segment: Option<u64>,
    pub(crate) points: u64,
    pub(crate) bytes: u64,
    pub(crate) ids: PolicyIds,
}

impl Parked {
    pub(crate) fn new(left: LeftParked) -> Parked {
        Parked {
            position: AtomicU64::new(left.segment.unwrap_or(NOWHERE)),
            points: AtomicU64::new(left.points),
            bytes: AtomicU64::new(left.bytes),
            total: AtomicU64::new(left.points),
            beginning: Mutex::default(),
            begun: Notify::new(),
            ids: Mutex::new(left.ids),
            reading: Health::default(),
        }
    }

    /// Every point of the segments before this one is in memory, or stored.
    pub(crate) fn position(&self) -> u64 {
        self.position.load(SeqCst)
    }

    pub(crate) fn points(&self) -> u64 {
        self.points.load(SeqCst)
    }

    /// Bytes of the journal's records of these points.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(SeqCst)
    }

    pub(crate) fn total(&self) -> u64 {
        self.total.load(SeqCst)
    }

    pub(crate) fn parked(&self, points: u64, bytes: u64) {
        self.points.fetch_add(points, SeqCst);
        self.bytes.fetch_add(bytes, SeqCst);
        self.total.fetch_add(points, SeqCst);
    }

    fn read_back(&self, points: u64, bytes: u64) {
        self.points.fetch_sub(points.min(self.points()), SeqCst);
        self.bytes.fetch_sub(bytes.min(self.bytes()), SeqCst);
    }
}

impl Ingest {
    /// Begins to park points if memory is full and the store does not take what is there.
    pub(crate) fn park_if_full(&self) {
        if !self.is_store_away() || !self.pressure.asks_for_parking() {
            return;
        }
        let _one = self.parked.beginning.lock();
        if !self.pressure.asks_for_parking() {
            return;
        }
        let begun = self.journal.rotate_and(|segment| {
            self.parked.position.store(segment, SeqCst);
            self.pressure.set_parks(true);
        });
        match begun {
            Ok(segment) => {
                tracing::warn!(
                    segment,
                    "memory is full and the store takes no points: points are accepted into the journal alone, \
                     and cannot be read until the store takes them"
                );
                self.parked.begun.notify_one();
            }
            // Senders wait, as without parking, and the next one tries again.
            Err(error) => self.parked.reading.failed(&error, "the journal cannot begin a segment"),
        }
    }

    pub(crate) fn spawn_drain(self: Arc<Ingest>) -> JoinHandle<()> {
        tokio::spawn(async move {
            let mut wait = Backoff::default();
            loop {
                if !self.pressure.parks() {
                    self.parked.begun.notified().await;
                    continue;
                }
                match self.read_back().await {
                    Ok(()) => {
                        wait = Backoff::default();
                        self.parked.reading.worked("parked points can be read back again");
                        tracing::info!("every parked point is in memory again, or stored");
                    }
                    Err(error) => {
                        self.counters.journal_errors.fetch_add(1, SeqCst);
                        self.parked
                            .reading
                            .failed(&error, "parked points cannot be read back; they stay in the journal");
                        tokio::time::sleep(wait.next()).await;
                    }
                }
            }
        })
    }

    /// Reads every parked point back into memory, as there is room; at the end nothing is parked any more.
    async fn read_back(&self) -> io::Result<()> {
        self.after_replay().await;
        loop {
            let (current, length) = self.journal.current();
            let from = self.parked.position();
            let closed = journal::segments(&self.options.journal_dir)?;
            for segment in closed.into_iter().filter(|segment| from <= segment.number && segment.number < current) {
                self.read_back_segment(segment).await?;
            }
            self.parked.position.store(current, SeqCst);
            self.room().await;
            if length <= LAST_BYTES && self.end_parking()? {
                return Ok(());
            }
            // What came in the meantime becomes a closed segment.
            self.journal.rotate()?;
        }
    }

    async fn read_back_segment(&self, segment: Segment) -> io::Result<()> {
        self.room().await;
        let number = segment.number;
        let read = tokio::task::spawn_blocking(move || journal::read_segment(&segment)).await;
        let bytes = read.map_err(io::Error::other)??;
        let mut records = journal::records(&bytes);
        for (length, record) in records.by_ref() {
            match record {
                Record::Points { now, points } => {
                    let points: Vec<NumberedPoint> = points.collect();
                    for some in points.chunks(AT_ONCE) {
                        self.room().await;
                        self.hold_parked(some, now);
                        tokio::task::yield_now().await;
                    }
                    self.parked.read_back(points.len() as u64, length as u64);
                }
                Record::Metrics { now, metrics } => {
                    for (metric, policy) in self.changed_policies(&metrics) {
                        self.change_policy(metric, policy, now).await;
                    }
                }
                Record::Policy { id, policy } => self.name_parked_policy(id, &policy),
            }
        }
        self.counters.damaged_bytes.fetch_add(records.replayed.damaged_bytes, SeqCst);
        self.parked.position.store(number + 1, SeqCst);
        Ok(())
    }

    /// Waits until there is room in memory.
    async fn room(&self) {
        while !self.pressure.has_room() {
            self.pressure.flush.notify_one();
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Reads the last of it while nobody appends. Returns false when it has become too much for that.
    fn end_parking(&self) -> io::Result<bool> {
        self.journal.alone(|current| {
            let (_, length) = self.journal.current();
            if self.parked.position() != current || length > 2 * LAST_BYTES {
                return Ok(false);
            }
            let segments = journal::segments(&self.options.journal_dir)?;
            let Some(last) = segments.iter().find(|segment| segment.number == current) else {
                return Err(io::Error::other(format!("segment {current} of the journal is gone")));
            };
            let bytes = journal::read_segment(last)?;
            for (length, record) in journal::records(&bytes) {
                // Metrics that were created while points were parked have their policy; none was given another.
                if let Record::Points { now, points } = record {
                    let points: Vec<NumberedPoint> = points.collect();
                    self.hold_parked(&points, now);
                    self.parked.read_back(points.len() as u64, length as u64);
                }
            }
            self.parked.position.store(NOWHERE, SeqCst);
            self.pressure.set_parks(false);
            Ok(true)
        })
    }

    /// Takes points that were accepted at `now` into memory.
    fn hold_parked(&self, points: &[NumberedPoint], now: Timestamp) {
        let mut refused = Vec::new();
        let mut held = self.held.lock();
        let end = self.registry.read().end();
        let mut known: Vec<NumberedPoint> = points.iter().filter(|point| point.metric < end).copied().collect();
        if known.is_empty() {
            return;
        }
        self.ensure_states(&mut held, &known);
        known.retain(|point| held.states[point.metric.index()].policy != NO_POLICY);
        let table = self.policies.table();
        let mut grew = held.apply(&known, now, &table.hot, &mut refused);
        for (place, reason) in refused {
            // What was refused when it came was counted then.
            if reason == RejectReason::TooOld {
                grew += held.apply_old(&known[place], now, &table.all).unwrap_or(0);
            }
        }
        self.pressure.grew(grew as u64, self.journal.bytes());
    }

    fn name_parked_policy(&self, id: u16, policy: &metric::Policy) {
        let known = self.registry.intern(policy);
        self.policies.refresh(&self.registry);
        self.parked.ids.lock().insert(id, known);
    }

    /// The metrics of a record that come under another policy from here on. There are none unless rules changed
    /// before a restart: while points are parked, existing metrics keep their policies.
    fn changed_policies(&self, metrics: &[(MetricId, u16, &str)]) -> Vec<(MetricId, PolicyId)> {
        let ids = self.parked.ids.lock();
        let held = self.held.lock();
        let changed = |&(metric, policy, _): &(MetricId, u16, &str)| {
            let (policy, state) = (*ids.get(&policy)?, held.states.get(metric.index())?);
            (state.policy != policy).then_some((metric, policy))
        };
        metrics.iter().filter_map(changed).collect()
    }

    /// Gives a metric another policy once everything that came under the one before is stored.
    async fn change_policy(&self, metric: MetricId, policy: PolicyId, now: Timestamp) {
        loop {
            let taken = {
                let mut held = self.held.lock();
                let table = self.policies.table();
                let taken = held.take(metric, &table.all);
                if taken.is_none() && !held.is_busy(metric) {
                    held.set_policy(metric, policy, &table.all);
                    break;
                }
                taken
            };
            match taken {
                Some(taken) => self.write_taken(vec![taken]).await,
                None => tokio::time::sleep(LOOK).await,
            }
        }
        self.registry.set_policy(metric, policy, now);
    }
}
