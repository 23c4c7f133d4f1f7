//! Follows the names that other nodes create and delete, through the table `changes`.
//!
//! 1. A poll reads the keys that may be new ([`ChangeReads`]), then the rows of those that were not applied.
//! 2. Created names get ids here, unless a deletion of them was applied: then the tables of names decide. A known name is in such a
//!    row where its policy was changed: it is taken over where this node has no points of the metric.
//! 3. Deleted names are looked up: what was created here since and waits to be written there stays, and so does what is in the tables and
//!    was not made again since the deletion, as far as they know. The others are deleted here with their points, except points of slots
//!    that begin after the deletion, which make the metric again. What another node has made again is a new metric here as well.
//!    Where a name was there and is gone at the second look, it was perhaps deleted again: the row of that is waited for.
//! 4. So are names that this node deleted itself: an older creation of another node may be read after the deletion, at each start too.
//!
//! A row counts as applied when all of this succeeded; a failure leaves it to the next poll.

#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use host::{Clock, MinuteLog};
use ingest::Ingest;
use metric::{MetricId, Policy, Timestamp};
use parking_lot::Mutex;
use store::{NameStore, SharedMetric, StoreError};
use store_cassandra::{Change, ChangeKey, Changed, NodeId, SharedTables};

use crate::{
    adopt::adopt,
    change_log::ChangeLog,
    change_reads::{BUCKET, ChangeReads, DEEP_BACK, KeysRead, Poll},
    rescan::Rescan,
    tables::Tables,
};

/// Interval between two polls.
pub(crate) const POLL: Duration = Duration::from_millis(500);

/// Rows read by one statement: 6 MiB at most, unless names are very long.
const ROWS: usize = 64;

/// Deletions that are remembered. Creations of their names are looked up; beyond this number they are shown until the next read of
/// all names.
const DELETIONS: usize = 200_000;

/// Names that are deleted together: points that came later are accepted again before the next ones are deleted.
const DELETED_TOGETHER: usize = 256;

/// Pause before a second look at what the tables did not have as the log says: another data centre may get them later.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// A row that names a metric so many seconds after its creation, or more, is about another policy. A node that was cut off may tell of new names
/// as late.
const AT_LEAST_BEFORE: Timestamp = 600;

/// Counts of following.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    /// Names in rows of other nodes that were applied.
    pub(crate) names: AtomicU64,
    /// Reads of all names that were asked for because rows may have expired.
    pub(crate) scans: AtomicU64,
    /// Polls that failed.
    pub(crate) failures: AtomicU64,
    /// How long after its time the latest row was applied, milliseconds, by both nodes' clocks.
    pub(crate) delay_ms: AtomicI64,
    /// The end of the latest poll that succeeded.
    polled: Mutex<Option<Instant>>,
}

impl Followed {
    /// Time since the latest poll that succeeded.
    pub(crate) fn age(&self, now: Instant) -> Option<Duration> {
        self.polled.lock().map(|polled| now.saturating_duration_since(polled))
    }
}

/// Names, each with the time of its deletion, Unix seconds.
type DeletedNames = Vec<(String, Timestamp)>;

/// Names that were to be deleted, and were not.
struct Doubtful {
    /// When to look again.
    due: Instant,
    /// The time of the row of their deletion.
    logged: i64,
    names: DeletedNames,
    /// Whether they were still in the tables at the first look, and gone at the second.
    are_gone: bool,
}

/// What is known of the rows, by the one task that follows.
#[derive(Default)]
struct State {
    reads: ChangeReads,
    /// Names that were deleted, with the time of their rows.
    deletions: HashMap<String, i64>,
    /// Names that were to be deleted, and were not, in the order in which they are due.
    doubtful: VecDeque<Doubtful>,
    /// Names that were created around a deletion, and were not in the tables; when to look again.
    missing: Vec<(Instant, Vec<String>)>,
    /// Whether a poll has succeeded: what it read may be older than what this node has known since before its start.
    has_polled: bool,
}

/// Follows the table.
pub(crate) struct Follower {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) tables: Arc<dyn Tables>,
    /// Keeps the ids.
    pub(crate) local: Arc<dyn NameStore>,
    pub(crate) ingest: Arc<Ingest>,
    pub(crate) log: Arc<ChangeLog>,
    pub(crate) rescan: Arc<Rescan>,
    pub(crate) followed: Arc<Followed>,
    started: Instant,
    state: tokio::sync::Mutex<State>,
    failures: MinuteLog,
}

impl Follower {
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        tables: Arc<dyn Tables>,
        local: Arc<dyn NameStore>,
        ingest: Arc<Ingest>,
        log: Arc<ChangeLog>,
        rescan: Arc<Rescan>,
    ) -> Follower {
        Follower {
            started: clock.instant(),
            clock,
            tables,
            local,
            ingest,
            log,
            rescan,
            followed: Arc::default(),
            state: tokio::sync::Mutex::default(),
            failures: MinuteLog::new(),
        }
    }

    /// Polls until dropped.
    pub(crate) async fn follow(self: Arc<Follower>) {
        loop {
            if let (Ok(driver), Some(node)) = (self.tables.tables(), self.tables.own()) {
                // What others do while it goes on is for the next one.
                let began = self.clock.instant();
                match self.poll(driver, node).await {
                    Ok(()) => self.log.has_followed(began),
                    Err(error) => {
                        self.log.cannot_follow(began);
                        self.followed.failures.fetch_add(1, Relaxed);
                        if self.failures.is_due(self.clock.instant()).is_some() {
                            tracing::warn!(%error, "cannot follow the names of other nodes; retrying");
                        }
                    }
                }
            }
            let _ = tokio::time::timeout(POLL, self.log.is_asked_to_follow()).await;
        }
    }

    async fn poll(&self, driver: &dyn SharedTables, node: NodeId) -> Result<(), StoreError> {
        let state = &mut *self.state.lock().await;
        let poll = state.reads.next(self.now(), self.watch());
        if state.reads.falls_behind(&poll) {
            self.followed.scans.fetch_add(1, Relaxed);
            tracing::warn!(
                "this node could not follow the names of other nodes for more than an hour, or its clock was set back by minutes; \
                 reading all names"
            );
            self.rescan.ask();
        }
        self.read(driver, node, state, &poll).await?;
        // The tables can be read again by now.
        if state.reads.done(&poll, self.watch()) | self.log.has_failed_deletion() {
            self.rescan.ask();
        }
        state.has_polled = true;
        self.look_again(driver, state).await?;
        *self.followed.polled.lock() = Some(self.clock.instant());
        Ok(())
    }

    async fn read(
        &self,
        driver: &dyn SharedTables,
        node: NodeId,
        state: &mut State,
        poll: &Poll,
    ) -> Result<(), StoreError> {
        for &KeysRead { bucket, since } in &poll.reads {
            let listed = driver.list_changes(bucket, since).await?;
            // Those who wait see that it goes on: the first poll lists more than a hundred partitions.
            self.log.goes_on();
            let keys = state.reads.unapplied(bucket, listed, node);
            for keys in keys.chunks(ROWS) {
                let rows = driver.changes(bucket, keys[0].written, keys[keys.len() - 1].written).await?;
                // Others between them were applied before.
                let wanted: HashSet<&ChangeKey> = keys.iter().collect();
                for row in rows.into_iter().filter(|row| wanted.contains(&row.key)) {
                    let key = row.key;
                    self.apply(driver, node, state, row).await?;
                    self.log.goes_on();
                    state.reads.applied(bucket, key);
                }
                // What is not there any more, or cannot be read, is asked for again for a minute: it may be on its way to some replicas.
                let oldest = self.now() - BUCKET;
                keys.iter().filter(|key| key.written < oldest).for_each(|key| state.reads.applied(bucket, *key));
            }
        }
        Ok(())
    }

    async fn apply(
        &self,
        driver: &dyn SharedTables,
        node: NodeId,
        state: &mut State,
        row: Change,
    ) -> Result<(), StoreError> {
        let Change { key, changed, names } = row;
        if changed == Changed::Deleted {
            self.ingest.note_deletions(names.iter().map(|(name, at)| (name.as_str(), *at)));
        }
        if key.node == node {
            remember(&mut state.deletions, &names, key.written);
            let deleter = if state.has_polled { Deleter::ThisNode } else { Deleter::ThisNodeBefore };
            // The tables had the deletion before the log: there is nothing to look at again.
            return self.delete(driver, names, key.written, deleter).await.map(drop);
        }
        self.log.saw(key.written);
        let count = names.len() as u64;
        match changed {
            Changed::Created(policy) => self.create(driver, state, names, (policy, key.written)).await?,
            Changed::Deleted => {
                remember(&mut state.deletions, &names, key.written);
                let left = self.delete(driver, names, key.written, Deleter::Another).await?;
                if !left.is_empty() {
                    let due = self.clock.instant() + LOOK_AGAIN;
                    state.doubtful.push_back(Doubtful { due, logged: key.written, names: left, are_gone: false });
                }
            }
        }
        self.followed.names.fetch_add(count, Relaxed);
        self.followed.delay_ms.store((self.now() - key.written) / 1000, Relaxed);
        Ok(())
    }

    async fn create(
        &self,
        driver: &dyn SharedTables,
        state: &mut State,
        names: Vec<(String, Timestamp)>,
        (policy, written): (Policy, i64),
    ) -> Result<(), StoreError> {
        // Whichever came first by the rows: the deletion may have reached the tables behind the name, and the log before it.
        let is_doubtful = |name: &str| state.deletions.contains_key(name);
        let (doubtful, created): (Vec<_>, Vec<_>) = names.into_iter().partition(|(name, _)| is_doubtful(name));
        let metric = |(name, created_on)| SharedMetric {
            name,
            policy: policy.clone(),
            since: if is_change(created_on, written) { written / 1_000_000 } else { 0 },
            earlier: Vec::new(),
            created_on: Some(created_on),
            updated_on: None,
        };
        let mut metrics: Vec<SharedMetric> = created.into_iter().map(metric).collect();
        if !doubtful.is_empty() {
            let mut missing: HashSet<String> = doubtful.into_iter().map(|(name, _)| name).collect();
            let found = driver.lookup(missing.iter().cloned().collect()).await?;
            for metric in &found {
                missing.remove(&metric.name);
            }
            if !missing.is_empty() {
                state.missing.push((self.clock.instant() + LOOK_AGAIN, missing.into_iter().collect()));
            }
            metrics.extend(found);
        }
        self.note_created(&metrics);
        let mut asked: HashSet<String> = HashSet::new();
        if !state.has_polled {
            let otherwise = self.ingest.kept_otherwise(&metrics).into_iter().map(|record| record.name);
            asked.extend(otherwise);
            metrics.retain(|metric| !asked.contains(&metric.name));
        }
        // The tables of names have the policies before, where a row comes long after a creation that this node does not know.
        asked.extend(self.unknown(metrics.iter().filter(|metric| 0 < metric.since)));
        if !asked.is_empty() {
            let found = driver.lookup(asked.into_iter().collect()).await?;
            let names: HashSet<&str> = found.iter().map(|metric| metric.name.as_str()).collect();
            metrics.retain(|metric| !names.contains(metric.name.as_str()));
            metrics.extend(found);
        }
        adopt(metrics, &*self.local, &self.ingest).await.map(drop)
    }

    /// A read of all names that is running hides none of these.
    fn note_created(&self, metrics: &[SharedMetric]) {
        let registry = self.ingest.registry();
        self.rescan.created(metrics.iter().map(|metric| registry.hash(metric.name.as_bytes())));
    }

    /// The names of metrics that this node does not know.
    fn unknown<'a>(&self, metrics: impl Iterator<Item = &'a SharedMetric>) -> Vec<String> {
        let registry = self.ingest.registry();
        let names = registry.read();
        let is_unknown = |name: &str| names.find(registry.hash(name.as_bytes()), name.as_bytes()).is_none();
        metrics.map(|metric| &metric.name).filter(|name| is_unknown(name)).cloned().collect()
    }

    /// Deletes from this node the names that are not in the tables, or that were made again there since. Returns the others. What this node
    /// has of these, and of names that it does not know, came after the deletion: its writes are later from now on. So are those of the deleted
    /// ones, once they are gone from here.
    async fn delete(
        &self,
        driver: &dyn SharedTables,
        names: Vec<(String, Timestamp)>,
        logged: i64,
        deleter: Deleter,
    ) -> Result<Vec<(String, Timestamp)>, StoreError> {
        let mut left = Vec::new();
        for group in names.chunks(DELETED_TOGETHER) {
            let (known, unknown): (DeletedNames, DeletedNames) = {
                let registry = self.ingest.registry();
                let shown = registry.read();
                let is_known =
                    |name: &str| shown.find_hidden_too(registry.hash(name.as_bytes()), name.as_bytes()).is_some();
                group.iter().cloned().partition(|(name, _)| is_known(name))
            };
            let unknown: Vec<String> = unknown.into_iter().map(|(name, _)| name).collect();
            driver.deleted_elsewhere(&unknown, logged);
            // The turn may be a second away: this node may be writing thousands of names.
            if !known.is_empty() {
                left.extend(self.delete_group(driver, known, logged, deleter).await?);
                self.log.goes_on();
            }
        }
        Ok(left)
    }

    async fn delete_group(
        &self,
        driver: &dyn SharedTables,
        names: Vec<(String, Timestamp)>,
        logged: i64,
        deleter: Deleter,
    ) -> Result<Vec<(String, Timestamp)>, StoreError> {
        // A name that is just written would be in the tables behind the look, and gone from here.
        let turn = self.ingest.registration_turn().await;
        let unregistered: HashSet<MetricId> = self.ingest.unregistered().into_iter().collect();
        let mut newer = Vec::new();
        let mut known: HashMap<String, (MetricId, Timestamp)> = {
            let registry = self.ingest.registry();
            let shown = registry.read();
            // A read of all names may have found it gone: it comes back under its id, with its points.
            let id = |name: &str| shown.find_hidden_too(registry.hash(name.as_bytes()), name.as_bytes());
            let known = names.into_iter().filter_map(|(name, at)| Some((id(&name)?, name, at)));
            // Points for it came here after this deletion: its rows are still to be written. In the same second it is the one that
            // was deleted, as a journal that is replayed may name it; points of later seconds make it again. A journal does not
            // name what its own node deleted, unless it is that of an earlier copy of the data folder.
            let is_after = |id: MetricId, at| match deleter {
                Deleter::ThisNode => true,
                Deleter::ThisNodeBefore => at <= shown.created_on(id),
                Deleter::Another => at < shown.created_on(id),
            };
            let is_newer = |id: MetricId, at| unregistered.contains(&id) && is_after(id, at);
            let mut older = HashMap::new();
            for (id, name, at) in known {
                match is_newer(id, at) {
                    true => newer.push(name),
                    false => _ = older.insert(name, (id, at)),
                }
            }
            older
        };
        driver.deleted_elsewhere(&newer, logged);
        if known.is_empty() {
            return Ok(Vec::new());
        }
        let gone = driver.deleted(known.keys().cloned().collect()).await?;
        let mut gone: Vec<(MetricId, Timestamp)> = gone.iter().filter_map(|name| known.remove(name)).collect();
        let again = self.made_again(driver, &known).await?;
        gone.extend(again.iter().filter_map(|metric| known.remove(&metric.name)));
        let kept: Vec<String> = known.keys().cloned().collect();
        driver.deleted_elsewhere(&kept, logged);
        let deleted = self.ingest.delete_followed(gone, logged, turn).await;
        self.note_created(&again);
        let adopted = adopt(again, &*self.local, &self.ingest).await;
        if deleted.is_err() || adopted.is_err() {
            // The next poll does not know these names any more.
            self.rescan.ask();
        }
        deleted.map_err(|error| StoreError::Unavailable(format!("deleting what another node deleted: {error}")))?;
        adopted?;
        Ok(known.into_iter().map(|(name, (_, at))| (name, at)).collect())
    }

    /// Those of some deleted names that this node has had since before their deletion and another node has made since: what this node has
    /// of them was deleted all the same.
    async fn made_again(
        &self,
        driver: &dyn SharedTables,
        deleted: &HashMap<String, (MetricId, Timestamp)>,
    ) -> Result<Vec<SharedMetric>, StoreError> {
        let before: Vec<String> = {
            let names = self.ingest.registry().read();
            // One that was made here in the second of the deletion may have been made after it.
            let is_before = |id, at| names.creation(id).is_some_and(|created| created < at);
            deleted.iter().filter(|(_, (id, at))| is_before(*id, *at)).map(|(name, _)| name.clone()).collect()
        };
        if before.is_empty() {
            return Ok(Vec::new());
        }
        let mut found = driver.lookup(before).await?;
        // A replica that lags behind shows the metric that was deleted, and a row of this node is of before, where it could not follow.
        found.retain(|metric| {
            let created = deleted.get(&metric.name).zip(metric.created_on);
            created.is_some_and(|(&(_, at), created)| at <= created) || self.log.wrote_unfollowed(&metric.name)
        });
        Ok(found)
    }

    async fn look_again(&self, driver: &dyn SharedTables, state: &mut State) -> Result<(), StoreError> {
        let now = self.clock.instant();
        while let Some(Doubtful { logged, names, are_gone, .. }) = state.doubtful.front().filter(|one| one.due <= now) {
            let logged = *logged;
            // The row of a later deletion has dealt with the others.
            let is_latest = |name: &str| state.deletions.get(name).is_none_or(|&latest| latest <= logged);
            let names: DeletedNames = names.iter().filter(|(name, _)| is_latest(name)).cloned().collect();
            // With the time of this deletion, points of before the later one would make them again.
            let gone: HashSet<String> = match are_gone {
                true => HashSet::new(),
                false => {
                    let all = names.iter().map(|(name, _)| name.clone()).collect();
                    driver.deleted(all).await?.into_iter().collect()
                }
            };
            let (gone, others): (DeletedNames, DeletedNames) =
                names.into_iter().partition(|(name, _)| gone.contains(name));
            self.delete(driver, others, logged, Deleter::Another).await?;
            state.doubtful.pop_front();
            if !gone.is_empty() {
                let due = now + LOOK_AGAIN;
                state.doubtful.push_back(Doubtful { due, logged, names: gone, are_gone: true });
            }
        }
        while let Some((_, names)) = state.missing.first().filter(|(due, _)| *due <= now) {
            let found = driver.lookup(names.clone()).await?;
            self.note_created(&found);
            adopt(found, &*self.local, &self.ingest).await?;
            state.missing.remove(0);
        }
        Ok(())
    }

    /// As rows are written: by the calendar that is furthest ahead.
    fn now(&self) -> i64 {
        self.tables.calendar().now()
    }

    /// Microseconds since the start, by a stopwatch.
    fn watch(&self) -> i64 {
        self.clock.instant().saturating_duration_since(self.started).as_micros() as i64
    }
}

/// Whether a row of this time, microseconds since 1970, tells of another policy of a metric that was made at this time, Unix seconds.
fn is_change(created_on: Timestamp, written: i64) -> bool {
    created_on < written / 1_000_000 - AT_LEAST_BEFORE
}

/// Which node deleted names from the tables.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Deleter {
    ThisNode,
    /// Before its start.
    ThisNodeBefore,
    Another,
}

/// Remembers deletions, and forgets those that are so old that no row before them is read any more.
fn remember(deletions: &mut HashMap<String, i64>, names: &[(String, Timestamp)], written: i64) {
    if DELETIONS < deletions.len() + names.len() {
        // Twice as far back as a deep poll.
        deletions.retain(|_, at| written - 2 * DEEP_BACK < *at);
        if DELETIONS < deletions.len() + names.len() {
            deletions.clear();
        }
    }
    for (name, _) in names {
        let at = deletions.entry(name.clone()).or_insert(written);
        *at = written.max(*at);
    }
}
