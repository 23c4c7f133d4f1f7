//! A file of rows that no reader uses any more, and whose rows a merged one has: it is removed.

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use host::{DamagedFolder, Disk};
use metric::Stage;
use store::Damage;

use super::{
    footer::Summary,
    open::{blocks_end, len_of},
};

/// What to remove, and what was read of it.
#[derive(Debug)]
pub(crate) struct Obsolete {
    pub(super) path: PathBuf,
    pub(super) len: u64,
    pub(super) seal: u32,
    pub(super) has_footer: bool,
    pub(super) stage: Stage,
    pub(super) summary: Summary,
    /// Set when its window expires: its folder has moved.
    pub(super) is_expired: Arc<AtomicBool>,
}

impl Obsolete {
    pub(crate) fn path(&self) -> &PathBuf {
        &self.path
    }

    /// Removes the file. One that was being copied while it was read goes to `damaged/`: what came since may be nowhere else.
    pub(crate) fn remove(&self, disk: &dyn Disk, damaged_folder: &DamagedFolder) -> io::Result<Option<Damage>> {
        if self.is_expired.load(Relaxed) {
            return Ok(None);
        }
        let len = len_of(disk, &self.path)?;
        // Without its footer, it may have had all of its blocks.
        let had_blocks = || blocks_end(disk, &self.path, self.seal).map(|end| end.is_some_and(|end| end <= self.len));
        if len == self.len || !self.has_footer && had_blocks()? {
            return disk.remove_file(&self.path).map(|()| None);
        }
        let how =
            format!("it had {} bytes when it was merged, and has {len} now: what came since is in no answer", self.len);
        let moved_to = damaged_folder.move_in(&self.path, &how).ok();
        Ok(Some(Damage {
            what: "file of rows",
            how,
            bytes: len,
            moved_to,
            metrics: Some(self.summary.metrics),
            span: Some(self.summary.first.span_to(self.summary.last, self.stage)),
            ..Damage::default()
        }))
    }
}
