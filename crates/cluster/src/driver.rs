//! The driver of a node over Cassandra: points and names go to its tables, metric ids to the embedded store.

use std::{collections::HashSet, sync::Arc, time::Duration};

use metric::{MetricId, Policy, Retention, Timestamp};
use store::{
    Cells, DriverFuture, Fetch, Identity, JournalMark, LostPolicy, MetricRecord, NameStore, NamesMark, OtherWriters,
    OwnRows, PointStore, Run, SharedPoints, Store, StoreError, Usage,
};
use store_cassandra::SharedTables;

use crate::{
    change_log::{ChangeLog, WRITE_EVERY},
    last_seen::LastSeen,
    tables::Tables,
};

/// How long a deletion waits for its names to be in the log of changes, at most, and then for other nodes to follow: two polls.
const LOGGED: Duration = Duration::from_secs(2);
const FOLLOWED: Duration = Duration::from_millis(1_100);

/// What ingestion writes to. Before Cassandra answers, calls that need it fail at once.
pub(crate) struct ClusterDriver {
    tables: Arc<dyn Tables>,
    local: Store,
    last_seen: Arc<LastSeen>,
    log: Arc<ChangeLog>,
}

/// A metric is in the tables of names of all data centres so many seconds after it was made.
const AT_LEAST_BEFORE: Timestamp = 60;

impl ClusterDriver {
    /// Over a connection that may come up later, and the embedded store of the data folder.
    pub(crate) fn new(
        tables: Arc<dyn Tables>,
        local: Store,
        last_seen: Arc<LastSeen>,
        log: Arc<ChangeLog>,
    ) -> ClusterDriver {
        ClusterDriver { tables, local, last_seen, log }
    }
}

impl PointStore for ClusterDriver {
    fn write(&self, runs: Vec<Run>) -> DriverFuture<'_, ()> {
        Box::pin(async move {
            let driver = self.tables.to_write()?;
            let due = self.last_seen.due(&runs);
            let written = driver.write(runs).await;
            // Queued also after an error: the caller retries the write, and the metric is not due then.
            self.last_seen.written(due);
            written
        })
    }

    fn fetch(&self, fetches: Vec<Fetch>) -> DriverFuture<'_, Vec<Cells>> {
        Box::pin(async move {
            let driver = self.tables.tables()?;
            self.last_seen.read(&fetches);
            driver.fetch(fetches).await
        })
    }

    fn sync(&self) -> DriverFuture<'_, ()> {
        Box::pin(async move { self.tables.tables()?.sync().await })
    }

    fn expire(&self, now: Timestamp) -> DriverFuture<'_, ()> {
        Box::pin(async move {
            // Points from a time without a cluster continue to expire.
            self.local.points.expire(now).await?;
            match self.tables.tables() {
                Ok(driver) => driver.expire(now).await,
                Err(_) => Ok(()),
            }
        })
    }

    fn usage(&self) -> Usage {
        match self.tables.tables() {
            Ok(driver) => Usage { disk_bytes: self.local.points.usage().disk_bytes, ..driver.usage() },
            Err(_) => self.local.points.usage(),
        }
    }
}

impl SharedPoints for ClusterDriver {
    fn other_writers(&self) -> OtherWriters {
        self.tables.other_writers()
    }

    fn writer_partials(&self, totals: Vec<Run>) -> DriverFuture<'_, OwnRows> {
        Box::pin(async move { self.tables.to_write()?.writer_partials(totals).await })
    }

    fn have_others(&self, fetches: Vec<Fetch>) -> DriverFuture<'_, Vec<bool>> {
        Box::pin(async move { self.tables.tables()?.have_others(fetches).await })
    }

    fn has_other_retentions<'a>(&'a self, name: &'a str, retention: &'a Retention) -> DriverFuture<'a, bool> {
        Box::pin(async move {
            let found = self.tables.tables()?.lookup(vec![name.to_owned()]).await?;
            let mut policies = found
                .iter()
                .flat_map(|metric| metric.earlier.iter().map(|change| &change.policy).chain([&metric.policy]));
            Ok(policies.any(|policy| policy.retention != *retention))
        })
    }

    fn deletion_time(&self) -> Timestamp {
        // By the calendar of all that is furthest ahead: points of nodes with that one are of before it.
        self.tables.calendar().now() / 1_000_000
    }

    fn delete_metrics(&self, metrics: Vec<MetricRecord>, at: Timestamp) -> DriverFuture<'_, ()> {
        Box::pin(self.delete_from_tables(metrics, at))
    }

    fn deletion_failed(&self) {
        self.log.deletion_failed();
    }

    fn deleted_elsewhere(&self, names: &[String], logged: i64) {
        if let Ok(tables) = self.tables.tables() {
            tables.deleted_elsewhere(names, logged);
        }
    }

    fn deletions_are_known(&self) -> DriverFuture<'_, ()> {
        Box::pin(async move {
            let logged = async {
                while !self.log.is_empty() {
                    tokio::time::sleep(WRITE_EVERY / 4).await;
                }
            };
            let _ = tokio::time::timeout(LOGGED, logged).await;
            tokio::time::sleep(FOLLOWED).await;
            Ok(())
        })
    }

    fn deletions_are_followed(&self) -> DriverFuture<'_, ()> {
        Box::pin(async move {
            if self.follows() && !self.log.cannot_be_followed() {
                self.log.wait_until_followed().await;
            }
            Ok(())
        })
    }
}

impl ClusterDriver {
    /// Writes metrics to the tables of names, and tells other nodes.
    async fn share(&self, tables: &dyn SharedTables, records: Vec<MetricRecord>) -> Result<(), StoreError> {
        let created: Vec<MetricId> = records.iter().map(|record| record.id).collect();
        self.log.writes(&records);
        tables.put_names(&records).await?;
        self.last_seen.created(&created);
        self.log.created(&records);
        Ok(())
    }

    /// Deletes metrics from the shared tables, and tells other nodes.
    async fn delete_from_tables(&self, metrics: Vec<MetricRecord>, at: Timestamp) -> Result<(), StoreError> {
        // Never before the creation that it ends, which may have the time of a node whose clock is ahead.
        let names: Vec<(String, Timestamp)> =
            metrics.iter().map(|metric| (metric.name.clone(), at.max(metric.created_on))).collect();
        let tables = self.tables.to_write()?;
        let before = tables.last_deletion();
        let deleted = tables.delete_metrics(metrics, at).await;
        self.log.hides(tables.last_deletion());
        // Also after an error, unless nothing was deleted: what is deleted half hides for twenty seconds what others write, until they know of
        // it. A metric whose name is still there is deleted nowhere else.
        if deleted.is_ok() || before != tables.last_deletion() {
            self.log.deleted(names.iter().map(|(name, at)| (name.as_str(), *at)));
        }
        deleted
    }

    /// The names of metrics that others have deleted from the tables. This node has not followed that yet.
    async fn gone(&self, tables: &dyn SharedTables, records: &[MetricRecord]) -> Result<HashSet<String>, StoreError> {
        // What another data centre made just now may not be here yet.
        let made_before = self.tables.calendar().now() / 1_000_000 - AT_LEAST_BEFORE;
        let old = records.iter().filter(|record| record.created_on < made_before);
        let mut absent: HashSet<String> = old.map(|record| record.name.clone()).collect();
        for metric in tables.lookup(absent.iter().cloned().collect()).await? {
            absent.remove(&metric.name);
        }
        if absent.is_empty() {
            return Ok(absent);
        }
        Ok(tables.deleted(absent.into_iter().collect()).await?.into_iter().collect())
    }

    /// Whether this node follows what others change: one without an id of its own does not.
    fn follows(&self) -> bool {
        self.tables.is_up() && self.tables.own().is_some()
    }
}

impl NameStore for ClusterDriver {
    fn identity(&self) -> Identity {
        self.local.names.identity()
    }

    fn begin(&self, first_id: MetricId) -> DriverFuture<'_, Identity> {
        self.local.names.begin(first_id)
    }

    fn put_opening(&self) -> Result<(), StoreError> {
        self.local.names.put_opening()
    }

    fn names_mark(&self) -> Option<NamesMark> {
        self.local.names.names_mark()
    }

    fn next_id(&self) -> MetricId {
        self.local.names.next_id()
    }

    fn lost_policies(&self) -> Vec<LostPolicy> {
        self.local.names.lost_policies()
    }

    fn set_lost_policy(&self, number: u16, policy: &Policy, how: &str) {
        self.local.names.set_lost_policy(number, policy, how);
    }

    /// Deletes the ids of this node; the rows of the shared tables stay.
    fn delete_metrics(&self, ids: Vec<MetricId>) -> DriverFuture<'_, ()> {
        self.local.names.delete_metrics(ids)
    }

    fn names_are_current(&self) -> DriverFuture<'_, ()> {
        Box::pin(async move {
            if self.follows() {
                self.log.wait_until_followed().await;
            }
            Ok(())
        })
    }

    fn put_metrics(&self, records: Vec<MetricRecord>) -> DriverFuture<'_, ()> {
        Box::pin(async move {
            // Ids first: they belong to this node alone, and must not wait for a cluster that is away.
            self.local.names.put_metrics(records.clone()).await?;
            self.share(self.tables.tables()?, records).await
        })
    }

    fn put_changed_metrics(&self, mut records: Vec<MetricRecord>) -> DriverFuture<'_, ()> {
        Box::pin(async move {
            self.local.names.put_metrics(records.clone()).await?;
            let tables = self.tables.tables()?;
            let gone = self.gone(tables, &records).await?;
            records.retain(|record| !gone.contains(&record.name));
            self.share(tables, records).await
        })
    }

    fn scan_metrics<'a>(&'a self, each: &'a mut (dyn FnMut(Vec<MetricRecord>) + Send)) -> DriverFuture<'a, ()> {
        self.local.names.scan_metrics(each)
    }

    fn sync_metrics(&self) -> DriverFuture<'_, ()> {
        self.local.names.sync_metrics()
    }

    fn journal_mark(&self) -> Option<JournalMark> {
        self.local.names.journal_mark()
    }

    fn set_journal_mark(&self, mark: JournalMark) -> DriverFuture<'_, ()> {
        self.local.names.set_journal_mark(mark)
    }
}

#[cfg(test)]
mod tests {
    use host::ManualClock;
    use metric::Policy;
    use store::{MemoryDriver, PolicyChange, SharedNames as _};
    use store_cassandra::{Calendar, InMemoryTables, Layout};

    use super::*;
    use crate::one_node::{OneNode, Reached};

    #[tokio::test]
    async fn a_change_of_a_policy_makes_no_metric_again_that_was_deleted() {
        let clock = Arc::new(ManualClock::at(100_000));
        let tables = InMemoryTables::default();
        let writer = |number| tables.writer((number, Layout::Rows), clock.clone(), Arc::new(Reached), 0);
        let calendar = Arc::new(Calendar::new(clock.clone()));
        let node = Arc::new(OneNode(writer(1), Calendar::new(clock.clone())));
        let ids = Arc::new(MemoryDriver::new());
        let last_seen = Arc::new(LastSeen::new(clock.clone(), Duration::from_secs(1), 0.0));
        let log = Arc::new(ChangeLog::new(clock.clone(), calendar));
        let driver = ClusterDriver::new(node.clone(), Store::of(ids.clone()), last_seen, log);

        let names = ["here", "deleted", "made just now"];
        let record = |(number, name): (usize, &&str), methods: &[metric::Aggregation]| {
            let change = |&aggregation| PolicyChange { since: 0, policy: Policy { aggregation, ..Policy::default() } };
            let created_on = if *name == "made just now" { 99_970 } else { 90_000 };
            let policies = methods.iter().map(change).collect();
            MetricRecord { id: MetricId(number as u32), name: (*name).to_owned(), created_on, policies }
        };
        let records =
            |methods: &[metric::Aggregation]| names.iter().enumerate().map(|one| record(one, methods)).collect();
        use metric::Aggregation::{Average, Max};
        let first: Vec<MetricRecord> = records(&[Average]);
        driver.put_metrics(first.clone()).await.unwrap();
        writer(2).delete_metrics(first[1..].to_vec(), 0).await.unwrap();
        let changed: Vec<MetricRecord> = records(&[Average, Max]);
        driver.put_changed_metrics(changed.clone()).await.unwrap();

        // What another data centre has made in the last minute may come late.
        let mut there = node.0.lookup(names.map(str::to_owned).to_vec()).await.unwrap();
        there.sort_by(|one, other| one.name.cmp(&other.name));
        let found: Vec<_> = there.iter().map(|metric| (&*metric.name, metric.policy.aggregation)).collect();
        assert_eq!(found, [("here", Max), ("made just now", Max)]);
        // The store of this node has all of them.
        let mut own = Vec::new();
        ids.scan_metrics(&mut |all| own.extend(all)).await.unwrap();
        own.sort_by_key(|record: &MetricRecord| record.id);
        assert_eq!(own, changed);
    }
}
