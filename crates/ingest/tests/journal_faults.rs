//! What a start finds in the journal, and does not: reads that fail, segments that are missing or older than the store.

mod support;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
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
        self.open_on(self.host()).await
    }

    async fn open_on(&self, host: Host) -> Result<Arc<Ingest>, IngestError> {
        let store = self.dir.path().join("store");
        let driver = Arc::new(EmbeddedDriver::open(&store, EmbeddedOptions::default()).unwrap());
        let registry = registry_of(&*driver).await;
        let options = IngestOptions {
            host,
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
const ENOSPC: i32 = 28;

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

/// Two segments with points that are not stored, behind some that are. Returns their files.
fn two_unstored(folder: &Folder) -> Vec<PathBuf> {
    folder.live(&[("a", 1.0), ("b", 1.0)], true);
    folder.live(&[("a", 2.0)], false);
    folder.live(&[("b", 3.0)], false);
    let files = folder.segments();
    assert_eq!(files.len(), 2);
    files
}

#[test]
fn a_segment_that_is_missing_is_reported() {
    for (missing, values) in [(0, [Some(1.0), Some(3.0)]), (1, [Some(2.0), Some(1.0)])] {
        let folder = Folder::new();
        let files = two_unstored(&folder);
        fs::remove_file(&files[missing]).unwrap();
        assert_eq!(folder.values(&["a", "b"]).unwrap(), values);
        let found = folder.damage.examples();
        // Nothing on the disk is behind the last one but the segment itself.
        let expected = usize::from(missing == 0);
        assert_eq!(found.iter().filter(|found| found.how.contains("is missing")).count(), expected, "{found:?}");
    }
    // The newest one that the store knows of.
    let folder = Folder::new();
    folder.live(&[("a", 1.0)], true);
    folder.live(&[], false);
    assert_eq!(
        (folder.values(&["a"]).unwrap(), folder.damage.totals().0),
        (vec![Some(1.0)], 0),
        "a kill damages nothing"
    );
    let folder = Folder::new();
    folder.live(&[("a", 1.0)], true);
    fs::remove_file(&folder.segments()[0]).unwrap();
    assert_eq!(folder.values(&["a"]).unwrap(), [Some(1.0)]);
    let found = folder.damage.examples();
    assert!(found.len() == 1 && found[0].file.ends_with("00000002.journal"), "{found:?}");
}

#[test]
fn a_segment_that_has_lost_its_contents_is_reported() {
    let folder = Folder::new();
    let files = two_unstored(&folder);
    fs::write(&files[0], b"").unwrap();
    assert_eq!(folder.values(&["a", "b"]).unwrap(), [Some(1.0), Some(3.0)]);
    let found = folder.damage.examples();
    assert!(found.len() == 1 && found[0].how.contains("no header and no record"), "{found:?}");
}

#[test]
fn a_segment_that_the_store_has_already_overwrites_nothing() {
    let folder = Folder::new();
    folder.live(&[("a", 1.0), ("b", 1.0)], false);
    let old = folder.segments().remove(0);
    let bytes = fs::read(&old).unwrap();
    folder.live(&[("a", 2.0)], true);
    assert!(!old.exists());
    // Soon after it was removed, and again after another flush.
    fs::write(&old, &bytes).unwrap();
    assert_eq!(folder.values(&["a", "b"]).unwrap(), [Some(2.0), Some(1.0)]);
    assert_eq!(folder.damage.totals().0, 0);
    folder.live(&[("b", 4.0)], true);
    assert!(!old.exists());
    folder.live(&[("b", 5.0)], true);
    let newest = folder.segments().pop().unwrap();
    fs::write(&old, &bytes).unwrap();
    assert_eq!(folder.values(&["a", "b"]).unwrap(), [Some(2.0), Some(5.0)]);
    let found = folder.damage.examples();
    assert!(found.len() == 1 && found[0].what == "stale journal segment", "{found:?}");
    assert_eq!(fs::read(folder.dir.path().join(found[0].moved_to.as_ref().unwrap())).unwrap(), bytes);
    // No number is given twice: an emptied journal goes on behind it.
    fs::remove_dir_all(folder.journal()).unwrap();
    folder.live(&[("b", 6.0)], false);
    assert!(newest < folder.segments()[0]);
    assert_eq!(folder.values(&["a", "b"]).unwrap(), [Some(2.0), Some(6.0)]);
}

#[test]
fn an_older_store_next_to_a_newer_journal_says_what_is_missing() {
    let folder = Folder::new();
    folder.live(&[("a", 1.0)], true);
    let older = tempfile::tempdir().unwrap();
    copy(&folder.dir.path().join("store"), older.path());
    folder.live(&[("a", 2.0), ("b", 2.0)], true);
    folder.live(&[("b", 3.0)], false);
    fs::remove_dir_all(folder.dir.path().join("store")).unwrap();
    copy(older.path(), &folder.dir.path().join("store"));
    assert_eq!(folder.values(&["a"]).unwrap(), [Some(1.0)]);
    let found = folder.damage.examples();
    assert!(found.iter().any(|found| found.how.contains("is missing")), "{found:?}");
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.path().is_dir() { copy(&entry.path(), &to) } else { _ = fs::copy(entry.path(), to).unwrap() }
    }
}

#[test]
fn a_journal_that_could_not_be_written_recovers_without_a_sender() {
    let folder = Folder::new();
    let is_full = Arc::new(AtomicBool::new(false));
    let full = is_full.clone();
    let disk = FailingDisk::new(Arc::new(SystemDisk), move |call, path: &Path| {
        let fails = call == Call::Write && path.extension().is_some_and(|end| end == "journal") && full.load(Relaxed);
        fails.then(|| io::Error::from_raw_os_error(ENOSPC))
    });
    let host = Host { disk: Arc::new(disk), ..Host::system() };
    runtime(2).block_on(async {
        let ingest = folder.open_on(host).await.unwrap();
        is_full.store(true, Relaxed);
        let mut batch = ingest.batch(Protocol::LineTcp);
        batch.point(b"a", time(), 1.0);
        let sending = tokio::time::timeout(Duration::from_millis(200), ingest.accept(&mut batch)).await;
        assert!(sending.is_err() && ingest.counters().journal_failing, "it waits for room");
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(ingest.counters().journal_failing, "the disk is full still");
        is_full.store(false, Relaxed);
        for _ in 0..500 {
            tokio::time::sleep(Duration::from_millis(10)).await;
            if !ingest.counters().journal_failing {
                return;
            }
        }
        panic!("without senders the journal counts as failing");
    });
}
