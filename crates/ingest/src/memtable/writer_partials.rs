//! This writer's partials of every metric: a few words each in one arena, so that a million metrics pay for what they have
//! and for nothing else.

use downsample::{Stored, WriterPartials};
use metric::{Partial, Slot};

/// Words of one partial: a value and a count.
const PARTIAL: usize = 3;

/// Words before the partials.
const HEAD: usize = 2;

/// Where this writer's partials of a metric are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PartialsRef(u32);

impl PartialsRef {
    /// Nothing of the metric is stored.
    pub(super) const NOTHING: PartialsRef = PartialsRef(u32::MAX);
    /// Whether rows of the metric are stored is not known.
    pub(super) const UNKNOWN: PartialsRef = PartialsRef(u32::MAX - 1);

    fn place(self) -> Option<usize> {
        (self.0 < PartialsRef::UNKNOWN.0).then_some(self.0 as usize)
    }
}

fn horizon_of(word: u32) -> Option<Slot> {
    (word < Slot::MAX).then_some(word)
}

/// This writer's partials of all metrics.
#[derive(Debug, Default)]
pub(super) struct PartialsArena {
    // An entry is the last slot that is stored and the horizon (`Stored::Through`; `Slot::MAX` without one), then value
    // (two words) and count of each coarse table.
    words: Vec<u32>,
    // Places of entries that are free, by their number of coarse tables.
    free: Vec<Vec<u32>>,
}

impl PartialsArena {
    /// The partials of a metric with so many coarse tables; `None` when they are not known.
    pub(super) fn get(&self, at: PartialsRef, coarse: usize) -> Option<WriterPartials> {
        if at == PartialsRef::NOTHING {
            return Some(WriterPartials::nothing(coarse));
        }
        let (&[last, horizon], rest) = self.words.get(at.place()?..)?.split_first_chunk::<HEAD>()?;
        let partial = |words: &[u32]| {
            let bits = u64::from(words[0]) | u64::from(words[1]) << 32;
            Partial { value: f64::from_bits(bits), count: words[2] }
        };
        let closed = rest.chunks_exact(PARTIAL).take(coarse).map(partial).collect();
        Some(WriterPartials::through(last, horizon_of(horizon), closed))
    }

    /// How far this writer's rows of a metric reach.
    pub(super) fn stored(&self, at: PartialsRef) -> Stored {
        if at == PartialsRef::NOTHING {
            return Stored::Nothing;
        }
        match at.place().and_then(|place| self.words.get(place..)) {
            Some(&[last, horizon, ..]) => Stored::Through { last, horizon: horizon_of(horizon) },
            _ => Stored::Unknown,
        }
    }

    /// Sets the partials of a metric, in the place of those before. `coarse` is the number of coarse tables of
    /// its policy, the same as when `at` was set.
    pub(super) fn set(&mut self, at: PartialsRef, own: Option<&WriterPartials>, coarse: usize) -> PartialsRef {
        let (own, last, horizon) = match own.map(|own| (own, own.stored())) {
            Some((own, Stored::Through { last, horizon })) => (own, last, horizon.unwrap_or(Slot::MAX)),
            Some((_, Stored::Nothing)) => {
                self.forget(at, coarse);
                return PartialsRef::NOTHING;
            }
            Some((_, Stored::Unknown)) | None => {
                self.forget(at, coarse);
                return PartialsRef::UNKNOWN;
            }
        };
        debug_assert_eq!(own.closed().len(), coarse, "a partial for each coarse table");
        let place = at.place().or_else(|| self.free.get_mut(coarse)?.pop().map(|place| place as usize));
        let place = place.unwrap_or(self.words.len());
        let end = place + HEAD + PARTIAL * coarse;
        if end >= PartialsRef::UNKNOWN.0 as usize {
            // Sixteen gigabytes of them; from now on a flush asks the store.
            return PartialsRef::UNKNOWN;
        }
        if self.words.len() < end {
            self.words.resize(end, 0);
        }
        self.words[place..place + HEAD].copy_from_slice(&[last, horizon]);
        for (words, partial) in self.words[place + HEAD..end].chunks_exact_mut(PARTIAL).zip(own.closed()) {
            let bits = partial.value.to_bits();
            words.copy_from_slice(&[bits as u32, (bits >> 32) as u32, partial.count]);
        }
        PartialsRef(place as u32)
    }

    /// Gives back the place of a metric that had `coarse` coarse tables.
    pub(super) fn forget(&mut self, at: PartialsRef, coarse: usize) {
        if let Some(place) = at.place() {
            if self.free.len() <= coarse {
                self.free.resize_with(coarse + 1, Vec::new);
            }
            self.free[coarse].push(place as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partials_are_read_as_they_were_set_and_places_are_used_again() {
        let three = 2;
        let own = |n: u32| {
            let closed = vec![Partial { value: f64::from(n) / 3.0, count: n }, Partial::point(-0.0)];
            WriterPartials::through(n, None, closed)
        };
        let mut arena = PartialsArena::default();
        let first = arena.set(PartialsRef::NOTHING, Some(&own(7)), 2);
        let second = arena.set(PartialsRef::UNKNOWN, Some(&own(8)), 2);
        assert_eq!((arena.get(first, three), arena.get(second, three)), (Some(own(7)), Some(own(8))));
        let again = arena.set(first, Some(&own(9)), 2);
        assert_eq!((again, arena.get(again, three), arena.stored(again)), (first, Some(own(9)), own(9).stored()));
        assert_eq!(arena.set(first, None, 2), PartialsRef::UNKNOWN);
        assert_eq!(arena.set(PartialsRef::UNKNOWN, Some(&own(5)), 2), first);
        assert_eq!(arena.words.len(), 16, "32 bytes a metric of three stages");
        assert_eq!(
            (arena.get(PartialsRef::UNKNOWN, three), arena.stored(PartialsRef::UNKNOWN)),
            (None, Stored::Unknown)
        );
        let nothing = arena.get(PartialsRef::NOTHING, three).expect("nothing is stored");
        assert_eq!(
            (nothing.stored(), nothing.closed().iter().map(|partial| partial.count).sum::<u32>()),
            (Stored::Nothing, 0)
        );
        assert_eq!(arena.stored(PartialsRef::NOTHING), Stored::Nothing);
    }
}
