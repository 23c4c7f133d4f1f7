//! Steps performed on a machine, through stops and deaths, with the model at their side.

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    time::Duration,
};

use host::{Candidate, FaultPlan, Random as _, SeededRandom, SimulatedDisk};
use store::NewEvent;

use crate::{
    Fidelity, Floor, Life, Machine, Model, Sent, Step,
    backups::Backups,
    bad_pages,
    check::{self, Losses},
    machine::{moved, rules},
    node::Node,
    sending::{Sending, policy_of, until_in_force},
};

/// Points of a batch of many.
const POINTS_OF_A_BATCH: usize = 5000;

/// In one thread, one step of so many also merges files, as the store's thread does each half second.
const STEPS_OF_A_MERGE: u64 = 24;

/// Attempts to start while a fault is on its way.
const STARTS: usize = 3;

/// How steps ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// All are performed.
    Done,
    /// The process died at this one.
    DiedAt(usize),
}

/// A machine, its process, and what it should serve.
pub struct Run {
    /// The machine.
    pub machine: Machine,
    /// What it should serve.
    pub model: Model,
    life: Option<Life>,
    /// Whether metrics keep the policies that they have until the doubt about the clock ends.
    are_rules_waiting: bool,
    backups: Backups,
    /// Whether pages of files cannot be read, perhaps.
    is_bad: bool,
    /// Files of rows that went from their places: these, and where they are.
    away: Vec<(PathBuf, PathBuf)>,
    /// The process died while an operator said that the calendar is right, which was so many seconds ahead until then.
    unsaved_trust: Option<i64>,
    /// Files of the journal that starts went on without.
    missed: BTreeSet<String>,
    /// Calls of the disks before this one.
    calls: u64,
    /// Chooses the steps that also merge files.
    merges: SeededRandom,
}

impl Run {
    /// A machine that is switched on.
    pub fn new(machine: Machine) -> Run {
        Run {
            merges: SeededRandom::new(!machine.seed),
            machine,
            model: Model::default(),
            life: None,
            are_rules_waiting: false,
            backups: Backups::default(),
            is_bad: false,
            away: Vec::new(),
            unsaved_trust: None,
            missed: BTreeSet::new(),
            calls: 0,
        }
    }

    /// Performs the steps.
    ///
    /// # Errors
    /// What is wrong, in one sentence.
    pub fn perform(&mut self, steps: &[Step]) -> Result<Ended, String> {
        for (place, step) in steps.iter().enumerate() {
            let done = catch_unwind(AssertUnwindSafe(|| self.step(step)));
            let done = done.unwrap_or_else(|panic| Err(message(&*panic)));
            if self.machine.disk.is_dead() {
                return Ok(Ended::DiedAt(place));
            }
            done.map_err(|error| format!("step {place}, {}: {error}", name_of(step)))?;
        }
        Ok(Ended::Done)
    }

    /// Ends the process, without a stop.
    pub fn end_process(&mut self) {
        if let Some(life) = self.life.take() {
            self.machine.now = life.end();
        }
    }

    /// The process has died: what was written is there.
    pub fn kill(&mut self) {
        let disk = self.machine.disk.kill();
        self.change_disk(disk);
    }

    /// The power failed.
    pub fn cut_power(&mut self, seed: u64) {
        let disk = self.machine.disk.crash(&SeededRandom::new(seed));
        self.change_disk(disk);
    }

    fn change_disk(&mut self, disk: SimulatedDisk) {
        // The old process may still run: it must not touch the new disk, and cannot.
        self.machine.disk.die();
        self.end_process();
        self.calls += self.machine.disk.changes();
        self.machine.disk = disk;
    }

    /// Calls of the disk that changed it or opened a file.
    pub fn calls(&self) -> u64 {
        self.calls + self.machine.disk.changes()
    }

    /// Starts the process where none runs.
    pub fn start(&mut self) -> Result<(), String> {
        if self.life.is_some() {
            return Ok(());
        }
        for attempt in 1.. {
            let faults = self.machine.disk.faults();
            match self.machine.start() {
                Ok(life) => {
                    if let Some(ahead) = self.unsaved_trust.take()
                        && !life.judged().is_certain()
                    {
                        self.machine.ahead = ahead;
                    }
                    if bad_pages::has_missed(&life, &mut self.missed) {
                        self.model.miss();
                    }
                    self.life = Some(life);
                    // A start judges all metrics by its rules in the background: this waits until it has.
                    self.set_rules(self.machine.rules);
                    return Ok(());
                }
                // What cannot be read now may be read later: it need not start.
                Err(_) if self.is_bad => return Ok(()),
                // A fault that happens once may stop a start; the operator starts it again.
                Err(_) if self.machine.disk.faults().len() > faults.len() && attempt < STARTS => {}
                Err(error) => return Err(format!("it does not start: {error}")),
            }
        }
        unreachable!("the last attempt returns")
    }

    /// Compares everything that is served with the model.
    pub fn check(&mut self, fidelity: Fidelity) -> Result<Losses, String> {
        self.start()?;
        if self.is_bad {
            let checked =
                self.life.as_ref().map_or(Ok(()), |life| bad_pages::check(life, &self.model, self.machine.ahead));
            if fidelity == Fidelity::From(Floor::Durable) {
                self.model.forget_unsynced();
            }
            return checked.map(|()| Losses::default());
        }
        if self.are_rules_waiting {
            // Points may have ended the doubt about the clock while pages could not be read.
            let rules = rules(self.machine.rules);
            self.model.names().iter().for_each(|name| self.model.may_get(name, policy_of(rules, name)));
        }
        let life = self.life.as_ref().expect("it was started");
        life.run("reading points back", read_back(life));
        bad_pages::learn_of_expired(life, &self.machine, &mut self.model);
        check::check(life, &mut self.model, fidelity, self.machine.ahead)
    }

    /// Findings of damage since the start.
    pub fn damage(&self) -> Vec<store::Damage> {
        self.life.as_ref().map(|life| life.node.damage.examples()).unwrap_or_default()
    }

    /// The metrics that are shown.
    pub fn names(&self) -> BTreeSet<String> {
        let Some(life) = &self.life else { return BTreeSet::new() };
        let names = life.node.registry.read();
        let shown = (0..names.end().0).map(|id| names.name(metric::MetricId(id)).to_owned());
        shown.filter(|name| !name.is_empty()).collect()
    }

    /// The id of a metric.
    pub(crate) fn id_of(&self, name: &str) -> Option<metric::MetricId> {
        let registry = &self.life.as_ref()?.node.registry;
        registry.read().find(registry.hash(name.as_bytes()), name.as_bytes())
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        if self.is_bad && !bad_pages::may_do(step, self.life.as_ref()) {
            return Ok(());
        }
        match step {
            Step::Kill => self.kill(),
            Step::PowerCut(seed) => self.cut_power(*seed),
            Step::Restart => {
                self.stop()?;
                self.start()?;
            }
            Step::Check => _ = self.check(Fidelity::From(Floor::Acknowledged))?,
            Step::Rules(number) => self.machine.rules = *number,
            Step::JumpWhileOff(_) | Step::Off(_) => {
                self.model.jump();
                self.change_calendar_while_off(step);
            }
            Step::StartWithFaults(plan, points) => self.start_with_faults(plan, points)?,
            Step::Restore => self.restore()?,
            Step::Heal { after, is_killed } => self.heal(*after, *is_killed)?,
            _ => {}
        }
        if matches!(step, Step::Kill | Step::PowerCut(_)) {
            let floor = if matches!(step, Step::Kill) { Floor::Acknowledged } else { Floor::Durable };
            self.check(Fidelity::From(floor))?;
        }
        self.start()?;
        self.perform_alive(step)?;
        self.finish_rules();
        self.check_time()
    }

    /// A step in which a process runs.
    fn perform_alive(&mut self, step: &Step) -> Result<(), String> {
        let Some(life) = &self.life else { return Ok(()) };
        let node = &life.node;
        if host::is_in_place() && self.merges.below(STEPS_OF_A_MERGE) == 0 {
            life.within(Node::look_after_files);
        }
        match step {
            Step::Send(connections) => self.send(connections)?,
            Step::Bulk { name, newest, seconds } => self.send_many(name, *newest, *seconds)?,
            Step::Flush => {
                let flush = async {
                    match self.is_bad {
                        true => bad_pages::flush(node).await,
                        false => node.ingest.flush().await.is_ok(),
                    }
                };
                if life.run("a flush", flush) == Some(true) {
                    self.model.store();
                }
            }
            Step::Rules(number) => self.set_rules(*number),
            Step::Delete(names) => {
                let find =
                    |name: &String| node.registry.read().find(node.registry.hash(name.as_bytes()), name.as_bytes());
                // Of a metric that pages hide nothing is deleted.
                let is_there = |name: &&String| !self.is_bad || find(name).is_some();
                let names: Vec<&String> = names.iter().filter(is_there).collect();
                let ids: Vec<_> = names.iter().filter_map(|name| find(name)).collect();
                let is_certain = matches!(life.run("a deletion", node.ingest.delete(&ids)), Some(Ok(_)));
                names.iter().for_each(|name| self.model.delete(name, is_certain));
                if !is_certain {
                    // Those that come again are new.
                    names.iter().for_each(|name| self.model.may_get(name, policy_of(rules(self.machine.rules), name)));
                }
            }
            Step::Pass(time) => {
                _ = life.run("time", tokio::time::advance(*time));
                _ = life.run("the mark of the time", node.save_mark());
            }
            Step::Expire => {
                // An error is logged, and the next hour is the next attempt.
                if let Some(time) = life.expiry() {
                    _ = life.run("expiry", node.points.expire(time));
                    self.model.expire(time);
                }
            }
            Step::Event(what) => {
                self.model.events.entry(what.clone()).or_insert(Floor::Sent);
                let event = NewEvent { when: life.now(), what: what.clone(), ..NewEvent::default() };
                if let Some(Ok(_)) = life.run("an event", node.events.put_event(event)) {
                    self.model.events.insert(what.clone(), Floor::Durable);
                }
            }
            Step::Jump(seconds) => {
                self.model.jump();
                life.jump(*seconds);
                self.machine.ahead += seconds;
            }
            Step::Trust => {
                life.within(|node| node.ingest.time().trust(Candidate::Clock));
                _ = life.run("the mark of the time", node.save_mark());
                if self.machine.disk.is_dead() {
                    // What the operator said may be lost.
                    self.unsaved_trust = Some(self.machine.ahead);
                }
                self.machine.ahead = 0;
            }
            Step::BadPages(parts) => {
                bad_pages::spoil(&self.machine, parts);
                self.is_bad = true;
            }
            Step::TakeRows(number) => {
                self.away.extend(bad_pages::take_rows(&self.machine, *number));
                self.is_bad = true;
            }
            Step::ReturnRows(number) if !self.away.is_empty() => {
                let place = (number % self.away.len() as u64) as usize;
                bad_pages::return_rows(&self.machine, self.away.swap_remove(place));
            }
            Step::Backup => self.backups.make(life, &self.machine.disk, (&self.model, self.is_bad))?,
            _ => {}
        }
        Ok(())
    }

    fn send(&mut self, connections: &[Vec<Sent>]) -> Result<(), String> {
        // Connections that have the same slot: either may be the last.
        self.model.next_rank();
        let Some(life) = &self.life else { return Ok(()) };
        if life.judged().is_certain() {
            return self.send_together(connections);
        }
        // A batch may end the doubt about the clock: the next is judged by another time, and the rules that waited come into
        // force.
        for one in connections.chunks(1) {
            self.send_together(one)?;
            self.finish_rules();
        }
        Ok(())
    }

    fn send_together(&mut self, connections: &[Vec<Sent>]) -> Result<(), String> {
        let Some(life) = &self.life else { return Ok(()) };
        let (machine, are_rules_waiting) = (&self.machine, self.are_rules_waiting);
        let sending = Sending { life, machine, are_rules_waiting, may_miss_metrics: self.is_bad };
        sending.send(&mut self.model, connections)
    }

    /// Sends a point of each of so many seconds, oldest first.
    fn send_many(&mut self, name: &str, newest: i64, seconds: i64) -> Result<(), String> {
        let ages: Vec<i64> = (newest..newest + seconds).rev().collect();
        for ages in ages.chunks(POINTS_OF_A_BATCH) {
            let sent = |&age: &i64| Sent { name: name.to_owned(), age, value: (age % 16) as f64 };
            self.send(&[ages.iter().map(sent).collect()])?;
        }
        Ok(())
    }

    /// While the clock is in doubt, the time of senders is between the two that it may be.
    fn check_time(&self) -> Result<(), String> {
        let Some(life) = &self.life else { return Ok(()) };
        let (now, truth) = (life.judged(), life.now() - self.machine.ahead);
        // Not a jump: small steps of the calendar, the age of the mark, and the minute that each start allows for that.
        let near = 3 * host::TOLERANCE;
        let is_between = now.low() - near <= truth && truth <= now.high() + near;
        if !is_between {
            return Err(format!("the time is {truth}, and the node judges by {now:?}"));
        }
        Ok(())
    }

    /// The process is killed, and the calendar is another, or later, at the next start.
    fn change_calendar_while_off(&mut self, step: &Step) {
        self.kill();
        match step {
            Step::JumpWhileOff(seconds) => {
                self.machine.now = moved(self.machine.now, *seconds);
                self.machine.ahead += seconds;
            }
            Step::Off(time) => self.machine.now += *time,
            _ => {}
        }
    }

    /// The process is killed, and started while calls fail that read. Then they do not, and everything is there.
    fn start_with_faults(&mut self, plan: &FaultPlan, points: &[Sent]) -> Result<(), String> {
        self.kill();
        self.machine.disk.set_plan(Some(plan.clone()));
        let started = self.machine.start();
        let is_started = started.is_ok();
        if let Ok(life) = started {
            self.life = Some(life);
            self.set_rules(self.machine.rules);
        }
        self.machine.disk.set_plan(None);
        if is_started {
            self.send(&[points.to_vec()])?;
            self.perform_alive(&Step::Flush)?;
            match self.stop() {
                // Late points wait for rows that the start could not open. They stay in the journal.
                Err(error) if error.contains("cannot be read; late points") => self.end_process(),
                stopped => stopped?,
            }
        }
        let wrong = |error| format!("after a start with {plan:?}: {error}");
        self.check(Fidelity::From(Floor::Acknowledged)).map_err(wrong).map(drop)
    }

    /// The process is killed, and the newest backup takes the place of the data folder.
    fn restore(&mut self) -> Result<(), String> {
        if let Some(backup) = self.backups.newest(&self.machine.disk)? {
            self.kill();
            let mut restored = self.backups.restore(&self.machine, &backup, &mut self.model);
            if restored.is_err() && self.is_bad {
                // The disk does not return the backup either. The operator has it repaired, and begins again.
                self.machine.disk.heal();
                self.is_bad = false;
                restored = self.backups.restore(&self.machine, &backup, &mut self.model);
            }
            let was_bad = restored?;
            self.start()?;
            if was_bad && !self.is_bad {
                self.put_back()?;
            }
            self.check(Fidelity::From(Floor::Acknowledged)).map_err(|error| format!("of the backup: {error}"))?;
        }
        Ok(())
    }

    /// The disk returns everything again.
    fn heal(&mut self, after: Duration, is_killed: bool) -> Result<(), String> {
        if !self.is_bad {
            return Ok(());
        }
        self.machine.disk.heal();
        self.away.drain(..).for_each(|file| bad_pages::return_rows(&self.machine, file));
        if let Some(life) = &self.life {
            life.run("time", async { tokio::time::sleep(after).await });
        }
        match is_killed {
            true => self.kill(),
            false => self.stop()?,
        }
        self.is_bad = false;
        self.start()?;
        let wrong = |error| format!("after pages could be read again: {error}");
        self.put_back().map_err(wrong)?;
        self.check(Fidelity::From(Floor::Acknowledged)).map_err(wrong).map(drop)
    }

    /// The node puts back what it can read again.
    fn put_back(&self) -> Result<(), String> {
        let life = self.life.as_ref().expect("it was started");
        life.run("reading points back", read_back(life));
        life.run("putting points back", bad_pages::put_back(life)).unwrap_or(Ok(()))
    }

    /// Gives the metrics their policies by the rules with this number.
    fn set_rules(&mut self, number: usize) {
        let Some(life) = &self.life else { return };
        let is_bad = self.is_bad;
        if !is_bad {
            life.run("reading points back", read_back(life));
        }
        let rules = rules(number);
        let changed = async {
            life.node.ingest.set_rules(rules.clone()).await;
            if life.is_in_doubt() {
                return false;
            }
            if is_bad {
                return bad_pages::until_in_force(life, rules).await;
            }
            until_in_force(life, rules, false).await;
            true
        };
        match life.run("a change of rules", changed) {
            Some(true) => {
                self.are_rules_waiting = false;
                self.model.set_policies(|name| policy_of(rules, name));
            }
            Some(false) => self.are_rules_waiting = true,
            None => {}
        }
    }

    /// Where a change of rules waited for the end of a doubt about the clock, and that has come: waits for the change.
    fn finish_rules(&mut self) {
        let Some(life) = self.life.as_ref().filter(|_| self.are_rules_waiting && !self.is_bad) else { return };
        if life.judged().is_certain() {
            let rules = rules(self.machine.rules);
            let changed = async {
                read_back(life).await;
                until_in_force(life, rules, true).await;
            };
            if life.run("a change of rules", changed).is_some() {
                self.are_rules_waiting = false;
                self.model.set_policies(|name| policy_of(rules, name));
            }
        }
    }

    /// A clean stop. An error of the disk leaves the rest in the journal.
    pub fn stop(&mut self) -> Result<(), String> {
        self.start()?;
        let Some(life) = &self.life else { return Ok(()) };
        let faults = self.machine.disk.faults();
        match life.run("a stop", life.node.stop(&self.machine.disk)) {
            Some(Ok(())) => self.model.store(),
            Some(Err(_)) if self.is_bad => {}
            Some(Err(error)) if self.machine.disk.faults() == faults && !self.machine.disk.is_dead() => {
                return Err(format!("a stop fails without a fault: {error}"));
            }
            _ => {}
        }
        self.end_process();
        Ok(())
    }
}

/// Waits for points that a replay had no memory for: they are read when the store has taken the others.
async fn read_back(life: &Life) {
    while life.node.ingest.flush_progress().parked_points > 0 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.machine.disk.die();
        self.end_process();
    }
}

fn name_of(step: &Step) -> String {
    let text = format!("{step:?}");
    text.split(['(', '{']).next().unwrap_or_default().to_owned()
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panicked: {}", text.unwrap_or("without a message"))
}
