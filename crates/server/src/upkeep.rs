//! Tasks that every node runs until its stop.

use std::{sync::Arc, time::Duration};

use host::JudgingTime;
use ingest::{IdleMetrics, Ingest, Pass};
use metadata::Registry;
use metric::Timestamp;
use store::{DamageLog, Events, PointStore};

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

/// Deletes events that are older than `keep`, by the same time as points.
pub async fn expire_events(
    events: Arc<dyn Events>,
    time: Arc<JudgingTime>,
    newest: Newest,
    keep: Duration,
    every: Duration,
) {
    loop {
        if let Some(now) = time.expiry(newest()) {
            match events.expire_events(now.saturating_sub_unsigned(keep.as_secs())).await {
                Ok(0) => {}
                Ok(deleted) => tracing::info!(deleted, "deleted events that are older than limits.events_keep"),
                Err(error) => tracing::error!(%error, "cannot delete old events; retrying"),
            }
        }
        tokio::time::sleep(every.max(Duration::from_secs(1))).await;
    }
}

/// What finding idle metrics needs.
#[derive(Clone)]
pub struct Idle {
    pub ingest: Arc<Ingest>,
    pub newest: Newest,
    pub damage: DamageLog,
    /// Metrics without points for this long are deleted, if that is less than their retention.
    pub shortest: Option<Duration>,
    pub every: Duration,
}

impl Idle {
    /// Deletes metrics without points for long. Waits while the clock is in doubt, and while nothing is stored. Metrics that
    /// damage may have cost points are kept for as long as these would keep them.
    pub async fn run(self) {
        let mut idle = IdleMetrics::new(self.ingest.clone(), self.shortest, self.damage.clone());
        let mut is_damaged = false;
        loop {
            tokio::time::sleep(self.every.max(Duration::from_secs(1))).await;
            if !is_damaged && !self.damage.lost_points().is_empty() {
                is_damaged = true;
                tracing::warn!(
                    "damage was found: metrics that it may have cost points are kept for limits.idle_after after the time of these points"
                );
            }
            let time = || (self.newest)().and_then(|at| self.ingest.time().expiry(Some(at)));
            match idle.pass(time).await {
                Ok(Pass { deleted: 0, damaged: 0, .. }) => {}
                Ok(Pass { read, deleted, damaged }) => {
                    tracing::info!(deleted, read, damaged, "deleted metrics without points for long");
                }
                Err(error) => tracing::error!(%error, "metrics without points for long are not all deleted; retrying"),
            }
        }
    }
}
