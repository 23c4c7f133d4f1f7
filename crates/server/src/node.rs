//! A node, opened: its store, names and points. Alone it keeps points in the embedded store of its data folder; clustered,
//! in Cassandra's tables.

use std::sync::Arc;

use anyhow::Context;
use cluster::{Cluster, Connection, IndexReadiness, Peers};
use futures::{FutureExt, future::BoxFuture};
use host::{Host, JudgingTime, SteadyClock};
use ingest::{Ingest, IngestOptions, NameLimits};
use metadata::{Finder, Registry};
use store::{DamageLog, Events, PointStore, Store};
use store_embedded::EmbeddedDriver;
use tokio::runtime::Handle;

use crate::{
    carbon_doors,
    carbon_files::over_cassandra,
    cassandra_options,
    data_folder::{READ_PATIENCE, open_registry, open_store, open_time},
    quotas,
    settings::{Fsync, Settings},
    timed::{RunningCalls, timed},
    trash,
};

/// What serving, upkeep and a stop need.
pub struct Node {
    pub store: Store,
    pub events: Arc<dyn Events>,
    pub ingest: Arc<Ingest>,
    /// Calls of the store that have not ended.
    pub calls: RunningCalls,
    /// The damage found in the data folder.
    pub damage: DamageLog,
    /// What answers globs.
    pub finder: Arc<dyn Finder>,
    /// The connection to Cassandra, which readiness and metrics report and a stop releases.
    pub connection: Option<Arc<Connection>>,
    /// Other nodes over the same tables.
    pub peers: Option<Arc<Peers>>,
    /// Whether the path index has the names of the shared tables, where it answers globs over them.
    pub index: Option<Arc<IndexReadiness>>,
    /// The store in the data folder.
    pub embedded: Arc<EmbeddedDriver>,
    /// Whether points are in it, and not in Cassandra.
    pub has_points: bool,
    /// To await before points are accepted.
    pub before_points: BoxFuture<'static, ()>,
    /// What must end before the node is ready.
    pub before_ready: BoxFuture<'static, ()>,
    /// What runs from then on until the stop.
    pub background: Vec<cluster::Task>,
}

/// What opening a node needs.
pub struct Opening<'a> {
    pub settings: &'a Settings,
    pub rules: carbon::Rules,
    /// Where the store's metrics are registered.
    pub metrics: &'a prometheus::Registry,
    pub host: &'a Host,
    /// Where damage of the data folder is reported.
    pub damage: DamageLog,
}

impl Node {
    /// Opens the data folder, and connects to Cassandra where the settings name a cluster.
    pub async fn open(mut opening: Opening<'_>) -> anyhow::Result<Node> {
        let (settings, host, damage) = (opening.settings.clone(), opening.host.clone(), opening.damage.clone());
        tracing::info!(data = %settings.data.dir.display(), "opening the data folder");
        // On a thread of its own, so that a signal during the start is a clean stop.
        let opened = tokio::task::spawn_blocking(move || {
            let embedded = open_store(&settings, &host, &damage)?;
            let time = open_time(&settings, &host, &damage)?;
            trash::make_room(embedded.trash(), &time, &host, &settings.data.dir);
            anyhow::Ok((embedded, time))
        });
        let (embedded, time) = opened.await??;
        // Times of writing and of expiry reach other nodes: a jump must not.
        let steady = Host { clock: Arc::new(SteadyClock(time.clone())), ..opening.host.clone() };
        match cassandra_options::cluster_options(opening.settings, opening.rules.policies(), &steady, &opening.damage)?
        {
            Some(options) => {
                opening.rules = over_cassandra(opening.rules);
                Node::clustered(opening, time, embedded, options).await
            }
            None => Node::alone(opening, time, embedded).await,
        }
    }

    async fn alone(
        opening: Opening<'_>,
        time: Arc<JudgingTime>,
        embedded: Arc<EmbeddedDriver>,
    ) -> anyhow::Result<Node> {
        let damage = opening.damage.clone();
        let (store, calls, ingest) = opening.ingest(Store::of(embedded.clone()), time).await?;
        Ok(Node {
            store,
            events: embedded.clone(),
            embedded,
            has_points: true,
            finder: ingest.registry().clone(),
            ingest,
            damage,
            calls,
            connection: None,
            peers: None,
            index: None,
            before_points: Box::pin(std::future::ready(())),
            before_ready: Box::pin(std::future::ready(())),
            background: Vec::new(),
        })
    }

    async fn clustered(
        opening: Opening<'_>,
        time: Arc<JudgingTime>,
        embedded: Arc<EmbeddedDriver>,
        options: cluster::Options,
    ) -> anyhow::Result<Node> {
        if embedded.usage().tables > 0 {
            tracing::warn!(data = %options.data.display(),
                "the data folder has points from a time without Cassandra; queries do not read them");
        }
        if opening.rules.index_rules().iter().any(|rule| rule.max_stale.is_some()) {
            tracing::warn!(
                "max-stale in index-rules.conf hides nothing: over Cassandra others write points that this node does not see"
            );
        }
        let (damage, has_schemas) = (opening.damage.clone(), opening.rules.has_schemas());
        let cluster = Cluster::open(options, Store::of(embedded.clone())).await?;
        let (store, calls, ingest) = opening.ingest(cluster.store(), time).await?;
        let cluster = cluster.attach(ingest.clone(), Handle::current());
        // Without a schema a metric keeps the policy in the tables: it must be known before the first point.
        let before_points = if has_schemas { Box::pin(std::future::ready(())) } else { cluster.first_names().boxed() };
        Ok(Node {
            store,
            events: embedded.clone(),
            embedded,
            has_points: false,
            ingest,
            damage,
            calls,
            finder: cluster.finder().clone(),
            connection: Some(cluster.connection().clone()),
            peers: Some(cluster.peers().clone()),
            index: cluster.index_readiness(),
            before_points,
            before_ready: Box::pin(cluster.first_names()),
            background: cluster.tasks(),
        })
    }
}

impl Opening<'_> {
    /// Reads the names and replays the journal, over this store.
    async fn ingest(self, store: Store, time: Arc<JudgingTime>) -> anyhow::Result<(Store, RunningCalls, Arc<Ingest>)> {
        let Opening { settings, rules, metrics, host, damage } = self;
        let began = host.clock.instant();
        let data = &settings.data.dir;
        let (store, calls) = timed(store, metrics, &host.clock)?;
        let registry: Arc<Registry> = Arc::new(open_registry(data, &*store.names, host, &damage).await?);
        // A replay blocks its thread, which must not be one that the signals need, and leaves nothing half done when the stop
        // drops this future.
        let options = IngestOptions { time: Some(time), ..ingest_options(settings, host, damage)? };
        let replay = Ingest::open(options, store.clone(), registry.clone(), rules);
        let replay = tokio::task::spawn_blocking(move || Handle::current().block_on(replay));
        let ingest = replay.await.context("the replay of the journal panicked")??;
        let restored = ingest.restored();
        tracing::info!(
            metrics = registry.len(),
            replayed_points = restored.points,
            damaged_bytes = restored.damaged_bytes,
            seconds = (host.clock.instant() - began).as_secs_f64(),
            data = %data.display(),
            "opened the data folder"
        );
        Ok((store, calls, ingest))
    }
}

fn ingest_options(settings: &Settings, host: &Host, damage: DamageLog) -> anyhow::Result<IngestOptions> {
    Ok(IngestOptions {
        host: host.clone(),
        time: None,
        journal_dir: settings.data.dir.join("journal"),
        sync: match settings.ingest.sync {
            Fsync::Every(every) => ingest::Sync::Every(every),
            Fsync::Always => ingest::Sync::Always,
        },
        journal_limit_bytes: settings.ingest.journal_limit.0,
        memory_limit_bytes: settings.ingest.memory_limit.0,
        flush_after: settings.ingest.flush_after,
        read_patience: READ_PATIENCE,
        name_limits: NameLimits {
            metrics: settings.limits.metrics as u64,
            creations_per_minute: settings.limits.creations_per_minute as u64,
            names_bytes: settings.ingest.names_limit.0,
            prefixes: {
                let limits = settings.limits.prefixes.clone().map_or_else(Vec::new, |limits| limits.0);
                limits.into_iter().chain(carbon_doors::prefix_limits(settings)).collect()
            },
            quotas: quotas::read_and_warn(settings, &*host.disk)?,
        },
        damage,
        data_dir: Some(settings.data.dir.clone()),
    })
}
