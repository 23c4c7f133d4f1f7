//! Whether the path index has the names of the shared tables. Until it does, a glob is an error, not a partial answer.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use host::{Disk, Open};
use metadata::{FindError, FindLimits, Finder, Found, Registry};

use crate::tables::Tables;

/// Whether the names of the shared tables were ever read into this data folder. Newer names follow with each sync.
pub struct IndexReadiness {
    tables: Arc<dyn Tables>,
    disk: Arc<dyn Disk>,
    /// `data/names-read`: exists once the names were read.
    mark: PathBuf,
    is_ready: AtomicBool,
}

impl IndexReadiness {
    /// Reads the state from the data folder.
    pub(crate) fn open(disk: Arc<dyn Disk>, data: &Path, tables: Arc<dyn Tables>) -> IndexReadiness {
        let mark = data.join("names-read");
        IndexReadiness { tables, is_ready: AtomicBool::new(disk.exists(&mark)), disk, mark }
    }

    /// Whether the names were read, in this run or an earlier one.
    pub fn is_ready(&self) -> bool {
        self.is_ready.load(Relaxed)
    }

    /// The error for a question that needs all names, until they are read.
    pub(crate) fn check(&self) -> Result<(), FindError> {
        if self.is_ready() {
            return Ok(());
        }
        let why = self.tables.problem().unwrap_or_else(|| "reading them now".to_owned());
        Err(FindError::Elsewhere(format!("the names in Cassandra have not been read yet: {why}")))
    }

    /// Notes that all names were read, in this process and in the data folder.
    pub(crate) fn set_ready(&self) {
        if !self.is_ready.swap(true, Relaxed)
            && let Err(error) = self.disk.open(&self.mark, Open::Create)
        {
            tracing::warn!(%error, file = %self.mark.display(),
                "cannot mark the names as read; the next start reads them again before it answers globs");
        }
    }
}

/// Answers globs from the path index, once it is ready.
pub(crate) struct IndexFinder {
    pub(crate) readiness: Arc<IndexReadiness>,
    pub(crate) registry: Arc<Registry>,
}

impl Finder for IndexFinder {
    fn find(&self, pattern: &str, limits: &FindLimits) -> Result<Found, FindError> {
        self.has_all()?;
        Finder::find(&*self.registry, pattern, limits)
    }

    fn leaves(&self, pattern: &str, limits: &FindLimits) -> Result<Found, FindError> {
        let found = Finder::leaves(&*self.registry, pattern, limits)?;
        // The exact name of a known metric needs no other names.
        if !(found.len() == 1 && found.iter().all(|node| node.path == pattern)) {
            self.has_all()?;
        }
        Ok(found)
    }

    fn has_all(&self) -> Result<(), FindError> {
        self.readiness.check()
    }
}

#[cfg(test)]
mod tests {
    use host::Host;
    use store::MetricRecord;

    use store_cassandra::Calendar;

    use super::*;
    use crate::{change_log::ChangeLog, connection::Connection, write_clock::WriteClock};

    fn readiness(data: &Path) -> Arc<IndexReadiness> {
        let disk = Host::system().disk;
        let calendar = Arc::new(Calendar::new(Host::system().clock));
        let log = Arc::new(ChangeLog::new(Host::system().clock, calendar.clone()));
        let connection = Arc::new(Connection::new(WriteClock::open(disk.clone(), data), log, calendar));
        Arc::new(IndexReadiness::open(disk, data, connection))
    }

    #[test]
    fn a_glob_is_an_error_until_the_names_were_read_once() {
        let data = tempfile::tempdir().unwrap();
        let registry = Arc::new(Registry::new());
        registry.restore(vec![MetricRecord {
            id: metric::MetricId(0),
            name: "a.known".to_owned(),
            created_on: 0,
            policies: vec![store::PolicyChange { since: 0, policy: metric::Policy::default() }],
        }]);
        let readiness_now = readiness(data.path());
        let finder = IndexFinder { readiness: readiness_now.clone(), registry };
        let limits = FindLimits::default();
        assert_eq!(finder.leaves("a.known", &limits).unwrap().len(), 1);
        for error in
            [finder.find("a.*", &limits).err(), finder.leaves("a.*", &limits).err(), finder.leaves("b", &limits).err()]
        {
            let error = error.expect("the names are not read").to_string();
            assert_eq!(error, "the names in Cassandra have not been read yet: Cassandra is not connected yet");
        }
        assert!(finder.has_all().is_err());
        readiness_now.set_ready();
        assert_eq!(finder.has_all(), Ok(()));
        assert_eq!((finder.find("a.*", &limits).unwrap().len(), finder.leaves("b", &limits).unwrap().len()), (1, 0));
        assert!(readiness(data.path()).is_ready(), "also after a restart");
    }
}
