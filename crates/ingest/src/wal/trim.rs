//! The removal of stored segments: of those that this process wrote or has read, as far as it has, and of no other.
//!
//! A file that appears while the process runs is not one of them, though it has a number below those that are stored: it
//! was away at the start, and nothing of it is stored. A file that is longer than it was when it was read has points that nothing
//! read, as on a network disk that gave a length of before. Both are put back from `damaged/`.

use std::{
    collections::BTreeMap,
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
    /// This process wrote all from this number on that have this opening of the store; 0 where the store has none.
    own: u64,
    opening: u64,
    /// The numbers of the others that it has read, and the bytes that they had.
    read: BTreeMap<u64, u64>,
    /// Segments below this were removed before the process began.
    old: u64,
    /// No segment below this is there.
    removed_below: AtomicU64,
}

impl Trim {
    /// Of a process that writes segments from `own` on, in this opening of the store, and found others whose lowest is `lowest`.
    pub(super) fn new(
        (own, opening): (u64, u64),
        read: BTreeMap<u64, u64>,
        mark: Option<JournalMark>,
        lowest: u64,
    ) -> Trim {
        let removed_below = mark.map_or(0, |mark| mark.stored_below.min(lowest).max(mark.removed_below));
        let old = mark.map_or(0, |mark| mark.removed_below);
        Trim { own, opening, read, old, removed_below: AtomicU64::new(removed_below) }
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
        damage.write_notes();
        damage.note_lacks();
        let mut end = number;
        for old in folder.segments()?.into_iter().filter(|old| old.number < number) {
            match self.remove(folder, damage, &old)? {
                true => removed(old.bytes),
                false => end = end.min(old.number),
            }
        }
        self.removed_below.fetch_max(end, Relaxed);
        // Where the disk was full, there may be room now.
        damage.note_lacks();
        Ok(())
    }

    /// Returns whether the segment is not there any more.
    fn remove(&self, folder: &Folder, damage: &JournalDamage, segment: &Segment) -> io::Result<bool> {
        if self.own <= segment.number {
            let theirs = folder.opening_of(segment).filter(|&theirs| self.opening != 0 && theirs != self.opening);
            if theirs.is_some() {
                damage.keep_of_another(folder, segment)?;
                return Ok(true);
            }
            // One that had not been read back was perhaps away for a while.
            match damage.is_missing(segment.number) {
                Ok(false) => damage.remove(folder, segment)?,
                Ok(true) => damage.keep_returned(folder, segment)?,
                Err(error) => {
                    damage.report_perhaps_returned(segment, &error);
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        match self.read.get(&segment.number) {
            Some(&read) if segment.bytes <= read => return damage.remove_read(folder, segment),
            Some(&read) => damage.keep_grown(folder, segment, read)?,
            None => match damage.is_waited_for(segment) {
                Ok(false) if segment.number < self.old => damage.move_stale(segment, self.old),
                Ok(_) => damage.keep_returned(folder, segment)?,
                Err(error) => {
                    damage.report_perhaps_returned(segment, &error);
                    return Ok(false);
                }
            },
        }
        Ok(true)
    }
}
