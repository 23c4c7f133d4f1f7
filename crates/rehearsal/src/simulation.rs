//! Random steps from a seed: batches of several connections, flushes, changes of rules, faults, kills, power cuts, stops,
//! and time that passes, with a comparison after each that ends a process.

use std::time::Duration;

use host::{Call, Fault, FaultPlan, Random as _, SeededRandom};

use crate::{
    Ended, Fidelity, Floor, Machine, Run, Sent, Step, StoreKind,
    workload::{name, points},
};

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
}

/// Seeds from here on also delete metrics, fail reads, and start with little memory.
pub const MORE_KINDS: u64 = 10_000;

/// Bytes of points in memory after some starts: a replay leaves segments in the journal.
const LITTLE_MEMORY: u64 = 4 << 10;

/// The steps of a seed.
fn steps(seed: u64, count: usize) -> Vec<Step> {
    let random = SeededRandom::new(seed);
    let batch = |random: &SeededRandom| -> Vec<Sent> {
        let newest = if random.below(4) == 0 { 900 + random.below(300) as i64 } else { random.below(60) as i64 };
        points(random, newest, 1 + random.below(20) as i64, 1 + random.below(6))
    };
    let step = |place: usize| match random.below(24) {
        0..10 => Step::Send((0..1 + random.below(3)).map(|_| batch(&random)).collect()),
        10..14 => Step::Flush,
        14..17 => Step::Pass(Duration::from_millis(random.below(20_000))),
        17 => Step::Restart,
        18 => Step::Kill,
        19 => Step::PowerCut(random.bits()),
        20 => Step::Event(format!("event {place}")),
        21 => Step::Expire,
        22 => Step::Rules(random.index(3)),
        _ => Step::Check,
    };
    let mut steps: Vec<Step> = (0..count).map(step).collect();
    if MORE_KINDS <= seed {
        for _ in 0..count / 12 {
            let names = (0..1 + random.below(4)).map(|_| name(&random)).collect();
            steps[random.index(count)] = Step::Delete(names);
        }
    }
    steps
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
    /// What happens.
    pub steps: Vec<Planned>,
}

impl Scenario {
    /// The scenario of a seed.
    pub fn of(seed: u64, count: usize) -> Scenario {
        let random = SeededRandom::new(!seed);
        // One seed in two has faults, one in two syncs every batch.
        let has_faults = random.below(2) == 0;
        let sync =
            if random.below(2) == 0 { ingest::Sync::Every(Duration::from_secs(1)) } else { ingest::Sync::Always };
        let planned = |step: Step| {
            let is_read = matches!(step, Step::Check | Step::Kill | Step::PowerCut(_));
            let plan = (has_faults && !is_read && random.below(4) == 0).then(|| fault(seed, &random, &step));
            let cut = (random.below(2) == 0).then(|| random.bits());
            let is_start = matches!(step, Step::Kill | Step::PowerCut(_) | Step::Restart);
            let memory = || if random.below(3) == 0 { LITTLE_MEMORY } else { 1 << 30 };
            Planned { step, plan, cut, memory: (MORE_KINDS <= seed && is_start).then(memory) }
        };
        Scenario { seed, sync, steps: steps(seed, count).into_iter().map(planned).collect() }
    }

    /// Performs it, and compares what is served with the model. Returns the work done.
    ///
    /// # Errors
    /// What is wrong, in one sentence.
    pub fn perform(&self) -> Result<Work, String> {
        let mut run = Run::new(Machine::new(StoreKind::Embedded, self.seed));
        run.machine.sync = self.sync;
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
            work.deaths += u64::from(matches!(step, Step::Kill | Step::PowerCut(_)));
            if let Step::Send(connections) = step {
                work.points += connections.iter().map(|connection| connection.len() as u64).sum::<u64>();
            }
        }
        work.calls = run.machine.disk.changes();
        run.perform(&[Step::Restart, Step::Check]).map_err(|error| format!("at the end: {error}"))?;
        Ok(work)
    }

    /// The fewest steps, faults and points found that still fail, and how. For the author of the test that a failing seed
    /// becomes.
    pub fn shrink(mut self) -> (Scenario, Option<String>) {
        let mut error = self.perform().err();
        if error.is_none() {
            return (self, None);
        }
        for size in [16, 4, 2, 1, 1] {
            for fewer in Part::ALL {
                let mut place = 0;
                while place < fewer.count(&self) {
                    let smaller = fewer.without(&self, place, size);
                    let count = fewer.count(&self);
                    if let Some(found) = smaller.perform().err() {
                        (self, error) = (smaller, Some(found));
                    }
                    // Faults that are gone still have their places.
                    if fewer.count(&self) == count {
                        place += size;
                    }
                }
            }
        }
        (self, error)
    }
}

/// A fault in this step.
fn fault(seed: u64, random: &SeededRandom, step: &Step) -> FaultPlan {
    let fault = [Fault::EIO, Fault::ENOSPC, Fault::EINTR, Fault::ShortWrite, Fault::Die][random.index(5)];
    let may_fail_reads = matches!(step, Step::Flush | Step::Expire | Step::Send(_));
    if MORE_KINDS <= seed && may_fail_reads && random.below(3) == 0 {
        return FaultPlan { kinds: vec![Call::Read], ..FaultPlan::once(random.below(8), Fault::EIO) };
    }
    FaultPlan::once(random.below(30), fault)
}

/// What a scenario is made smaller by.
#[derive(Debug, Clone, Copy)]
enum Part {
    Steps,
    Names,
    Faults,
    Points,
}

impl Part {
    const ALL: [Part; 4] = [Part::Steps, Part::Names, Part::Faults, Part::Points];

    fn names(scenario: &Scenario) -> Vec<String> {
        let mut names: Vec<String> = sends(scenario).map(|sent| sent.name.clone()).collect();
        names.sort();
        names.dedup();
        names
    }

    fn count(self, scenario: &Scenario) -> usize {
        match self {
            Part::Steps | Part::Faults => scenario.steps.len(),
            Part::Names => Part::names(scenario).len(),
            Part::Points => sends(scenario).count(),
        }
    }

    fn without(self, scenario: &Scenario, place: usize, size: usize) -> Scenario {
        let mut fewer = scenario.clone();
        let gone = place..place + size;
        match self {
            Part::Steps => _ = fewer.steps.drain(place..(place + size).min(scenario.steps.len())),
            Part::Faults => fewer.steps.iter_mut().skip(place).take(size).for_each(|planned| planned.plan = None),
            Part::Names => {
                let names: Vec<String> = Part::names(scenario).into_iter().skip(place).take(size).collect();
                retain(&mut fewer, |sent| !names.contains(&sent.name));
            }
            Part::Points => {
                let mut count = 0..;
                retain(&mut fewer, |_| !gone.contains(&count.next().expect("it has no end")));
            }
        }
        fewer
    }
}

fn sends(scenario: &Scenario) -> impl Iterator<Item = &Sent> {
    let connections = scenario.steps.iter().filter_map(|planned| match &planned.step {
        Step::Send(connections) => Some(connections),
        _ => None,
    });
    connections.flatten().flatten()
}

fn retain(scenario: &mut Scenario, mut is_kept: impl FnMut(&Sent) -> bool) {
    for planned in &mut scenario.steps {
        if let Step::Send(connections) = &mut planned.step {
            connections.iter_mut().for_each(|connection| connection.retain(&mut is_kept));
            connections.retain(|connection| !connection.is_empty());
        }
    }
}
