//! The wait before a failed call is retried.

use std::{error::Error, io, time::Duration};

use host::Backoff;

/// Between two attempts to write or sync the journal.
pub(crate) const JOURNAL_RETRY: Duration = Duration::from_millis(250);

/// Between two attempts to give metrics their new policies.
pub(crate) const RULES_RETRY: Duration = Duration::from_millis(250);

/// Longest wait for a disk without room. An attempt costs little there, and room comes at any moment, while senders wait for it.
const WITHOUT_ROOM: Duration = Duration::from_secs(2);

/// Waits for a store that fails.
#[derive(Debug)]
pub(crate) struct StoreBackoff(Backoff);

impl StoreBackoff {
    pub(crate) fn new() -> StoreBackoff {
        StoreBackoff(Backoff::new(Duration::from_secs(1), Duration::from_secs(30)))
    }

    /// The next wait, after this error.
    pub(crate) fn next_wait(&mut self, error: &(dyn Error + 'static)) -> Duration {
        let wait = self.0.next_wait();
        if is_without_room(error) { wait.min(WITHOUT_ROOM) } else { wait }
    }

    /// Starts again with the first wait, after a success.
    pub(crate) fn reset(&mut self) {
        self.0.reset();
    }
}

/// Whether the disk had no room, or the user none left on it: this error, or what it is made of.
fn is_without_room(error: &(dyn Error + 'static)) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    match error.downcast_ref::<io::Error>() {
        // What it wraps is not its source, which is the source of that.
        Some(error) => {
            matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
                || error.get_ref().is_some_and(|inner| is_without_room(inner))
        }
        None => error.source().is_some_and(is_without_room),
    }
}

#[cfg(test)]
mod tests {
    use store::StoreError;

    use super::*;
    use crate::no_panic::CallError;

    fn waits(error: &(dyn Error + 'static)) -> Vec<u64> {
        let mut backoff = StoreBackoff::new();
        (0..7).map(|_| backoff.next_wait(error).as_secs()).collect()
    }

    #[test]
    fn a_disk_without_room_is_asked_again_each_two_seconds() {
        let store = |number| StoreError::Io { what: String::new(), source: io::Error::from_raw_os_error(number) };
        for (what, number) in [("ENOSPC", 28), ("EDQUOT", 122), ("EFBIG", 27)] {
            assert_eq!(waits(&io::Error::from_raw_os_error(number)), [1, 2, 2, 2, 2, 2, 2], "{what}");
            assert_eq!(waits(&CallError::from(store(number))), [1, 2, 2, 2, 2, 2, 2], "{what}");
            assert_eq!(waits(&io::Error::other(store(number))), [1, 2, 2, 2, 2, 2, 2], "{what}");
        }
        let longer = [1, 2, 4, 8, 16, 30, 30];
        assert_eq!(waits(&CallError::from(store(5))), longer, "EIO");
        assert_eq!(waits(&StoreError::Unavailable("ENOSPC".to_owned())), longer);
        assert_eq!(waits(&io::Error::other("ENOSPC")), longer);
    }
}
