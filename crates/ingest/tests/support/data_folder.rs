//! A data folder with an embedded store, through lives that end in a kill.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::Duration,
};

use carbon::Sink as _;
use host::Host;
use ingest::{Ingest, IngestError, IngestOptions, Protocol};
use metric::{Timestamp, Window};
use store::{DamageLog, SeriesRequest, Store};
use store_embedded::{EmbeddedDriver, EmbeddedOptions};

use super::{now, options, registry_of, rules, runtime};

/// A data folder: its store, its journal, and the damage that was found in it.
pub struct DataFolder {
    pub dir: tempfile::TempDir,
    pub damage: DamageLog,
    /// How long a start waits for pages of the journal.
    pub read_patience: Duration,
    /// Bytes of points in memory.
    pub memory_limit: u64,
    pub retentions: &'static str,
}

impl DataFolder {
    pub fn new() -> DataFolder {
        let (dir, damage) = (tempfile::tempdir().unwrap(), DamageLog::new());
        DataFolder { dir, damage, read_patience: Duration::ZERO, memory_limit: 1 << 30, retentions: "1s:1h" }
    }

    /// A folder with copies of the store of one and the journal of another.
    pub fn of(store: &DataFolder, journal: &DataFolder) -> DataFolder {
        let folder = DataFolder::new();
        copy(&store.store(), &folder.store());
        copy(&journal.journal(), &folder.journal());
        folder
    }

    pub fn store(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    pub fn journal(&self) -> PathBuf {
        self.dir.path().join("journal")
    }

    /// The files of the journal.
    pub fn segments(&self) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = fs::read_dir(self.journal()).unwrap().map(|file| file.unwrap().path()).collect();
        files.sort();
        files
    }

    pub async fn open(&self) -> Result<Arc<Ingest>, IngestError> {
        self.open_on(Host::system()).await
    }

    /// A start whose journal is on the disk of this host.
    pub async fn open_on(&self, host: Host) -> Result<Arc<Ingest>, IngestError> {
        self.open_over(host, EmbeddedOptions::default()).await
    }

    /// A start with everything on the disk of this host.
    pub async fn open_all_on(&self, host: Host) -> Result<Arc<Ingest>, IngestError> {
        let data = Some(self.dir.path().to_owned());
        let store = EmbeddedOptions { host: host.clone(), damage: self.damage.clone(), data, ..Default::default() };
        self.open_over(host, store).await
    }

    async fn open_over(&self, host: Host, store: EmbeddedOptions) -> Result<Arc<Ingest>, IngestError> {
        let driver = Arc::new(EmbeddedDriver::open(&self.store(), store)?);
        let registry = registry_of(&*driver).await;
        let options = IngestOptions {
            host,
            damage: self.damage.clone(),
            data_dir: Some(self.dir.path().to_owned()),
            read_patience: self.read_patience,
            memory_limit_bytes: self.memory_limit,
            ..options(&self.journal(), Duration::from_millis(20))
        };
        Ingest::open(options, Store::of(driver), registry, rules(self.retentions)).await
    }

    /// A life that sends these points, and flushes if asked to; then the process is killed.
    pub fn live(&self, points: &[(&str, f64)], flushes: bool) {
        let life = runtime(2);
        life.block_on(async {
            let ingest = self.open().await.unwrap();
            for &(name, value) in points {
                send(&ingest, name, value).await;
            }
            if flushes {
                ingest.flush().await.unwrap();
            }
        });
        life.shutdown_timeout(Duration::from_secs(2));
    }

    /// The value of each name after a start, which is killed; `None` where no metric has it.
    pub fn values(&self, names: &[&str]) -> Vec<Option<f64>> {
        self.values_on(Host::system(), names).unwrap()
    }

    /// As [`DataFolder::values`], with the journal on the disk of this host.
    pub fn values_on(&self, host: Host, names: &[&str]) -> Result<Vec<Option<f64>>, IngestError> {
        let life = runtime(2);
        let values = life.block_on(async {
            let ingest = self.open_on(host).await?;
            let mut values = Vec::new();
            for name in names {
                values.push(read(&ingest, name).await);
            }
            Ok(values)
        });
        life.shutdown_timeout(Duration::from_secs(2));
        values
    }
}

/// The time of all points of this process.
pub fn time() -> Timestamp {
    static TIME: OnceLock<Timestamp> = OnceLock::new();
    *TIME.get_or_init(|| now() - 60)
}

/// Deletes a metric.
pub async fn delete(ingest: &Ingest, name: &str) {
    let registry = ingest.registry();
    let id = registry.read().find(registry.hash(name.as_bytes()), name.as_bytes()).unwrap();
    assert_eq!(ingest.delete(&[id]).await.unwrap(), 1);
}

/// Sends a point, and waits until it is acknowledged.
pub async fn send(ingest: &Ingest, name: &str, value: f64) {
    send_at(ingest, name, time(), value).await;
}

/// As [`send`], at another time.
pub async fn send_at(ingest: &Ingest, name: &str, time: Timestamp, value: f64) {
    let mut batch = ingest.batch(Protocol::LineTcp);
    batch.point(name.as_bytes(), time, value);
    ingest.accept(&mut batch).await;
}

/// The value of a name at the time of all points.
pub async fn read(ingest: &Ingest, name: &str) -> Option<f64> {
    let registry = ingest.registry();
    let metric = registry.read().find(registry.hash(name.as_bytes()), name.as_bytes())?;
    let window = Window::between(now() - 600, now());
    let request = SeriesRequest { metric, window, now: now(), max_points: 10_000, rollup: None };
    let series = ingest.series().fetch(vec![request]).await.unwrap().remove(0).unwrap();
    let value = series.values[(time() - series.start) as usize];
    (!value.is_nan()).then_some(value)
}

pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().collect::<io::Result<Vec<_>>>().unwrap() {
        let to = to.join(entry.file_name());
        if entry.path().is_dir() { copy(&entry.path(), &to) } else { _ = fs::copy(entry.path(), to).unwrap() }
    }
}
