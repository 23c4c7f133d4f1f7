//! The fixed workload without and with faults.

use std::time::Duration;

use host::{Call, Fault, FaultPlan};
use ingest::Sync;
use rehearsal::{Ended, Fidelity, Floor, Machine, Rehearsal, Run, Sent, Step, StoreKind, What, calls, workload};

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

/// A point of each of these names, and time for an fsync of the journal.
fn send(names: &[&str], value: f64) -> [Step; 2] {
    let sent = |name: &&str| Sent { name: (*name).to_owned(), age: 1, value };
    [Step::Send(vec![names.iter().map(sent).collect()]), Step::Pass(Duration::from_secs(3))]
}

/// Names, points, an event, deletions, and a metric that takes the name of a deleted one.
fn steps_of_every_log() -> Vec<Step> {
    let deletion = |name: &str| Step::Delete(vec![name.to_owned()]);
    let mut steps = send(&["sum.a", "sum.b", "sum.c"], 1.0).to_vec();
    steps.push(Step::Flush);
    steps.extend([deletion("sum.b"), Step::Pass(Duration::from_secs(3)), Step::Event("event".to_owned())]);
    steps.extend(send(&["sum.a", "max.d"], 2.0));
    steps.push(deletion("sum.c"));
    steps.extend(send(&["sum.c"], 4.0));
    steps
}

/// After a sync that failed, the system shows the next process bytes that are not on the disk, and its syncs of them succeed.
#[test]
fn what_a_start_serves_after_a_sync_that_failed_outlives_a_power_cut() {
    let wrong = wrong_after_failed_syncs(true);
    assert!(wrong.is_empty(), "{}: {wrong:#?}", wrong.len());
}

/// The rehearsal above finds what it is for.
#[test]
fn without_the_note_of_failed_syncs_a_power_cut_takes_what_a_start_served() {
    let wrong = wrong_after_failed_syncs(false);
    assert!(!wrong.is_empty());
}

/// Syncs fail in a step, until a kill. Returns what power cuts take of what the next start serves.
fn wrong_after_failed_syncs(notes_failed_syncs: bool) -> Vec<String> {
    let (syncs, cuts) = if is_full() { (8, 20) } else { (3, 8) };
    let (steps, mut wrong, mut faults) = (steps_of_every_log(), Vec::new(), 0);
    // A sender would wait for the disk.
    let fails_in = |step: &Step| !matches!(step, Step::Send(_) | Step::Flush);
    for failing in (0..steps.len()).filter(|place| fails_in(&steps[*place])) {
        for at in 0..syncs {
            let mut run = Run::new(Machine::new(StoreKind::Embedded, 1));
            run.machine.sync = EVERY_SECOND;
            run.machine.notes_failed_syncs = notes_failed_syncs;
            run.perform(&steps[..failing]).unwrap();
            // The process dies before the disk is right again.
            run.machine.disk.set_plan(Some(FaultPlan {
                kinds: vec![Call::Sync],
                at,
                times: u64::MAX,
                fault: Fault::EIO,
            }));
            _ = run.perform(&steps[failing..=failing]);
            run.machine.disk.set_plan(None);
            faults += run.machine.disk.faults().len();
            let result = run.perform(&[Step::Kill]).map(drop);
            // The flush trims the journal.
            let result = result.and_then(|()| {
                [&[][..], &[Step::Flush]].into_iter().try_for_each(|then| {
                    run.perform(then)?;
                    outlives_power_cuts(&mut run, cuts).map_err(|error| format!("{then:?}, {error}"))
                })
            });
            if let Err(error) = result {
                println!("syncs from {at} on in step {failing}: {error}");
                wrong.push(format!("syncs from {at} on in step {failing}: {error}"));
            }
        }
    }
    println!("{faults} faults");
    assert!(0 < faults);
    wrong
}

/// Compares what is served after each of these power cuts with what is served now. They leave the run as it is.
fn outlives_power_cuts(run: &mut Run, cuts: u64) -> Result<(), String> {
    let (shown, disk, model) = (run.names(), run.machine.disk.kill(), run.model.clone());
    for cut in 0..cuts {
        run.cut_power(cut);
        run.check(Fidelity::From(Floor::Acknowledged)).map_err(|error| format!("cut {cut}: {error}"))?;
        if run.names() != shown {
            return Err(format!("cut {cut}: {:?} instead of {shown:?}", run.names()));
        }
        run.kill();
        (run.machine.disk, run.model) = (disk.kill(), model.clone());
    }
    Ok(())
}
