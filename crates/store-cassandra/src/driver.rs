//! The driver: what `store` asks for, handed to the files that do it.

use std::sync::atomic::Ordering;

use metric::Timestamp;
use store::{Cells, DriverFuture, Fetch, PointStore, Run, SharedPoints, Usage};

use crate::{ConnectError, Options, names::Names, points::Points, session};

/// Points and names in Cassandra.
pub struct CassandraDriver {
    pub(crate) options: Options,
    pub(crate) points: Points,
    pub(crate) names: Names,
}

impl CassandraDriver {
    /// Connects to the cluster or clusters.
    ///
    /// # Errors
    /// No contact point answers, or refuses us; the text says why, and what would do.
    pub async fn connect(options: Options) -> Result<CassandraDriver, ConnectError> {
        let (data, meta) = session::connect(&options).await?;
        let points = Points::new(data.clone(), &options);
        let names = Names::new(data, meta, &options);
        Ok(CassandraDriver { options, points, names })
    }

    /// How many batches of points were acknowledged since the start: a large write that is slow is told by it from one
    /// that stands still.
    pub fn acknowledged(&self) -> u64 {
        self.points.acknowledged.load(Ordering::Relaxed)
    }

    /// How many columns for components the tables of names have: a name with fewer components is in them. `None` before they
    /// were looked at.
    pub fn columns(&self) -> Option<usize> {
        self.names.opened.get().map(|tables| tables.opened.components)
    }

    /// The highest timestamp that a row bears which was written since the start, or that [`CassandraDriver::continue_after`]
    /// was told: microseconds since 1970.
    pub fn last_timestamp(&self) -> i64 {
        self.points.timestamps.last()
    }

    /// Rows written from now on bear higher timestamps than this one, whatever the clock says.
    pub fn continue_after(&self, timestamp: i64) {
        self.points.timestamps.continue_after(timestamp);
    }

    /// Why no node of the points' cluster can be reached; `None` while there is a connection to any, whatever that
    /// node can do for us. Asks nobody as long as there is one.
    pub async fn unreachable_reason(&self) -> Option<String> {
        session::away(&self.points.session, &self.options.data).await
    }
}

impl PointStore for CassandraDriver {
    fn write(&self, runs: Vec<Run>) -> DriverFuture<'_, ()> {
        // Taken now and not when the future is first polled: of two calls the later wins.
        let timestamp = self.points.timestamps.take(runs.len());
        Box::pin(async move { self.points.write(&runs, timestamp).await })
    }

    fn fetch(&self, fetches: Vec<Fetch>) -> DriverFuture<'_, Vec<Cells>> {
        Box::pin(async move { self.points.fetch(&fetches).await })
    }

    /// What was written was acknowledged: there is nothing to wait for.
    fn sync(&self) -> DriverFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Rows expire by their own TTL.
    fn expire(&self, _now: Timestamp) -> DriverFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn usage(&self) -> Usage {
        Usage { disk_bytes: 0, memory_bytes: 0, tables: self.points.tables.len() as u64 }
    }
}

impl SharedPoints for CassandraDriver {
    fn writer_partials(&self, totals: Vec<Run>) -> DriverFuture<'_, Vec<Run>> {
        Box::pin(self.points.own_part(totals))
    }
}
