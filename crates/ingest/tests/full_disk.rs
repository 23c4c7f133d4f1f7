//! Starts on a disk without room: what is stored and journalled is served, and points are accepted once there is room.

mod support;

use std::{
    fs, io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use host::{Call, FailingDisk, Host, SystemDisk};
use ingest::Ingest;
use support::{
    data_folder::{DataFolder, copy, read, send},
    runtime,
};

const ENOSPC: i32 = 28;

/// A host whose disk has no room for these paths while the flag is set: no file grows, and none is made.
fn without_room(is_full: &Arc<AtomicBool>, touches: fn(&Path) -> bool) -> Host {
    let full = is_full.clone();
    let disk = FailingDisk::new(Arc::new(SystemDisk), move |call, path: &Path| {
        let takes_room = match call {
            Call::Write => true,
            Call::Open | Call::CreateDir => !path.exists(),
            _ => false,
        };
        let fails = takes_room && touches(path) && full.load(Relaxed);
        fails.then(|| io::Error::from_raw_os_error(ENOSPC))
    });
    Host { disk: Arc::new(disk), ..Host::system() }
}

/// A folder with stored points and later ones in the journal.
fn used() -> DataFolder {
    let folder = DataFolder::new();
    folder.live(&[("a", 1.0), ("b", 2.0)], true);
    folder.live(&[("a", 3.0), ("c", 5.0)], false);
    folder
}

async fn served(ingest: &Ingest) -> [Option<f64>; 3] {
    [read(ingest, "a").await, read(ingest, "b").await, read(ingest, "c").await]
}

const ALL: [Option<f64>; 3] = [Some(3.0), Some(2.0), Some(5.0)];

fn openings(folder: &DataFolder) -> usize {
    fs::read_to_string(folder.store().join("spec")).unwrap().matches("\nopening ").count()
}

/// Starts while these paths have no room, and goes on when they have.
fn check(touches: fn(&Path) -> bool) {
    let (folder, is_full) = (used(), Arc::new(AtomicBool::new(true)));
    let before = openings(&folder);
    let life = runtime(2);
    life.block_on(async {
        let ingest = folder.open_all_on(without_room(&is_full, touches)).await.unwrap();
        assert_eq!(served(&ingest).await, ALL);
        assert!(ingest.counters().journal_failing, "it is not ready");
        let sending = tokio::time::timeout(Duration::from_millis(200), send(&ingest, "new", 7.0)).await;
        assert!(sending.is_err(), "no point is accepted");
        assert!(ingest.flush().await.is_err());
        assert_eq!(served(&ingest).await, ALL);
        is_full.store(false, Relaxed);
        let sending = tokio::time::timeout(Duration::from_secs(10), send(&ingest, "new", 7.0)).await;
        sending.expect("there is room");
        assert!(!ingest.counters().journal_failing);
        assert_eq!(openings(&folder), before + 1, "before the first record");
        ingest.flush().await.unwrap();
        send(&ingest, "d", 8.0).await;
    });
    life.shutdown_timeout(Duration::from_secs(2));
    assert_eq!(folder.values(&["a", "b", "c", "new", "d"]), [3.0, 2.0, 5.0, 7.0, 8.0].map(Some));
    assert_eq!(openings(&folder), before + 2);
    assert_eq!(folder.damage.totals().0, 0, "{:?}", folder.damage.examples());
}

#[test]
fn a_start_on_a_full_disk_serves_and_accepts_points_once_there_is_room() {
    check(|_| true);
}

#[test]
fn a_start_whose_store_alone_has_no_room_serves_and_accepts_points_once_there_is_room() {
    check(|path| path.components().any(|part| part.as_os_str() == "store"));
}

#[test]
fn a_start_whose_journal_alone_has_no_room_serves_and_accepts_points_once_there_is_room() {
    check(|path| path.components().any(|part| part.as_os_str() == "journal"));
}

#[test]
fn kills_on_a_full_disk_lose_nothing() {
    let (folder, is_full) = (used(), Arc::new(AtomicBool::new(true)));
    let copied = DataFolder::of(&folder, &folder);
    for _ in 0..3 {
        let life = runtime(2);
        life.block_on(async {
            let ingest = folder.open_all_on(without_room(&is_full, |_| true)).await.unwrap();
            assert_eq!(served(&ingest).await, ALL);
        });
        life.shutdown_timeout(Duration::from_secs(2));
    }
    assert_eq!(folder.segments().len(), copied.segments().len(), "nothing was made");
    assert_eq!(folder.values(&["a", "b", "c"]), ALL);
    assert_eq!(folder.damage.totals().0, 0, "{:?}", folder.damage.examples());
}

#[test]
fn points_of_an_older_store_with_a_newer_journal_wait_for_room() {
    let folder = DataFolder::new();
    folder.live(&[("a", 1.0), ("b", 2.0)], true);
    let older = tempfile::tempdir().unwrap();
    copy(&folder.store(), older.path());
    folder.live(&[("a", 3.0), ("c", 5.0)], false);
    fs::remove_dir_all(folder.store()).unwrap();
    copy(older.path(), &folder.store());
    let is_full = Arc::new(AtomicBool::new(true));
    let life = runtime(2);
    life.block_on(async {
        // New ids must be named in the journal before rows have them.
        let error = folder.open_all_on(without_room(&is_full, |_| true)).await.err().expect("no room for names");
        assert!(error.to_string().contains("room"), "{error}");
        is_full.store(false, Relaxed);
        let ingest = folder.open_all_on(without_room(&is_full, |_| true)).await.unwrap();
        assert_eq!(served(&ingest).await, ALL);
    });
    life.shutdown_timeout(Duration::from_secs(2));
}
