//! The saved tag index: written behind the saved registry, and read behind a start.
//!
//! It only spares work. It counts for the very file of names that it was written with; what else the names have
//! goes into the index as any change does. A file that cannot be used costs the time to make the index from the names.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use host::{Disk, Open};

use crate::tag_index::{NamesFile, TagIndex, read_index, write_index};

/// The file in the data folder, next to the saved names.
pub const SAVED_TAGS: &str = "tags";

/// A tag index that was saved and not yet read.
pub(crate) struct SavedTags {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    names: NamesFile,
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
    /// A file that may belong to names that were read; `None` when there is none.
    pub(crate) fn of(disk: &Arc<dyn Disk>, path: PathBuf, names: NamesFile) -> Option<SavedTags> {
        disk.exists(&path).then(|| SavedTags { disk: disk.clone(), path, names })
    }

    /// Reads the index, and removes the file: names change from now on. `None` when it cannot be used, which is logged.
    pub(crate) fn read(self) -> Option<TagIndex> {
        let SavedTags { disk, path, names } = self;
        let read = read(&*disk, &path).map_err(|error| error.to_string());
        let index = read.and_then(|bytes| read_index(&bytes, names).map_err(str::to_owned));
        if let Err(error) = remove(&*disk, &path) {
            tracing::warn!(%error, file = %path.display(), "cannot remove the saved tag index; it takes room on the disk");
        }
        let used = index.map_err(|reason| {
            tracing::warn!(reason, file = %path.display(), "cannot use the saved tag index; making it from the names");
        });
        used.ok()
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
