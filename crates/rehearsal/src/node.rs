//! A node as the server wires it: store, names, journal. Kept in step with `server/node.rs` and `server/data_folder.rs`.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use carbon::Rules;
use host::{Disk, Host, JudgingTime, NotedSyncs};
use ingest::{Ingest, IngestOptions};
use metadata::{Registry, SAVED, open_names};
use store::{DamageLog, Events, MemoryDriver, NameStore, PointStore, Store};
use store_embedded::{EmbeddedDriver, EmbeddedOptions};

use crate::tables::OpenTables;

/// Bytes of rows in memory: few, so that a workload of seconds has them written early.
const UNSYNCED_BYTES: u64 = 256 << 10;

/// How long points stay in memory at most.
pub(crate) const FLUSH_AFTER: Duration = Duration::from_secs(600);

/// How a node is opened.
#[derive(Debug, Clone)]
pub(crate) struct NodeOptions {
    pub(crate) data: PathBuf,
    pub(crate) host: Host,
    pub(crate) sync: ingest::Sync,
    pub(crate) memory_limit_bytes: u64,
    pub(crate) rules: Rules,
    /// Whether it also looks for what an interrupted backup or restore left, and keeps the mark of the time.
    pub(crate) is_whole: bool,
    /// Whether files whose sync fails are noted, as in the server.
    pub(crate) notes_failed_syncs: bool,
    /// The driver, where it is not the embedded one.
    pub(crate) memory: Option<Arc<MemoryDriver>>,
    /// Where points are, if other nodes write them too. Ids of metrics are in the embedded store then.
    pub(crate) shared: Option<Arc<dyn OpenTables>>,
}

/// A node that runs.
pub(crate) struct Node {
    pub(crate) data: PathBuf,
    pub(crate) ingest: Arc<Ingest>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) points: Arc<dyn PointStore>,
    pub(crate) names: Arc<dyn NameStore>,
    pub(crate) events: Arc<dyn Events>,
    pub(crate) damage: DamageLog,
    /// The embedded store, where points are in it.
    embedded: Option<Arc<EmbeddedDriver>>,
    is_whole: bool,
}

impl Node {
    /// Opens the data folder.
    pub(crate) async fn open(mut options: NodeOptions) -> Result<Node, String> {
        // Each process has its own.
        if options.notes_failed_syncs {
            options.host.disk = Arc::new(NotedSyncs::new(options.host.disk.clone()));
        }
        let (disk, data) = (&options.host.disk, &*options.data);
        let damage = DamageLog::new();
        disk.create_dir_all(data).map_err(|error| error.to_string())?;
        if options.is_whole {
            backup::may_start(&**disk, data).map_err(|error| error.to_string())?;
        }
        let time = JudgingTime::open(&options.host, data).map_err(|error| error.to_string())?;
        let time = Arc::new(time);
        let mut embedded = None;
        let (store, events): (Store, Arc<dyn Events>) = match &options.memory {
            Some(driver) => (Store::of(driver.clone()), driver.clone()),
            None => {
                let driver = open_embedded(data, &options.host, &damage)?;
                embedded = Some(driver.clone());
                let mut store = Store::of(driver.clone());
                if let Some(tables) = &options.shared {
                    store = tables.clone().open(&options.host, store);
                }
                (store, driver)
            }
        };
        if options.is_whole {
            backup::remove_stage(&**disk, data);
        }
        let (registry, same) = open_names(data, &*store.names, disk).await.map_err(|error| error.to_string())?;
        if !same.is_empty() {
            return Err(format!("names have several ids: {same:?}"));
        }
        let registry = Arc::new(registry);
        let ingest_options = IngestOptions {
            host: options.host.clone(),
            time: Some(time),
            damage: damage.clone(),
            journal_dir: data.join("journal"),
            data_dir: Some(data.to_owned()),
            sync: options.sync,
            memory_limit_bytes: options.memory_limit_bytes,
            flush_after: FLUSH_AFTER,
            ..IngestOptions::default()
        };
        let (points, names) = (store.points.clone(), store.names.clone());
        // In a task, as in the server.
        let opening = tokio::spawn(Ingest::open(ingest_options, store, registry.clone(), options.rules));
        let ingest = opening.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        let node = Node {
            data: data.to_owned(),
            ingest,
            registry,
            points,
            names,
            events,
            damage,
            embedded,
            is_whole: options.is_whole,
        };
        node.save_mark().await;
        Ok(node)
    }

    /// Keeps the mark of how far the time has come, as the server does every half minute. An error is logged there.
    pub(crate) async fn save_mark(&self) {
        if self.is_whole {
            let time = self.ingest.time().clone();
            let _ = host::spawn_blocking(move || time.save()).await;
        }
    }

    /// Merges files and opens those that could not be opened, as the store's background thread does, some time soon. Within the
    /// runtime.
    pub(crate) fn look_after_files(&self) {
        if let Some(embedded) = self.embedded.clone() {
            drop(host::spawn_blocking(move || embedded.look_after_files()));
        }
    }

    /// Makes the next backup in a folder.
    pub(crate) async fn back_up(&self, disk: Arc<dyn Disk>, dir: PathBuf) -> Result<backup::Made, String> {
        let embedded = self.embedded.clone().expect("points are in the embedded store");
        let (ingest, data) = (self.ingest.clone(), self.data.clone());
        // Without a rate a backup does not look at the time.
        let clock = host::Host::system().clock;
        let node = backup::Node { ingest, embedded, disk, data, clock, bytes_per_second: None };
        node.back_up(dir).await.map_err(|error| error.to_string())
    }

    /// Writes everything to the store and saves the names.
    pub(crate) async fn stop(&self, disk: &dyn Disk) -> Result<(), String> {
        self.ingest.release_receivers();
        self.ingest.close_patiently(Duration::from_secs(3)).await.map_err(|error| error.to_string())?;
        self.save_mark().await;
        if let Some(embedded) = &self.embedded {
            self.ingest.write_owed_records(&**embedded).await.map_err(|error| error.to_string())?;
        }
        self.registry.save(disk, &self.data.join(SAVED), self.names.names_mark()).map_err(|error| error.to_string())
    }
}

fn open_embedded(data: &Path, host: &Host, damage: &DamageLog) -> Result<Arc<EmbeddedDriver>, String> {
    let options = EmbeddedOptions {
        host: host.clone(),
        damage: damage.clone(),
        data: Some(data.to_owned()),
        unsynced_bytes: UNSYNCED_BYTES,
        // In one thread, steps do what the background thread does.
        merges: !host::is_in_place(),
        ..EmbeddedOptions::default()
    };
    EmbeddedDriver::open(&data.join("store"), options).map(Arc::new).map_err(|error| error.to_string())
}
