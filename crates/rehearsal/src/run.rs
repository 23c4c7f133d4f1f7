//! Steps performed on a machine, through stops and deaths, with the model at their side.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use carbon::{Decision, LineDecoder, Rules};
use host::{SeededRandom, SimulatedDisk};
use ingest::Protocol;
use metadata::Registry;
use metric::{MetricId, Policy};
use store::NewEvent;

use crate::{
    Fidelity, Floor, Life, Machine, Model, Sent, Step,
    check::{self, Losses},
    machine::rules,
    model::Ticket,
};

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
}

impl Run {
    /// A machine that is switched on.
    pub fn new(machine: Machine) -> Run {
        Run { machine, model: Model::default(), life: None }
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
            self.machine.now = self.machine.now.max(life.end());
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
        self.machine.disk = disk;
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
                    self.life = Some(life);
                    // A start judges all metrics by its rules in the background: this waits until it has.
                    self.set_rules(self.machine.rules);
                    return Ok(());
                }
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
        let life = self.life.as_ref().expect("it was started");
        life.run("reading points back", read_back(life));
        check::check(life, &mut self.model, fidelity)
    }

    /// Findings of damage since the start.
    pub fn damage(&self) -> Vec<store::Damage> {
        self.life.as_ref().map(|life| life.node.damage.examples()).unwrap_or_default()
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Kill => self.kill(),
            Step::PowerCut(seed) => self.cut_power(*seed),
            Step::Restart => {
                self.stop()?;
                self.start()?;
            }
            Step::Check => _ = self.check(Fidelity::From(Floor::Acknowledged))?,
            Step::Rules(number) => self.machine.rules = *number,
            _ => {}
        }
        if matches!(step, Step::Kill | Step::PowerCut(_)) {
            let floor = if matches!(step, Step::Kill) { Floor::Acknowledged } else { Floor::Durable };
            self.check(Fidelity::From(floor))?;
        }
        self.start()?;
        let Some(life) = &self.life else { return Ok(()) };
        match step {
            Step::Send(connections) => send(life, &mut self.model, connections, &self.machine),
            Step::Flush => {
                if let Some(Ok(())) = life.run("a flush", life.node.ingest.flush()) {
                    self.model.sync();
                }
            }
            Step::Rules(number) => self.set_rules(*number),
            Step::Delete(names) => {
                let node = &life.node;
                let find =
                    |name: &String| node.registry.read().find(node.registry.hash(name.as_bytes()), name.as_bytes());
                let ids: Vec<_> = names.iter().filter_map(find).collect();
                let is_certain = matches!(life.run("a deletion", node.ingest.delete(&ids)), Some(Ok(_)));
                names.iter().for_each(|name| self.model.delete(name, is_certain));
            }
            Step::Pass(time) => _ = life.run("time", tokio::time::advance(*time)),
            Step::Expire => {
                // An error is logged, and the next hour is the next attempt.
                _ = life.run("expiry", life.node.points.expire(life.now()));
            }
            Step::Event(what) => {
                self.model.events.entry(what.clone()).or_insert(Floor::Sent);
                let event = NewEvent { when: life.now(), what: what.clone(), ..NewEvent::default() };
                if let Some(Ok(_)) = life.run("an event", life.node.events.put_event(event)) {
                    self.model.events.insert(what.clone(), Floor::Durable);
                }
            }
            Step::Restart | Step::Kill | Step::PowerCut(_) | Step::Check => {}
        }
        Ok(())
    }

    /// Gives the metrics their policies by the rules with this number.
    fn set_rules(&mut self, number: usize) {
        let Some(life) = &self.life else { return };
        life.run("reading points back", read_back(life));
        let rules = rules(number);
        let changed = async {
            life.node.ingest.set_rules(rules.clone()).await;
            // While points spill, metrics keep their policies.
            while !are_in_force(&rules, &life.node.registry) {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        if life.run("a change of rules", changed).is_some() {
            self.model.set_policies(|name| policy_of(&rules, name));
        }
    }

    /// A clean stop. An error of the disk leaves the rest in the journal.
    pub fn stop(&mut self) -> Result<(), String> {
        self.start()?;
        let life = self.life.as_ref().expect("it was started");
        let faults = self.machine.disk.faults();
        match life.run("a stop", life.node.stop(&self.machine.disk)) {
            Some(Ok(())) => self.model.sync(),
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

/// Sends lines of several connections at the same time.
fn send(life: &Life, model: &mut Model, connections: &[Vec<Sent>], machine: &Machine) {
    let now = life.now();
    let rules = rules(machine.rules);
    // Connections that have the same slot: either may be the last.
    model.next_rank();
    let mut tickets: Vec<Vec<Ticket>> = Vec::new();
    let mut batches = Vec::new();
    for connection in connections {
        if connections.len() == 1 {
            model.next_rank();
        }
        let mut lines = Vec::new();
        let mut of_connection = Vec::new();
        for sent in connection {
            let time = now - sent.age;
            lines.extend_from_slice(format!("{} {} {time}\n", sent.name, sent.value).as_bytes());
            let policy = model.metrics.get(&sent.name).map(|metric| metric.policy.clone());
            let policy = policy.unwrap_or_else(|| policy_of(&rules, &sent.name));
            of_connection.extend(model.send(&policy, now, (&sent.name, time, sent.value)));
        }
        tickets.push(of_connection);
        let mut batch = life.node.ingest.batch(Protocol::LineTcp);
        let read = LineDecoder::new().decode(&lines, now, &mut batch);
        assert_eq!(read, lines.len(), "the lines are whole");
        batches.push(batch);
    }
    let floor = match machine.sync {
        ingest::Sync::Always => Floor::Durable,
        ingest::Sync::Every(_) => Floor::Acknowledged,
    };
    let accepted = life.run("accepting points", async {
        let tasks: Vec<_> = batches
            .into_iter()
            .map(|mut batch| {
                let ingest = life.node.ingest.clone();
                tokio::spawn(async move { ingest.accept(&mut batch).await })
            })
            .collect();
        for task in tasks {
            task.await.expect("accepting does not panic");
        }
    });
    if accepted.is_some() {
        tickets.iter().for_each(|tickets| model.acknowledge(tickets, floor));
    }
}

/// Whether all metrics have their policies by these rules.
fn are_in_force(rules: &Rules, registry: &Registry) -> bool {
    let end = registry.read().end();
    (0..end.0).map(MetricId).all(|id| {
        let names = registry.read();
        let name = names.name(id);
        name.is_empty() || registry.policy(names.policy_id(id)).is_same(&policy_of(rules, name))
    })
}

fn policy_of(rules: &Rules, name: &str) -> Policy {
    match rules.decide(name) {
        Decision::Keep(index) => rules.policy(index).clone(),
        other => panic!("{name} is not kept: {other:?}"),
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
