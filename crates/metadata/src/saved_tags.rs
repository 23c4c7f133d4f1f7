//! The saved tag index: written behind the saved registry, and read behind a start.
//!
//! It only spares work. It counts for the very file of names that it was written with; what else the names have
//! goes into the index as any change does. A file that cannot be used costs the time to make the index from the names.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    thread::JoinHandle,
};

use host::{Disk, Open};

use crate::tag_index::{NamesFile, TagIndex, read_index, write_index};

/// The file in the data folder, next to the saved names.
pub const SAVED_TAGS: &str = "tags";

/// A tag index that was saved, and is put together while the names are.
pub(crate) struct SavedTags {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    index: Reading,
}

/// An index, with the file of names that it belongs to.
type Read = Result<(NamesFile, TagIndex), String>;

enum Reading {
    Running(JoinHandle<Read>),
    Done(Box<Read>),
}

/// Writes a tag index next to a file of names, which has all metrics of the index. A failure is logged.
pub(crate) fn save(index: &TagIndex, disk: &dyn Disk, path: &Path, names: NamesFile) {
    let saved = match index.all().is_empty() {
        true => remove(disk, path),
        false => host::replace_file_with(disk, path, |file| write_index(index, names, file)),
    };
    if let Err(error) = saved {
        tracing::warn!(%error, file = %path.display(), "cannot save the tag index; the next start makes it from the names");
        // What is there may be of other names.
        _ = remove(disk, path);
    }
}

impl SavedTags {
    /// Reads the file, and begins to put its index together on a thread of its own; `None` when there is none. The disk is
    /// asked before this returns.
    pub(crate) fn begin(disk: &Arc<dyn Disk>, path: PathBuf) -> Option<SavedTags> {
        if !disk.exists(&path) {
            return None;
        }
        let index = match read(&**disk, &path) {
            Ok(bytes) => Reading::begin(bytes),
            Err(error) => Reading::Done(Box::new(Err(error.to_string()))),
        };
        Some(SavedTags { disk: disk.clone(), path, index })
    }

    /// The index of a file of names, once it is put together. Removes the file: names change from now on. `None` when it cannot be
    /// used, which is logged.
    pub(crate) fn read(self, names: NamesFile) -> Option<TagIndex> {
        let SavedTags { disk, path, index } = self;
        let index = index.ended().and_then(|(of, index)| match of == names {
            true => Ok(index),
            false => Err("it belongs to other saved names".to_owned()),
        });
        if let Err(error) = remove(&*disk, &path) {
            tracing::warn!(%error, file = %path.display(), "cannot remove the saved tag index; it takes room on the disk");
        }
        let used = index.map_err(|reason| {
            tracing::warn!(reason, file = %path.display(), "cannot use the saved tag index; making it from the names");
        });
        used.ok()
    }
}

impl Reading {
    fn begin(bytes: Vec<u8>) -> Reading {
        let bytes = Arc::new(bytes);
        let shared = bytes.clone();
        let read = |bytes: &[u8]| read_index(bytes).map_err(str::to_owned);
        if host::is_in_place() {
            return Reading::Done(Box::new(read(&bytes)));
        }
        let thread = std::thread::Builder::new().name("saved-tags".to_owned()).spawn(move || read(&shared));
        thread.map_or_else(|_| Reading::Done(Box::new(read(&bytes))), Reading::Running)
    }

    fn ended(self) -> Read {
        match self {
            Reading::Running(thread) => thread.join().unwrap_or_else(|_| Err("reading it panicked".to_owned())),
            Reading::Done(read) => *read,
        }
    }
}

/// Removes the file, if there is one.
pub(crate) fn remove(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    match disk.remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn read(disk: &dyn Disk, path: &Path) -> io::Result<Vec<u8>> {
    let mut file = disk.open(path, Open::Read)?;
    let length = usize::try_from(file.len()?).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
    let mut bytes = vec![0; length];
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}
