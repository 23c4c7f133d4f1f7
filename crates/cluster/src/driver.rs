//! The driver of a node over Cassandra: points and names go to its tables, metric ids to the embedded store.

use std::sync::Arc;

use metric::{MetricId, Timestamp};
use store::{
    Cells, DriverFuture, Fetch, Identity, JournalMark, MetricRecord, NameStore, NamesMark, PointStore, Run,
    SharedPoints, Store, StoreError, Usage,
};

use crate::{connection::Connection, last_seen::LastSeen};

/// What ingestion writes to. Before Cassandra answers, calls that need it fail at once.
pub(crate) struct ClusterDriver {
    connection: Arc<Connection>,
    local: Store,
    last_seen: Arc<LastSeen>,
}

impl ClusterDriver {
    /// Over a connection that may come up later, and the embedded store of the data folder.
    pub(crate) fn new(connection: Arc<Connection>, local: Store, last_seen: Arc<LastSeen>) -> ClusterDriver {
        ClusterDriver { connection, local, last_seen }
    }
}

impl PointStore for ClusterDriver {
    fn write(&self, runs: Vec<Run>) -> DriverFuture<'_, ()> {
        Box::pin(async move {
            let driver = self.connection.writer()?;
            let due = self.last_seen.due(&runs);
            let written = driver.write(runs).await;
            // Queued also after an error: the caller retries the write, and the metric is not due then.
            self.last_seen.written(due);
            written
        })
    }

    fn fetch(&self, fetches: Vec<Fetch>) -> DriverFuture<'_, Vec<Cells>> {
        Box::pin(async move {
            let driver = self.connection.driver()?;
            self.last_seen.read(&fetches);
            driver.fetch(fetches).await
        })
    }

    fn sync(&self) -> DriverFuture<'_, ()> {
        Box::pin(async move { self.connection.driver()?.sync().await })
    }

    fn expire(&self, now: Timestamp) -> DriverFuture<'_, ()> {
        Box::pin(async move {
            // Points from a time without a cluster continue to expire.
            self.local.points.expire(now).await?;
            match self.connection.driver() {
                Ok(driver) => driver.expire(now).await,
                Err(_) => Ok(()),
            }
        })
    }

    fn usage(&self) -> Usage {
        match self.connection.driver() {
            Ok(driver) => Usage { disk_bytes: self.local.points.usage().disk_bytes, ..driver.usage() },
            Err(_) => self.local.points.usage(),
        }
    }
}

impl SharedPoints for ClusterDriver {
    fn writer_partials(&self, totals: Vec<Run>) -> DriverFuture<'_, Vec<Run>> {
        Box::pin(async move { self.connection.writer()?.writer_partials(totals).await })
    }

    fn delete_metrics(&self, metrics: Vec<MetricRecord>) -> DriverFuture<'_, ()> {
        Box::pin(async move { self.connection.writer()?.delete_metrics(metrics).await })
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

    /// Deletes the ids of this node; the rows of the shared tables stay.
    fn delete_metrics(&self, ids: Vec<MetricId>) -> DriverFuture<'_, ()> {
        self.local.names.delete_metrics(ids)
    }

    fn put_metrics(&self, records: Vec<MetricRecord>) -> DriverFuture<'_, ()> {
        Box::pin(async move {
            // Ids first: they belong to this node alone, and must not wait for a cluster that is away.
            self.local.names.put_metrics(records.clone()).await?;
            let created: Vec<MetricId> = records.iter().map(|record| record.id).collect();
            self.connection.driver()?.put_names(&records).await?;
            self.last_seen.created(&created);
            Ok(())
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
