//! One writer's partials of the coarse slots that are still open: newer points extend them, and nothing is read.
//!
//! For each coarse stage this is the fold of the *closed* children of its open slot, the slot around the last stage-0
//! slot that is stored. In stage 1 the closed children are all its stored points, in stage k the slots of stage k−1 before
//! the open one. An extension adds the same numbers in the same order as [`crate::ReadPlan`] does.

use metric::{Aggregation, Partial, Policy, Slot};

use crate::{
    DerivedRow, SortedPoints, Stored,
    rollup::{CoarseStage, PendingSlot, SlotCoverage, rollup},
    rows,
};

/// The rows of one writer for one metric: how far they reach, and its partials of the open slots.
#[derive(Debug, Clone, PartialEq)]
pub struct WriterPartials {
    // Invariant: not `Unknown`.
    stored: Stored,
    // Invariant: one for each coarse stage; the stage of index k + 1 is at k. Of a policy with several methods, those of the
    // first method, then those of the next.
    closed: Vec<Partial>,
}

impl WriterPartials {
    /// The writer has no rows, in so many coarse tables ([`Policy::coarse_tables`]).
    pub fn nothing(coarse_tables: usize) -> WriterPartials {
        WriterPartials { stored: Stored::Nothing, closed: vec![Partial::NONE; coarse_tables] }
    }

    /// Those of one of several methods, by its place in the list, with so many coarse stages.
    pub fn of_rollup(&self, place: usize, coarse_stages: usize) -> WriterPartials {
        let closed = self.closed.iter().skip(place * coarse_stages).take(coarse_stages);
        WriterPartials { stored: self.stored, closed: closed.copied().collect() }
    }

    /// Those of several methods together, in their order. `None` where their rows do not reach equally far.
    pub fn of_all(rollups: Vec<WriterPartials>) -> Option<WriterPartials> {
        let stored = rollups.first()?.stored;
        let is_same = rollups.iter().all(|rollup| rollup.stored == stored);
        let closed = rollups.into_iter().flat_map(|rollup| rollup.closed).collect();
        is_same.then_some(WriterPartials { stored, closed })
    }

    /// The writer's rows reach through `last`, with none after it up to `horizon` (see [`Stored::Through`]).
    /// `closed` has an entry for each coarse stage, as [`WriterPartials::closed`].
    pub fn through(last: Slot, horizon: Option<Slot>, closed: Vec<Partial>) -> WriterPartials {
        WriterPartials { stored: Stored::Through { last, horizon }, closed }
    }

    /// How far this writer's rows reach.
    pub fn stored(&self) -> Stored {
        self.stored
    }

    /// For each coarse stage, the fold of the closed children of its open slot; of several methods, one method after the other.
    pub fn closed(&self) -> &[Partial] {
        &self.closed
    }

    /// For each coarse stage, this writer's row of the open slot.
    pub fn rows(&self, method: Aggregation) -> Vec<Partial> {
        let mut finer = Partial::NONE;
        let full = |&closed: &Partial| {
            finer = method.merge(closed, finer);
            finer
        };
        self.closed.iter().map(full).collect()
    }

    /// The partials after this writer's rows of the open slots are written as `rows`, which other writers have rows next to. `None` where the closed
    /// children cannot be separated from the rest.
    pub(crate) fn with_rows(self, rows: &[Partial], method: Aggregation) -> Option<WriterPartials> {
        // Others have rows there, and readers believe one of them: its value is right only where each flush compares all.
        if method == Aggregation::Last {
            return None;
        }
        let mut closed = Vec::with_capacity(rows.len());
        let mut finer = Partial::NONE;
        for &row in rows {
            // A correction of what others count: a value without a count, which no fold would keep.
            if row.count == 0 && !(row.value.is_nan() || row.value == 0.0) {
                return None;
            }
            let count = row.count.checked_sub(finer.count)?;
            let value = match method {
                Aggregation::Average | Aggregation::Sum | Aggregation::AvgZero if finer.count > 0 => {
                    row.value - finer.value
                }
                // An extreme may be folded in twice.
                _ => row.value,
            };
            closed.push(if count == 0 { Partial::NONE } else { Partial { value, count } });
            finer = row;
        }
        Some(WriterPartials { closed, ..self })
    }

    /// Whether `points` are all of stage 0 and come after everything stored.
    pub fn precedes(&self, points: &SortedPoints) -> bool {
        let ends = points.only_stage_0().and_then(|points| points.first().zip(points.last()));
        ends.zip(self.stored.end())
            .is_some_and(|((first, last), end)| end <= first.slot && self.stored.is_known_through(last.slot))
    }

    /// Continues with `points`, and returns the rows of every stage. The points must come after everything stored
    /// ([`WriterPartials::precedes`]).
    pub fn extend(&mut self, policy: &Policy, points: &SortedPoints) -> Vec<DerivedRow> {
        debug_assert!(self.precedes(points), "a stored point would count twice");
        let points = points.of_stage(0);
        let Some(newest_point) = points.last() else { return Vec::new() };
        let mut rows = Vec::new();
        rows::push_points(points, &mut rows);
        let mut children: Vec<(Slot, Partial)> =
            points.iter().map(|point| (point.slot, Partial::point(point.value))).collect();
        // The open slot of the stage below where it has no new point: from now on it is closed.
        let mut now_closed = Partial::NONE;
        for (index, closed) in (1..).zip(&mut self.closed) {
            let stage = CoarseStage::of(policy, index);
            let open = OpenSlot {
                slot: self.stored.last().map(|last| last / stage.points),
                closed: stage.method.merge(*closed, now_closed),
            };
            let mut of_stage = Vec::new();
            let newest = extend_stage(&stage, open, &children, &mut of_stage);
            now_closed = match of_stage.first() {
                Some(&(first, _)) if open.slot == Some(first) => Partial::NONE,
                _ => open.closed,
            };
            // A point is closed when it arrives; the last child of a coarser stage is still open.
            *closed = if index == 1 { newest.all } else { newest.closed };
            rows::push_partials(index, &of_stage, &mut rows);
            children = of_stage;
        }
        let horizon = if let Stored::Through { horizon, .. } = self.stored { horizon } else { None };
        self.stored = Stored::Through { last: newest_point.slot, horizon };
        rows
    }
}

/// The slot of a coarse stage around the last slot that is stored.
#[derive(Debug, Clone, Copy)]
struct OpenSlot {
    /// `None` before the first.
    slot: Option<Slot>,
    closed: Partial,
}

/// The last slot that was extended.
#[derive(Debug, Clone, Copy)]
struct Newest {
    /// All children but the last.
    closed: Partial,
    all: Partial,
}

/// Rolls up each slot that has children; a child in the open slot continues it.
fn extend_stage(
    stage: &CoarseStage,
    open: OpenSlot,
    children: &[(Slot, Partial)],
    rows: &mut Vec<(Slot, Partial)>,
) -> Newest {
    let mut newest = Newest { closed: open.closed, all: open.closed };
    let mut rest = children;
    while let Some(&(first, _)) = rest.first() {
        let slot = first / stage.children;
        let first_child = slot * stage.children;
        let len = rest.iter().take_while(|(child, _)| child - first_child < stage.children).count();
        let (in_slot, others) = rest.split_at(len);
        let (before_last, last) = in_slot.split_at(len - 1);
        let earlier = if open.slot == Some(slot) { open.closed } else { Partial::NONE };
        let fold = |earlier, children: &[(Slot, Partial)]| {
            let children = children.iter().map(|&(_, child)| child);
            rollup(stage, children, PendingSlot::default(), SlotCoverage::After(earlier)).unwrap_or(earlier)
        };
        let closed = fold(earlier, before_last);
        newest = Newest { closed, all: fold(closed, last) };
        rows.push((slot, newest.all));
        rest = others;
    }
    newest
}
