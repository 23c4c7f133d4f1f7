//! Reads of the journal that are made again for a while, because what is not read now is lost when the segment is removed.

use std::{
    cell::Cell,
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use host::Clock;

use crate::wal::{self, Folder, Segment, SegmentBytes};

/// Interval of attempts.
const INTERVAL: Duration = Duration::from_secs(1);

/// How long a start waits for parts of segments that cannot be read, all together.
pub(crate) struct ReadPatience {
    clock: Arc<dyn Clock>,
    patience: Duration,
    /// When a read failed first.
    failing_since: Cell<Option<Instant>>,
}

impl ReadPatience {
    pub(crate) fn new(clock: Arc<dyn Clock>, patience: Duration) -> ReadPatience {
        ReadPatience { clock, patience, failing_since: Cell::default() }
    }

    /// Reads, and again while that fails. Returns the last result. Blocks.
    pub(crate) fn read<T>(&self, mut read: impl FnMut() -> T, is_failing: impl Fn(&T) -> bool) -> T {
        loop {
            let found = read();
            if !is_failing(&found) {
                return found;
            }
            let now = self.clock.instant();
            let since = self.failing_since.get().unwrap_or(now);
            if self.patience <= now.saturating_duration_since(since) {
                return found;
            }
            if self.failing_since.replace(Some(since)).is_none() {
                tracing::warn!(
                    seconds = self.patience.as_secs(),
                    "parts of the journal cannot be read; reading them again before the start goes on"
                );
            }
            std::thread::sleep(INTERVAL);
        }
    }

    /// Reads a segment, and again for a while where its disk does not return all of it.
    pub(crate) fn read_segment(&self, folder: &Folder, segment: &Segment) -> io::Result<SegmentBytes> {
        let is_failing = |read: &io::Result<SegmentBytes>| match read {
            Ok(read) => !read.unread.is_empty(),
            Err(error) => wal::may_pass(error),
        };
        self.read(|| folder.read_parts(segment), is_failing)
    }
}
