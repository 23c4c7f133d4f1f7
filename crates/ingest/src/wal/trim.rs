//! The removal of stored segments: of those that this process wrote or has read, and of no other.
//!
//! A file that appears while the process runs is not one of them, though it has a number below those that are stored: it
//! was away at the start, and nothing of it is stored. It is put back from `damaged/`.

use std::{
    collections::BTreeSet,
    io,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use store::JournalMark;

use super::{
    damage::JournalDamage,
    segment::{Folder, Segment},
};

/// Which segments may be removed.
pub(super) struct Trim {
    /// This process wrote all from this number on.
    own: u64,
    /// The numbers of the others that it has read.
    read: BTreeSet<u64>,
    /// Segments below this were removed before the process began.
    old: u64,
    /// No segment below this is there.
    removed_below: AtomicU64,
}

impl Trim {
    /// Of a process that writes segments from `own` on, and found others whose lowest is `lowest`.
    pub(super) fn new(own: u64, read: BTreeSet<u64>, mark: Option<JournalMark>, lowest: u64) -> Trim {
        let removed_below = mark.map_or(0, |mark| mark.stored_below.min(lowest).max(mark.removed_below));
        let old = mark.map_or(0, |mark| mark.removed_below);
        Trim { own, read, old, removed_below: AtomicU64::new(removed_below) }
    }

    /// What the store may record before the segments below `stored_below` are removed, at a time when `newest` exists.
    pub(super) fn mark(&self, stored_below: u64, newest: u64) -> JournalMark {
        JournalMark { removed_below: self.removed_below.load(Relaxed), stored_below, newest, opening: 0 }
    }

    /// Removes the segments below a number. `removed` gets the bytes of each.
    pub(super) fn below(
        &self,
        folder: &Folder,
        damage: &JournalDamage,
        number: u64,
        mut removed: impl FnMut(u64),
    ) -> io::Result<()> {
        for old in folder.segments()?.into_iter().filter(|old| old.number < number) {
            self.remove(folder, damage, &old)?;
            removed(old.bytes);
        }
        self.removed_below.fetch_max(number, Relaxed);
        Ok(())
    }

    fn remove(&self, folder: &Folder, damage: &JournalDamage, segment: &Segment) -> io::Result<()> {
        if self.own <= segment.number || self.read.contains(&segment.number) {
            damage.remove(folder, segment)
        } else if segment.number < self.old && !damage.is_missing(segment.number) {
            damage.move_stale(segment, self.old);
            Ok(())
        } else {
            damage.keep_returned(folder, segment)
        }
    }
}
