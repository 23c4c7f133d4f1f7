//! A backup of a node while it runs.
//!
//! 1. One moment is staged as links in `data/.backup`, while trims of the journal and writes of names wait.
//! 2. The files go from there to the folder of the backups: links on the same file system, copies on another.
//! 3. The stage goes, also after an error: links keep what merges and expiry remove.

use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use host::{Clock, Disk};
use ingest::{Ingest, wal::missing_segments};
use store::NameStore as _;
use store_embedded::{EmbeddedDriver, Snapshot, StoredFile};

use crate::{
    error::BackupError,
    make::{Made, Moment, make},
    manifest,
    pace::Pace,
};

/// Where one moment is staged, in the data folder.
const STAGE: &str = ".backup";

/// Files of the data folder besides store and journal, where they are there.
const OTHERS: [&str; 5] = ["clock", "writer", "write-clock", "names-read", "rechecks"];

/// What is staged besides the files.
struct Staged {
    /// Checksums of the indexes of files of rows, by path.
    rows: HashMap<String, u32>,
    /// Files of rows and segments that the node misses.
    missing: Vec<PathBuf>,
    /// The files of logs that could not be read whole when they were copied, with the bytes of each that are zeros.
    unread: Vec<(PathBuf, u64)>,
}

/// A running node. One backup at a time can be made of it: the caller sees to that.
#[derive(Clone)]
pub struct Node {
    /// What accepts points.
    pub ingest: Arc<Ingest>,
    /// The store in the data folder.
    pub embedded: Arc<EmbeddedDriver>,
    /// The file system of data folder and backups.
    pub disk: Arc<dyn Disk>,
    /// The data folder.
    pub data: PathBuf,
    /// Paces a backup.
    pub clock: Arc<dyn Clock>,
    /// Bytes that a backup reads a second; `None` is as fast as the disk.
    pub bytes_per_second: Option<u64>,
}

impl Node {
    /// Makes the next backup in `dir`, which must exist. After an error the node is as before, and `dir` too, or has a folder
    /// that no restore takes for a backup.
    ///
    /// # Errors
    /// Whatever the disk says, a folder with backups of another store, and one in the data folder or in a backup.
    pub async fn back_up(&self, dir: PathBuf) -> Result<Made, BackupError> {
        let (node, of) = (self.clone(), dir.clone());
        let refused = tokio::task::spawn_blocking(move || refuse_inside(&*node.disk, &node.data, &of));
        refused.await.expect("a look at a folder does not panic")?;
        let (stage, node) = (self.data.join(STAGE), self.clone());
        let begin = move || node.stage().map_err(io::Error::other);
        let staged = self.ingest.snapshot(stage.join("journal"), begin).await;
        let node = self.clone();
        let make = move || {
            let made = staged.map_err(BackupError::io("staging the files of one moment in", &stage));
            let made = made.and_then(|(at, Staged { rows, mut missing, mut unread }, journal)| {
                let within = |path: &Path| path.strip_prefix(&stage).unwrap_or(path).to_owned();
                missing.extend(journal.lacking.iter().map(|path| within(path)));
                unread.extend(journal.unread.iter().map(|(path, bytes)| (within(path), *bytes)));
                let moment = Moment { at, store: node.embedded.identity().store, rows, missing, unread };
                let pace = Pace::new(node.clock.clone(), node.bytes_per_second);
                make(&*node.disk, &stage, &dir, &moment, &pace)
            });
            remove_stage(&*node.disk, &node.data);
            made
        };
        tokio::task::spawn_blocking(make).await.expect("a backup does not panic")
    }

    /// Links and copies all but the journal.
    fn stage(&self) -> Result<Staged, BackupError> {
        let (disk, stage) = (&*self.disk, self.data.join(STAGE));
        if disk.exists(&stage) {
            disk.remove_dir_all(&stage).map_err(BackupError::io("removing what an interrupted backup left", &stage))?;
        }
        let rows = self.embedded.snapshot_all(&stage.join("store"));
        let Snapshot { rows, missing, logs } = rows.map_err(|error| BackupError::Folder(error.to_string()))?;
        for name in OTHERS {
            let from = self.data.join(name);
            if disk.exists(&from) {
                let copy = || host::replace_file(disk, &stage.join(name), &disk.read(&from)?);
                copy().map_err(BackupError::io("copying", &from))?;
            }
        }
        let missing = missing.iter().map(|path| Path::new("store").join(path));
        let damaged = self.data.join("damaged");
        let segments = missing_segments(disk, &damaged).map_err(BackupError::io("listing", &damaged))?;
        let segments = segments.into_iter().map(|name| Path::new("journal").join(name));
        let crc = |file: &StoredFile| (format!("store/{}", file.path.display()), file.index_crc);
        let unread = logs.into_iter().filter(|log| 0 < log.unread);
        let unread = unread.filter_map(|log| Some((log.path.strip_prefix(&stage).ok()?.to_owned(), log.unread)));
        let missing = missing.chain(segments).collect();
        Ok(Staged { rows: rows.iter().map(crc).collect(), missing, unread: unread.collect() })
    }
}

/// Refuses a folder that is lost, copied or deleted with what it is in.
fn refuse_inside(disk: &dyn Disk, data: &Path, dir: &Path) -> Result<(), BackupError> {
    let dir = disk.canonicalize(dir).map_err(BackupError::io("reading", dir))?;
    let data = disk.canonicalize(data).map_err(BackupError::io("reading", data))?;
    let inside = match () {
        () if dir.starts_with(&data) => format!("is in the data folder {}", data.display()),
        () => match dir.ancestors().find(|above| disk.exists(&above.join(manifest::FILE))) {
            Some(backup) => format!("is in the backup {}", backup.display()),
            None => match dir.ancestors().find(|above| disk.exists(&above.join("store/spec"))) {
                Some(data) => format!("is in the data folder {} of another server", data.display()),
                None => return Ok(()),
            },
        },
    };
    Err(BackupError::Folder(format!(
        "{} {inside}, and would be lost with it; name a folder for the backups of this server alone, on another disk if \
         possible",
        dir.display()
    )))
}

/// Removes what an interrupted backup left in a data folder: its links keep files on the disk that were merged or have expired.
pub fn remove_stage(disk: &dyn Disk, data: &Path) {
    let stage = data.join(STAGE);
    if disk.exists(&stage)
        && let Err(error) = disk.remove_dir_all(&stage)
    {
        tracing::warn!(%error, folder = %stage.display(), "cannot remove the folder that a backup was staged in; the next backup or start does");
    }
}
