//! Names that this node created or deleted, on their way to the table `changes`, packed many to a row.
//!
//! A name comes here after the tables of names have the change. A crash in between leaves a creation in the journal, and the
//! next start writes it again; other nodes find a deletion when they next read all names.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use host::{Clock, MinuteLog};
use metric::Timestamp;
use parking_lot::Mutex;
use store::{MetricRecord, StoreError};
use store_cassandra::{
    Calendar, Change, ChangeKey, Changed, HIDES_AHEAD, MAX_BYTES_OF_A_CHANGE, MAX_NAMES_OF_A_CHANGE, NodeId,
    SharedTables,
};
use tokio::sync::{Notify, watch};

use crate::change_reads::{DEEP_AHEAD, bucket_of};

/// Interval between two writes: five statements a second at most.
pub(crate) const WRITE_EVERY: Duration = Duration::from_millis(200);

/// Rows of one statement: a mutation of a megabyte.
const ROWS: usize = 16;

/// How long new names wait for deletions of other nodes, at a start and where this node could not read them.
const PATIENCE: Duration = Duration::from_secs(10);

/// Such waits while deletions are followed: ten minutes.
const MOST_WAITS: usize = 60;

/// How long they wait where that has not helped: two polls.
const SHORT_PATIENCE: Duration = Duration::from_secs(1);

/// Four polls: what was followed within this time is followed.
const RECENTLY: Duration = Duration::from_secs(2);

/// What others deleted is read within this time, where this node follows: polls go back for 17 minutes.
const READ_WITHIN: Duration = Duration::from_secs(20 * 60);

/// Names that wait. Further ones are counted, and found by other nodes when they next read all names.
const QUEUED: usize = 200_000;

/// The names that wait.
#[derive(Default)]
struct Queue {
    /// What is being written; tried again first.
    writing: VecDeque<Names>,
    waiting: VecDeque<Names>,
    names: usize,
    /// The latest time of a row that this node has written or read, microseconds since 1970.
    latest: i64,
}

/// The names of a row.
struct Names {
    changed: Changed,
    names: Vec<(String, Timestamp)>,
    bytes: usize,
}

impl Names {
    fn has_room(&self, name: &str) -> bool {
        self.names.len() < MAX_NAMES_OF_A_CHANGE && self.bytes + name.len() <= MAX_BYTES_OF_A_CHANGE
    }
}

impl Queue {
    /// Adds a name to a row that has room, behind all rows of the other kind.
    fn add(&mut self, name: &str, at: Timestamp, changed: &Changed) -> bool {
        if QUEUED <= self.names {
            return false;
        }
        self.names += 1;
        let of_kind = |row: &&mut Names| matches!(row.changed, Changed::Deleted) == matches!(changed, Changed::Deleted);
        let mut latest = self.waiting.iter_mut().rev().take_while(of_kind);
        match latest.find(|row| row.changed == *changed && row.has_room(name)) {
            Some(row) => {
                row.names.push((name.to_owned(), at));
                row.bytes += name.len();
            }
            None => self.waiting.push_back(Names {
                changed: changed.clone(),
                names: vec![(name.to_owned(), at)],
                bytes: name.len(),
            }),
        }
        true
    }

    /// The time of the next rows: never one that this node has seen, so that what follows from a change comes after it,
    /// whatever the clocks say. One that is too far ahead was by a calendar that has been set right.
    fn next_time(&mut self, now: i64) -> i64 {
        if now + DEEP_AHEAD < self.latest {
            self.latest = now;
        }
        self.latest = now.max(self.latest + 1);
        self.latest
    }
}

/// How this node has followed what others change.
#[derive(Clone, Copy, Default)]
struct Polls {
    /// The moment until which it has followed all changes.
    followed: Option<Instant>,
    /// When the latest poll began that has ended.
    began: Option<Instant>,
    has_failed: bool,
}

/// The names that other nodes must know of.
pub(crate) struct ChangeLog {
    clock: Arc<dyn Clock>,
    queue: Mutex<Queue>,
    /// One write at a time.
    turn: tokio::sync::Mutex<()>,
    /// Names that this node wrote to the tables of names while it could not follow, and when: others may have deleted them before.
    unfollowed: Mutex<HashMap<String, Instant>>,
    polls: watch::Sender<Polls>,
    /// A poll is to begin now.
    asked: Notify,
    /// Whether names have waited for a poll without success.
    is_hopeless: AtomicBool,
    /// Whether a deletion failed: names that this node has no more may be in the tables.
    must_read_names: AtomicBool,
    /// Steps of following, so that those who wait see that it goes on.
    steps: AtomicU64,
    failures: MinuteLog,
    /// Rows have times by it, so that others find them where they look.
    calendar: Arc<Calendar>,
    written: AtomicU64,
    dropped: AtomicU64,
}

impl ChangeLog {
    pub(crate) fn new(clock: Arc<dyn Clock>, calendar: Arc<Calendar>) -> ChangeLog {
        ChangeLog {
            clock,
            queue: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            unfollowed: Mutex::default(),
            polls: watch::channel(Polls::default()).0,
            asked: Notify::new(),
            is_hopeless: AtomicBool::new(false),
            must_read_names: AtomicBool::new(false),
            steps: AtomicU64::new(0),
            failures: MinuteLog::new(),
            calendar,
            written: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }
    }

    /// Names that are in the table by now, and those that were dropped because too many waited.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.written.load(Relaxed), self.dropped.load(Relaxed))
    }

    /// Queues metrics that are in the tables now.
    pub(crate) fn created(&self, records: &[MetricRecord]) {
        let changes = records.iter().filter_map(|record| {
            let policy = &record.policies.last()?.policy;
            Some((record.name.as_str(), record.created_on, Changed::Created(policy.clone())))
        });
        self.add(changes);
    }

    /// Queues names that were deleted from the tables, each with the time when its deletion began, Unix seconds.
    pub(crate) fn deleted<'a>(&self, names: impl Iterator<Item = (&'a str, Timestamp)>) {
        self.add(names.map(|(name, at)| (name, at, Changed::Deleted)));
    }

    fn add<'a>(&self, changes: impl Iterator<Item = (&'a str, Timestamp, Changed)>) {
        let mut queue = self.queue.lock();
        let dropped = changes.filter(|(name, at, changed)| !queue.add(name, *at, changed)).count();
        self.dropped.fetch_add(dropped as u64, Relaxed);
    }

    /// Notes that a deletion hides what is written up to this time, microseconds since 1970: its row has a time from which others know that.
    pub(crate) fn hides(&self, until: i64) {
        self.saw(until - HIDES_AHEAD.as_micros() as i64);
    }

    /// Notes the time of a row of another node, microseconds since 1970. One whose clock is far ahead is not followed.
    pub(crate) fn saw(&self, written: i64) {
        if written <= self.calendar.now() + DEEP_AHEAD {
            let mut queue = self.queue.lock();
            queue.latest = queue.latest.max(written);
        }
    }

    /// Notes that this node has followed all changes that were there at this moment.
    pub(crate) fn has_followed(&self, until: Instant) {
        self.is_hopeless.store(false, Relaxed);
        self.polls.send_replace(Polls { followed: Some(until), began: Some(until), has_failed: false });
        self.unfollowed.lock().retain(|_, written| until.saturating_duration_since(*written) < READ_WITHIN);
    }

    /// Notes that an attempt to follow failed, which began at this moment.
    pub(crate) fn cannot_follow(&self, began: Instant) {
        self.polls.send_modify(|polls| (polls.began, polls.has_failed) = (Some(began), true));
    }

    /// Waits until a poll is to begin now.
    pub(crate) async fn is_asked_to_follow(&self) {
        self.asked.notified().await;
    }

    /// Notes that a deletion failed: the names are gone from this node, and may be in the tables.
    pub(crate) fn deletion_failed(&self) {
        self.must_read_names.store(true, Relaxed);
    }

    /// Whether one has failed since the latest call.
    pub(crate) fn has_failed_deletion(&self) -> bool {
        self.must_read_names.swap(false, Relaxed)
    }

    /// Notes that following goes on, however long it takes.
    pub(crate) fn goes_on(&self) {
        self.steps.fetch_add(1, Relaxed);
    }

    /// Before names are registered and points are written: waits until this node has followed what others changed before; for ten seconds
    /// at most in which that does not go on. A start writes the names in its journal, and a node that was cut off from the tables those that
    /// came meanwhile: other nodes may have deleted some of them. Where that had no success, it waits for a second only, until it has followed
    /// again.
    pub(crate) async fn wait_until_followed(&self) {
        // A poll that takes longer than that does not have to be waited for again.
        let began = self.clock.instant();
        let is_recent = |polls: &Polls| polls.followed.is_some_and(|at| began.saturating_duration_since(at) < RECENTLY);
        let mut polls = self.polls.subscribe();
        for _ in 0..MOST_WAITS {
            let patience = if self.is_hopeless.load(Relaxed) { SHORT_PATIENCE } else { PATIENCE };
            let steps = self.steps.load(Relaxed);
            if tokio::time::timeout(patience, polls.wait_for(is_recent)).await.is_ok() {
                return;
            }
            if self.has_failed() || steps == self.steps.load(Relaxed) {
                break;
            }
        }
        if self.has_failed() && self.follows_now().await {
            return;
        }
        self.is_hopeless.store(true, Relaxed);
    }

    /// Where polls fail: whether one succeeds that begins now. The tables may be back since the latest one, and take names.
    async fn follows_now(&self) -> bool {
        let now = self.clock.instant();
        let mut polls = self.polls.subscribe();
        self.asked.notify_one();
        let has_ended = polls.wait_for(|polls| polls.began.is_some_and(|began| now <= began));
        tokio::time::timeout(SHORT_PATIENCE, has_ended)
            .await
            .is_ok_and(|polls| polls.is_ok_and(|polls| !polls.has_failed))
    }

    /// Whether the latest attempt to follow failed.
    fn has_failed(&self) -> bool {
        self.polls.borrow().has_failed
    }

    /// Before names are written to the tables: notes those that are written although this node could not follow. Of very many the first are
    /// forgotten.
    pub(crate) fn writes(&self, records: &[MetricRecord]) {
        if !self.is_hopeless.load(Relaxed) {
            return;
        }
        let mut unfollowed = self.unfollowed.lock();
        if QUEUED < unfollowed.len() + records.len() {
            unfollowed.clear();
        }
        let now = self.clock.instant();
        unfollowed.extend(records.iter().map(|record| (record.name.clone(), now)));
    }

    /// Whether this node wrote a name to the tables while it could not follow, and may not have read of a deletion of before: that it is there
    /// says nothing of other nodes.
    pub(crate) fn wrote_unfollowed(&self, name: &str) -> bool {
        self.unfollowed.lock().contains_key(name)
    }

    /// Whether this node cannot follow, has waited for that without success, and has never followed anything, as where the table is missing.
    pub(crate) fn cannot_be_followed(&self) -> bool {
        self.is_hopeless.load(Relaxed) && self.has_failed() && self.polls.borrow().followed.is_none()
    }

    /// Whether every name was written.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.lock().names == 0
    }

    /// Writes up to a statement of names. After an error they stay, and the error is logged once a minute.
    pub(crate) async fn write(&self, driver: &dyn SharedTables, node: NodeId) -> Result<(), StoreError> {
        let _turn = self.turn.lock().await;
        let rows = {
            let queue = &mut *self.queue.lock();
            if queue.writing.is_empty() {
                let end = queue.waiting.len().min(ROWS);
                queue.writing.extend(queue.waiting.drain(..end));
            }
            if queue.writing.is_empty() {
                return Ok(());
            }
            // After an error under other keys: what was written nevertheless is applied twice, which is harmless.
            let written = queue.next_time(self.calendar.now());
            let rows = queue.writing.iter().zip(0..).map(|(row, part)| Change {
                key: ChangeKey { written, node, part },
                changed: row.changed.clone(),
                names: row.names.clone(),
            });
            rows.collect::<Vec<Change>>()
        };
        let bucket = bucket_of(rows[0].key.written);
        let appended = driver.append_changes(bucket, &rows).await;
        if let Err(error) = &appended {
            if self.failures.is_due(self.clock.instant()).is_some() {
                tracing::warn!(%error, "cannot tell other nodes of names; they find these when they read all names; retrying");
            }
            return appended;
        }
        let mut queue = self.queue.lock();
        let names: usize = queue.writing.drain(..).map(|row| row.names.len()).sum();
        queue.names -= names;
        self.written.fetch_add(names as u64, Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use metric::{MetricId, Policy};

    use super::*;

    fn names(row: &Names) -> Vec<&str> {
        row.names.iter().map(|(name, _)| name.as_str()).collect()
    }

    fn rows(queue: &Queue) -> Vec<(bool, Vec<&str>)> {
        queue.waiting.iter().map(|row| (row.changed == Changed::Deleted, names(row))).collect()
    }

    #[test]
    fn names_of_a_policy_share_rows_and_a_deletion_stays_between_the_creations_around_it() {
        let other = Policy { x_files_factor: 0.25, ..Policy::default() };
        let (one, other) = (Changed::Created(Policy::default()), Changed::Created(other));
        let mut queue = Queue::default();
        for (name, changed) in
            [("a", &one), ("b", &other), ("c", &one), ("a", &Changed::Deleted), ("a", &one), ("d", &one)]
        {
            assert!(queue.add(name, 7, changed));
        }
        let expected = [(false, vec!["a", "c"]), (false, vec!["b"]), (true, vec!["a"]), (false, vec!["a", "d"])];
        assert_eq!(rows(&queue), expected);
    }

    #[test]
    fn rows_and_the_queue_are_bounded() {
        let mut queue = Queue::default();
        let long = "x".repeat(4000);
        let taken =
            (0..QUEUED + 5).filter(|nth| queue.add(if nth % 9 == 0 { &long } else { "y" }, 7, &Changed::Deleted));
        assert_eq!(taken.count(), QUEUED);
        let is_bounded = |row: &Names| row.names.len() <= MAX_NAMES_OF_A_CHANGE && row.bytes <= MAX_BYTES_OF_A_CHANGE;
        assert!(queue.waiting.iter().all(is_bounded));
    }

    /// How long names waited, in seconds.
    async fn wait(log: &ChangeLog) -> u64 {
        let began = tokio::time::Instant::now();
        log.wait_until_followed().await;
        began.elapsed().as_secs()
    }

    fn log() -> (ChangeLog, Arc<host::ManualClock>) {
        let clock = Arc::new(host::ManualClock::at(1_000));
        (ChangeLog::new(clock.clone(), Arc::new(Calendar::new(clock.clone()))), clock)
    }

    #[tokio::test(start_paused = true)]
    async fn names_wait_for_what_was_there_when_a_poll_began() {
        let (log, clock) = log();
        log.has_followed(clock.instant());
        assert_eq!(wait(&log).await, 0);
        let began = clock.instant();
        clock.advance(Duration::from_secs(60));
        log.has_followed(began);
        assert_eq!(wait(&log).await, 10, "others may have deleted some of them in this minute");
        assert_eq!(wait(&log).await, 1);
        log.has_followed(clock.instant());
        assert_eq!(wait(&log).await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn names_wait_for_as_long_as_deletions_are_followed_and_not_where_that_fails() {
        let (log, clock) = log();
        let follower = async {
            for _ in 0..15 {
                tokio::time::sleep(Duration::from_secs(5)).await;
                log.goes_on();
            }
            log.has_followed(clock.instant());
        };
        assert_eq!(futures::join!(wait(&log), follower).0, 75);
        let (log, clock) = self::log();
        assert_eq!((wait(&log).await, log.cannot_be_followed()), (10, false), "it may be on its way");
        log.cannot_follow(clock.instant());
        assert!(log.cannot_be_followed());
    }

    #[tokio::test(start_paused = true)]
    async fn names_that_could_not_be_followed_are_written_behind_one_more_poll() {
        let (log, clock) = log();
        for (name, is_back) in [("away", false), ("back", true)] {
            log.cannot_follow(clock.instant());
            clock.advance(Duration::from_secs(60));
            let poll = async {
                log.is_asked_to_follow().await;
                match is_back {
                    true => log.has_followed(clock.instant()),
                    false => log.cannot_follow(clock.instant()),
                }
            };
            let waited = futures::join!(wait(&log), poll).0;
            log.writes(&[MetricRecord {
                id: MetricId(0),
                name: name.to_owned(),
                created_on: 990,
                policies: Vec::new(),
            }]);
            assert_eq!((waited, log.wrote_unfollowed(name)), if is_back { (1, false) } else { (10, true) });
        }
    }

    #[test]
    fn what_follows_from_a_change_comes_after_it_whatever_the_clock_says() {
        let (log, _) = log();
        let times = |log: &ChangeLog| {
            let now = log.calendar.now();
            log.queue.lock().next_time(now)
        };
        assert_eq!((times(&log), times(&log)), (1_000_000_000, 1_000_000_001));
        log.saw(1_030_000_000);
        assert_eq!(times(&log), 1_030_000_001);
        log.saw(1_000_000_000 + DEEP_AHEAD + 1);
        assert_eq!(times(&log), 1_030_000_002, "a clock that is minutes ahead is not followed");
        // The calendar here was an hour ahead, and is set right: no other node looks for rows of that time.
        let right = log.calendar.now();
        assert_eq!(log.queue.lock().next_time(right + 3_600_000_000), right + 3_600_000_000);
        assert_eq!(log.queue.lock().next_time(right), right + 1);
        assert_eq!(log.queue.lock().next_time(right), right + 2);
    }
}
