//! What older policies of a metric stored, in the slots of a newer one.
//!
//! A coarse slot over a change of policy is made of the points of both. Where the newer policy's table has no slot, the
//! slot is what an older policy shows for that time:
//!
//! 1. A slot that the older policy keeps in as coarse or in finer steps is the fold of them, by the older policy's method.
//! 2. A point of a coarser first stage is a point at its own time.

use std::{ops::Range, sync::Arc};

use metadata::PolicyHistory;
use metric::{Aggregation, Partial, Policy, Slot, Stage};
use store::{Cells, Fetch, PointStore, Run, StoreError};

use crate::{coming_rows::ComingRows, policy_table::PolicyTable};

/// A longer range of one stage is not read to fill slots of another.
const MOST_SLOTS: usize = 256 << 10;

/// A metric's policy, and those that it had before.
pub(crate) struct OlderPolicies {
    policy: Arc<Policy>,
    /// The latest first, each once.
    older: Vec<Arc<Policy>>,
}

/// Slots of an older policy's stage.
struct Source<'a> {
    policy: &'a Policy,
    stage: usize,
    slots: Range<Slot>,
}

impl OlderPolicies {
    /// The policies before the one with this id, which may itself be an earlier one. `None` where there are none.
    pub(crate) fn of(history: &PolicyHistory, id: metadata::PolicyId, table: &PolicyTable) -> Option<OlderPolicies> {
        let place = history.iter().rposition(|span| span.policy == id)?;
        let mut ids: Vec<metadata::PolicyId> = Vec::new();
        for span in history[..place].iter().rev() {
            if span.policy != id && !ids.contains(&span.policy) {
                ids.push(span.policy);
            }
        }
        let policy = |id: metadata::PolicyId| table.all.get(usize::from(id)).cloned();
        let older: Vec<Arc<Policy>> = ids.into_iter().filter_map(policy).collect();
        (!older.is_empty()).then(|| policy(id).map(|policy| OlderPolicies { policy, older })).flatten()
    }

    /// The reads of the store that [`OlderPolicies::fill`] needs for the slots of `fetch`.
    pub(crate) fn fetches(&self, fetch: &Fetch) -> Vec<Fetch> {
        let of_source = |source: Source<'_>| Fetch {
            table: source.policy.retention.table(source.stage),
            first_slot: source.slots.start,
            end_slot: source.slots.end,
            aggregation: source.policy.aggregation,
            ..fetch.clone()
        };
        self.sources(fetch).map(of_source).collect()
    }

    /// Fills the absent slots of `cells`, the answer to `fetch`, from the answers to [`OlderPolicies::fetches`].
    pub(crate) fn fill(&self, fetch: &Fetch, cells: &mut Cells, older: impl Iterator<Item = Cells>) {
        for (source, answer) in self.sources(fetch).zip(older) {
            cells.is_damaged |= answer.is_damaged;
            if answer.values.is_empty() {
                continue;
            }
            let fills = self.fills(fetch, &source, &answer);
            if cells.values.is_empty() {
                let len = (fetch.end_slot - fetch.first_slot) as usize;
                cells.values = vec![f64::NAN; len];
                cells.counts = vec![0; if fetch.table.aggregated { len } else { 0 }];
            }
            for (place, partial) in fills.into_iter().filter(|(_, partial)| partial.count > 0) {
                if cells.values.get(place).is_some_and(|value| value.is_nan()) {
                    cells.values[place] = partial.value;
                    if fetch.table.aggregated {
                        cells.counts[place] = partial.count;
                    }
                }
            }
        }
    }

    /// The older tables that may have the slots of this run too: what they have there, the run replaces, so that it is
    /// right when one of these policies comes back. Tables with another step are left alone.
    pub(crate) fn mirrors(&self, run: &Run) -> Vec<Fetch> {
        let (step, end) = (run.table.stage.resolution(), run.first_slot.saturating_add(run.values.len() as u32));
        let mut mirrors: Vec<Fetch> = Vec::new();
        for policy in self.older.iter().filter(|policy| !run.table.aggregated || self.counts_as(policy)) {
            let stages = policy.retention.stages();
            let Some(stage) = stages.iter().position(|stage| stage.resolution() == step) else { continue };
            let table = policy.retention.table(stage);
            let is_other = table != run.table && mirrors.iter().all(|mirror| mirror.table != table);
            if table.aggregated == run.table.aggregated && is_other {
                let (metric, name, aggregation) = (run.metric, run.name.clone(), policy.aggregation);
                mirrors.push(Fetch { metric, name, table, first_slot: run.first_slot, end_slot: end, aggregation });
            }
        }
        mirrors
    }

    /// Whether coarse slots of an older policy say the same as those of this one.
    fn counts_as(&self, older: &Policy) -> bool {
        older.retention.finest().resolution() == self.policy.retention.finest().resolution()
            && has_same_content(older.aggregation, self.policy.aggregation)
    }

    fn sources(&self, fetch: &Fetch) -> impl Iterator<Item = Source<'_>> {
        let (table, slots) = (fetch.table, fetch.first_slot..fetch.end_slot);
        // Slots of this very table are read anyway.
        let others = self.older.iter().filter(move |policy| {
            let retention = &policy.retention;
            (0..retention.stages().len()).all(|stage| retention.table(stage) != table)
        });
        others.flat_map(move |policy| {
            let (slots, stages) = (slots.clone(), policy.retention.stages());
            let is_useful =
                move |&(index, stage): &(usize, &Stage)| index == 0 || stage.resolution() <= table.stage.resolution();
            // The coarsest first: its slots say the most when finer ones have expired.
            let useful = stages.iter().enumerate().rev().filter(is_useful);
            useful.filter_map(move |(stage, of)| {
                let from = of.slot(table.stage.time(slots.start))?;
                let last = of.slot(table.stage.time(slots.end) - 1).unwrap_or(Slot::MAX - 1);
                let slots = from..last.checked_add(1)?;
                (slots.len() <= MOST_SLOTS).then_some(Source { policy, stage, slots })
            })
        })
    }

    /// The slots of `fetch` that a source has, by place.
    fn fills(&self, fetch: &Fetch, source: &Source<'_>, cells: &Cells) -> Vec<(usize, Partial)> {
        let (stage, older) = (fetch.table.stage, source.policy.retention.stages()[source.stage]);
        let mut fills: Vec<(usize, Partial)> = Vec::new();
        for (i, &value) in cells.values.iter().enumerate().filter(|(_, value)| !value.is_nan()) {
            let time = older.time(source.slots.start + i as u32);
            let place = stage.slot(time).and_then(|slot| slot.checked_sub(fetch.first_slot));
            // A coarser slot that begins before the first one.
            let Some(place) = place else { continue };
            let partial = Partial { value, count: cells.counts.get(i).copied().unwrap_or(1) };
            match fills.last_mut().filter(|(last, _)| *last == place as usize) {
                Some((_, all)) => *all = source.policy.aggregation.merge(*all, partial),
                None => fills.push((place as usize, partial)),
            }
        }
        for (_, partial) in &mut fills {
            *partial = converted(*partial, source.policy, &self.policy, stage);
        }
        fills
    }
}

/// Reads from the store, lays the rows that are on their way there over the answers, and fills absent slots from the older
/// policies of each fetch, where there are any.
pub(crate) async fn fetch_filled(
    store: &dyn PointStore,
    mut fetches: Vec<Fetch>,
    older: &[Option<&OlderPolicies>],
    coming: &ComingRows,
) -> Result<Vec<Cells>, StoreError> {
    if fetches.is_empty() {
        return Ok(Vec::new());
    }
    let count = fetches.len();
    let mut filled = Vec::new();
    for (place, older) in older.iter().enumerate().filter_map(|(place, older)| Some((place, (*older)?))) {
        let fetch = fetches[place].clone();
        let more = older.fetches(&fetch);
        filled.push((place, fetch, older, more.len()));
        fetches.extend(more);
    }
    let asked = if coming.is_empty() { Vec::new() } else { fetches.clone() };
    let mut cells = store.fetch(fetches).await?;
    asked.iter().zip(&mut cells).for_each(|(fetch, cells)| coming.lay_over(fetch, cells));
    let mut answers = cells.split_off(count).into_iter();
    for (place, fetch, older, count) in filled {
        older.fill(&fetch, &mut cells[place], answers.by_ref().take(count));
    }
    Ok(cells)
}

/// The part of a run that replaces slots which a mirror has; `None` where it has none.
pub(crate) fn mirrored(run: &Run, mirror: &Fetch, cells: &Cells) -> Option<Run> {
    let is_there = |place: usize| cells.values.get(place).is_some_and(|value| !value.is_nan());
    let value = |(place, &value): (usize, &f64)| if is_there(place) { value } else { f64::NAN };
    let values: Vec<f64> = run.values.iter().enumerate().map(value).collect();
    let is_any = values.iter().any(|value| !value.is_nan());
    is_any.then(|| Run { table: mirror.table, values, aggregation: mirror.aggregation, ..run.clone() })
}

/// Whether the partials of two methods are the same numbers.
fn has_same_content(one: Aggregation, other: Aggregation) -> bool {
    let is_sum = |method| matches!(method, Aggregation::Average | Aggregation::Sum | Aggregation::AvgZero);
    one == other || is_sum(one) && is_sum(other)
}

/// A slot of one policy as another policy counts it: what the older one shows, for as many points as fit in that time.
fn converted(partial: Partial, from: &Policy, to: &Policy, stage: Stage) -> Partial {
    let finest = |policy: &Policy| policy.retention.finest().resolution();
    let is_finest = stage.resolution() == finest(to);
    if has_same_content(from.aggregation, to.aggregation) && finest(from) == finest(to) && !is_finest {
        return partial;
    }
    let expected = |policy: &Policy| (stage.resolution() / finest(policy)).max(1);
    let shown = from.aggregation.finish(partial, expected(from), 0.0);
    if is_finest {
        return Partial { value: shown, count: partial.count };
    }
    let scaled = u64::from(partial.count) * u64::from(finest(from)) / u64::from(finest(to));
    // A point of a coarser step is one point.
    let count = if finest(from) > finest(to) { partial.count } else { scaled as u32 };
    let count = count.clamp(1, expected(to));
    let value = match to.aggregation {
        Aggregation::Average => shown * f64::from(count),
        Aggregation::AvgZero => shown * f64::from(expected(to)),
        _ => shown,
    };
    Partial { value, count }
}
