//! Tasks that every node runs until its stop.

use std::{sync::Arc, time::Duration};

use host::Clock;
use metadata::Registry;
use store::PointStore;

/// Interval between two merges of new names into the path index.
const COMPACT_EVERY: Duration = Duration::from_millis(250);

/// Merges new names into the path index when there are enough of them.
pub async fn compact(registry: Arc<Registry>) {
    loop {
        tokio::time::sleep(COMPACT_EVERY).await;
        let registry = registry.clone();
        let _ = tokio::task::spawn_blocking(move || while registry.compact() {}).await;
    }
}

/// Deletes expired points.
pub async fn expire(points: Arc<dyn PointStore>, clock: Arc<dyn Clock>, every: Duration) {
    loop {
        if let Err(error) = points.expire(clock.now()).await {
            tracing::error!(%error, "cannot delete expired points; retrying");
        }
        tokio::time::sleep(every.max(Duration::from_secs(1))).await;
    }
}
