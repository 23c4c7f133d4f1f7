//! Slots of one policy, filled from stored slots of others.
//!
//! A slot of a step that does not divide that of the slots to fill may reach into the next one of these. It is cut there where its
//! policy's first stage has all of its points. Otherwise it goes as a whole to the slot in which it begins, and none of its points goes to
//! the next one: each point is in one slot.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ops::Range,
};

use metric::{Partial, Policy, Slot, Table, Timestamp};
use store::Cells;

use crate::shared_rows::{converted, has_same_terms, has_table};

/// Slots to fill.
pub(crate) struct Target<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) table: Table,
    pub(crate) first_slot: Slot,
    pub(crate) len: usize,
    /// Whether a slot of another method is made of points instead, where all of its points are stored: for metrics that have or
    /// had several methods, and one first step, so that counts tell.
    pub(crate) is_of_points: bool,
    /// From when on the first stages have all points, where `is_of_points`. A point may have replaced a part of an older slot
    /// without them.
    pub(crate) points_since: Timestamp,
    /// Whether the counts of all policies are of one first step, and can be compared.
    pub(crate) is_of_one_step: bool,
    /// First stages of policies that are not among the sources, where slots of these are to be cut: the policy in force may have been in
    /// force before.
    pub(crate) points: &'a [Source<'a>],
}

/// Stored slots of another policy's stage.
pub(crate) struct Source<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) table: Table,
    pub(crate) first_slot: Slot,
    pub(crate) len: usize,
    /// What is stored.
    pub(crate) stored: Cells,
    /// The same with absent slots filled from the sources behind this one; empty where none was.
    pub(crate) filled: Cells,
}

impl Target<'_> {
    /// The slot of the target in which a slot of a source begins, by their places.
    fn place(&self, source: &Source<'_>, place: usize) -> Option<usize> {
        self.place_of(source.table.stage.time(source.first_slot + place as u32))
    }

    fn place_of(&self, time: Timestamp) -> Option<usize> {
        let slot = self.table.stage.slot(time)?.checked_sub(self.first_slot)? as usize;
        (slot < self.len).then_some(slot)
    }

    /// When the slot after the one around this time begins.
    fn next_slot(&self, time: Timestamp) -> Timestamp {
        let step = i64::from(self.table.stage.resolution());
        time - time.rem_euclid(step) + step
    }
}

impl Source<'_> {
    /// What is stored, and what the sources behind fill in.
    fn shown(&self) -> &Cells {
        if self.filled.values.is_empty() { &self.stored } else { &self.filled }
    }

    /// The times of the slot at this place.
    fn times(&self, place: usize) -> Range<Timestamp> {
        let begin = self.table.stage.time(self.first_slot + place as u32);
        begin..begin + i64::from(self.table.stage.resolution())
    }

    /// The values in these times, each with its time.
    fn values_in(&self, times: &Range<Timestamp>) -> impl Iterator<Item = (Timestamp, f64)> + '_ {
        let (stage, cells) = (self.table.stage, self.shown());
        let (begin, step) = (stage.time(self.first_slot), i64::from(stage.resolution()));
        let place = |time: Timestamp| ((time - begin).max(0) as usize).div_ceil(step as usize);
        let (from, until) = (place(times.start), place(times.end).min(cells.values.len()));
        let values = (from..until).map(move |place| (begin + place as i64 * step, cells.values[place]));
        values.filter(|(_, value)| !value.is_nan())
    }
}

/// A slot of the target that a source has.
struct Fill {
    place: usize,
    partial: Partial,
    /// The part of the source's last slot in it that is in the next slot of the target, and is not cut off.
    beyond: Option<Range<Timestamp>>,
}

/// Times whose points are in the slot of the target before them. Each begins with a slot.
#[derive(Default)]
struct Beyond {
    /// Their ends, by their begins.
    ends: HashMap<Timestamp, Timestamp>,
}

impl Beyond {
    fn extend(&mut self, times: Option<Range<Timestamp>>) {
        if let Some(Range { start, end }) = times {
            let known = self.ends.entry(start).or_insert(end);
            *known = end.max(*known);
        }
    }

    /// Whether what ends then is within those that begin with this slot of the target.
    fn has(&self, slot: Timestamp, end: Timestamp) -> bool {
        self.ends.get(&slot).is_some_and(|until| end <= *until)
    }
}

/// Fills the sources from those behind them: what a policy showed while it was in force. Sources are in the order of their
/// policies, the latest first. `of` is what will be filled from them.
pub(crate) fn fill_sources(sources: &mut [Source<'_>], of: &Target<'_>) {
    for place in (0..sources.len()).rev() {
        let source = &sources[place];
        let behind = sources[place + 1..].iter().filter(|other| !std::ptr::eq(other.policy, source.policy));
        if behind.clone().next().is_none() {
            continue;
        }
        let Source { policy, table, first_slot, len, .. } = *source;
        let target = Target { policy, table, first_slot, len, ..*of };
        let mut cells = source.stored.clone();
        fill(&target, &mut cells, behind, sources, |other| has_table(other, table));
        sources[place].filled = cells;
    }
}

/// Fills the absent slots of `cells` from sources, the first that has a slot, but for policies to leave out. `all` has all sources,
/// for their points.
pub(crate) fn fill<'s, 'p: 's>(
    target: &Target<'_>,
    cells: &mut Cells,
    sources: impl Iterator<Item = &'s Source<'p>> + Clone,
    all: &[Source<'_>],
    is_left_out: impl Fn(&Policy) -> bool,
) {
    let step = target.table.stage.resolution();
    let is_finer = |source: &&Source<'_>| source.table.stage.resolution() <= step;
    let sources = sources.filter(|source| !is_left_out(source.policy));
    let is_of_other = |source: &Source<'_>| is_of_other_method(source, target);
    let is_asked = target.is_of_points && target.table.aggregated && sources.clone().any(is_of_other);
    let of_points = if is_asked { of_points(target, all) } else { Vec::new() };
    let absent = match target.is_of_one_step && target.table.aggregated {
        true => (0..target.len).map(|place| cells.values.get(place).is_none_or(|value| value.is_nan())).collect(),
        false => Vec::new(),
    };
    let mut made = Made { of_points, absent, ..Made::default() };
    for source in sources.clone().filter(is_finer) {
        let from = source.shown();
        made.untouched = untouched_times(target, source, all);
        fill_from(target, cells, (source, from), all, &mut made);
    }
    // A point of a coarser step is a point at its own time, where no finer one is known; what that policy showed of finer
    // ones is not. The finest first: a slot of the others may have the fold of finer points in place of a point.
    let is_point = |source: &&Source<'_>| !is_finer(source) && !source.table.aggregated;
    let mut points: Vec<&Source<'_>> = sources.filter(is_point).collect();
    points.sort_by_key(|source| source.table.stage.resolution());
    for source in points {
        fill_from(target, cells, (source, &source.stored), all, &mut Made::default());
    }
}

/// What a fill knows of its slots.
#[derive(Default)]
struct Made {
    /// Slots that the target's method makes of points, by place: they go before those of another method that count no more points.
    of_points: Vec<(usize, Partial)>,
    /// By place, whether a slot was absent; empty where counts cannot be compared.
    absent: Vec<bool>,
    /// Times in which slots of the source that is next are in a first stage alone, see [`untouched_times`].
    untouched: Option<Range<Timestamp>>,
    /// Places that are filled from such slots.
    of_shared_points: HashSet<usize>,
    /// Times whose points are in the slot before them, see [`Fill::beyond`].
    beyond: Beyond,
    /// Slots that may have more points in the finer ones than can be read, by place: nothing fills them, as nothing is made from a part.
    doubted: HashSet<usize>,
}

impl Made {
    /// Whether a row replaces what another source has filled: it counts more points. Those of a policy's finer slots, and of first
    /// stages, which policies share, lack the points that came when they were too old for these. Such a point may count as many
    /// as the first stage has: where the policy of that stage has stored nothing itself, the row is newer.
    fn gives_way(&self, place: usize, row: Partial, cells: &Cells) -> bool {
        let is_fewer = |count: &u32| *count < row.count + u32::from(self.of_shared_points.contains(&place));
        self.absent.get(place) == Some(&true) && cells.counts.get(place).is_some_and(is_fewer)
    }

    /// Notes how a place is filled that begins at this time.
    fn note(&mut self, place: usize, time: Timestamp) {
        let is_shared = self.untouched.as_ref().is_some_and(|times| times.contains(&time));
        if is_shared {
            self.of_shared_points.insert(place);
        } else {
            self.of_shared_points.remove(&place);
        }
    }
}

/// Of a first stage: the times for which its policy also has a coarser stage of the target's step or a finer one. That is filled from
/// before the first stage, so that slots which are left for this one have none: its policy stored nothing there, and the points
/// are those of other policies with that first stage.
fn untouched_times(target: &Target<'_>, source: &Source<'_>, all: &[Source<'_>]) -> Option<Range<Timestamp>> {
    let is_coarser = |of: &&Source<'_>| {
        let step = of.table.stage.resolution();
        std::ptr::eq(of.policy, source.policy) && of.table.aggregated && step <= target.table.stage.resolution()
    };
    let of = all.iter().filter(|_| !source.table.aggregated).find(is_coarser)?;
    Some(of.table.stage.time(of.first_slot)..of.table.stage.time(of.first_slot.saturating_add(of.len as u32)))
}

/// Fills absent slots from one source.
fn fill_from(
    target: &Target<'_>,
    cells: &mut Cells,
    (source, from): (&Source<'_>, &Cells),
    all: &[Source<'_>],
    made: &mut Made,
) {
    cells.note_unread_of(from);
    let mut fills = fills(target, (source, from), all, &mut made.beyond);
    // What other policies have there is not what was stored.
    fills.retain(|fill| !cells.damaged_at.iter().any(|damaged| damaged.contains(&(fill.place as u32))));
    made.doubted.extend(doubted_places(target, source, from));
    fills.retain(|fill| !made.doubted.contains(&fill.place));
    if !std::ptr::eq(from, &source.stored) {
        // A slot that this policy has nothing of is left to the next one.
        let own = places_of_stored(target, source);
        fills.retain(|fill| own.binary_search(&fill.place).is_ok());
    }
    if fills.is_empty() {
        return;
    }
    let is_aggregated = target.table.aggregated;
    cells.values.resize(target.len, f64::NAN);
    cells.counts.resize(if is_aggregated { target.len } else { 0 }, 0);
    let (is_of_other, method) = (is_of_other_method(source, target), source.policy.aggregation);
    let mut outdated = outdated_places(target, source, &from.outdated_at);
    if !made.of_points.is_empty() {
        let points = all.iter().filter(|of| !of.table.aggregated);
        points.for_each(|of| outdated.extend(outdated_places(target, of, &of.stored.outdated_at)));
    }
    for Fill { place, partial, beyond } in fills {
        let found = made.of_points.binary_search_by_key(&place, |(place, _)| *place);
        let exact = found.ok().map(|index| made.of_points[index].1);
        let exact = exact.filter(|exact| is_of_other && partial.count <= exact.count);
        let is_empty = cells.values.get(place).is_some_and(|value| value.is_nan());
        // A slot that is not cut counts points of the next one.
        let may_replace = source.table.aggregated && beyond.is_none();
        let is_absent = is_empty || may_replace && made.gives_way(place, partial, cells);
        if is_of_other && exact.is_none() && (is_absent || source.table.aggregated) {
            // A slot that is there may be made of this one.
            cells.note_earlier(place, method);
        }
        if is_absent {
            let partial = exact.unwrap_or(partial);
            made.beyond.extend(beyond);
            made.note(place, target.table.stage.time(target.first_slot + place as u32));
            cells.values[place] = partial.value;
            match outdated.contains(&place) {
                true => cells.note_outdated(place as u32),
                false => cells.note_newest(place as u32),
            }
            if is_aggregated {
                cells.counts[place] = partial.count;
            }
        }
    }
    if is_aggregated {
        for (of_source, methods) in &from.earlier_at {
            let Some(place) = target.place(source, *of_source as usize) else { continue };
            let others = methods.iter().filter(|&of| of != target.policy.aggregation);
            others.for_each(|method| cells.note_earlier(place, method));
        }
    }
}

/// The slots of the target in which a source has values that may be older than ones that cannot be read, by place.
fn outdated_places(target: &Target<'_>, source: &Source<'_>, outdated_at: &[Range<u32>]) -> HashSet<usize> {
    outdated_at.iter().cloned().flatten().filter_map(|place| target.place(source, place as usize)).collect()
}

/// The slots of the target in which a finer source may have points besides those that can be read, by place.
fn doubted_places(target: &Target<'_>, source: &Source<'_>, from: &Cells) -> HashSet<usize> {
    let is_finer = source.table.stage.resolution() < target.table.stage.resolution();
    if !from.is_damaged || !is_finer {
        return HashSet::new();
    }
    let is_absent = |place: &u32| from.values.get(*place as usize).is_none_or(|value| value.is_nan());
    let of_target = |place: u32| target.place(source, place as usize);
    match from.damage() {
        Some((damaged, doubted)) => {
            damaged.iter().chain(doubted).cloned().flatten().filter(is_absent).filter_map(of_target).collect()
        }
        None => (0..source.len as u32).filter(is_absent).filter_map(of_target).collect(),
    }
}

/// Whether what a policy shows means something else than what the target's would make of the same points.
fn is_of_other_method(source: &Source<'_>, target: &Target<'_>) -> bool {
    if !source.table.aggregated && source.table.stage.resolution() == target.table.stage.resolution() {
        // Each is a point.
        return false;
    }
    // Means and sums have the same numbers, but for points that stand for a whole slot: their sum is not the mean of as many.
    let (source, of) = (source.policy, target.policy);
    source.aggregation != of.aggregation && (target.is_of_points || !has_same_terms(source, of))
}

/// When the last finer slot begins that a source has stored in a slot of the target, by place.
pub(crate) fn latest_times(
    target: &Target<'_>,
    sources: &[Source<'_>],
) -> impl Iterator<Item = (u32, Timestamp)> + use<> {
    let mut latest: BTreeMap<u32, Timestamp> = BTreeMap::new();
    for source in sources.iter().filter(|of| of.table.stage.resolution() < target.table.stage.resolution()) {
        for (i, _) in source.stored.values.iter().enumerate().filter(|(_, value)| !value.is_nan()) {
            let Some(place) = target.place(source, i) else { continue };
            let (time, known) = (source.table.stage.time(source.first_slot + i as u32), latest.entry(place as u32));
            known.and_modify(|known| *known = time.max(*known)).or_insert(time);
        }
    }
    latest.into_iter()
}

/// The slots of the target that its method makes of all points that the sources have, by place, in the terms of its policy.
fn of_points(target: &Target<'_>, sources: &[Source<'_>]) -> Vec<(usize, Partial)> {
    let points = sources.iter().filter(|of| !of.table.aggregated && !of.stored.values.is_empty());
    let first_slot = points.clone().map(|of| of.first_slot).min().unwrap_or(0);
    let end = points.clone().map(|of| of.first_slot as usize + of.stored.values.len()).max().unwrap_or(0);
    let mut values = vec![f64::NAN; end.saturating_sub(first_slot as usize)];
    let mut stage = None;
    // A point that several tables have is the same in all of them.
    for of in points {
        stage = Some(of.table.stage);
        let own = values.iter_mut().skip((of.first_slot - first_slot) as usize);
        own.zip(&of.stored.values).filter(|(own, _)| own.is_nan()).for_each(|(own, value)| *own = *value);
    }
    let (Some(stage), method) = (stage, target.policy.aggregation) else { return Vec::new() };
    let mut all: Vec<(usize, Partial)> = Vec::new();
    for (slot, &value) in (first_slot..).zip(&values).filter(|(_, value)| !value.is_nan()) {
        let Some(place) = target.place_of(stage.time(slot)) else { continue };
        if target.table.stage.time(target.first_slot + place as u32) < target.points_since {
            continue;
        }
        match all.last_mut().filter(|(last, _)| *last == place) {
            Some((_, partial)) => *partial = method.merge(*partial, Partial::point(value)),
            None => all.push((place, Partial::point(value))),
        }
    }
    all
}

/// The slots of the target in which a source has stored slots, or a part of one, by place.
fn places_of_stored(target: &Target<'_>, source: &Source<'_>) -> Vec<usize> {
    let values = source.stored.values.iter().enumerate().filter(|(_, value)| !value.is_nan());
    let of_slot = |(i, _): (usize, &f64)| [source.times(i).start, source.times(i).end - 1];
    let mut places: Vec<usize> = values.flat_map(of_slot).filter_map(|time| target.place_of(time)).collect();
    places.dedup();
    places
}

/// The points of these times that first stages of this policy's step have, in the order of time. One that several have is the same in all.
fn points_in(
    target: &Target<'_>,
    policy: &Policy,
    sources: &[Source<'_>],
    times: Range<Timestamp>,
) -> Vec<(Timestamp, f64)> {
    let step = policy.retention.finest().resolution();
    let first_stages = target.points.iter().chain(sources);
    let first_stages = first_stages.filter(|of| !of.table.aggregated && of.table.stage.resolution() == step);
    let mut points: Vec<(Timestamp, f64)> = first_stages.flat_map(|of| of.values_in(&times)).collect();
    points.sort_by_key(|(time, _)| *time);
    points.dedup_by_key(|(time, _)| *time);
    points
}

/// The slots of the target that a source has, by place. Those within the times `beyond` are left out.
fn fills(
    target: &Target<'_>,
    (source, cells): (&Source<'_>, &Cells),
    all: &[Source<'_>],
    beyond: &mut Beyond,
) -> Vec<Fill> {
    let (stage, method) = (target.table.stage, source.policy.aggregation);
    let mut fills: Vec<Fill> = Vec::new();
    let mut add = |time: Timestamp, partial: Partial, beyond: Option<Range<Timestamp>>| {
        let Some(place) = target.place_of(time) else { return };
        match fills.last_mut().filter(|last| last.place == place) {
            Some(last) => (last.partial, last.beyond) = (method.merge(last.partial, partial), beyond),
            None => fills.push(Fill { place, partial, beyond }),
        }
    };
    let step = source.table.stage.resolution();
    let is_undivided = step < stage.resolution() && stage.resolution() % step != 0;
    for (i, &value) in cells.values.iter().enumerate().filter(|(_, value)| !value.is_nan()) {
        let times = source.times(i);
        // A point is one at the time at which its slot begins.
        let end = if source.table.aggregated { times.end } else { times.start + 1 };
        let next = target.next_slot(times.start);
        if beyond.has(next - i64::from(stage.resolution()), end) {
            continue;
        }
        let partial = Partial { value, count: cells.counts.get(i).copied().unwrap_or(1) };
        if !is_undivided || times.end <= next {
            add(times.start, partial, None);
            continue;
        }
        if !source.table.aggregated {
            // A point of a first step: finer ones that came before it are not shown besides it.
            let is_stored = source.stored.values.get(i).is_some_and(|value| !value.is_nan());
            beyond.extend(is_stored.then_some(next..times.end));
            add(times.start, partial, Some(next..times.end));
            continue;
        }
        let points = points_in(target, source.policy, all, times.clone());
        if (points.len() as u64) < u64::from(partial.count) {
            add(times.start, partial, Some(next..times.end));
            continue;
        }
        points.into_iter().for_each(|(time, value)| add(time, Partial::point(value), None));
    }
    fills.retain(|fill| 0 < fill.partial.count);
    for fill in &mut fills {
        fill.partial = converted(fill.partial, source.policy, target.policy, stage);
    }
    fills
}

#[cfg(test)]
mod tests {
    use metric::Aggregation;

    use super::*;

    #[test]
    fn a_slot_that_is_filled_from_an_outdated_one_is_outdated() {
        let policy = |retention: &str| Policy {
            retention: retention.parse().unwrap(),
            aggregation: Aggregation::Sum,
            ..Policy::default()
        };
        let (older, newer) = (policy("600*1s:360*10s"), policy("600*1s:60*60s"));
        let mut stored = Cells { values: vec![1.0; 18], counts: vec![10; 18], ..Cells::default() };
        [7, 15].into_iter().for_each(|place| stored.note_outdated(place));
        let (table, first_slot, filled) = (older.table(1), 0, Cells::default());
        let sources = [Source { policy: &older, table, first_slot, len: 18, stored, filled }];
        let target = Target {
            policy: &newer,
            table: newer.table(1),
            first_slot,
            len: 3,
            is_of_points: false,
            points_since: 0,
            is_of_one_step: true,
            points: &[],
        };
        // The last slot is stored.
        let mut cells = Cells { values: vec![f64::NAN, f64::NAN, 70.0], counts: vec![0, 0, 70], ..Cells::default() };
        fill(&target, &mut cells, sources.iter(), &sources, |_| false);
        assert_eq!((cells.values.clone(), cells.counts.clone()), (vec![6.0, 6.0, 70.0], vec![60, 60, 70]));
        assert_eq!([0, 1, 2].map(|place| cells.is_outdated(place)), [false, true, false]);
        assert!(cells.is_damaged);
    }

    #[test]
    fn a_slot_is_not_filled_from_a_part_of_its_finer_slots_where_others_may_be_damaged() {
        let policy = |retention: &str| Policy {
            retention: retention.parse().unwrap(),
            aggregation: Aggregation::Sum,
            ..Policy::default()
        };
        let (older, oldest, newer) = (policy("600*1s"), policy("900*2s"), policy("600*1s:120*10s"));
        let target = Target {
            policy: &newer,
            table: newer.table(1),
            first_slot: 0,
            len: 3,
            is_of_points: false,
            points_since: 0,
            is_of_one_step: false,
            points: &[],
        };
        let filled = |stored: Cells| {
            let source = |policy, len, stored| Source {
                policy,
                table: Policy::table(policy, 0),
                first_slot: 0,
                len,
                stored,
                filled: Cells::default(),
            };
            let other = Cells { values: vec![5.0; 15], ..Cells::default() };
            let sources = [source(&older, 30, stored), source(&oldest, 15, other)];
            let mut cells = Cells::default();
            fill(&target, &mut cells, sources.iter(), &sources, |_| false);
            (cells.values, cells.is_damaged)
        };
        let mut stored = Cells { values: vec![1.0; 30], ..Cells::default() };
        stored.values[3] = f64::NAN;
        stored.values[12] = f64::NAN;
        assert_eq!(filled(stored.clone()), (vec![9.0, 9.0, 10.0], false), "they have no points there");
        stored.note_doubt_at(10..20);
        let is_null = |(values, is_damaged): (Vec<f64>, bool)| {
            (values.iter().map(|value| value.is_nan()).collect::<Vec<_>>(), is_damaged)
        };
        assert_eq!(is_null(filled(stored.clone())), (vec![false, true, false], true));
        stored.note_unread_of(&Cells { is_damaged: true, ..Cells::default() });
        assert_eq!(is_null(filled(stored)), (vec![true, true, false], true), "which may be damaged is not known");
    }
}
