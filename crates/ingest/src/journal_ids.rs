//! Whose metric an id of the journal is.
//!
//! A journal and a store that were not copied at the same moment may have given one id to two names. What a segment's
//! writer and this store have in common is known from their openings ([`Identity`]); for all other ids only a record that
//! names them counts, and they are the ids that this store gives those names.

use std::collections::HashMap;

use metric::MetricId;
use store::Identity;

use crate::wal::{Planned, SegmentHeader};

/// The ids of one writer, as far as its segments were read.
#[derive(Debug, Clone)]
pub(crate) struct WriterIds {
    /// Ids below this are the store's own.
    common: MetricId,
    /// Ids that are named, and differ or are not common.
    named: HashMap<MetricId, MetricId>,
}

impl WriterIds {
    /// The store's id of a writer's one; `None` when nothing names it.
    #[inline]
    pub(crate) fn resolve(&self, id: MetricId) -> Option<MetricId> {
        if !self.named.is_empty()
            && let Some(&named) = self.named.get(&id)
        {
            return Some(named);
        }
        (id < self.common).then_some(id)
    }

    /// Whether an id is the same in both, unless a record says otherwise.
    pub(crate) fn is_common(&self, id: MetricId) -> bool {
        id < self.common
    }

    /// The writer's id is this one of the store.
    pub(crate) fn name(&mut self, id: MetricId, ours: MetricId) {
        if id == ours && id < self.common {
            self.named.remove(&id);
        } else {
            self.named.insert(id, ours);
        }
    }
}

/// The key of a writer: its opening of the store; 0 for segments of version 1, 1 where the header is lost.
pub(crate) type Writer = u64;

/// The writers of a journal's segments.
#[derive(Debug, Clone, Default)]
pub(crate) struct JournalIds {
    ours: Identity,
    writers: HashMap<Writer, Segments>,
    /// The writer of the segment before.
    last: Option<(Writer, Option<SegmentHeader>)>,
}

/// The segments of a writer.
#[derive(Debug, Clone)]
struct Segments {
    ids: WriterIds,
    /// The first of them, and its header.
    first: u64,
    header: Option<SegmentHeader>,
}

const OLD: Writer = 0;
const UNKNOWN: Writer = 1;

impl JournalIds {
    /// For a store with this identity.
    pub(crate) fn new(ours: Identity) -> JournalIds {
        JournalIds { ours, ..JournalIds::default() }
    }

    /// The store was opened: segments from now on are written by this opening.
    pub(crate) fn set_ours(&mut self, ours: Identity) {
        self.ours = ours;
    }

    /// Returns who wrote a segment, which follows the one of the last call.
    pub(crate) fn begin(&mut self, planned: &Planned) -> Writer {
        let (writer, header) = match &planned.header {
            Some(header) => (header.identity.chain.last().map_or(OLD, |opening| opening.id), Some(header.clone())),
            None if !planned.is_header_lost => (OLD, None),
            // Its neighbour's, most likely: less is in common with a later opening, never more.
            None => self.last.clone().unwrap_or((UNKNOWN, None)),
        };
        if !self.writers.contains_key(&writer) {
            let ids = self.new_writer(writer, header.as_ref());
            let first = planned.segment.number;
            self.writers.insert(writer, Segments { ids, first, header: header.clone() });
        }
        self.last = Some((writer, header));
        writer
    }

    fn new_writer(&self, writer: Writer, header: Option<&SegmentHeader>) -> WriterIds {
        let common = match (writer, header) {
            (OLD, _) => MetricId::NONE,
            (_, Some(header)) => self.ours.common_ids(&header.identity).unwrap_or(MetricId(0)),
            (_, None) => MetricId(0),
        };
        // An opening that continues earlier ones has the names that they gave. Some may have written nothing.
        let mut before = header.into_iter().flat_map(|header| header.identity.chain.iter().rev().skip(1));
        let before = before.find_map(|before| self.writers.get(&before.id));
        let mut named = before.map(|before| before.ids.named.clone()).unwrap_or_default();
        // Ids from its first on are its own. It may have given some that earlier ones gave in a segment that it did not find.
        if let Some(own) = header.and_then(|header| header.identity.chain.last()) {
            named.retain(|&id, _| id < own.first_id);
        }
        WriterIds { common, named }
    }

    /// The ids of a writer that a segment was begun of.
    pub(crate) fn of(&self, writer: Writer) -> &WriterIds {
        &self.writers[&writer].ids
    }

    /// The openings before a writer that have the same metric under its id: an opening that continues others has the ids that
    /// they gave.
    pub(crate) fn before(&self, writer: Writer, metric: MetricId) -> impl DoubleEndedIterator<Item = Writer> + use<> {
        let chain = self.header(writer).map(|header| header.identity.chain.clone()).unwrap_or_default();
        let gave = chain.iter().rposition(|opening| opening.first_id <= metric).unwrap_or(0);
        let before = chain.len().saturating_sub(1);
        chain.into_iter().take(before).skip(gave).map(|opening| opening.id)
    }

    /// The first segment of those whose ids are not the store's own: without it the ids of the segments behind it have no
    /// names.
    pub(crate) fn first_with_other_ids(&self) -> Option<u64> {
        let of_others = self.writers.values().filter(|writer| !writer.ids.named.is_empty());
        of_others.map(|writer| writer.first).min()
    }

    /// The header of a writer's first segment.
    pub(crate) fn header(&self, writer: Writer) -> Option<&SegmentHeader> {
        self.writers[&writer].header.as_ref()
    }

    /// As [`JournalIds::of`], to name ids.
    pub(crate) fn of_mut(&mut self, writer: Writer) -> &mut WriterIds {
        &mut self.writers.get_mut(&writer).expect("a segment of it was begun").ids
    }
}
