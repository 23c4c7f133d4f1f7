//! Globs answered by the tables in Cassandra: the setting `cassandra.globs = "cassandra"`.
//!
//! Metrics that a glob finds and this node does not know are adopted on the way, so that they can be read.

use std::{
    collections::HashSet,
    sync::{Arc, atomic::Ordering::Relaxed, mpsc},
    time::Duration,
};

use ingest::Ingest;
use metadata::{FindError, FindLimits, Finder, Found, Registry};
use store::{NameStore, SharedNames, SharedNode, StoreError};
use tokio::runtime::Handle;

use crate::{adopt::adopt, connection::Connection, index_readiness::IndexReadiness};

/// Poll interval of a thread that waits for the tables: it notices within this time that the client went away.
const POLL: Duration = Duration::from_millis(20);

/// Unknown metrics that one lookup asks for.
const LOOKUP_BATCH: usize = 4096;

/// Asks the tables.
pub(crate) struct CassandraFinder {
    pub(crate) connection: Arc<Connection>,
    /// Keeps the ids of adopted metrics.
    pub(crate) local: Arc<dyn NameStore>,
    pub(crate) ingest: Arc<Ingest>,
    pub(crate) readiness: Arc<IndexReadiness>,
    /// Rows that one glob may read.
    pub(crate) max_rows: usize,
    /// Where statements run.
    pub(crate) runtime: Handle,
}

impl CassandraFinder {
    fn registry(&self) -> &Registry {
        self.ingest.registry()
    }

    fn search(&self, pattern: &str, limits: &FindLimits, leaves_only: bool) -> Result<Found, FindError> {
        if metric::is_tagged(pattern) {
            self.has_all()?;
            return Finder::find(self.registry(), pattern, limits);
        }
        // An invalid pattern gets the same error from every finder.
        if globs::Matcher::new(pattern)?.is_none() {
            return Found::of(std::iter::empty());
        }
        let mut nodes = self.nodes(pattern, limits)?;
        if let Some(filter) = &limits.filter {
            for node in &mut nodes {
                node.is_leaf &= filter.shows_metric(&node.path);
                node.is_branch &= filter.shows_branch(&node.path);
            }
        }
        let shown = nodes.iter().filter(|node| node.is_leaf || node.is_branch && !leaves_only);
        if shown.clone().count() > limits.nodes {
            return Err(FindError::TooManyNodes { limit: limits.nodes });
        }
        let names = self.registry().read();
        let id = |node: &SharedNode| names.find(self.registry().hash(node.path.as_bytes()), node.path.as_bytes());
        Found::of(shown.map(|node| {
            let id = node.is_leaf.then(|| id(node)).flatten();
            (node.path.as_str(), id, node.is_branch && !leaves_only)
        }))
    }

    /// The matches of the tables and of the names that only this node has. Every metric has an id.
    fn nodes(&self, pattern: &str, limits: &FindLimits) -> Result<Vec<SharedNode>, FindError> {
        let (connection, local, ingest) = (self.connection.clone(), self.local.clone(), self.ingest.clone());
        let (asked, max_rows) = (pattern.to_owned(), self.max_rows);
        let mut nodes = self.wait(limits, async move {
            let driver = connection.driver()?;
            let nodes = driver.find(&asked, max_rows).await?;
            for names in unknown(&ingest, &nodes).chunks(LOOKUP_BATCH) {
                adopt(driver.lookup(names.to_vec()).await?, &*local, &ingest).await?;
            }
            Ok(nodes)
        })?;
        // How many components the tables have columns for. Deeper names are not in them.
        let columns = self.connection.driver().ok().and_then(|driver| driver.columns());
        self.add_unregistered(pattern, columns, &mut nodes)?;
        self.add_deep(pattern, columns, limits, &mut nodes)?;
        Ok(nodes)
    }

    /// Adds names with too many components for the tables: only this node knows them.
    fn add_deep(
        &self,
        pattern: &str,
        columns: Option<usize>,
        limits: &FindLimits,
        nodes: &mut Vec<SharedNode>,
    ) -> Result<(), FindError> {
        let Some(columns) = columns.filter(|&columns| components(pattern) >= columns || pattern.contains("**")) else {
            return Ok(());
        };
        let local = Finder::find(self.registry(), pattern, limits)?;
        nodes.extend(local.iter().filter(|node| components(node.path) >= columns).map(|node| SharedNode {
            path: node.path.to_owned(),
            is_leaf: node.is_leaf,
            is_branch: node.is_branch,
        }));
        Ok(())
    }

    /// Adds metrics that were created a moment ago: the tables have them a second later.
    fn add_unregistered(
        &self,
        pattern: &str,
        columns: Option<usize>,
        nodes: &mut Vec<SharedNode>,
    ) -> Result<(), FindError> {
        let Some(mut matcher) = globs::Matcher::new(pattern)? else { return Ok(()) };
        let unregistered = self.ingest.unregistered();
        if unregistered.is_empty() {
            return Ok(());
        }
        let leaves: HashSet<String> = nodes.iter().filter(|node| node.is_leaf).map(|node| node.path.clone()).collect();
        // Deep names come from `add_deep`.
        let columns = columns.unwrap_or(usize::MAX);
        let names = self.registry().read();
        for id in unregistered {
            let name = names.name(id);
            let is_in_tables = !metric::is_tagged(name) && components(name) < columns;
            if is_in_tables && matcher.matches(name)? && !leaves.contains(name) {
                nodes.push(SharedNode { path: name.to_owned(), is_leaf: true, is_branch: false });
            }
        }
        Ok(())
    }

    /// Runs `work` on the runtime and waits for it; drops it when the client goes away.
    fn wait<T: Send + 'static>(
        &self,
        limits: &FindLimits,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, FindError> {
        let (done, answer) = mpsc::channel();
        let task = self.runtime.spawn(async move { done.send(work.await) });
        loop {
            match answer.recv_timeout(POLL) {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(StoreError::Rejected(problem))) => return Err(FindError::TooManyRows(problem)),
                Ok(Err(error)) => return Err(FindError::Elsewhere(error.to_string())),
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(FindError::Elsewhere("the search ended without an answer".to_owned()));
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
            if limits.cancelled.as_ref().is_some_and(|flag| flag.load(Relaxed)) {
                task.abort();
                return Err(FindError::Cancelled);
            }
        }
    }
}

fn components(path: &str) -> usize {
    path.split('.').count()
}

/// The metrics among these nodes that have no id yet.
fn unknown(ingest: &Ingest, nodes: &[SharedNode]) -> Vec<String> {
    let registry = ingest.registry();
    let names = registry.read();
    let is_known = |path: &str| names.find(registry.hash(path.as_bytes()), path.as_bytes()).is_some();
    nodes.iter().filter(|node| node.is_leaf && !is_known(&node.path)).map(|node| node.path.clone()).collect()
}

impl Finder for CassandraFinder {
    fn find(&self, pattern: &str, limits: &FindLimits) -> Result<Found, FindError> {
        self.search(pattern, limits, false)
    }

    fn leaves(&self, pattern: &str, limits: &FindLimits) -> Result<Found, FindError> {
        // The exact name of a known metric needs no statement.
        let exact = Finder::leaves(self.registry(), pattern, limits)?;
        if exact.len() == 1 && exact.iter().all(|node| node.path == pattern) {
            return Ok(exact);
        }
        self.search(pattern, limits, true)
    }

    fn has_all(&self) -> Result<(), FindError> {
        self.readiness.check()
    }
}
