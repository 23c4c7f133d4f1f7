//! The driver's calls on names, passed to the module `names`.

use store::{DriverFuture, EachBatch, MetricRecord, ScanPace, SharedMetric, SharedNames, SharedNode, StoreError};

use crate::{
    CassandraDriver,
    names::{RejectedNames, ScanReport, Touch},
};

impl CassandraDriver {
    /// Checks the tables before the first write; a node calls this at its start. Adds `spec` and `writers` where
    /// another program created the tables.
    ///
    /// # Errors
    /// `Spec` where the tables have another layout: the text has what was found and what was expected. `Unavailable` where
    /// the keyspaces are missing or cannot be reached.
    pub async fn verify(&self) -> Result<(), StoreError> {
        self.names.tables().await.map(drop)
    }

    /// Writes the rows of metrics and of the directories above them, without the ids. Existing
    /// rows are written again unchanged.
    ///
    /// # Errors
    /// The cluster failed; any part may be written, and the caller retries all of them.
    pub async fn put_names(&self, records: &[MetricRecord]) -> Result<(), StoreError> {
        self.names.put(records).await
    }

    /// Metrics that the tables cannot hold, since the start.
    pub fn rejected_names(&self) -> RejectedNames {
        self.names.rejected()
    }

    /// Which of the names that a scan missed were deleted. A scan asks as few replicas as the settings say, and one of them
    /// may lack a name: this asks a majority. A name with more components than the tables have columns is never in them,
    /// and not deleted.
    ///
    /// # Errors
    /// The cluster cannot answer for all of them.
    pub async fn deleted(&self, names: Vec<String>) -> Result<Vec<String>, StoreError> {
        self.names.deleted(names).await
    }

    /// The report of the latest complete [`SharedNames::scan`].
    pub fn last_scan(&self) -> Option<ScanReport> {
        self.names.last_scan()
    }
}

impl SharedNames for CassandraDriver {
    fn scan<'a>(&'a self, pace: ScanPace, each: EachBatch<'a>) -> DriverFuture<'a, ()> {
        Box::pin(self.names.scan(pace, each))
    }

    fn lookup(&self, names: Vec<String>) -> DriverFuture<'_, Vec<SharedMetric>> {
        Box::pin(async move { self.names.lookup(&names).await })
    }

    fn mark_updated(&self, names: Vec<String>) -> DriverFuture<'_, ()> {
        Box::pin(async move { self.names.touch(&names, Touch::Updated).await })
    }

    fn mark_read(&self, names: Vec<String>) -> DriverFuture<'_, ()> {
        Box::pin(async move { self.names.touch(&names, Touch::Read).await })
    }

    fn find(&self, pattern: &str, limit: usize) -> DriverFuture<'_, Vec<SharedNode>> {
        let pattern = pattern.to_owned();
        Box::pin(async move { self.names.find(&pattern, limit).await })
    }
}
