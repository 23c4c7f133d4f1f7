//! The tables as a node uses them, whatever the way to them: those of Cassandra, and tables in memory for rehearsals.

use store::{DriverFuture, MetricRecord, PointStore, SharedNames, SharedPoints};

use crate::{
    CassandraDriver,
    peers::{Change, ListedChange},
};

/// Points, names, and the log of names that came and went.
pub trait SharedTables: PointStore + SharedPoints + SharedNames {
    /// See [`CassandraDriver::put_names`].
    fn put_names<'a>(&'a self, records: &'a [MetricRecord]) -> DriverFuture<'a, ()>;

    /// See [`CassandraDriver::deleted`].
    fn deleted(&self, names: Vec<String>) -> DriverFuture<'_, Vec<String>>;

    /// See [`CassandraDriver::last_timestamp`].
    fn last_timestamp(&self) -> i64;

    /// See [`CassandraDriver::last_deletion`].
    fn last_deletion(&self) -> i64;

    /// See [`CassandraDriver::append_changes`].
    fn append_changes<'a>(&'a self, bucket: i64, rows: &'a [Change]) -> DriverFuture<'a, ()>;

    /// See [`CassandraDriver::list_changes`].
    fn list_changes(&self, bucket: i64, since: i64) -> DriverFuture<'_, Vec<ListedChange>>;

    /// See [`CassandraDriver::changes`].
    fn changes(&self, bucket: i64, first: i64, last: i64) -> DriverFuture<'_, Vec<Change>>;
}

impl SharedTables for CassandraDriver {
    fn put_names<'a>(&'a self, records: &'a [MetricRecord]) -> DriverFuture<'a, ()> {
        Box::pin(CassandraDriver::put_names(self, records))
    }

    fn deleted(&self, names: Vec<String>) -> DriverFuture<'_, Vec<String>> {
        Box::pin(CassandraDriver::deleted(self, names))
    }

    fn last_timestamp(&self) -> i64 {
        CassandraDriver::last_timestamp(self)
    }

    fn last_deletion(&self) -> i64 {
        CassandraDriver::last_deletion(self)
    }

    fn append_changes<'a>(&'a self, bucket: i64, rows: &'a [Change]) -> DriverFuture<'a, ()> {
        Box::pin(CassandraDriver::append_changes(self, bucket, rows))
    }

    fn list_changes(&self, bucket: i64, since: i64) -> DriverFuture<'_, Vec<ListedChange>> {
        Box::pin(CassandraDriver::list_changes(self, bucket, since))
    }

    fn changes(&self, bucket: i64, first: i64, last: i64) -> DriverFuture<'_, Vec<Change>> {
        Box::pin(CassandraDriver::changes(self, bucket, first, last))
    }
}
