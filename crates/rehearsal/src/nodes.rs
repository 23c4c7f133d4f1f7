//! Several nodes that ask each other for points in memory: kills, power cuts, replaced folders, skewed clocks, and ways that are
//! cut. Any node must answer with all points, or name the nodes whose points its answer may lack.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering::Relaxed, mpsc},
    time::Duration,
};

use cluster::Peers;
use host::{InPlace, SeededRandom, SimulatedDisk};
use ingest::DeletionError;
use metric::{Aggregation, Timestamp};
use store_cassandra::{Fate, Layout};

use crate::{
    Machine, StoreKind, Work,
    machine::{BEGINNING, STEPS, moved},
    network::{Alive, Network, PeerWay, TablesWay, address},
    node::FLUSH_AFTER,
    node_asks::{Asked, BASE, adopt_all, ask, delete, flush, send, send_and_flush, unregistered},
    node_clocks::{FOUND_LATE, NodeClocks, RECENT},
    node_metrics::{Number, name_of},
    node_names::{Listing, NamesTruth},
    node_rules::{BLOCK, StepsTruth},
    node_steps::{Ending, LETTERS, Meanwhile, NodeStep, NodesScenario, SentPoint},
    seeds::is_in_one_thread,
    truth::{Remains, Truth},
};

/// How long a node waits for the points of others.
const PATIENCE: Duration = Duration::from_millis(500);

/// After so long without a heartbeat a node may be forgotten by others.
const REMEMBERED: Duration = Duration::from_secs(40);

/// Interval between two reads of all names.
const RECONCILED_EVERY: Duration = Duration::from_secs(600);

/// A node hears of others that it did not know at once, and that do not ask it, after so long.
pub(crate) const MET: Duration = Duration::from_secs(12);

/// So far all nodes go on together: a node that goes on alone hears no heartbeat of the others meanwhile.
const ROUND: Duration = Duration::from_secs(4);

/// A flush takes so long, at least.
pub(crate) const WRITTEN: Duration = Duration::from_millis(1);

/// Seconds after which nodes that are gone are named no longer.
const FORGOTTEN_AFTER: u64 = 80;

/// Other nodes read of a deletion that failed within this time, where its node can write of it.
pub(crate) const READ_OF: Duration = Duration::from_secs(6);

/// Minutes after which rows that nodes wrote at the same moment are right.
const SETTLED_AFTER: u64 = 40;

/// Seconds after which rows are right that a node corrected and another one wrote over, where everything is stored: a quarter of
/// `flush_after`, and some for clocks that differ.
const CORRECTED_AFTER: u64 = FLUSH_AFTER.as_secs() / 4 + 30;

impl NodesScenario {
    /// The same as [`NodesScenario::perform`], in one thread and one that the others wait for, in an order that the seed determines.
    ///
    /// # Errors
    /// What is wrong, in one sentence.
    pub fn perform_in_one_thread(&self) -> Result<Work, String> {
        let _in_place = InPlace::begin(Arc::new(SeededRandom::new(self.seed.wrapping_mul(3))));
        self.perform()
    }

    /// Performs it, heals everything, and compares what all nodes answer. Returns the work done.
    ///
    /// # Errors
    /// What is wrong, in one sentence.
    pub fn perform(&self) -> Result<Work, String> {
        let mut nodes = Nodes::new(&self.layouts, self.seed, self.rules, self.has_names);
        nodes.truth.steps = (self.rules & STEPS > 0).then(StepsTruth::default);
        nodes.truth.has_skew =
            self.steps.iter().any(|step| matches!(step, NodeStep::Skew(..) | NodeStep::Calendar(..)));
        if self.steps.iter().any(|step| matches!(step, NodeStep::Calendar(..))) {
            nodes.clocks = Some(NodeClocks::new(self.layouts.len(), nodes.now));
        }
        nodes.network.has_skew.store(nodes.truth.has_skew, Relaxed);
        for (number, step) in self.steps.iter().enumerate() {
            nodes.step(step).map_err(|error| format!("step {number}: {error}"))?;
            nodes.work.steps += 1;
        }
        nodes.heal().map_err(|error| format!("at the end: {error}"))?;
        nodes.work.calls = nodes.machines.iter().map(|machine| machine.disk.changes()).sum();
        Ok(nodes.work)
    }
}

/// Whether nothing gets through.
fn is_cut_off(way: TablesWay) -> bool {
    way.reads != Fate::Done && way.writes == Fate::Refused && way.one_in == 1
}

/// Performs the steps of a seed.
///
/// # Errors
/// What is wrong, in one sentence.
pub fn perform_nodes(seed: u64, steps: usize) -> Result<Work, String> {
    let scenario = NodesScenario::of(seed, steps);
    let perform: fn(&NodesScenario) -> Result<Work, String> =
        if is_in_one_thread(seed) { NodesScenario::perform_in_one_thread } else { NodesScenario::perform };
    if let Ok(attempts) = std::env::var("SHRINK") {
        let attempts = attempts.parse().expect("SHRINK is how often it tries fewer steps");
        let (scenario, error) = scenario.clone().shrink(attempts, perform);
        println!("{error:?} {scenario:?}");
    }
    perform(&scenario)
}

/// Metrics that a node knew and deleted, and whether all of them were deleted.
type Deleted = (Vec<Number>, Result<bool, DeletionError>);

/// All points once another node has worked, and what it deleted.
type DoneMeanwhile = (Truth, Option<Deleted>);

/// The nodes, and what they accepted.
pub(crate) struct Nodes {
    pub(crate) network: Arc<Network>,
    pub(crate) machines: Vec<Machine>,
    /// Seconds by which the calendars are wrong.
    pub(crate) skews: Vec<i64>,
    /// Where they are set while nodes run.
    pub(crate) clocks: Option<NodeClocks>,
    pub(crate) truth: Truth,
    /// Names that come and go; `None` where all are known.
    pub(crate) names: Option<NamesTruth>,
    /// Whether points of a node may be on their way to the tables, because a flush failed.
    pub(crate) are_written: Vec<bool>,
    /// The right time.
    pub(crate) now: Duration,
    pub(crate) have_rules_changed: bool,
    /// Metrics that a node deleted with an error, and when.
    pub(crate) failed_deletions: Vec<(usize, Number, Duration)>,
    /// Since when all nodes have the same rules and reach the tables, after a change; `None` while they do not.
    pub(crate) alike_since: Option<Duration>,
    /// Of each node, until when its row in the table of nodes may be absent or old.
    pub(crate) unseen_until: Vec<Duration>,
    /// Nodes that could not write their row when they started: no other may have read it.
    pub(crate) may_be_new: Vec<bool>,
    /// Nodes whose folder is empty.
    pub(crate) is_new: Vec<bool>,
    /// Of each node, others that may not have met it, and until when.
    pub(crate) unmet_until: Vec<Vec<Duration>>,
    /// Whether two nodes may have stored points of a metric at the same moment: coarse slots are right later.
    pub(crate) is_unsettled: bool,
    /// Whether a folder is gone that said which such slots were to be derived again.
    pub(crate) has_forgotten: bool,
    pub(crate) work: Work,
}

impl Nodes {
    fn new(layouts: &[Layout], seed: u64, rules: usize, has_names: bool) -> Nodes {
        let count = layouts.len();
        let machine = |place: usize| {
            let mut machine = Machine::new(StoreKind::Embedded, seed.wrapping_mul(8) + place as u64);
            machine.rules = rules;
            machine
        };
        let now = Duration::from_secs(BEGINNING);
        Nodes {
            network: Network::new(layouts, seed, now, has_names),
            machines: (0..count).map(machine).collect(),
            skews: vec![0; count],
            clocks: None,
            truth: Truth::default(),
            names: has_names.then(|| NamesTruth::new(count)),
            are_written: vec![false; count],
            now,
            have_rules_changed: false,
            failed_deletions: Vec::new(),
            alike_since: None,
            unseen_until: vec![Duration::ZERO; count],
            may_be_new: vec![false; count],
            is_new: vec![true; count],
            unmet_until: vec![vec![Duration::ZERO; count]; count],
            is_unsettled: false,
            has_forgotten: false,
            work: Work::default(),
        }
    }

    fn step(&mut self, step: &NodeStep) -> Result<(), String> {
        match step {
            NodeStep::Send(place, points) => self.send(*place, points),
            NodeStep::Flush(place) => self.flush(*place),
            NodeStep::FlushWhile(place, statements, other, meanwhile) => {
                self.flush_while(*place, *statements, *other, meanwhile)
            }
            NodeStep::End(place, ending) => self.end(*place, *ending),
            NodeStep::Move(place, ending, layout) => {
                self.end(*place, *ending)?;
                self.network.set_layout(*place, *layout);
                Ok(())
            }
            NodeStep::Skew(place, seconds) => {
                if self.network.alive(*place).is_none() {
                    self.skews[*place] = *seconds;
                }
                Ok(())
            }
            NodeStep::Calendar(place, seconds) => {
                self.set_calendar(*place, *seconds);
                Ok(())
            }
            NodeStep::Tables(place, way) => {
                if *way != TablesWay::UP {
                    self.work.faults += 1;
                }
                self.trouble(*place);
                self.set_tables(*place, *way);
                Ok(())
            }
            NodeStep::Peer(from, to, way) => {
                if from != to {
                    if *way == PeerWay::Up && self.may_be_forgotten(*from, *to) {
                        // It is probed now and then.
                        let until = &mut self.unmet_until[*from][*to];
                        *until = (*until).max(self.now + MET);
                    }
                    self.network.set_peer(*from, *to, *way);
                    self.work.faults += u64::from(*way != PeerWay::Up);
                }
                Ok(())
            }
            NodeStep::Pass(seconds) => {
                self.pass(Duration::from_secs(*seconds));
                Ok(())
            }
            NodeStep::Rules(place, number) => {
                self.set_rules(*place, *number);
                Ok(())
            }
            NodeStep::Delete(place, metrics) => self.delete(*place, metrics),
            NodeStep::Check(place) => self.check(*place),
        }
    }

    /// All nodes go on for a while.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.go_on_until(self.now + time);
    }

    /// All nodes go on, in rounds, up to the right time. Those that are there already stand still.
    fn go_on_until(&mut self, until: Duration) {
        while self.now < until {
            self.now = until.min(self.now + ROUND);
            self.network.set_now(self.now);
            for place in 0..self.machines.len() {
                self.trouble(place);
                let Some(alive) = self.network.alive(place) else { continue };
                if let Some(left) = self.calendar(place).checked_sub(alive.shown()).filter(|left| !left.is_zero()) {
                    alive.life.run("time", async { tokio::time::sleep(left).await });
                }
            }
        }
    }

    /// The time goes on to that of a node which did something, and so do the others.
    fn catch_up(&mut self, place: usize) {
        let Some(ahead) = self.network.alive(place).and_then(|alive| alive.shown().checked_sub(self.calendar(place)))
        else {
            return;
        };
        self.go_on_until(self.now + ahead);
        if let Some(names) = &mut self.names {
            names.went_alone(place, ahead, self.now);
        }
        if REMEMBERED < ahead {
            // It heard nothing of the others meanwhile, nor they of it.
            for other in 0..self.machines.len() {
                self.unmet_until[place][other] = self.now + MET;
                self.unmet_until[other][place] = self.now + MET;
            }
        }
    }

    fn calendar(&self, place: usize) -> Duration {
        moved(self.now, self.skews[place])
    }

    /// The process of a node, which is started if there is none.
    fn alive(&mut self, place: usize) -> Result<Arc<Alive>, String> {
        if self.network.alive(place).is_none() {
            self.start(place)?;
            self.note_split();
        }
        self.catch_up(place);
        Ok(self.network.alive(place).expect("it was started"))
    }

    fn start(&mut self, place: usize) -> Result<(), String> {
        let end = self.network.end(place);
        let calendar = self.calendar(place);
        let machine = &mut self.machines[place];
        machine.shared = Some(end.clone());
        machine.now = calendar;
        let life = machine.start().map_err(|error| format!("node {place} does not start: {error}"))?;
        let number = self.network.number(place);
        let sharing = end.take_sharing();
        let (rules, data) = (machine.rules, machine.data.clone());
        let met = life.run("meeting other nodes", async {
            let Some(sharing) = sharing else {
                adopt_all(&life, rules).await?;
                let peers = Peers::over(end.clone(), life.clock.clone(), "1".to_owned());
                let heads = peers.begin_heads(&life.node.ingest, end.clone(), PATIENCE);
                peers.introduce(address(number)).await;
                tokio::spawn(peers.meet());
                return Ok::<_, String>((heads, None));
            };
            let shared = sharing.attach(&life.node.ingest, data, "1".to_owned(), 0);
            let heads = shared.peers().begin_heads(&life.node.ingest, end.clone(), PATIENCE);
            let (peers, first_names) = (shared.peers().clone(), shared.first_names());
            // As the server does: what others deleted is followed before this node has read who they are.
            for mut task in shared.tasks(RECONCILED_EVERY) {
                tokio::spawn((task.make)());
            }
            first_names.await;
            peers.introduce(address(number)).await;
            Ok((heads, Some(peers)))
        });
        let (heads, peers) = met.ok_or("the process died in its start")??;
        // Nodes that it could not reach find its row later.
        for other in 0..self.machines.len() {
            let has_met = self.network.tables_way(place) == TablesWay::UP
                && self.network.tables_way(other) == TablesWay::UP
                && self.network.peer_way(place, other) == PeerWay::Up;
            if !has_met {
                self.unmet_until[other][place] = self.now + MET;
            }
            // One that could not write its row for a minute.
            if self.network.alive(other).is_some() && !self.network.has_row(other) {
                self.unmet_until[place][other] = Duration::MAX;
            }
            // It reads the rows of others at its start, and one that is old may go.
            else if !has_met {
                self.unmet_until[place][other] = self.now + MET;
            }
        }
        self.unseen_until[place] = self.now + MET;
        self.may_be_new[place] = self.network.tables_way(place) != TablesWay::UP;
        self.network.set_alive(place, Alive { life, heads, peers });
        if let Some(clocks) = &mut self.clocks {
            clocks.started(place, self.now);
        }
        let reaches = !self.may_be_new[place];
        if let Some(names) = &mut self.names {
            names.started(place, self.is_new[place], reaches, self.now);
        }
        self.is_new[place] = false;
        Ok(())
    }

    fn send(&mut self, place: usize, points: &[SentPoint]) -> Result<(), String> {
        let alive = self.alive(place)?;
        let (points, base) = (self.sendable(place, points), self.base_of(place));
        self.note_mixed(&points);
        let accepted = send(&alive.life, &mut self.truth, self.network.number(place), base, &points)?;
        self.note_sent(place, &points);
        self.work.points += accepted;
        self.note_split();
        self.catch_up(place);
        Ok(())
    }

    fn flush(&mut self, place: usize) -> Result<(), String> {
        let alive = self.alive(place)?;
        let flushed = flush(&alive.life)?;
        self.flushed(place, flushed)
    }

    fn flushed(&mut self, place: usize, flushed: Result<(), String>) -> Result<(), String> {
        self.fade();
        self.note_split();
        self.truth.may_store_ghosts(self.network.number(place));
        match flushed {
            Ok(()) => {
                self.truth.stored(self.network.number(place), self.now);
                self.are_written[place] = false;
                // A flush takes a microsecond of write time for each of its runs: a clock that stood still would let another node
                // overwrite points of this one with an earlier time.
                self.pass(WRITTEN);
            }
            Err(error) if self.network.tables_way(place) == TablesWay::UP => {
                return Err(format!("a flush of node {place} fails: {error}"));
            }
            // Rows of some stages may be there.
            Err(_) => {
                self.is_unsettled = true;
                self.are_written[place] = true;
            }
        }
        self.catch_up(place);
        Ok(())
    }

    /// At one of the statements of the flush another node does something.
    fn flush_while(
        &mut self,
        place: usize,
        statements: u64,
        other: usize,
        meanwhile: &Meanwhile,
    ) -> Result<(), String> {
        if place == other {
            return self.flush(place);
        }
        let (alive, _) = (self.alive(place)?, self.alive(other)?);
        let done: Arc<Mutex<Option<Result<DoneMeanwhile, String>>>> = Arc::default();
        let (network, into, number) = (self.network.clone(), done.clone(), self.network.number(other));
        let (mut truth, asked, base, now) = (self.truth.clone(), self.asked(other), self.base_of(other), self.now);
        let meanwhile = match meanwhile {
            Meanwhile::Flush(points) => Meanwhile::Flush(self.sendable(other, points)),
            Meanwhile::Check | Meanwhile::Delete(_) => meanwhile.clone(),
        };
        if let Meanwhile::Flush(points) = &meanwhile {
            self.is_unsettled = true;
            self.note_mixed(points);
            truth.clone_from(&self.truth);
        }
        let waiting = self.waiting_names(other);
        let does = meanwhile.clone();
        let (has_ended, ended) = mpsc::channel();
        self.network.act_at(place, statements, move || {
            // Dropped at the end, whichever that is.
            let _has_ended: mpsc::Sender<()> = has_ended;
            let Some(of_other) = network.alive(other) else { return };
            let mut deleted = None;
            let worked = match &does {
                Meanwhile::Check => ask(&of_other.life, &mut truth, &asked).map(drop),
                Meanwhile::Flush(points) => send_and_flush(&of_other.life, &mut truth, number, (base, now), points),
                Meanwhile::Delete(metrics) => delete(&of_other.life, metrics).map(|done| deleted = Some(done)),
            };
            *into.lock().unwrap_or_else(PoisonError::into_inner) = Some(worked.map(|()| (truth, deleted)));
        });
        let flushed = flush(&alive.life)?;
        if self.network.act_ended() {
            // Before a statement of a background task, which no flush waits for.
            let _ = ended.recv();
        }
        if let Some(worked) = done.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let (truth, deleted) =
                worked.map_err(|error| format!("while node {place} flushes, node {other}: {error}"))?;
            self.truth = truth;
            if let Meanwhile::Flush(points) = &meanwhile {
                // Either may be ahead, and has looked for names of these seconds before there was one.
                self.catch_up(place);
                self.catch_up(other);
                self.note_sent(other, points);
                self.truth.may_store_ghosts(number);
            }
            if let Some(deleted) = deleted {
                self.catch_up(other);
                self.note_deleted(other, deleted, &waiting, Some(place))?;
            }
        }
        self.flushed(place, flushed)?;
        self.catch_up(other);
        Ok(())
    }

    fn delete(&mut self, place: usize, metrics: &[Number]) -> Result<(), String> {
        let alive = self.alive(place)?;
        self.fade();
        let waiting = self.waiting_names(place);
        let deleted = delete(&alive.life, metrics)?;
        self.catch_up(place);
        self.note_deleted(place, deleted, &waiting, None)
    }

    /// The second from which those of points count.
    fn base(&self) -> Timestamp {
        if self.names.is_some() { self.now.as_secs() as Timestamp } else { BASE }
    }

    /// The same of points to a node: where first steps differ, the beginning of the latest minute that is its own.
    fn base_of(&self, place: usize) -> Timestamp {
        let (base, nodes) = (self.base(), self.machines.len() as Timestamp);
        if self.truth.steps.is_none() {
            return base;
        }
        let minute = base / BLOCK;
        (minute - (minute - place as Timestamp).rem_euclid(nodes)) * BLOCK
    }

    /// Whether nothing of a node gets through to the tables.
    pub(crate) fn is_cut_off(&self, place: usize) -> bool {
        is_cut_off(self.network.tables_way(place))
    }

    /// The points that a node may get: of a metric that was deleted, and whose deletion it has not followed, only later ones, and only where
    /// the node cannot store them. Otherwise they would be in the tables without their name. Of a metric that may be there although it was
    /// deleted, only later ones: earlier ones go once another node makes it again.
    fn sendable(&mut self, place: usize, points: &[SentPoint]) -> Vec<SentPoint> {
        self.fade();
        let Some(names) = &self.names else { return points.to_vec() };
        let base = self.base_of(place);
        let may_send = |point: &&SentPoint| {
            let is_later =
                names.deleted_until(point.metric).is_none_or(|at| at.as_secs() as i64 + 1 < base + point.second);
            match names.may_be_back(point.metric) {
                true => is_later && (names.has_followed(place, point.metric, self.now) || self.is_cut_off(place)),
                false => names.has_followed(place, point.metric, self.now) || is_later && self.is_cut_off(place),
            }
        };
        points.iter().filter(may_send).copied().collect()
    }

    fn note_sent(&mut self, place: usize, points: &[SentPoint]) {
        let (base, number) = (self.base_of(place), self.network.number(place));
        let is_unsteady = self.clocks.as_ref().is_some_and(|clocks| clocks.is_unsteady(self.now));
        let Some(names) = &mut self.names else { return };
        for point in points {
            let accepted = self.truth.points.get(&(point.metric, base + point.second));
            if accepted.is_some_and(|accepted| accepted.owner == number) {
                names.sent(place, point.metric, self.now);
                if is_unsteady {
                    names.is_found_at(point.metric, self.now + FOUND_LATE);
                }
            }
        }
    }

    /// Names that other nodes than this one may write to the tables of names at any moment.
    fn waiting_names(&self, place: usize) -> BTreeSet<String> {
        let others = (0..self.machines.len()).filter(|other| *other != place && !self.is_cut_off(*other));
        others.filter_map(|other| self.network.alive(other)).flat_map(|alive| unregistered(&alive.life)).collect()
    }

    /// What is left of metrics that a node deleted, perhaps while another one wrote.
    fn note_deleted(
        &mut self,
        place: usize,
        (known, deleted): Deleted,
        waiting: &BTreeSet<String>,
        writing: Option<usize>,
    ) -> Result<(), String> {
        let is_up = self.network.tables_way(place) == TablesWay::UP;
        match &deleted {
            Err(error) if is_up => return Err(format!("a deletion of node {place} fails: {error}")),
            Err(DeletionError::Away { .. }) => return Ok(()),
            _ => {}
        }
        let may_store = |other: usize| {
            let is_doubtful = self.network.tables_way(other) != TablesWay::UP && !self.is_cut_off(other);
            writing == Some(other) || self.network.alive(other).is_some() && (is_doubtful || self.are_written[other])
        };
        let places = 0..self.machines.len();
        let storing: Vec<u16> =
            places.filter(|other| may_store(*other)).map(|other| self.network.number(other)).collect();
        self.note_clocks();
        // Those whose heartbeat all others have read.
        let is_seen = |other: &usize| self.network.alive(*other).is_some() && self.unseen_until[*other] <= self.now;
        let others = (0..self.machines.len()).filter(is_seen).map(|other| self.skews[other]).max();
        let Some(names) = &mut self.names else { return Ok(()) };
        let own = self.network.number(place);
        let recent = if self.clocks.is_some() { RECENT } else { Duration::ZERO };
        for metric in known {
            // Otherwise others learn of it when they read all names.
            let is_fresh = waiting.contains(&name_of(metric)) || names.is_fresh(place, metric, (self.now, recent));
            let is_by_clocks = |clocks: &NodeClocks| {
                let earliest = clocks.earliest(self.skews[place], others, self.now);
                clocks.is_unsteady(self.now) || self.truth.has_since(metric, earliest)
            };
            let is_any = !deleted.as_ref().is_ok_and(|all| *all)
                || !is_up
                || is_fresh
                || self.clocks.as_ref().is_some_and(is_by_clocks);
            names.delete(metric, self.now, is_any);
            if let Some(clocks) = &self.clocks {
                names.is_deleted_until(metric, clocks.latest(self.now));
                if clocks.is_unsteady(self.now) {
                    names.is_followed_at(metric, self.now + FOUND_LATE);
                }
            }
            if deleted.is_err() {
                self.failed_deletions.push((place, metric, self.now));
                names.is_followed_at(metric, self.now + READ_OF);
            }
            self.truth.delete(metric, |owner, stored_at| match () {
                () if is_any => Remains::Anything,
                () if owner == own => Remains::Nothing,
                () if writing.is_some_and(|writing| self.network.number(writing) == owner) => Remains::Anything,
                // Its write time may be that of a calendar which is a little ahead.
                () if stored_at.is_some_and(|at| self.now < at + recent) => Remains::Anything,
                () if stored_at.is_some() => Remains::Nothing,
                () if storing.contains(&owner) => Remains::Anything,
                () => Remains::UntilFollowed,
            });
        }
        self.note_unlogged(place);
        Ok(())
    }

    /// Points of deleted metrics are gone from nodes that have followed.
    pub(crate) fn fade(&mut self) {
        (0..self.machines.len()).for_each(|place| self.note_names(place));
        let Some(names) = &mut self.names else { return };
        for place in 0..self.machines.len() {
            let way = self.network.tables_way(place);
            if way == TablesWay::UP || is_cut_off(way) || self.network.alive(place).is_none() {
                continue;
            }
            // It may write names again whose deletion it cannot read, after it has waited for that without success.
            let number = self.network.number(place);
            for metric in names.unfollowed(place, self.now) {
                if self.truth.keep_ghosts(metric, number) {
                    names.set_may_be_back(metric);
                }
            }
        }
        let names = &*names;
        let place = |number: u16| (0..self.machines.len()).find(|place| self.network.number(*place) == number);
        // A number that no node has any more is that of a folder that is gone.
        self.truth.fade(|metric, owner| place(owner).is_none_or(|place| names.has_followed(place, metric, self.now)));
    }

    fn end(&mut self, place: usize, ending: Ending) -> Result<(), String> {
        if ending == Ending::Replace {
            if self.network.tables_way(place) != TablesWay::UP {
                return Ok(());
            }
            self.flush(place)?;
        }
        let Some(alive) = self.network.alive(place) else { return Ok(()) };
        self.work.deaths += 1;
        self.has_forgotten |= ending == Ending::Replace;
        let disk = self.machines[place].disk.clone();
        let is_clean = matches!(ending, Ending::Stop | Ending::Replace);
        let mut has_logged = false;
        if is_clean {
            let stopped = alive.life.run("a stop", alive.life.node.stop(&disk)).ok_or("it died in a stop")?;
            self.flushed(place, stopped)?;
            if let Some(peers) = &alive.peers {
                has_logged = alive.life.run("leaving", peers.leave()).is_some_and(|left| left.is_ok());
            }
            self.network.withdraw(place);
        }
        let unregistered = unregistered(&alive.life);
        drop(alive);
        self.are_unlogged(place);
        let left = match ending {
            Ending::PowerCut(seed) => disk.crash(&SeededRandom::new(seed)),
            Ending::Kill | Ending::Stop => disk.kill(),
            Ending::Replace => SimulatedDisk::new(),
        };
        disk.die();
        if let Some(alive) = self.network.take_alive(place) {
            alive.life.end();
        }
        let seed = self.machines[place].seed;
        self.machines[place].disk = left.clone();
        if ending == Ending::Replace {
            let rules = self.machines[place].rules;
            self.machines[place] = Machine::with_disk(left, StoreKind::Embedded, seed);
            self.machines[place].rules = rules;
            self.network.renumber(place);
        }
        if !is_clean && self.have_rules_changed {
            self.truth.may_be_of_another_policy(self.network.number(place));
        }
        self.truth.end(self.network.number(place));
        self.unseen_until[place] = Duration::MAX;
        self.are_written[place] = false;
        self.is_new[place] |= ending == Ending::Replace;
        if let Some(names) = &mut self.names {
            names.ended(place, ending == Ending::Replace, has_logged, &unregistered, self.now);
        }
        Ok(())
    }

    /// Whether a node that does not reach another one may have forgotten it.
    fn may_be_forgotten(&self, place: usize, other: usize) -> bool {
        self.now < self.unseen_until[other].saturating_add(REMEMBERED)
            && self.network.peer_way(place, other) != PeerWay::Up
    }

    /// Nodes whose points an answer of this one may lack although it does not name them.
    fn unknown(&self, place: usize) -> BTreeSet<u16> {
        let is_unknown = |other: &usize| {
            let other = *other;
            let is_down = self.network.alive(other).is_none();
            let may_be_forgotten = self.may_be_forgotten(place, other);
            let is_unseen = self.network.tables_way(other) != TablesWay::UP || self.now < self.unseen_until[other];
            let may_be_forgotten = may_be_forgotten || is_unseen && self.may_be_new[other];
            other != place && (is_down || may_be_forgotten || self.now < self.unmet_until[place][other])
        };
        (0..self.machines.len()).filter(is_unknown).map(|other| self.network.number(other)).collect()
    }

    /// Whether no look is needed for rows to be right.
    fn are_rows_settled(&self) -> bool {
        !self.is_unsettled && !self.truth.has_overwritten
    }

    /// What may be asked of a node now.
    fn asked(&mut self, place: usize) -> Asked {
        self.fade();
        self.note_split();
        let is_up = self.network.tables_way(place) == TablesWay::UP;
        Asked {
            number: self.network.number(place),
            unknown: self.unknown(place),
            rules: self.rules(),
            listed: self.listed(place),
            is_up,
            are_rows_settled: self.are_rows_settled(),
            is_last_settled: false,
            have_rules_changed: self.have_rules_changed,
        }
    }

    /// Which metrics a node has.
    fn listed(&self, place: usize) -> Vec<Listing> {
        let Some(names) = &self.names else { return vec![Listing::Known; Aggregation::ALL.len()] };
        let metrics = 0..LETTERS * Aggregation::ALL.len();
        metrics.map(|metric| names.listing(place, metric, &self.truth, self.now)).collect()
    }

    fn check(&mut self, place: usize) -> Result<(), String> {
        let alive = self.alive(place)?;
        let asked = self.asked(place);
        let (compared, _) = ask(&alive.life, &mut self.truth, &asked)?;
        self.work.slots += compared;
        self.catch_up(place);
        Ok(())
    }

    /// Everything gets through again, and every node stores what it has: all answer with everything, and name no other.
    fn heal(&mut self) -> Result<(), String> {
        self.network.heal();
        if self.clocks.is_some() {
            (0..self.machines.len()).for_each(|place| self.set_calendar(place, 0));
        }
        let rules = self.machines[0].rules;
        for place in 0..self.machines.len() {
            if self.machines[place].rules != rules {
                self.set_rules(place, rules);
            }
            self.alive(place)?;
        }
        self.rules();
        // A node that could not read of a clean stop takes that for a silence.
        self.pass(Duration::from_secs(FORGOTTEN_AFTER));
        self.all_answer("with points in memory", false)?;
        (0..self.machines.len()).try_for_each(|place| self.flush(place))?;
        let holders = self.truth.holders();
        if !holders.is_empty() {
            return Err(format!("nodes {holders:?} have points that are not stored"));
        }
        self.all_answer("once all is stored", false)?;
        self.pass(Duration::from_secs(CORRECTED_AFTER));
        // Points of the steps are of earlier slots: nodes may go on with one for longer than others look at it.
        let are_mended = self.now < Duration::from_secs(BEGINNING) + FLUSH_AFTER;
        self.all_answer("soon after all is stored", are_mended && !self.has_forgotten && !self.have_rules_changed)?;
        self.pass(Duration::from_secs(60 * SETTLED_AFTER));
        // Rows that nodes wrote at the same moment stay, of metrics whose policy has changed.
        self.all_answer("once rows are settled", !self.has_forgotten && !self.have_rules_changed)
    }

    /// All nodes answer with everything, and name no other.
    fn all_answer(&mut self, when: &str, is_last_settled: bool) -> Result<(), String> {
        for place in 0..self.machines.len() {
            let alive = self.alive(place)?;
            let (unknown, are_rows_settled) = (BTreeSet::new(), is_last_settled || self.are_rows_settled());
            self.fade();
            self.note_split();
            let asked = Asked {
                number: self.network.number(place),
                unknown,
                rules: self.rules(),
                listed: self.listed(place),
                is_up: true,
                are_rows_settled,
                is_last_settled,
                have_rules_changed: self.have_rules_changed,
            };
            let answered = ask(&alive.life, &mut self.truth, &asked);
            let (compared, missing) = answered.map_err(|error| format!("{when}, node {place}: {error}"))?;
            self.work.slots += compared;
            if !missing.is_empty() {
                return Err(format!("{when}, node {place} names {missing:?} although all are well"));
            }
            self.catch_up(place);
        }
        Ok(())
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for (place, machine) in self.machines.iter().enumerate() {
            machine.disk.die();
            if let Some(alive) = self.network.take_alive(place) {
                alive.life.end();
            }
        }
    }
}
