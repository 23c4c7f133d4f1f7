//! Brings names that others created in the shared tables, or deleted from them, into this node's registry.
//!
//! 1. The tables are scanned. Unknown names get ids, with the policy in the tables ([`adopt`]); so do known names that have another
//!    policy there and no points here.
//! 2. Metrics that this node knows and the scan missed are looked up by name. Those that are gone become hidden; a later
//!    point creates them again.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use host::{Clock, Random};
use ingest::{Ingest, is_kept_otherwise};
use metric::{MetricId, Timestamp};
use store::{NameStore, ScanPace, ScanProgress, SharedMetric, StoreError};
use store_cassandra::SharedTables;
use tokio::sync::mpsc;

use crate::{
    adopt::{adopt, write_owed},
    index_readiness::IndexReadiness,
    rescan::Rescan,
    tables::Tables,
};

/// Metrics whose ids are made durable together.
const ADOPT_BATCH: usize = 1 << 16;

/// Missed metrics that one lookup asks for.
const LOOKUP_BATCH: usize = 1 << 12;

/// How far calendars of nodes may be apart, seconds.
const APART: i64 = 900;

/// Interval between two log lines about the progress of a scan.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

/// Pause after a failed scan.
const RETRY: Duration = Duration::from_secs(30);

/// Parts of the interval over which a read is spread that nothing waits for, and between two reads. Together they are less than
/// the interval: what a read has just passed is found by the next within it.
const SPREAD: u32 = 4;
const REST: u32 = 2;

/// Part of the interval after which all is read again where something could not be noted.
const AGAIN: u32 = 12;

/// Poll interval while Cassandra is away.
const POLL: Duration = Duration::from_secs(1);

/// The result of a sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Changes {
    /// Names in the tables.
    rows: u64,
    /// Names that were new to this node.
    added: usize,
    /// Names that are gone from the tables.
    hidden: usize,
}

/// Follows the names in the tables.
pub(crate) struct NameSync {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) tables: Arc<dyn Tables>,
    /// Keeps the ids.
    pub(crate) local: Arc<dyn NameStore>,
    pub(crate) ingest: Arc<Ingest>,
    pub(crate) readiness: Arc<IndexReadiness>,
    pub(crate) rescan: Arc<Rescan>,
    pub(crate) random: Arc<dyn Random>,
}

impl NameSync {
    /// Syncs as soon as Cassandra is connected, then so that each change is found within the interval, and when asked to, until dropped. Only
    /// a read that nothing waits for is spread.
    pub(crate) async fn follow(self: Arc<NameSync>, every: Duration) {
        // Nodes that start together do not read all names at the same time ever after.
        let mut rest = (every / REST).mul_f64(self.random.below(1 << 20) as f64 / f64::from(1 << 20));
        let mut over = Duration::ZERO;
        loop {
            let pause = match self.sync(over).await {
                Ok(()) => {
                    over = every / SPREAD;
                    std::mem::replace(&mut rest, every / REST)
                }
                Err(StoreError::Unavailable(_)) if !self.tables.is_up() => {
                    over = Duration::ZERO;
                    POLL
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot read the names in the tables; retrying");
                    over = Duration::ZERO;
                    RETRY.min(every)
                }
            };
            if self.rests(pause, every / AGAIN).await {
                over = Duration::ZERO;
            }
        }
    }

    /// Waits for the next read. Returns whether one is asked for: by the task that follows the log, or because something could not be
    /// noted when it was read.
    async fn rests(&self, pause: Duration, looks_every: Duration) -> bool {
        let until = self.clock.instant() + pause;
        loop {
            let left = until.saturating_duration_since(self.clock.instant());
            tokio::select! {
                () = tokio::time::sleep(left.min(looks_every)) => {
                    if self.ingest.take_left_out() {
                        return true;
                    }
                    // Also what a read that ended early has left.
                    write_owed(&*self.local, &self.ingest).await;
                    if left <= looks_every {
                        return false;
                    }
                }
                () = self.rescan.asked() => return true,
            }
        }
    }

    /// Syncs now if that was never done and Cassandra is up. Until it succeeds, here or in [`NameSync::follow`], globs are
    /// an error.
    pub(crate) async fn first(&self) {
        if !self.readiness.is_ready()
            && self.tables.is_up()
            && let Err(error) = self.sync(Duration::ZERO).await
        {
            tracing::error!(%error, "cannot read the names in the tables; retrying");
        }
    }

    /// Reads all names, spread over so long.
    async fn sync(&self, over: Duration) -> Result<(), StoreError> {
        let driver = self.tables.tables()?;
        let began = self.clock.instant();
        self.rescan.begin();
        let mut missed = Missed::before(&self.ingest);
        let (rows, added) = self.scan(driver, &mut missed, over).await?;
        let gone = self.deleted(driver, missed.visible(&self.ingest)).await?;
        let mut hidden = 0;
        if !gone.is_empty() {
            let (ingest, rescan) = (self.ingest.clone(), self.rescan.clone());
            let hide = move || {
                let registry = ingest.registry();
                ingest.hide(&gone, |name| !rescan.was_created(registry.hash(name.as_bytes())))
            };
            hidden = host::spawn_blocking(hide).await.unwrap_or(0);
        }
        // Not before: what is created until a name is hidden stays.
        self.rescan.end();
        write_owed(&*self.local, &self.ingest).await;
        self.ingest.all_are_read();
        let changes = Changes { rows, added, hidden };
        let readiness = self.readiness.clone();
        let _ = host::spawn_blocking(move || readiness.set_ready()).await;
        if changes.added + changes.hidden > 0 {
            let Changes { rows, added, hidden } = changes;
            let seconds = (self.clock.instant() - began).as_secs_f64();
            tracing::info!(rows, added, hidden, seconds, "the names of this node match the tables");
        }
        Ok(())
    }

    /// Reads all names; returns how many rows there are, and how many of them were new to this node.
    async fn scan(
        &self,
        driver: &dyn SharedTables,
        missed: &mut Missed,
        over: Duration,
    ) -> Result<(u64, usize), StoreError> {
        let pace = ScanPace { over, is_hurried: self.rescan.is_asked().clone() };
        let (send, mut unknown) = mpsc::unbounded_channel();
        let is_spread = !over.is_zero();
        let is_first = !self.readiness.is_ready();
        let began = Began { at: self.clock.now() - APART, unregistered: self.unregistered(), is_first };
        let scanning = async move {
            let mut scan = Scan {
                ingest: &self.ingest,
                missed,
                unknown: Vec::new(),
                send,
                rows: 0,
                logged: self.clock.instant(),
                is_spread,
            };
            driver.scan(pace, &mut |batch, progress| scan.take(batch, progress, self.clock.instant())).await?;
            Ok(scan.finish())
        };
        // Concurrent with the scan, so that millions of unknown names are not in memory at once.
        let adopting = async {
            let mut added = 0;
            while let Some(batch) = unknown.recv().await {
                let batch = self.as_now(driver, batch, &began).await?;
                added += adopt(batch, &*self.local, &self.ingest).await?;
            }
            Ok::<_, StoreError>(added)
        };
        tokio::try_join!(scanning, adopting)
    }

    fn unregistered(&self) -> HashSet<MetricId> {
        self.ingest.unregistered().into_iter().collect()
    }

    /// What was read of metrics whose policies have changed since the scan began may be of before that: they are read once more. Those
    /// whose rows this node itself is still to write are left out.
    async fn as_now(
        &self,
        driver: &dyn SharedTables,
        batch: Vec<SharedMetric>,
        began: &Began,
    ) -> Result<Vec<SharedMetric>, StoreError> {
        let (registry, unregistered) = (self.ingest.registry(), self.unregistered());
        let ids: Vec<Option<MetricId>> = {
            let names = registry.read();
            let id = |metric: &SharedMetric| {
                let name = metric.name.as_bytes();
                names.find(registry.hash(name), name)
            };
            batch.iter().map(id).collect()
        };
        let last_change = |id: MetricId| registry.policies(id).and_then(|history| history.last().copied());
        let has_changed_ever = |id: MetricId| last_change(id).is_some_and(|last| 0 < last.since);
        let has_changed = |id: MetricId| last_change(id).is_some_and(|last| began.at <= last.since);
        let (mut now, mut again) = (Vec::with_capacity(batch.len()), Vec::new());
        for (metric, id) in batch.into_iter().zip(ids) {
            let is_own = |id: MetricId| unregistered.contains(&id) || began.unregistered.contains(&id);
            match id {
                Some(id) if is_own(id) && has_changed_ever(id) => self.ingest.leave_out(id, &metric),
                Some(id) if has_changed(id) => again.push((metric.name, Some(id))),
                // It may have been deleted since, also where the scan is quick.
                None if !began.is_first => again.push((metric.name, None)),
                _ => now.push((id, metric)),
            }
        }
        // In the order of names: a seed gives the same ids each time.
        let before: BTreeMap<String, _> =
            again.into_iter().map(|(name, id)| (name, id.map(|id| (id, last_change(id))))).collect();
        let names: Vec<&String> = before.keys().collect();
        let mut looked_up = Vec::new();
        for names in names.chunks(LOOKUP_BATCH) {
            looked_up.extend(driver.lookup(names.iter().copied().cloned().collect()).await?);
        }
        // What was followed during the lookups, or changed here, is newer.
        now.retain(|(id, metric)| {
            let changed = id.filter(|&id| has_changed(id));
            if let Some(id) = changed {
                self.ingest.leave_out(id, metric);
            }
            changed.is_none()
        });
        looked_up.retain(|metric: &SharedMetric| {
            let known = before.get(&metric.name).copied().flatten();
            let changed = known.filter(|(id, change)| last_change(*id) != *change);
            if let Some((id, _)) = changed {
                self.ingest.leave_out(id, metric);
            }
            changed.is_none()
        });
        Ok(now.into_iter().map(|(_, metric)| metric).chain(looked_up).collect())
    }

    /// Which of the metrics that a scan missed are gone from the tables.
    async fn deleted(&self, driver: &dyn SharedTables, missed: Vec<MetricId>) -> Result<Vec<MetricId>, StoreError> {
        let mut gone = Vec::new();
        for batch in missed.chunks(LOOKUP_BATCH) {
            let mut ids: HashMap<String, MetricId> = {
                let names = self.ingest.registry().read();
                batch.iter().map(|&id| (names.name(id).to_owned(), id)).collect()
            };
            let deleted = driver.deleted(ids.keys().cloned().collect()).await?;
            gone.extend(deleted.iter().filter_map(|name| ids.remove(name)));
        }
        Ok(gone)
    }
}

/// When a scan began.
struct Began {
    /// Unix seconds, less [`APART`].
    at: Timestamp,
    /// Whose rows this node had not written then.
    unregistered: HashSet<MetricId>,
    /// Whether it is the first one: all names are unknown, and globs wait for it.
    is_first: bool,
}

/// The metrics that a scan has not met, out of those it must meet.
struct Missed {
    // By id.
    is_met: Vec<bool>,
}

impl Missed {
    /// Every metric that was registered before the scan.
    fn before(ingest: &Ingest) -> Missed {
        // In this order: a metric that is created in between is past the end, and not asked for.
        let end = ingest.registry().read().end().0;
        let unregistered = ingest.unregistered();
        // Hidden metrics are not asked for: a point, or this scan, may make them visible meanwhile.
        let mut is_met: Vec<bool> = {
            let names = ingest.registry().read();
            (0..end).map(|id| !names.is_shown(MetricId(id))).collect()
        };
        for id in unregistered {
            if let Some(met) = is_met.get_mut(id.index()) {
                *met = true;
            }
        }
        Missed { is_met }
    }

    fn meet(&mut self, id: MetricId) {
        // One that was created since is past the end.
        if let Some(met) = self.is_met.get_mut(id.index()) {
            *met = true;
        }
    }

    /// Those that are still missed and visible.
    fn visible(self, ingest: &Ingest) -> Vec<MetricId> {
        let names = ingest.registry().read();
        let missed = (0u32..).zip(self.is_met).filter(|(_, is_met)| !is_met).map(|(id, _)| MetricId(id));
        missed.filter(|&id| names.is_shown(id)).collect()
    }
}

/// A scan in progress.
struct Scan<'a> {
    ingest: &'a Ingest,
    missed: &'a mut Missed,
    unknown: Vec<SharedMetric>,
    send: mpsc::UnboundedSender<Vec<SharedMetric>>,
    rows: u64,
    logged: Instant,
    is_spread: bool,
}

impl Scan<'_> {
    fn take(&mut self, batch: Vec<SharedMetric>, progress: ScanProgress, now: Instant) {
        let registry = self.ingest.registry();
        let mut known = Vec::new();
        {
            let names = registry.read();
            for metric in batch {
                let name = metric.name.as_bytes();
                match names.find(registry.hash(name), name) {
                    Some(id) => {
                        self.missed.meet(id);
                        let is_kept_otherwise =
                            || is_kept_otherwise(&registry.policy(names.policy_id(id)), &metric.policy);
                        if !metric.earlier.is_empty() || is_kept_otherwise() {
                            known.push((id, metric));
                        }
                    }
                    None => self.unknown.push(metric),
                }
            }
        }
        // Another node may have given it another policy, or known others before.
        let new = known.into_iter().filter(|(id, metric)| self.ingest.tells(*id, metric));
        self.unknown.extend(new.map(|(_, metric)| metric));
        if self.unknown.len() >= ADOPT_BATCH {
            // The receiver is gone only when adopting failed; its error ends the scan.
            let _ = self.send.send(std::mem::take(&mut self.unknown));
        }
        self.rows = progress.rows;
        if !self.is_spread && now - self.logged >= PROGRESS_EVERY {
            self.logged = now;
            tracing::info!(
                rows = self.rows,
                percent = (100.0 * progress.part).round(),
                "reading the names in the tables"
            );
        }
    }

    /// Hands on the last unknown names; returns the rows of the tables.
    fn finish(self) -> u64 {
        let _ = self.send.send(self.unknown);
        self.rows
    }
}

#[cfg(test)]
mod tests {
    use carbon::{RuleFiles, Rules};
    use host::{Host, ManualClock, SeededRandom};
    use ingest::{IngestOptions, Sync};
    use metadata::Registry;
    use metric::Policy;
    use store::{MemoryDriver, Store};
    use store_cassandra::{Calendar, InMemoryTables, Layout};

    use super::*;
    use crate::one_node::{OneNode, Reached};

    /// Also a scan that something waits for takes seconds, and a name that was deleted meanwhile would be back until the next one.
    #[tokio::test]
    async fn a_name_that_is_deleted_while_all_names_are_read_is_not_taken_over() {
        let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::at(1_800_000_000)));
        let tables = InMemoryTables::default();
        let writer = || tables.writer((1, Layout::Rows), clock.clone(), Arc::new(Reached), 0);
        let node = Arc::new(OneNode(writer(), Calendar::new(clock.clone())));
        let local = Store::of(Arc::new(MemoryDriver::new()));
        let host = Host { clock: clock.clone(), ..Host::system() };
        let options = IngestOptions {
            host: host.clone(),
            journal_dir: dir.path().join("journal"),
            sync: Sync::Every(Duration::from_secs(60)),
            ..IngestOptions::default()
        };
        let rules = Rules::parse(RuleFiles::default()).unwrap().0;
        let ingest = Ingest::open(options, local.clone(), Arc::new(Registry::new()), rules).await.unwrap();
        let names = NameSync {
            clock: clock.clone(),
            tables: node.clone(),
            local: local.names,
            ingest: ingest.clone(),
            readiness: Arc::new(IndexReadiness::open(host.disk, dir.path(), node)),
            rescan: Arc::default(),
            random: Arc::new(SeededRandom::new(1)),
        };
        let metric = SharedMetric {
            name: "a.b".to_owned(),
            policy: Policy::default(),
            since: 0,
            earlier: Vec::new(),
            created_on: Some(1_799_000_000),
            updated_on: None,
        };
        // The tables do not have it any more.
        for is_first in [true, false] {
            let began = Began { at: 1_800_000_000 - APART, unregistered: HashSet::new(), is_first };
            let read = names.as_now(&writer(), vec![metric.clone()], &began).await.unwrap();
            assert_eq!(read.len(), usize::from(is_first), "the first one asks for no name twice");
        }
        ingest.close().await.unwrap();
    }
}
