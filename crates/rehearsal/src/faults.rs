//! Every call of the disk fails, or is the process's last.

use host::{Fault, FaultPlan, SeededRandom, SimulatedDisk};

use crate::{
    Ended, Fidelity, Floor, Machine, Run, Step, StoreKind, workload,
    workload::{listed, points},
};

/// What one rehearsal does at its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// The call fails.
    Fails(Fault),
    /// The process is killed in the middle of it.
    Kill,
    /// The power fails; the number chooses the state of the disk.
    PowerCut(u64),
}

/// One rehearsal: the workload with something that happens at a call of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rehearsal {
    /// The call, counted from 0.
    pub call: u64,
    /// What happens.
    pub what: What,
    /// When the journal is synced.
    pub sync: ingest::Sync,
}

/// Calls of the disk that the workload makes without faults.
pub fn calls(sync: ingest::Sync) -> Result<u64, String> {
    let mut run = Run::new(Machine::new(StoreKind::Embedded, 1));
    run.machine.sync = sync;
    run.perform(&workload())?;
    Ok(run.machine.disk.changes())
}

impl Rehearsal {
    /// Runs it.
    ///
    /// # Errors
    /// What is wrong, in one sentence.
    pub fn run(self) -> Result<(), String> {
        let disk = SimulatedDisk::new();
        self.run_on(&disk).map_err(|error| format!("{:?}: {error}", disk.faults()))
    }

    fn run_on(self, disk: &SimulatedDisk) -> Result<(), String> {
        let mut machine = Machine::with_disk(disk.clone(), StoreKind::Embedded, 1);
        machine.sync = self.sync;
        let fault = if let What::Fails(fault) = self.what { fault } else { Fault::Die };
        machine.disk.set_plan(Some(FaultPlan::once(self.call, fault)));
        let mut run = Run::new(machine);
        let steps = workload();
        let floor = if let What::PowerCut(_) = self.what { Floor::Durable } else { Floor::Acknowledged };
        let mut next = 0;
        if let Ended::DiedAt(at) = run.perform(&steps)? {
            match self.what {
                What::PowerCut(seed) => run.cut_power(seed),
                _ => run.kill(),
            }
            run.check(Fidelity::From(floor)).map_err(|error| format!("after the start behind step {at}: {error}"))?;
            // No file was taken away: whatever call it died at, no segment of the journal is missed.
            if let Some(missed) = run.damage().into_iter().find(|damage| damage.what == "journal segment") {
                return Err(format!("after the start behind step {at}: {missed:?}"));
            }
            next = at;
        } else {
            run.machine.disk.set_plan(None);
            check_at_the_end(&mut run).map_err(|error| format!("at the end: {error}"))?;
        }
        // Goes on, with what it died at again.
        if 0 < next {
            run.perform(&steps[next..]).map_err(|error| format!("going on after step {next}: {error}"))?;
        }
        run.perform(&afterwards()).map_err(|error| format!("afterwards: {error}"))?;
        Ok(())
    }
}

/// A file that could not be opened at a start is reported as damage, and is there again at the next start.
fn check_at_the_end(run: &mut Run) -> Result<(), String> {
    let fidelity = Fidelity::From(Floor::Acknowledged);
    let first = run.check(fidelity);
    if first.is_err() && !run.damage().is_empty() {
        run.perform(&[Step::Restart])?;
        return run.check(fidelity).map(drop);
    }
    first.map(drop)
}

/// New points, a flush, a clean stop and a start.
fn afterwards() -> Vec<Step> {
    let random = SeededRandom::new(2);
    let send = || Step::Send(vec![[points(&random, 0, 20, 3), listed(0, 20)].concat()]);
    vec![send(), Step::Check, Step::Flush, send(), Step::Restart, Step::Check, Step::Kill]
}
