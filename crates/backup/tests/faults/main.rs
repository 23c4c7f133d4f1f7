//! Backups, restores and repairs in which a call of the disk fails, or is the last before a kill or a power cut. Afterwards the node serves
//! everything, nothing incomplete passes for a backup or a data folder, and the next attempt works.
//!
//! A run takes every seventh call, or every one with `EVERY=1`.

mod away;
mod backups;
mod misplaced;
mod node;
mod repairs;
mod restores;
mod two_disks;
mod unread;

use host::{Fault, FaultPlan, SeededRandom, SimulatedDisk};

/// What happens at a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Fails(Fault),
    Kill,
    /// The number chooses the state of the disk.
    PowerCut(u64),
}

const ALL: [What; 7] = [
    What::Fails(Fault::EIO),
    What::Fails(Fault::ENOSPC),
    What::Fails(Fault::ShortWrite),
    What::Kill,
    What::PowerCut(1),
    What::PowerCut(2),
    What::PowerCut(3),
];

/// What happens, and at which of so many calls.
fn places(calls: u64) -> impl Iterator<Item = (What, u64)> {
    let every = std::env::var("EVERY").ok().and_then(|every| every.parse().ok()).unwrap_or(7);
    let of_one =
        move |(first, what): (u64, What)| (first % every..calls).step_by(every as usize).map(move |at| (what, at));
    (0..).zip(ALL).flat_map(of_one)
}

/// Runs work during which something happens at a call. Returns the disk afterwards, and the answer where the process lives.
fn run<T>(disk: &SimulatedDisk, what: What, at: u64, work: impl FnOnce() -> T) -> (SimulatedDisk, Option<T>) {
    let fault = if let What::Fails(fault) = what { fault } else { Fault::Die };
    disk.set_plan(Some(FaultPlan::once(at, fault)));
    let done = work();
    disk.set_plan(None);
    match what {
        _ if !disk.is_dead() => (disk.clone(), Some(done)),
        What::PowerCut(seed) => (disk.crash(&SeededRandom::new(seed << 32 | at)), None),
        _ => (disk.kill(), None),
    }
}

/// The calls that change the disk or open a file during a piece of work.
fn calls_of<T>(disk: &SimulatedDisk, work: impl FnOnce() -> T) -> (u64, T) {
    let before = disk.changes();
    let done = work();
    (disk.changes() - before, done)
}
