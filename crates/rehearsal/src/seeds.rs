//! Random steps from a seed: batches of several connections, flushes, changes of rules, faults, kills, power cuts, stops,
//! and time that passes. What a number means stays: a range of numbers has its own kinds of steps.

use std::time::Duration;

use host::{Call, Fault, FaultPlan, Random as _, SeededRandom};

use crate::{
    Planned, Scenario, Sent, Step,
    kinds::{LITTLE_MEMORY, bad_pages, first_steps, lists, long_slots, rows_away, whole},
    workload::{name, points},
};

/// Seeds from here on also delete metrics, fail reads, and start with little memory.
pub const MORE_KINDS: u64 = 10_000;

/// Seeds from here on have metrics of few slots, and every kind of step: jumps of the clock, lists of names, backups and
/// restores, and starts at which reads fail.
pub const ALL_KINDS: u64 = 20_000;

/// Seeds from here on have coarse slots of more than 32,767 points.
pub const LONG_SLOTS: u64 = 30_000;

/// Seeds from here on are of several nodes on the same tables; see [`crate::perform_writers`].
pub const WRITERS: u64 = 40_000;

/// Seeds from here on have pages that cannot be read, and jumps of the clock.
pub const BAD_PAGES_AND_JUMPS: u64 = 50_000;

/// Seeds from here on have pages that cannot be read, also of backups, and backups and restores meanwhile.
pub const BAD_PAGES_AND_BACKUPS: u64 = 60_000;

/// Seeds from here on change among retentions with several first steps.
pub const FIRST_STEPS: u64 = 70_000;

/// Seeds from here on also change the rules several times within a second.
pub const WITHIN_A_SECOND: u64 = 80_000;

/// Seeds from here on have every kind of step, and lists of methods in the rules, which come, go and change their order.
pub const LISTS_OF_METHODS: u64 = 160_000;

/// Seeds from here on change among retentions with several first steps, and among lists of methods.
pub const FIRST_STEPS_WITH_LISTS: u64 = 320_000;

/// Seeds from here on are of several nodes that ask each other for points in memory; see [`crate::perform_nodes`].
pub const SEVERAL_NODES: u64 = 400_000;

/// Seeds from here on are of several nodes that write packed tables, all or some of them, or move between the layouts.
pub const SEVERAL_LAYOUTS: u64 = 410_000;

/// Seeds from here on are of several nodes that create and delete metrics.
pub const NAMES_OF_NODES: u64 = 420_000;

/// Seeds from here on are of several nodes that create and delete metrics, with calendars that are set while they run.
pub const CLOCKS_OF_NODES: u64 = 425_000;

/// Seeds from here on are of several nodes whose rules change, of one after the other.
pub const RULES_OF_NODES: u64 = 430_000;

/// Seeds from here on are of several nodes whose rules change among retentions of several first steps, of one after the other.
pub const FIRST_STEPS_OF_NODES: u64 = 435_000;

/// Seeds from here on have files of rows that go from their places and come back, and pages of rows that cannot be read.
pub const ROWS_AWAY: u64 = 440_000;

/// Whether all work of a seed has an order that the seed determines. One of eight has threads that wait for the disk: they keep the orders
/// that no seed determines. `ONE_THREAD=1` or `0` says it of all.
///
/// # Panics
/// `ONE_THREAD` is something else.
pub fn is_in_one_thread(seed: u64) -> bool {
    match std::env::var("ONE_THREAD").as_deref() {
        Ok("1") => true,
        Ok("0") => false,
        Ok(other) => panic!("ONE_THREAD is 0 or 1, not {other}"),
        Err(_) => !seed.is_multiple_of(8),
    }
}

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

impl Scenario {
    /// The scenario of a seed.
    pub fn of(seed: u64, count: usize) -> Scenario {
        match seed {
            _ if ROWS_AWAY <= seed => return rows_away(seed, count),
            _ if FIRST_STEPS_WITH_LISTS <= seed => return first_steps(seed, count, seed.is_multiple_of(4), true),
            _ if LISTS_OF_METHODS <= seed => return lists(seed, count),
            _ if FIRST_STEPS <= seed => return first_steps(seed, count, WITHIN_A_SECOND <= seed, false),
            _ if BAD_PAGES_AND_JUMPS <= seed => return bad_pages(seed, count, BAD_PAGES_AND_BACKUPS <= seed),
            _ if LONG_SLOTS <= seed => return long_slots(seed, count),
            _ if ALL_KINDS <= seed => return whole(seed, count),
            _ => {}
        }
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
        let is_whole = false;
        Scenario { seed, sync, is_whole, rules: 0, steps: steps(seed, count).into_iter().map(planned).collect() }
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
