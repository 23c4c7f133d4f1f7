//! A segment of the path index: sorted names that never change, in a finite-state transducer.
//!
//! The transducer maps a name to its rank among the names of the segment, and a column maps ranks to
//! ids. Ranks rather than ids, because equal subtrees then have equal outputs and are kept once:
//! a thousand hosts with the same metrics cost little more than one.

use metric::MetricId;
use std::{collections::HashSet, sync::Arc};

use fst::{
    Streamer,
    raw::{Builder, Fst, Stream},
};

/// Names of metrics in byte order, each with its id.
pub(crate) struct Segment {
    pub fst: Fst<Vec<u8>>,
    // Invariant: one for each name, by rank.
    pub ids: Vec<MetricId>,
}

impl Segment {
    /// The id of the name with this rank.
    #[inline]
    pub(crate) fn id(&self, rank: u64) -> MetricId {
        // A transducer that was forged, checksum and all, may claim any rank.
        self.ids.get(rank as usize).copied().unwrap_or(MetricId::NONE)
    }
}

/// Builds a segment from names in byte order, each once.
pub(crate) struct SegmentBuilder {
    builder: Builder<Vec<u8>>,
    ids: Vec<MetricId>,
}

impl SegmentBuilder {
    pub(crate) fn new(names: usize) -> SegmentBuilder {
        SegmentBuilder { builder: Builder::memory(), ids: Vec::with_capacity(names) }
    }

    /// Adds the next name. The index holds each once and hands them over in order.
    pub(crate) fn push(&mut self, name: &[u8], id: MetricId) {
        let rank = self.ids.len() as u64;
        self.builder.insert(name, rank).expect("names come in byte order, each once, into memory");
        self.ids.push(id);
    }

    pub(crate) fn finish(self) -> Segment {
        let mut bytes = self.builder.into_inner().expect("writing into memory does not fail");
        bytes.shrink_to_fit();
        let fst = Fst::new(bytes).expect("what the builder wrote is whole");
        Segment { fst, ids: self.ids }
    }
}

impl Segment {
    /// Names in the segment.
    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    /// Bytes held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.fst.size() + self.ids.len() * size_of::<u32>()
    }
}

/// Reads several sorted sources of names as one, without removed metrics: the same name may be there under a later id.
pub(crate) struct Merge<'a> {
    sources: Vec<Source<'a>>,
    removed: &'a HashSet<MetricId>,
}

enum Source<'a> {
    Segment { stream: Stream<'a>, ids: &'a [MetricId], name: Vec<u8>, id: MetricId },
    Sorted { rest: &'a [(&'a [u8], MetricId)] },
}

impl<'a> Merge<'a> {
    /// Segments, and names that are in none yet, in byte order.
    pub(crate) fn new(
        segments: &'a [Arc<Segment>],
        sorted: &'a [(&'a [u8], MetricId)],
        removed: &'a HashSet<MetricId>,
    ) -> Merge<'a> {
        let segments = segments.iter().filter_map(|segment| {
            let stream = segment.fst.stream();
            let mut source = Source::Segment { stream, ids: &segment.ids, name: Vec::new(), id: MetricId::NONE };
            source.advance().then_some(source)
        });
        let mut sources: Vec<Source<'a>> = segments.collect();
        if !sorted.is_empty() {
            sources.push(Source::Sorted { rest: sorted });
        }
        Merge { sources, removed }
    }

    /// Calls `each` with every name and id in byte order, until it returns false.
    pub(crate) fn for_each(mut self, mut each: impl FnMut(&[u8], MetricId) -> bool) {
        // A scan for the least is quick for the few sources there are.
        while let Some(least) =
            (0..self.sources.len()).min_by(|&a, &b| self.sources[a].name().cmp(self.sources[b].name()))
        {
            // Names of one source often come in runs before the next of any other.
            let second = (0..self.sources.len())
                .filter(|&i| i != least)
                .min_by(|&a, &b| self.sources[a].name().cmp(self.sources[b].name()));
            let bound = second.map(|second| self.sources[second].name().to_vec());
            let source = &mut self.sources[least];
            loop {
                let is_there = self.removed.is_empty() || !self.removed.contains(&source.id());
                if is_there && !each(source.name(), source.id()) {
                    return;
                }
                if !source.advance() {
                    self.sources.swap_remove(least);
                    break;
                }
                if bound.as_deref().is_some_and(|bound| source.name() > bound) {
                    break;
                }
            }
        }
    }
}

impl Source<'_> {
    fn name(&self) -> &[u8] {
        match self {
            Source::Segment { name, .. } => name,
            Source::Sorted { rest } => rest[0].0,
        }
    }

    fn id(&self) -> MetricId {
        match self {
            Source::Segment { id, .. } => *id,
            Source::Sorted { rest } => rest[0].1,
        }
    }

    /// Goes to the next name, if there is one.
    fn advance(&mut self) -> bool {
        match self {
            Source::Segment { stream, ids, name, id } => match stream.next() {
                Some((key, rank)) => {
                    name.clear();
                    name.extend_from_slice(key);
                    *id = ids.get(rank.value() as usize).copied().unwrap_or(MetricId::NONE);
                    true
                }
                None => false,
            },
            Source::Sorted { rest } => {
                *rest = &rest[1..];
                !rest.is_empty()
            }
        }
    }
}
