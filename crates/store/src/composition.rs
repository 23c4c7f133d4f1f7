//! The stores of one node, put together.

use std::sync::Arc;

use crate::{DriverFuture, NameStore, PointStore, SharedPoints};

/// The stores that ingestion and readers use. A clone shares them.
#[derive(Clone)]
pub struct Store {
    /// Points.
    pub points: Arc<dyn PointStore>,
    /// Ids, names and policies.
    pub names: Arc<dyn NameStore>,
    /// Present when other processes write the same points.
    pub shared: Option<Arc<dyn SharedPoints>>,
}

impl Store {
    /// A driver that keeps points and names, and whose only writer is this process.
    pub fn of<D: PointStore + NameStore>(driver: Arc<D>) -> Store {
        Store { points: driver.clone(), names: driver, shared: None }
    }

    /// Makes every earlier write of names, then of points, durable. Names go first: the rows of an id without a name
    /// could come under the name of a later metric.
    pub fn sync(&self) -> DriverFuture<'_, ()> {
        Box::pin(async {
            self.names.sync_metrics().await?;
            self.points.sync().await
        })
    }
}

impl<D: PointStore + NameStore> From<Arc<D>> for Store {
    fn from(driver: Arc<D>) -> Store {
        Store::of(driver)
    }
}
