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
pub fn steps(seed: u64, count: usize) -> Vec<Step> {
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
        22 => Step::Rules(1),
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

/// Performs the steps with faults from the seed. Returns the work done.
///
/// # Errors
/// What is wrong, in one sentence.
pub fn simulate(seed: u64, steps: &[Step]) -> Result<Work, String> {
    let random = SeededRandom::new(!seed);
    let mut run = Run::new(Machine::new(StoreKind::Embedded, seed));
    let mut work = Work::default();
    // One seed in two has faults, one in two syncs every batch.
    let has_faults = random.below(2) == 0;
    if random.below(2) == 0 {
        run.machine.sync = ingest::Sync::Every(Duration::from_secs(1));
    }
    for (place, step) in steps.iter().enumerate() {
        let wrong = |error: String| format!("step {place}: {error}");
        let is_read = matches!(step, Step::Check | Step::Kill | Step::PowerCut(_));
        if MORE_KINDS <= seed && matches!(step, Step::Kill | Step::PowerCut(_) | Step::Restart) {
            run.machine.memory_limit_bytes = if random.below(3) == 0 { LITTLE_MEMORY } else { 1 << 30 };
        }
        let fault = [Fault::EIO, Fault::ENOSPC, Fault::EINTR, Fault::ShortWrite, Fault::Die][random.index(5)];
        let mut plan = FaultPlan::once(random.below(30), fault);
        if MORE_KINDS <= seed && matches!(step, Step::Flush | Step::Expire | Step::Send(_)) && random.below(3) == 0 {
            plan = FaultPlan { kinds: vec![Call::Read], at: random.below(8), fault: Fault::EIO, ..plan };
        }
        let disk = run.machine.disk.clone();
        disk.set_plan((has_faults && !is_read && random.below(4) == 0).then_some(plan));
        let ended = run.perform(std::slice::from_ref(step)).map_err(wrong)?;
        disk.set_plan(None);
        work.faults += disk.faults().len() as u64;
        if let Ended::DiedAt(_) = ended {
            let is_cut = random.below(2) == 0;
            if is_cut {
                run.cut_power(random.bits())
            } else {
                run.kill()
            }
            let floor = if is_cut { Floor::Durable } else { Floor::Acknowledged };
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

/// The fewest steps and points found that still fail, and how. For the author of the test that a failing seed becomes.
pub fn shrink(seed: u64, mut steps: Vec<Step>) -> (Vec<Step>, Option<String>) {
    let mut error = simulate(seed, &steps).err();
    for size in [16, 4, 1] {
        let mut place = 0;
        while place < steps.len() {
            let mut fewer = steps.clone();
            fewer.drain(place..(place + size).min(steps.len()));
            match simulate(seed, &fewer).err() {
                Some(found) => (steps, error) = (fewer, Some(found)),
                None => place += size,
            }
        }
    }
    (steps, error)
}
