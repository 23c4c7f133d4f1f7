//! Steps with faults, performed with a comparison after each that ends a process.

use std::{ops::AddAssign, sync::Arc, time::Duration};

use host::{FaultPlan, InPlace, SeededRandom};

use crate::{Ended, Fidelity, Floor, Machine, Run, Step, StoreKind, machine::STEPS};

/// Work done by a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Work {
    /// Steps.
    pub steps: u64,
    /// Points sent.
    pub points: u64,
    /// Calls of the disk.
    pub calls: u64,
    /// Calls that failed.
    pub faults: u64,
    /// Kills and power cuts.
    pub deaths: u64,
    /// Slots of answers compared with the model.
    pub slots: u64,
}

impl Work {
    fn count(&mut self, step: &Step) {
        match step {
            Step::Send(connections) => self.points += connections.iter().map(|sent| sent.len() as u64).sum::<u64>(),
            Step::StartWithFaults(_, sent) => self.points += sent.len() as u64,
            Step::Bulk { seconds, .. } => self.points += *seconds as u64,
            _ => {}
        }
        self.deaths += u64::from(step.kills());
    }
}

impl AddAssign for Work {
    fn add_assign(&mut self, other: Work) {
        self.steps += other.steps;
        self.points += other.points;
        self.calls += other.calls;
        self.faults += other.faults;
        self.deaths += other.deaths;
        self.slots += other.slots;
    }
}

/// A step, the fault of a call meanwhile, and what happens if the process dies in it.
#[derive(Debug, Clone)]
pub struct Planned {
    /// What is done.
    pub step: Step,
    /// Which call of the disk fails.
    pub plan: Option<FaultPlan>,
    /// Whether the power fails when the process dies, and the state of the disk then.
    pub cut: Option<u64>,
    /// Bytes of points in memory from the next start on.
    pub memory: Option<u64>,
}

/// Steps with faults. A failing one is made smaller, and becomes a test.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Random numbers of the node.
    pub seed: u64,
    /// When the journal is synced.
    pub sync: ingest::Sync,
    /// Whether the process does what the first rehearsals left out; see [`Machine::is_whole`].
    pub is_whole: bool,
    /// The rules at the beginning.
    pub rules: usize,
    /// What happens.
    pub steps: Vec<Planned>,
}

impl Scenario {
    /// As [`Scenario::perform`], in one thread: what waits for the disk, and merges, run in an order that the seed determines.
    ///
    /// # Errors
    /// What is wrong, in one sentence.
    pub fn perform_in_one_thread(&self) -> Result<Work, String> {
        let _in_place = InPlace::begin(Arc::new(SeededRandom::new(self.seed.wrapping_mul(3))));
        self.perform()
    }

    /// Performs it, and compares what is served with the model. What waits for the disk has threads. Returns the work done.
    ///
    /// # Errors
    /// What is wrong, in one sentence.
    pub fn perform(&self) -> Result<Work, String> {
        let mut run = Run::new(Machine::new(StoreKind::Embedded, self.seed));
        run.machine.sync = self.sync;
        (run.machine.is_whole, run.machine.rules) = (self.is_whole, self.rules);
        run.model.has_first_steps = self.rules & STEPS > 0;
        let mut work = Work::default();
        for (place, planned) in self.steps.iter().enumerate() {
            let Planned { step, plan, cut, memory } = planned;
            let wrong = |error: String| format!("step {place}: {error}");
            run.machine.memory_limit_bytes = memory.unwrap_or(run.machine.memory_limit_bytes);
            let disk = run.machine.disk.clone();
            disk.set_plan(plan.clone());
            let ended = run.perform(std::slice::from_ref(step)).map_err(wrong)?;
            disk.set_plan(None);
            work.faults += disk.faults().len() as u64;
            if let Ended::DiedAt(_) = ended {
                match cut {
                    Some(seed) => run.cut_power(*seed),
                    None => run.kill(),
                }
                let floor = if cut.is_some() { Floor::Durable } else { Floor::Acknowledged };
                run.check(Fidelity::From(floor)).map_err(wrong)?;
                work.deaths += 1;
            }
            work.steps += 1;
            work.count(step);
        }
        work.calls = run.calls();
        let heal = Step::Heal { after: Duration::ZERO, is_killed: true };
        run.perform(&[heal, Step::Restart, Step::Check]).map_err(|error| format!("at the end: {error}"))?;
        work.slots = run.model.compared;
        Ok(work)
    }
}
