//! A file system in memory that knows what is durable, for rehearsals of faults, kills and power cuts.
//!
//! Data is durable after a sync of its file, a name after a sync of its directory. [`SimulatedDisk::crash`] gives a state
//! that a power cut may leave, [`SimulatedDisk::kill`] what the death of the process leaves. A [`FaultPlan`] says which
//! calls fail, [`SimulatedDisk::spoil`] which bytes cannot be read. Paths begin at the root; there are no symbolic links and no permissions.

mod crash;
mod file;
mod plan;
mod state;
mod tree;

use std::{
    fmt, io,
    ops::Range,
    path::{Path, PathBuf},
    sync::{Arc, MutexGuard},
};

pub use self::plan::{Fault, FaultPlan};
use self::{
    file::SimulatedFile,
    state::{Shared, State},
    tree::{BadPart, Node, Tree},
};
use crate::{Call, DirEntry, Disk, DiskFile, Open, Random};

/// A disk in memory. A clone shares it.
#[derive(Clone, Default)]
pub struct SimulatedDisk {
    shared: Arc<Shared>,
}

impl fmt::Debug for SimulatedDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimulatedDisk")
    }
}

impl SimulatedDisk {
    /// An empty disk.
    pub fn new() -> SimulatedDisk {
        SimulatedDisk::default()
    }

    fn of(tree: Tree) -> SimulatedDisk {
        SimulatedDisk { shared: Arc::new(Shared::of(tree)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state()
    }

    /// What the death of the process at this moment leaves: everything that was written. What is durable stays known, so
    /// that the power may be cut later.
    pub fn kill(&self) -> SimulatedDisk {
        let mut tree = self.state().tree.clone();
        tree.files.values_mut().for_each(|file| (file.handles, file.is_locked) = (0, false));
        tree.forget_unreachable();
        tree.used = tree.files.values().filter(|file| file.links > 0).map(|file| file.live.len() as u64).sum();
        SimulatedDisk::of(tree)
    }

    /// A state that a power cut at this moment may leave, as the random numbers choose.
    pub fn crash(&self, random: &dyn Random) -> SimulatedDisk {
        let tree = crash::crash(&self.state().tree, random);
        SimulatedDisk::of(tree)
    }

    /// From now on calls fail by this plan, which counts from 0.
    pub fn set_plan(&self, plan: Option<FaultPlan>) {
        let mut state = self.state();
        (state.plan, state.planned) = (plan, 0);
    }

    /// From now on these bytes of a file cannot be read, so many times, or until [`SimulatedDisk::heal`]. Deaths of the
    /// process and power cuts leave it so.
    pub fn spoil(&self, path: &Path, bytes: Range<u64>, times: u64) -> io::Result<()> {
        let mut state = self.state();
        let node = state.tree.file(path)?;
        state.file(node).bad.push(BadPart { bytes, left: times });
        Ok(())
    }

    /// All files can be read again.
    pub fn heal(&self) {
        self.state().tree.files.values_mut().for_each(|file| file.bad.clear());
    }

    /// Moves a file, as an operator does: for good, and without a call that counts. The folder that it goes to is made.
    pub fn take(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        let node = state.tree.file(from)?;
        let parent = to.parent().ok_or(io::ErrorKind::InvalidInput)?;
        state.tree.make_directories(parent)?;
        let (from, to) = (state.tree.place(from)?, state.tree.place(to)?);
        if state.tree.at(&to).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let mut folders = vec![from.0, to.0];
        let above = parent.ancestors().filter_map(|folder| state.tree.directory(folder).ok());
        folders.extend(above);
        state.tree.rename(from, to, node);
        folders.into_iter().for_each(|folder| state.tree.sync_directory(folder));
        Ok(())
    }

    /// The process ends now: all later calls fail.
    pub fn die(&self) {
        self.state().is_dead = true;
    }

    /// Whether the process has ended.
    pub fn is_dead(&self) -> bool {
        self.state().is_dead
    }

    /// Calls so far that changed the disk or opened a file.
    pub fn changes(&self) -> u64 {
        self.state().changes
    }

    /// Calls that failed by a plan, and their paths.
    pub fn faults(&self) -> Vec<(Call, PathBuf)> {
        self.state().faults.clone()
    }

    /// Bounds the bytes of all files together; `u64::MAX` for none.
    pub fn set_capacity(&self, bytes: u64) {
        self.state().capacity = bytes;
    }

    /// Bytes of all files.
    pub fn used(&self) -> u64 {
        self.state().tree.used
    }

    /// Shows `observer` each call that changes the disk and its number, before it happens. It may look at the disk.
    pub fn observe(&self, observer: impl Fn(u64, Call, &Path) + Send + Sync + 'static) {
        self.shared.observe(Arc::new(observer));
    }

    /// Every file below a directory, with its length, by path.
    pub fn files(&self, below: &Path) -> Vec<(PathBuf, u64)> {
        let state = self.state();
        let mut found = Vec::new();
        if let Ok(node) = state.tree.directory(below) {
            list(&state.tree, node, below, &mut found);
        }
        found
    }

    /// Changes a file's bytes where they are, on the disk and in memory, as rot does.
    pub fn rot(&self, path: &Path, change: impl Fn(&mut Vec<u8>)) -> io::Result<()> {
        let mut state = self.state();
        let node = state.tree.file(path)?;
        let file = state.tree.files.get_mut(&node).expect("a file has contents");
        change(Arc::make_mut(&mut file.live));
        change(Arc::make_mut(&mut file.durable));
        Ok(())
    }
}

/// Collects the files below a directory.
fn list(tree: &Tree, directory: Node, path: &Path, found: &mut Vec<(PathBuf, u64)>) {
    for (name, &node) in &tree.directories[&directory].live {
        let path = path.join(name);
        match tree.files.get(&node) {
            Some(file) => found.push((path, file.live.len() as u64)),
            None => list(tree, node, &path, found),
        }
    }
}

impl Disk for SimulatedDisk {
    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.shared.begin(Call::Open, path)?;
        let node = match state.tree.file(path) {
            Ok(_) if how == Open::CreateNew => return Err(io::ErrorKind::AlreadyExists.into()),
            Ok(node) => node,
            Err(error) if how == Open::Read || error.kind() != io::ErrorKind::NotFound => return Err(error),
            Err(_) => {
                let place = state.tree.place(path)?;
                state.tree.create(place)
            }
        };
        state.file(node).handles += 1;
        if how == Open::Create && !state.file(node).live.is_empty() {
            state.cut(node, 0)?;
        }
        Ok(Box::new(SimulatedFile::new(self.shared.clone(), node, path, how)))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.shared.begin(Call::CreateDir, path)?.tree.make_directories(path)
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let state = self.shared.begin(Call::ReadDir, path)?;
        let directory = &state.tree.directories[&state.tree.directory(path)?];
        let entry = |(name, node): (&std::ffi::OsString, &Node)| {
            let file = state.tree.files.get(node);
            let len = file.map_or(0, |file| file.live.len() as u64);
            DirEntry { name: name.clone(), path: path.join(name), is_dir: file.is_none(), len, modified: None }
        };
        Ok(directory.live.iter().map(entry).collect())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.shared.begin(Call::Rename, from)?;
        let (from, to) = (state.tree.place(from)?, state.tree.place(to)?);
        let node = state.tree.at(&from).ok_or(io::ErrorKind::NotFound)?;
        if state.tree.at(&to).is_some_and(|there| state.tree.directories.contains_key(&there)) {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        state.tree.rename(from, to, node);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.shared.begin(Call::Remove, path)?;
        state.tree.file(path)?;
        let place = state.tree.place(path)?;
        state.tree.unlink(place);
        Ok(())
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut state = self.shared.begin(Call::Remove, path)?;
        state.tree.directory(path)?;
        let place = state.tree.place(path)?;
        state.tree.unlink_all(place);
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.shared.begin(Call::Sync, path)?;
        let directory = state.tree.directory(path)?;
        state.tree.sync_directory(directory);
        Ok(())
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.shared.begin(Call::Rename, from)?;
        let node = state.tree.file(from)?;
        let place = state.tree.place(to)?;
        if state.tree.at(&place).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.tree.link(place, node);
        Ok(())
    }

    fn is_same_file(&self, one: &Path, other: &Path) -> io::Result<bool> {
        let state = self.shared.begin(Call::Open, one)?;
        Ok(state.tree.file(one)? == state.tree.file(other)?)
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        let state = self.state();
        state.tree.find(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(state.room())
    }

    fn is_there(&self, path: &Path) -> io::Result<bool> {
        Ok(self.state().tree.find(path).is_some())
    }

    fn canonicalize(&self, path: &Path) -> io::Result<PathBuf> {
        self.state().tree.find(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(path.to_owned())
    }
}

#[cfg(test)]
mod tests;
