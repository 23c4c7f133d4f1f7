//! New metrics on their way to the metrics table: within about a second, and never in the way of points.

use metric::MetricId;
use std::{sync::Arc, sync::atomic::Ordering::Relaxed, time::Duration};

use store::StoreError;
use tokio::task::JoinHandle;

use crate::{
    Ingest,
    health::{Backoff, NoPanic},
};

/// Metrics given to the driver together: enough that what is under way at once does not run dry at the end of each group.
const GROUP: usize = 4096;

/// How often it is looked for new metrics.
const EVERY: Duration = Duration::from_millis(500);

const REFUSED: &str = "the store does not take new metrics; they are safe in the journal, and it is asked again";
const TAKEN: &str = "the store takes new metrics again";

impl Ingest {
    pub(crate) fn spawn_listing(self: Arc<Ingest>) -> JoinHandle<()> {
        tokio::spawn(async move {
            let mut wait = Backoff::default();
            loop {
                tokio::time::sleep(EVERY).await;
                match self.list().await {
                    Ok(()) => wait = Backoff::default(),
                    Err(_) => self.listing.wait(&mut wait).await,
                }
            }
        })
    }

    /// Gives the driver every metric that is not in the metrics table yet, those of this moment. An error is
    /// counted and told; whoever asked tries again, or leaves it to the next.
    pub(crate) async fn list(&self) -> Result<(), StoreError> {
        // One at a time: what one has given, another must not take off the list.
        let _one = self.one_lists.lock().await;
        let mut left = self.unlisted.lock().len();
        while left > 0 {
            let some: Vec<MetricId> = self.unlisted.lock().iter().take(left.min(GROUP)).copied().collect();
            let given = NoPanic::new(self.store.names.put_metrics(self.registry.records(&some))).await;
            if let Err(error) = &given {
                self.counters.store_errors.fetch_add(1, Relaxed);
                self.listing.failed(error, REFUSED);
                return given;
            }
            self.listing.worked(TAKEN);
            // Only now: whoever waits for this may go away in the middle of it.
            self.unlisted.lock().drain(..some.len());
            left -= some.len();
        }
        Ok(())
    }
}
