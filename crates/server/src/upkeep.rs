//! Tasks that every node runs until its stop.

use std::{sync::Arc, time::Duration};

use host::JudgingTime;
use metadata::Registry;
use metric::Timestamp;
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

/// The time of the newest stored point, where the store knows it.
pub type Newest = Arc<dyn Fn() -> Option<Timestamp> + Send + Sync>;

/// Deletes expired points, by the clock and the newest stored point together: neither a wrong clock nor senders from the
/// future delete anything alone. Waits while the clock is in doubt.
pub async fn expire(points: Arc<dyn PointStore>, time: Arc<JudgingTime>, newest: Newest, every: Duration) {
    loop {
        if let Some(now) = time.expiry(newest())
            && let Err(error) = points.expire(now).await
        {
            tracing::error!(%error, "cannot delete expired points; retrying");
        }
        tokio::time::sleep(every.max(Duration::from_secs(1))).await;
    }
}
