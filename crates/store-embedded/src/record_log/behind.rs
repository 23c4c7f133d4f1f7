//! Records of a file behind the length at which a later one continues it: no start reads them.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
};

use host::DiskFile;

use super::{
    frame::{FRAME, Seal},
    walk::{Part, walk},
};

/// What is behind that length.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Behind {
    /// Nothing that a file which continues it lacks.
    Nothing,
    /// Records of another file than the one that was there, or of an earlier program.
    Others,
    /// What could not be read now may be others, or may be where these are.
    NotKnown,
}

/// Whether some of them are in none of the files that continue it. After a sync that failed, the next file has the same records.
pub(super) fn behind<'f>(
    (file, seal): (&dyn DiskFile, &Seal),
    counts: u64,
    continuing: impl Iterator<Item = (&'f dyn DiskFile, Seal)>,
) -> Behind {
    let Ok(len) = file.len() else { return Behind::NotKnown };
    let mut is_all_read = true;
    let mut others = BTreeSet::new();
    if counts < len {
        walk(file, len, seal, |part| match part {
            Part::Record(offset, kind, payload) | Part::Corrected(offset, _, kind, payload)
                if counts < offset + (FRAME + payload.len()) as u64 =>
            {
                others.insert(of_record(kind, payload));
            }
            Part::Unread(offset, bytes) => is_all_read &= offset + bytes <= counts,
            _ => {}
        });
    }
    for (file, seal) in continuing {
        if others.is_empty() {
            break;
        }
        let Ok(len) = file.len() else {
            is_all_read = false;
            continue;
        };
        walk(file, len, &seal, |part| match part {
            Part::Record(_, kind, payload) | Part::Corrected(_, _, kind, payload) => {
                others.remove(&of_record(kind, payload));
            }
            Part::Unread(..) => is_all_read = false,
            _ => {}
        });
    }
    match (is_all_read, others.is_empty()) {
        (true, true) => Behind::Nothing,
        (true, false) => Behind::Others,
        (false, _) => Behind::NotKnown,
    }
}

/// There may be millions of them. Two with the same hash count as one.
fn of_record(kind: u8, payload: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (kind, payload).hash(&mut hasher);
    hasher.finish()
}

/// What a report says of them.
pub(super) fn not_used(counts: u64) -> String {
    format!("records behind byte {counts} are not used: a later file continues this one there, and does not have them")
}
