//! `plumbago serve`: everything wired together, started, run and stopped.
//!
//! 1. The node is opened: data folder, store, names, journal.
//! 2. Listeners are bound; their addresses are printed.
//! 3. The program runs until SIGTERM, SIGINT or SIGQUIT.
//! 4. Listeners close, all points in memory are written to the store, and the names are saved.

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use api::{Api, ApiOptions, BrowserRules};
use host::{HeldFolders, Host};
use ingest::receivers::{Door, ReceiveBudget};
use store::DamageLog;
use tls::Identity;
use tokio::task::JoinSet;

use crate::{
    addresses,
    admin::Admin,
    allocator,
    backups::{Backups, Scrub},
    carbon_doors,
    carbon_files::CarbonFiles,
    cardinality::LargestBranches,
    certificates,
    cli::ServeOptions,
    clock, config,
    descriptors::Descriptors,
    drain::{Drain, Phase},
    exposure,
    health::{Health, Watched},
    intake::Intake,
    limits,
    listen::Listeners,
    log,
    metrics::{Metrics, Scraped},
    node::{Node, Opening},
    peers::{self, PeerSecrets},
    process,
    quotas::QuotaWatcher,
    readiness::Readiness,
    request_log::RequestLog,
    rules_watcher::RulesWatcher,
    self_metrics::SelfMetrics,
    settings::{Fsync, IdleAfter, Settings},
    stop::{NOT_KEPT, Running, Signals},
    tokens::{self, Tokens},
    trash::Emptying,
    upkeep::{self, Idle, Newest},
};

/// Runs the server until a signal stops it.
pub fn serve(options: &ServeOptions, host: &Host) -> anyhow::Result<()> {
    let settings = config::load(&options.config, options.overrides(), &*host.disk)?;
    let _last_lines = log::start(&settings.log)?;
    config::warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
    limits::check(&settings).map_err(anyhow::Error::msg)?;
    addresses::check(&settings).map_err(anyhow::Error::msg)?;
    exposure::check(&settings).map_err(anyhow::Error::msg)?;
    let files = CarbonFiles::read(&*host.disk, settings.rules.conf_dir.as_deref())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    // The data folder may be moved away while it is used.
    let host = Host { disk: Arc::new(HeldFolders::new(host.disk.clone())), ..host.clone() };
    let served = runtime.block_on(run(settings, files, &host));
    // A query or a replay that is still running has no client any more.
    runtime.shutdown_timeout(Duration::from_secs(1));
    served
}

async fn run(settings: Settings, files: CarbonFiles, host: &Host) -> anyhow::Result<()> {
    // Before anything slow, so that a signal during the start is a clean stop.
    let mut signals = Signals::new()?;
    // Before the store opens its files.
    let descriptors = Descriptors::of_this_process(settings.data.reserved_files, settings.http.max_connections);
    let (rules, warnings) = files.rules()?;
    warnings.iter().for_each(|warning| tracing::warn!(warning, "carbon's files"));
    let tokens = tokens::open(&settings, &host.disk)?;
    let certificate = certificates::of_http(&settings, &host.disk, &host.clock)?;
    let doors = carbon_doors::open(&settings, &host.disk, &host.clock)?;
    let secrets = settings.peers.secret_file.as_deref().map(|path| PeerSecrets::read(path, &*host.disk)).transpose()?;
    let metrics = Arc::new(Metrics::new(host.disk.clone())?);
    if let Some(log) = RequestLog::open(&settings.log, host)? {
        metrics.log_requests(log);
    }
    let opening = Opening { settings: &settings, rules, metrics: &metrics.registry, host, damage: DamageLog::new() };
    let Some(node) = signals.interrupt(Node::open(opening)).await else { return stop_early() };
    let mut node = node?;

    let rules = RulesWatcher::new(host.disk.clone(), settings.rules.conf_dir.clone(), files, node.connection.is_some());
    let health = health(&settings, &node, host);
    // Before the names of a cluster are read, which may take long.
    tokio::spawn(node.ingest.supervisor().run("health watch", {
        let health = health.clone();
        move || health.clone().watch()
    }));
    metrics.scrape(Scraped {
        health: health.clone(),
        ingest: node.ingest.clone(),
        points: node.store.points.clone(),
        embedded: node.embedded.clone(),
        damage: node.damage.clone(),
        rules_rejected: rules.is_rejected.clone(),
        connection: node.connection.clone(),
        peers: node.peers.clone(),
        limit_metrics: settings.limits.metrics as u64,
        started: host.clock.now(),
        branches: LargestBranches::new(node.ingest.clone(), host.clock.clone()),
    });
    let drain = Arc::new(Drain {
        intake: Intake::new(),
        ingest: node.ingest.clone(),
        peers: node.peers.clone(),
        embedded: node.embedded.clone(),
        disk: host.disk.clone(),
        clock: host.clock.clone(),
        data: settings.data.dir.clone(),
        phase: Phase::Off.into(),
    });
    let readiness = Arc::new(Readiness::new(
        node.ingest.clone(),
        node.embedded.clone(),
        node.connection.clone(),
        node.index.clone(),
        health,
        drain.clone(),
    ));
    let budget = ReceiveBudget::new(settings.receive.memory.0, host.clock.clone());
    metrics.count_budget(budget.clone());
    // Before the names are read, which may take minutes: flushes wait until this node knows what others deleted while it was down.
    let until_stored = until_stored(&mut node);
    // By value: what a signal interrupts must not hold the turn that a stop waits for.
    let before_points = std::mem::replace(&mut node.before_points, Box::pin(std::future::ready(())));
    if signals.interrupt(before_points).await.is_none() {
        return stop_with(until_stored, &node, &settings, &mut signals).await;
    }
    let listening = Listening {
        settings: &settings,
        node: &node,
        budget: &budget,
        descriptors,
        tokens: &tokens,
        certificate,
        doors,
        secrets,
        drain: &drain,
        host,
    };
    let mut listeners = listen(listening, &metrics, &readiness).await?;
    let before_ready = std::mem::replace(&mut node.before_ready, Box::pin(std::future::ready(())));
    if signals.interrupt(before_ready).await.is_none() {
        return stop_with(until_stored, &node, &settings, &mut signals).await;
    }
    readiness.set_started(true);
    listeners.print(&settings);
    let background = background(&settings, &mut node, rules, &metrics, &drain.intake, host);

    let failure = tokio::select! {
        () = signals.next() => None,
        why = listeners.failed() => Some(why),
    };
    tracing::info!("stopping: closing listeners and writing all points to the store; a second signal stops at once");
    readiness.set_started(false);
    let (ingest, connection) = (&*node.ingest, node.connection.as_deref());
    let (names, embedded) = (&*node.store.names, &*node.embedded);
    let (data, disk) = (&*settings.data.dir, &host.disk);
    let running = Running { listeners, background, until_stored, ingest, connection, names, embedded, data, disk };
    running.stop(settings.stop.timeout, &mut signals).await?;
    failure.map_or(Ok(()), |why| Err(anyhow::anyhow!(why)))
}

/// A signal came before the program was ready.
fn stop_early() -> anyhow::Result<()> {
    tracing::info!("stopping during the start; no point is lost: the journal is replayed by the next start");
    Ok(())
}

/// A signal came before the program was ready, and what other nodes deleted is being followed: points that came after these deletions are
/// accepted again before the process ends. Within the time of a stop, or until another signal.
async fn stop_with(
    mut until_stored: JoinSet<()>,
    node: &Node,
    settings: &Settings,
    signals: &mut Signals,
) -> anyhow::Result<()> {
    until_stored.shutdown().await;
    let timeout = settings.stop.timeout;
    let owed = async {
        match tokio::time::timeout(timeout, node.ingest.write_owed_records(&*node.embedded)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "{NOT_KEPT}"),
            Err(_) => tracing::warn!(?timeout, "{NOT_KEPT}"),
        }
    };
    let deletions = async {
        if tokio::time::timeout(timeout, node.ingest.followed_deletions_end()).await.is_err() {
            tracing::warn!(
                "stopped while metrics that another node deleted were deleted here; points that came for them since may be lost"
            );
        }
    };
    if signals.interrupt(async { tokio::join!(owed, deletions) }).await.is_none() {
        tracing::warn!("stopped at once, while what other nodes changed or deleted was being kept");
    }
    stop_early()
}

fn health(settings: &Settings, node: &Node, host: &Host) -> Arc<Health> {
    Arc::new(Health::new(Watched {
        ingest: node.ingest.clone(),
        calls: node.calls.clone(),
        is_embedded: node.connection.is_none(),
        clock: host.clock.clone(),
        disk: host.disk.clone(),
        data: settings.data.dir.clone(),
        reserve: settings.data.reserve,
        sync_every: match settings.ingest.sync {
            Fsync::Every(every) => every,
            Fsync::Always => Duration::ZERO,
        },
        flush_after: settings.ingest.flush_after,
    }))
}

/// What the listeners serve, and within which bounds.
struct Listening<'a> {
    settings: &'a Settings,
    node: &'a Node,
    budget: &'a ReceiveBudget,
    descriptors: Descriptors,
    tokens: &'a Tokens,
    /// Of HTTP.
    certificate: Option<Arc<Identity>>,
    /// Of each `[[listener]]`.
    doors: Vec<Arc<Door>>,
    /// Of nodes over the same tables.
    secrets: Option<PeerSecrets>,
    drain: &'a Arc<Drain>,
    host: &'a Host,
}

async fn listen(
    listening: Listening<'_>,
    metrics: &Arc<Metrics>,
    readiness: &Arc<Readiness>,
) -> anyhow::Result<Listeners> {
    let Listening { settings, node, budget, descriptors, tokens, certificate, doors, secrets, drain, host } = listening;
    let mut listeners = Listeners::new(descriptors, settings, drain.intake.clone());
    // Other nodes know where to ask before there is a point to ask for.
    let http = listeners.bind_http(settings).await?;
    let mut peer_door = None;
    if let Some(peers) = &node.peers {
        peer_door = Some(Arc::new(peers::begin(settings, secrets, peers, &node.ingest, host.clock.clone())));
        let machine = process::machine_name(&*host.disk);
        peers.introduce(peers::address(&settings.tables.peer_address, listeners.http(), &machine)).await;
    }
    listeners.receive(settings, &node.ingest, budget, metrics).await?;
    listeners.receive_behind(settings, &doors, &node.ingest, budget, metrics).await?;
    listeners.list_points_first(http.len());
    let identities = certificate.iter().chain(doors.iter().filter_map(|door| door.identity.as_ref()));
    follow_certificates(identities.cloned().collect(), settings, node, metrics);
    metrics.count_doors(doors);
    if http.is_empty() {
        return Ok(listeners);
    }
    let admin = Admin {
        ingest: node.ingest.clone(),
        backups: Arc::new(Backups {
            node: backup::Node {
                ingest: node.ingest.clone(),
                embedded: node.embedded.clone(),
                disk: host.disk.clone(),
                data: settings.data.dir.clone(),
                clock: host.clock.clone(),
                bytes_per_second: settings.data.backup_bytes_per_second.map(|rate| rate.0),
            },
            turn: tokio::sync::Mutex::default(),
            damage: node.damage.clone(),
            counters: metrics.backups.clone(),
        }),
        metrics: metrics.clone(),
        readiness: readiness.clone(),
        health: readiness.health().clone(),
        points: node.store.points.clone(),
        events: node.events.clone(),
        embedded: node.embedded.clone(),
        damage: node.damage.clone(),
        budget: budget.clone(),
        peers: node.peers.clone(),
        peer_door,
        body_limit: settings.receive.max_body.as_usize(),
        gates: metrics.token_gates.clone(),
        drain: drain.clone(),
    };
    let api = Api::new(ApiOptions {
        registry: node.ingest.registry().clone(),
        finder: node.finder.clone(),
        series: node.ingest.series(),
        events: node.events.clone(),
        limits: api::Limits { connections: descriptors.http as usize, ..query_limits(settings) },
        doorkeeper: tokens.doorkeeper.clone(),
        browsers: BrowserRules {
            hosts: settings.http.hosts.0.clone(),
            origins: settings.http.cors_origins.clone().map_or_else(Vec::new, |origins| origins.0),
            jsonp: settings.http.jsonp,
        },
        clock: host.clock.clone(),
        time_zone: settings.query.time_zone.zone(),
        about: listeners.addresses(),
        extension: Arc::new(admin),
        observer: metrics.clone(),
    });
    metrics.scrape_queries(&api);
    let (queries, ingest, disk) = (api.clone(), node.ingest.clone(), host.disk.clone());
    let give_back = move || allocator::give_back(queries.clone(), ingest.clone(), disk.clone());
    tokio::spawn(node.ingest.supervisor().run("return of memory", give_back));
    if let Some(watcher) = tokens.watcher.clone() {
        let every = settings.rules.reload_every;
        tokio::spawn(node.ingest.supervisor().run("token watch", move || watcher.clone().follow(every)));
    }
    http.into_iter().for_each(|bound| listeners.serve(bound, certificate.as_ref(), api.clone()));
    Ok(listeners)
}

fn follow_certificates(identities: Vec<Arc<Identity>>, settings: &Settings, node: &Node, metrics: &Metrics) {
    if identities.is_empty() {
        return;
    }
    metrics.count_certificates(identities.clone());
    let every = settings.rules.reload_every;
    let follow = move || certificates::follow(identities.clone(), every);
    tokio::spawn(node.ingest.supervisor().run("certificate watch", follow));
}

/// The tasks that a stop needs until its points are written.
fn until_stored(node: &mut Node) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let supervisor = node.ingest.supervisor();
    for cluster::Task { name, make, .. } in node.background.extract_if(.., |task| task.lasts_until_stored) {
        tasks.spawn(supervisor.run(name, make));
    }
    tasks
}

fn background(
    settings: &Settings,
    node: &mut Node,
    rules: RulesWatcher,
    metrics: &Arc<Metrics>,
    intake: &Arc<Intake>,
    host: &Host,
) -> JoinSet<()> {
    let mut background = JoinSet::new();
    let supervisor = node.ingest.supervisor();
    for cluster::Task { name, make, .. } in node.background.drain(..) {
        background.spawn(supervisor.run(name, make));
    }
    let (rules, ingest, every) = (Arc::new(rules), node.ingest.clone(), settings.rules.reload_every);
    background.spawn(supervisor.run("rules watch", move || rules.clone().follow(ingest.clone(), every)));
    if let Some(path) = settings.limits.quotas.clone() {
        let quotas = Arc::new(QuotaWatcher::new(host.disk.clone(), path, node.ingest.clone()));
        background.spawn(supervisor.run("quota watch", move || quotas.clone().follow(every)));
    }
    let registry = node.ingest.registry().clone();
    background.spawn(supervisor.run("index merges", move || upkeep::compact(registry.clone())));
    let time = node.ingest.time().clone();
    let watched = time.clone();
    background.spawn(supervisor.run("clock watch", move || clock::watch(watched.clone())));
    // Cassandra expires rows by itself.
    let (embedded, has_points) = (node.embedded.clone(), node.has_points);
    let newest: Newest = Arc::new(move || embedded.newest_point().filter(|_| has_points));
    let emptying = Emptying {
        trash: node.embedded.trash().clone(),
        time: time.clone(),
        host: host.clone(),
        data: settings.data.dir.clone(),
        keep: settings.data.trash_keep,
    };
    let scrub = Scrub {
        embedded: node.embedded.clone(),
        registry: node.ingest.registry().clone(),
        disk: host.disk.clone(),
        clock: host.clock.clone(),
        damage: node.damage.clone(),
        data: settings.data.dir.clone(),
        bytes_per_second: settings.data.scrub_bytes_per_second.0,
        counters: metrics.scrub.clone(),
    };
    background.spawn(supervisor.run("scrub", move || scrub.clone().run()));
    // The names in Cassandra's tables belong to all who write them.
    if let Some(idle) = idle(settings, node, &newest).filter(|_| node.has_points) {
        background.spawn(supervisor.run("expiry of metrics", move || idle.clone().run()));
    }
    background.spawn(supervisor.run("trash", move || emptying.clone().run()));
    let every = settings.data.expire_every;
    if let Some(keep) = settings.limits.events_keep {
        let (events, time, newest) = (node.events.clone(), time.clone(), newest.clone());
        let expire = move || upkeep::expire_events(events.clone(), time.clone(), newest.clone(), keep, every);
        background.spawn(supervisor.run("expiry of events", expire));
    }
    let points = node.store.points.clone();
    background
        .spawn(supervisor.run("expiry", move || upkeep::expire(points.clone(), time.clone(), newest.clone(), every)));
    if let Some(every) = settings.own.every {
        let name = match settings.own.host.as_str() {
            "auto" => process::host_name(&*host.disk),
            name => name.to_owned(),
        };
        let agent = format!("{}.agents.{name}-a", settings.own.prefix);
        let (ingest, clock) = (node.ingest.clone(), host.clock.clone());
        let own = Arc::new(SelfMetrics::new(ingest, metrics.clone(), clock, agent, intake.clone()));
        background.spawn(supervisor.run("own metrics", move || own.clone().store(every)));
    }
    background
}

/// The expiry of metrics; `None` where the settings turn it off.
fn idle(settings: &Settings, node: &Node, newest: &Newest) -> Option<Idle> {
    let shortest = match settings.limits.idle_after {
        IdleAfter::Retention => None,
        IdleAfter::Time(time) => Some(time),
        IdleAfter::Never => return None,
    };
    let (ingest, newest, damage) = (node.ingest.clone(), newest.clone(), node.damage.clone());
    Some(Idle { ingest, newest, damage, shortest, every: settings.data.expire_every })
}

fn query_limits(settings: &Settings) -> api::Limits {
    let (http, query) = (&settings.http, &settings.query);
    api::Limits {
        connections: http.max_connections,
        header_bytes: http.max_header_bytes.as_usize(),
        body_bytes: http.max_body_bytes.as_usize(),
        connections_per_address: http.connections_per_address,
        idle: http.idle_timeout,
        head_time: http.head_timeout,
        body_time: http.body_timeout,
        min_rate: http.min_rate.map_or(0, |rate| rate.0),
        answer_memory: http.answer_memory.as_usize(),
        concurrent_queries: http.max_concurrent_queries,
        queued_queries: http.max_queued_queries,
        query: query.timeout,
        memory: query.memory.as_usize(),
        memory_wait: query.memory_wait,
        events_per_minute: settings.limits.events_per_minute,
        events_keep: settings.limits.events_keep,
        target_bytes: query.max_target_bytes.as_usize(),
        series: query.max_series,
        points: query.max_points,
        response_bytes: query.max_response_bytes.as_usize(),
        find_results: query.max_find_results,
    }
}
