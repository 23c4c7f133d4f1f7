//! A file of rows read slowly, to find rot before a query does.

use std::{path::Path, time::Duration};

use host::{Clock, Disk};
use store::{Damage, DamageLog};
use store_embedded::check_file;

/// A file that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scrubbed {
    /// Bytes.
    pub bytes: u64,
    /// What cannot be read.
    pub faults: u64,
    /// How long to wait before the next file, to keep to the rate.
    pub rest: Duration,
}

/// Reads all of a file of rows of a running server, and reports what cannot be read. A file that is gone was merged or has
/// expired since.
pub fn scrub_file(
    disk: &dyn Disk,
    clock: &dyn Clock,
    damage: &DamageLog,
    data: &Path,
    path: &Path,
    bytes_per_second: u64,
) -> Scrubbed {
    let full = data.join(path);
    let Ok(bytes) = disk.open(&full, host::Open::Read).and_then(|file| file.len()) else {
        return Scrubbed { bytes: 0, faults: 0, rest: Duration::ZERO };
    };
    let file = path.display().to_string();
    let found_at = clock.now();
    let mut faults = 0;
    let mut report = |found: Damage| {
        faults += 1;
        if damage.report(found.clone()) {
            let Damage { what, file, how, metrics, span, .. } = found;
            tracing::error!(
                what,
                file,
                how,
                ?metrics,
                ?span,
                "the scrub of the store found damage; everything else is served"
            );
        }
    };
    match check_file(disk, &full) {
        Ok(checked) => {
            for part in checked.damaged {
                // The text that a query gives the same damage, so that it counts once.
                let how = format!("bytes {} to {}: {}", part.offset, part.offset + part.bytes, part.how);
                let (what, bytes, metrics, span) = (part.what, part.bytes, part.metrics, part.span);
                report(Damage { found_at, what, file: file.clone(), how, bytes, moved_to: None, metrics, span });
            }
        }
        // Merged or expired since it was opened.
        Err(_) if !disk.exists(&full) => {}
        Err(how) => report(Damage { found_at, what: "file of rows", file, how, bytes, ..Damage::default() }),
    }
    let rest = Duration::from_secs_f64(bytes as f64 / bytes_per_second.max(1) as f64);
    Scrubbed { bytes, faults, rest }
}
