//! Spilled points: those in the journal and not in memory, because memory is full and the store takes nothing.
//!
//! 1. Spilling begins with a segment of its own, while appends wait: the points of older segments are in memory or
//!    stored, those of this one and later are spilled. *All* points are spilled from then on, so that the order in
//!    which they came stays the order of the journal.
//! 2. When the store has made room, `flush/read_back.rs` reads the segments back, oldest first, as much as there is
//!    room for. Points that come meanwhile are spilled behind them.
//! 3. When only little is left, the rest is read while appends wait, and spilling ends.
//!
//! A cycle trims the journal only up to the segment that is being read back, and nothing of a journal whose ids are not
//! those of the store until all of it is read: its first segments name the ids of the later ones.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

use tokio::sync::Notify;

use crate::{
    back_pressure::BackPressure,
    call_health::CallHealth,
    store_health::StoreHealth,
    wal::{Appended, Exclusive, Journal},
};

/// Nothing is spilled.
const NOWHERE: u64 = u64::MAX;

/// Where spilled points are, and how many.
pub(crate) struct Spill {
    journal: Arc<Journal>,
    back_pressure: Arc<BackPressure>,
    store: Arc<StoreHealth>,
    /// The first segment that has a point that is not in memory.
    position: AtomicU64,
    /// The first segment that has names of ids in later ones.
    first_named: AtomicU64,
    counts: SpillCounts,
    begun: Notify,
    /// Reading the journal while points are spilled.
    pub(crate) reading: CallHealth,
}

/// How many points are spilled.
#[derive(Debug, Default)]
pub(crate) struct SpillCounts {
    points: AtomicU64,
    /// Bytes of their records.
    bytes: AtomicU64,
    /// Points that were spilled since the start.
    total: AtomicU64,
}

/// The points that a recovery left in the journal because memory was full.
#[derive(Debug, Default)]
pub(crate) struct LeftInJournal {
    /// The first segment whose points were not read.
    pub(crate) segment: Option<u64>,
    /// Its points before this byte were read.
    pub(crate) offset: usize,
    pub(crate) points: u64,
    /// Bytes of their records.
    pub(crate) bytes: u64,
    /// The segments that have them, and the bytes of each.
    pub(crate) segments: BTreeMap<u64, u64>,
    /// The first segment that has names of ids in later ones.
    pub(crate) first_named: Option<u64>,
}

impl Spill {
    pub(crate) fn new(
        journal: Arc<Journal>,
        back_pressure: Arc<BackPressure>,
        store: Arc<StoreHealth>,
        reading: CallHealth,
    ) -> Spill {
        Spill {
            journal,
            back_pressure,
            store,
            position: AtomicU64::new(NOWHERE),
            first_named: AtomicU64::new(NOWHERE),
            counts: SpillCounts::default(),
            begun: Notify::new(),
            reading,
        }
    }

    /// Goes on from where a recovery stopped.
    pub(crate) fn resume(&self, left: &LeftInJournal) {
        let Some(segment) = left.segment else { return };
        self.first_named.store(left.first_named.unwrap_or(NOWHERE), SeqCst);
        self.counts.add(left.points, left.bytes);
        self.begin(segment, &self.journal.exclusive());
    }

    /// Begins to spill if memory is full and the store takes nothing.
    pub(crate) async fn begin_if_full(self: &Arc<Spill>) {
        if self.store.is_away() && self.back_pressure.asks_to_spill() {
            let spill = self.clone();
            // The journal's disk may be slow as well. A panic there has been reported.
            let _ = host::spawn_blocking(move || spill.begin_unless_begun()).await;
        }
    }

    fn begin_unless_begun(&self) {
        let mut exclusive = self.journal.exclusive();
        if !self.back_pressure.asks_to_spill() {
            return;
        }
        match exclusive.begin_segment() {
            Ok(segment) => {
                self.begin(segment, &exclusive);
                // Senders need not wait for the log.
                drop(exclusive);
                tracing::warn!(
                    segment,
                    "memory is full and the store rejects points; points are accepted into the journal alone, \
                     and queries cannot read them until the store accepts points again"
                );
            }
            // Senders wait, as without spilling, and the next one retries.
            Err(error) => self.reading.failed(&error, "cannot begin a segment of the journal; senders wait; retrying"),
        }
    }

    fn begin(&self, segment: u64, exclusive: &Exclusive<'_>) {
        self.position.store(segment, SeqCst);
        self.back_pressure.set_spilling(true, exclusive);
        self.begun.notify_one();
    }

    /// Counts points that stay in the journal alone.
    pub(crate) fn count(&self, appended: &Appended<'_>) {
        self.counts.add(appended.points().points().len() as u64, appended.record_bytes());
    }

    /// Waits until something is spilled.
    pub(crate) async fn begun(&self) {
        while !self.back_pressure.is_spilling() {
            self.begun.notified().await;
        }
    }

    /// All points of the segments before this one are in memory, or stored.
    pub(crate) fn position(&self) -> u64 {
        self.position.load(SeqCst)
    }

    /// Sets how far segments were read back.
    pub(crate) fn set_position(&self, segment: u64) {
        self.position.store(segment, SeqCst);
    }

    /// Counts the points of one record that are in memory again.
    pub(crate) fn read_back(&self, points: u64, bytes: u64) {
        self.counts.subtract(points, bytes);
    }

    /// Everything is read back: points go to memory from now on.
    pub(crate) fn end(&self, exclusive: &Exclusive<'_>) {
        self.position.store(NOWHERE, SeqCst);
        self.first_named.store(NOWHERE, SeqCst);
        self.counts.clear();
        self.back_pressure.set_spilling(false, exclusive);
    }

    /// The segment up to which a flush cycle may trim. It stores what was in memory when segment `begun` began; the
    /// position is read after that, so that what was spilled in between is not before it.
    pub(crate) fn trim_limit(&self, begun: u64) -> u64 {
        begun.min(self.position()).min(self.first_named.load(SeqCst))
    }

    /// Points that are spilled now.
    pub(crate) fn points(&self) -> u64 {
        self.counts.points.load(SeqCst)
    }

    /// Bytes of the journal's records of these points.
    pub(crate) fn bytes(&self) -> u64 {
        self.counts.bytes.load(SeqCst)
    }

    /// Points that were spilled since the start.
    pub(crate) fn total(&self) -> u64 {
        self.counts.total.load(SeqCst)
    }
}

impl SpillCounts {
    fn add(&self, points: u64, bytes: u64) {
        self.points.fetch_add(points, SeqCst);
        self.bytes.fetch_add(bytes, SeqCst);
        self.total.fetch_add(points, SeqCst);
    }

    /// Nothing is spilled: what damage kept from being read back is not counted any more.
    fn clear(&self) {
        self.points.store(0, SeqCst);
        self.bytes.store(0, SeqCst);
    }

    fn subtract(&self, points: u64, bytes: u64) {
        self.points.fetch_sub(points.min(self.points.load(SeqCst)), SeqCst);
        self.bytes.fetch_sub(bytes.min(self.bytes.load(SeqCst)), SeqCst);
    }
}
