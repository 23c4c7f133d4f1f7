//! Globs of a node that has not read the names in the shared tables yet: an error that says so, not what happens to be known.

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use metadata::{FindError, FindLimits, Finder, Found, Registry};

use crate::cluster::Link;

/// Whether the data folder has every name that the tables had at some time. Names of later are found by the next reading.
pub struct NamesRead {
    mark: PathBuf,
    are_read: AtomicBool,
}

impl NamesRead {
    /// As a data folder says it.
    pub fn of(data: &Path) -> NamesRead {
        let mark = data.join("names-read");
        NamesRead { are_read: AtomicBool::new(mark.exists()), mark }
    }

    /// Whether they were read, now or before a restart.
    pub fn are_read(&self) -> bool {
        self.are_read.load(Relaxed)
    }

    /// What whoever needs all of them is told until then; `link` knows why they may not have been.
    pub fn or_why_not(&self, link: &Link) -> Result<(), FindError> {
        if self.are_read() {
            return Ok(());
        }
        let why = match link.driver() {
            Ok(_) => "that is under way".to_owned(),
            Err(error) => error.to_string(),
        };
        Err(FindError::Elsewhere(format!("the names in Cassandra have not been read yet: {why}")))
    }

    /// Says that all of them were. Where the folder cannot keep it, the next start reads them before it answers.
    pub fn say(&self) {
        if !self.are_read.swap(true, Relaxed)
            && let Err(error) = File::create(&self.mark)
        {
            tracing::warn!(%error, file = %self.mark.display(), "the next start reads all names before it answers");
        }
    }
}

/// Asks the path index, once it is whole.
pub struct UnreadNames {
    /// Whether it is.
    pub names: Arc<NamesRead>,
    /// Why it may not be.
    pub link: Arc<Link>,
    /// The index.
    pub registry: Arc<Registry>,
}

impl Finder for UnreadNames {
    fn find(&self, pattern: &str, limits: &FindLimits) -> Result<Found, FindError> {
        self.has_all()?;
        Finder::find(&*self.registry, pattern, limits)
    }

    fn leaves(&self, pattern: &str, limits: &FindLimits) -> Result<Found, FindError> {
        let found = Finder::leaves(&*self.registry, pattern, limits)?;
        // The exact name of a metric that is known needs no others.
        if !(found.len() == 1 && found.iter().all(|node| node.path == pattern)) {
            self.has_all()?;
        }
        Ok(found)
    }

    fn has_all(&self) -> Result<(), FindError> {
        self.names.or_why_not(&self.link)
    }
}

#[cfg(test)]
mod tests {
    use store::MetricRecord;

    use super::*;

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
        let names = Arc::new(NamesRead::of(data.path()));
        let finder = UnreadNames { names: names.clone(), link: Arc::default(), registry };
        let limits = FindLimits::default();
        assert_eq!(finder.leaves("a.known", &limits).unwrap().len(), 1);
        for error in
            [finder.find("a.*", &limits).err(), finder.leaves("a.*", &limits).err(), finder.leaves("b", &limits).err()]
        {
            let error = error.expect("nobody knows").to_string();
            assert_eq!(error, "the names in Cassandra have not been read yet: Cassandra was not asked yet");
        }
        assert!(finder.has_all().is_err());
        names.say();
        assert_eq!(finder.has_all(), Ok(()));
        assert_eq!((finder.find("a.*", &limits).unwrap().len(), finder.leaves("b", &limits).unwrap().len()), (1, 0));
        assert!(NamesRead::of(data.path()).are_read(), "and so they are after a restart");
    }
}
