//! The identity of a store, and which metric ids two records of it mean the same names by.

use metric::MetricId;

/// Files are numbered up to here. One with a larger number in its name is not of a store.
pub const LAST_NUMBER: u64 = u64::MAX >> 8;

/// One time that a store was opened for writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Incarnation {
    /// A random number, other than that of any other opening.
    pub id: u64,
    /// Every id below this was given out before this opening, and none from this on.
    pub first_id: MetricId,
}

/// Which store wrote something, and at which of its openings.
///
/// A store writes its own, and every segment of the journal has the one of the opening that wrote it. A restored store
/// and a journal that went on without it share the beginning of their chains; ids that were given out before the
/// chains part mean the same names in both.
///
/// ```
/// use metric::MetricId;
/// use store::{Identity, Incarnation};
///
/// let opened = |id, first| Incarnation { id, first_id: MetricId(first) };
/// let today = Identity { store: 7, chain: vec![opened(1, 0), opened(2, 10)] };
/// // Restored from a backup that was made during the first opening, when eight ids were given out.
/// let restored = Identity { store: 7, chain: vec![opened(1, 0), opened(3, 8)] };
/// assert_eq!(today.common_ids(&restored), Some(MetricId(8)));
/// assert_eq!(today.common_ids(&Identity { store: 9, ..restored }), None, "another store");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Identity {
    /// A random number that a store gets when it is created; 0 where it is not known (a journal of version 1).
    pub store: u128,
    /// The openings, oldest first. The last one is the current one. A reader of a shortened chain loses only the
    /// oldest.
    pub chain: Vec<Incarnation>,
}

impl Identity {
    /// The first id that no opening of the chain has given out yet; the openings say nothing about later ids.
    pub fn first_id(&self) -> MetricId {
        self.chain.iter().map(|opening| opening.first_id).max().unwrap_or(MetricId(0))
    }

    /// Ids below the answer mean the same names in both. `None` when nothing is in common: other stores, or chains
    /// without a common opening. [`MetricId::NONE`] when the chains are the same.
    pub fn common_ids(&self, other: &Identity) -> Option<MetricId> {
        if self.store != other.store || self.store == 0 {
            return None;
        }
        let place_of = |incarnation: &Incarnation| other.chain.iter().position(|theirs| theirs.id == incarnation.id);
        let (ours, theirs) =
            self.chain.iter().enumerate().rev().find_map(|(ours, one)| Some((ours, place_of(one)?)))?;
        let after =
            |chain: &[Incarnation], place: usize| chain.get(place + 1).map_or(MetricId::NONE, |next| next.first_id);
        Some(after(&self.chain, ours).min(after(&other.chain, theirs)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(chain: &[(u64, u32)]) -> Identity {
        let opened = |&(id, first)| Incarnation { id, first_id: MetricId(first) };
        Identity { store: 1, chain: chain.iter().map(opened).collect() }
    }

    #[test]
    fn chains_that_part_share_the_ids_from_before() {
        type Chain = [(u64, u32)];
        let cases: [(&Chain, &Chain, Option<u32>); 5] = [
            (&[(1, 0), (2, 5)], &[(1, 0), (2, 5)], Some(u32::MAX)),
            // The journal is older than the store: what the store gave out later is not in it.
            (&[(1, 0), (2, 5)], &[(1, 0)], Some(5)),
            (&[(1, 0), (2, 5), (3, 9)], &[(1, 0), (2, 5), (4, 7)], Some(7)),
            // A chain that lost its beginning.
            (&[(2, 5), (3, 9)], &[(1, 0), (2, 5), (3, 9), (4, 11)], Some(11)),
            (&[(1, 0)], &[(2, 0)], None),
        ];
        for (ours, theirs, common) in cases {
            let (ours, theirs) = (identity(ours), identity(theirs));
            assert_eq!(ours.common_ids(&theirs), common.map(MetricId), "{ours:?} {theirs:?}");
            assert_eq!(theirs.common_ids(&ours), common.map(MetricId), "{theirs:?} {ours:?}");
        }
    }
}
