//! Which metrics have no points in a span of time, or none since a time of their own, for one question.
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

use metric::{MetricId, Timestamp};

use super::{
    scale::Bucket,
    times::{Buckets, Seen, SeenSpan, Times},
};

/// Ids that are judged together.
const GROUP: u32 = 1024;
const WORDS: usize = GROUP as usize / 64;

/// Since when metrics must have points: of the metrics from an id on. [`Timestamp::MIN`] where a metric needs none.
pub(crate) type Since<'a> = Box<dyn Fn(MetricId, &mut [Timestamp]) + 'a>;

/// The metrics that have no points in a span of time, or none since a time of their own.
pub struct TimeFilter<'a> {
    seen: &'a Seen,
    /// Metrics from here on came after the question, and are not among them.
    end: MetricId,
    /// Metrics with points in one of these are not among them.
    spans: Vec<SeenSpan>,
    /// With it, neither are metrics with points since a time.
    since: Option<Since<'a>>,
    /// A bit for each id of a group that may have points.
    groups: RefCell<HashMap<u32, [u64; WORDS]>>,
}

impl Seen {
    /// The metrics below `end` without points in a span; `None` where every metric may have some.
    pub fn filter(&self, span: SeenSpan, end: MetricId) -> Option<TimeFilter<'_>> {
        (span.is_bounded() && self.are_known()).then(|| TimeFilter {
            seen: self,
            end,
            spans: vec![span],
            since: None,
            groups: RefCell::default(),
        })
    }

    /// The metrics below `end` without points since a time of their own, and without any in the spans of `unless` that have
    /// an end; `None` where every metric may have some.
    pub(crate) fn filter_since<'a>(
        &'a self,
        since: Since<'a>,
        unless: &[SeenSpan],
        end: MetricId,
    ) -> Option<TimeFilter<'a>> {
        self.are_known().then(|| TimeFilter {
            seen: self,
            end,
            spans: unless.iter().copied().filter(SeenSpan::is_bounded).collect(),
            since: Some(since),
            groups: RefCell::default(),
        })
    }

    /// Asked for first: what is only in the journal may be in memory afterwards, and must then be found there.
    fn are_known(&self) -> bool {
        self.is_begun() && self.unstored().is_some_and(|unstored| unstored.are_known())
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
        let places = self.end.0.saturating_sub(first).min(GROUP) as usize;
        let mut shown = [0; WORDS];
        (places..GROUP as usize).for_each(|place| set(&mut shown, place));
        let since = self.since.as_ref().map(|since| {
            let mut times = vec![Timestamp::MIN; places];
            since(MetricId(first), &mut times);
            times
        });
        let since = since.as_deref();
        self.add_stored(first, places, since, &mut shown);
        let hidden: Vec<MetricId> = (0..places)
            .filter(|place| shown[place / 64] >> (place % 64) & 1 == 0)
            .map(|place| MetricId(first + place as u32))
            .collect();
        let Some(unstored) = self.seen.unstored().filter(|_| !hidden.is_empty()) else { return shown };
        unstored.spans(&hidden, &mut |id, from, until| {
            let place = (id.0 - first) as usize;
            let is_fresh = since.is_some_and(|since| since[place] <= until);
            if is_fresh || self.spans.iter().any(|span| span.meets(from, until)) {
                set(&mut shown, place);
            }
        });
        self.add_stored(first, places, since, &mut shown);
        shown
    }

    fn add_stored(&self, first: u32, places: usize, since: Option<&[Timestamp]>, shown: &mut [u64; WORDS]) {
        let table = self.seen.table.read();
        let buckets: Vec<Buckets> = self.spans.iter().map(|&span| table.buckets(span)).collect();
        // Of few rules, the times of neighbours are mostly the same.
        let (mut known, mut bucket) = (None, Bucket::MIN);
        for place in 0..places {
            let times: Times = table.get(MetricId(first + place as u32));
            let is_fresh = since.is_some_and(|since| {
                if known != Some(since[place]) {
                    (known, bucket) = (Some(since[place]), table.scale.bucket(since[place]));
                }
                bucket <= times.last
            });
            if is_fresh || buckets.iter().any(|buckets| buckets.meets(times)) {
                set(shown, place);
            }
        }
    }
}

fn set(bits: &mut [u64; WORDS], place: usize) {
    bits[place / 64] |= 1 << (place % 64);
}

impl fmt::Debug for TimeFilter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimeFilter").field("spans", &self.spans).finish_non_exhaustive()
    }
}
