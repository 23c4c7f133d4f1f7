//! Expiry of metrics: those without points for longer than their longest retention are deleted.
//!
//! When a metric got its last point is kept nowhere: the store is asked, slowly, for metrics without points in memory. What
//! was seen is remembered to the day, so that a pass reads few of many metrics.
//!
//! A metric stays if a read fails or meets damage, if it was created later, if points came while it was read, and for as
//! long as a point that damage may have cost it would keep it.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use metadata::Registry;
use metric::{MetricId, Stage, Table, Timestamp};
use store::{DamageLog, Fetch, LostPoints, StoreError};

use crate::{deletion::DeletionError, ingest::Ingest};

/// Metrics looked at under one lock.
const GROUP: u32 = 4096;

/// Metrics read together, and slots of one read of a metric: at most 24 MiB of cells.
const READ_TOGETHER: usize = 64;
const SLOTS: u32 = 16 << 10;

/// Reads rest this many times as long as they took, and at least this long between two groups of metrics.
const REST: u32 = 9;
const SHORTEST_REST: Duration = Duration::from_millis(2);

const DAY: Timestamp = 86_400;

/// What a pass over all metrics did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pass {
    /// Metrics that the store was asked for.
    pub read: u64,
    /// Metrics that were deleted.
    pub deleted: u64,
    /// Metrics that stay because reading them met damage.
    pub damaged: u64,
}

/// Finds and deletes metrics that have had no points for long.
pub struct IdleMetrics {
    ingest: Arc<Ingest>,
    /// Metrics without points for this long are deleted, if that is less than their retention.
    shortest: Option<Duration>,
    damage: DamageLog,
    /// By id: the day, counted from 1970, on which a metric is known to have had a point; 0 if none is known.
    seen: Vec<u16>,
}

/// A metric that may be idle, and what is still to be read to know.
struct Candidate {
    metric: MetricId,
    fetches: VecDeque<Fetch>,
}

/// What the store has of a candidate.
enum Found {
    Nothing,
    /// A point in the slot that begins at this time.
    Point(Timestamp),
    Damage,
}

impl IdleMetrics {
    /// Knows of no metric yet when it got points.
    pub fn new(ingest: Arc<Ingest>, shortest: Option<Duration>, damage: DamageLog) -> IdleMetrics {
        IdleMetrics { ingest, shortest, damage, seen: Vec::new() }
    }

    /// Looks at every metric once. `time` is the time by which points expire; where it is `None`, which is asked before each
    /// deletion, the pass ends.
    ///
    /// # Errors
    /// The store could not be read, or a deletion is not durable yet; the pass ended there.
    pub async fn pass(&mut self, time: impl Fn() -> Option<Timestamp>) -> Result<Pass, DeletionError> {
        let mut pass = Pass::default();
        let ingest = self.ingest.clone();
        // What a recovery set aside is in no slot.
        self.ingest.stats.memtable.may_take().await;
        let end = self.ingest.registry().read().end();
        self.seen.resize(end.0 as usize, 0);
        for first in (0..end.0).step_by(GROUP as usize) {
            let Some(now) = time() else { return Ok(pass) };
            if self.ingest.stats.back_pressure.is_spilling() {
                return Ok(pass);
            }
            let candidates = self.candidates(first..first.saturating_add(GROUP).min(end.0), now);
            tokio::time::sleep(SHORTEST_REST).await;
            for group in candidates.chunks(READ_TOGETHER) {
                let began = self.ingest.stats.acceptor.clock().instant();
                let noting = Noting::begin(&ingest);
                let group: Vec<Candidate> = group.iter().filter_map(|&metric| self.candidate(metric, now)).collect();
                pass.read += group.len() as u64;
                let mut idle = self.read(group, &mut pass).await.map_err(|source| DeletionError::Read { source })?;
                if time().is_none() {
                    return Ok(pass);
                }
                // The reads, or others meanwhile, may have found damage.
                let lost = self.damage.lost_points();
                idle.retain(|&metric| !self.may_have_lost(metric, &lost, now));
                if !idle.is_empty() {
                    pass.deleted += self.ingest.delete_idle(&idle).await? as u64;
                }
                drop(noting);
                let took = self.ingest.stats.acceptor.clock().instant().saturating_duration_since(began);
                tokio::time::sleep(took * REST).await;
            }
        }
        Ok(pass)
    }

    /// The metrics of a range of ids that the store must be asked for.
    fn candidates(&mut self, ids: std::ops::Range<u32>, now: Timestamp) -> Vec<MetricId> {
        let registry = self.ingest.registry();
        let memtable = self.ingest.stats.memtable.lock();
        let names = registry.read();
        let mut known: Vec<(MetricId, Timestamp)> = Vec::new();
        for id in ids.map(MetricId) {
            if names.name(id).is_empty() {
                continue;
            }
            if !memtable.is_idle(id) {
                self.seen[id.0 as usize] = day(now);
            } else {
                known.push((id, names.created_on(id)));
            }
        }
        drop((names, memtable));
        let lost = self.damage.lost_points();
        let is_due = |&(id, created): &(MetricId, Timestamp)| {
            let window = self.window(registry, id);
            let seen = Timestamp::from(self.seen[id.0 as usize]) * DAY;
            created < now - window && seen < now - window && !self.may_have_lost(id, &lost, now)
        };
        known.into_iter().filter(is_due).map(|(id, _)| id).collect()
    }

    /// Whether a metric may have lost a point to damage that would keep it.
    fn may_have_lost(&self, metric: MetricId, lost: &LostPoints, now: Timestamp) -> bool {
        lost.until(metric).is_some_and(|until| now - self.window(self.ingest.registry(), metric) <= until)
    }

    /// How long a metric may be without points.
    fn window(&self, registry: &Registry, metric: MetricId) -> Timestamp {
        let history = registry.policies(metric);
        let longest = |policy| registry.policy(policy).retention.longest().duration();
        let longest = history.iter().flat_map(|spans| spans.iter()).map(|span| longest(span.policy)).max();
        let shortest = self.shortest.map_or(Timestamp::MAX, |shortest| shortest.as_secs() as Timestamp);
        // A metric that was deleted meanwhile is not due.
        longest.map_or(Timestamp::MAX / 2, |longest| longest.min(shortest))
    }

    /// What to read of a metric; `None` for one that was deleted meanwhile.
    fn candidate(&self, metric: MetricId, now: Timestamp) -> Option<Candidate> {
        let registry = self.ingest.registry();
        let history = registry.policies(metric)?;
        let name = registry.read().name(metric).to_owned();
        let since = now - self.window(registry, metric);
        let latest = self.ingest.time().reached().max(now);
        let table = self.ingest.stats.memtable.policies();
        let mut tables: Vec<Table> = Vec::new();
        let mut fetches = VecDeque::new();
        for span in history.iter().rev() {
            // A policy made this moment is in the registry before it is in the table.
            let policy = table.all.get(usize::from(span.policy)).cloned();
            let policy = policy.unwrap_or_else(|| registry.policy(span.policy));
            let stages = policy.retention.stages();
            // The coarsest first: the fewest slots. All, because a coarse slot may be missing over damage.
            for stage in (0..stages.len()).rev() {
                let table = policy.table(stage);
                if tables.contains(&table) {
                    continue;
                }
                tables.push(table);
                // Points are accepted as far ahead as they are kept.
                let until = latest + policy.retention.longest().duration();
                for slots in pieces(table.stage, since.max(now - table.stage.duration()), latest, until) {
                    let (name, aggregation) = (name.clone(), policy.aggregation);
                    let (first_slot, end_slot) = (slots.start, slots.end);
                    fetches.push_back(Fetch { metric, name, table, first_slot, end_slot, aggregation });
                }
            }
        }
        Some(Candidate { metric, fetches })
    }

    /// Reads until each candidate has a point or there is nothing left to read. Returns those without one.
    async fn read(&mut self, mut group: Vec<Candidate>, pass: &mut Pass) -> Result<Vec<MetricId>, StoreError> {
        let store = self.ingest.stats.reader.store().clone();
        let mut idle = Vec::new();
        while !group.is_empty() {
            let (left, done): (Vec<_>, Vec<_>) = group.into_iter().partition(|candidate| !candidate.fetches.is_empty());
            idle.extend(done.into_iter().map(|candidate| candidate.metric));
            group = left;
            let fetches: Vec<Fetch> = group.iter_mut().filter_map(|candidate| candidate.fetches.pop_front()).collect();
            let answers = store.fetch(fetches.clone()).await?;
            let mut found = fetches.iter().zip(answers).map(|(fetch, cells)| {
                let place = cells.values.iter().rposition(|value| !value.is_nan());
                match place {
                    _ if cells.is_damaged => Found::Damage,
                    Some(place) => Found::Point(fetch.table.stage.time(fetch.first_slot + place as u32)),
                    None => Found::Nothing,
                }
            });
            group.retain(|candidate| match found.next() {
                Some(Found::Nothing) => true,
                Some(Found::Point(time)) => {
                    self.seen[candidate.metric.0 as usize] = day(time);
                    false
                }
                Some(Found::Damage) | None => {
                    pass.damaged += 1;
                    false
                }
            });
        }
        Ok(idle)
    }
}

/// Jobs are noted as they are stored, until this is dropped.
struct Noting<'a>(&'a Ingest);

impl Noting<'_> {
    fn begin(ingest: &Ingest) -> Noting<'_> {
        ingest.stats.memtable.lock().note_stored(true);
        Noting(ingest)
    }
}

impl Drop for Noting<'_> {
    fn drop(&mut self) {
        self.0.stats.memtable.lock().note_stored(false);
    }
}

fn day(time: Timestamp) -> u16 {
    (time / DAY).clamp(0, Timestamp::from(u16::MAX)) as u16
}

/// The slots of a stage from `since` to `latest`, the newest first, and then those up to `until`, in pieces.
fn pieces(stage: Stage, since: Timestamp, latest: Timestamp, until: Timestamp) -> Vec<std::ops::Range<u32>> {
    let slot = |time: Timestamp| stage.slot(time.clamp(0, Timestamp::from(u32::MAX))).unwrap_or(u32::MAX - 1);
    let (first, middle, end) = (slot(since), slot(latest) + 1, slot(until) + 1);
    let mut pieces = Vec::new();
    let mut end_of_piece = middle;
    while first < end_of_piece {
        let begin = end_of_piece.saturating_sub(SLOTS).max(first);
        pieces.push(begin..end_of_piece);
        end_of_piece = begin;
    }
    let mut begin = middle;
    while begin < end {
        let end_of_piece = begin.saturating_add(SLOTS).min(end);
        pieces.push(begin..end_of_piece);
        begin = end_of_piece;
    }
    pieces
}
