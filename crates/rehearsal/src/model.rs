//! The naive model: every point in a map, every coarse slot computed from all finer ones when it is asked for.
//!
//! The rule is that of `tests/e2e/naive.py`: within a slot of stage 0 the last write wins; a coarse slot is an aggregate of
//! the slots of stage 0; a point too old for stage 0 is written to the finest stage that still holds its time, and stands
//! there for a whole slot; xFilesFactor applies when reading.
//!
//! The model also knows what was promised of each point: it was sent, acknowledged, or is durable.

use std::collections::{BTreeMap, BTreeSet};

use host::Now;
use metric::{Aggregation, Partial, Policy, Timestamp};

use crate::{first_steps::FirstSteps, same::is_same};

/// Most combinations of uncertain slots that a check compares with one coarse slot, and where findings name some of them.
const MOST_COMBINATIONS: usize = 64;
const MOST_REPORTED: usize = 4096;

/// What a node has promised of a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Floor {
    /// It was sent. It may be served or not.
    Sent,
    /// It was acknowledged. The death of the process does not lose it.
    Acknowledged,
    /// The failure of the machine does not lose it.
    Durable,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    value: f64,
    /// Points of one rank came at the same time; any of them may be the last.
    rank: u64,
    floor: Floor,
}

type Slots = BTreeMap<Timestamp, Vec<Entry>>;

/// A metric as it should be.
#[derive(Debug, Clone)]
pub struct Metric {
    pub(crate) policy: Policy,
    /// Of each stage, the slots that points were written to.
    written: Vec<Slots>,
    /// Whether it was kept by another policy before. Values of the older policy's coarse stages then fill empty slots, at
    /// their own time.
    pub(crate) has_changed: bool,
    /// The policies before, as far as a change may not be on the disk: a power cut may bring one back.
    earlier: Vec<Policy>,
    /// A policy that it may have got meanwhile.
    perhaps: Option<Policy>,
    /// Whether the calendar was set back or forward since there are points of it, and a time may come twice.
    pub(crate) has_jumped: bool,
    /// Slots with a point that was perhaps in pages of the journal that could not be read: by stage and slot, the last rank
    /// that is stored for certain, and the last that was perhaps missed. A slot with a value keeps it when points are put
    /// back.
    missed: BTreeMap<(usize, Timestamp), (u64, u64)>,
    /// Slots, by stage, that had expired when their points could be read: a finding says that coarser slots may lack them.
    pub(crate) left_out: BTreeSet<(usize, Timestamp)>,
    /// Every value that was sent to a slot of stage 0.
    history: BTreeMap<Timestamp, Vec<f64>>,
    /// Where its policies may have several first steps, what its slots may show.
    pub(crate) first_steps: Option<FirstSteps>,
}

/// Where a point went: metric, stage, slot, rank.
#[derive(Debug, Clone)]
pub(crate) struct Ticket {
    name: String,
    stage: usize,
    slot: Timestamp,
    rank: u64,
}

/// Everything that was sent, by metric, and the events.
#[derive(Debug, Clone, Default)]
pub struct Model {
    pub(crate) metrics: BTreeMap<String, Metric>,
    pub(crate) events: BTreeMap<String, Floor>,
    /// Names that were deleted and not sent again.
    pub(crate) deleted: BTreeSet<String>,
    /// The latest time by which stored points expired.
    pub(crate) expired: Timestamp,
    /// Slots of answers that were compared so far.
    pub(crate) compared: u64,
    /// Whether it is of a backup that lacks parts of files: coarse slots may lack points, or have those that finer slots lack.
    pub(crate) has_losses: bool,
    /// Whether policies may have several first steps.
    pub(crate) has_first_steps: bool,
    rank: u64,
    /// Points up to this rank are stored: no journal has them.
    stored: u64,
}

impl Model {
    /// Begins a group of points that come at the same time.
    pub(crate) fn next_rank(&mut self) {
        // Even; see `Metric::settle`.
        self.rank += 2;
        self.first_steps().for_each(FirstSteps::give_up);
    }

    /// A point is sent. `None` where no stage holds its time.
    pub(crate) fn send(
        &mut self,
        policy: &Policy,
        now: Now,
        (name, time, value): (&str, Timestamp, f64),
    ) -> Option<Ticket> {
        let stage = policy.retention.stage_holding(time, now.low())?;
        let longest = policy.retention.stages().last().expect("a retention has a stage").duration();
        if longest < time - now.high() {
            return None;
        }
        let slot = time - time.rem_euclid(i64::from(policy.retention.stages()[stage].resolution()));
        let stages = policy.retention.stages().len();
        self.deleted.remove(name);
        let has_first_steps = self.has_first_steps;
        let metric = self.metrics.entry(name.to_owned()).or_insert_with(|| Metric {
            first_steps: has_first_steps.then(|| FirstSteps::of(policy)),
            policy: policy.clone(),
            written: vec![Slots::new(); stages],
            has_changed: false,
            earlier: Vec::new(),
            perhaps: None,
            has_jumped: false,
            missed: BTreeMap::new(),
            left_out: BTreeSet::new(),
            history: BTreeMap::new(),
        });
        let entry = Entry { value, rank: self.rank, floor: Floor::Sent };
        metric.written[stage].entry(slot).or_default().push(entry);
        if stage == 0 {
            metric.history.entry(slot).or_default().push(value);
        }
        if let Some(steps) = &mut metric.first_steps {
            steps.send(time, value);
        }
        Some(Ticket { name: name.to_owned(), stage, slot, rank: self.rank })
    }

    /// These points are acknowledged.
    pub(crate) fn acknowledge(&mut self, tickets: &[Ticket], floor: Floor) {
        self.first_steps().for_each(FirstSteps::acknowledge);
        for ticket in tickets {
            let Some(metric) = self.metrics.get_mut(&ticket.name) else { continue };
            let Some(entries) = metric.written[ticket.stage].get_mut(&ticket.slot) else { continue };
            for entry in entries.iter_mut().filter(|entry| entry.rank == ticket.rank) {
                entry.floor = entry.floor.max(floor);
            }
        }
    }

    /// A user deletes a metric. Where `is_certain` is false, it may be there or not, and have any of its points.
    pub(crate) fn delete(&mut self, name: &str, is_certain: bool) {
        if is_certain && self.metrics.remove(name).is_some() {
            self.deleted.insert(name.to_owned());
        } else if let Some(metric) = self.metrics.get_mut(name) {
            metric
                .written
                .iter_mut()
                .flat_map(|slots| slots.values_mut().flatten())
                .for_each(|e| e.floor = Floor::Sent);
            metric.first_steps.iter_mut().for_each(FirstSteps::forget);
        }
    }

    /// Everything that is acknowledged is durable.
    pub(crate) fn sync(&mut self) {
        self.metrics.values_mut().for_each(|metric| metric.earlier.clear());
        for entry in self.entries() {
            if entry.floor == Floor::Acknowledged {
                entry.floor = Floor::Durable;
            }
        }
        for floor in self.events.values_mut().filter(|floor| **floor == Floor::Acknowledged) {
            *floor = Floor::Durable;
        }
    }

    /// Everything so far is stored, and the journal is deleted behind it.
    pub(crate) fn store(&mut self) {
        self.sync();
        self.stored = self.rank + 1;
    }

    /// A start went on without pages of the journal. Of points that replaced others, these may stay; of one for a whole coarse slot,
    /// what the finer ones under it make.
    pub(crate) fn miss(&mut self) {
        let (stored, last) = (self.stored, self.rank + 1);
        for metric in self.metrics.values_mut() {
            let Metric { written, missed, policy, .. } = metric;
            for (stage, slots) in written.iter().enumerate() {
                let step = i64::from(policy.retention.stages()[stage].resolution());
                let has_finer =
                    |slot| written[..stage].iter().any(|finer| finer.range(slot..slot + step).next().is_some());
                let is_replaced = |slot, entries: &[Entry]| {
                    (1 < entries.len() || has_finer(slot)) && entries.iter().any(|entry| stored < entry.rank)
                };
                for (&slot, _) in slots.iter().filter(|(slot, entries)| is_replaced(**slot, entries)) {
                    missed.entry((stage, slot)).or_insert((stored, last)).1 = last;
                }
            }
        }
    }

    /// The calendar was set.
    pub(crate) fn jump(&mut self) {
        self.metrics.values_mut().for_each(|metric| metric.has_jumped = true);
    }

    /// The model of a backup that is made now: what was acknowledged is in it, and on the disk.
    pub(crate) fn backed_up(&self) -> Model {
        let mut model = self.clone();
        model.sync();
        model
    }

    /// Nothing is certain: a backup was made of files that could not be read whole.
    pub(crate) fn forget(&mut self) {
        self.has_losses = true;
        self.entries().for_each(|entry| entry.floor = Floor::Sent);
        self.first_steps().for_each(FirstSteps::forget);
        self.events.values_mut().for_each(|floor| *floor = Floor::Sent);
    }

    /// A backup takes the place of everything.
    pub(crate) fn restore(&mut self, backup: &Model) {
        let (rank, compared) = (self.rank, self.compared);
        *self = backup.clone();
        (self.rank, self.compared) = (rank, compared);
    }

    /// The power has failed, and a reader has seen what is left: of what it did not see, only what is durable is certain.
    pub(crate) fn forget_unsynced(&mut self) {
        self.entries().filter(|entry| entry.floor < Floor::Durable).for_each(|entry| entry.floor = Floor::Sent);
    }

    /// Stored points have expired by this time. Where the clock goes back later, they may be seen again or not.
    pub(crate) fn expire(&mut self, now: Timestamp) {
        self.expired = self.expired.max(now);
    }

    fn entries(&mut self) -> impl Iterator<Item = &mut Entry> {
        let metrics = self.metrics.values_mut().flat_map(|metric| &mut metric.written);
        metrics.flat_map(|slots| slots.values_mut().flatten())
    }

    /// The rules may have given a metric another policy, or will.
    pub(crate) fn may_get(&mut self, name: &str, policy: Option<Policy>) {
        if let Some(metric) = self.metrics.get_mut(name) {
            metric.perhaps = policy;
        }
    }

    /// The names of all metrics.
    pub(crate) fn names(&self) -> Vec<String> {
        self.metrics.keys().cloned().collect()
    }

    /// The rules give a metric another policy. Its finest step stays; what was written to coarse stages stays where the
    /// step is the same.
    pub(crate) fn set_policies(&mut self, policy_of: impl Fn(&str) -> Option<Policy>) {
        for (name, metric) in &mut self.metrics {
            let Some(policy) = policy_of(name) else { continue };
            metric.written.resize(policy.retention.stages().len(), Slots::new());
            metric.has_changed |= !metric.policy.is_same(&policy);
            if let Some(steps) = &mut metric.first_steps {
                steps.set_policy(&policy);
            }
            metric.perhaps = None;
            if !metric.policy.is_same(&policy) {
                metric.earlier.push(metric.policy.clone());
            }
            metric.policy = policy;
        }
    }

    fn first_steps(&mut self) -> impl Iterator<Item = &mut FirstSteps> {
        self.metrics.values_mut().filter_map(|metric| metric.first_steps.as_mut())
    }
}

/// The values that a slot may have; `None` is absent.
pub(crate) type Possible = Vec<Option<Partial>>;

impl Metric {
    /// Takes over a policy that it may have got meanwhile. Returns whether this is it.
    pub(crate) fn take_perhaps(&mut self, found: &Policy) -> bool {
        let Some(policy) = self.perhaps.take_if(|policy| policy.is_same(found)) else { return false };
        self.written.resize(policy.retention.stages().len(), Slots::new());
        (self.policy, self.has_changed) = (policy, true);
        true
    }

    /// A power cut may have taken a change of the policy with it. Returns whether this is one of those before.
    pub(crate) fn take_earlier(&mut self, found: &Policy) -> bool {
        let Some(place) = self.earlier.iter().position(|policy| policy.is_same(found)) else { return false };
        self.policy = self.earlier[place].clone();
        self.earlier.truncate(place);
        self.written.resize(self.policy.retention.stages().len(), Slots::new());
        true
    }

    pub(crate) fn method(&self) -> Aggregation {
        self.policy.aggregation
    }

    /// Whether some point of it is certain.
    pub(crate) fn is_certain(&self, floor: Floor) -> bool {
        self.written.iter().flat_map(|slots| slots.values().flatten()).any(|entry| entry.floor >= floor)
    }

    /// Every value that was sent to a slot of stage 0, oldest first.
    pub(crate) fn sent_to(&self, slot: Timestamp) -> &[f64] {
        self.history.get(&slot).map_or(&[], |values| values)
    }

    /// Whether a value was ever sent to a slot of stage 0 and not replaced with certainty.
    pub(crate) fn was_sent(&self, slot: Timestamp, value: f64) -> bool {
        let history = self.history.get(&slot);
        history.is_some_and(|values| values.iter().any(|&sent| is_same(sent, value)))
    }

    /// Whether no point was ever written to a slot, or to one of the finer slots under it.
    pub(crate) fn is_untouched(&self, stage: usize, slot: Timestamp) -> bool {
        let step = i64::from(self.policy.retention.stages()[stage].resolution());
        self.written[..=stage].iter().all(|slots| slots.range(slot..slot + step).next().is_none())
    }

    /// The values that a slot may have when points below `floor` may be lost. Empty when there are too many.
    pub(crate) fn possible(&self, stage: usize, slot: Timestamp, floor: Floor) -> Possible {
        let entries = self.written[stage].get(&slot).map_or(&[][..], |entries| entries);
        let certain = self.certain(stage, slot, floor).filter(|_| !self.left_out.contains(&(stage, slot)));
        let whole = self.expected(stage);
        let may_be = entries.iter().filter(|entry| certain.is_none_or(|rank| entry.rank >= rank));
        let may_be = may_be.map(|entry| {
            Some(if stage == 0 { Partial::point(entry.value) } else { self.method().whole(entry.value, whole) })
        });
        let mut possible: Possible = may_be.collect();
        if self.left_out.contains(&(stage, slot)) {
            possible.push(None);
            if 0 < stage {
                possible.extend(self.made(stage, slot, floor));
            }
            return possible;
        }
        if let Some(certain) = certain {
            let Some(with_late) = self.with_late(stage, slot, certain, &possible) else { return Vec::new() };
            possible.extend(with_late);
            let has_finer_since =
                self.has_finer_since(stage, slot, certain) || self.may_have_kept_finer(stage, slot, certain);
            if !has_finer_since && !self.may_be_full(stage, slot) {
                return possible;
            }
            // As many finer points as the slot has room for: their fold counts no fewer than the point of the whole slot.
            let made = self.made(stage, slot, floor);
            let is_full = |partial: &Partial| whole <= partial.count;
            let may_be = |partial: &&Option<Partial>| has_finer_since || partial.as_ref().is_some_and(is_full);
            possible.extend(made.iter().filter(may_be));
            return if made.is_empty() { made } else { possible };
        }
        if stage == 0 {
            possible.push(None);
            return possible;
        }
        // Each of them may be there, with any of the finer ones that came after it.
        for entry in entries {
            let one = vec![Some(self.method().whole(entry.value, whole))];
            let Some(with_late) = self.with_late(stage, slot, entry.rank, &one) else { return Vec::new() };
            possible.extend(with_late);
        }
        let made = self.made(stage, slot, floor);
        if made.is_empty() {
            return made;
        }
        possible.extend(made);
        possible
    }

    /// The rank of the oldest point that a slot may have, where it has one for certain.
    fn certain(&self, stage: usize, slot: Timestamp, floor: Floor) -> Option<u64> {
        let ranks = || {
            let entries = self.written[stage].get(&slot).into_iter().flatten();
            entries.filter(|entry| floor <= entry.floor).map(|entry| entry.rank)
        };
        let certain = ranks().max()?;
        match self.missed.get(&(stage, slot)) {
            Some((stored, last)) if *stored < certain && certain <= *last => {
                ranks().filter(|rank| rank <= stored).max().or_else(|| ranks().min())
            }
            _ => Some(certain),
        }
    }

    /// Whether all points for a whole coarse slot were perhaps in pages that could not be read: it keeps what finer ones make then.
    fn may_have_kept_finer(&self, stage: usize, slot: Timestamp, certain: u64) -> bool {
        let missed = self.missed.get(&(stage, slot));
        0 < stage && missed.is_some_and(|(stored, last)| *stored < certain && certain <= *last)
    }

    /// Whether every slot of stage 0 under a coarse slot may have a point.
    fn may_be_full(&self, stage: usize, slot: Timestamp) -> bool {
        let step = i64::from(self.policy.retention.stages()[stage].resolution());
        stage > 0 && self.written[0].range(slot..slot + step).count() as u32 >= self.expected(stage)
    }

    /// Whether finer points of a coarse slot came after one that stands for the whole of it. That takes a calendar that was
    /// set back; the node then has either.
    fn has_finer_since(&self, stage: usize, slot: Timestamp, rank: u64) -> bool {
        let step = i64::from(self.policy.retention.stages()[stage].resolution());
        let finer = self.written[..stage].iter().flat_map(|slots| slots.range(slot..slot + step));
        self.has_jumped && finer.flat_map(|(_, entries)| entries).any(|entry| rank < entry.rank)
    }

    /// What a point for a whole coarse slot may show with finer ones that came after it: under a later policy, whose first stage is
    /// longer, they are added to it. Each may be there or not: a death between the two leaves either. `None` where that is too much.
    fn with_late(&self, stage: usize, slot: Timestamp, certain: u64, whole: &Possible) -> Option<Possible> {
        let (stages, method) = (self.policy.retention.stages(), self.method());
        let end = slot + i64::from(stages[stage].resolution());
        let finer = self.written[..stage]
            .iter()
            .enumerate()
            .flat_map(|(index, slots)| slots.range(slot..end).map(move |(time, entries)| (*time, index, entries)));
        let mut late: Vec<_> = finer.filter(|(.., entries)| entries.iter().any(|entry| certain < entry.rank)).collect();
        if !self.has_changed || late.is_empty() {
            return Some(Vec::new());
        }
        late.sort_by_key(|(time, ..)| *time);
        let is_sum = matches!(method, Aggregation::Average | Aggregation::Sum | Aggregation::AvgZero);
        let mut possible = whole.clone();
        for (_, index, entries) in late {
            let of = |entry: &Entry| match index {
                0 => Partial::point(entry.value),
                _ => method.whole(entry.value, self.expected(index)),
            };
            let mut with = Vec::new();
            for entry in entries.iter().filter(|entry| certain < entry.rank) {
                let added = |all: &Option<Partial>| all.map(|all| method.merge(all, of(entry)));
                with.extend(possible.iter().map(added));
                // It takes the place of one that is there.
                let before = entries.iter().filter(|before| is_sum && before.rank < entry.rank);
                with.extend(before.flat_map(|before| {
                    let change = of(entry).value - of(before).value;
                    possible.iter().map(move |all| all.map(|all| Partial { value: all.value + change, ..all }))
                }));
            }
            possible.extend(with);
            if MOST_COMBINATIONS < possible.len() {
                return None;
            }
        }
        Some(possible)
    }

    /// The values that a coarse slot may have, made of the finer slots under it.
    fn made(&self, stage: usize, slot: Timestamp, floor: Floor) -> Possible {
        let stages = self.policy.retention.stages();
        let step = i64::from(stages[stage].resolution());
        if self.written[..stage].iter().all(|slots| slots.range(slot..slot + step).next().is_none()) {
            return vec![None];
        }
        let (step, finer) = (i64::from(stages[stage].resolution()), i64::from(stages[stage - 1].resolution()));
        let mut possible: Possible = vec![None];
        let most = if self.left_out.is_empty() { MOST_COMBINATIONS } else { MOST_REPORTED };
        for child in (slot..slot + step).step_by(finer as usize) {
            let children = self.possible(stage - 1, child, floor);
            if children.is_empty() || possible.len() * children.len() > most {
                return Vec::new();
            }
            let both = |earlier: Option<Partial>, later: Option<Partial>| match (earlier, later) {
                (Some(earlier), Some(later)) => Some(self.method().merge(earlier, later)),
                (earlier, later) => earlier.or(later),
            };
            possible =
                children.iter().flat_map(|&later| possible.iter().map(move |&earlier| both(earlier, later))).collect();
            let mut seen = BTreeSet::new();
            possible.retain(|partial| seen.insert(partial.map(|partial| (partial.value.to_bits(), partial.count))));
        }
        possible
    }

    /// Slots of stage 0 under a slot.
    fn expected(&self, stage: usize) -> u32 {
        let stages = self.policy.retention.stages();
        stages[stage].resolution() / stages[0].resolution()
    }

    /// The value that a reader sees.
    pub(crate) fn shown(&self, stage: usize, partial: Option<Partial>) -> f64 {
        match partial {
            None => f64::NAN,
            Some(partial) if stage == 0 => partial.value,
            Some(partial) => self.method().finish(partial, self.expected(stage), self.policy.x_files_factor),
        }
    }

    /// A reader has seen this value: what was uncertain is certain now.
    pub(crate) fn settle(&mut self, stage: usize, slot: Timestamp, seen: f64, floor: Floor) {
        let method = self.method();
        let (whole, x_files_factor) = (self.expected(stage), self.policy.x_files_factor);
        self.missed.remove(&(stage, slot));
        let may_have_late = self.may_have_late(stage, slot);
        let Some(entries) = self.written[stage].get_mut(&slot) else { return };
        let shown = |entry: &Entry| match stage {
            0 => entry.value,
            _ => method.finish(method.whole(entry.value, whole), whole, x_files_factor),
        };
        let last = entries.iter().rev().find(|entry| is_same(shown(entry), seen)).copied();
        match last {
            // What a power cut left is on the disk. Older ones may be in pages of the journal that can be read when its cannot.
            Some(entry) if floor == Floor::Durable => {
                entries.retain(|other| other.rank < entry.rank);
                entries.push(Entry { floor, ..entry });
            }
            Some(entry) => {
                // A power cut may still bring an older one back, also one that came at the same time and was journalled before.
                let is_other = |other: &Entry| other.rank == entry.rank && !is_same(other.value, entry.value);
                entries.retain(|other| other.rank < entry.rank || is_other(other));
                entries.push(Entry { floor: entry.floor.max(floor), rank: entry.rank | 1, ..entry });
            }
            // With finer points that came late: which of them are there is not settled by one value.
            None if may_have_late => {}
            None => _ = self.written[stage].remove(&slot),
        }
    }

    /// Whether finer points may have come after one for the whole of a coarse slot, and are added to it.
    fn may_have_late(&self, stage: usize, slot: Timestamp) -> bool {
        let end = slot + i64::from(self.policy.retention.stages()[stage].resolution());
        let first = self.written[stage].get(&slot).and_then(|entries| entries.iter().map(|entry| entry.rank).min());
        let finer = self.written[..stage].iter().flat_map(|slots| slots.range(slot..end));
        let mut finer = finer.flat_map(|(_, entries)| entries);
        self.has_changed && first.is_some_and(|first| finer.any(|entry| first < entry.rank))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seed 51061: the page with a point for a whole slot could not be read at a start, and finer points had made the slot since.
    #[test]
    fn a_slot_whose_point_was_missed_may_keep_what_finer_ones_make() {
        let (base, mut model) = (1_800_000_000, Model::default());
        let (retention, aggregation) = ("60*1s:60*10s".parse().unwrap(), Aggregation::AbsMax);
        let policy = Policy { retention, aggregation, x_files_factor: 0.0, ..Policy::default() };
        let send = |model: &mut Model, now: Timestamp, value: f64| {
            model.next_rank();
            let ticket = model.send(&policy, Now::at(now), ("m", base, value)).unwrap();
            model.acknowledge(&[ticket], Floor::Acknowledged);
        };
        send(&mut model, base, 33.0);
        send(&mut model, base + 70, 26.0);
        let shown = |model: &Model| {
            let metric = &model.metrics["m"];
            let possible = metric.possible(1, base, Floor::Acknowledged);
            possible.into_iter().map(|partial| metric.shown(1, partial)).collect::<Vec<_>>()
        };
        assert_eq!(shown(&model), [26.0]);
        model.miss();
        assert_eq!(shown(&model), [26.0, 33.0]);
        model.metrics.get_mut("m").unwrap().settle(1, base, 26.0, Floor::Acknowledged);
        assert_eq!(shown(&model), [26.0], "a reader has seen it");
    }
}
