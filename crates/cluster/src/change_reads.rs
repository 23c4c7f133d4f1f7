//! What to read next of the table `changes`, so that no row is missed and idle nodes ask little. Pure: time and rows are
//! arguments.
//!
//! Rows are in a partition for each minute, by their writer's clock. Rows may come late there: clocks differ, and a write may
//! take long. So a poll reads again what may have changed.
//!
//! 1. Each poll reads the keys of the last sixteen seconds and of twelve to come: calendars that differ by less are not followed. One partition,
//!    or two about the end of a minute.
//! 2. Once a minute a deep poll reads the keys of the last 17 minutes, and of two minutes ahead: a node that does not know yet of a calendar that is
//!    15 minutes ahead of its own writes rows that are so far behind those of a node that does.
//! 3. After polls that failed, the next one is deep, and begins 17 minutes before the last one that did not. It also looks 17 minutes ahead:
//!    the others may follow a calendar that this node has not heard of.
//! 4. The first poll reads all that is kept, and looks ahead as far: names in the journal may have been deleted while this node was down. So
//!    does one by a calendar that was minutes ahead, and is set right: what others wrote meanwhile was behind all that was read. Rows of the
//!    beginning of that time may have expired by then: that poll asks for a read of all names, too.
//! 5. Rows that were applied are remembered for as long as a poll may read them, so that each is applied once.
//! 6. Names that this node created itself need not be read. Those that it deleted are: a creation of another node that is read
//!    later, or again after a restart, may be older.
//!
//! A row is missed where its writer's clock is more than 17 minutes behind or two ahead, and where it is written more than 17
//! minutes after its time. The next read of all names finds its names. After an absence for which rows are not kept,
//! [`ChangeReads::falls_behind`] asks for that read at once.

use std::collections::{BTreeMap, HashSet};

use store_cassandra::{CHANGES_KEPT, ChangeKey, ListedChange, NodeId};

/// Microseconds of a partition.
pub(crate) const BUCKET: i64 = 60 * SECOND;

const SECOND: i64 = 1_000_000;

/// How far a poll looks back and ahead. A calendar is followed where it is more than ten seconds ahead of others, by a heartbeat that may be five
/// seconds old: their rows may be fifteen seconds behind it, and one.
const BACK: i64 = 16 * SECOND;
const AHEAD: i64 = 12 * SECOND;

/// How far a deep poll looks back and ahead.
pub(crate) const DEEP_BACK: i64 = 1_020 * SECOND;
pub(crate) const DEEP_AHEAD: i64 = 120 * SECOND;

/// Time between two deep polls.
const DEEP_EVERY: i64 = 60 * SECOND;

/// The longest absence after which the rows are still there that the next poll reads.
const LONGEST_ABSENCE: i64 = 5_400 * SECOND;
const _: () = assert!(LONGEST_ABSENCE + DEEP_BACK + 600 * SECOND <= CHANGES_KEPT.as_micros() as i64);

/// Rows that are remembered. At the limit all are forgotten, and those of the last 17 minutes applied again, which is harmless.
const REMEMBERED: usize = 1 << 20;

/// The partition of a row that is written at this moment, microseconds since 1970.
pub(crate) fn bucket_of(written: i64) -> i64 {
    written.div_euclid(BUCKET)
}

/// The keys of a partition from a moment on, microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeysRead {
    pub(crate) bucket: i64,
    pub(crate) since: i64,
}

/// What a poll reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Poll {
    pub(crate) reads: Vec<KeysRead>,
    /// Rows may have expired since the poll before: all names must be read.
    pub(crate) is_behind: bool,
    began: i64,
    /// The same by a stopwatch.
    watch: i64,
    is_deep: bool,
}

/// What was read so far.
#[derive(Debug, Default)]
pub(crate) struct ChangeReads {
    /// When the latest poll that succeeded began, microseconds since 1970.
    polled: Option<i64>,
    /// How long it took, by a stopwatch.
    took: i64,
    /// The latest of them that was deep, by a stopwatch: where the calendar was ahead and is set right, times go on slowly.
    deep: Option<i64>,
    /// Rows that were applied, by their partition.
    applied: BTreeMap<i64, HashSet<ChangeKey>>,
    /// When, by a stopwatch, the first poll began that found that rows may have expired which were not read, where none has succeeded since.
    behind_since: Option<i64>,
}

impl ChangeReads {
    /// What to read at this moment, microseconds since 1970, and by a stopwatch.
    pub(crate) fn next(&self, now: i64, watch: i64) -> Poll {
        let absence = self.polled.map_or(0, |polled| now - polled);
        let is_set_back = absence < -DEEP_AHEAD;
        let is_behind = LONGEST_ABSENCE < absence || is_set_back;
        let is_due = self.deep.is_none_or(|deep| deep + DEEP_EVERY <= watch);
        // A poll that reads many partitions may take long itself.
        let was_away = self.polled.is_none() || !(0..=BACK / 2 + self.took).contains(&absence);
        let is_deep = is_due || was_away;
        let last = match self.polled {
            Some(_) if is_behind && !is_set_back => now,
            Some(polled) if polled <= now => polled,
            // The first one, or by a calendar that was minutes ahead, and is set right.
            Some(_) | None => now - LONGEST_ABSENCE,
        };
        let ahead = match (was_away, is_deep) {
            (true, _) => DEEP_BACK,
            (false, true) => DEEP_AHEAD,
            (false, false) => AHEAD,
        };
        let (since, until) = (last - if is_deep { DEEP_BACK } else { BACK }, now + ahead);
        let reads = (bucket_of(since)..=bucket_of(until)).map(|bucket| KeysRead { bucket, since }).collect();
        Poll { reads, is_behind, began: now, watch, is_deep }
    }

    /// Which of these rows to read and apply for the node `own`, in their order.
    pub(crate) fn unapplied(&self, bucket: i64, listed: Vec<ListedChange>, own: NodeId) -> Vec<ChangeKey> {
        let applied = self.applied.get(&bucket);
        let is_applied = |key: &ChangeKey| applied.is_some_and(|applied| applied.contains(key));
        let is_wanted = |row: &ListedChange| (row.is_deletion || row.key.node != own) && !is_applied(&row.key);
        let mut keys: Vec<ChangeKey> = listed.into_iter().filter(is_wanted).map(|row| row.key).collect();
        keys.sort_unstable();
        keys
    }

    /// Notes that a row was applied.
    pub(crate) fn applied(&mut self, bucket: i64, key: ChangeKey) {
        if REMEMBERED <= self.applied.values().map(HashSet::len).sum() {
            self.applied = BTreeMap::new();
        }
        self.applied.entry(bucket).or_default().insert(key);
    }

    /// Whether all names must be read at once: the first poll of an absence says so, however many fail after it.
    pub(crate) fn falls_behind(&mut self, poll: &Poll) -> bool {
        let is_first = poll.is_behind && self.behind_since.is_none();
        if is_first {
            self.behind_since = Some(poll.watch);
        }
        is_first
    }

    /// Notes that every row of a poll was applied by this moment of the stopwatch, and forgets rows that no poll reads any more. Returns whether all
    /// names must be read once more: changes since another poll has fallen behind are in no row that this one has read.
    #[must_use]
    pub(crate) fn done(&mut self, poll: &Poll, watch: i64) -> bool {
        self.polled = Some(poll.began);
        self.took = (watch - poll.watch).max(0);
        if poll.is_deep {
            self.deep = Some(poll.watch);
        }
        let first = bucket_of(poll.began - DEEP_BACK);
        self.applied = self.applied.split_off(&first);
        self.behind_since.take().is_some_and(|since| since < poll.watch)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use host::{Random, SeededRandom};

    use super::*;

    const START: i64 = 1_700_000_000 * SECOND;

    /// A row, and the moment from which it can be read.
    struct Row {
        key: ChangeKey,
        is_deletion: bool,
        lands: i64,
    }

    /// The node that reads. Others have numbers below.
    const OWN: u128 = 4;

    /// A naive reader over naive tables: makes the reads that it is given, and notes when each row was first seen.
    struct Reader<'a> {
        rows: &'a [Row],
        reads: ChangeReads,
        seen: HashMap<ChangeKey, i64>,
        scans: Vec<i64>,
    }

    impl Reader<'_> {
        /// A poll that succeeds; returns how many statements it took.
        fn poll(&mut self, now: i64) -> usize {
            let poll = self.reads.next(now, now);
            if self.reads.falls_behind(&poll) {
                self.scans.push(now);
            }
            for &KeysRead { bucket, since } in &poll.reads {
                let rows = self.rows.iter().filter(|row| {
                    let expires = row.lands + CHANGES_KEPT.as_micros() as i64;
                    bucket_of(row.key.written) == bucket
                        && since <= row.key.written
                        && row.lands <= now
                        && now < expires
                });
                let listed = rows.map(|row| ListedChange { key: row.key, is_deletion: row.is_deletion }).collect();
                for key in self.reads.unapplied(bucket, listed, NodeId::of_number(OWN)) {
                    assert!(self.seen.insert(key, now).is_none(), "{key:?} is applied twice");
                    self.reads.applied(bucket, key);
                }
            }
            if self.reads.done(&poll, now) {
                self.scans.push(now);
            }
            poll.reads.len()
        }
    }

    /// Whether a row is to be applied: its names are not new to the node that reads, or it deleted them.
    fn is_news(row: &&Row) -> bool {
        row.is_deletion || row.key.node != NodeId::of_number(OWN)
    }

    /// Writers whose clocks are off by up to these many seconds, behind and ahead; rows that land up to `late` seconds late.
    fn rows(random: &dyn Random, seconds: i64, behind: i64, ahead: i64, late: i64) -> Vec<Row> {
        let below = |bound: i64| random.below(bound.max(1) as u64) as i64;
        let skews: Vec<i64> = (0..5).map(|_| below((behind + ahead) * SECOND) - behind * SECOND).collect();
        let row = |part| {
            let at = START + below(seconds * SECOND);
            let node = below(5);
            let written = at + skews[node as usize];
            Row {
                key: ChangeKey { written, node: NodeId::of_number(node as u128), part },
                is_deletion: below(4) == 0,
                lands: at + below(late * SECOND),
            }
        };
        (0..2000).map(row).collect()
    }

    fn seeds() -> impl Iterator<Item = u64> {
        let first = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
        first..first + 20
    }

    #[test]
    fn rows_of_clocks_that_differ_by_seconds_are_applied_by_the_next_poll_and_once() {
        for seed in seeds() {
            let random = SeededRandom::new(seed);
            let rows = rows(&random, 600, 12, 11, 3);
            let mut reader =
                Reader { rows: &rows, reads: ChangeReads::default(), seen: HashMap::new(), scans: Vec::new() };
            let polls = 1240;
            let statements: usize = (0..polls).map(|nth| reader.poll(START + nth * SECOND / 2)).sum();
            for row in rows.iter().filter(is_news) {
                let seen = reader.seen.get(&row.key).unwrap_or_else(|| panic!("seed {seed}: {:?} is missed", row.key));
                assert!(*seen - row.lands <= SECOND / 2, "seed {seed}: {:?} is late", row.key);
            }
            let of_others = |key: &&ChangeKey| rows.iter().any(|row| row.key == **key && is_news(&row));
            assert_eq!(
                reader.seen.keys().filter(of_others).count(),
                reader.seen.len(),
                "seed {seed}: own creations are read"
            );
            assert!(statements as i64 * 4 < polls * 7, "seed {seed}: {statements} statements for {polls} polls");
            assert!(reader.scans.is_empty(), "seed {seed}");
        }
    }

    #[test]
    fn rows_of_clocks_that_differ_by_minutes_and_of_slow_writes_are_applied_within_a_minute_and_once() {
        for seed in seeds() {
            let random = SeededRandom::new(seed);
            let rows = rows(&random, 1800, 250, 115, 250);
            let mut reader =
                Reader { rows: &rows, reads: ChangeReads::default(), seen: HashMap::new(), scans: Vec::new() };
            // With a failed poll here and there.
            (0..5000).filter(|_| random.below(10) > 0).for_each(|nth| {
                reader.poll(START + nth * SECOND / 2);
            });
            for row in rows.iter().filter(is_news) {
                let seen = reader.seen.get(&row.key).unwrap_or_else(|| panic!("seed {seed}: {:?} is missed", row.key));
                assert!(*seen - row.lands <= 65 * SECOND, "seed {seed}: {:?} is late", row.key);
            }
        }
    }

    #[test]
    fn after_an_absence_rows_are_read_up_to_their_expiry_and_all_names_after_that() {
        for seed in seeds() {
            let random = SeededRandom::new(seed);
            let away = 60 * (5 + random.below(150) as i64);
            let rows = rows(&random, away, 60, 60, 10);
            let mut reader =
                Reader { rows: &rows, reads: ChangeReads::default(), seen: HashMap::new(), scans: Vec::new() };
            reader.poll(START);
            let back = START + away * SECOND;
            (0..300).for_each(|nth| {
                reader.poll(back + nth * SECOND / 2);
            });
            let missed = rows.iter().filter(is_news).filter(|row| !reader.seen.contains_key(&row.key)).count();
            match reader.scans.as_slice() {
                [] => assert_eq!(missed, 0, "seed {seed}: {away} s away"),
                [at] => assert!(*at == back && LONGEST_ABSENCE < away * SECOND, "seed {seed}: {away} s away"),
                more => panic!("seed {seed}: {more:?}"),
            }
            assert!(away * SECOND < LONGEST_ABSENCE || !reader.scans.is_empty() || missed == 0, "seed {seed}");
        }
    }

    /// A node that starts, or was away, has not read yet that the calendar of another one is minutes ahead, and that the others follow it.
    #[test]
    fn rows_of_a_calendar_that_is_minutes_ahead_are_in_the_first_poll_of_a_start_and_of_an_absence() {
        let key = |written| ChangeKey { written, node: NodeId::of_number(1), part: 0 };
        for ahead in [0, 121, 600, 900] {
            let (start, back) = (START + 10 * SECOND, START + 300 * SECOND);
            let row = |at: i64| Row { key: key(at + ahead * SECOND), is_deletion: true, lands: at };
            let rows = [row(start - 5 * SECOND), row(back - 5 * SECOND)];
            let mut reader =
                Reader { rows: &rows, reads: ChangeReads::default(), seen: HashMap::new(), scans: Vec::new() };
            reader.poll(start);
            assert_eq!(reader.seen.get(&rows[0].key), Some(&start), "{ahead}");
            (1..20).for_each(|nth| _ = reader.poll(start + nth * SECOND / 2));
            reader.poll(back);
            assert_eq!(reader.seen.get(&rows[1].key), Some(&back), "{ahead}");
        }
    }

    #[test]
    fn a_log_that_cannot_be_read_for_hours_asks_for_all_names_once_and_when_it_is_there_again() {
        let mut reads = ChangeReads::default();
        assert!(!reads.done(&reads.next(START, 0), 0));
        let away = LONGEST_ABSENCE + SECOND;
        let polls = (0..100).map(|nth| reads.next(START + away + nth * SECOND, away + nth * SECOND));
        let asked = polls.collect::<Vec<_>>().iter().filter(|poll| reads.falls_behind(poll)).count();
        assert_eq!(asked, 1);
        let there = reads.next(START + 2 * away, 2 * away);
        assert!(!reads.falls_behind(&there) && reads.done(&there, 2 * away));
        let next = reads.next(START + 2 * away + SECOND, 2 * away + SECOND);
        assert!(!reads.falls_behind(&next) && !reads.done(&next, 2 * away + SECOND));
    }

    #[test]
    fn a_clock_that_is_set_back_or_forward_misses_nothing_that_is_written_by_the_right_time() {
        let now = START + 3600 * SECOND;
        let mut reads = ChangeReads::default();
        assert!(!reads.done(&reads.next(now, 0), 0));
        let back = reads.next(now - 1800 * SECOND, SECOND);
        assert!(back.is_deep && reads.falls_behind(&back), "rows of before may have expired");
        assert_eq!(back.reads[0].since, now - 1800 * SECOND - LONGEST_ABSENCE - DEEP_BACK, "it was ahead of all rows");
        assert!(!reads.done(&back, SECOND));
        let next = reads.next(now - 1800 * SECOND + SECOND, 2 * SECOND);
        assert!(!next.is_behind && !next.is_deep);
        let slow = reads.next(now - 1801 * SECOND, 2 * SECOND);
        assert!(slow.is_deep && !slow.is_behind, "for seconds not all names are read");

        let mut reads = ChangeReads::default();
        assert!(!reads.done(&reads.next(now, 0), 0));
        let forward = reads.next(now + 1800 * SECOND, SECOND);
        assert!(forward.is_deep && !forward.is_behind);
        assert_eq!(forward.reads[0].since, now - DEEP_BACK);
    }

    /// In another data centre each statement takes a quarter of a second, and the first poll reads more than a hundred partitions.
    #[test]
    fn polls_that_take_long_themselves_count_as_present() {
        let (mut reads, mut now, mut deep) = (ChangeReads::default(), START, Vec::new());
        for _ in 0..40 {
            let poll = reads.next(now, now);
            deep.push(poll.is_deep);
            now += poll.reads.len() as i64 * SECOND / 4;
            assert!(!reads.done(&poll, now));
            now += SECOND / 2;
        }
        assert!(deep[0] && !deep[1..4].contains(&true), "{deep:?}");
        assert!(deep.iter().filter(|deep| **deep).count() < 4, "{deep:?}");
    }
}
