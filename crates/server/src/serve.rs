//! `plumbago serve`: everything wired together, started, kept going and stopped.
//!
//! 1. The data folder is locked and opened, the names are read, the journal is replayed.
//! 2. Listeners are bound, and where they listen is printed.
//! 3. It runs until SIGTERM or SIGINT.
//! 4. Listeners close and what the kernel holds is read; everything held is written out; the names are saved.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::Context;
use api::{Api, ApiOptions};
use ingest::{
    FlushError, Ingest, IngestOptions,
    receivers::{Connections, FrameFormat, ReceiverLimits, serve_datagrams, serve_frames, serve_lines},
};
use metadata::{Finder, Registry};
use store::{Driver, Events};
use store_embedded::{EmbeddedDriver, EmbeddedOptions};
use tokio::{
    net::{TcpListener, UdpSocket},
    runtime::Handle,
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
    task::JoinSet,
};

use crate::{
    admin::Admin,
    cli::ServeOptions,
    cluster::{self, Cluster, Link},
    load_settings, log,
    metrics::Metrics,
    own, process,
    rules::{Texts, Watched},
    say,
    settings::{Address, Fsync, Globs, Settings},
    shared_names::SharedNames,
    table_globs::TableGlobs,
    timed::TimedDriver,
    unread_names::{NamesRead, UnreadNames},
};

/// How often new names are merged into the path index when there are enough of them.
const COMPACT_EVERY: Duration = Duration::from_millis(250);

/// How long a stop waits for a store that takes nothing. What it would take is in the journal.
const STOP_PATIENCE: Duration = Duration::from_secs(3);

/// Unix seconds.
pub fn now() -> metric::Timestamp {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as metric::Timestamp)
}

/// Runs the server until it is told to stop.
pub fn serve(options: &ServeOptions) -> anyhow::Result<()> {
    let settings = load_settings(&options.config, options.overrides())?;
    log::start(&settings.log)?;
    let texts = Texts::read(settings.rules.conf_dir.as_deref())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    let served = runtime.block_on(run(settings, texts));
    // What is still at work is for nobody any more.
    runtime.shutdown_timeout(Duration::from_secs(1));
    served
}

async fn run(settings: Settings, texts: Texts) -> anyhow::Result<()> {
    let began = Instant::now();
    // Taken before anything is slow, so that a stop during the start is a stop.
    let mut signals = Signals::new()?;
    let (rules, warnings) = texts.rules()?;
    warnings.iter().for_each(|warning| tracing::warn!(warning, "carbon's files"));

    let metrics = Arc::new(Metrics::new()?);
    let data = settings.data.dir.clone();
    std::fs::create_dir_all(&data).with_context(|| {
        format!("the data folder {} cannot be made; name one that can be written with --data", data.display())
    })?;
    let (embedded, events) = open_store(&settings)?;
    let cluster = match cluster::options(&settings)? {
        Some(options) => {
            if embedded.usage().tables > 0 {
                tracing::warn!(data = %data.display(),
                    "the data folder holds points of a time without Cassandra; they are kept there, and are not read with --cassandra");
            }
            let connecting = Cluster::begin(options, &settings, &data, rules.policies(), embedded.clone());
            tokio::select! {
                cluster = connecting => Some(cluster?),
                _ = signals.next() => return Ok(()),
            }
        }
        None => None,
    };
    let store: Arc<dyn Driver> = match &cluster {
        Some(cluster) => cluster.driver.clone(),
        None => embedded.clone(),
    };
    let driver: Arc<dyn Driver> = Arc::new(TimedDriver::new(store, &metrics.registry)?);
    let registry = Arc::new(open_registry(&data, &*driver).await?);
    let ingest_options = IngestOptions {
        journal_dir: data.join("journal"),
        sync: match settings.ingest.sync {
            Fsync::Every(every) => ingest::Sync::Every(every),
            Fsync::Always => ingest::Sync::Always,
        },
        journal_limit_bytes: settings.ingest.journal_limit.0,
        memory_limit_bytes: settings.ingest.memory_limit.0,
        flush_after: settings.ingest.flush_after,
    };
    let has_schemas = rules.has_schemas();
    // A replay keeps its thread for as long as it takes, and changes nothing that a stop could leave half done.
    let opening = tokio::spawn(Ingest::open(ingest_options, driver.clone(), registry.clone(), rules));
    let ingest = tokio::select! {
        opened = opening => opened.context("the journal could not be replayed")??,
        _ = signals.next() => return Ok(()),
    };
    let restored = ingest.restored();
    tracing::info!(
        metrics = registry.len(), replayed_points = restored.points, damaged_bytes = restored.damaged_bytes,
        seconds = began.elapsed().as_secs_f64(), data = %data.display(), "the data folder is open"
    );

    let names_read = Arc::new(NamesRead::of(&data));
    let shared_names = cluster.as_ref().map(|cluster| SharedNames {
        link: cluster.link.clone(),
        local: embedded.clone(),
        ingest: ingest.clone(),
        registry: registry.clone(),
        read: names_read.clone(),
    });
    // Without a schema metrics keep the policy the tables tell: it must be known before a point comes for one.
    if !has_schemas && let Some(names) = &shared_names {
        tokio::select! {
            () = names.read_once() => {}
            _ = signals.next() => return Ok(()),
        }
    }
    let watched = Watched::new(settings.rules.conf_dir.clone(), texts);
    let is_ready = Arc::new(AtomicBool::new(false));
    let (stop, stopping) = watch::channel(false);
    let mut listeners = Listeners::default();
    let limits = ReceiverLimits {
        connections: settings.receive.max_connections,
        idle: settings.receive.idle_timeout,
        frame_bytes: settings.receive.max_frame.as_usize(),
    };
    let receivers = Receivers { ingest: ingest.clone(), limits, stopping: stopping.clone(), metrics: metrics.clone() };
    receivers.listen(&settings, &mut listeners).await?;
    metrics.watch(
        ingest.clone(),
        registry.clone(),
        driver.clone(),
        watched.refused.clone(),
        cluster.as_ref().map(|cluster| cluster.link.clone()),
    );

    if let Some(address) = &settings.listen.http {
        let listener = bind(address, "listen.http", "--http").await?;
        listeners.said.push(("http", listener.local_addr()?.to_string()));
        let admin = Admin {
            link: cluster.as_ref().map(|cluster| cluster.link.clone()),
            names: cluster.is_some().then(|| names_read.clone()).filter(|_| settings.cassandra.globs == Globs::Local),
            ingest: ingest.clone(),
            metrics: metrics.clone(),
            is_ready: is_ready.clone(),
            body_limit: settings.receive.max_body.as_usize(),
        };
        let finder: Arc<dyn Finder> = match &cluster {
            Some(cluster) if settings.cassandra.globs == Globs::Cassandra => Arc::new(TableGlobs {
                link: cluster.link.clone(),
                local: embedded.clone(),
                ingest: ingest.clone(),
                registry: registry.clone(),
                names: names_read.clone(),
                rows: settings.cassandra.glob_rows,
                runtime: Handle::current(),
            }),
            Some(cluster) => Arc::new(UnreadNames {
                names: names_read.clone(),
                link: cluster.link.clone(),
                registry: registry.clone(),
            }),
            None => registry.clone(),
        };
        let api = Api::new(ApiOptions {
            registry: registry.clone(),
            finder,
            series: ingest.series(),
            events,
            limits: query_limits(&settings),
            clock: now,
            time_zone: settings.query.time_zone.zone(),
            about: about(&listeners),
            extension: Arc::new(admin),
            observer: metrics.clone(),
        });
        metrics.watch_queries(&api);
        let mut stopped = stopping.clone();
        listeners.tasks.spawn(api.serve(listener, async move {
            let _ = stopped.wait_for(|&stop| stop).await;
        }));
    }
    let mut background = JoinSet::new();
    let mut link = None;
    if let Some((cluster, names)) = cluster.zip(shared_names) {
        let every = settings.cassandra.reconcile_every;
        background.spawn(cluster.driver.clone().say_touches());
        tokio::select! {
            () = names.read_once() => {}
            _ = signals.next() => return Ok(()),
        }
        background.spawn(names.follow(every));
        link = Some(cluster.link.clone());
        let (watched, pipeline) = (cluster.link.clone(), ingest.clone());
        background.spawn(async move { watched.watch(&pipeline).await });
        background.spawn(cluster.go_on());
    }
    is_ready.store(true, Relaxed);
    listeners.print(&settings);

    background.spawn(watched.follow(ingest.clone(), settings.rules.reload_every));
    background.spawn(compact(registry.clone()));
    background.spawn(expire(driver.clone(), settings.data.expire_every));
    if let Some(every) = settings.own.every {
        let host = if settings.own.host == "auto" { process::host() } else { settings.own.host.clone() };
        background.spawn(own::store(ingest.clone(), metrics.clone(), settings.own.prefix.clone(), host, every));
    }

    signals.next().await;
    tracing::info!("stopping: listeners are closed and what is held is written out; a second signal stops at once");
    is_ready.store(false, Relaxed);
    let stopped = stop_all(stop, listeners, background, &ingest, &registry, &data, link.as_deref());
    tokio::select! {
        result = tokio::time::timeout(settings.stop.timeout, stopped) => match result {
            Ok(result) => result,
            Err(_) => {
                tracing::warn!(timeout = ?settings.stop.timeout,
                    "not everything was written out in time; the rest is in the journal and is replayed by the next start");
                Ok(())
            }
        },
        _ = signals.next() => {
            tracing::warn!("stopped at once; what was not written out is in the journal and is replayed by the next start");
            Ok(())
        }
    }
}

async fn stop_all(
    stop: watch::Sender<bool>,
    mut listeners: Listeners,
    mut background: JoinSet<()>,
    ingest: &Ingest,
    registry: &Registry,
    data: &Path,
    link: Option<&Link>,
) -> anyhow::Result<()> {
    stop.send_replace(true);
    // Senders that wait for room in a full journal would be waited for until the store is back.
    ingest.release_receivers();
    while listeners.tasks.join_next().await.is_some() {}
    background.shutdown().await;
    let watching = async {
        match link {
            Some(link) => link.watch(ingest).await,
            None => std::future::pending().await,
        }
    };
    let closed = tokio::select! {
        closed = ingest.close_patiently(STOP_PATIENCE) => closed,
        () = watching => unreachable!("it is watched until it is closed"),
    };
    match closed {
        Ok(()) => {}
        Err(FlushError::Store { why, held_points, parked_points }) => {
            tracing::warn!(
                error = why,
                held_points,
                parked_points,
                "stopped while the store takes nothing; what was not written out is in the journal and is replayed by the next start"
            );
            return Ok(());
        }
        Err(error) => {
            return Err(error).context(
                "what is held could not be written out; it is in the journal and is replayed by the next start",
            );
        }
    }
    if let Some(link) = link {
        link.release().await;
    }
    registry
        .save(&data.join(SAVED))
        .context("the names could not be saved; the next start reads them from the store")?;
    tracing::info!("stopped");
    Ok(())
}

/// Names saved by a clean stop: they are all there are. After a crash they are read from the metrics table.
const SAVED: &str = "names";

fn open_store(settings: &Settings) -> anyhow::Result<(Arc<dyn Driver>, Arc<dyn Events>)> {
    let options = EmbeddedOptions { cache_bytes: settings.data.cache.0, ..EmbeddedOptions::default() };
    let driver = Arc::new(EmbeddedDriver::open(&settings.data.dir.join("store"), options)?);
    Ok((driver.clone(), driver))
}

/// The names, from the saved file where it is whole, and from the metrics table where that may have more.
async fn open_registry(data: &Path, driver: &dyn Driver) -> anyhow::Result<Registry> {
    let saved = data.join(SAVED);
    if saved.exists() {
        let opened = Registry::open(&saved);
        // Metrics created from now on are not in it, so it must not be there after a crash: a number that it does
        // not know would be given to another metric. Gone before the first of them, also if the machine fails.
        let gone = std::fs::remove_file(&saved).and_then(|()| std::fs::File::open(data)?.sync_all());
        gone.with_context(|| format!("cannot take {} away", saved.display()))?;
        match opened {
            Ok(registry) => return Ok(registry),
            Err(error) => {
                tracing::warn!(%error, file = %saved.display(), "the saved names cannot be used; they are read from the store instead");
            }
        }
    }
    let registry = Registry::new();
    driver.scan_metrics(&mut |records| _ = registry.restore(records)).await?;
    Ok(registry)
}

async fn compact(registry: Arc<Registry>) {
    loop {
        tokio::time::sleep(COMPACT_EVERY).await;
        let registry = registry.clone();
        let _ = tokio::task::spawn_blocking(move || while registry.compact() {}).await;
    }
}

async fn expire(driver: Arc<dyn Driver>, every: Duration) {
    loop {
        if let Err(error) = driver.expire(now()).await {
            tracing::error!(%error, "expired points could not be deleted; it is tried again");
        }
        tokio::time::sleep(every.max(Duration::from_secs(1))).await;
    }
}

fn query_limits(settings: &Settings) -> api::Limits {
    let (http, query) = (&settings.http, &settings.query);
    api::Limits {
        connections: http.max_connections,
        header_bytes: http.max_header_bytes.as_usize(),
        body_bytes: http.max_body_bytes.as_usize(),
        idle: http.idle_timeout,
        concurrent_queries: http.max_concurrent_queries,
        queued_queries: http.max_queued_queries,
        query: query.timeout,
        target_bytes: query.max_target_bytes.as_usize(),
        series: query.max_series,
        points: query.max_points,
        response_bytes: query.max_response_bytes.as_usize(),
        find_results: query.max_find_results,
    }
}

async fn bind(address: &Address, setting: &str, option: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address.as_str()).await.with_context(|| cannot_listen(address, setting, option))
}

fn cannot_listen(address: &Address, setting: &str, option: &str) -> String {
    format!(
        "cannot listen on {address} ({setting}); if another program does, stop it or choose another port with {option} \
         ADDR:PORT (port 0 takes a free one)"
    )
}

/// What listens.
#[derive(Default)]
struct Listeners {
    tasks: JoinSet<()>,
    /// Name and address of each, as printed.
    said: Vec<(&'static str, String)>,
}

impl Listeners {
    /// Tells a person, and a script, where to send points and queries.
    fn print(&self, settings: &Settings) {
        let mut lines = String::new();
        for (name, address) in &self.said {
            let what = match *name {
                "line" if settings.listen.udp => "carbon's line protocol, TCP and UDP: point relays here",
                "line" => "carbon's line protocol: point relays here",
                "pickle" => "carbon's pickle protocol: point relays here",
                "protobuf" => "carbon's protobuf protocol",
                _ => "Grafana's Graphite datasource, graphite-web's CLUSTER_SERVERS, or a browser",
            };
            let address = if *name == "http" { format!("http://{address}") } else { address.clone() };
            lines += &format!("{name:<9} {address:<28} {what}\n");
        }
        let data = settings.data.dir.display();
        let said = format!("plumbago {}\n{lines}{:<9} {data}\nready\n", env!("CARGO_PKG_VERSION"), "data");
        // Whoever started us may have closed the other end, or its disk may be full: we serve all the same.
        say(&said);
    }
}

fn about(listeners: &Listeners) -> Vec<(String, String)> {
    listeners.said.iter().map(|(name, address)| ((*name).to_owned(), address.clone())).collect()
}

/// What every receiver is made of.
struct Receivers {
    ingest: Arc<Ingest>,
    limits: ReceiverLimits,
    stopping: watch::Receiver<bool>,
    metrics: Arc<Metrics>,
}

impl Receivers {
    async fn listen(&self, settings: &Settings, listeners: &mut Listeners) -> anyhow::Result<()> {
        if let Some(address) = &settings.listen.line {
            let listener = bind(address, "listen.line", "--line").await?;
            let bound = listener.local_addr()?;
            listeners.said.push(("line", bound.to_string()));
            let counts = self.counted("line");
            listeners.tasks.spawn(serve_lines(
                self.ingest.clone(),
                listener,
                self.limits,
                counts,
                self.stopping.clone(),
            ));
            if settings.listen.udp {
                let socket =
                    UdpSocket::bind(bound).await.with_context(|| cannot_listen(address, "listen.udp", "--line"))?;
                listeners.tasks.spawn(serve_datagrams(self.ingest.clone(), socket, self.stopping.clone()));
            }
        }
        let frames = [
            (&settings.listen.pickle, "pickle", FrameFormat::Pickle),
            (&settings.listen.protobuf, "protobuf", FrameFormat::Protobuf),
        ];
        for (address, name, format) in frames {
            let Some(address) = address else { continue };
            let listener = bind(address, &format!("listen.{name}"), &format!("--{name}")).await?;
            listeners.said.push((name, listener.local_addr()?.to_string()));
            let counts = self.counted(name);
            let (ingest, stopping) = (self.ingest.clone(), self.stopping.clone());
            listeners.tasks.spawn(serve_frames(ingest, format, listener, self.limits, counts, stopping));
        }
        Ok(())
    }

    fn counted(&self, name: &'static str) -> Arc<Connections> {
        let counts = Arc::new(Connections::default());
        self.metrics.connections(name, counts.clone());
        counts
    }
}

/// The signals that stop the program.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Signals> {
        Ok(Signals { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
