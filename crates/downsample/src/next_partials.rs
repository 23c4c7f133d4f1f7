//! A derivation for a writer: the rows, and this writer's partials once they are written.

use std::ops::Range;

use metric::{Aggregation, Partial, Policy, ROW_POINTS, Retention, Slot, Timestamp};

use crate::{
    Coverage, DerivedRow, Need, Places, ReadPlan, SortedPoints, Stored, WriterPartials, derive::DerivedStage,
    rollup::CoarseStage,
};

/// The rows of every stage, and what this writer has stored once they are written.
#[derive(Debug)]
pub struct DerivedRows {
    /// The rows of every stage.
    pub rows: Vec<DerivedRow>,
    /// `None` where stored points may come after these, or where a slot was not made from its children.
    pub next: Option<NextPartials>,
    /// Coarse slots that stay as they are stored because finer slots under them are damaged.
    pub doubtful: usize,
}

/// A derivation of every stage for a writer.
#[derive(Debug)]
pub struct WritePlan<'a> {
    plan: ReadPlan<'a>,
    before: Option<&'a WriterPartials>,
    /// The slots after all others, where it is not known whether they are empty.
    later: Option<Need>,
    is_later_damaged: bool,
}

/// This writer's partials once the rows of a derivation are written.
#[derive(Debug)]
pub struct NextPartials {
    partials: WriterPartials,
    /// For each coarse stage, its open slot.
    open: Vec<OpenRow>,
    method: Aggregation,
}

#[derive(Debug, Clone, Copy)]
struct OpenRow {
    /// The total of the open slot.
    all: Partial,
    /// Whether the derivation has a row of it.
    has_row: bool,
}

impl<'a> WritePlan<'a> {
    /// Plans every stage. `before` is this writer's partials before the write. Without them, or with points after
    /// their horizon, the plan also asks whether anything is stored after the points.
    pub fn new(
        policy: &'a Policy,
        points: &'a SortedPoints,
        coverage: Coverage,
        before: Option<&'a WriterPartials>,
    ) -> WritePlan<'a> {
        let coarsest = policy.retention.stages().len() - 1;
        let plan = ReadPlan::new(policy, points, coverage, coarsest);
        let last = points.last(&policy.retention);
        let is_known = before.is_some_and(|before| last.is_none_or(|last| before.stored().is_known_through(last)));
        // To the end of the partition: one more slot range to read now, and one more read for each partition.
        let later = plan.stages[coarsest].touched.last().filter(|_| coarsest > 0 && !is_known).and_then(|&last| {
            let first = last.saturating_add(1);
            let slots = first..(first / ROW_POINTS + 1).saturating_mul(ROW_POINTS);
            (!slots.is_empty()).then_some(Need { stage: coarsest, slots })
        });
        WritePlan { plan, before, later, is_later_damaged: false }
    }

    /// The stored slots that [`WritePlan::derive`] must be given, in this order.
    pub fn needs(&self) -> impl Iterator<Item = &Need> {
        self.plan.needs().iter().chain(&self.later)
    }

    /// Slots that a derivation keeps in memory at once.
    pub fn cells(&self) -> usize {
        self.plan.cells() + self.later.iter().map(|later| later.slots.len()).sum::<usize>()
    }

    /// As [`ReadPlan::note_damage`].
    pub fn note_damage(&mut self, need: usize, places: Option<Places<'_>>) {
        if need < self.plan.needs().len() {
            self.plan.note_damage(need, places);
        } else {
            self.is_later_damaged = true;
        }
    }

    /// As [`ReadPlan::note_outdated`].
    pub fn note_outdated(&mut self, need: usize, places: &[Range<u32>]) {
        if need < self.plan.needs().len() {
            self.plan.note_outdated(need, places);
        }
    }

    /// As [`ReadPlan::note_latest`].
    pub fn note_latest(&mut self, need: usize, place: u32, time: Timestamp) {
        if need < self.plan.needs().len() {
            self.plan.note_latest(need, place, time);
        }
    }

    /// The rows, and this writer's partials once they are written. `stored` as for [`ReadPlan::derive`].
    pub fn derive(&self, stored: &[(&[f64], &[u32])]) -> DerivedRows {
        let (of_plan, of_later) = stored.split_at(self.plan.needs().len());
        let stages = self.plan.derive_stages(of_plan);
        let doubtful = stages.iter().map(|stage| stage.doubtful.len()).sum();
        let is_later_empty =
            !self.is_later_damaged && of_later.iter().all(|(values, _)| values.iter().all(|value| value.is_nan()));
        let next = if is_later_empty { self.next_partials(&stages) } else { None };
        DerivedRows { rows: self.plan.rows(&stages), next, doubtful }
    }

    /// This writer's partials once the rows of `stages` are written, if nothing is stored after the points.
    fn next_partials(&self, stages: &[DerivedStage]) -> Option<NextPartials> {
        let (retention, method) = (&self.plan.policy.retention, self.plan.policy.aggregation);
        let before = self.before.map(WriterPartials::stored);
        let last = self.plan.points.last(retention).max(before.and_then(Stored::last))?;
        // A slot that was written directly has a value, but no closed children to go on from.
        if self.plan.points.has_coarse_point_around(last, retention) {
            return None;
        }
        let is_known = before.is_some() && self.later.is_none();
        let coarse = retention.stages().len() - 1;
        let nothing = || vec![Partial::NONE; coarse];
        let closed_before = self.before.map_or_else(nothing, |before| before.closed().to_vec());
        let rows_before = self.before.map_or_else(nothing, |before| before.rows(method));
        let (mut closed, mut open) = (Vec::with_capacity(coarse), Vec::with_capacity(coarse));
        for index in 1..=coarse {
            let stage = CoarseStage::of(self.plan.policy, index);
            let open_slot = last / stage.points;
            let open_child = last / (stage.points / stage.children);
            let is_kept = stages[index].kept.binary_search(&open_slot).is_ok();
            let has_later = || stages[index].has_later(open_slot) || stages[index - 1].has_later(open_child);
            if is_kept || !is_known && has_later() {
                return None;
            }
            if self.plan.stages[index].touched.binary_search(&open_slot).is_err() {
                // Nothing under it has changed, nor in the open slots within it.
                closed.push(closed_before[index - 1]);
                open.push(OpenRow { all: rows_before[index - 1], has_row: false });
                continue;
            }
            let all = stages[index].get(open_slot).unwrap_or(Partial::NONE);
            let children = (open_slot * stage.children..open_child).filter_map(|slot| stages[index - 1].get(slot));
            // Points are closed as they come.
            let of_children = || children.fold(Partial::NONE, |all, child| method.merge(all, child));
            closed.push(if index == 1 { all } else { of_children() });
            open.push(OpenRow { all, has_row: true });
        }
        let partials = WriterPartials::through(last, self.horizon(before), closed);
        Some(NextPartials { partials, open, method })
    }

    /// Up to where nothing is stored after the points.
    fn horizon(&self, before: Option<Stored>) -> Option<Slot> {
        match (&self.later, before) {
            (Some(later), _) => {
                let stage = CoarseStage::of(self.plan.policy, later.stage);
                later.slots.end.checked_mul(stage.points)
            }
            (None, Some(Stored::Through { horizon, .. })) => horizon,
            (None, Some(Stored::Nothing)) => None,
            // Without coarse stages nothing was asked.
            (None, None | Some(Stored::Unknown)) => Some(0),
        }
    }
}

impl NextPartials {
    /// The partials after the rows are written as they were derived.
    pub fn as_derived(&self) -> &WriterPartials {
        &self.partials
    }

    /// The open slots that have a row: stage and slot.
    pub fn open_slots<'a>(&'a self, retention: &'a Retention) -> impl Iterator<Item = (usize, Slot)> + 'a {
        let finest = retention.finest().resolution();
        let last = self.partials.stored().last().unwrap_or_default();
        let coarse = self.open.iter().zip(retention.stages().iter().skip(1)).enumerate();
        let with_row = coarse.filter(|(_, (open, _))| open.has_row);
        with_row.map(move |(index, (_, stage))| (index + 1, last / (stage.resolution() / finest)))
    }

    /// The partials after the rows of the open slots are written as `rows`, in the order of
    /// [`NextPartials::open_slots`]. `None` where they cannot be continued.
    pub fn with_rows(self, rows: impl Iterator<Item = Partial>) -> Option<WriterPartials> {
        let mut open = self.open;
        let mut is_as_derived = true;
        for (open, row) in open.iter_mut().filter(|open| open.has_row).zip(rows) {
            is_as_derived &= open.all.count == row.count && open.all.value.to_bits() == row.value.to_bits();
            open.all = row;
        }
        if is_as_derived {
            return Some(self.partials);
        }
        let rows: Vec<Partial> = open.into_iter().map(|open| open.all).collect();
        self.partials.with_rows(&rows, self.method)
    }
}
