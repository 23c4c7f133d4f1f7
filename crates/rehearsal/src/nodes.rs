//! Several nodes that ask each other for points in memory: kills, power cuts, replaced folders, skewed clocks, and ways that are
//! cut. Any node must answer with all points, or name the nodes whose points its answer may lack.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cluster::Peers;
use host::{SeededRandom, SimulatedDisk};
use store_cassandra::Layout;

use crate::{
    Machine, StoreKind, Work,
    machine::{BEGINNING, LONG, moved},
    network::{Alive, Network, PeerWay, TablesWay, address},
    node::FLUSH_AFTER,
    node_asks::{Asked, adopt_all, ask, flush, send, send_and_flush},
    node_steps::{Ending, Meanwhile, NodeStep, NodesScenario, SentPoint},
    truth::Truth,
};

/// How long a node waits for the points of others.
const PATIENCE: Duration = Duration::from_millis(500);

/// After so long without a heartbeat a node may be forgotten by others.
const REMEMBERED: Duration = Duration::from_secs(40);

/// A node hears of others that it did not know at once, and that do not ask it, after so long.
const MET: Duration = Duration::from_secs(12);

/// So far all nodes go on together: a node that goes on alone hears no heartbeat of the others meanwhile.
const ROUND: Duration = Duration::from_secs(4);

/// A flush takes so long, at least.
const WRITTEN: Duration = Duration::from_millis(1);

/// Seconds after which nodes that are gone are named no longer.
const FORGOTTEN_AFTER: u64 = 80;

/// Minutes after which rows that nodes wrote at the same moment are right.
const SETTLED_AFTER: u64 = 40;

/// Seconds after which rows are right that a node corrected and another one wrote over, where everything is stored: a quarter of
/// `flush_after`, and some for clocks that differ.
const CORRECTED_AFTER: u64 = FLUSH_AFTER.as_secs() / 4 + 30;

impl NodesScenario {
    /// Performs it, heals everything, and compares what all nodes answer. Returns the work done.
    ///
    /// # Errors
    /// What is wrong, in one sentence.
    pub fn perform(&self) -> Result<Work, String> {
        let mut nodes = Nodes::new(&self.layouts, self.seed);
        nodes.truth.has_skew = self.steps.iter().any(|step| matches!(step, NodeStep::Skew(..)));
        for (number, step) in self.steps.iter().enumerate() {
            nodes.step(step).map_err(|error| format!("step {number}: {error}"))?;
            nodes.work.steps += 1;
        }
        nodes.heal().map_err(|error| format!("at the end: {error}"))?;
        nodes.work.calls = nodes.machines.iter().map(|machine| machine.disk.changes()).sum();
        Ok(nodes.work)
    }

    /// The fewest steps found that still fail, in one of so many attempts, and how.
    pub fn shrink(mut self, attempts: usize) -> (NodesScenario, Option<String>) {
        let fails = |scenario: &NodesScenario| (0..attempts).find_map(|_| scenario.perform().err());
        let mut error = fails(&self);
        for size in [16, 4, 1, 1] {
            let mut place = 0;
            while error.is_some() && place < self.steps.len() {
                let mut fewer = self.clone();
                fewer.steps.drain(place..(place + size).min(self.steps.len()));
                match fails(&fewer) {
                    Some(found) => (self, error) = (fewer, Some(found)),
                    None => place += size,
                }
            }
        }
        let mut step = 0;
        while error.is_some() && step < self.steps.len() {
            let mut point = 0;
            loop {
                let mut fewer = self.clone();
                let (NodeStep::Send(_, points) | NodeStep::FlushWhile(.., Meanwhile::Flush(points))) =
                    &mut fewer.steps[step]
                else {
                    break;
                };
                if points.len() <= point {
                    break;
                }
                points.remove(point);
                match fails(&fewer) {
                    Some(found) => (self, error) = (fewer, Some(found)),
                    None => point += 1,
                }
            }
            step += 1;
        }
        (self, error)
    }
}

/// Performs the steps of a seed.
///
/// # Errors
/// What is wrong, in one sentence.
pub fn perform_nodes(seed: u64, steps: usize) -> Result<Work, String> {
    let scenario = NodesScenario::of(seed, steps);
    if let Ok(attempts) = std::env::var("SHRINK") {
        let attempts = attempts.parse().expect("SHRINK is how often it tries fewer steps");
        let (scenario, error) = scenario.clone().shrink(attempts);
        println!("{error:?} {scenario:?}");
    }
    scenario.perform()
}

/// The nodes, and what they accepted.
struct Nodes {
    network: Arc<Network>,
    machines: Vec<Machine>,
    /// Seconds by which the calendars are wrong.
    skews: Vec<i64>,
    truth: Truth,
    /// The right time.
    now: Duration,
    /// Of each node, until when its row in the table of nodes may be absent or old.
    unseen_until: Vec<Duration>,
    /// Nodes that could not write their row when they started: no other may have read it.
    may_be_new: Vec<bool>,
    /// Of each node, others that may not have met it, and until when.
    unmet_until: Vec<Vec<Duration>>,
    /// Whether two nodes may have stored points of a metric at the same moment: coarse slots are right later.
    is_unsettled: bool,
    /// Whether a folder is gone that said which such slots were to be derived again.
    has_forgotten: bool,
    work: Work,
}

impl Nodes {
    fn new(layouts: &[Layout], seed: u64) -> Nodes {
        let count = layouts.len();
        let machine = |place: usize| {
            let mut machine = Machine::new(StoreKind::Embedded, seed.wrapping_mul(8) + place as u64);
            machine.rules = LONG;
            machine
        };
        let now = Duration::from_secs(BEGINNING);
        Nodes {
            network: Network::new(layouts, seed, now),
            machines: (0..count).map(machine).collect(),
            skews: vec![0; count],
            truth: Truth::default(),
            now,
            unseen_until: vec![Duration::ZERO; count],
            may_be_new: vec![false; count],
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
            NodeStep::Tables(place, way) => {
                if *way != TablesWay::UP {
                    self.work.faults += 1;
                }
                self.trouble(*place);
                self.network.set_tables(*place, *way);
                Ok(())
            }
            NodeStep::Peer(from, to, way) => {
                if from != to {
                    self.network.set_peer(*from, *to, *way);
                    self.work.faults += u64::from(*way != PeerWay::Up);
                }
                Ok(())
            }
            NodeStep::Pass(seconds) => {
                self.pass(Duration::from_secs(*seconds));
                Ok(())
            }
            NodeStep::Check(place) => self.check(*place),
        }
    }

    /// Nodes whose row may be absent or old are in trouble for a while after the tables are there again.
    fn trouble(&mut self, place: usize) {
        if self.network.tables_way(place) != TablesWay::UP && self.network.alive(place).is_some() {
            self.unseen_until[place] = self.now + MET;
        }
        if self.network.has_row(place) {
            let of_place = self.unmet_until.iter_mut().map(|unmet| &mut unmet[place]);
            of_place.filter(|until| **until == Duration::MAX).for_each(|until| *until = self.now + MET);
        }
    }

    /// All nodes go on for a while.
    fn pass(&mut self, time: Duration) {
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
        let met = life.run("meeting other nodes", async {
            adopt_all(&life, machine.rules).await?;
            let peers = Peers::over(end.clone(), life.clock.clone(), "1".to_owned());
            let heads = peers.begin_heads(&life.node.ingest, end.clone(), PATIENCE);
            peers.introduce(address(number)).await;
            tokio::spawn(peers.meet());
            Ok::<_, String>(heads)
        });
        let heads = met.ok_or("the process died in its start")??;
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
            // It reads the rows of others at its start.
            else if self.network.tables_way(place) != TablesWay::UP {
                self.unmet_until[place][other] = self.now + MET;
            }
        }
        self.unseen_until[place] = self.now + MET;
        self.may_be_new[place] = self.network.tables_way(place) != TablesWay::UP;
        self.network.set_alive(place, Alive { life, heads });
        Ok(())
    }

    fn send(&mut self, place: usize, points: &[SentPoint]) -> Result<(), String> {
        let alive = self.alive(place)?;
        let accepted = send(&alive.life, &mut self.truth, self.network.number(place), points)?;
        self.work.points += accepted;
        self.catch_up(place);
        Ok(())
    }

    fn flush(&mut self, place: usize) -> Result<(), String> {
        let alive = self.alive(place)?;
        let flushed = flush(&alive.life)?;
        self.flushed(place, flushed)
    }

    fn flushed(&mut self, place: usize, flushed: Result<(), String>) -> Result<(), String> {
        match flushed {
            Ok(()) => {
                self.truth.stored(self.network.number(place));
                // A flush takes a microsecond of write time for each of its runs: a clock that stood still would let another node
                // overwrite points of this one with an earlier time.
                self.pass(WRITTEN);
            }
            Err(error) if self.network.tables_way(place) == TablesWay::UP => {
                return Err(format!("a flush of node {place} fails: {error}"));
            }
            // Rows of some stages may be there.
            Err(_) => self.is_unsettled = true,
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
        let done: Arc<Mutex<Option<Result<Truth, String>>>> = Arc::default();
        let (network, into, number) = (self.network.clone(), done.clone(), self.network.number(other));
        let (mut truth, asked, meanwhile) = (self.truth.clone(), self.asked(other), meanwhile.clone());
        self.is_unsettled |= matches!(meanwhile, Meanwhile::Flush(_));
        self.network.act_at(place, statements, move || {
            let Some(of_other) = network.alive(other) else { return };
            let worked = match &meanwhile {
                Meanwhile::Check => ask(&of_other.life, &truth, &asked).map(drop),
                Meanwhile::Flush(points) => send_and_flush(&of_other.life, &mut truth, number, points),
            };
            *into.lock().unwrap_or_else(PoisonError::into_inner) = Some(worked.map(|()| truth));
        });
        let flushed = flush(&alive.life)?;
        self.network.act_ended();
        if let Some(worked) = done.lock().unwrap_or_else(PoisonError::into_inner).take() {
            self.truth = worked.map_err(|error| format!("while node {place} flushes, node {other}: {error}"))?;
        }
        self.flushed(place, flushed)?;
        self.catch_up(other);
        Ok(())
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
        if is_clean {
            let stopped = alive.life.run("a stop", alive.life.node.stop(&disk)).ok_or("it died in a stop")?;
            self.flushed(place, stopped)?;
            self.network.withdraw(place);
        }
        drop(alive);
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
            self.machines[place] = Machine::with_disk(left, StoreKind::Embedded, seed);
            self.machines[place].rules = LONG;
            self.network.renumber(place);
        }
        self.unseen_until[place] = Duration::MAX;
        Ok(())
    }

    /// Nodes whose points an answer of this one may lack although it does not name them.
    fn unknown(&self, place: usize) -> BTreeSet<u16> {
        let is_unknown = |other: &usize| {
            let other = *other;
            let is_down = self.network.alive(other).is_none();
            let may_be_forgotten = self.now < self.unseen_until[other].saturating_add(REMEMBERED)
                && self.network.peer_way(place, other) != PeerWay::Up;
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
    fn asked(&self, place: usize) -> Asked {
        let is_up = self.network.tables_way(place) == TablesWay::UP;
        Asked { unknown: self.unknown(place), is_up, are_rows_settled: self.are_rows_settled(), is_last_settled: false }
    }

    fn check(&mut self, place: usize) -> Result<(), String> {
        let alive = self.alive(place)?;
        let (compared, _) = ask(&alive.life, &self.truth, &self.asked(place))?;
        self.work.slots += compared;
        self.catch_up(place);
        Ok(())
    }

    /// Everything gets through again, and every node stores what it has: all answer with everything, and name no other.
    fn heal(&mut self) -> Result<(), String> {
        self.network.heal();
        for place in 0..self.machines.len() {
            self.alive(place)?;
        }
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
        self.all_answer("soon after all is stored", are_mended && !self.has_forgotten)?;
        self.pass(Duration::from_secs(60 * SETTLED_AFTER));
        self.all_answer("once rows are settled", !self.has_forgotten)
    }

    /// All nodes answer with everything, and name no other.
    fn all_answer(&mut self, when: &str, is_last_settled: bool) -> Result<(), String> {
        for place in 0..self.machines.len() {
            let alive = self.alive(place)?;
            let (unknown, are_rows_settled) = (BTreeSet::new(), is_last_settled || self.are_rows_settled());
            let asked = Asked { unknown, is_up: true, are_rows_settled, is_last_settled };
            let answered = ask(&alive.life, &self.truth, &asked);
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
