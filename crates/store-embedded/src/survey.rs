//! Which store the files of a folder say that they are of, for a folder whose spec is missing, damaged or another's.

use std::{collections::BTreeSet, io, path::Path};

use host::{Disk, Open, retried};

use crate::{record_log, row_file};

/// Bytes of the longest header.
const LONGEST_HEADER: usize = 128;

/// The ids of all stores that files in a folder are of, and whether there are files at all.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Survey {
    pub(crate) stores: BTreeSet<u128>,
    pub(crate) files: u64,
}

/// Reads the headers of the names log, the events log and the files of rows.
pub(crate) fn survey(disk: &dyn Disk, dir: &Path) -> io::Result<Survey> {
    let mut found = Survey::default();
    for entry in disk.read_dir(dir)? {
        let name = entry.name.to_string_lossy().into_owned();
        if entry.is_dir && (name == "names" || name == "events" || name.starts_with("datapoints_")) {
            found.read_folder(disk, &entry.path)?;
        }
    }
    Ok(found)
}

/// The store that all files of a folder are of, where its spec names another one: `store`.
pub fn other_store(disk: &dyn Disk, dir: &Path, store: u128) -> Option<u128> {
    let is_other = is_foreign(disk, dir, store).ok()?;
    let mut stores = survey(disk, dir).ok().filter(|_| is_other)?.stores.into_iter();
    stores.next().filter(|_| stores.next().is_none())
}

/// Whether a spec is of another store than everything next to it. Reads the headers of the names log only, unless they
/// say so.
pub(crate) fn is_foreign(disk: &dyn Disk, dir: &Path, store: u128) -> io::Result<bool> {
    let mut names = Survey::default();
    if disk.exists(&dir.join("names")) {
        names.read_folder(disk, &dir.join("names"))?;
    }
    if names.stores.is_empty() || names.stores.contains(&store) {
        return Ok(false);
    }
    Ok(!survey(disk, dir)?.stores.contains(&store))
}

impl Survey {
    fn read_folder(&mut self, disk: &dyn Disk, dir: &Path) -> io::Result<()> {
        for entry in disk.read_dir(dir)? {
            let name = entry.name.to_string_lossy();
            if entry.is_dir {
                self.read_folder(disk, &entry.path)?;
            } else if name.ends_with(".log") || name.ends_with(".rows") {
                self.files += 1;
                let mut bytes = vec![0; LONGEST_HEADER.min(entry.len as usize)];
                let unread =
                    |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", entry.path.display()));
                let file = retried(|| disk.open(&entry.path, Open::Read)).map_err(unread)?;
                if retried(|| file.read_exact_at(&mut bytes, 0)).is_ok() {
                    self.stores.extend(record_log::store_of(&bytes).or_else(|| row_file::store_of(&bytes)));
                }
            }
        }
        Ok(())
    }
}
