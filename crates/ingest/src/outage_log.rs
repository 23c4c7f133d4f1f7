//! Log lines of an outage of the store: each minute, with the number of waiting points.

use std::{sync::Arc, time::Duration};

use host::Clock;

use crate::{
    back_pressure::BackPressure, flush::FlushCycle, spill::Spill, store_health::StoreHealth, wal::JournalSize,
};

/// Time between two log lines.
const INTERVAL: Duration = Duration::from_secs(60);

/// Poll interval for an outage.
const POLL: Duration = Duration::from_secs(1);

/// Logs an outage while it lasts.
pub(crate) struct OutageLog {
    pub(crate) health: Arc<StoreHealth>,
    pub(crate) back_pressure: Arc<BackPressure>,
    pub(crate) spill: Arc<Spill>,
    pub(crate) cycle: Arc<FlushCycle>,
    pub(crate) journal: Arc<JournalSize>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl OutageLog {
    /// Runs until the task is aborted.
    pub(crate) async fn run(self: Arc<OutageLog>) {
        let mut logged = 0;
        loop {
            tokio::time::sleep(POLL).await;
            let Some(since) = self.health.away_since() else {
                logged = 0;
                continue;
            };
            let away = self.clock.instant().saturating_duration_since(since);
            let due = away.as_secs() / INTERVAL.as_secs();
            if logged < due {
                logged = due;
                self.log(away);
            }
        }
    }

    fn log(&self, away: Duration) {
        tracing::warn!(
            minutes = away.as_secs() / 60,
            held_points = self.back_pressure.slots(),
            parked_points = self.spill.points(),
            unsynced_points = self.cycle.unsynced_points(),
            journal_bytes = self.journal.bytes(),
            journal_limit = self.back_pressure.journal_limit(),
            senders_wait = self.back_pressure.is_closed(),
            error = self.health.problem().map_or_else(String::new, |problem| problem.why),
            "the store is still unavailable; accepted points are safe in the journal"
        );
    }
}
