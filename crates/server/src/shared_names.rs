//! Names that others created in the shared tables, or deleted from them, brought into this node's registry.
//!
//! 1. The tables are scanned. Names that are not known get numbers, and are kept by the policy the tables tell.
//! 2. Their numbers are remembered in the data folder, for a quick start.
//! 3. What this node knows and the tables no longer have, asked once more by name, is taken out of sight. A point that
//!    comes for it afterwards creates it again.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use ingest::Ingest;
use metadata::Registry;
use metric::MetricId;
use store::{Catalogue, Driver, MetricRecord, PolicyChange, SharedMetric, StoreError};
use store_cassandra::CassandraDriver;
use tokio::sync::mpsc;

use crate::{cluster::Link, unread_names::NamesRead};

/// Metrics adopted at once: their numbers are made durable together.
const ADOPTED: usize = 1 << 16;

/// Metrics taken in at once: points wait for as long.
const TAKEN_IN: usize = 1 << 12;

/// Missed metrics whose names are asked for at once.
const ASKED: usize = 1 << 12;

/// How often somebody who reads the log is told how far a scan is.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// How long to wait before a scan that failed is tried again.
const RETRY: Duration = Duration::from_secs(30);

/// What a scan changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reconciled {
    /// Names in the tables.
    pub rows: u64,
    /// Names that this node did not know.
    pub added: usize,
    /// Names that the tables no longer have.
    pub hidden: usize,
}

/// Gives numbers to metrics that this node does not know, remembers them, and takes them in. Those that are known by
/// now keep the number they have. Returns how many were not.
pub async fn adopt(metrics: Vec<SharedMetric>, local: &dyn Driver, ingest: &Ingest) -> Result<usize, StoreError> {
    let registry = ingest.registry();
    let record = |(id, metric): (MetricId, SharedMetric)| MetricRecord {
        id,
        name: metric.name,
        created_on: metric.created_on.unwrap_or(0),
        policies: vec![PolicyChange { since: 0, policy: metric.policy }],
    };
    // One that was hidden is there again under its old number.
    let reserved = registry.reserve(metrics, |metric| &metric.name);
    let records: Vec<MetricRecord> = reserved.into_iter().map(record).collect();
    if records.is_empty() {
        return Ok(0);
    }
    // Before they can be found: a point that comes for one is in the journal by its number alone.
    local.put_metrics(records.clone()).await?;
    local.sync().await?;
    Ok(records.chunks(TAKEN_IN).map(|some| ingest.adopt(some.to_vec())).sum())
}

/// Everything that takes part.
pub struct SharedNames {
    /// The tables.
    pub link: Arc<Link>,
    /// Numbers in the data folder.
    pub local: Arc<dyn Driver>,
    /// Who keeps points of what is found.
    pub ingest: Arc<Ingest>,
    /// What this node knows.
    pub registry: Arc<Registry>,
    /// Whether that is all.
    pub read: Arc<NamesRead>,
}

impl SharedNames {
    /// Reconciles, as soon as there is a cluster, and again and again.
    pub async fn follow(self, every: Duration) {
        loop {
            let wait = match self.reconcile().await {
                Ok(_) => every,
                Err(StoreError::Unavailable(_)) if !self.link.is_up() => Duration::from_secs(1),
                Err(error) => {
                    tracing::warn!(%error, "the names in the tables could not be read; it is tried again");
                    RETRY.min(every)
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// Reads the tables where that was never done and can be. Until it succeeds, now or by [`SharedNames::follow`], globs
    /// are an error.
    pub async fn read_once(&self) {
        if !self.read.are_read()
            && self.link.is_up()
            && let Err(error) = self.reconcile().await
        {
            tracing::error!(%error, "the names in the tables could not be read; it is tried again");
        }
    }

    /// Reads the tables.
    pub async fn reconcile(&self) -> Result<Reconciled, StoreError> {
        let driver = self.link.driver()?;
        let began = Instant::now();
        // What is not in the tables yet cannot be missed there, nor what is created from now on. In this order: what is
        // created in between is in neither.
        let end = self.registry.read().end().0;
        let unlisted = self.ingest.unlisted();
        // Nor what is out of sight now: a point, or this scan, may bring it back meanwhile.
        let mut is_there: Vec<bool> = {
            let names = self.registry.read();
            (0..end).map(MetricId).map(|number| !names.is_shown(number)).collect()
        };
        unlisted.iter().filter_map(|&number| is_there.get_mut(number.index()).map(|there| *there = true)).count();
        let mut done = Reconciled::default();
        let (unknown, mut to_adopt) = mpsc::unbounded_channel();
        let scanning = async {
            let mut some: Vec<SharedMetric> = Vec::new();
            let (mut rows, mut told) = (0, Instant::now());
            driver
                .scan(&mut |batch, progress| {
                    let names = self.registry.read();
                    for metric in batch {
                        let name = metric.name.as_bytes();
                        match names.find(self.registry.hash(name), name) {
                            Some(number) => _ = is_there.get_mut(number.index()).map(|there| *there = true),
                            None => some.push(metric),
                        }
                    }
                    drop(names);
                    if some.len() >= ADOPTED {
                        let _ = unknown.send(std::mem::take(&mut some));
                    }
                    rows = progress.rows;
                    if told.elapsed() >= TELL_EVERY {
                        told = Instant::now();
                        let percent = (100.0 * progress.part).round();
                        tracing::info!(rows, percent, "reading the names in the tables");
                    }
                })
                .await?;
            let _ = unknown.send(some);
            drop(unknown);
            Ok(rows)
        };
        // Beside the scan, so that millions of unknown names need not be held.
        let adopting = async {
            let mut added = 0;
            while let Some(some) = to_adopt.recv().await {
                added += adopt(some, &*self.local, &self.ingest).await?;
            }
            Ok::<_, StoreError>(added)
        };
        (done.rows, done.added) = tokio::try_join!(scanning, adopting)?;
        let gone: Vec<MetricId> = {
            let names = self.registry.read();
            let missed = (0..end).map(MetricId).filter(|&number| !is_there[number.index()]);
            missed.filter(|&number| names.is_shown(number)).collect()
        };
        let gone = self.deleted(driver, gone).await?;
        if !gone.is_empty() {
            let (registry, gone) = (self.registry.clone(), gone.clone());
            let _ = tokio::task::spawn_blocking(move || registry.hide(&gone)).await;
        }
        done.hidden = gone.len();
        self.read.say();
        if done.added + done.hidden > 0 {
            let seconds = began.elapsed().as_secs_f64();
            tracing::info!(
                rows = done.rows,
                added = done.added,
                hidden = done.hidden,
                seconds,
                "the names are those of the tables"
            );
        }
        Ok(done)
    }

    /// Those of the metrics that a scan missed which nobody has any more.
    async fn deleted(&self, driver: &CassandraDriver, missed: Vec<MetricId>) -> Result<Vec<MetricId>, StoreError> {
        let mut gone = Vec::new();
        for some in missed.chunks(ASKED) {
            let mut numbers: HashMap<String, MetricId> = {
                let names = self.registry.read();
                some.iter().map(|&number| (names.name(number).to_owned(), number)).collect()
            };
            let deleted = driver.deleted(numbers.keys().cloned().collect()).await?;
            gone.extend(deleted.iter().filter_map(|name| numbers.remove(name)));
        }
        Ok(gone)
    }
}
