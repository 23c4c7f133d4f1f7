//! Points: a table for each stage of each retention, and the rows that cross into it.

use std::ops::Range;

use metric::{Aggregation, Methods, MetricId, Slot, Table, Timestamp};

use crate::DriverFuture;

/// Consecutive slots of one metric in one table, to be written.
///
/// A slot whose value is NaN is left as it is stored. Writing the same run twice is the same as writing
/// it once; the last write of a slot wins.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// The metric's id in this node's registry: the embedded store's key.
    pub metric: MetricId,
    /// The metric's canonical name, from which Cassandra's key is made.
    pub name: String,
    /// The table to write to.
    pub table: Table,
    /// Slot of `values[0]`.
    pub first_slot: Slot,
    /// Points in a stage-0 table; [`metric::Partial`] values in an aggregated one. NaN is absent.
    pub values: Vec<f64>,
    /// Partial counts, as many as values, in an aggregated table; empty in a stage-0 table.
    pub counts: Vec<u32>,
    /// The metric's aggregation method, which says what the values of an aggregated table mean.
    pub aggregation: Aggregation,
}

/// Slots of one metric in one table, to be read.
#[derive(Debug, Clone, PartialEq)]
pub struct Fetch {
    /// The metric's id in this node's registry.
    pub metric: MetricId,
    /// The metric's canonical name.
    pub name: String,
    /// The table to read.
    pub table: Table,
    /// First slot.
    pub first_slot: Slot,
    /// The slot after the last; `first_slot <= end_slot`.
    pub end_slot: Slot,
    /// Merges the rows that several writers left for one slot.
    pub aggregation: Aggregation,
}

/// The stored slots of a [`Fetch`], dense from its first slot to its last.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Cells {
    /// One value a slot, NaN where none is stored. Empty when the store has no slot of the whole fetch,
    /// so that a miss allocates nothing.
    pub values: Vec<f64>,
    /// A partial count for each value in an aggregated table; empty in a stage-0 table and on a miss.
    pub counts: Vec<u32>,
    /// Whether stored slots of the fetch could not be read because their bytes are damaged. They are NaN here. The driver
    /// has reported the damage. Nothing may be derived from such cells and stored in place of what is stored.
    pub is_damaged: bool,
    /// Places that are known to be damaged, in no order. They are NaN.
    pub damaged_at: Vec<Range<u32>>,
    /// Places of slots that may be damaged, if they are NaN, in no order.
    pub doubted_at: Vec<Range<u32>>,
    /// Whether `damaged_at` and `doubted_at` have all that may be damaged. Without it each slot that is NaN may be damaged where `is_damaged`
    /// is true.
    pub is_doubt_known: bool,
    /// Places whose value may be older than one that cannot be read, sorted and apart: it is shown, and nothing is derived from it.
    /// `is_damaged` is true as well.
    pub outdated_at: Vec<Range<u32>>,
    /// Whether a read failed, and may work later: the bytes are not known to be wrong. `is_damaged` is true as well.
    pub is_unreadable: bool,
    /// Whether a file with slots of the fetch is missing, and may be put back, at any time or never: no points wait for it.
    /// `is_unreadable` is true as well, unless the file counts as lost.
    pub is_away: bool,
    /// Set by readers of a metric with several policies: methods other than that of the fetch whose values are among these, or in
    /// them. Drivers leave it empty.
    pub earlier: Methods,
    /// The places of the slots that `earlier` is about, with the methods of each, in no order; a place may be there several times.
    pub earlier_at: Vec<(u32, Methods)>,
    /// Set by readers of a metric with several policies, of coarse slots by `last`: the places of slots, and when the last finer
    /// slot of it begins that any policy has stored. Unix seconds. Drivers leave it empty.
    pub latest_at: Vec<(u32, Timestamp)>,
}

/// Damaged places, and those that may be damaged where they are NaN.
pub type Damaged<'a> = (&'a [Range<u32>], &'a [Range<u32>]);

impl Cells {
    /// Notes that the slots at these places are damaged.
    pub fn note_damage_at(&mut self, places: Range<u32>) {
        self.is_doubt_known |= !self.is_damaged;
        self.is_damaged = true;
        self.damaged_at.push(places);
    }

    /// Notes that those slots at these places that are NaN may be damaged.
    pub fn note_doubt_at(&mut self, places: Range<u32>) {
        self.is_doubt_known |= !self.is_damaged;
        self.is_damaged = true;
        self.doubted_at.push(places);
    }

    /// The damaged places, and those that may be damaged where they are NaN; `None` where not all of them are known.
    pub fn damage(&self) -> Option<Damaged<'_>> {
        self.is_doubt_known.then_some((&*self.damaged_at, &*self.doubted_at))
    }

    /// Notes that the value at this place may be older than one that cannot be read. Places may come in any order.
    pub fn note_outdated(&mut self, place: u32) {
        self.is_damaged = true;
        let after = self.outdated_at.partition_point(|places| places.end < place);
        match self.outdated_at.get_mut(after) {
            Some(places) if places.contains(&place) => {}
            Some(places) if places.end == place => {
                places.end += 1;
                let end = places.end;
                if let Some(next) = self.outdated_at.get(after + 1).filter(|next| next.start == end) {
                    self.outdated_at[after].end = next.end;
                    self.outdated_at.remove(after + 1);
                }
            }
            Some(places) if places.start == place + 1 => places.start = place,
            _ => self.outdated_at.insert(after, place..place + 1),
        }
    }

    /// Notes that the value at this place is the newest.
    pub fn note_newest(&mut self, place: u32) {
        let after = self.outdated_at.partition_point(|places| places.end <= place);
        let Some(places) = self.outdated_at.get_mut(after).filter(|places| places.contains(&place)) else { return };
        let behind = place + 1..places.end;
        places.end = place;
        if !behind.is_empty() {
            self.outdated_at.insert(after + 1, behind);
        }
        if self.outdated_at[after].is_empty() {
            self.outdated_at.remove(after);
        }
    }

    /// Whether the value at this place may be older than one that cannot be read.
    pub fn is_outdated(&self, place: u32) -> bool {
        let after = self.outdated_at.partition_point(|places| places.end <= place);
        self.outdated_at.get(after).is_some_and(|places| places.contains(&place))
    }

    /// Notes that slots of other cells could not be read, where these cells have values of those.
    pub fn note_unread_of(&mut self, other: &Cells) {
        self.is_doubt_known &= !other.is_damaged;
        self.is_damaged |= other.is_damaged;
        self.is_unreadable |= other.is_unreadable;
        self.is_away |= other.is_away;
    }

    /// Notes what of a part could not be read, whose first place is `place` here.
    pub fn note_unread_of_part(&mut self, place: u32, part: &Cells) {
        let is_known = part.is_doubt_known && (self.is_doubt_known || !self.is_damaged);
        self.note_unread_of(part);
        self.is_doubt_known |= is_known;
        let of_whole = |places: &Range<u32>| place + places.start..place + places.end;
        self.damaged_at.extend(part.damaged_at.iter().map(of_whole));
        self.doubted_at.extend(part.doubted_at.iter().map(of_whole));
        // Parts may come in any order.
        part.outdated_at.iter().flat_map(of_whole).for_each(|place| self.note_outdated(place));
    }

    /// Notes that the value at this place is one of another method, or has it in it.
    pub fn note_earlier(&mut self, place: usize, method: Aggregation) {
        self.earlier.add(method);
        let place = place as u32;
        match self.earlier_at.last_mut().filter(|(last, _)| *last == place) {
            Some((_, methods)) => _ = methods.add(method),
            None => self.earlier_at.push((place, Methods::one(method))),
        }
    }
}

/// The size of a store, for metrics and for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Bytes on disk (embedded) or zero where the driver cannot know.
    pub disk_bytes: u64,
    /// Bytes of memory held for writes that are not on disk yet.
    pub memory_bytes: u64,
    /// Datapoints tables that exist.
    pub tables: u64,
}

/// Keeps points. Every driver passes [`crate::conformance::points_suite`].
///
/// Calls are batches: thousands of points pay for one virtual call. No call blocks the thread that polls its
/// future for longer than a disk seek.
pub trait PointStore: Send + Sync + 'static {
    /// Writes runs. After `Ok`, `fetch` returns them; the next `sync` makes them durable. After an error any part
    /// of them may be written, and the caller writes all of them again.
    fn write(&self, runs: Vec<Run>) -> DriverFuture<'_, ()>;

    /// Reads, concurrently where that helps; the answers are in the order of the fetches. Dropping the
    /// future stops the work.
    fn fetch(&self, fetches: Vec<Fetch>) -> DriverFuture<'_, Vec<Cells>>;

    /// Makes every earlier `write` durable. The caller trims its journal afterwards.
    fn sync(&self) -> DriverFuture<'_, ()>;

    /// Frees points older than their stage keeps at `now` (Unix seconds). Expired rows may stay readable for a
    /// while: readers clip to the retention.
    fn expire(&self, now: Timestamp) -> DriverFuture<'_, ()>;

    /// Slots of each stage that stay readable at least behind those that the stage keeps. 0 promises nothing.
    fn slots_kept_longer(&self) -> u32 {
        0
    }

    /// A time behind which no stored slot begins, Unix seconds; `None` where that is not known.
    fn newest_slot(&self) -> Option<Timestamp> {
        None
    }

    /// Whether the start found rows that its own list of rows did not have: of a flush that was ended by a kill, or because an
    /// earlier list was put back.
    fn has_newer_rows(&self) -> bool {
        false
    }

    /// The size of the store.
    fn usage(&self) -> Usage;
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;

    /// Cells that are known to be damaged at these places.
    fn known(places: &[u32]) -> Cells {
        let mut cells = Cells::default();
        places.iter().for_each(|&place| cells.note_damage_at(place..place + 1));
        cells
    }

    fn unknown() -> Cells {
        Cells { is_damaged: true, ..Cells::default() }
    }

    fn places(cells: &Cells) -> Option<Vec<u32>> {
        cells.damage().map(|(places, _)| places.iter().cloned().flatten().collect())
    }

    #[test]
    fn damaged_places_are_known_as_long_as_all_of_them_are() {
        assert_eq!(places(&Cells::default()), None);
        let mut cells = known(&[3, 5]);
        cells.note_unread_of(&Cells::default());
        assert_eq!(places(&cells), Some(vec![3, 5]));
        // Of cells with other places.
        for other in [unknown(), known(&[0])] {
            let mut cells = known(&[3]);
            cells.note_unread_of(&other);
            assert_eq!((cells.is_damaged, places(&cells)), (true, None));
            cells.note_damage_at(7..8);
            assert_eq!(places(&cells), None);
        }
    }

    #[test]
    fn doubted_places_are_known_as_long_as_all_of_them_are() {
        let doubted = |places: Range<u32>| {
            let mut cells = Cells::default();
            cells.note_doubt_at(places);
            cells
        };
        let mut cells = doubted(3..5);
        cells.note_damage_at(7..8);
        assert!(cells.is_damaged);
        assert_eq!(cells.damage(), Some((slice::from_ref(&(7..8)), slice::from_ref(&(3..5)))));
        assert_eq!(known(&[2]).damage(), Some((slice::from_ref(&(2..3)), &[][..])));
        let of_parts = |parts: &[Cells]| {
            let mut cells = Cells::default();
            parts.iter().zip([0, 10, 20]).for_each(|(part, place)| cells.note_unread_of_part(place, part));
            let places = |all: &[Range<u32>]| all.iter().cloned().flatten().collect::<Vec<u32>>();
            cells.damage().map(|(damaged, doubted)| (places(damaged), places(doubted)))
        };
        let of_two = [doubted(0..2), known(&[1]), Cells::default()];
        assert_eq!(of_parts(&of_two), Some((vec![11], vec![0, 1])));
        assert_eq!(of_parts(&[unknown(), doubted(0..2)]), None);
        assert_eq!(of_parts(&[doubted(0..2), unknown()]), None);
    }

    #[test]
    fn outdated_places_are_ranges_that_newer_values_cut() {
        let mut cells = Cells::default();
        let shown = |cells: &Cells| format!("{:?}", cells.outdated_at);
        [5, 3, 4, 9, 4, 8].into_iter().for_each(|place| cells.note_outdated(place));
        assert_eq!((shown(&cells), cells.is_damaged), ("[3..6, 8..10]".to_owned(), true));
        cells.note_outdated(7);
        cells.note_outdated(6);
        assert_eq!(shown(&cells), "[3..10]");
        [5, 3, 9, 2, 20, 5].into_iter().for_each(|place| cells.note_newest(place));
        assert_eq!(cells.outdated_at, [4..5, 6..9]);
        assert_eq!((2..12).filter(|&place| cells.is_outdated(place)).collect::<Vec<_>>(), [4, 6, 7, 8]);
        let mut whole = Cells::default();
        whole.note_unread_of_part(10, &cells);
        assert_eq!((whole.outdated_at.clone(), whole.damage()), (vec![14..15, 16..19], None));
        cells.note_newest(4);
        assert_eq!(shown(&cells), "[6..9]");
    }

    #[test]
    fn damaged_places_of_parts_are_those_of_the_whole() {
        let of_parts = |parts: &[(u32, Cells)]| {
            let mut cells = Cells::default();
            parts.iter().for_each(|(place, part)| cells.note_unread_of_part(*place, part));
            (cells.is_damaged, places(&cells))
        };
        assert_eq!(of_parts(&[(0, Cells::default()), (10, Cells::default())]), (false, None));
        let of_two = [(0, Cells::default()), (10, known(&[0, 2])), (20, Cells::default()), (30, known(&[1]))];
        assert_eq!(of_parts(&of_two), (true, Some(vec![10, 12, 31])));
        assert_eq!(of_parts(&[(10, unknown()), (20, known(&[0]))]), (true, None));
        assert_eq!(of_parts(&[(10, known(&[0])), (20, unknown())]), (true, None));
    }
}
