//! A store that is away for longer: told every minute with what waits for it, and how long those wait who ask for a
//! flush or a stop.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::task::JoinHandle;

use crate::{Ingest, health::Problem};

/// How often it is said that the store is still away.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// How often it is looked whether there is something to say, or nothing more to wait for.
const LOOK_TO_TELL: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(20);

impl Ingest {
    /// Says that the store cannot be reached, by whoever knows before a call fails. The operator is told unless an outage
    /// was told already.
    pub fn store_is_away(&self, why: &str) {
        self.reach.failed(
            &why,
            "the store cannot be reached: points are accepted into the journal, and are written when it is back",
        );
    }

    /// As [`Ingest::store_is_away`] by somebody who has told the operator.
    pub fn store_was_told_to_be_away(&self, why: &str) {
        self.reach.failed_as_told(&why);
    }

    /// Says that the store can be reached again: what waited to be tried again is tried now.
    pub fn store_is_back(&self) {
        if self.reach.is_failing() {
            self.reach.worked("the store can be reached again");
            self.try_again();
        }
    }

    /// Says that the store has taken some of what is being written: a write that is slow does not stand still.
    pub fn store_takes_points(&self) {
        *self.taken.lock() = Some(Instant::now());
    }

    /// Whether the store takes no points, as far as is known.
    pub(crate) fn is_store_away(&self) -> bool {
        self.health.is_failing() || self.reach.is_failing()
    }

    /// What is wrong with the store; what is known without a try says the most.
    pub(crate) fn problem(&self) -> Option<Problem> {
        [&self.reach, &self.health, &self.listing].into_iter().find_map(|health| health.problem())
    }

    /// Has every call that failed made again now.
    pub(crate) fn try_again(&self) {
        self.health.try_again();
        self.listing.try_again();
    }

    /// Returns what is wrong when for this long from now on the store has taken nothing, and not before.
    pub(crate) async fn given_up(&self, patience: Duration) -> String {
        let began = Instant::now();
        loop {
            tokio::time::sleep(LOOK.min(patience)).await;
            let last = self.taken.lock().unwrap_or(began).max(began);
            for problem in [&self.reach, &self.health].into_iter().filter_map(|health| health.problem()) {
                if patience <= problem.since.max(last).elapsed() {
                    return problem.why;
                }
            }
        }
    }

    pub(crate) fn spawn_telling(self: Arc<Ingest>) -> JoinHandle<()> {
        tokio::spawn(async move {
            let mut told = 0;
            loop {
                tokio::time::sleep(LOOK_TO_TELL).await;
                let Some(since) = self.outage.since() else {
                    told = 0;
                    continue;
                };
                let due = since.elapsed().as_secs() / TELL_EVERY.as_secs();
                if due > told {
                    told = due;
                    self.tell_outage(since);
                }
            }
        })
    }

    fn tell_outage(&self, since: Instant) {
        let counts = self.counters();
        tracing::warn!(
            minutes = since.elapsed().as_secs() / 60,
            held_points = counts.held_slots,
            parked_points = counts.parked_points,
            journal_bytes = counts.journal_bytes,
            journal_limit = self.options.journal_limit_bytes,
            senders_wait = counts.stalled,
            error = self.problem().map_or_else(String::new, |problem| problem.why),
            "the store is still away; what was accepted is safe in the journal"
        );
    }
}
