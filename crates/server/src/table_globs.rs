//! Globs answered by the tables in Cassandra: the setting `cassandra.globs = "cassandra"`.
//!
//! What they find and this node does not know yet is taken in on the way, so that it can be read.

use std::{
    collections::HashSet,
    future::Future,
    sync::{Arc, mpsc},
    time::Duration,
};

use ingest::Ingest;
use metadata::{FindError, FindLimits, Finder, Found, Registry};
use store::{Catalogue, Driver, SharedNode, StoreError};
use tokio::runtime::Handle;

use crate::{cluster::Link, shared_names::adopt, unread_names::NamesRead};

/// How often a thread that waits for the tables looks whether anybody still waits for it.
const LOOK: Duration = Duration::from_millis(20);

/// Names looked up at once.
const LOOKED_UP: usize = 4096;

/// Asks the tables.
pub struct TableGlobs {
    /// The tables.
    pub link: Arc<Link>,
    /// Numbers in the data folder.
    pub local: Arc<dyn Driver>,
    /// Who keeps points of what is found.
    pub ingest: Arc<Ingest>,
    /// What this node knows.
    pub registry: Arc<Registry>,
    /// Whether that is all.
    pub names: Arc<NamesRead>,
    /// Rows a glob may read.
    pub rows: usize,
    /// Where its statements run.
    pub runtime: Handle,
}

impl TableGlobs {
    fn ask(&self, pattern: &str, limits: &FindLimits, leaves_only: bool) -> Result<Found, FindError> {
        if metric::is_tagged(pattern) {
            self.has_all()?;
            return Finder::find(&*self.registry, pattern, limits);
        }
        // What is wrong with a pattern is said alike by whoever answers.
        if globs::Matcher::new(pattern)?.is_none() {
            return Found::of(std::iter::empty());
        }
        let nodes = self.nodes(pattern, limits)?;
        let shown = nodes.iter().filter(|node| node.is_leaf || !leaves_only);
        if shown.clone().count() > limits.nodes {
            return Err(FindError::TooManyNodes { limit: limits.nodes });
        }
        let names = self.registry.read();
        let number = |node: &SharedNode| names.find(self.registry.hash(node.path.as_bytes()), node.path.as_bytes());
        Found::of(shown.map(|node| {
            let number = node.is_leaf.then(|| number(node)).flatten();
            (node.path.as_str(), number, node.is_branch && !leaves_only)
        }))
    }

    /// What the tables find, and what this node knows that is not in the tables yet. Every metric among it has a number.
    fn nodes(&self, pattern: &str, limits: &FindLimits) -> Result<Vec<SharedNode>, FindError> {
        let (link, local, ingest, rows) = (self.link.clone(), self.local.clone(), self.ingest.clone(), self.rows);
        let asked = pattern.to_owned();
        let mut nodes = self.wait(limits, async move {
            let driver = link.driver()?;
            let nodes = driver.find(&asked, rows).await?;
            let unknown: Vec<String> = {
                let names = ingest.registry().read();
                let is_known =
                    |path: &str| names.find(ingest.registry().hash(path.as_bytes()), path.as_bytes()).is_some();
                let leaves = nodes.iter().filter(|node| node.is_leaf && !is_known(&node.path));
                leaves.map(|node| node.path.clone()).collect()
            };
            for some in unknown.chunks(LOOKED_UP) {
                adopt(driver.lookup(some.to_vec()).await?, &*local, &ingest).await?;
            }
            Ok(nodes)
        })?;
        self.add_unlisted(pattern, &mut nodes)?;
        self.add_deep(pattern, limits, &mut nodes)?;
        Ok(nodes)
    }

    /// Names that have too many components for the tables are known to this node alone.
    fn add_deep(&self, pattern: &str, limits: &FindLimits, nodes: &mut Vec<SharedNode>) -> Result<(), FindError> {
        let columns = self.link.driver().ok().and_then(|driver| driver.columns());
        let components = |path: &str| path.split('.').count();
        let Some(columns) = columns.filter(|&columns| components(pattern) >= columns || pattern.contains("**")) else {
            return Ok(());
        };
        let local = Finder::find(&*self.registry, pattern, limits)?;
        nodes.extend(local.iter().filter(|node| components(node.path) >= columns).map(|node| SharedNode {
            path: node.path.to_owned(),
            is_leaf: node.is_leaf,
            is_branch: node.is_branch,
        }));
        Ok(())
    }

    /// A metric that was created a moment ago is in the tables a second later, and to be found now.
    fn add_unlisted(&self, pattern: &str, nodes: &mut Vec<SharedNode>) -> Result<(), FindError> {
        let Some(mut matcher) = globs::Matcher::new(pattern)? else { return Ok(()) };
        let unlisted = self.ingest.unlisted();
        if unlisted.is_empty() {
            return Ok(());
        }
        let leaves: HashSet<String> = nodes.iter().filter(|node| node.is_leaf).map(|node| node.path.clone()).collect();
        // Those are found where all others of their kind are.
        let columns = self.link.driver().ok().and_then(|driver| driver.columns()).unwrap_or(usize::MAX);
        let is_deep = |name: &str| name.split('.').count() >= columns;
        let names = self.registry.read();
        for number in unlisted {
            let name = names.name(number);
            if !metric::is_tagged(name) && !is_deep(name) && matcher.matches(name)? && !leaves.contains(name) {
                nodes.push(SharedNode { path: name.to_owned(), is_leaf: true, is_branch: false });
            }
        }
        Ok(())
    }

    /// Runs `work` on the runtime and waits for it, unless nobody waits any more; then it is dropped.
    fn wait<T: Send + 'static>(
        &self,
        limits: &FindLimits,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, FindError> {
        let (done, answer) = mpsc::channel();
        let task = self.runtime.spawn(async move { done.send(work.await) });
        loop {
            match answer.recv_timeout(LOOK) {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(StoreError::Refused(problem))) => return Err(FindError::TooManyRows(problem)),
                Ok(Err(error)) => return Err(FindError::Elsewhere(error.to_string())),
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(FindError::Elsewhere("the question ended without an answer".to_owned()));
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
            let cancelled = limits.cancelled.as_ref();
            if cancelled.is_some_and(|flag| flag.load(std::sync::atomic::Ordering::Relaxed)) {
                task.abort();
                return Err(FindError::Cancelled);
            }
        }
    }
}

impl Finder for TableGlobs {
    fn find(&self, pattern: &str, limits: &FindLimits) -> Result<Found, FindError> {
        self.ask(pattern, limits, false)
    }

    fn leaves(&self, pattern: &str, limits: &FindLimits) -> Result<Found, FindError> {
        // The exact name of a metric that is known costs nobody anything.
        let exact = Finder::leaves(&*self.registry, pattern, limits)?;
        if exact.len() == 1 && exact.iter().all(|node| node.path == pattern) {
            return Ok(exact);
        }
        self.ask(pattern, limits, true)
    }

    fn has_all(&self) -> Result<(), FindError> {
        self.names.or_why_not(&self.link)
    }
}
