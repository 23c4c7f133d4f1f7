//! The health of this node over time, from a sample each second: liveness, how long senders wait, and the free disk.
//!
//! A request for `/healthy` reads the last sample alone. It waits for no lock that others hold while they work, and for no
//! disk.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use host::{Clock, Disk};
use ingest::Ingest;
use parking_lot::Mutex;

use crate::{settings::Reserve, timed::RunningCalls};

/// Interval between two samples.
const EVERY: Duration = Duration::from_secs(1);

/// Age of the last sample from which on the process counts as hung.
const SAMPLE_BOUND: Duration = Duration::from_secs(60);

/// How long an fsync of the journal may be overdue.
const SYNC_BOUND: Duration = Duration::from_secs(120);

/// How long one write or sync of the embedded store may take before this node is not ready.
const SLOW_CALL: Duration = Duration::from_secs(30);

/// How long it may take before a restart would help.
const CALL_BOUND: Duration = Duration::from_secs(300);

/// How long the end of a flush cycle may be overdue, beyond two times `ingest.flush_after`.
const CYCLE_BOUND: Duration = Duration::from_secs(600);

/// Free disk above the reserve, as a part of it, from which on senders go on again.
const ROOM_AGAIN: u64 = 10;

/// What a [`Health`] looks at.
pub struct Watched {
    pub ingest: Arc<Ingest>,
    pub calls: RunningCalls,
    /// Whether calls of the store have no timeout of their own, so that one that takes minutes hangs.
    pub is_embedded: bool,
    pub clock: Arc<dyn Clock>,
    pub disk: Arc<dyn Disk>,
    /// The data folder.
    pub data: PathBuf,
    pub reserve: Reserve,
    /// The settings `ingest.sync` and `ingest.flush_after`.
    pub sync_every: Duration,
    pub flush_after: Duration,
}

/// Follows the health of this node.
pub struct Health {
    watched: Watched,
    sample: Mutex<Sample>,
}

/// A call of the store: its name and its begin.
type Call = (&'static str, Instant);

/// The last look.
#[derive(Debug, Clone)]
struct Sample {
    at: Instant,
    sync_age: Duration,
    /// The longest call of the store that has not ended: its name and its begin.
    call: Option<Call>,
    cycles: u64,
    /// When the number of cycles changed, or no cycle was due.
    cycle_at: Instant,
    /// Since when senders wait, and for what.
    waits: Option<(Instant, String)>,
    disk: Option<FreeDisk>,
}

/// The disk of the data folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreeDisk {
    /// Bytes free.
    pub free: u64,
    /// Bytes that are kept for merges.
    pub reserve: u64,
    /// Less was free than the reserve, and there is not enough room again.
    pub is_short: bool,
}

impl Health {
    /// Healthy, at the start.
    pub fn new(watched: Watched) -> Health {
        let now = watched.clock.instant();
        let sample =
            Sample { at: now, sync_age: Duration::ZERO, call: None, cycles: 0, cycle_at: now, waits: None, disk: None };
        Health { watched, sample: Mutex::new(sample) }
    }

    /// Takes samples, until dropped.
    pub async fn watch(self: Arc<Health>) {
        loop {
            let health = self.clone();
            // Locks of ingestion and the disk are asked for on a thread that may wait.
            let _ = tokio::task::spawn_blocking(move || health.look()).await;
            tokio::time::sleep(EVERY).await;
        }
    }

    fn look(&self) {
        let Watched { ingest, calls, clock, .. } = &self.watched;
        let before = self.sample.lock().clone();
        let disk = self.look_at_disk(before.disk);
        ingest.set_disk_short(disk.is_some_and(|disk| disk.is_short));
        let counts = ingest.counters();
        let now = clock.instant();
        // An outage has its own message, and a restart does not end it.
        let is_due = 0 < counts.held_slots && !counts.store_failing && counts.cycles == before.cycles;
        let sample = Sample {
            at: now,
            sync_age: Duration::try_from_secs_f64(counts.sync_age).unwrap_or_default(),
            call: calls.longest(),
            cycles: counts.cycles,
            cycle_at: if is_due { before.cycle_at } else { now },
            waits: ingest.waits_for().map(|why| (before.waits.map_or(now, |(since, _)| since), why)),
            disk,
        };
        self.log_slow_call(before.call, sample.call, now);
        *self.sample.lock() = sample;
    }

    fn look_at_disk(&self, before: Option<FreeDisk>) -> Option<FreeDisk> {
        let Watched { disk, data, reserve, .. } = &self.watched;
        let free = disk.free_bytes(data).ok()?;
        let reserve = reserve.bytes(|| disk.capacity(data).unwrap_or(free));
        let was_short = before.is_some_and(|disk| disk.is_short);
        let is_short = free < reserve || was_short && free < reserve + reserve / ROOM_AGAIN;
        if is_short != was_short {
            match is_short {
                true => tracing::error!(free, reserve, data = %data.display(),
                    "the disk has less free than data.reserve keeps for merges; senders wait until there is room"),
                false => tracing::info!(free, reserve, "the disk has room again; points are accepted"),
            }
        }
        Some(FreeDisk { free, reserve, is_short })
    }

    /// `Err` with the reason when a restart would help.
    pub fn liveness(&self) -> Result<(), String> {
        let Watched { clock, is_embedded, sync_every, flush_after, .. } = &self.watched;
        let bounds = Bounds { is_embedded: *is_embedded, sync_every: *sync_every, flush_after: *flush_after };
        bounds.hung(&self.sample.lock(), clock.instant()).map_or(Ok(()), Err)
    }

    /// A call of the embedded store that has not ended for [`SLOW_CALL`], and for how long.
    pub fn slow_call(&self) -> Option<(&'static str, Duration)> {
        let Watched { clock, is_embedded, .. } = &self.watched;
        slow(self.sample.lock().call.filter(|_| *is_embedded), clock.instant())
    }

    /// Once when it is slow, once when it has ended.
    fn log_slow_call(&self, before: Option<Call>, call: Option<Call>, now: Instant) {
        if !self.watched.is_embedded {
            return;
        }
        let earlier = self.sample.lock().at;
        let (was_slow, slow) = (slow(before, earlier), slow(call, now));
        let is_same = before.map(|(_, began)| began) == call.map(|(_, began)| began);
        match (was_slow, slow) {
            (None, Some((call, age))) => tracing::error!(
                call,
                seconds = age.as_secs(),
                "the disk of the store does not answer; points are safe in the journal"
            ),
            (Some((call, age)), _) if !is_same => {
                tracing::info!(call, seconds = age.as_secs(), "the disk of the store has answered")
            }
            _ => {}
        }
    }

    /// How long senders have waited for room, and for what.
    pub fn waits(&self) -> Option<(Duration, String)> {
        let (since, why) = self.sample.lock().waits.clone()?;
        Some((self.watched.clock.instant().saturating_duration_since(since), why))
    }

    /// How long accepted points have not been on the disk, beyond the interval of fsyncs.
    pub fn sync_overdue(&self) -> Duration {
        self.sample.lock().sync_age.saturating_sub(self.watched.sync_every)
    }

    /// The time since the last flush cycle ended, or since none was due.
    pub fn cycle_age(&self) -> Duration {
        self.watched.clock.instant().saturating_duration_since(self.sample.lock().cycle_at)
    }

    /// The disk of the data folder; `None` while it does not answer.
    pub fn disk(&self) -> Option<FreeDisk> {
        self.sample.lock().disk
    }
}

/// The call, if it has taken too long for a node that is ready.
fn slow(call: Option<Call>, now: Instant) -> Option<(&'static str, Duration)> {
    let (name, began) = call?;
    let age = now.saturating_duration_since(began);
    (SLOW_CALL < age).then_some((name, age))
}

struct Bounds {
    is_embedded: bool,
    sync_every: Duration,
    flush_after: Duration,
}

impl Bounds {
    /// What hangs, if anything.
    fn hung(&self, sample: &Sample, now: Instant) -> Option<String> {
        let since = |then: Instant| now.saturating_duration_since(then);
        let (unseen, bound) = (since(sample.at), SAMPLE_BOUND);
        if bound < unseen {
            return Some(format!("the watch of this process has not run for {} s", unseen.as_secs()));
        }
        if self.sync_every + SYNC_BOUND < sample.sync_age {
            return Some(format!("the journal has not reached the disk for {} s", sample.sync_age.as_secs()));
        }
        if let Some((call, began)) = sample.call.filter(|&(_, began)| self.is_embedded && CALL_BOUND < since(began)) {
            return Some(format!("a call '{call}' of the store has not ended for {} s", since(began).as_secs()));
        }
        let age = since(sample.cycle_at);
        (2 * self.flush_after + CYCLE_BOUND < age).then(|| format!("no flush cycle has ended for {} s", age.as_secs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_slow_after_half_a_minute() {
        let clock = host::ManualClock::at(1_000);
        let start = clock.instant();
        let after = |seconds: u64| slow(Some(("sync", start)), start + Duration::from_secs(seconds));
        assert_eq!((after(30), slow(None, start)), (None, None));
        assert_eq!(after(31), Some(("sync", Duration::from_secs(31))));
    }

    #[test]
    fn what_hangs_beyond_its_bound_is_named() {
        let clock = host::ManualClock::at(1_000);
        let start = clock.instant();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let bounds = Bounds { is_embedded: true, sync_every: EVERY, flush_after: Duration::from_secs(60) };
        let healthy = Sample {
            at: at(1000),
            sync_age: Duration::from_secs(100),
            call: Some(("sync", at(900))),
            cycles: 3,
            cycle_at: at(500),
            waits: None,
            disk: None,
        };
        let check = |sample: Sample, expected: Option<&str>| {
            assert_eq!(bounds.hung(&sample, at(1000)).as_deref(), expected);
        };
        check(healthy.clone(), None);
        let sample = Sample { at: at(900), ..healthy.clone() };
        check(sample, Some("the watch of this process has not run for 100 s"));
        let sample = Sample { sync_age: Duration::from_secs(122), ..healthy.clone() };
        check(sample, Some("the journal has not reached the disk for 122 s"));
        let sample = Sample { call: Some(("sync", at(600))), ..healthy.clone() };
        check(sample, Some("a call 'sync' of the store has not ended for 400 s"));
        check(Sample { cycle_at: at(200), ..healthy }, Some("no flush cycle has ended for 800 s"));
    }
}
