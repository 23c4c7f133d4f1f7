//! Whether the folder still belongs to this process: `spec` names the opening of the process that began last.
//!
//! The lock of the folder tells of most second processes. A file system of the network may grant every lock; then the second
//! process notes its opening in `spec`, and the first finds it there: once a second, and before each write of a log, the
//! manifest or `spec`. It writes nothing from then on.

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use host::{Disk, read_file_checked};
use store::StoreError;

/// The newest opening in the bytes of a `spec`; `None` where they are damaged, or have none.
type NewestOpening = fn(&[u8]) -> Option<u64>;

/// Bytes of `spec` that are read, at most.
const LONGEST: u64 = 1 << 20;

/// Who owns the folder. A clone is the same.
#[derive(Debug, Clone)]
pub(crate) struct Owner(Arc<State>);

#[derive(Debug)]
struct State {
    disk: Arc<dyn Disk>,
    spec: PathBuf,
    newest: NewestOpening,
    /// The opening that this process wrote to `spec`; 0 before.
    opening: AtomicU64,
    /// Why this process does not write any more.
    lost: OnceLock<String>,
}

impl Owner {
    /// Of the folder of this `spec`, which this process does not own yet.
    pub(crate) fn new(disk: &Arc<dyn Disk>, spec: PathBuf, newest: NewestOpening) -> Owner {
        Owner(Arc::new(State { disk: disk.clone(), spec, newest, opening: AtomicU64::new(0), lost: OnceLock::new() }))
    }

    /// `spec` names this opening from now on.
    pub(crate) fn took(&self, opening: u64) {
        self.0.opening.store(opening, Relaxed);
    }

    /// Why this process does not write any more, if another one began.
    pub(crate) fn lost(&self) -> Option<&str> {
        self.0.lost.get().map(String::as_str)
    }

    /// Reads `spec`. One that cannot be read now says nothing.
    ///
    /// # Errors
    /// Another process began since: nothing may be written.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let State { disk, spec, newest, opening, lost } = &*self.0;
        let ours = opening.load(Relaxed);
        if lost.get().is_none() && ours != 0 {
            let read = read_file_checked(&**disk, spec, LONGEST, |bytes| newest(bytes).is_some()).ok();
            if read.and_then(|bytes| newest(&bytes)).is_some_and(|newest| newest != ours) {
                let why = format!(
                    "another process uses the data folder: {} names an opening of another; the file system does not keep locks; this \
                     process writes nothing any more: stop it, and see that one server alone has the folder",
                    spec.display()
                );
                if lost.set(why.clone()).is_ok() {
                    tracing::error!("{why}");
                }
            }
        }
        match lost.get() {
            Some(why) => {
                Err(StoreError::Io { what: "writing to the store".to_owned(), source: io::Error::other(why.clone()) })
            }
            None => Ok(()),
        }
    }
}
