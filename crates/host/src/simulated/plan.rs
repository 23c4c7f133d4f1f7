//! Which calls of a simulated disk fail, and how.

use std::io;

use crate::Call;

/// What happens at a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The call fails with this error number, such as `libc`'s `EIO` (5), `EINTR` (4) or `ENOSPC` (28). Half of a
    /// write reaches the file before it fails, as when a disk fills up; nothing of one that a signal interrupts. The
    /// changes before a sync that fails are never durable.
    Error(i32),
    /// A write takes half of its bytes and says so. Other calls succeed.
    ShortWrite,
    /// The process ends in the middle of the call: half of a write reaches the file, any other call does not happen. All
    /// later calls fail.
    Die,
}

impl Fault {
    /// Input or output error.
    pub const EIO: Fault = Fault::Error(5);
    /// Interrupted by a signal.
    pub const EINTR: Fault = Fault::Error(4);
    /// No space left on the device.
    pub const ENOSPC: Fault = Fault::Error(28);
}

/// Faults by the number of the call.
#[derive(Debug, Clone)]
pub struct FaultPlan {
    /// The kinds of calls that are counted and can fail; empty for all that change the disk.
    pub kinds: Vec<Call>,
    /// The first call that fails, counted from 0 when the plan is set.
    pub at: u64,
    /// Calls that fail, one after the other.
    pub times: u64,
    /// How they fail.
    pub fault: Fault,
}

impl FaultPlan {
    /// One fault at the `at`th call that changes the disk, or opens a file.
    pub fn once(at: u64, fault: Fault) -> FaultPlan {
        FaultPlan { kinds: Vec::new(), at, times: 1, fault }
    }

    pub(super) fn counts(&self, call: Call) -> bool {
        if self.kinds.is_empty() { is_change(call) } else { self.kinds.contains(&call) }
    }

    pub(super) fn fault_at(&self, count: u64) -> Option<Fault> {
        (self.at <= count && count < self.at.saturating_add(self.times)).then_some(self.fault)
    }
}

/// Whether a call changes the disk, or opens a file.
pub(super) fn is_change(call: Call) -> bool {
    !matches!(call, Call::Read | Call::ReadDir)
}

pub(super) fn dead() -> io::Error {
    io::Error::other("the process has ended")
}
