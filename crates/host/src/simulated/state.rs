//! The state of a simulated disk, shared by its handles: each call begins here, and fails here by the plan.

use std::{
    fmt, io,
    ops::Range,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    plan::{Fault, FaultPlan, dead, is_change},
    tree::{BadPart, Change, File, Node, Tree},
};
use crate::Call;

/// The error number of a full disk.
const ENOSPC: i32 = 28;

/// Shown each call that changes the disk, and its number, before it happens.
pub(super) type Observer = dyn Fn(u64, Call, &Path) + Send + Sync;

/// The state, and who watches it.
#[derive(Default)]
pub(super) struct Shared {
    state: Mutex<State>,
    observer: Mutex<Option<Arc<Observer>>>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}

impl Shared {
    pub(super) fn of(tree: Tree) -> Shared {
        Shared { state: Mutex::new(State { tree, ..State::default() }), ..Shared::default() }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn observe(&self, observer: Arc<Observer>) {
        *self.observer.lock().unwrap_or_else(PoisonError::into_inner) = Some(observer);
    }

    /// The state for a call, or the call's error. A write asks for its fault itself.
    pub(super) fn begin(&self, call: Call, path: &Path) -> io::Result<MutexGuard<'_, State>> {
        match self.begin_with_fault(call, path)? {
            (state, None | Some(Fault::ShortWrite)) => Ok(state),
            (_, Some(Fault::Error(number))) => Err(io::Error::from_raw_os_error(number)),
            (mut state, Some(Fault::Die)) => {
                state.is_dead = true;
                Err(dead())
            }
        }
    }

    pub(super) fn begin_with_fault(
        &self,
        call: Call,
        path: &Path,
    ) -> io::Result<(MutexGuard<'_, State>, Option<Fault>)> {
        if is_change(call) {
            let observer = self.observer.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some(observer) = observer {
                let number = self.state().changes;
                observer(number, call, path);
            }
        }
        let mut state = self.state();
        if state.is_dead {
            return Err(dead());
        }
        state.changes += u64::from(is_change(call));
        let Some(plan) = &state.plan else { return Ok((state, None)) };
        if !plan.counts(call) {
            return Ok((state, None));
        }
        let fault = plan.fault_at(state.planned);
        state.planned += 1;
        if fault.is_some() {
            state.faults.push((call, path.to_owned()));
        }
        Ok((state, fault))
    }
}

/// A disk at one moment.
#[derive(Debug)]
pub(super) struct State {
    pub(super) tree: Tree,
    /// Bytes that all files may have together.
    pub(super) capacity: u64,
    /// Calls that changed the disk or opened a file.
    pub(super) changes: u64,
    pub(super) plan: Option<FaultPlan>,
    /// Calls that the plan has counted.
    pub(super) planned: u64,
    /// Calls that failed by the plan, and their paths.
    pub(super) faults: Vec<(Call, PathBuf)>,
    pub(super) is_dead: bool,
}

impl Default for State {
    fn default() -> State {
        let (capacity, tree) = (u64::MAX, Tree::default());
        State { tree, capacity, changes: 0, plan: None, planned: 0, faults: Vec::new(), is_dead: false }
    }
}

impl State {
    pub(super) fn file(&mut self, node: Node) -> &mut File {
        self.tree.files.get_mut(&node).expect("an open file is kept")
    }

    /// Bytes by which files may grow.
    pub(super) fn room(&self) -> u64 {
        self.capacity.saturating_sub(self.tree.used)
    }

    pub(super) fn cut(&mut self, node: Node, len: u64) -> io::Result<()> {
        let before = self.file(node).live.len() as u64;
        if len > before && len - before > self.room() {
            return Err(io::Error::from_raw_os_error(ENOSPC));
        }
        self.tree.used = self.tree.used + len - before;
        self.file(node).change(Change::SetLen(len));
        Ok(())
    }

    /// Writes as much as there is room for. Returns how many bytes that is.
    pub(super) fn put(&mut self, node: Node, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        let before = self.file(node).live.len() as u64;
        let growth = (offset + bytes.len() as u64).saturating_sub(before);
        let room = self.room();
        let written = bytes.len() - growth.saturating_sub(room).min(bytes.len() as u64) as usize;
        if written == 0 && !bytes.is_empty() {
            return Err(io::Error::from_raw_os_error(ENOSPC));
        }
        self.tree.used += growth.min(room);
        self.file(node).change(Change::Write { offset, bytes: bytes[..written].into() });
        Ok(written)
    }

    /// How many of these bytes of a file a read returns, before the first that it cannot.
    pub(super) fn readable(&mut self, node: Node, path: &Path, asked: Range<u64>) -> io::Result<u64> {
        let parts = self.file(node).bad.iter_mut().filter(|part| 0 < part.left);
        let is_asked = |part: &&mut BadPart| part.bytes.start < asked.end && asked.start < part.bytes.end;
        let Some(part) = parts.filter(is_asked).min_by_key(|part| part.bytes.start) else {
            return Ok(asked.end - asked.start);
        };
        if asked.start < part.bytes.start {
            return Ok(part.bytes.start - asked.start);
        }
        part.left -= 1;
        self.faults.push((Call::Read, PathBuf::from(path)));
        let Fault::Error(number) = Fault::EIO else { unreachable!("it is an error") };
        Err(io::Error::from_raw_os_error(number))
    }
}
