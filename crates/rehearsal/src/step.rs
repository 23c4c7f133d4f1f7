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

/// Files of a data folder and of its backups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// Files of rows.
    Rows,
    /// The log of names.
    Names,
    /// The log of events.
    Events,
    /// Segments of the journal, and files with late points.
    Journal,
    /// The manifest of the store.
    Manifest,
    /// The spec of the store.
    Spec,
    /// The mark of how far the time had come.
    Clock,
    /// Any file of the data folder.
    Any,
    /// Files of backups.
    Backup,
}

/// Pages of a file that cannot be read for a time. The numbers choose among the files and pages that there are.
#[derive(Debug, Clone, Copy)]
pub struct BadPages {
    /// Its file.
    pub kind: FileKind,
    /// The file.
    pub file: u64,
    /// Bytes of a page.
    pub page: u64,
    /// The first.
    pub first: u64,
    /// How many.
    pub pages: u64,
    /// Reads that fail before the disk is right again.
    pub times: u64,
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
    /// These pages cannot be read from now on.
    BadPages(Vec<BadPages>),
    /// A file of rows goes from its place, which the number chooses.
    TakeRows(u64),
    /// A file that went from its place comes back, which the number chooses.
    ReturnRows(u64),
    /// The disk is right again, and all files are in their places. The process goes on for so long, dies or is stopped, and starts again: everything is there.
    Heal {
        /// How long it goes on.
        after: Duration,
        /// Whether it is killed.
        is_killed: bool,
    },
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
        self.kills() || matches!(self, Step::Restart | Step::Heal { .. })
    }
}
