//! The driver: the traits of `store`, each call passed to the module that implements it.

use std::sync::{Arc, atomic::Ordering};

use metric::Timestamp;
use store::{Cells, DriverFuture, Fetch, MetricRecord, OwnRows, PointStore, Run, SharedPoints, Usage};

use crate::{
    Calendar, ConnectError, Layout, Options, names::Names, peers::Peers, points::Points, rows::metric_id, session,
};

/// Points and names in Cassandra.
pub struct CassandraDriver {
    pub(crate) options: Options,
    pub(crate) points: Points,
    pub(crate) names: Names,
    pub(crate) peers: Peers,
}

impl CassandraDriver {
    /// Connects to the cluster or clusters.
    ///
    /// # Errors
    /// No contact point answers, or rejects the login; the text says why, and the next step.
    pub async fn connect(options: Options) -> Result<CassandraDriver, ConnectError> {
        let (data, meta) = session::connect(&options).await?;
        let points = Points::new(data.clone(), &options);
        let names = Names::new(data, meta.clone(), &options);
        let peers = Peers::new(meta, &options);
        Ok(CassandraDriver { options, points, names, peers })
    }

    /// Batches of points acknowledged since the start. While the number grows, a slow write makes progress.
    pub fn acknowledged(&self) -> u64 {
        self.points.acknowledged.load(Ordering::Relaxed)
    }

    /// Columns for components in the tables of names, which hold names with fewer components. `None` before the first use of
    /// the tables.
    pub fn columns(&self) -> Option<usize> {
        self.names.opened.get().map(|tables| tables.opened.components)
    }

    /// The highest timestamp of a row written since the start, or given to [`CassandraDriver::continue_after`]: microseconds
    /// since 1970. Not those of metrics that were deleted less than a minute ago.
    pub fn last_timestamp(&self) -> i64 {
        self.points.timestamps.last()
    }

    /// The time of the latest deletion: microseconds since 1970.
    pub fn last_deletion(&self) -> i64 {
        self.points.timestamps.last_deletion()
    }

    /// Rows written from now on have higher timestamps than this one, whatever the clock says.
    pub fn continue_after(&self, timestamp: i64) {
        self.points.timestamps.continue_after(timestamp);
    }

    /// Rows written from now on have timestamps by this calendar.
    pub fn go_by(&self, calendar: Arc<Calendar>) {
        self.points.timestamps.go_by(calendar);
    }

    /// Why no node of the points' cluster can be reached; `None` while any node is connected, in whatever state. Sends nothing
    /// while one is connected.
    pub async fn unreachable_reason(&self) -> Option<String> {
        session::away(&self.points.session, &self.options.data).await
    }
}

impl PointStore for CassandraDriver {
    fn write(&self, runs: Vec<Run>) -> DriverFuture<'_, ()> {
        // Taken now and not when the future is first polled: of two calls the later wins.
        let times = self.points.timestamps.take_for(&runs);
        Box::pin(async move {
            match self.options.layout {
                Layout::Rows => self.points.write_rows(&runs, times).await,
                Layout::Packed => self.points.write_packed(&runs, times).await,
            }
        })
    }

    fn fetch(&self, fetches: Vec<Fetch>) -> DriverFuture<'_, Vec<Cells>> {
        Box::pin(async move { self.points.fetch(&fetches).await })
    }

    /// Every write was acknowledged already, so there is nothing to wait for.
    fn sync(&self) -> DriverFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Rows expire by their own TTL.
    fn expire(&self, _now: Timestamp) -> DriverFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn usage(&self) -> Usage {
        Usage { disk_bytes: 0, memory_bytes: 0, tables: self.points.tables_len() }
    }
}

impl SharedPoints for CassandraDriver {
    fn writer_partials(&self, totals: Vec<Run>) -> DriverFuture<'_, OwnRows> {
        Box::pin(self.points.writer_partials(totals))
    }

    fn have_others(&self, fetches: Vec<Fetch>) -> DriverFuture<'_, Vec<bool>> {
        Box::pin(self.points.have_others(fetches))
    }

    /// Points first: a name that is left is found, and deleted again.
    fn delete_metrics(&self, metrics: Vec<MetricRecord>, _at: Timestamp) -> DriverFuture<'_, ()> {
        Box::pin(async move {
            self.points.delete(&metrics).await?;
            let names: Vec<String> = metrics.into_iter().map(|metric| metric.name).collect();
            self.names.delete(&names).await
        })
    }

    fn deleted_elsewhere(&self, names: &[String], logged: i64) {
        self.points.timestamps.continue_behind_deletion(names.iter().map(|name| metric_id(name)), logged);
    }
}
