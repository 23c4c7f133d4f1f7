//! What is done to a node.

use std::time::Duration;

use host::FaultPlan;

/// A point of a sender.
#[derive(Debug, Clone)]
pub struct Sent {
    /// Name.
    pub name: String,
    /// Seconds before now.
    pub age: i64,
    /// Value.
    pub value: f64,
}

/// One step of a rehearsal.
#[derive(Debug, Clone)]
pub enum Step {
    /// Lines of several connections, each in order, all at the same time.
    Send(Vec<Vec<Sent>>),
    /// Everything to the store.
    Flush,
    /// The rules with this number.
    Rules(usize),
    /// A user deletes the metrics of these names.
    Delete(Vec<String>),
    /// Time passes.
    Pass(Duration),
    /// A point of each of so many seconds, of one connection, in batches; the newest is so many seconds old.
    Bulk {
        /// Name.
        name: String,
        /// Seconds before now.
        newest: i64,
        /// Points.
        seconds: i64,
    },
    /// The calendar is set, so many seconds on or back. It is wrong from then on, or right again.
    Jump(i64),
    /// The process is killed, and the calendar set before the next start.
    JumpWhileOff(i64),
    /// The process is killed, and the machine is off so long. Its calendar is as right as before.
    Off(Duration),
    /// An operator says that the calendar is right.
    Trust,
    /// A backup.
    Backup,
    /// The process is killed, and the newest backup takes the place of the data folder.
    Restore,
    /// The process is killed, and a start has these faults, which then pass. Where it runs nevertheless, it gets these
    /// points, and stores them.
    StartWithFaults(FaultPlan, Vec<Sent>),
    /// The store frees expired points.
    Expire,
    /// An event.
    Event(String),
    /// A clean stop and a start.
    Restart,
    /// The process is killed, and started again.
    Kill,
    /// The power fails; the number chooses the state of the disk.
    PowerCut(u64),
    /// Everything that is served is compared with the model.
    Check,
}

impl Step {
    /// Whether the process dies in it.
    pub(crate) fn kills(&self) -> bool {
        use Step::{JumpWhileOff, Kill, Off, PowerCut, Restore, StartWithFaults};
        matches!(self, Kill | PowerCut(_) | JumpWhileOff(_) | Off(_) | Restore | StartWithFaults(..))
    }

    /// Whether a process starts in it.
    pub(crate) fn starts(&self) -> bool {
        self.kills() || matches!(self, Step::Restart)
    }
}
