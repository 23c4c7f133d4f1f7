//! The nodes that are alive: this one writes its row every few seconds, and reads those of all.
//!
//! How long a node is silent counts over reads of the table that succeeded. While this node cannot read it, those that it knew stay, with
//! the silence that they had. An answer over HTTP ends a silence as a heartbeat does: a node may be cut off from Cassandra alone.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use host::{Clock, MinuteLog};
use parking_lot::Mutex;
use store::StoreError;
use store_cassandra::{FURTHEST, NEAREST, NODE_KEPT, NodeId, NodeRow};

use crate::nodes_table::NodesTable;

/// Interval between two heartbeats.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(5);

/// A node whose heartbeat is older than this counts as silent.
const SILENT_AFTER: Duration = Duration::from_secs(15);

/// The time between two reads that counts as silence, at most: reads that fail between them say nothing of other nodes.
const COUNTED_BETWEEN_READS: Duration = Duration::from_secs(10);

/// A node that is silent for so long is no longer one that may come back.
const LOST_AFTER: Duration = Duration::from_secs(3600);

/// Nodes that may come back, at most: further ones come back with their rows.
const MOST_THAT_MAY_COME_BACK: usize = 512;

/// Characters of a version that are kept.
const VERSION_SHOWN: usize = 100;

/// Nodes that were looked up and are remembered for one heartbeat: further ones are not looked up meanwhile.
const MAX_LOOKED_UP: usize = 16;

/// Bytes of an address, at most: the longest name of a host, and its port.
const MAX_ADDRESS: usize = 255;

/// A node over the same tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its id, as in `data/writer`.
    pub node: NodeId,
    /// Where its peers reach it over HTTP, HOST:PORT; empty where they cannot.
    pub address: String,
    /// Of its program.
    pub version: String,
    /// When it was started by its clock, Unix seconds.
    pub started: i64,
    /// Time since its heartbeat.
    pub heartbeat_age: Duration,
    /// Time without a heartbeat or an answer, as far as the table `nodes` could be read meanwhile.
    pub silence: Duration,
    /// The replica of aggregates that it writes, 0 to 3.
    pub replica: u8,
    /// Whether it takes no more points and writes out those that it has.
    pub is_draining: bool,
    /// Whether it is this node.
    pub is_self: bool,
}

impl Member {
    /// Whether it is not silent.
    pub fn is_alive(&self) -> bool {
        self.silence < SILENT_AFTER
    }

    /// Whether it may be silent soon: an answer says more.
    pub(crate) fn is_doubtful(&self) -> bool {
        COUNTED_BETWEEN_READS <= self.silence
    }
}

struct Seen {
    row: NodeRow,
    /// When this heartbeat was first seen: by a stopwatch, since clocks of nodes differ.
    since: Instant,
    /// See [`Member::silence`].
    silence: Duration,
}

impl Seen {
    /// How far its calendar is ahead of this node's, unless it was set since the heartbeat.
    fn ahead(&self, now: Instant, now_ms: i64) -> Duration {
        let shown = self.row.heartbeat_ms.saturating_add(now.saturating_duration_since(self.since).as_millis() as i64);
        Duration::from_millis(u64::try_from(shown.saturating_sub(now_ms)).unwrap_or(0))
    }
}

/// A node that asked.
struct LookedUp {
    at: Instant,
    /// Whether the table had it.
    found: bool,
}

#[derive(Default)]
struct Known {
    nodes: HashMap<NodeId, Seen>,
    /// Nodes that were forgotten. Such a node may be well, cut off from the tables, and not have answered this one for a while.
    may_come_back: HashMap<NodeId, Seen>,
    /// The latest read that succeeded.
    read: Option<Instant>,
}

/// The nodes as they were last read.
pub(crate) struct Members {
    clock: Arc<dyn Clock>,
    table: Arc<dyn NodesTable>,
    version: String,
    replica: u8,
    started_ms: i64,
    /// Where peers reach this node.
    address: Mutex<Option<String>>,
    is_draining: AtomicBool,
    /// Whether this node has left the table for good; held while its row is written or deleted.
    has_left: tokio::sync::Mutex<bool>,
    /// Since when.
    left: Mutex<Option<Instant>>,
    known: Mutex<Known>,
    failures: MinuteLog,
    /// Reports of calendars that differ.
    calendars: MinuteLog,
    /// Reads of the table that have begun.
    begun: AtomicU64,
    /// Held while the table is read, so that an older read does not come after a newer one. Nodes that were looked up since they asked.
    reading: tokio::sync::Mutex<HashMap<String, LookedUp>>,
}

impl Members {
    pub(crate) fn new(clock: Arc<dyn Clock>, table: Arc<dyn NodesTable>, version: String, replica: u8) -> Members {
        let started_ms = clock.since_epoch().as_millis() as i64;
        Members {
            clock,
            table,
            version,
            replica,
            started_ms,
            address: Mutex::default(),
            is_draining: AtomicBool::new(false),
            has_left: tokio::sync::Mutex::default(),
            left: Mutex::default(),
            known: Mutex::default(),
            failures: MinuteLog::new(),
            calendars: MinuteLog::new(),
            begun: AtomicU64::new(0),
            reading: tokio::sync::Mutex::default(),
        }
    }

    /// Sets where peers reach this node: the listeners are bound after the data folder is opened.
    pub(crate) fn set_address(&self, address: String) {
        *self.address.lock() = Some(address);
    }

    /// Whether it is known where other nodes reach this one.
    pub(crate) fn has_address(&self) -> bool {
        self.address.lock().is_some()
    }

    /// All nodes that were seen and are not gone, by id.
    pub(crate) fn all(&self) -> Vec<Member> {
        self.members_of(&self.known.lock().nodes)
    }

    /// Nodes that were forgotten within the last hour and may be well.
    pub(crate) fn that_may_come_back(&self) -> Vec<Member> {
        self.members_of(&self.known.lock().may_come_back)
    }

    fn members_of(&self, nodes: &HashMap<NodeId, Seen>) -> Vec<Member> {
        let now = self.clock.instant();
        let own = self.table.own();
        let member = |Seen { row, since, silence }: &Seen| Member {
            node: row.node,
            address: row.address.clone(),
            version: row.version.clone(),
            started: row.started_ms / 1000,
            heartbeat_age: now.saturating_duration_since(*since),
            silence: *silence,
            replica: row.replica,
            is_draining: row.is_draining,
            is_self: Some(row.node) == own,
        };
        let mut members: Vec<Member> = nodes.values().map(member).collect();
        members.sort_by_key(|member| member.node);
        members
    }

    /// This node's id, once it has one.
    pub(crate) fn own(&self) -> Option<NodeId> {
        self.table.own()
    }

    /// Whether others than this node were seen.
    pub(crate) fn has_others(&self) -> bool {
        let own = self.table.own();
        self.known.lock().nodes.keys().any(|node| Some(*node) != own)
    }

    /// Notes that a node answered. One that was forgotten is known again.
    pub(crate) fn heard(&self, node: NodeId) {
        let known = &mut *self.known.lock();
        if let Some(seen) = known.may_come_back.remove(&node) {
            known.nodes.entry(node).or_insert(seen);
        }
        if let Some(seen) = known.nodes.get_mut(&node) {
            seen.silence = Duration::ZERO;
        }
    }

    /// From now on the row of this node says that it drains.
    pub(crate) fn set_draining(&self) {
        self.is_draining.store(true, SeqCst);
    }

    /// Deletes the row of this node, which writes none any more.
    ///
    /// # Errors
    /// Cassandra cannot be reached. The row stays, and may be written again.
    pub(crate) async fn leave(&self) -> Result<(), StoreError> {
        let mut has_left = self.has_left.lock().await;
        self.table.withdraw().await?;
        *has_left = true;
        self.left.lock().get_or_insert(self.clock.instant());
        Ok(())
    }

    /// Whether this node left so long ago that only those still ask it that could not read the table since.
    pub(crate) fn has_left_for_all(&self) -> bool {
        let left = *self.left.lock();
        left.is_some_and(|left| SILENT_AFTER <= self.clock.instant().saturating_duration_since(left))
    }

    /// Forgets a node that says that it has left: it has nothing that is not in the tables.
    pub(crate) fn forget(&self, node: NodeId) {
        let known = &mut *self.known.lock();
        known.nodes.remove(&node);
        known.may_come_back.remove(&node);
    }

    /// Writes this node's row and reads those of all. Returns whether it did.
    pub(crate) async fn meet(&self) -> bool {
        let Some(node) = self.table.own().filter(|_| self.table.is_up()) else { return false };
        let met = self.meet_once(node).await;
        if let Err(error) = &met
            && self.failures.is_due(self.clock.instant()).is_some()
        {
            tracing::warn!(%error, "cannot report to other nodes that this one is alive; retrying");
        }
        met.is_ok()
    }

    async fn meet_once(&self, node: NodeId) -> Result<(), StoreError> {
        if self.known.lock().read.is_none() {
            // While its row of before the start is there.
            let rows = self.table.nodes().await.unwrap_or_default();
            self.go_on_as_reported(&rows);
        }
        let heartbeat_ms = self.table.calendar().report() / 1000;
        let row = NodeRow {
            node,
            address: self.address.lock().clone().unwrap_or_default(),
            version: self.version.clone(),
            replica: self.replica,
            is_draining: self.is_draining.load(SeqCst),
            started_ms: self.started_ms,
            heartbeat_ms,
            ahead: self.ahead_of(heartbeat_ms),
        };
        let announced = {
            let has_left = self.has_left.lock().await;
            if *has_left { Ok(()) } else { self.table.announce(&row).await }
        };
        // Other nodes may be there all the same.
        let _reading = self.reading.lock().await;
        self.begun.fetch_add(1, SeqCst);
        self.saw(self.table.nodes().await?);
        announced
    }

    /// How far write times are ahead of a heartbeat, seconds; 0 where others need not know that.
    fn ahead_of(&self, heartbeat_ms: i64) -> u16 {
        let ahead = self.table.calendar().now() / 1000 - heartbeat_ms;
        let is_shown = (NEAREST.as_millis() as i64) < ahead && !self.table.has_turns();
        let seconds = u16::try_from(ahead / 1000).ok().filter(|seconds| u64::from(*seconds) <= FURTHEST.as_secs());
        seconds.filter(|_| is_shown).unwrap_or(0)
    }

    /// Reads the table for a node that asked, if it is not known, or greets: it may have another address than before.
    pub(crate) async fn look_for(&self, node: &str, greets: bool) {
        if node.is_empty() || !greets && self.knows(node) {
            return;
        }
        let begun = self.begun.load(SeqCst);
        let mut reading = self.reading.lock().await;
        // However many wait, one read is enough for them: heartbeats wait here, too.
        if begun < self.begun.load(SeqCst) {
            return;
        }
        let now = self.clock.instant();
        reading.retain(|_, looked| now.saturating_duration_since(looked.at) < HEARTBEAT);
        // It came with a read that was waited for, or the same was seen just now; and those are bounded.
        let is_known = self.knows(node);
        let is_as_before = reading.get(node).is_some_and(|looked| looked.found == is_known);
        if is_known && !greets || is_as_before || MAX_LOOKED_UP <= reading.len() {
            return;
        }
        if self.table.is_up() {
            self.begun.fetch_add(1, SeqCst);
            match self.table.nodes().await {
                Ok(rows) => self.saw(rows),
                Err(error) => tracing::debug!(%error, "cannot look up a node that asks"),
            }
        }
        reading.insert(node.to_owned(), LookedUp { at: self.clock.instant(), found: self.knows(node) });
    }

    pub(crate) fn knows(&self, node: &str) -> bool {
        self.known.lock().nodes.keys().any(|known| known.to_string() == node)
    }

    pub(crate) fn saw(&self, rows: Vec<NodeRow>) {
        let now = self.clock.instant();
        let now_ms = self.clock.since_epoch().as_millis() as i64;
        let own = self.table.own();
        rows.iter()
            .filter(|row| Some(row.node) != own)
            .for_each(|row| self.table.saw_other(row.replica != self.replica));
        let known = &mut *self.known.lock();
        let passed = known.read.replace(now).map(|read| now.saturating_duration_since(read));
        if passed.is_none_or(|passed| SILENT_AFTER <= passed) {
            self.go_on_as_reported(&rows);
        }
        let passed = passed.unwrap_or_default();
        let passed = passed.min(COUNTED_BETWEEN_READS);
        let mut before = std::mem::take(&mut known.nodes);
        before.extend(std::mem::take(&mut known.may_come_back));
        for mut row in rows {
            tidy(&mut row);
            let (since, silence) = match before.remove(&row.node) {
                Some(Seen { row: known, since, silence }) if known.heartbeat_ms == row.heartbeat_ms => {
                    (since, silence + passed)
                }
                Some(_) => (now, Duration::ZERO),
                // Only at first: the clocks tell how old it is.
                None => {
                    let age = u64::try_from(now_ms - row.heartbeat_ms).unwrap_or(0);
                    let age = Duration::from_millis(age).min(NODE_KEPT);
                    (now.checked_sub(age).unwrap_or(now), age)
                }
            };
            known.nodes.insert(row.node, Seen { row, since, silence });
        }
        for (node, Seen { row, since, silence }) in before {
            let silence = silence + passed;
            // A row that cannot have expired was deleted by its node, which stopped. One that expired may be that of a node that is
            // well and could not write it, as after an outage.
            let may_have_expired = NODE_KEPT - COUNTED_BETWEEN_READS <= now.saturating_duration_since(since);
            if !may_have_expired {
                continue;
            }
            if silence < NODE_KEPT {
                known.nodes.insert(node, Seen { row, since, silence });
            } else if silence < LOST_AFTER && known.may_come_back.len() < MOST_THAT_MAY_COME_BACK {
                known.may_come_back.insert(node, Seen { row, since, silence });
            }
        }
        let others = known.nodes.values().filter(|seen| Some(seen.row.node) != own);
        let ahead: Vec<(Duration, Duration, NodeId)> = others
            .map(|seen| (seen.ahead(now, now_ms), now.saturating_duration_since(seen.since), seen.row.node))
            .collect();
        self.follow_calendars(&ahead);
    }

    /// Has write times go on where this node's were before its start, and where those of others are, who may have followed a calendar that this
    /// node has not heard of. Only after a start or an absence: nodes that went by each other's times for longer would drive each other on.
    fn go_on_as_reported(&self, rows: &[NodeRow]) {
        let own = self.table.own();
        let reported = rows.iter().filter(|row| 0 < row.ahead || Some(row.node) == own);
        let times = reported.map(|row| row.heartbeat_ms.saturating_add(1000 * i64::from(row.ahead)));
        let latest_right = self.clock.since_epoch().saturating_add(FURTHEST).as_millis() as i64;
        if let Some(latest_ms) = times.filter(|time| *time <= latest_right).max() {
            self.table.calendar().was(latest_ms.saturating_mul(1000));
        }
    }

    /// Has write times follow the calendar that is furthest ahead: of two writes of a row Cassandra keeps the later one, and a correction comes
    /// after what it corrects. Each is given with the age of its heartbeat; of that time half counts, see [`Calendar::follow`].
    fn follow_calendars(&self, ahead: &[(Duration, Duration, NodeId)]) {
        let followed = ahead.iter().filter(|(ahead, ..)| NEAREST < *ahead && *ahead <= FURTHEST);
        // Not that of the one that is furthest ahead: its heartbeat may be the last one of a node that was killed.
        let followed = followed.map(|(ahead, age, _)| ahead.saturating_sub(*age / 2)).max();
        self.table.calendar().follow(followed.filter(|_| !self.table.has_turns()));
        let Some((ahead, _, node)) = ahead.iter().max().filter(|(ahead, ..)| NEAREST < *ahead) else { return };
        if self.calendars.is_due(self.clock.instant()).is_none() {
            return;
        }
        let seconds = ahead.as_secs();
        if *ahead <= FURTHEST {
            tracing::warn!(%node, seconds,
                "the calendar of another node is ahead of this one's: write times follow it, retentions do not; set the clocks (NTP)");
        } else {
            tracing::warn!(%node, seconds,
                "the calendar of another node is so far ahead of this one's that write times do not follow it: its rows hide \
                 corrections of this node; set the clocks (NTP)");
        }
    }
}

/// Makes what a row says fit for answers and logs: its writer may be any program with rights to the table.
fn tidy(row: &mut NodeRow) {
    if !is_address(&row.address) {
        row.address.clear();
    }
    if VERSION_SHOWN < row.version.len() || !row.version.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
        row.version = "not valid".to_owned();
    }
}

/// Whether a text is HOST:PORT in printable ASCII, without characters that separate items of a header or a list.
pub(crate) fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let is_host =
        !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_graphic() && !b",;\"/@?#\\<>".contains(&byte));
    is_host
        && text.len() <= MAX_ADDRESS
        && port.bytes().all(|byte| byte.is_ascii_digit())
        && port.parse().is_ok_and(|port: u16| 0 < port)
}

#[cfg(test)]
pub(crate) mod tests {
    use futures::future::BoxFuture;
    use host::{Host, ManualClock};
    use store_cassandra::Calendar;

    use super::*;
    use crate::{change_log::ChangeLog, connection::Connection, write_clock::WriteClock};

    /// The row of a node that is reached at `hostN:8080`.
    pub(crate) fn row(number: u128, heartbeat_ms: i64) -> NodeRow {
        let (address, version) = (format!("host{number}:8080"), "1".to_owned());
        NodeRow {
            node: NodeId::of_number(number),
            address,
            version,
            replica: 0,
            is_draining: false,
            started_ms: 0,
            heartbeat_ms,
            ahead: 0,
        }
    }

    fn members(at: i64) -> (Members, Arc<ManualClock>, tempfile::TempDir) {
        let data = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(at));
        let write_clock = WriteClock::open(Host::system().disk, data.path());
        let calendar = Arc::new(Calendar::new(clock.clone()));
        let log = Arc::new(ChangeLog::new(clock.clone(), calendar.clone()));
        let connection = Arc::new(Connection::new(write_clock, log, calendar));
        (Members::new(clock.clone(), connection, "1".to_owned(), 0), clock, data)
    }

    fn ages(members: &Members) -> Vec<(u64, bool)> {
        members.all().iter().map(|member| (member.heartbeat_age.as_secs(), member.is_alive())).collect()
    }

    #[test]
    fn a_node_is_as_old_as_its_latest_heartbeat_whatever_its_clock_says() {
        let (members, clock, _data) = members(1_000);
        // The clock of the second is an hour ahead; the third was silent for 20 s when this node started, or its clock is behind.
        members.saw(vec![row(1, 1_000_000), row(2, 4_600_000), row(3, 980_000)]);
        assert_eq!(ages(&members), [(0, true), (0, true), (20, false)]);
        for (age, is_alive) in [(5, true), (10, true), (15, false)] {
            clock.advance(Duration::from_secs(5));
            members.saw(vec![row(1, 1_000_000 + age), row(2, 4_600_000)]);
            assert_eq!(ages(&members), [(0, true), (age as u64, is_alive)]);
        }
        // Nodes whose clocks are minutes behind are there from the first read on.
        members.saw(vec![row(4, 500_000)]);
        assert_eq!(ages(&members)[0], (60, false));
        members.saw(vec![row(4, 501_000)]);
        assert_eq!(ages(&members)[0], (0, true));
    }

    #[test]
    fn the_calendar_that_is_minutes_ahead_is_followed_and_one_that_is_wrong_is_not() {
        let (members, clock, _data) = members(1_000);
        let ahead = |rows: Vec<NodeRow>| {
            members.saw(rows);
            members.table.calendar().ahead().as_secs()
        };
        assert_eq!(
            ahead(vec![row(1, 1_000_000), row(2, 1_010_000), row(3, 400_000)]),
            0,
            "ten seconds, and ten minutes behind"
        );
        let rows =
            |second: i64| vec![row(1, 1_000_000), row(2, 1_240_000 + second), row(3, 1_060_000), row(4, 4_600_000)];
        assert_eq!(ahead(rows(0)), 240, "not the one that is an hour ahead");
        clock.advance(Duration::from_secs(5));
        assert_eq!(ahead(rows(0)), 237, "its next heartbeat is to come");
        assert_eq!(ahead(rows(5_000)), 240);
        // The last heartbeat of a node that was killed, whose calendar is a little further ahead, says less than that of one that lives.
        let killed = |second: i64| [rows(second), vec![row(5, 1_250_000)]].concat();
        assert_eq!(ahead(killed(5_000)), 245);
        for second in 2..10 {
            clock.advance(Duration::from_secs(5));
            assert!(240 <= ahead(killed(second * 5_000)), "{second}");
        }
        // Their clocks are set, and one node ends: what was written meanwhile has times of until then.
        let all = |second: i64| [1, 3, 4].map(|number| row(number, second)).to_vec();
        assert_eq!(ahead(all(1_005_001)), 240);
        clock.advance(Duration::from_secs(100));
        assert_eq!(ahead(all(1_105_001)), 190);
        clock.advance(Duration::from_secs(377));
        assert_eq!(ahead(all(1_482_001)), 1);
        clock.advance(Duration::from_secs(4));
        assert_eq!(ahead(all(1_486_001)), 0);
    }

    /// A calendar was ahead, and its node has ended: the others stay ahead, and say so.
    #[test]
    fn a_node_that_starts_or_was_away_writes_by_the_times_of_those_that_followed_another_calendar() {
        let (members, clock, _data) = members(1_000);
        let own = members.table.calendar().now();
        let said = |second: i64, ahead: u16| NodeRow { ahead, ..row(2, (1_000 + second) * 1000) };
        let ahead = || members.table.calendar().ahead().as_secs();
        members.saw(vec![row(1, 1_000_000), said(0, 300)]);
        assert_eq!(ahead(), 300);
        assert_eq!(members.table.calendar().now(), own + 300_000_000);
        assert_eq!(members.ahead_of(1_000_000), 300, "as one that starts next has to know");
        assert_eq!(members.ahead_of(1_295_000), 0);
        // One that goes on does not follow what others have followed.
        clock.advance(Duration::from_secs(5));
        members.saw(vec![row(1, 1_005_000), said(5, 400)]);
        assert_eq!(ahead(), 297);
        clock.advance(Duration::from_secs(15));
        members.saw(vec![row(1, 1_020_000), said(20, 350)]);
        assert_eq!(ahead(), 350, "it was away for fifteen seconds");
        clock.advance(Duration::from_secs(15));
        members.saw(vec![row(1, 1_035_000), said(35, 900), NodeRow { ahead: 900, ..row(3, i64::MAX) }]);
        assert_eq!(ahead(), 900, "not by one that cannot be right");
        clock.advance(Duration::from_secs(15));
        members.saw(vec![row(1, 1_050_000), said(51, 900)]);
        assert_eq!(ahead(), 892, "nor by one that is further ahead than any may be");
    }

    /// A node that had reported a calendar which was ahead is killed, and its calendar is set right.
    #[tokio::test]
    async fn a_node_that_starts_goes_on_after_its_own_heartbeat_of_before() {
        for (reported_ms, ahead) in [(1_215_000, 215), (990_000, 0), (1_901_000, 0)] {
            let clock = Arc::new(ManualClock::at(1_000));
            let rows = vec![row(1, reported_ms), row(2, 1_000_000)];
            let table = AnyTable::of(&clock, rows, Duration::ZERO);
            let members = Members::new(clock, table.clone(), "1".to_owned(), 0);
            assert!(members.meet().await);
            assert_eq!(table.calendar.ahead().as_secs(), ahead);
            let heartbeat_ms =
                table.rows.lock().iter().find(|row| row.node == NodeId::of_number(1)).unwrap().heartbeat_ms;
            assert_eq!(heartbeat_ms / 1000, 1_000 + ahead as i64, "and says so");
        }
    }

    #[test]
    fn while_the_table_cannot_be_read_nodes_stay_as_they_were() {
        let (members, clock, _data) = members(1_000);
        members.saw(vec![row(1, 1_000_000), row(2, 1_000_000), row(3, 1_000_000)]);
        clock.advance(Duration::from_secs(300));
        assert_eq!(ages(&members), [(300, true); 3]);
        // The rows expired during the outage. The nodes write them again, each within 5 s of its own.
        members.saw(vec![row(1, 1_300_000)]);
        assert_eq!(ages(&members), [(0, true), (300, true), (300, true)]);
        clock.advance(Duration::from_secs(5));
        members.saw(vec![row(1, 1_305_000), row(2, 1_304_000)]);
        assert_eq!(ages(&members), [(0, true), (0, true), (305, false)]);
        // What does not come back is gone a minute later.
        for turn in 1..10 {
            clock.advance(Duration::from_secs(5));
            members.saw(vec![row(1, 1_305_000 + turn), row(2, 1_304_000 + turn)]);
            assert_eq!(ages(&members).len(), if turn < 9 { 3 } else { 2 }, "{turn}");
        }
    }

    #[test]
    fn a_killed_node_is_known_for_a_minute_a_stopped_one_no_longer_and_one_that_answers_stays() {
        let (members, clock, _data) = members(1_000);
        members.saw(vec![row(1, 1_000_000), row(2, 1_000_000), row(3, 1_000_000), row(4, 1_000_000)]);
        for seconds in (5..=120).step_by(5) {
            clock.advance(Duration::from_secs(5));
            let mut rows = vec![row(1, 1_000_000 + seconds)];
            // The second one is killed, the third one stops, the fourth one cannot reach Cassandra any more.
            if seconds < 60 {
                rows.extend([row(2, 1_000_000), row(4, 1_000_000)]);
            }
            members.heard(NodeId::of_number(4));
            members.saw(rows);
            let known: Vec<NodeId> = members.all().iter().map(|member| member.node).collect();
            let expected: &[u128] = if seconds < 60 { &[1, 2, 4] } else { &[1, 4] };
            assert_eq!(known, expected.iter().copied().map(NodeId::of_number).collect::<Vec<_>>(), "{seconds}");
            assert!(members.all().last().unwrap().is_alive());
        }
    }

    #[test]
    fn a_forgotten_node_may_come_back_within_an_hour_and_does_when_it_answers() {
        let (members, clock, _data) = members(1_000);
        let may_come_back =
            |members: &Members| -> Vec<NodeId> { members.that_may_come_back().iter().map(|node| node.node).collect() };
        let ids = |numbers: &[u128]| -> Vec<NodeId> { numbers.iter().copied().map(NodeId::of_number).collect() };
        // The first one goes on, the others cannot reach Cassandra any more, and do not answer; the last one stops.
        members.saw((1..=6).map(|number| row(number, 1_000_000)).collect());
        for seconds in (5..=120).step_by(5) {
            clock.advance(Duration::from_secs(5));
            let expired = (2..=5).filter(|_| seconds < 60).map(|number| row(number, 1_000_000));
            members.saw(std::iter::once(row(1, 1_000_000 + seconds)).chain(expired).collect());
        }
        assert_eq!((members.all().len(), may_come_back(&members)), (1, ids(&[2, 3, 4, 5])));
        // One answers, one says that it has left, and the row of one is there again.
        members.heard(NodeId::of_number(2));
        members.forget(NodeId::of_number(3));
        members.saw(vec![row(1, 1_200_000), row(4, 1_200_000)]);
        let known: Vec<(NodeId, bool)> = members.all().iter().map(|node| (node.node, node.is_alive())).collect();
        assert_eq!(known, [1, 2, 4].map(|number| (NodeId::of_number(number), true)));
        assert_eq!(may_come_back(&members), ids(&[5]));
        for turn in 1..=700 {
            clock.advance(Duration::from_secs(5));
            members.heard(NodeId::of_number(2));
            members.saw(vec![row(1, 1_200_000 + turn), row(4, 1_200_000 + turn)]);
        }
        assert_eq!((members.all().len(), members.that_may_come_back().len()), (3, 0));
        // It answered for an hour, and ends: then it is asked for an hour more.
        for turn in 1..=13 {
            clock.advance(Duration::from_secs(5));
            members.saw(vec![row(1, 1_300_000 + turn), row(4, 1_300_000 + turn)]);
        }
        assert_eq!((members.all().len(), may_come_back(&members)), (2, ids(&[2])));
        // As many as a bound allows.
        members.saw((1_000..2_000).map(|number| row(number, 900_000)).collect());
        (0..20).for_each(|_| {
            clock.advance(Duration::from_secs(5));
            members.saw(vec![]);
        });
        assert_eq!((members.all().len(), members.that_may_come_back().len()), (0, MOST_THAT_MAY_COME_BACK));
    }

    /// A table of nodes that takes everything, for the first one. Reads take so long, and are counted.
    struct AnyTable {
        calendar: Calendar,
        rows: Mutex<Vec<NodeRow>>,
        takes: Duration,
        reads: AtomicU64,
    }

    impl AnyTable {
        fn of(clock: &Arc<ManualClock>, rows: Vec<NodeRow>, takes: Duration) -> Arc<AnyTable> {
            let calendar = Calendar::new(clock.clone());
            Arc::new(AnyTable { calendar, rows: Mutex::new(rows), takes, reads: AtomicU64::new(0) })
        }
    }

    impl NodesTable for AnyTable {
        fn own(&self) -> Option<NodeId> {
            Some(NodeId::of_number(1))
        }

        fn is_up(&self) -> bool {
            true
        }

        fn announce<'a>(&'a self, row: &'a NodeRow) -> BoxFuture<'a, Result<(), StoreError>> {
            let mut rows = self.rows.lock();
            rows.retain(|other| other.node != row.node);
            rows.push(row.clone());
            Box::pin(std::future::ready(Ok(())))
        }

        fn withdraw(&self) -> BoxFuture<'_, Result<(), StoreError>> {
            Box::pin(std::future::ready(Ok(())))
        }

        fn saw_other(&self, _is_of_other_replica: bool) {}

        fn calendar(&self) -> &Calendar {
            &self.calendar
        }

        fn nodes(&self) -> BoxFuture<'_, Result<Vec<NodeRow>, StoreError>> {
            Box::pin(async {
                self.reads.fetch_add(1, SeqCst);
                tokio::time::sleep(self.takes).await;
                Ok(self.rows.lock().clone())
            })
        }
    }

    #[tokio::test]
    async fn a_node_that_left_says_so_once_all_that_read_the_table_know_it() {
        let clock = Arc::new(ManualClock::at(1_000));
        let members =
            Members::new(clock.clone(), AnyTable::of(&clock, Vec::new(), Duration::from_secs(2)), "1".to_owned(), 0);
        clock.advance(Duration::from_secs(60));
        assert!(!members.has_left_for_all(), "it has not left");
        members.leave().await.unwrap();
        assert!(!members.has_left_for_all(), "others read the table every five seconds");
        clock.advance(Duration::from_secs(10));
        members.leave().await.unwrap();
        clock.advance(Duration::from_secs(5));
        assert!(members.has_left_for_all());
    }

    #[tokio::test(start_paused = true)]
    async fn one_slow_read_of_the_table_is_enough_for_all_nodes_that_wait_and_for_the_heartbeat_behind_them() {
        let clock = Arc::new(ManualClock::at(1_000));
        let table = AnyTable::of(&clock, Vec::new(), Duration::from_secs(2));
        let members = Arc::new(Members::new(clock, table.clone(), "1".to_owned(), 0));
        let mut asking = tokio::task::JoinSet::new();
        for number in 0..50 {
            let members = members.clone();
            asking.spawn(async move { members.look_for(&number.to_string(), number % 2 == 0).await });
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        let began = tokio::time::Instant::now();
        assert!(members.meet().await);
        assert!(began.elapsed() < Duration::from_secs(7), "two reads before its own: {:?}", began.elapsed());
        asking.join_all().await;
        assert!(table.reads.load(SeqCst) <= 4, "{} reads", table.reads.load(SeqCst));
    }

    #[test]
    fn rows_of_any_content_are_nodes_with_an_address_or_without_one() {
        for (address, is_valid) in [
            ("host:80", true),
            ("10.0.0.1:65535", true),
            ("[fe80::1%eth0]:80", true),
            ("under_score.example:1", true),
            ("evil\r\nSet-Cookie: a=b", false),
            ("evil\r\n:80", false),
            ("two words:80", false),
            ("a,b:80", false),
            ("m\u{fc}nchen:80", false),
            ("hostonly", false),
            (":80", false),
            ("host:", false),
            ("host:0", false),
            ("host:+80", false),
            ("host:99999", false),
            ("", false),
            (&format!("{}:80", "a".repeat(252)), true),
            (&format!("{}:80", "a".repeat(253)), false),
        ] {
            assert_eq!(is_address(address), is_valid, "{address:?}");
        }
        let (members, ..) = members(1_000);
        members.saw(vec![NodeRow {
            address: "evil\r\nX: y".to_owned(),
            version: "v".repeat(1000),
            ..row(2, 1_000_000)
        }]);
        let [node] = &members.all()[..] else { panic!("one node") };
        assert_eq!((node.address.as_str(), node.version.as_str()), ("", "not valid"));
    }
}
