//! What a start finds in the journal, and does not: reads that fail, segments that are missing or older than the store.

mod support;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use carbon::Sink as _;
use host::{Call, FailingDisk, Host, SystemDisk};
use ingest::{Ingest, IngestError, IngestOptions, Protocol};
use metric::{Timestamp, Window};
use store::{DamageLog, SeriesRequest, Store};
use store_embedded::{EmbeddedDriver, EmbeddedOptions};
use support::{now, options, registry_of, rules, runtime};

/// A data folder, and calls of its journal's disk that fail at the next starts.
struct Folder {
    dir: tempfile::TempDir,
    damage: DamageLog,
    fault: Option<Fault>,
}

/// Calls of one kind for segments of the journal that fail with this error, after some that do not.
#[derive(Clone, Copy, Debug)]
struct Fault {
    call: Call,
    error: i32,
    after: u32,
    times: u32,
}

impl Folder {
    fn new() -> Folder {
        Folder { dir: tempfile::tempdir().unwrap(), damage: DamageLog::new(), fault: None }
    }

    fn journal(&self) -> PathBuf {
        self.dir.path().join("journal")
    }

    fn segments(&self) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = fs::read_dir(self.journal()).unwrap().map(|file| file.unwrap().path()).collect();
        files.sort();
        files
    }

    fn host(&self) -> Host {
        let Some(fault) = self.fault else { return Host::system() };
        let calls = AtomicU32::new(0);
        let disk = FailingDisk::new(Arc::new(SystemDisk), move |call, path: &Path| {
            let counts = call == fault.call && path.extension().is_some_and(|end| end == "journal");
            let number = if counts { calls.fetch_add(1, Relaxed) } else { return None };
            let fails = (fault.after..fault.after + fault.times).contains(&number);
            fails.then(|| io::Error::from_raw_os_error(fault.error))
        });
        Host { disk: Arc::new(disk), ..Host::system() }
    }

    async fn open(&self) -> Result<Arc<Ingest>, IngestError> {
        let store = self.dir.path().join("store");
        let driver = Arc::new(EmbeddedDriver::open(&store, EmbeddedOptions::default()).unwrap());
        let registry = registry_of(&*driver).await;
        let options = IngestOptions {
            host: self.host(),
            damage: self.damage.clone(),
            data_dir: Some(self.dir.path().to_owned()),
            ..options(&self.journal(), Duration::from_millis(20))
        };
        Ingest::open(options, Store::of(driver), registry, rules("1s:1h")).await
    }

    /// A life that sends these points, and flushes if asked to; then the process is killed.
    fn live(&self, points: &[(&str, f64)], flushes: bool) {
        let life = runtime(2);
        life.block_on(async {
            let ingest = self.open().await.unwrap();
            for &(name, value) in points {
                let mut batch = ingest.batch(Protocol::LineTcp);
                batch.point(name.as_bytes(), time(), value);
                ingest.accept(&mut batch).await;
            }
            if flushes {
                ingest.flush().await.unwrap();
            }
        });
        life.shutdown_timeout(Duration::from_secs(2));
    }

    /// The value of each name after a start, which is killed.
    fn values(&self, names: &[&str]) -> Result<Vec<Option<f64>>, IngestError> {
        let life = runtime(2);
        let values = life.block_on(async {
            let ingest = self.open().await?;
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
fn time() -> Timestamp {
    static TIME: std::sync::OnceLock<Timestamp> = std::sync::OnceLock::new();
    *TIME.get_or_init(|| now() - 60)
}

async fn read(ingest: &Arc<Ingest>, name: &str) -> Option<f64> {
    let registry = ingest.registry();
    let metric = registry.read().find(registry.hash(name.as_bytes()), name.as_bytes())?;
    let window = Window::between(now() - 600, now());
    let request = SeriesRequest { metric, window, now: now(), max_points: 10_000 };
    let series = ingest.series().fetch(vec![request]).await.unwrap().remove(0).unwrap();
    let value = series.values[(time() - series.start) as usize];
    (!value.is_nan()).then_some(value)
}

const EIO: i32 = 5;
const EMFILE: i32 = 24;

#[test]
fn calls_that_fail_at_a_start_lose_no_point_and_give_none_back_its_older_value() {
    let mut folder = Folder::new();
    folder.live(&[("a", 1.0), ("b", 2.0)], true);
    folder.live(&[("a", 3.0), ("b", 4.0), ("c", 5.0)], false);
    let (expected, names) = ([Some(3.0), Some(4.0), Some(5.0)], ["a", "b", "c"]);
    let segments = folder.segments().len();
    let mut refused = 0;
    for (call, error) in [(Call::Open, EIO), (Call::Open, EMFILE), (Call::Read, EIO)] {
        for (after, times) in (0..5).flat_map(|after| [1, 3, 1000].map(|times| (after, times))) {
            let fault = Fault { call, error, after, times };
            folder.fault = Some(fault);
            match folder.values(&names) {
                Ok(values) => assert_eq!(values, expected, "{fault:?}"),
                Err(IngestError::UnreadableJournal { .. } | IngestError::Journal { .. }) => refused += 1,
                Err(error) => panic!("{fault:?}: {error}"),
            }
            assert_eq!(folder.damage.totals().0, 0, "{fault:?}: {:?}", folder.damage.examples());
            // Whatever that start did, one without faults has everything.
            folder.fault = None;
            assert_eq!(folder.values(&names).unwrap(), expected, "after {fault:?}");
        }
    }
    assert!(0 < refused && segments <= folder.segments().len());
}
