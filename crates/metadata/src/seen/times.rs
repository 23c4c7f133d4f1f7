//! The first and the last bucket of each metric.

use std::sync::{
    Arc, OnceLock, Weak,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use metric::{Column, MetricId, Timestamp};
use parking_lot::RwLock;

use super::{
    scale::{Bucket, FUTURE, NEVER, OLDEST, Scale},
    unstored::UnstoredPoints,
};

/// A span of time that is asked for, both ends included; an end that is `None` is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SeenSpan {
    /// Unix seconds.
    pub from: Option<Timestamp>,
    /// Unix seconds.
    pub until: Option<Timestamp>,
}

impl SeenSpan {
    /// Whether it has an end.
    pub fn is_bounded(&self) -> bool {
        self.from.is_some() || self.until.is_some()
    }

    /// Whether it has a time of a span from `first` to `last`.
    pub(super) fn meets(&self, first: Timestamp, last: Timestamp) -> bool {
        self.from.is_none_or(|from| from <= last) && self.until.is_none_or(|until| first <= until)
    }
}

/// The first and the last bucket in which a metric has rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Times {
    pub first: Bucket,
    pub last: Bucket,
}

impl Times {
    /// Of a metric without rows.
    pub const NONE: Times = Times { first: NEVER, last: OLDEST };

    fn add(&mut self, first: Bucket, last: Bucket) {
        self.first = self.first.min(first);
        self.last = self.last.max(last);
    }
}

/// A span of time in buckets.
#[derive(Debug, Clone, Copy)]
pub(super) struct Buckets {
    from: Bucket,
    until: Bucket,
}

impl Buckets {
    /// Whether a metric may have rows in it.
    #[inline]
    pub fn meets(self, times: Times) -> bool {
        times.first <= self.until && self.from <= times.last
    }
}

pub(super) struct Table {
    pub scale: Scale,
    pub times: Column<Times>,
    /// Whether there is something that the file does not have.
    pub is_changed: bool,
}

impl Table {
    /// The times of a metric without rows where it is not known.
    #[inline]
    pub fn get(&self, id: MetricId) -> Times {
        self.times.get(id).copied().unwrap_or(Times::NONE)
    }

    pub fn buckets(&self, span: SeenSpan) -> Buckets {
        Buckets {
            from: span.from.map_or(OLDEST, |from| self.scale.bucket(from)),
            until: span.until.map_or(FUTURE, |until| self.scale.bucket(until)),
        }
    }

    /// Moves the scale to the day of a time.
    pub fn move_to(&mut self, now: Timestamp) {
        let (old, new) = (self.scale, Scale::at(now));
        if old == new {
            return;
        }
        let all = OLDEST..=NEVER;
        let first: Vec<Bucket> = all.clone().map(|bucket| old.first_in(new, bucket)).collect();
        let last: Vec<Bucket> = all.map(|bucket| old.last_in(new, bucket)).collect();
        for times in self.times.values_mut() {
            if *times != Times::NONE {
                *times = Times { first: first[usize::from(times.first)], last: last[usize::from(times.last)] };
            }
        }
        (self.scale, self.is_changed) = (new, true);
    }
}

/// The first and the last second that points from `first` to `last` may have in slots of so many seconds. A point may be anywhere
/// in its slot, and in the open one at most as late as now: a metric that ended is not seen until the end of its day because
/// of a coarse stage.
pub fn seen_in_slots(first: Timestamp, last: Timestamp, step: u32, now: Timestamp) -> (Timestamp, Timestamp) {
    let step = Timestamp::from(step.max(1));
    let begin = |time: Timestamp| time.div_euclid(step) * step;
    let last = begin(last);
    (begin(first), (last + step - 1).min(now.max(last)))
}

/// When the metrics of a registry have points.
pub struct Seen {
    /// Set once what is stored is known.
    is_begun: AtomicBool,
    pub(super) table: RwLock<Table>,
    /// The owner of the points has the names, and these times with them.
    unstored: OnceLock<Weak<dyn UnstoredPoints>>,
}

impl Seen {
    pub(crate) fn new() -> Seen {
        let table = Table { scale: Scale::at(0), times: Column::new(|| Times::NONE), is_changed: true };
        Seen { is_begun: AtomicBool::new(false), table: RwLock::new(table), unstored: OnceLock::new() }
    }

    /// Whether it rules out rows of any metric.
    pub fn is_begun(&self) -> bool {
        self.is_begun.load(SeqCst)
    }

    /// From here on every row is noted before it is written, and those that are stored are known.
    pub fn begin(&self, unstored: Weak<dyn UnstoredPoints>) {
        let _ = self.unstored.set(unstored);
        self.is_begun.store(true, SeqCst);
    }

    /// The owner of points that are in no row yet.
    pub(super) fn unstored(&self) -> Option<Arc<dyn UnstoredPoints>> {
        self.unstored.get()?.upgrade()
    }

    /// The metrics of these ids may have rows of any time until `last`, or of any time without it.
    pub fn note_unknown(&self, ids: impl Iterator<Item = MetricId>, last: Option<Timestamp>) {
        let mut table = self.table.write();
        let last = last.map_or(FUTURE, |last| table.scale.bucket(last));
        ids.for_each(|id| table.times.entry(id).add(OLDEST, last));
        table.is_changed = true;
    }

    /// Rows are about to be written: of each, the metric and the times of its first and its last slot.
    pub fn note(&self, rows: impl Iterator<Item = (MetricId, Timestamp, Timestamp)>) {
        let mut table = self.table.write();
        let table = &mut *table;
        for (id, first, last) in rows {
            let (first, last) = (table.scale.bucket(first), table.scale.bucket(last));
            let times = table.times.entry(id);
            let before = *times;
            times.add(first, last);
            table.is_changed |= *times != before;
        }
    }

    /// Points of these metrics may be drawn in slots of so many seconds: their times are those of such slots. What is later than
    /// `now` in a slot does not count, as in the open slot of a row.
    pub(crate) fn widen(&self, steps: &[(MetricId, u32)], now: Timestamp) {
        let mut table = self.table.write();
        let Table { scale, times, is_changed } = &mut *table;
        for &(id, step) in steps {
            let Some(times) = times.get_mut(id).filter(|times| **times != Times::NONE) else { continue };
            let before = *times;
            let ((first, _), (_, end)) = (scale.span(before.first), scale.span(before.last));
            if before.first != OLDEST {
                times.first = times.first.min(scale.bucket(seen_in_slots(first, first, step, now).0));
            }
            if before.last != FUTURE {
                times.last = times.last.max(scale.bucket(seen_in_slots(end - 1, end - 1, step, now).1));
            }
            *is_changed |= *times != before;
        }
    }

    /// Whether the store may have rows of a metric from `first` to `last`.
    pub fn may_be_stored(&self, id: MetricId, first: Timestamp, last: Timestamp) -> bool {
        if !self.is_begun() {
            return true;
        }
        let table = self.table.read();
        table.buckets(SeenSpan { from: Some(first), until: Some(last) }).meets(table.get(id))
    }

    /// The last second before what is all one future, Unix seconds.
    pub(crate) fn latest(&self) -> Timestamp {
        self.table.read().scale.latest()
    }

    /// The times that all stored rows of some metrics from an id on are between, Unix seconds, [`Timestamp::MIN`] and
    /// [`Timestamp::MAX`] where that is all that is known; `None` for a metric without rows, and for all until it is begun.
    pub(crate) fn spans(&self, first: MetricId, count: u32) -> Vec<Option<(Timestamp, Timestamp)>> {
        let (is_begun, table) = (self.is_begun(), self.table.read());
        let span = |id: u32| {
            let times = table.get(MetricId(id));
            let is_known = is_begun && times != Times::NONE;
            is_known.then(|| (table.scale.span(times.first).0, table.scale.span(times.last).1))
        };
        (first.0..first.0.saturating_add(count)).map(span).collect()
    }

    /// Moves the buckets to the day of a time: those of older days get coarser.
    pub fn move_to(&self, now: Timestamp) {
        if self.table.read().scale != Scale::at(now) {
            self.table.write().move_to(now);
        }
    }

    /// A metric was removed.
    pub(crate) fn forget(&self, id: MetricId) {
        let mut table = self.table.write();
        if let Some(times) = table.times.get_mut(id) {
            *times = Times::NONE;
            table.times.free(id, |times| *times == Times::NONE);
            table.is_changed = true;
        }
    }

    /// Bytes of memory held.
    pub fn memory_bytes(&self) -> usize {
        self.table.read().times.memory_bytes()
    }
}

impl std::fmt::Debug for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seen").field("is_begun", &self.is_begun()).finish_non_exhaustive()
    }
}
