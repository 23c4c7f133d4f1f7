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

/// Whether some of them are in none of the files that continue it. After a sync that failed, the next file has the same records; others
/// are of another file than the one that was there, or an earlier program wrote them.
pub(super) fn has_others<'f>(
    (file, seal): (&dyn DiskFile, &Seal),
    counts: u64,
    continuing: impl Iterator<Item = (&'f dyn DiskFile, Seal)>,
) -> bool {
    let len = file.len().unwrap_or(0);
    let mut others = BTreeSet::new();
    if counts < len {
        walk(file, len, seal, |part| {
            if let Part::Record(offset, kind, payload) | Part::Corrected(offset, _, kind, payload) = part
                && counts < offset + (FRAME + payload.len()) as u64
            {
                others.insert(of_record(kind, payload));
            }
        });
    }
    let mut is_all_read = true;
    for (file, seal) in continuing {
        if others.is_empty() {
            return false;
        }
        walk(file, file.len().unwrap_or(0), &seal, |part| match part {
            Part::Record(_, kind, payload) | Part::Corrected(_, _, kind, payload) => {
                others.remove(&of_record(kind, payload));
            }
            Part::Unread(..) => is_all_read = false,
            _ => {}
        });
    }
    // What cannot be read now may be these.
    is_all_read && !others.is_empty()
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
