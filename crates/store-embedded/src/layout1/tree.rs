//! A tree of layout 1: a folder of the LSM library, read once. Nothing else uses the library.
//!
//! The library may write to a folder that it opens, so that it gets a folder of links to the same files.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

use host::Disk;
use lsm_tree::{AbstractTree, AnyTree, Config, Guard, SequenceNumberCounter};
use store::StoreError;

use crate::folder::io_error;

/// Above every sequence number: the last version of every row.
const NEWEST: u64 = u64::MAX >> 1;

/// A tree that is read.
pub(super) struct OldTree {
    lsm: AnyTree,
}

/// Links the files of a folder, and those of the folders in it, into another one.
pub(super) fn link_all(disk: &dyn Disk, from: &Path, to: &Path) -> Result<(), StoreError> {
    let failed = |path: &Path| io_error(format!("linking {}", path.display()));
    disk.create_dir_all(to).map_err(failed(to))?;
    for entry in disk.read_dir(from).map_err(failed(from))? {
        let target = to.join(&entry.name);
        if entry.is_dir {
            link_all(disk, &entry.path, &target)?;
        } else {
            disk.hard_link(&entry.path, &target).map_err(failed(&entry.path))?;
        }
    }
    Ok(())
}

/// What is wrong with a tree.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) how: String,
    /// Whether another attempt may read it: the disk failed. A file that is missing or too short is damage.
    pub(super) may_pass: bool,
}

impl From<lsm_tree::Error> for Problem {
    fn from(error: lsm_tree::Error) -> Problem {
        let is_damage = |kind| matches!(kind, ErrorKind::NotFound | ErrorKind::UnexpectedEof | ErrorKind::InvalidData);
        let may_pass = matches!(&error, lsm_tree::Error::Io(error) if !is_damage(error.kind()));
        Problem { how: format!("{error:?}"), may_pass }
    }
}

impl OldTree {
    /// Opens a folder of links. The error says what is wrong with it.
    pub(super) fn open(dir: &Path) -> Result<OldTree, Problem> {
        let config = Config::new(dir, SequenceNumberCounter::default(), SequenceNumberCounter::default());
        Ok(OldTree { lsm: config.open()? })
    }

    /// Calls `each` with every key and value that can be read: from the first on, and after damage from the last one
    /// back. Returns what is wrong, if anything is.
    pub(super) fn scan<E>(&self, mut each: impl FnMut(&[u8], &[u8]) -> Result<(), E>) -> Result<Option<Problem>, E> {
        let mut rows = self.lsm.iter(NEWEST, None);
        let mut problem = None;
        let mut is_from_the_end = false;
        loop {
            let row = if is_from_the_end { rows.next_back() } else { rows.next() };
            match row.map(Guard::into_inner) {
                None => return Ok(problem),
                Some(Ok((key, value))) => each(&key, &value)?,
                Some(Err(error)) if is_from_the_end => return Ok(Some(error.into())),
                Some(Err(error)) => (problem, is_from_the_end) = (Some(error.into()), true),
            }
        }
    }
}

/// The folders of trees of points: `datapoints_…/WINDOW`.
pub(super) fn is_tree(disk: &dyn Disk, dir: &Path) -> bool {
    disk.exists(&dir.join("current"))
}

/// Where links to a tree are made.
pub(super) fn links_of(converted: &Path, tree: &Path) -> PathBuf {
    let name: Vec<_> = tree.components().rev().take(2).map(|part| part.as_os_str().to_string_lossy()).collect();
    converted.join("links").join(name.join("_"))
}
