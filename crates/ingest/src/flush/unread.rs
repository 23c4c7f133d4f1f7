//! Jobs that wait because stored slots cannot be read now: coarse slots derived without them would lack points for good,
//! also when the disk returns the slots again.
//!
//! They wait in memory and in the journal, for [`PATIENCE`] and while neither is three quarters full. After that, the points are
//! stored, the coarse slots around them stay as they are, and `late_files.rs` keeps them to derive these slots again.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use metric::MetricId;
use parking_lot::Mutex;

use crate::memtable::FlushJob;

/// How long jobs wait. A disk, a cable or a mount that comes back does so sooner.
const PATIENCE: Duration = Duration::from_secs(600);

/// How long no job waits again after that: a sector that stays bad must not delay each flush.
const NO_PATIENCE: Duration = Duration::from_secs(3600);

/// The jobs that wait.
#[derive(Default)]
pub(super) struct Unread {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    jobs: Vec<Arc<FlushJob>>,
    /// When the first read failed of those that fail since.
    since: Option<Instant>,
    /// Set at the end of the patience.
    gave_up_at: Option<Instant>,
}

impl Unread {
    /// Whether a job may wait now. `may_hold` says that memory and journal have room.
    pub(super) fn may_wait(&self, now: Instant, may_hold: bool) -> bool {
        let mut state = self.state.lock();
        if state.gave_up_at.is_some_and(|at| now.saturating_duration_since(at) < NO_PATIENCE) {
            return false;
        }
        let Some(since) = state.since else { return may_hold };
        let waits = may_hold && now.saturating_duration_since(since) < PATIENCE;
        if !waits {
            (state.since, state.gave_up_at) = (None, Some(now));
            tracing::error!(
                "stored rows still cannot be read; points that came late are stored without them, and coarse slots around \
                 those points lack them until the rows can be read; replace the disk, and see damage in /admin/status"
            );
        }
        waits
    }

    /// The metrics of the jobs that wait.
    pub(super) fn metrics(&self) -> Vec<MetricId> {
        self.state.lock().jobs.iter().map(|job| job.metric).collect()
    }

    /// Lets a job wait behind another one of its metric.
    pub(super) fn add_behind(&self, job: Arc<FlushJob>) {
        self.state.lock().jobs.push(job);
    }

    /// Lets jobs wait.
    pub(super) fn add(&self, jobs: impl Iterator<Item = Arc<FlushJob>>, now: Instant) {
        let mut state = self.state.lock();
        let before = state.jobs.len();
        state.jobs.extend(jobs);
        if before < state.jobs.len() && state.since.is_none() {
            state.since = Some(now);
            tracing::error!(
                metrics = state.jobs.len(),
                "cannot read stored rows that late points are added to; these points wait in memory and in the journal, \
                 for 10 minutes or until the rows can be read"
            );
        }
    }

    /// The jobs that wait, to be written again.
    pub(super) fn take(&self) -> Vec<Arc<FlushJob>> {
        std::mem::take(&mut self.state.lock().jobs)
    }

    /// All jobs that waited were written, if none waits again.
    pub(super) fn ended(&self) {
        let mut state = self.state.lock();
        if state.jobs.is_empty() && state.since.take().is_some() {
            tracing::info!("stored rows can be read again; the points that waited for them are stored");
        }
    }

    pub(super) fn len(&self) -> usize {
        self.state.lock().jobs.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_ends_and_begins_again_after_an_hour() {
        let (unread, start) = (Unread::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(unread.may_wait(start, true));
        unread.state.lock().since = Some(start);
        assert!(unread.may_wait(at(599), true));
        assert!(!unread.may_wait(at(600), true), "ten minutes");
        assert!(!unread.may_wait(at(601), true) && !unread.may_wait(at(4199), true));
        assert!(unread.may_wait(at(4200), true) && !unread.may_wait(at(4200), false));
    }
}
