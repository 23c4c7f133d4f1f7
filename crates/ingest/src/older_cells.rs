//! What other policies of a metric stored, in the slots of one of them.
//!
//! A coarse slot over a change of policy is made of the points of both. Where a policy's table has no slot, the slot is
//! what the policy before it showed for that time:
//!
//! 1. A slot that the older policy keeps in as coarse or in finer steps is the fold of them, by the older policy's method.
//! 2. A point of a coarser first stage is a point at its own time.

use std::{collections::HashSet, ops::Range, sync::Arc};

use metadata::PolicyHistory;
use metric::{Policy, Slot, Table, Timestamp};
use store::{Cells, Fetch, PointStore, StoreError};

use crate::{
    coming_rows::ComingRows,
    older_fill::{Source, Target, fill, fill_sources},
    policy_table::{PolicyTable, Rollup},
    shared_rows::{SharedRows, has_table},
};

/// Slots of older policies that are read at once. One slot of a coarse stage may have more under it.
const STEP_SLOTS: usize = 256 << 10;

/// Points may come this many seconds after a change of policy under the older one, whose clock was ahead.
const AHEAD: i64 = 3600;

/// A metric's policy, and others that it has or had.
pub(crate) struct OlderPolicies {
    policy: Arc<Policy>,
    /// The latest first, each once.
    older: Vec<Older>,
    rows: Arc<SharedRows>,
    /// The rollup that all of this is of.
    rollup: Rollup,
    /// Whether the policy's own slots are left out: only what the others show is asked for.
    is_apart: bool,
    /// See [`Target::is_of_points`].
    is_of_points: bool,
    /// See [`Target::points_since`].
    points_since: Timestamp,
    /// See [`Target::is_of_one_step`].
    is_of_one_step: bool,
}

/// A policy that a metric had.
#[derive(Clone)]
struct Older {
    policy: Arc<Policy>,
    /// The times that its points can have.
    times: Range<Timestamp>,
}

/// Slots of an older policy's stage, to be read.
struct ToRead {
    policy: usize,
    stage: usize,
    slots: Range<Slot>,
}

/// A part of a fetch whose absent slots are filled.
struct Part {
    fetch: usize,
    slots: Range<Slot>,
}

impl OlderPolicies {
    /// The policies before the one with this id, which may itself be an earlier one, at `now`: how far the store has come. `None`
    /// where there are none.
    pub(crate) fn of(
        history: &PolicyHistory,
        id: metadata::PolicyId,
        rollup: Rollup,
        table: &PolicyTable,
        now: Timestamp,
    ) -> Option<OlderPolicies> {
        let table = table.of_rollup(rollup.method);
        let place = history.iter().rposition(|span| span.policy == id)?;
        let policy = |id: metadata::PolicyId| table.all.get(usize::from(id)).cloned();
        let mut older: Vec<(metadata::PolicyId, Older)> = Vec::new();
        for spans in history[..=place].windows(2).rev().filter(|spans| spans[0].policy != id) {
            let Some(policy) = policy(spans[0].policy) else { continue };
            let times = spans[0].since - policy.retention.longest().duration()..spans[1].since + AHEAD;
            match older.iter_mut().find(|(id, _)| *id == spans[0].policy) {
                Some((_, known)) => known.times.start = known.times.start.min(times.start),
                None => older.push((spans[0].policy, Older { policy, times })),
            }
        }
        let all = || older.iter().map(|(_, older)| &older.policy).chain(table.all.get(usize::from(id)));
        let step = |policy: &&Arc<Policy>| policy.retention.finest().resolution();
        let is_of_one_step = all().map(|policy| step(&policy)).collect::<HashSet<_>>().len() < 2;
        let is_of_points = is_of_one_step && all().any(|policy| !policy.rollups.is_empty());
        let shortest = all().map(|policy| policy.retention.finest().duration()).min().unwrap_or(0);
        let points_since = now.saturating_sub(shortest);
        let older: Vec<Older> = older.into_iter().map(|(_, older)| older).collect();
        let rows = Arc::new(SharedRows::of(history, table));
        let policy = policy(id).filter(|_| !older.is_empty())?;
        Some(OlderPolicies { policy, older, rows, rollup, is_apart: false, is_of_points, points_since, is_of_one_step })
    }

    /// The policy whose slots are filled.
    pub(crate) fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The rollup whose rows are asked for, and written.
    pub(crate) fn rollup(&self) -> Rollup {
        self.rollup
    }

    /// Whether the counts of all policies are of one first step, and can be compared.
    pub(crate) fn is_of_one_step(&self) -> bool {
        self.is_of_one_step
    }

    /// The terms of rows in shared tables.
    pub(crate) fn rows(&self) -> &SharedRows {
        &self.rows
    }

    /// Whether an older policy may have stored a slot that has both times in it, the later one being new.
    pub(crate) fn may_share_slot(&self, stored: Timestamp, new: Timestamp) -> bool {
        self.older.iter().any(|older| {
            let mut steps = older.policy.retention.stages().iter().map(|of| i64::from(of.resolution()));
            steps.any(|step| {
                let slot = stored.div_euclid(step);
                slot == new.div_euclid(step) && slot * step < older.times.end
            })
        })
    }

    /// For each older policy, what this one shows, in the slots of that one.
    pub(crate) fn seen_by_each(&self) -> impl Iterator<Item = OlderPolicies> + '_ {
        let this = Older { policy: self.policy.clone(), times: Timestamp::MIN..Timestamp::MAX };
        let all: Vec<Older> = std::iter::once(this).chain(self.older.iter().cloned()).collect();
        self.older.iter().map(move |older| OlderPolicies {
            policy: older.policy.clone(),
            older: all.clone(),
            rows: self.rows.clone(),
            rollup: self.rollup,
            is_apart: true,
            is_of_points: self.is_of_points,
            points_since: self.points_since,
            is_of_one_step: self.is_of_one_step,
        })
    }

    /// Policies whose slots are read anyway: what has a slot of this very table, and none there is none.
    fn is_left_out(&self, policy: &Policy, table: Table) -> bool {
        !self.is_apart && has_table(policy, table)
    }

    /// The slots of older policies that can say something about these.
    fn to_read(&self, table: Table, slots: &Range<Slot>) -> Vec<ToRead> {
        let step = table.stage;
        let mut all = Vec::new();
        for (index, older) in self.older.iter().enumerate() {
            if self.is_left_out(&older.policy, table) {
                continue;
            }
            let from = step.time(slots.start).max(older.times.start);
            let until = step.time(slots.end).min(older.times.end);
            let stages = older.policy.retention.stages().iter().enumerate();
            let useful = stages.filter(|(stage, of)| *stage == 0 || of.resolution() <= step.resolution());
            // The coarsest first: its slots say the most when finer ones have expired.
            for (stage, of) in useful.rev() {
                // Slots belong to the time at which they begin.
                let begin = |time: Timestamp| {
                    let slot = (time.max(0) + i64::from(of.resolution()) - 1) / i64::from(of.resolution());
                    slot.min(i64::from(Slot::MAX)) as Slot
                };
                let slots = begin(from)..begin(until);
                if !slots.is_empty() {
                    all.push(ToRead { policy: index, stage, slots });
                }
            }
        }
        all
    }

    /// Cuts the slots of a fetch into parts, each with few slots of older policies.
    fn parts(&self, place: usize, fetch: &Fetch) -> Vec<Part> {
        let slots = fetch.first_slot..fetch.end_slot;
        let all: usize = self.to_read(fetch.table, &slots).iter().map(|read| read.slots.len()).sum();
        if all == 0 {
            return Vec::new();
        }
        let parts = all.div_ceil(STEP_SLOTS).min(slots.len()).max(1);
        let len = (slots.len().div_ceil(parts)).max(1);
        let part = |first: Slot| {
            let end = first.saturating_add(len as u32).min(slots.end);
            Part { fetch: place, slots: first..end }
        };
        slots.clone().step_by(len).map(part).collect()
    }

    fn fetch(&self, of: &Fetch, read: &ToRead) -> Fetch {
        let policy = &self.older[read.policy].policy;
        Fetch {
            table: policy.table(read.stage),
            first_slot: read.slots.start,
            end_slot: read.slots.end,
            aggregation: policy.aggregation,
            ..of.clone()
        }
    }

    /// Fills a part of a fetch from the answers for its sources.
    fn fill(&self, fetch: &Fetch, part: &Part, cells: &mut Cells, reads: &[ToRead], answers: Vec<Cells>) {
        let mut sources: Vec<Source<'_>> = reads
            .iter()
            .zip(answers)
            .map(|(read, mut stored)| {
                let policy = &*self.older[read.policy].policy;
                let table = policy.table(read.stage);
                self.rows.read(table, read.slots.start, &mut stored, policy);
                let (first_slot, len) = (read.slots.start, read.slots.len());
                Source { policy, table, first_slot, len, stored, filled: Cells::default() }
            })
            .collect();
        let (policy, table, first_slot, len) = (&*self.policy, fetch.table, part.slots.start, part.slots.len());
        let place = (part.slots.start - fetch.first_slot) as usize;
        let (is_of_points, points_since, is_of_one_step) = (self.is_of_points, self.points_since, self.is_of_one_step);
        let target = Target { policy, table, first_slot, len, is_of_points, points_since, is_of_one_step };
        fill_sources(&mut sources, &target);
        let mut of_part = Cells::default();
        if let Some(values) = cells.values.get(place..) {
            of_part.values.extend(values.iter().take(len));
            of_part.counts.extend(cells.counts.get(place..).unwrap_or_default().iter().take(len));
        }
        if self.is_apart {
            // What the latest shows, before all others.
            let latest = sources.iter().filter(|source| std::ptr::eq(source.policy, &*self.older[0].policy));
            fill(&target, &mut of_part, latest, &sources, |_| false);
        }
        fill(&target, &mut of_part, sources.iter(), &sources, |other| self.is_left_out(other, table));
        cells.is_damaged |= of_part.is_damaged;
        cells.is_unreadable |= of_part.is_unreadable;
        cells.is_away |= of_part.is_away;
        for (of_part, methods) in &of_part.earlier_at {
            methods.iter().for_each(|method| cells.note_earlier(place + *of_part as usize, method));
        }
        if of_part.values.is_empty() {
            return;
        }
        // What is stored may end before the part does.
        let all = (fetch.end_slot - fetch.first_slot) as usize;
        cells.values.resize(all, f64::NAN);
        cells.values[place..].iter_mut().zip(&of_part.values).for_each(|(cell, &value)| *cell = value);
        if table.aggregated {
            cells.counts.resize(all, 0);
            cells.counts[place..].iter_mut().zip(&of_part.counts).for_each(|(cell, &count)| *cell = count);
        }
    }
}

/// Reads from the store, lays the rows that are on their way there over the answers, and fills absent slots from the older
/// policies of each fetch, where there are any. The older slots are read in steps of a bounded size.
pub(crate) async fn fetch_filled(
    store: &dyn PointStore,
    fetches: Vec<Fetch>,
    older: &[Option<&OlderPolicies>],
    coming: &ComingRows,
) -> Result<Vec<Cells>, StoreError> {
    if fetches.is_empty() {
        return Ok(Vec::new());
    }
    let mut parts = Vec::new();
    for (place, older) in older.iter().enumerate() {
        parts.extend(older.map(|older| older.parts(place, &fetches[place])).unwrap_or_default());
    }
    let (mut parts, mut answers) = (parts.into_iter().peekable(), Vec::<Cells>::new());
    loop {
        let is_first = answers.is_empty();
        if parts.peek().is_none() && !is_first {
            return Ok(answers);
        }
        let (mut step, mut slots) = (Vec::new(), 0);
        let mut asked = if is_first { fetches.clone() } else { Vec::new() };
        while slots < STEP_SLOTS {
            let Some(part) = parts.next() else { break };
            let Some(older) = older[part.fetch] else { continue };
            let fetch = &fetches[part.fetch];
            let reads = older.to_read(fetch.table, &part.slots);
            slots += reads.iter().map(|read| read.slots.len()).sum::<usize>();
            asked.extend(reads.iter().map(|read| older.fetch(fetch, read)));
            step.push((part, older, reads));
        }
        let mut cells = store.fetch(asked.clone()).await?;
        asked.iter().zip(&mut cells).for_each(|(fetch, cells)| coming.lay_over(fetch, cells));
        if is_first {
            let of_sources = cells.split_off(fetches.len());
            answers = std::mem::replace(&mut cells, of_sources);
            for ((fetch, older), cells) in fetches.iter().zip(older).zip(&mut answers) {
                match older {
                    Some(older) if older.is_apart => *cells = Cells::default(),
                    Some(older) => older.rows.read(fetch.table, fetch.first_slot, cells, &older.policy),
                    None => {}
                }
            }
        }
        let mut cells = cells.into_iter();
        for (part, older, reads) in step {
            let of_part: Vec<Cells> = cells.by_ref().take(reads.len()).collect();
            older.fill(&fetches[part.fetch], &part, &mut answers[part.fetch], &reads, of_part);
        }
    }
}
