//! The times of all metrics as a file, `data/seen`.
//!
//! All integers are little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `PLBGSEEN` |
//! | 4 | version, [`VERSION`] |
//! | 16, 8 | the store, and the opening of it that wrote the file |
//! | 8 | every point of the segments of the journal below this number is in these times |
//! | 4 | every id that was given is below this (version 2) |
//! | 4 | the day, counted from 1970, that the buckets are counted from: see `scale.rs` |
//! | 4 | groups of 256 ids |
//! | per group | `u32` number, then for each id the first and the last bucket |
//! | 4 | CRC-32 of everything before |
//!
//! The file is written before the store notes how much of the journal it has, and before anything of the journal is removed.
//! So what the file lacks after a kill is in the journal. A file that is older than the store is not used: then every metric may
//! have points of any time until now. The ids that it says were given count in every case: none of them is given again, also where
//! names, rows and journal have lost all that they knew of it.

use std::{io, path::Path};

use host::{Disk, retried};
use metric::{MetricId, Timestamp};

use super::{
    scale::Scale,
    times::{Seen, Table, Times},
};

/// The file in the data folder.
pub const SEEN: &str = "seen";

const MAGIC: &[u8; 8] = b"PLBGSEEN";
/// The version that is written. Version 1 does not say which ids were given; it is read.
const VERSION: u32 = 2;

/// Ids of a group.
const GROUP: u32 = 256;

/// Seconds of a day.
const DAY: Timestamp = 86_400;

/// The state of the store that a file belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenMark {
    /// The store.
    pub store: u128,
    /// Its newest opening.
    pub opening: u64,
    /// Every point of the segments of the journal below this number is stored.
    pub stored_below: u64,
}

/// What a file says besides the times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Head {
    mark: SeenMark,
    /// Above every id that was given.
    next_id: MetricId,
}

impl Seen {
    /// Writes the times to a file, and that every id below `next_id` was given.
    ///
    /// # Errors
    /// It cannot be written: the file is as it was.
    pub fn save(&self, disk: &dyn Disk, path: &Path, mark: SeenMark, next_id: MetricId) -> io::Result<()> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(mark.store.to_le_bytes());
        bytes.extend(mark.opening.to_le_bytes());
        bytes.extend(mark.stored_below.to_le_bytes());
        bytes.extend(next_id.0.to_le_bytes());
        {
            let mut table = self.table.write();
            table.write_to(&mut bytes);
            table.is_changed = false;
        }
        let crc = crc32fast::hash(&bytes);
        bytes.extend(crc.to_le_bytes());
        let saved = host::replace_file(disk, path, &bytes);
        if saved.is_err() {
            self.table.write().is_changed = true;
        }
        saved
    }

    /// Whether there are times that were not saved.
    pub fn is_changed(&self) -> bool {
        self.table.read().is_changed
    }

    /// Reads the times of a file that is not older than the store.
    ///
    /// # Errors
    /// Why the file is not used.
    pub fn read(&self, disk: &dyn Disk, path: &Path, store: SeenMark) -> Result<(), String> {
        let bytes = bytes_of(disk, path).map_err(|error| error.to_string())?;
        let (Head { mark, .. }, table) = read_from(&bytes).ok_or("it is damaged")?;
        if (mark.store, mark.opening) != (store.store, store.opening) {
            return Err("it is of another store, or of another time of this one".to_owned());
        }
        if mark.stored_below < store.stored_below {
            return Err("it is older than the store".to_owned());
        }
        *self.table.write() = table;
        Ok(())
    }
}

/// Above every id that the file says was given, or has times of; 0 without a whole file of this store. Its age says nothing
/// here: an id that was given once stays given.
pub fn given_as_saved(disk: &dyn Disk, path: &Path, store: u128) -> MetricId {
    let read = retried(|| bytes_of(disk, path)).ok().and_then(|bytes| read_from(&bytes));
    let of_store = read.filter(|(head, _)| head.mark.store == store);
    of_store.map_or(MetricId(0), |(head, table)| head.next_id.max(table.end_of_times()))
}

fn bytes_of(disk: &dyn Disk, path: &Path) -> io::Result<Vec<u8>> {
    disk.read(path)
}

impl Table {
    /// Above the last id that has times.
    fn end_of_times(&self) -> MetricId {
        let last = (0..self.times.end().0).rev().find(|id| self.get(MetricId(*id)) != Times::NONE);
        MetricId(last.map_or(0, |last| last + 1))
    }

    fn write_to(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.scale.day().to_le_bytes());
        let count_at = bytes.len();
        bytes.extend([0; 4]);
        let (mut groups, mut next) = (0_u32, 0);
        let end = self.times.end().0;
        while next < end {
            let number = next / GROUP;
            let ids = next..next.saturating_add(GROUP);
            next = ids.end;
            if ids.clone().all(|id| self.get(MetricId(id)) == Times::NONE) {
                continue;
            }
            groups += 1;
            bytes.extend(number.to_le_bytes());
            for id in ids {
                let Times { first, last } = self.get(MetricId(id));
                bytes.extend([first, last]);
            }
        }
        bytes[count_at..count_at + 4].copy_from_slice(&groups.to_le_bytes());
    }
}

fn read_from(bytes: &[u8]) -> Option<(Head, Table)> {
    let (body, crc) = bytes.split_last_chunk::<4>()?;
    if crc32fast::hash(body) != u32::from_le_bytes(*crc) {
        return None;
    }
    let mut rest = body.strip_prefix(MAGIC)?;
    let mut take = |count: usize| {
        let (taken, behind) = rest.split_at_checked(count)?;
        rest = behind;
        Some(taken)
    };
    let version = u32::from_le_bytes(take(4)?.try_into().ok()?);
    if !(1..=VERSION).contains(&version) {
        return None;
    }
    let store = u128::from_le_bytes(take(16)?.try_into().ok()?);
    let opening = u64::from_le_bytes(take(8)?.try_into().ok()?);
    let stored_below = u64::from_le_bytes(take(8)?.try_into().ok()?);
    let next_id = match version {
        1 => 0,
        _ => u32::from_le_bytes(take(4)?.try_into().ok()?),
    };
    let day = u32::from_le_bytes(take(4)?.try_into().ok()?);
    let mut table = Table {
        scale: Scale::at(Timestamp::from(day) * DAY),
        times: metric::Column::new(|| Times::NONE),
        is_changed: true,
    };
    for _ in 0..u32::from_le_bytes(take(4)?.try_into().ok()?) {
        let number = u32::from_le_bytes(take(4)?.try_into().ok()?);
        let first = number.checked_mul(GROUP)?;
        for (place, times) in (0..GROUP).zip(take(2 * GROUP as usize)?.as_chunks::<2>().0) {
            let times = Times { first: times[0], last: times[1] };
            if times != Times::NONE {
                *table.times.entry(MetricId(first.checked_add(place)?)) = times;
            }
        }
    }
    let mark = SeenMark { store, opening, stored_below };
    Some((Head { mark, next_id: MetricId(next_id) }, table))
}
