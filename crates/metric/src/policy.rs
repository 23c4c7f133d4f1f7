//! What is done with a metric's points.

use crate::{Aggregation, Retention};

/// How a metric is kept: what `storage-schemas.conf` and `storage-aggregation.conf` say of its name.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// The stages.
    pub retention: Retention,
    /// How coarser stages are made.
    pub aggregation: Aggregation,
    /// The part of a coarse slot that must be known, 0 to 1.
    pub x_files_factor: f64,
}

/// Carbon's defaults: a week of minutes, averaged, half of them known.
impl Default for Policy {
    fn default() -> Policy {
        Policy {
            retention: "10080*60s".parse().expect("a valid retention"),
            aggregation: Aggregation::Average,
            x_files_factor: 0.5,
        }
    }
}
