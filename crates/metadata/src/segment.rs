//! A segment of the path index: sorted names that never change, in a finite-state transducer.
//!
//! The transducer maps a name to its rank among the names of the segment, and a column maps ranks to
//! numbers. Ranks rather than numbers, because equal subtrees then have equal outputs and are kept once:
//! a thousand hosts with the same metrics cost little more than one.

use std::sync::Arc;

use crate::find::NO_METRIC;
use fst::{
    Streamer,
    raw::{Builder, Fst, Stream},
};

/// Names of metrics in byte order, each with its number.
pub(crate) struct Segment {
    pub fst: Fst<Vec<u8>>,
    // Invariant: one for each name, by rank.
    pub numbers: Vec<u32>,
}

impl Segment {
    /// The number of the name with this rank.
    #[inline]
    pub(crate) fn number(&self, rank: u64) -> u32 {
        // A transducer that was forged, checksum and all, may claim any rank.
        self.numbers.get(rank as usize).copied().unwrap_or(NO_METRIC)
    }
}

/// Builds a segment from names in byte order, each once.
pub(crate) struct SegmentBuilder {
    builder: Builder<Vec<u8>>,
    numbers: Vec<u32>,
}

impl SegmentBuilder {
    pub(crate) fn new(names: usize) -> SegmentBuilder {
        SegmentBuilder { builder: Builder::memory(), numbers: Vec::with_capacity(names) }
    }

    /// Adds the next name. The index holds each once and hands them over in order.
    pub(crate) fn push(&mut self, name: &[u8], number: u32) {
        let rank = self.numbers.len() as u64;
        self.builder.insert(name, rank).expect("names come in byte order, each once, into memory");
        self.numbers.push(number);
    }

    pub(crate) fn finish(self) -> Segment {
        let mut bytes = self.builder.into_inner().expect("writing into memory does not fail");
        bytes.shrink_to_fit();
        let fst = Fst::new(bytes).expect("what the builder wrote is whole");
        Segment { fst, numbers: self.numbers }
    }
}

impl Segment {
    /// Names in the segment.
    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Bytes held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.fst.size() + self.numbers.len() * size_of::<u32>()
    }
}

/// Reads several sorted sources of names as one.
pub(crate) struct Merge<'a> {
    sources: Vec<Source<'a>>,
}

enum Source<'a> {
    Segment { stream: Stream<'a>, numbers: &'a [u32], name: Vec<u8>, number: u32 },
    Sorted { rest: &'a [(&'a [u8], u32)] },
}

impl<'a> Merge<'a> {
    /// Segments, and names that are in none yet, in byte order.
    pub(crate) fn new(segments: &'a [Arc<Segment>], sorted: &'a [(&'a [u8], u32)]) -> Merge<'a> {
        let segments = segments.iter().filter_map(|segment| {
            let stream = segment.fst.stream();
            let mut source = Source::Segment { stream, numbers: &segment.numbers, name: Vec::new(), number: 0 };
            source.advance().then_some(source)
        });
        let mut sources: Vec<Source<'a>> = segments.collect();
        if !sorted.is_empty() {
            sources.push(Source::Sorted { rest: sorted });
        }
        Merge { sources }
    }

    /// Calls `each` with every name and number in byte order, until it returns false.
    pub(crate) fn for_each(mut self, mut each: impl FnMut(&[u8], u32) -> bool) {
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
                if !each(source.name(), source.number()) {
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

    fn number(&self) -> u32 {
        match self {
            Source::Segment { number, .. } => *number,
            Source::Sorted { rest } => rest[0].1,
        }
    }

    /// Goes to the next name, if there is one.
    fn advance(&mut self) -> bool {
        match self {
            Source::Segment { stream, numbers, name, number } => match stream.next() {
                Some((key, rank)) => {
                    name.clear();
                    name.extend_from_slice(key);
                    *number = numbers.get(rank.value() as usize).copied().unwrap_or(NO_METRIC);
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
