//! The tree of a simulated disk: directories and files as programs see them, and as much of both as is durable.
//!
//! A file keeps its writes since its last sync, a directory its changes since its last sync. `crash.rs` chooses which of
//! them a power cut leaves.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ffi::{OsStr, OsString},
    io,
    ops::Range,
    path::{Component, Path},
    sync::Arc,
};

/// Number of a file or directory.
pub(super) type Node = u64;

/// The root directory, which is always durable.
pub(super) const ROOT: Node = 0;

/// Entries of a directory.
pub(super) type Entries = BTreeMap<OsString, Node>;

/// One write or cut of a file that is not durable.
#[derive(Debug, Clone)]
pub(super) enum Change {
    Write { offset: u64, bytes: Arc<[u8]> },
    SetLen(u64),
}

impl Change {
    /// Makes the change.
    pub(super) fn apply(&self, contents: &mut Vec<u8>) {
        match self {
            Change::SetLen(len) => contents.resize(*len as usize, 0),
            Change::Write { offset, bytes } => put(contents, *offset as usize, bytes),
        }
    }
}

/// Writes bytes into a file; a gap before them is zeros.
pub(super) fn put(contents: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    if offset == contents.len() {
        return contents.extend_from_slice(bytes);
    }
    let end = offset + bytes.len();
    if contents.len() < end {
        contents.resize(end, 0);
    }
    contents[offset..end].copy_from_slice(bytes);
}

/// A part of a file whose reads fail. It goes with the file, whatever that is called.
#[derive(Debug, Clone)]
pub(super) struct BadPart {
    pub(super) bytes: Range<u64>,
    /// Reads that fail, before it can be read again.
    pub(super) left: u64,
}

/// Contents of a file.
#[derive(Debug, Clone, Default)]
pub(super) struct File {
    pub(super) live: Arc<Vec<u8>>,
    pub(super) durable: Arc<Vec<u8>>,
    /// Changes since the last sync, oldest first.
    pub(super) unsynced: Vec<Change>,
    /// Changes before a sync that failed. Later syncs answer success and do not bring them: the system has marked the
    /// pages clean.
    pub(super) forsaken: Vec<Change>,
    /// Whether a handle has the lock.
    pub(super) is_locked: bool,
    pub(super) links: u32,
    pub(super) handles: u32,
    /// What cannot be read.
    pub(super) bad: Vec<BadPart>,
}

impl File {
    pub(super) fn change(&mut self, change: Change) {
        change.apply(Arc::make_mut(&mut self.live));
        self.unsynced.push(change);
    }

    /// Makes the changes durable.
    pub(super) fn sync(&mut self) {
        if self.unsynced.is_empty() {
            return;
        }
        let durable = Arc::make_mut(&mut self.durable);
        self.unsynced.drain(..).for_each(|change| change.apply(durable));
    }

    /// A sync failed: nothing will bring these changes any more.
    pub(super) fn forsake(&mut self) {
        self.forsaken.append(&mut self.unsynced);
    }

    pub(super) fn is_gone(&self) -> bool {
        self.links == 0 && self.handles == 0
    }
}

/// A directory as programs see it, and as it is on the disk.
#[derive(Debug, Clone, Default)]
pub(super) struct Directory {
    pub(super) live: Entries,
    pub(super) durable: Entries,
}

/// A place in a directory.
pub(super) type Place = (Node, OsString);

/// A change of directories that is not durable.
#[derive(Debug, Clone)]
pub(super) enum Renaming {
    Link(Place, Node),
    Unlink(Place),
    Rename { from: Place, to: Place, node: Node },
}

impl Renaming {
    /// Whether a sync of the directory brings this change: a rename comes with the directory of its new name.
    fn comes_with(&self, directory: Node) -> bool {
        match self {
            Renaming::Link(place, _) | Renaming::Unlink(place) | Renaming::Rename { to: place, .. } => {
                place.0 == directory
            }
        }
    }

    fn touches(&self, place: &Place) -> bool {
        match self {
            Renaming::Link(one, _) | Renaming::Unlink(one) => one == place,
            Renaming::Rename { from, to, .. } => from == place || to == place,
        }
    }
}

/// Everything on the disk.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    pub(super) files: HashMap<Node, File>,
    pub(super) directories: HashMap<Node, Directory>,
    /// Changes of directories since their last sync, oldest first.
    pub(super) unsynced: Vec<Renaming>,
    pub(super) next: Node,
    /// Bytes of all files that have a name or a handle.
    pub(super) used: u64,
}

impl Default for Tree {
    fn default() -> Tree {
        let directories = HashMap::from([(ROOT, Directory::default())]);
        Tree { files: HashMap::new(), directories, unsynced: Vec::new(), next: 1, used: 0 }
    }
}

/// The names of a path, from the root.
fn names(path: &Path) -> impl Iterator<Item = &OsStr> {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name),
        _ => None,
    })
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Tree {
    pub(super) fn find(&self, path: &Path) -> Option<Node> {
        names(path).try_fold(ROOT, |node, name| self.directories.get(&node)?.live.get(name).copied())
    }

    pub(super) fn directory(&self, path: &Path) -> io::Result<Node> {
        let node = self.find(path).ok_or_else(not_found)?;
        if self.directories.contains_key(&node) { Ok(node) } else { Err(io::ErrorKind::NotADirectory.into()) }
    }

    pub(super) fn file(&self, path: &Path) -> io::Result<Node> {
        let node = self.find(path).ok_or_else(not_found)?;
        if self.files.contains_key(&node) { Ok(node) } else { Err(io::ErrorKind::IsADirectory.into()) }
    }

    /// The place that a path names: its directory must exist.
    pub(super) fn place(&self, path: &Path) -> io::Result<Place> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        Ok((self.directory(path.parent().unwrap_or(Path::new("/")))?, name.to_owned()))
    }

    pub(super) fn at(&self, place: &Place) -> Option<Node> {
        self.directories[&place.0].live.get(&place.1).copied()
    }

    fn entries(&mut self, directory: Node) -> &mut Entries {
        &mut self.directories.get_mut(&directory).expect("a place is in a directory").live
    }

    pub(super) fn create(&mut self, place: Place) -> Node {
        let node = self.next;
        self.next += 1;
        self.files.insert(node, File::default());
        self.link(place, node);
        node
    }

    pub(super) fn link(&mut self, place: Place, node: Node) {
        if let Some(file) = self.files.get_mut(&node) {
            file.links += 1;
        }
        self.entries(place.0).insert(place.1.clone(), node);
        self.unsynced.push(Renaming::Link(place, node));
    }

    pub(super) fn make_directories(&mut self, path: &Path) -> io::Result<()> {
        let mut at = ROOT;
        for name in names(path) {
            let found = self.directories[&at].live.get(name).copied();
            at = match found {
                Some(node) if self.directories.contains_key(&node) => node,
                Some(_) => return Err(io::ErrorKind::AlreadyExists.into()),
                None => {
                    let node = self.next;
                    self.next += 1;
                    self.directories.insert(node, Directory::default());
                    self.link((at, name.to_owned()), node);
                    node
                }
            };
        }
        Ok(())
    }

    pub(super) fn unlink(&mut self, place: Place) {
        if let Some(node) = self.entries(place.0).remove(&place.1) {
            self.drop_link(node);
        }
        self.unsynced.push(Renaming::Unlink(place));
    }

    /// Removes a directory and everything below it, from the bottom up.
    pub(super) fn unlink_all(&mut self, place: Place) {
        let Some(node) = self.at(&place) else { return };
        if let Some(directory) = self.directories.get(&node) {
            for name in directory.live.keys().cloned().collect::<Vec<_>>() {
                self.unlink_all((node, name));
            }
        }
        self.unlink(place);
    }

    pub(super) fn rename(&mut self, from: Place, to: Place, node: Node) {
        if from == to {
            return;
        }
        self.entries(from.0).remove(&from.1);
        if let Some(replaced) = self.entries(to.0).insert(to.1.clone(), node) {
            self.drop_link(replaced);
        }
        self.unsynced.push(Renaming::Rename { from, to, node });
    }

    fn drop_link(&mut self, node: Node) {
        if let Some(file) = self.files.get_mut(&node) {
            file.links -= 1;
            let freed = if file.is_gone() { file.live.len() as u64 } else { 0 };
            self.used -= freed;
        }
    }

    pub(super) fn drop_handle(&mut self, node: Node, has_lock: bool) {
        if let Some(file) = self.files.get_mut(&node) {
            file.handles -= 1;
            file.is_locked &= !has_lock;
            let freed = if file.is_gone() { file.live.len() as u64 } else { 0 };
            self.used -= freed;
        }
    }

    /// Makes a directory's entries durable.
    pub(super) fn sync_directory(&mut self, directory: Node) {
        let (coming, mut staying): (Vec<Renaming>, Vec<Renaming>) =
            std::mem::take(&mut self.unsynced).into_iter().partition(|change| change.comes_with(directory));
        for change in &coming {
            self.make_durable(change);
            // An older change of the name that this one took away is superseded.
            if let Renaming::Rename { from, .. } = change {
                staying.retain(|older| !older.touches(from));
            }
        }
        self.unsynced = staying;
        let is_large = self.files.len() + self.directories.len() > 64;
        if is_large && coming.iter().any(|change| !matches!(change, Renaming::Link(..))) {
            self.forget_unreachable();
        }
    }

    /// Applies a change to what is on the disk.
    pub(super) fn make_durable(&mut self, change: &Renaming) {
        let mut set = |place: &Place, node: Option<Node>| {
            let Some(directory) = self.directories.get_mut(&place.0) else { return };
            match node {
                Some(node) => _ = directory.durable.insert(place.1.clone(), node),
                None => _ = directory.durable.remove(&place.1),
            }
        };
        match change {
            Renaming::Link(place, node) => set(place, Some(*node)),
            Renaming::Unlink(place) => set(place, None),
            Renaming::Rename { from, to, node } => {
                set(from, None);
                set(to, Some(*node));
            }
        }
    }

    /// Forgets files and directories that no name, handle or crash can bring back.
    pub(super) fn forget_unreachable(&mut self) {
        let mut reached = HashSet::from([ROOT]);
        for directory in self.directories.values() {
            reached.extend(directory.live.values().chain(directory.durable.values()));
        }
        for change in &self.unsynced {
            if let Renaming::Link(_, node) | Renaming::Rename { node, .. } = change {
                reached.insert(*node);
            }
        }
        self.files.retain(|node, file| reached.contains(node) || file.handles > 0);
        self.directories.retain(|node, _| reached.contains(node));
    }
}
