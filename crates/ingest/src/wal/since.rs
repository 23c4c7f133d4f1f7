//! Stored segments that stay while an older one waits that could not be read whole: `NUMBER.since`. They tell which slots
//! got points after it.

use std::io::{self, ErrorKind};

use super::segment::{Folder, Segment, uninterrupted};

/// The ending of such a file. It is not a part of the journal.
const SINCE: &str = "since";

/// Bytes of all of them, at most.
const MOST_BYTES: u64 = 256 << 20;

impl Folder {
    /// Renames a segment whose points are stored, or removes it and all that were kept, where they would be too large.
    pub(super) fn keep_since(&self, segment: &Segment) -> io::Result<()> {
        let kept: u64 = self.since()?.iter().map(|file| file.bytes).sum();
        if MOST_BYTES < kept + segment.bytes {
            self.remove(segment)?;
            return self.forget_since();
        }
        match uninterrupted(|| self.disk.rename(&segment.path, &segment.path.with_extension(SINCE))) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.sync_entries()
    }

    /// The files that are kept, in no order.
    pub(crate) fn since(&self) -> io::Result<Vec<Segment>> {
        let entries = match uninterrupted(|| self.disk.read_dir(self.dir())) {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            entries => entries?,
        };
        let segment = |entry: host::DirEntry| {
            let number = entry.name.to_str()?.strip_suffix(".since")?.parse().ok()?;
            Some(Segment { number, path: entry.path, bytes: entry.len })
        };
        Ok(entries.into_iter().filter_map(segment).collect())
    }

    /// Removes them: nothing waits any more, or they are too large.
    pub(crate) fn forget_since(&self) -> io::Result<()> {
        self.since()?.iter().try_for_each(|file| self.remove(file))
    }
}
