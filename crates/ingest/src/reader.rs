//! Reading series: what is stored, with what is held laid over it.
//!
//! 1. Choose the stage and the slots, as whisper chooses an archive ([`Choice`]).
//! 2. Under the lock, copy what is held: for stage 0 straight into the answer, for a coarser stage as the
//!    points it will be derived from.
//! 3. Read everything that is needed of the store, for all series at once.
//! 4. Lay one over the other. Slots from before a change of policy come from the older policy's stages.

use std::{future::Future, ops::Range, pin::Pin, sync::Arc, sync::atomic::Ordering::Relaxed, time::Instant};

use downsample::{Coverage, ReadPlan, SortedPoints, Stored};
use metadata::PolicyHistory;
use metric::{MetricId, Partial, Policy, Slot, Stage, Table, Timestamp};
use store::{Cells, Fetch, FetchError, FetchedSeries, SeriesRequest, SeriesSource, StoreError};

use crate::{Ingest, policies::PolicyTable};

/// Series whose held points are copied under one lock.
const AT_ONCE: usize = 64;

/// Which stage answers a request, and which of its slots.
#[derive(Debug, Clone, PartialEq)]
struct Choice {
    stage: usize,
    slots: Range<Slot>,
}

/// The stage and slots for a request, by whisper's rules: the window is `(from, until]`, clipped to what is
/// kept and to the past; the stage is the finest that reaches back to `from`; a window within one slot is
/// answered with that slot. A coarser stage is taken when this one would have too many points.
fn choose(policy: &Policy, request: &SeriesRequest) -> Option<Choice> {
    let (now, retention) = (request.now, &policy.retention);
    let oldest = now - retention.longest().duration();
    let (from, until) = (request.window.from(), request.window.until());
    if from > now || until < oldest {
        return None;
    }
    let (from, until) = (from.max(oldest), until.min(now));
    let finest = retention.stage_holding(from, now)?;
    let slots = |stage: Stage| {
        let first = stage.slot(from)?.checked_add(1)?;
        let end = stage.slot(until)?.checked_add(1)?;
        Some(first..if first == end { end.checked_add(1)? } else { end })
    };
    let stages = retention.stages();
    let fits = |&stage: &usize| slots(stages[stage]).is_some_and(|slots| slots.len() <= request.max_points);
    let stage = (finest..stages.len()).find(fits).unwrap_or(stages.len() - 1);
    Some(Choice { stage, slots: slots(stages[stage])? })
}

/// A series being read.
struct Reading {
    metric: MetricId,
    policy: Arc<Policy>,
    history: PolicyHistory,
    choice: Choice,
    /// Stage 0: what is held, where something is; a value for each of the slots.
    held: Option<Vec<f64>>,
    /// A coarser stage: the points that are held.
    pending: SortedPoints,
    /// What of `choice.slots` may be stored.
    stored: Range<Slot>,
    coverage: Coverage,
    /// Whether all that came here for the window is held: the answer when the store is away.
    is_held: bool,
}

impl Reading {
    fn table(&self) -> Table {
        self.policy.retention.table(self.choice.stage)
    }

    fn stage(&self) -> Stage {
        self.policy.retention.stages()[self.choice.stage]
    }
}

/// A part of an answer that an older policy's stage has.
struct Older {
    reading: usize,
    policy: Arc<Policy>,
    stage: usize,
    slots: Range<Slot>,
}

impl SeriesSource for Ingest {
    fn fetch(
        self: Arc<Self>,
        requests: Vec<SeriesRequest>,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<Option<FetchedSeries>>, FetchError>> + Send>> {
        Box::pin(async move {
            let began = Instant::now();
            let table = self.policies.table();
            let mut readings: Vec<Option<Reading>> = self.readings(&requests, &table);
            self.copy_held(&mut readings);
            let series = self.read(readings, &table).await?;
            self.counters.fetches.fetch_add(requests.len() as u64, Relaxed);
            self.counters.fetch.observe(began.elapsed());
            Ok(series)
        })
    }
}

impl Ingest {
    /// Where queries read from.
    pub fn series(self: &Arc<Self>) -> Arc<dyn SeriesSource> {
        self.clone()
    }

    fn readings(&self, requests: &[SeriesRequest], table: &PolicyTable) -> Vec<Option<Reading>> {
        let reading = |request: &SeriesRequest| {
            let history = self.registry.policies(request.metric)?;
            // A policy made this moment is in the registry before it is in the table.
            let policy = table.all.get(usize::from(history.current()));
            let policy = policy.cloned().unwrap_or_else(|| self.registry.policy(history.current()));
            let choice = choose(&policy, request)?;
            let stored = choice.slots.clone();
            let since = history.last().map_or(Timestamp::MAX, |last| last.since);
            let (all_writers, this_writer) = (Stored::Unknown, Stored::Unknown);
            let coverage = Coverage { all_writers, this_writer, now: request.now, policy_since: since };
            Some(Reading {
                metric: request.metric,
                policy,
                history,
                held: None,
                choice,
                pending: SortedPoints::default(),
                stored,
                coverage,
                is_held: false,
            })
        };
        requests.iter().map(reading).collect()
    }

    fn copy_held(&self, readings: &mut [Option<Reading>]) {
        for some in readings.chunks_mut(AT_ONCE) {
            let held = self.held.lock();
            for reading in some.iter_mut().flatten() {
                let waiting = held.waiting(reading.metric, reading.history.current());
                let finest = i64::from(reading.policy.retention.finest().resolution());
                let begin = reading.stage().time(reading.choice.slots.start) / finest;
                reading.is_held =
                    !waiting.is_empty() && waiting.this_writer.end().is_some_and(|end| i64::from(end) <= begin);
                if reading.choice.stage == 0 {
                    if !waiting.is_empty() {
                        let mut values = vec![f64::NAN; reading.choice.slots.len()];
                        waiting.overlay(reading.choice.slots.start, &mut values);
                        reading.held = Some(values);
                    }
                    let empty_from = waiting.all_writers.empty_from().unwrap_or(Slot::MAX);
                    reading.stored.end = reading.stored.end.min(empty_from).max(reading.stored.start);
                } else if !waiting.is_empty() {
                    reading.pending = waiting.points();
                    reading.coverage.all_writers = waiting.all_writers;
                    reading.coverage.this_writer = waiting.apart_from_points();
                }
            }
        }
    }

    async fn read(
        &self,
        readings: Vec<Option<Reading>>,
        table: &PolicyTable,
    ) -> Result<Vec<Option<FetchedSeries>>, FetchError> {
        // Everything that is wanted of the store, in order: each reading's own slots, what its derivation
        // needs, then what older policies have.
        let mut fetches = Vec::new();
        let mut plans: Vec<Option<ReadPlan<'_>>> = Vec::with_capacity(readings.len());
        let mut older = Vec::new();
        {
            let names = self.registry.read();
            let fetch = |reading: &Reading, policy: &Policy, table: Table, slots: &Range<Slot>| Fetch {
                metric: reading.metric,
                name: names.name(reading.metric).to_owned(),
                table,
                first_slot: slots.start,
                end_slot: slots.end,
                aggregation: policy.aggregation,
            };
            for reading in &readings {
                let Some(reading) = reading else {
                    plans.push(None);
                    continue;
                };
                if !reading.stored.is_empty() {
                    fetches.push(fetch(reading, &reading.policy, reading.table(), &reading.stored));
                }
                let plan = (!reading.pending.is_empty())
                    .then(|| ReadPlan::new(&reading.policy, &reading.pending, reading.coverage, reading.choice.stage));
                for need in plan.iter().flat_map(|plan| plan.needs()) {
                    let from = reading.policy.retention.table(need.stage);
                    fetches.push(fetch(reading, &reading.policy, from, &need.slots));
                }
                plans.push(plan);
            }
            for (place, reading) in readings.iter().enumerate() {
                let Some(reading) = reading.as_ref().filter(|reading| reading.history.len() > 1) else { continue };
                for part in older_parts(place, reading, table) {
                    fetches.push(fetch(reading, &part.policy, part.policy.retention.table(part.stage), &part.slots));
                    older.push(part);
                }
            }
        }
        // What others stored is not known then; what came here is what there is to tell.
        let is_held = readings.iter().flatten().all(|reading| reading.is_held);
        let count = fetches.len();
        let cells = match count {
            0 => Vec::new(),
            _ if is_held && self.is_store_away() => vec![Cells::default(); count],
            _ => match self.store.points.fetch(fetches).await {
                Ok(cells) => cells,
                Err(StoreError::Unavailable(_) | StoreError::Io { .. }) if is_held => vec![Cells::default(); count],
                Err(error) => return Err(error.into()),
            },
        };
        let mut cells = cells.into_iter();
        let mut answers: Vec<Option<FetchedSeries>> = Vec::with_capacity(readings.len());
        for (reading, plan) in readings.iter().zip(plans) {
            answers.push(reading.as_ref().map(|reading| answer(reading, plan, &mut cells)));
        }
        for (part, cells) in older.into_iter().zip(cells) {
            if let (Some(reading), Some(answer)) = (&readings[part.reading], &mut answers[part.reading]) {
                fill_from_older(reading, &part, &cells, &mut answer.values);
            }
        }
        Ok(answers)
    }
}

/// One series from what is held and what was read.
fn answer(reading: &Reading, plan: Option<ReadPlan<'_>>, cells: &mut impl Iterator<Item = Cells>) -> FetchedSeries {
    let stage = reading.stage();
    let stored = if reading.stored.is_empty() { Cells::default() } else { cells.next().unwrap_or_default() };
    let values = if reading.choice.stage == 0 {
        // The stored slots begin at the first one wanted and may end early. What is held is newer.
        let mut values = stored.values;
        values.resize(reading.choice.slots.len(), f64::NAN);
        for (value, &held) in values.iter_mut().zip(reading.held.iter().flatten()) {
            if !held.is_nan() {
                *value = held;
            }
        }
        values
    } else {
        let expected = stage.resolution() / reading.policy.retention.finest().resolution();
        let mut partials = vec![Partial::NONE; reading.choice.slots.len()];
        for ((partial, &value), &count) in partials.iter_mut().zip(&stored.values).zip(&stored.counts) {
            if !value.is_nan() {
                *partial = Partial { value, count };
            }
        }
        if let Some(plan) = plan {
            let needed: Vec<Cells> = cells.take(plan.needs().len()).collect();
            let needed: Vec<_> = needed.iter().map(|cells| (&cells.values[..], &cells.counts[..])).collect();
            for derived in plan.derive(&needed).iter().filter(|derived| derived.stage == reading.choice.stage) {
                for (i, (&value, &count)) in derived.values.iter().zip(&derived.counts).enumerate() {
                    let place = (derived.first_slot + i as u32).checked_sub(reading.choice.slots.start);
                    let partial = place.and_then(|place| partials.get_mut(place as usize));
                    if let Some(partial) = partial.filter(|_| count > 0) {
                        *partial = Partial { value, count };
                    }
                }
            }
        }
        let finish = |partial| reading.policy.aggregation.finish(partial, expected, reading.policy.x_files_factor);
        partials.into_iter().map(finish).collect()
    };
    FetchedSeries {
        start: stage.time(reading.choice.slots.start),
        step: stage.resolution(),
        values,
        aggregation: reading.policy.aggregation,
    }
}

/// What of a window older policies kept, in tables that the current policy's stage does not read anyway.
fn older_parts(place: usize, reading: &Reading, table: &PolicyTable) -> Vec<Older> {
    let stage = reading.stage();
    let from = stage.time(reading.choice.slots.start);
    let until = stage.time(reading.choice.slots.end);
    let mut parts = Vec::new();
    for spans in reading.history.windows(2) {
        let (began, ended) = (spans[0].since, spans[1].since);
        let Some(policy) = table.all.get(usize::from(spans[0].policy)) else { continue };
        // Late points of that time may have come after the change, under the newer policy; so the older one
        // is asked for its whole time, and only fills what the newer one leaves empty.
        let (from, until) = (from.max(began - policy.retention.longest().duration()), until.min(ended + 1));
        if from >= until {
            continue;
        }
        // The stage that an age asks for is the reader's affair; all of its stages are tried, the one whose
        // step is nearest below the answer's first.
        let stages = policy.retention.stages();
        // What it has in this very table is read anyway, and the empty slots of that are empty.
        if (0..stages.len()).any(|index| policy.retention.table(index) == reading.table()) {
            continue;
        }
        let best = stages.iter().rposition(|older| older.resolution() <= stage.resolution()).unwrap_or(0);
        let order = std::iter::once(best).chain((0..stages.len()).filter(|&other| other != best));
        for index in order {
            let older = stages[index];
            let (Some(first), Some(last)) = (older.slot(from), older.slot(until - 1)) else { continue };
            parts.push(Older { reading: place, policy: policy.clone(), stage: index, slots: first..last + 1 });
        }
    }
    parts
}

/// Fills empty values from what an older policy's stage had: a value of a coarser step at its own time, the
/// values of a finer step aggregated by the older policy's method.
fn fill_from_older(reading: &Reading, part: &Older, cells: &Cells, values: &mut [f64]) {
    let (older, stage) = (part.policy.retention.stages()[part.stage], reading.stage());
    let finest = part.policy.retention.finest().resolution();
    let method = part.policy.aggregation;
    let x_files_factor = part.policy.x_files_factor;
    let expected = older.resolution() / finest;
    let place_of = |time: Timestamp| {
        let slot = stage.slot(time)?.checked_sub(reading.choice.slots.start)?;
        (usize::try_from(slot).ok()? < values.len()).then_some(slot as usize)
    };
    let mut folded: Option<(usize, Partial)> = None;
    let mut fills: Vec<(usize, f64)> = Vec::new();
    let wanted = (stage.resolution() / finest).max(1);
    for (i, &value) in cells.values.iter().enumerate().filter(|(_, value)| !value.is_nan()) {
        let partial = Partial { value, count: cells.counts.get(i).copied().unwrap_or(1) };
        let Some(place) = place_of(older.time(part.slots.start + i as u32)) else { continue };
        if older.resolution() >= stage.resolution() {
            fills.push((place, method.finish(partial, expected, x_files_factor)));
            continue;
        }
        folded = match folded {
            Some((at, all)) if at == place => Some((at, method.merge(all, partial))),
            other => {
                fills.extend(other.map(|(at, all)| (at, method.finish(all, wanted, x_files_factor))));
                Some((place, partial))
            }
        };
    }
    fills.extend(folded.map(|(at, all)| (at, method.finish(all, wanted, x_files_factor))));
    for (place, value) in fills {
        if values[place].is_nan() {
            values[place] = value;
        }
    }
}

#[cfg(test)]
mod tests {
    use metric::Window;

    use super::*;

    const NOW: Timestamp = 1_700_000_030;

    fn choice(from: Timestamp, until: Timestamp, max_points: usize) -> Option<(usize, Timestamp, Timestamp)> {
        let policy = Policy { retention: "60*60s:48*3600s".parse().unwrap(), ..Policy::default() };
        let request = SeriesRequest { metric: MetricId(0), window: Window::between(from, until), now: NOW, max_points };
        let choice = choose(&policy, &request)?;
        let stage = policy.retention.stages()[choice.stage];
        Some((choice.stage, stage.time(choice.slots.start), stage.time(choice.slots.end)))
    }

    #[test]
    fn the_window_is_open_at_from_and_closed_at_until() {
        let minute = NOW - NOW % 60;
        assert_eq!(choice(minute - 600, minute - 60, 1000), Some((0, minute - 540, minute)));
        assert_eq!(choice(minute - 601, minute - 61, 1000), Some((0, minute - 600, minute - 60)));
        assert_eq!(choice(minute - 60, minute - 30, 1000), Some((0, minute, minute + 60)), "one slot at least");
    }

    #[test]
    fn nothing_is_read_from_the_future_or_from_before_the_retention() {
        assert_eq!(choice(NOW + 1, NOW + 100, 1000), None);
        assert_eq!(choice(NOW - 40 * 86400, NOW - 3 * 86400, 1000), None);
        let minute = NOW - NOW % 60;
        assert_eq!(choice(minute - 60, NOW + 1000, 1000), Some((0, minute, minute + 60)));
    }

    #[test]
    fn too_many_points_make_a_coarser_stage_answer() {
        let hour = NOW - NOW % 3600;
        assert_eq!(choice(NOW - 3000, NOW, 10).unwrap().0, 1);
        assert_eq!(choice(NOW - 3000, NOW, 1000).unwrap().0, 0);
        assert_eq!(choice(NOW - 86400, NOW, 1), Some((1, hour - 82800, hour + 3600)), "the coarsest answers whatever");
    }
}
