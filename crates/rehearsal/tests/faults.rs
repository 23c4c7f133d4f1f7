//! The fixed workload without and with faults.

use std::time::Duration;

use host::Fault;
use ingest::Sync;
use rehearsal::{Ended, Fidelity, Floor, Machine, Rehearsal, Run, Step, StoreKind, What, calls, workload};

/// Whether every call is rehearsed, rather than one in some.
fn is_full() -> bool {
    std::env::var_os("REHEARSAL").is_some_and(|value| value == "full")
}

/// Rehearses this at every call, or one in some, and asserts that nothing is wrong.
fn rehearse(name: &str, sync: Sync, short: u64, what: impl Fn(u64) -> What) {
    let calls = calls(sync).unwrap();
    let every = if is_full() { 1 } else { (calls / short).max(1) };
    let (mut count, mut wrong) = (0, Vec::new());
    for call in (0..calls).step_by(every as usize) {
        let rehearsal = Rehearsal { call, what: what(call), sync };
        count += 1;
        if let Err(error) = rehearsal.run() {
            println!("{rehearsal:?}: {error}");
            wrong.push(format!("{rehearsal:?}: {error}"));
        }
    }
    println!("| {name} | {calls} calls | {count} rehearsed | {} exceptions |", wrong.len());
    assert!(wrong.is_empty(), "{}: {wrong:#?}", wrong.len());
}

const EVERY_SECOND: Sync = Sync::Every(Duration::from_secs(1));

#[test]
fn a_workload_without_faults_is_served_after_every_step() {
    let mut run = Run::new(Machine::new(StoreKind::Embedded, 1));
    let steps: Vec<Step> = workload().into_iter().flat_map(|step| [step, Step::Check]).collect();
    assert_eq!(run.perform(&steps), Ok(Ended::Done));
    println!("{} calls of the disk", run.machine.disk.changes());
    run.kill();
    run.check(Fidelity::From(Floor::Acknowledged)).unwrap();
}

#[test]
fn a_kill_at_any_call_loses_no_accepted_point() {
    rehearse("kill -9", EVERY_SECOND, 12, |_| What::Kill);
}

#[test]
fn a_power_cut_at_any_call_loses_no_synced_point() {
    rehearse("power cut, sync always", Sync::Always, 25, What::PowerCut);
}

#[test]
fn a_power_cut_between_syncs_loses_nothing_that_was_flushed() {
    rehearse("power cut, sync every second", EVERY_SECOND, 25, What::PowerCut);
}

#[test]
fn a_call_that_fails_costs_no_accepted_point() {
    rehearse("EIO", EVERY_SECOND, 12, |_| What::Fails(Fault::EIO));
}

#[test]
fn a_call_without_space_costs_no_accepted_point() {
    rehearse("ENOSPC", EVERY_SECOND, 12, |_| What::Fails(Fault::ENOSPC));
}

#[test]
fn a_call_that_is_interrupted_costs_no_accepted_point() {
    rehearse("EINTR", EVERY_SECOND, 12, |_| What::Fails(Fault::EINTR));
}

#[test]
fn a_short_write_costs_no_accepted_point() {
    rehearse("short write", EVERY_SECOND, 12, |_| What::Fails(Fault::ShortWrite));
}

#[test]
fn a_workload_without_faults_is_served_at_its_end() {
    for end in 1..=workload().len() {
        let mut run = Run::new(Machine::new(StoreKind::Embedded, 1));
        assert_eq!(run.perform(&workload()[..end]), Ok(Ended::Done));
        run.check(Fidelity::From(Floor::Acknowledged)).unwrap_or_else(|error| panic!("{end}: {error}"));
    }
}
