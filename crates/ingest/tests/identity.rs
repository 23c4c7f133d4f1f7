//! A store and a journal that were not copied at the same moment: no point is ever under another metric's name.

mod support;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use carbon::Sink as _;
use ingest::{Ingest, IngestError, IngestOptions, Protocol};
use metric::{Timestamp, Window};
use store::{DamageLog, SeriesRequest, Store};
use store_embedded::{EmbeddedDriver, EmbeddedOptions};
use support::{now, options, registry_of, rules, runtime};

/// A data folder: its store and its journal.
struct Folder {
    dir: tempfile::TempDir,
    damage: DamageLog,
}

impl Folder {
    fn new() -> Folder {
        Folder { dir: tempfile::tempdir().unwrap(), damage: DamageLog::new() }
    }

    /// A folder with copies of the store of one and the journal of another.
    fn of(store: &Folder, journal: &Folder) -> Folder {
        let folder = Folder::new();
        copy(&store.store(), &folder.store());
        copy(&journal.journal(), &folder.journal());
        folder
    }

    fn store(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    fn journal(&self) -> PathBuf {
        self.dir.path().join("journal")
    }

    async fn open(&self) -> Result<Arc<Ingest>, IngestError> {
        let driver = Arc::new(EmbeddedDriver::open(&self.store(), EmbeddedOptions::default()).unwrap());
        let registry = registry_of(&*driver).await;
        let options = IngestOptions {
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

    /// The value of each name; `None` where no metric has it.
    fn values(&self, names: &[&str]) -> Vec<Option<f64>> {
        let life = runtime(2);
        let values = life.block_on(async {
            let ingest = self.open().await.unwrap();
            let mut values = Vec::new();
            for name in names {
                values.push(read(&ingest, name).await);
            }
            values
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

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().collect::<io::Result<Vec<_>>>().unwrap() {
        let to = to.join(entry.file_name());
        if entry.path().is_dir() { copy(&entry.path(), &to) } else { _ = fs::copy(entry.path(), to).unwrap() }
    }
}

#[test]
fn yesterdays_store_next_to_todays_journal_gives_no_point_to_another_name() {
    let today = Folder::new();
    today.live(&[("a", 1.0)], true);
    let yesterday = Folder::of(&today, &today);
    // Stored today, and its record in the journal is gone.
    today.live(&[("b", 2.0)], true);
    today.live(&[("b", 3.0), ("c", 4.0), ("a", 5.0)], false);
    // Yesterday's copy went on for a while: it gave the id of "b" to another name.
    yesterday.live(&[("x", 9.0)], true);
    let restored = Folder::of(&yesterday, &today);
    assert_eq!(restored.values(&["a", "b", "c", "x"]), [Some(5.0), None, Some(4.0), Some(9.0)]);
    let found = restored.damage.examples();
    let nameless = found.iter().find(|damage| damage.what == "points without a name").expect("it is reported");
    assert!(restored.dir.path().join(nameless.moved_to.as_ref().unwrap()).exists());
    // And again, after more of both, which have ids of their own.
    restored.live(&[("b", 6.0), ("y", 7.0)], false);
    assert_eq!(restored.values(&["a", "b", "c", "x", "y"]), [Some(5.0), Some(6.0), Some(4.0), Some(9.0), Some(7.0)]);
}

#[test]
fn todays_store_next_to_yesterdays_journal_keeps_its_names() {
    let today = Folder::new();
    today.live(&[("a", 1.0), ("b", 2.0)], false);
    let yesterday = Folder::of(&today, &today);
    today.live(&[("c", 3.0)], true);
    // Yesterday's copy went on for a while with other names.
    yesterday.live(&[("x", 9.0), ("a", 8.0)], false);
    let mixed = Folder::of(&today, &yesterday);
    assert_eq!(mixed.values(&["a", "b", "c", "x"]), [Some(8.0), Some(2.0), Some(3.0), Some(9.0)]);
}

#[test]
fn the_journal_of_another_store_is_refused_and_stays_as_it_is() {
    let (one, other) = (Folder::new(), Folder::new());
    one.live(&[("a", 1.0)], false);
    other.live(&[("b", 2.0)], true);
    let mixed = Folder::of(&other, &one);
    let files = || -> Vec<(PathBuf, Vec<u8>)> {
        let entries = fs::read_dir(mixed.journal()).unwrap();
        let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
    };
    let before = files();
    runtime(2).block_on(async {
        let error = mixed.open().await.err().expect("it is refused");
        assert!(matches!(error, IngestError::OtherStore { .. }), "{error}");
        assert!(error.to_string().contains("move the journal's folder away"), "{error}");
    });
    assert_eq!(files(), before);
}

#[test]
fn a_segment_of_a_later_version_is_refused_and_stays_as_it_is() {
    let folder = Folder::new();
    folder.live(&[("a", 1.0)], false);
    let path = folder.journal().join("00000009.journal");
    fs::write(&path, b"PLBGJNL3 something that this program does not know").unwrap();
    runtime(2).block_on(async {
        let error = folder.open().await.err().expect("it is refused");
        assert!(matches!(&error, IngestError::NewerJournal { version, .. } if version == "3"), "{error}");
    });
    assert!(fs::read(&path).unwrap().starts_with(b"PLBGJNL3 something"));
    fs::remove_file(&path).unwrap();
    assert_eq!(folder.values(&["a"]), [Some(1.0)]);
}

#[test]
fn an_id_that_a_start_gave_is_the_same_metrics_after_the_next_kill() {
    let folder = Folder::new();
    folder.live(&[("a", 1.0), ("b", 2.0)], false);
    // Both copies of its header are lost: whose ids it has is not known, and the next start gives its metrics new ones.
    let first = folder.journal().join("00000001.journal");
    let mut bytes = fs::read(&first).unwrap();
    bytes[8..160].fill(0);
    fs::write(&first, bytes).unwrap();
    folder.live(&[("b", 3.0), ("c", 4.0)], false);
    for start in 0..2 {
        assert_eq!(folder.values(&["a", "b", "c"]), [Some(1.0), Some(3.0), Some(4.0)], "start {start}");
    }
}
