//! What other policies of a metric stored, in the slots of one of them.
//!
//! A coarse slot over a change of policy is made of the points of both. Where a policy's table has no slot, the slot is
//! what the policy before it showed for that time:
//!
//! 1. A slot that the older policy keeps in as coarse or in finer steps is the fold of them, by the older policy's method.
//! 2. A point of a coarser first stage is a point at its own time.

use std::{collections::HashSet, ops::Range, sync::Arc};

use metadata::PolicyHistory;
use metric::{Aggregation, Policy, Slot, Table, Timestamp};
use store::{Cells, Fetch, PointStore, StoreError};

use crate::{
    coming_rows::ComingRows,
    older_fill::{Source, Target, fill, fill_sources, latest_times},
    policy_table::{PolicyTable, Rollup},
    shared_rows::{SharedRows, has_table},
};

/// Slots of older policies that are read at once. One slot of a coarse stage may have more under it.
const STEP_SLOTS: usize = 256 << 10;

/// Slots of a block, see [`OlderPolicies::block`]: those of 120 s and 300 s have a block of ten minutes.
const MOST_OF_BLOCK: u64 = 256;

/// Points may come this many seconds after a change of policy under the older one, whose clock was ahead.
const AHEAD: i64 = 3600;

/// The same where others write the tables, whose rules may change later.
const AHEAD_OF_OTHERS: i64 = 86_400;

/// Until when points of a policy may have come that ended here then.
pub(crate) fn may_come_until(ended: Timestamp, is_alone: bool) -> Timestamp {
    ended.saturating_add(if is_alone { AHEAD } else { AHEAD_OF_OTHERS })
}

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
    /// See [`Coverage::rows_alone_until`](downsample::Coverage::rows_alone_until).
    rows_alone_until: Timestamp,
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
        let rows_alone_until = table.rows_alone_until(history, now);
        let policy = |id: metadata::PolicyId| table.all.get(usize::from(id)).cloned();
        let mut older: Vec<(metadata::PolicyId, Older)> = Vec::new();
        for before in (0..place).rev().filter(|before| history[*before].policy != id) {
            let (span, ended) = (history[before], history.ended(before));
            let Some(policy) = policy(span.policy) else { continue };
            let times = span.since - policy.retention.longest().duration()..may_come_until(ended, table.is_alone);
            match older.iter_mut().find(|(id, _)| *id == span.policy) {
                Some((_, known)) => {
                    known.times = known.times.start.min(times.start)..known.times.end.max(times.end);
                }
                None => older.push((span.policy, Older { policy, times })),
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
        let is_apart = false;
        Some(OlderPolicies {
            policy,
            older,
            rows,
            rollup,
            is_apart,
            is_of_points,
            points_since,
            is_of_one_step,
            rows_alone_until,
        })
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

    /// Before this time, points may be known as coarse rows alone.
    pub(crate) fn rows_alone_until(&self) -> Timestamp {
        self.rows_alone_until
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
            rows_alone_until: self.rows_alone_until,
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
            let around = self.reach(step.resolution());
            let from = (step.time(slots.start) - around).max(older.times.start);
            let until = (step.time(slots.end) + around).min(older.times.end);
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

    /// How far slots that older policies have may reach into one of this step, or out of it: none do if their steps divide it.
    fn reach(&self, step: u32) -> i64 {
        let steps = self.older.iter().flat_map(|older| older.policy.retention.stages());
        let undivided = steps.map(|of| of.resolution()).filter(|of| *of < step && !step.is_multiple_of(*of));
        // And what reaches into these.
        2 * undivided.max().map_or(0, i64::from)
    }

    /// How many coarse slots of this step begin and end together with those of all older policies. `None` where the slots of each older
    /// policy do, or too many.
    pub(crate) fn block(&self, step: u32) -> Option<u32> {
        let steps = self.older.iter().flat_map(|older| older.policy.retention.stages().iter().skip(1));
        let undivided =
            steps.map(|of| of.resolution()).filter(|of| !step.is_multiple_of(*of) && !of.is_multiple_of(step));
        let seconds = undivided.fold(u64::from(step), |all, of| least_common_multiple(all, u64::from(of)));
        let slots = seconds / u64::from(step);
        (1 < slots && slots <= MOST_OF_BLOCK).then_some(slots as u32)
    }

    /// Until when an older policy may have stored slots.
    pub(crate) fn older_until(&self) -> Timestamp {
        self.older.iter().map(|older| older.times.end).max().unwrap_or(Timestamp::MIN)
    }

    /// The points around the slots of a part that policies have whose slots do not fill it, where those of others are to be cut.
    fn points_around(&self, of: &Fetch, slots: &Range<Slot>) -> Vec<Fetch> {
        let (step, around) = (of.table.stage, self.reach(of.table.stage.resolution()));
        let mut fetches: Vec<Fetch> = Vec::new();
        if self.is_apart || !of.table.aggregated || around == 0 {
            return fetches;
        }
        let left_out = self.older.iter().map(|older| &older.policy).filter(|policy| self.is_left_out(policy, of.table));
        for table in std::iter::once(&self.policy).chain(left_out).map(|policy| policy.table(0)) {
            let slot = |time: Timestamp| table.stage.slot(time.max(0)).unwrap_or(Slot::MAX);
            let (first_slot, end_slot) = (slot(step.time(slots.start) - around), slot(step.time(slots.end) + around));
            if first_slot < end_slot && fetches.iter().all(|fetch| fetch.table != table) {
                fetches.push(Fetch { table, first_slot, end_slot, ..of.clone() });
            }
        }
        fetches
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

    /// What a part of a fetch shows: its own slots, filled from the answers for its sources. `points` are the answers to
    /// [`OlderPolicies::points_around`].
    fn filled(
        &self,
        fetch: &Fetch,
        part: &Part,
        (own, points): (Cells, Vec<(Fetch, Cells)>),
        reads: &[ToRead],
        answers: Vec<Cells>,
    ) -> Cells {
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
        let (is_of_points, points_since, is_of_one_step) = (self.is_of_points, self.points_since, self.is_of_one_step);
        let of_points = |(fetch, stored): (Fetch, Cells)| {
            let (table, first_slot, len) =
                (fetch.table, fetch.first_slot, (fetch.end_slot - fetch.first_slot) as usize);
            Source { policy, table, first_slot, len, stored, filled: Cells::default() }
        };
        let points: Vec<Source<'_>> = points.into_iter().map(of_points).collect();
        let is_unread = points.iter().any(|points| points.stored.is_unreadable || points.stored.is_away);
        let points = &points;
        let target = Target { policy, table, first_slot, len, is_of_points, points_since, is_of_one_step, points };
        fill_sources(&mut sources, &target);
        let mut cells = own;
        // What is to be cut, and how, may be known later.
        (cells.is_unreadable, cells.is_damaged) = (cells.is_unreadable | is_unread, cells.is_damaged | is_unread);
        self.rows.read(table, first_slot, &mut cells, policy);
        if table.aggregated && policy.aggregation == Aggregation::Last {
            cells.latest_at.extend(latest_times(&target, &sources));
        }
        if self.is_apart {
            // What the latest shows, before all others.
            let latest = sources.iter().filter(|source| std::ptr::eq(source.policy, &*self.older[0].policy));
            fill(&target, &mut cells, latest, &sources, |_| false);
        }
        fill(&target, &mut cells, sources.iter(), &sources, |other| self.is_left_out(other, table));
        cells
    }
}

impl Part {
    /// The part's own slots.
    fn own(&self, of: &Fetch) -> Fetch {
        Fetch { first_slot: self.slots.start, end_slot: self.slots.end, ..of.clone() }
    }

    /// Puts the cells of this part where they belong in the answer to the fetch.
    fn put(&self, fetch: &Fetch, of_part: Cells, cells: &mut Cells) {
        if self.slots == (fetch.first_slot..fetch.end_slot) {
            *cells = of_part;
            return;
        }
        let place = (self.slots.start - fetch.first_slot) as usize;
        cells.note_unread_of_part(place as u32, &of_part);
        for (at, methods) in &of_part.earlier_at {
            methods.iter().for_each(|method| cells.note_earlier(place + *at as usize, method));
        }
        cells.latest_at.extend(of_part.latest_at.iter().map(|&(at, time)| (place as u32 + at, time)));
        if of_part.values.is_empty() {
            return;
        }
        // What is stored may end before the part does.
        let all = (fetch.end_slot - fetch.first_slot) as usize;
        cells.values.resize(all, f64::NAN);
        cells.values[place..].iter_mut().zip(&of_part.values).for_each(|(cell, &value)| *cell = value);
        if fetch.table.aggregated {
            cells.counts.resize(all, 0);
            cells.counts[place..].iter_mut().zip(&of_part.counts).for_each(|(cell, &count)| *cell = count);
        }
    }
}

fn least_common_multiple(one: u64, other: u64) -> u64 {
    let (mut a, mut b) = (one, other);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    (one / a).saturating_mul(other)
}

/// Reads from the store, lays the rows that are on their way there over the answers, the latest last, and fills absent slots from the
/// older policies of each fetch, where there are any: `older` may end before `fetches`. The older slots are read in steps of a bounded
/// size, each with the slots that are filled from them.
pub(crate) async fn fetch_filled(
    store: &dyn PointStore,
    fetches: Vec<Fetch>,
    older: &[Option<&OlderPolicies>],
    coming: &[&ComingRows],
) -> Result<Vec<Cells>, StoreError> {
    let mut answers = vec![Cells::default(); fetches.len()];
    // Those without sources are read in the first step.
    let (mut whole, mut parts) = (Vec::new(), Vec::new());
    for (place, fetch) in fetches.iter().enumerate() {
        let older = older.get(place).copied().flatten();
        let of_fetch = older.map(|older| older.parts(place, fetch)).unwrap_or_default();
        match of_fetch.is_empty() {
            true => whole.push(Part { fetch: place, slots: fetch.first_slot..fetch.end_slot }),
            false => parts.extend(of_fetch),
        }
    }
    whole.extend(parts);
    let mut parts = whole.into_iter().peekable();
    while parts.peek().is_some() {
        let (mut step, mut slots) = (Vec::new(), 0);
        let (mut asked, mut rounds) = (Vec::new(), Vec::new());
        while let Some(part) = parts.next_if(|_| slots < STEP_SLOTS) {
            let (fetch, older) = (&fetches[part.fetch], older.get(part.fetch).copied().flatten());
            let reads = older.map(|older| older.to_read(fetch.table, &part.slots)).unwrap_or_default();
            let points = older.map(|older| older.points_around(fetch, &part.slots)).unwrap_or_default();
            slots += reads.iter().map(|read| read.slots.len()).sum::<usize>();
            slots += points.iter().map(|fetch| (fetch.end_slot - fetch.first_slot) as usize).sum::<usize>();
            if older.is_none_or(|older| !older.is_apart) {
                asked.push(part.own(fetch));
            }
            asked.extend(points.iter().cloned());
            asked.extend(older.into_iter().flat_map(|older| reads.iter().map(|read| older.fetch(fetch, read))));
            let of_part = &asked[rounds.len()..];
            rounds.extend(of_part.iter().map(|fetch| round_of(fetch, of_part)));
            step.push((part, older, points, reads));
        }
        let mut cells = fetch_coarser_first(store, &asked, &rounds).await?;
        for coming in coming {
            asked.iter().zip(&mut cells).for_each(|(fetch, cells)| coming.lay_over(fetch, cells));
        }
        let mut cells = cells.into_iter();
        for (part, older, points, reads) in step {
            let fetch = &fetches[part.fetch];
            let own = if older.is_none_or(|older| !older.is_apart) { cells.next() } else { None }.unwrap_or_default();
            let of_part = match older {
                Some(older) => {
                    let points = points.into_iter().zip(cells.by_ref()).collect();
                    let sources = cells.by_ref().take(reads.len()).collect();
                    older.filled(fetch, &part, (own, points), &reads, sources)
                }
                None => own,
            };
            part.put(fetch, of_part, &mut answers[part.fetch]);
        }
    }
    Ok(answers)
}

/// Reads fetches, each in its round. Points of a coarser step are read before all finer slots of their metric: a flush that
/// replaces such a point by the fold of finer ones stores it among these first. So an answer has the point in one place at
/// least, also where the statements of one call are read at different moments.
async fn fetch_coarser_first(
    store: &dyn PointStore,
    fetches: &[Fetch],
    rounds: &[usize],
) -> Result<Vec<Cells>, StoreError> {
    let last = rounds.iter().copied().max().unwrap_or(0);
    if last == 0 {
        return store.fetch(fetches.to_vec()).await;
    }
    let mut answers = vec![Cells::default(); fetches.len()];
    for round in 0..=last {
        let places = || (0..fetches.len()).filter(|&place| rounds[place] == round);
        let cells = store.fetch(places().map(|place| fetches[place].clone()).collect()).await?;
        places().zip(cells).for_each(|(place, cells)| answers[place] = cells);
    }
    Ok(answers)
}

/// The round of a fetch of a part: how many of its steps of points are coarser.
fn round_of(fetch: &Fetch, of_part: &[Fetch]) -> usize {
    let step = |fetch: &Fetch| fetch.table.stage.resolution();
    let coarser = of_part.iter().filter(|of| !of.table.aggregated && step(fetch) < step(of));
    coarser.map(step).collect::<HashSet<_>>().len()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use metadata::Registry;
    use metric::{Aggregation, MetricId};
    use store::{DriverFuture, MemoryDriver, MetricRecord, PolicyChange, Run, Usage};

    use super::*;
    use crate::policy_table::Policies;

    const METRIC: MetricId = MetricId(0);

    /// Rows that a flush stores while they are read: a call reads its fetches one after the other, as Cassandra may.
    struct Flushing {
        memory: MemoryDriver,
        /// Whether a call reads its fetches in the opposite order.
        is_reversed: bool,
        /// Fetches that are left until the next write.
        left: AtomicUsize,
        writes: [Run; 2],
    }

    impl PointStore for Flushing {
        fn write(&self, runs: Vec<Run>) -> DriverFuture<'_, ()> {
            self.memory.write(runs)
        }

        fn fetch(&self, fetches: Vec<Fetch>) -> DriverFuture<'_, Vec<Cells>> {
            Box::pin(async move {
                let mut cells = vec![Cells::default(); fetches.len()];
                let order: Vec<usize> = match self.is_reversed {
                    true => (0..fetches.len()).rev().collect(),
                    false => (0..fetches.len()).collect(),
                };
                for place in order {
                    if self.left.fetch_sub(1, Relaxed) == 0 {
                        for run in &self.writes {
                            self.memory.write(vec![run.clone()]).await?;
                        }
                    }
                    cells[place] = self.memory.fetch(vec![fetches[place].clone()]).await?.remove(0);
                }
                Ok(cells)
            })
        }

        fn sync(&self) -> DriverFuture<'_, ()> {
            self.memory.sync()
        }

        fn expire(&self, now: Timestamp) -> DriverFuture<'_, ()> {
            self.memory.expire(now)
        }

        fn usage(&self) -> Usage {
            self.memory.usage()
        }
    }

    /// The policies with these retentions, a day each until `now`.
    fn history(retentions: &[&str], now: Timestamp) -> (PolicyHistory, Arc<PolicyTable>) {
        let registry = Arc::new(Registry::new());
        let policy = |retention: &&str| Policy {
            retention: retention.parse().unwrap(),
            aggregation: Aggregation::Last,
            ..Policy::default()
        };
        let since = (now - 86400 * retentions.len() as i64..).step_by(86400);
        let changes = since.zip(retentions.iter().map(policy));
        let policies = changes.map(|(since, policy)| PolicyChange { since, policy }).collect();
        registry.restore(vec![MetricRecord { id: METRIC, name: "m".to_owned(), created_on: 0, policies }]);
        let table = Policies::new(registry.clone(), true).table();
        (registry.policies(METRIC).unwrap(), table)
    }

    fn run(policy: &Policy, time: Timestamp, value: f64) -> Run {
        let table = policy.table(0);
        Run {
            metric: METRIC,
            name: "m".to_owned(),
            table,
            first_slot: table.stage.slot(time).unwrap(),
            values: vec![value],
            counts: Vec::new(),
            aggregation: policy.aggregation,
        }
    }

    /// The metric had seconds, minutes, and has seconds that are kept for longer. A flush keeps the point of a minute among the
    /// seconds, and stores the aggregate of the seconds in its place.
    #[test]
    fn a_query_never_takes_what_replaces_a_coarser_point_for_the_point() {
        const POINT: f64 = 36.0;
        let now = 1_800_000_000;
        // More seconds than one step reads.
        let (history, table) = history(&["345600*1s", "10080*60s", "432000*1s"], now);
        let policy = |place: usize| table.all[usize::from(history[place].policy)].clone();
        let rollup = Rollup { method: Aggregation::Last, is_first: true };
        let older = OlderPolicies::of(&history, history.current(), rollup, &table, now).unwrap();
        let first = now - 4 * 86400;
        for minute in [first + 600, now - 2 * 86400, now - 86400 - 600] {
            let (fine, coarse) = (|value| run(&policy(2), minute, value), |value| run(&policy(1), minute, value));
            let (first_slot, end_slot) = (first as Slot, now as Slot);
            let (name, table, aggregation) = ("m".to_owned(), policy(2).table(0), Aggregation::Last);
            let fetch = Fetch { metric: METRIC, name, table, first_slot, end_slot, aggregation };
            for (is_reversed, at) in
                [false, true].into_iter().flat_map(|reversed| (0..12).map(move |at| (reversed, at)))
            {
                let writes = [fine(POINT), coarse(52.0)];
                let store = Flushing { memory: MemoryDriver::default(), is_reversed, left: at.into(), writes };
                let read = async {
                    store.write(vec![coarse(POINT)]).await?;
                    fetch_filled(&store, vec![fetch.clone()], &[Some(&older)], &[&ComingRows::default()]).await
                };
                let cells = tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(read).unwrap();
                let value = cells[0].values[(minute - first) as usize];
                assert_eq!(value, POINT, "written before fetch {at}, reversed: {is_reversed}");
            }
        }
    }
}
