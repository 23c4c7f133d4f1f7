//! Metrics that are deleted, by a user or because they expired.
//!
//! 1. The journal names the deletion, before any new metric of the same name, and the memtable drops the points. A replay
//!    drops them, too.
//! 2. The registry forgets the name. From here on a point for it makes another metric.
//! 3. The journal is synced, then the store deletes the row of the name. Until it has, no segment is trimmed.
//! 4. Where others write the same tables, names and points are deleted there. After a crash before this step, the name comes
//!    back with the next read of the tables.
//!
//! What another node deleted from shared tables is deleted here by steps 1 to 3. Points of slots that begin after that deletion
//! are accepted again behind it, and make another metric.
//!
//! A crash before the record of step 1 is written leaves every metric of a group, a crash after it none.

use std::{
    collections::HashMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use host::Clock;
use metadata::Registry;
use metric::{MetricId, Policy, ROW_POINTS, Stage, Timestamp};
use store::{MetricRecord, SharedPoints, StoreError};
use tokio::time::error::Elapsed;

use crate::{
    accept::NewMetrics,
    memtable::{LockedMemtable, Memtable},
    registration::{Registration, Turn},
    spill::Spill,
    spilled_deletions::SpilledDeletions,
    wal::{Journal, KeptDeletions},
};

/// Metrics deleted together: senders wait for as long.
const GROUP: usize = 4096;

/// As [`GROUP`], where metrics are also deleted from shared tables: each is dozens of statements, and new names wait for a group.
const SHARED_GROUP: usize = 32;

/// And partitions of theirs: all of a group are deleted with the time at its beginning, and it must end before others write by later times,
/// after twenty seconds.
const SHARED_PARTITIONS: i64 = 16_384;

/// How long a deletion over shared tables waits for points on their way there, and the interval between two looks.
const JOBS_END: Duration = Duration::from_secs(60);
/// The same before it has the turn of the names.
const JOBS_END_BEFORE: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How long a deletion waits for the disk of the journal.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why a deletion is not durable yet.
#[derive(Debug, thiserror::Error)]
pub enum DeletionError {
    /// Metrics of shared tables do not expire here: other programs may send points for them.
    #[error("nothing was deleted: the names are in tables that other programs share")]
    Shared,
    /// The tables that other programs share cannot be written.
    #[error("nothing was deleted: {source}")]
    Away {
        /// The store's error.
        source: StoreError,
    },
    /// The tables that other programs share still have metrics.
    #[error(
        "{deleted} metrics are deleted from this node, but the last of them not from the shared tables; delete them again \
         when this node has read their names there, which it does once it reaches them: {source}"
    )]
    Tables {
        /// Metrics deleted so far.
        deleted: usize,
        /// The store's error.
        source: StoreError,
    },
    /// The store could not be asked which metrics are idle.
    #[error("cannot read which metrics have no points any more: {source}")]
    Read {
        /// The store's error.
        source: StoreError,
    },
    /// The journal.
    #[error(
        "{deleted} metrics are deleted from memory, but the journal cannot be written, so that a crash would bring \
         the last of them back; see the log: {source}"
    )]
    Journal {
        /// Metrics deleted so far.
        deleted: usize,
        /// The system's error.
        source: io::Error,
    },
    /// The store.
    #[error(
        "{deleted} metrics are deleted from memory and the journal, but not from the store, which is retried: {source}"
    )]
    Store {
        /// Metrics deleted so far.
        deleted: usize,
        /// The store's error.
        source: StoreError,
    },
}

/// Which of the given metrics are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition<'a> {
    /// All of them.
    Always,
    /// Those without points in memory.
    WithoutPoints,
    /// All of them, from this process alone: others have deleted them from the tables.
    DeletedElsewhere {
        /// When, Unix seconds.
        at: &'a HashMap<MetricId, Timestamp>,
        /// The time of its row in the log of changes, microseconds since 1970.
        logged: i64,
    },
}

/// What a call deletes together.
struct Groups<'a> {
    metrics: &'a [MetricId],
    registry: &'a Registry,
    is_of_tables: bool,
}

impl<'a> Iterator for Groups<'a> {
    type Item = &'a [MetricId];

    fn next(&mut self) -> Option<&'a [MetricId]> {
        let most = if self.is_of_tables { SHARED_GROUP } else { GROUP };
        let mut size = self.metrics.len().min(most);
        if self.is_of_tables {
            let mut partitions = 0;
            let fits = |metric: &&MetricId| {
                partitions += partitions_of(self.registry, **metric);
                partitions <= SHARED_PARTITIONS
            };
            size = self.metrics[..size].iter().take_while(fits).count().max(size.min(1));
        }
        let (group, left) = self.metrics.split_at_checked(size).filter(|(group, _)| !group.is_empty())?;
        self.metrics = left;
        Some(group)
    }
}

/// Partitions of shared tables that may have points of a metric, roughly.
fn partitions_of(registry: &Registry, metric: MetricId) -> i64 {
    let Some(history) = registry.policies(metric) else { return 0 };
    let of_policy = |policy: Arc<Policy>| {
        let longest = policy.retention.longest().duration();
        let of_stage =
            |stage: &Stage| (stage.duration() + longest) / (i64::from(stage.resolution()) * i64::from(ROW_POINTS)) + 2;
        policy.retention.stages().iter().map(of_stage).sum::<i64>()
    };
    history.iter().map(|span| of_policy(registry.policy(span.policy))).sum()
}

/// A point in memory whose slot begins after the deletion of its metric.
pub(crate) struct LaterPoint {
    pub(crate) name: String,
    pub(crate) time: Timestamp,
    pub(crate) value: f64,
    /// When the metric was deleted, Unix seconds.
    pub(crate) deleted_at: Timestamp,
}

/// Deletes metrics.
pub(crate) struct Deletion {
    pub(crate) registry: Arc<Registry>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) memtable: Arc<Memtable>,
    pub(crate) registration: Arc<Registration>,
    /// The tables, where others write them too.
    pub(crate) shared: Option<Arc<dyn SharedPoints>>,
    pub(crate) clock: Arc<dyn Clock>,
    /// What is deleted while segments are kept that were not read whole.
    pub(crate) kept: Arc<KeptDeletions>,
    pub(crate) spill: Arc<Spill>,
    /// What others delete while points are spilled.
    pub(crate) spilled: Arc<SpilledDeletions>,
    pub(crate) new_metrics: Arc<NewMetrics>,
    pub(crate) counters: DeletionCounters,
}

/// What deletions did, and how far the current ones are.
#[derive(Debug, Default)]
pub(crate) struct DeletionCounters {
    deleted: AtomicU64,
    /// Those of them that were idle.
    idle: AtomicU64,
    /// Metrics of the deletions that have not ended.
    asked: AtomicU64,
    done: AtomicU64,
}

impl Deletion {
    /// Metrics deleted since the start.
    pub(crate) fn deleted(&self) -> u64 {
        self.counters.deleted.load(Relaxed)
    }

    /// Metrics deleted since the start because they had no points for long.
    pub(crate) fn expired(&self) -> u64 {
        self.counters.idle.load(Relaxed)
    }

    /// Metrics of the current deletions that are done, and all of them.
    pub(crate) fn progress(&self) -> (u64, u64) {
        (self.counters.done.load(Relaxed), self.counters.asked.load(Relaxed))
    }

    /// Deletes metrics; returns how many there were.
    pub(crate) async fn delete(&self, metrics: &[MetricId], condition: Condition<'_>) -> Result<usize, DeletionError> {
        let deleted = self.delete_all(metrics, condition, None, &mut Vec::new()).await?;
        if let Some(shared) = self.shared.as_ref().filter(|_| 0 < deleted) {
            // It is deleted, whatever others know.
            let _ = shared.deletions_are_known().await;
        }
        Ok(deleted)
    }

    /// Deletes metrics from this process that another one deleted from the tables, at these times, Unix seconds. `logged` is the time of its row
    /// in the log of changes, microseconds since 1970. Adds points of slots that begin later to `later`, for the caller to accept again.
    pub(crate) async fn delete_followed(
        &self,
        metrics: &[(MetricId, Timestamp)],
        logged: i64,
        turn: &Turn,
        later: &mut Vec<LaterPoint>,
    ) -> Result<usize, DeletionError> {
        let ids: Vec<MetricId> = metrics.iter().map(|&(id, _)| id).collect();
        let times: HashMap<MetricId, Timestamp> = metrics.iter().copied().collect();
        let condition = Condition::DeletedElsewhere { at: &times, logged };
        self.delete_all(&ids, condition, Some(turn), later).await
    }

    async fn delete_all(
        &self,
        metrics: &[MetricId],
        condition: Condition<'_>,
        turn: Option<&Turn>,
        later: &mut Vec<LaterPoint>,
    ) -> Result<usize, DeletionError> {
        let is_for_all = !matches!(condition, Condition::DeletedElsewhere { .. });
        if let Some(shared) = self.shared.as_ref().filter(|_| is_for_all) {
            if condition == Condition::WithoutPoints {
                return Err(DeletionError::Shared);
            }
            // Deletes nothing, and shows that the tables can be written.
            shared.delete_metrics(Vec::new(), 0).await.map_err(|source| DeletionError::Away { source })?;
        }
        let DeletionCounters { asked, done, .. } = &self.counters;
        asked.fetch_add(metrics.len() as u64, Relaxed);
        let (mut deleted, mut counted) = (0, 0);
        let mut ended = Ok(());
        let is_of_tables = is_for_all && self.shared.is_some();
        for group in (Groups { metrics, registry: &self.registry, is_of_tables }) {
            ended = self.delete_group(group, condition, turn, &mut deleted, later).await;
            if ended.is_err() {
                break;
            }
            counted += group.len() as u64;
            done.fetch_add(group.len() as u64, Relaxed);
        }
        asked.fetch_sub(metrics.len() as u64, Relaxed);
        done.fetch_sub(counted, Relaxed);
        ended.map(|()| deleted)
    }

    async fn delete_group(
        &self,
        group: &[MetricId],
        condition: Condition<'_>,
        turn: Option<&Turn>,
        deleted: &mut usize,
        later: &mut Vec<LaterPoint>,
    ) -> Result<(), DeletionError> {
        let is_for_all = !matches!(condition, Condition::DeletedElsewhere { .. });
        // Until the store has deleted the names, no cycle may trim the record of the deletion.
        let own_turn;
        let turn = match turn {
            Some(turn) => turn,
            None => {
                own_turn = match is_for_all && self.shared.is_some() {
                    true => self.turn_without_jobs(group).await,
                    false => self.registration.turn().await,
                };
                &own_turn
            }
        };
        self.note(group).await.map_err(|source| DeletionError::Journal { deleted: *deleted, source })?;
        let gone: Vec<MetricId> = {
            let mut memtable = self.memtable.lock();
            let names = self.registry.read();
            let exists = |id: &MetricId| !names.name(*id).is_empty();
            let is_meant = |id: &MetricId| condition != Condition::WithoutPoints || memtable.is_idle(*id);
            let gone: Vec<MetricId> = group.iter().copied().filter(exists).filter(is_meant).collect();
            if let Condition::DeletedElsewhere { at, .. } = condition {
                for id in &gone {
                    let policy = names.policy_id(*id);
                    let points = memtable.view(*id, policy).points();
                    let retention = &self.registry.policy(policy).retention;
                    let deleted_at = at[id];
                    let newer = points.staged_times(retention).filter(|(_, time, _)| deleted_at < *time);
                    let name = names.name(*id);
                    if 0 < self.spill.points() {
                        self.spilled.note(*id, name, deleted_at, i64::from(retention.finest().resolution()));
                    }
                    later.extend(newer.map(|(_, time, value)| LaterPoint {
                        name: name.to_owned(),
                        time,
                        value,
                        deleted_at,
                    }));
                }
            }
            let now = self.clock.now();
            if is_for_all && !self.spilled.is_empty() {
                gone.iter().for_each(|&id| self.spilled.note_later(names.name(id), now));
            }
            drop(names);
            gone.iter().for_each(|&id| self.journal.name_deletion(id, now));
            memtable.delete(&gone);
            gone
        };
        if gone.is_empty() {
            return Ok(());
        }
        self.registration.add_deleted(gone.iter().copied());
        let records = self.shared.as_ref().map(|_| self.registry.records(&gone));
        // Before the names are removed: one that comes again while this deletion runs is of after it, for every process.
        let at = self.shared.as_ref().filter(|_| is_for_all).map_or(0, |shared| shared.deletion_time());
        if is_for_all && let Some(records) = &records {
            let deletions = records.iter().map(|record| (record.name.as_str(), at.max(record.created_on)));
            self.new_metrics.note_deletions(deletions, self.clock.now().min(at));
        }
        let logged = match condition {
            Condition::DeletedElsewhere { logged, .. } => Some(logged),
            _ => None,
        };
        let followed = logged.zip(self.shared.clone());
        let names = followed.as_ref().map(|_| records.iter().flatten().map(|record| record.name.clone()).collect());
        let names: Vec<String> = names.unwrap_or_default();
        let (new_metrics, ids) = (self.new_metrics.clone(), gone.clone());
        let removed = host::spawn_blocking(move || {
            let removed = new_metrics.remove(&ids);
            // Not before: a flush may still write points of before the deletion, which it hides. Those that come now it must not hide.
            if let Some((logged, shared)) = followed {
                shared.deleted_elsewhere(&names, logged);
            }
            removed
        })
        .await;
        let removed = removed.expect("a removal has no reason to panic");
        *deleted += removed;
        self.counters.deleted.fetch_add(removed as u64, Relaxed);
        if condition == Condition::WithoutPoints {
            self.counters.idle.fetch_add(removed as u64, Relaxed);
        }
        let for_all = is_for_all.then(|| (records.unwrap_or_default(), at));
        let ended = self.delete_removed(&gone, for_all, turn, *deleted).await;
        if ended.is_err()
            && let Some(shared) = self.shared.as_ref().filter(|_| is_for_all)
        {
            shared.deletion_failed();
        }
        ended
    }

    /// Deletes metrics from the journal and the store whose names are removed, and from the tables those that are deleted for all, as of this
    /// time.
    async fn delete_removed(
        &self,
        gone: &[MetricId],
        for_all: Option<(Vec<MetricRecord>, Timestamp)>,
        turn: &Turn,
        deleted: usize,
    ) -> Result<(), DeletionError> {
        let in_journal = async {
            self.journal.append_names().await?;
            let synced = tokio::time::timeout(PATIENCE, self.journal.synced()).await;
            synced.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))
        };
        in_journal.await.map_err(|source| DeletionError::Journal { deleted, source })?;
        let in_store = self.registration.delete_queued(turn).await;
        in_store.map_err(|source| DeletionError::Store { deleted, source })?;
        let Some((records, at)) = for_all else { return Ok(()) };
        let in_tables = self.delete_from_tables(gone, records, at).await;
        in_tables.map_err(|source| DeletionError::Tables { deleted, source })
    }

    /// Notes that metrics are deleted, where points of theirs may be put back later.
    async fn note(&self, group: &[MetricId]) -> io::Result<()> {
        if !self.kept.is_asking() {
            return Ok(());
        }
        let named: Vec<(MetricId, String)> = {
            let names = self.registry.read();
            group.iter().map(|&metric| (metric, names.name(metric).to_owned())).collect()
        };
        let (kept, now) = (self.kept.clone(), self.clock.now());
        let note = move |_: &Journal| kept.note(named.iter().map(|(metric, name)| (*metric, &**name)), now);
        self.journal.elsewhere(note).await?
    }

    /// Deletes metrics for all who share the tables. Their ids are made of their names: points that are still on their way would
    /// come back with the name.
    async fn delete_from_tables(
        &self,
        gone: &[MetricId],
        records: Vec<MetricRecord>,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let Some(shared) = &self.shared else { return Ok(()) };
        let ended = self.end_of_jobs(gone, JOBS_END, |memtable, metric| memtable.has_points(metric)).await;
        ended.map_err(|_| StoreError::Unavailable("points of them are still on their way there".to_owned()))?;
        shared.delete_metrics(records, at).await
    }

    /// The turn of the names, once no points of these metrics are on their way to the store, where that is soon. A write of points may wait for
    /// what others deleted to be followed, which needs the turn, and a deletion waits for that write.
    async fn turn_without_jobs(&self, metrics: &[MetricId]) -> Turn {
        let has_job = |memtable: &LockedMemtable<'_>, metric| memtable.has_job(metric);
        let turn = async {
            loop {
                let _ = self.end_of_jobs(metrics, JOBS_END_BEFORE, has_job).await;
                let turn = self.registration.turn().await;
                let memtable = self.memtable.lock();
                if !metrics.iter().any(|&metric| memtable.has_job(metric)) {
                    return turn;
                }
            }
        };
        match tokio::time::timeout(JOBS_END_BEFORE, turn).await {
            Ok(turn) => turn,
            Err(_) => self.registration.turn().await,
        }
    }

    /// Waits until none of these metrics has points on their way to the store, for so long at most.
    async fn end_of_jobs(
        &self,
        metrics: &[MetricId],
        patience: Duration,
        is_left: impl Fn(&LockedMemtable<'_>, MetricId) -> bool,
    ) -> Result<(), Elapsed> {
        let is_any_left = || {
            let memtable = self.memtable.lock();
            metrics.iter().any(|&metric| is_left(&memtable, metric))
        };
        let end = async {
            self.memtable.may_take().await;
            while is_any_left() {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        tokio::time::timeout(patience, end).await
    }
}
