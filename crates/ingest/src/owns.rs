//! Where every metric's own partials are kept: a few words each in one arena, so that a million metrics
//! pay for what they have and for nothing else.

use downsample::{Stored, WriterPartials};
use metric::{Partial, Retention, Slot};

/// Words of one partial: a value and a count.
const PARTIAL: usize = 3;

/// Words before the partials.
const HEAD: usize = 2;

/// Where a metric's own partials are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OwnRef(u32);

impl OwnRef {
    /// Nothing of the metric is stored.
    pub(crate) const NOTHING: OwnRef = OwnRef(u32::MAX);
    /// What is stored of it is not known.
    pub(crate) const UNKNOWN: OwnRef = OwnRef(u32::MAX - 1);

    fn place(self) -> Option<usize> {
        (self.0 < OwnRef::UNKNOWN.0).then_some(self.0 as usize)
    }
}

fn horizon_of(word: u32) -> Option<Slot> {
    (word < Slot::MAX).then_some(word)
}

/// The own partials of all metrics.
#[derive(Debug, Default)]
pub(crate) struct Owns {
    // An entry is the last slot that is stored and the horizon (`Stored::Through`; `Slot::MAX` without one), then value
    // (two words) and count of each coarse stage.
    words: Vec<u32>,
    // Places of entries that nobody uses any more, by their number of coarse stages.
    free: Vec<Vec<u32>>,
}

impl Owns {
    /// What is stored of a metric of this retention; `None` when that is not known.
    pub(crate) fn get(&self, at: OwnRef, retention: &Retention) -> Option<WriterPartials> {
        if at == OwnRef::NOTHING {
            return Some(WriterPartials::nothing(retention));
        }
        let (&[last, horizon], rest) = self.words.get(at.place()?..)?.split_first_chunk::<HEAD>()?;
        let partial = |words: &[u32]| {
            let bits = u64::from(words[0]) | u64::from(words[1]) << 32;
            Partial { value: f64::from_bits(bits), count: words[2] }
        };
        let coarse = retention.stages().len() - 1;
        let closed = rest.chunks_exact(PARTIAL).take(coarse).map(partial).collect();
        Some(WriterPartials::through(last, horizon_of(horizon), closed))
    }

    /// How far this writer's rows of a metric reach.
    pub(crate) fn stored(&self, at: OwnRef) -> Stored {
        if at == OwnRef::NOTHING {
            return Stored::Nothing;
        }
        match at.place().and_then(|place| self.words.get(place..)) {
            Some(&[last, horizon, ..]) => Stored::Through { last, horizon: horizon_of(horizon) },
            _ => Stored::Unknown,
        }
    }

    /// Remembers what is stored of a metric, in the place of what was. `coarse` is the number of coarse stages of
    /// its policy, the same as when `at` was set.
    pub(crate) fn set(&mut self, at: OwnRef, own: Option<&WriterPartials>, coarse: usize) -> OwnRef {
        let (own, last, horizon) = match own.map(|own| (own, own.stored())) {
            Some((own, Stored::Through { last, horizon })) => (own, last, horizon.unwrap_or(Slot::MAX)),
            Some((_, Stored::Nothing)) => {
                self.forget(at, coarse);
                return OwnRef::NOTHING;
            }
            Some((_, Stored::Unknown)) | None => {
                self.forget(at, coarse);
                return OwnRef::UNKNOWN;
            }
        };
        debug_assert_eq!(own.closed().len(), coarse, "a partial for each coarse stage");
        let place = at.place().or_else(|| self.free.get_mut(coarse)?.pop().map(|place| place as usize));
        let place = place.unwrap_or(self.words.len());
        let end = place + HEAD + PARTIAL * coarse;
        if end >= OwnRef::UNKNOWN.0 as usize {
            // Sixteen gigabytes of them; the store is asked from now on.
            return OwnRef::UNKNOWN;
        }
        if self.words.len() < end {
            self.words.resize(end, 0);
        }
        self.words[place..place + HEAD].copy_from_slice(&[last, horizon]);
        for (words, partial) in self.words[place + HEAD..end].chunks_exact_mut(PARTIAL).zip(own.closed()) {
            let bits = partial.value.to_bits();
            words.copy_from_slice(&[bits as u32, (bits >> 32) as u32, partial.count]);
        }
        OwnRef(place as u32)
    }

    /// Gives back the place of a metric that had `coarse` coarse stages.
    pub(crate) fn forget(&mut self, at: OwnRef, coarse: usize) {
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
    fn what_is_remembered_is_told_and_places_are_used_again() {
        let three: Retention = "60*60s:48*3600s:60*86400s".parse().unwrap();
        let own = |n: u32| {
            let closed = vec![Partial { value: f64::from(n) / 3.0, count: n }, Partial::point(-0.0)];
            WriterPartials::through(n, None, closed)
        };
        let mut owns = Owns::default();
        let first = owns.set(OwnRef::NOTHING, Some(&own(7)), 2);
        let second = owns.set(OwnRef::UNKNOWN, Some(&own(8)), 2);
        assert_eq!((owns.get(first, &three), owns.get(second, &three)), (Some(own(7)), Some(own(8))));
        let again = owns.set(first, Some(&own(9)), 2);
        assert_eq!((again, owns.get(again, &three), owns.stored(again)), (first, Some(own(9)), own(9).stored()));
        assert_eq!(owns.set(first, None, 2), OwnRef::UNKNOWN);
        assert_eq!(owns.set(OwnRef::UNKNOWN, Some(&own(5)), 2), first);
        assert_eq!(owns.words.len(), 16, "32 bytes a metric of three stages");
        assert_eq!((owns.get(OwnRef::UNKNOWN, &three), owns.stored(OwnRef::UNKNOWN)), (None, Stored::Unknown));
        let nothing = owns.get(OwnRef::NOTHING, &three).expect("it is known to be nothing");
        assert_eq!(
            (nothing.stored(), nothing.closed().iter().map(|partial| partial.count).sum::<u32>()),
            (Stored::Nothing, 0)
        );
        assert_eq!(owns.stored(OwnRef::NOTHING), Stored::Nothing);
    }
}
