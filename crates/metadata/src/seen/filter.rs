//! Which metrics have no points in a span of time, for one question.
//!
//! 1. Ids are judged in groups, each when the first id of it is asked for. Stored rows come first.
//! 2. Of those that seem to have none, points in memory are asked for.
//! 3. Then stored rows again: points may have been stored between 1 and 2.
//!
//! So a point that was accepted before the question is never missed.

use std::{
    cell::RefCell,
    collections::{HashMap, hash_map::Entry},
    fmt,
};

use metric::MetricId;

use super::times::{Buckets, Seen, SeenSpan, Times};

/// Ids that are judged together.
const GROUP: u32 = 1024;
const WORDS: usize = GROUP as usize / 64;

/// The metrics that have no points in a span of time.
pub struct TimeFilter<'a> {
    seen: &'a Seen,
    span: SeenSpan,
    /// A bit for each id of a group that may have points.
    groups: RefCell<HashMap<u32, [u64; WORDS]>>,
}

impl Seen {
    /// The metrics without points in a span; `None` where every metric may have some.
    pub fn filter(&self, span: SeenSpan) -> Option<TimeFilter<'_>> {
        // Asked for first: what is only in the journal may be in memory afterwards, and must then be found there.
        let are_known = self.is_begun() && self.unstored.get().is_some_and(|unstored| unstored.are_known());
        (are_known && span.is_bounded()).then(|| TimeFilter { seen: self, span, groups: RefCell::default() })
    }
}

impl TimeFilter<'_> {
    /// Whether a metric has no points in the span. Takes the lock of points: the caller holds none of names, unless it called
    /// [`TimeFilter::prepare`] for the id before.
    #[inline]
    pub fn hides(&self, id: MetricId) -> bool {
        let mut groups = self.groups.borrow_mut();
        let group = match groups.entry(id.0 / GROUP) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(self.judge(id.0 / GROUP)),
        };
        let place = (id.0 % GROUP) as usize;
        group[place / 64] >> (place % 64) & 1 == 0
    }

    /// Judges metrics, so that they can be asked for under locks.
    pub fn prepare(&self, ids: &[MetricId]) {
        for &id in ids {
            self.hides(id);
        }
    }

    fn judge(&self, group: u32) -> [u64; WORDS] {
        let first = group * GROUP;
        let mut shown = [0; WORDS];
        self.add_stored(first, &mut shown);
        let hidden: Vec<MetricId> = (0..GROUP as usize)
            .filter(|place| shown[place / 64] >> (place % 64) & 1 == 0)
            .map(|place| MetricId(first.saturating_add(place as u32)))
            .collect();
        let Some(unstored) = self.seen.unstored.get().filter(|_| !hidden.is_empty()) else { return shown };
        unstored.spans(&hidden, &mut |id, from, until| {
            if self.span.meets(from, until) {
                set(&mut shown, (id.0 - first) as usize);
            }
        });
        self.add_stored(first, &mut shown);
        shown
    }

    fn add_stored(&self, first: u32, shown: &mut [u64; WORDS]) {
        let table = self.seen.table.read();
        let buckets: Buckets = table.buckets(self.span);
        for place in 0..GROUP {
            let times: Times = table.get(MetricId(first.saturating_add(place)));
            if buckets.meets(times) {
                set(shown, place as usize);
            }
        }
    }
}

fn set(bits: &mut [u64; WORDS], place: usize) {
    bits[place / 64] |= 1 << (place % 64);
}

impl fmt::Debug for TimeFilter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimeFilter").field("span", &self.span).finish_non_exhaustive()
    }
}
