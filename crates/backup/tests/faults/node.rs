//! A node as the server wires it, over any disk.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use backup::{BackupError, Made};
use carbon::{LineDecoder, RuleFiles, Rules};
use host::{Disk, Host, JudgingTime, ManualClock, SeededRandom, SimulatedDisk};
use ingest::{Ingest, IngestOptions, Protocol};
use metadata::Registry;
use metric::{MetricId, Window};
use store::{DamageLog, Events as _, NameStore as _, NewEvent, SeriesRequest, Store};
use store_embedded::{EmbeddedDriver, EmbeddedOptions};
use tokio::runtime::{Builder, Runtime};

/// The time of every test, Unix seconds.
pub const NOW: i64 = 1_800_000_000;

pub const DATA: &str = "/data";
pub const BACKUPS: &str = "/backups";

/// Every value that a node serves, as bits, by name and time; events are names with a time.
pub type Served = BTreeMap<String, BTreeMap<i64, u64>>;

/// A process.
pub struct Life {
    runtime: Runtime,
    node: backup::Node,
    damage: DamageLog,
}

/// The machine of a disk.
pub fn host(disk: &Arc<dyn Disk>) -> Host {
    // Each process has other random numbers.
    static SEED: AtomicU64 = AtomicU64::new(1);
    let random = Arc::new(SeededRandom::new(SEED.fetch_add(1, Relaxed)));
    Host { clock: Arc::new(ManualClock::at(NOW)), disk: disk.clone(), random }
}

/// A disk with the folders that an operator made.
pub fn new_disk() -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    for dir in [DATA, BACKUPS] {
        disk.create_dir_all(Path::new(dir)).unwrap();
    }
    disk.sync_dir(Path::new("/")).unwrap();
    disk
}

impl Life {
    /// Starts a process on a data folder.
    pub fn start(disk: &Arc<dyn Disk>, data: &Path) -> Result<Life, String> {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        let opened = runtime.block_on(open(host(disk), data));
        match opened {
            Ok((node, damage)) => Ok(Life { runtime, node, damage }),
            Err(error) => {
                runtime.shutdown_timeout(Duration::from_secs(5));
                Err(error)
            }
        }
    }

    /// Has the node accept points.
    pub fn send(&self, points: impl IntoIterator<Item = (String, i64, f64)>) {
        let mut lines = Vec::new();
        for (name, time, value) in points {
            lines.extend_from_slice(format!("{name} {value} {time}\n").as_bytes());
        }
        let mut batch = self.node.ingest.batch(Protocol::LineTcp);
        assert_eq!(LineDecoder::new().decode(&lines, NOW, &mut batch), lines.len());
        self.runtime.block_on(self.node.ingest.accept(&mut batch));
    }

    pub fn event(&self, what: &str) {
        let event = NewEvent { when: NOW, what: what.to_owned(), ..NewEvent::default() };
        self.runtime.block_on(self.node.embedded.put_event(event)).unwrap();
    }

    /// A file of rows of the node, in the data folder.
    pub fn file_of_rows(&self) -> PathBuf {
        let file = self.node.embedded.files().into_iter().max_by_key(|file| file.bytes);
        Path::new("store").join(file.expect("rows are stored").path)
    }

    pub fn delete(&self, name: &str) {
        let registry = self.node.ingest.registry();
        let id = registry.read().find(registry.hash(name.as_bytes()), name.as_bytes()).unwrap();
        self.runtime.block_on(self.node.ingest.delete(&[id])).unwrap();
    }

    pub fn flush(&self) {
        self.runtime.block_on(self.node.ingest.flush()).unwrap();
    }

    /// Merges the files of each window.
    pub fn merge(&self) {
        self.node.embedded.settle().unwrap();
    }

    /// Puts points back that a start could not read.
    pub fn put_back(&self) {
        self.runtime.block_on(self.node.ingest.put_back()).unwrap();
    }

    pub fn back_up(&self) -> Result<Made, BackupError> {
        self.back_up_to(BACKUPS)
    }

    pub fn back_up_to(&self, dir: &str) -> Result<Made, BackupError> {
        let made = self.node.back_up(dir.into());
        let made = self.runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), made).await });
        made.expect("a backup ends")
    }

    /// As [`Life::back_up`], again while what a fault left passes by itself.
    pub fn back_up_patiently(&self) -> Made {
        for _ in 0..50 {
            if let Ok(made) = self.back_up() {
                return made;
            }
            self.runtime.block_on(tokio::time::sleep(Duration::from_millis(100)));
        }
        self.back_up().unwrap()
    }

    /// What the store has found damaged since the start.
    pub fn findings(&self) -> u64 {
        self.damage.totals().0
    }

    /// Everything that the node serves of the last hours.
    pub fn served(&self) -> Served {
        let mut served = Served::new();
        let registry = self.node.ingest.registry().clone();
        let names: Vec<(MetricId, String)> = {
            let names = registry.read();
            let shown = (0..names.end().0).map(MetricId).filter(|&metric| names.is_shown(metric));
            shown.map(|metric| (metric, names.name(metric).to_owned())).collect()
        };
        for hours in [1, 20] {
            let window = Window::between(NOW - hours * 3600 + 60, NOW + 60);
            let request = |metric| SeriesRequest { metric, window, now: NOW, max_points: 1 << 20, rollup: None };
            let requests = names.iter().map(|(metric, _)| request(*metric)).collect();
            let fetched = self.runtime.block_on(self.node.ingest.series().fetch(requests)).unwrap();
            for ((_, name), series) in names.iter().zip(fetched) {
                let Some(series) = series else { continue };
                let of_name = served.entry(format!("{name} {} s", series.step)).or_default();
                for (place, value) in series.values.iter().enumerate().filter(|(_, value)| !value.is_nan()) {
                    of_name.insert(series.start + place as i64 * i64::from(series.step), value.to_bits());
                }
            }
        }
        let events = self.runtime.block_on(self.node.embedded.events((0, 0), i64::MAX, 1000)).unwrap();
        for event in events {
            served.entry(format!("event {}", event.content.what)).or_default().insert(event.content.when, event.id);
        }
        served
    }

    /// Ends the process, whatever it is doing.
    pub fn end(self) {
        drop(self.node);
        self.runtime.shutdown_timeout(Duration::from_secs(10));
    }
}

async fn open(host: Host, data: &Path) -> Result<(backup::Node, DamageLog), String> {
    let disk = host.disk.clone();
    disk.create_dir_all(data).map_err(|error| error.to_string())?;
    backup::may_start(&*disk, data).map_err(|error| error.to_string())?;
    let options = EmbeddedOptions { host: host.clone(), data: Some(data.to_owned()), ..EmbeddedOptions::default() };
    let damage = options.damage.clone();
    let embedded = EmbeddedDriver::open(&data.join("store"), options).map_err(|error| error.to_string())?;
    let embedded = Arc::new(embedded);
    backup::remove_stage(&*disk, data);
    let time = JudgingTime::open(&host, data).map_err(|error| error.to_string())?;
    time.save().map_err(|error| error.to_string())?;
    let registry = Registry::new();
    let scanned = embedded.scan_metrics(&mut |records| _ = registry.restore(records)).await;
    scanned.map_err(|error| error.to_string())?;
    let clock = host.clock.clone();
    let options = IngestOptions {
        host,
        time: Some(Arc::new(time)),
        journal_dir: data.join("journal"),
        data_dir: Some(data.to_owned()),
        sync: ingest::Sync::Always,
        flush_after: Duration::from_secs(600),
        ..IngestOptions::default()
    };
    let opened = Ingest::open(options, Store::of(embedded.clone()), Arc::new(registry), rules()).await;
    let ingest = opened.map_err(|error| error.to_string())?;
    Ok((backup::Node { ingest, embedded, disk, data: data.to_owned(), clock, bytes_per_second: None }, damage))
}

fn rules() -> Rules {
    let schemas = "[all]\npattern = .*\nretentions = 10s:2h,60s:1d\n";
    let files = RuleFiles { schemas: Some(schemas), ..RuleFiles::default() };
    Rules::parse(files).expect("good rules").0
}

/// Points of some metrics, a minute apart.
pub fn points(name: &str, metrics: usize, minutes: std::ops::Range<i64>) -> Vec<(String, i64, f64)> {
    let one = |metric: usize| {
        let name = format!("{name}.m{metric:03}");
        minutes.clone().map(move |minute| (name.clone(), NOW - 60 * minute, (metric as i64 * 100 + minute) as f64))
    };
    (0..metrics).flat_map(one).collect()
}

/// A data folder as a kill left it: stored and journalled points, events, a deleted metric. With what it served.
pub fn filled(disk: &SimulatedDisk) -> (SimulatedDisk, Served) {
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let life = Life::start(&shared, Path::new(DATA)).unwrap();
    life.send(points("first", 40, 20..50));
    life.event("first");
    life.flush();
    life.send(points("second", 5, 10..20));
    life.send(points("deleted", 1, 10..20));
    life.flush();
    life.delete("deleted.m000");
    life.send(points("first", 3, 0..10));
    life.send(points("journalled", 2, 0..10));
    life.event("second");
    let served = life.served();
    disk.die();
    life.end();
    (disk.kill(), served)
}
