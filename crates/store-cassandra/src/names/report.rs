//! Reports of the tables of names: metrics that they cannot hold, and incomplete rows that a scan found.

/// Metrics that the tables cannot hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RejectedNames {
    /// How many, since the start.
    pub metrics: u64,
    /// The latest of them.
    pub example: Option<String>,
}

/// The result of a scan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScanReport {
    /// Metrics with whole rows.
    pub metrics: u64,
    /// Names in `metrics` that `metrics_metadata` does not have.
    pub without_metadata: u64,
    /// Names in `metrics_metadata` that `metrics` does not have: remains of deleted metrics.
    pub without_name: u64,
    /// Names in both without id or config.
    pub partial: u64,
    /// Invalid configs.
    pub unreadable: u64,
    /// A name with an invalid config, and the error.
    pub example: Option<String>,
    /// Metrics whose id is not the one that belongs to their name: their points are not found.
    pub other_ids: u64,
}

impl ScanReport {
    /// Rows that are not metrics.
    pub fn left_out(&self) -> u64 {
        self.without_metadata + self.without_name + self.partial + self.unreadable
    }

    pub(super) fn add(&mut self, other: ScanReport) {
        self.metrics += other.metrics;
        self.without_metadata += other.without_metadata;
        self.without_name += other.without_name;
        self.partial += other.partial;
        self.unreadable += other.unreadable;
        self.example = self.example.take().or(other.example);
        self.other_ids += other.other_ids;
    }
}
