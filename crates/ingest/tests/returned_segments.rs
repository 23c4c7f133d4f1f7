//! Segments of the journal that come back while what earlier starts noted is damaged, missing or cannot be read: no point is left
//! out without a report, and no metric that was deleted comes back.

mod support;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use host::{Call, FailingDisk, Host, SystemDisk};
use ingest::Ingest;
use store::DamageLog;
use support::{
    data_folder::{DataFolder, delete, read, send, send_at, time},
    runtime,
};

/// The same folder, in a process that has found nothing yet.
fn again(folder: DataFolder) -> DataFolder {
    DataFolder { damage: DamageLog::new(), ..folder }
}

/// A process that is killed after this.
fn in_life(folder: &DataFolder, host: Host, then: impl AsyncFn(&Ingest)) {
    let life = runtime(2);
    life.block_on(async {
        let ingest = folder.open_on(host).await.unwrap();
        then(&ingest).await;
    });
    life.shutdown_timeout(Duration::from_secs(2));
}

fn how(folder: &DataFolder) -> Vec<String> {
    folder.damage.examples().into_iter().map(|damage| damage.how).collect()
}

fn newest(folder: &DataFolder) -> PathBuf {
    let is_segment = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "journal");
    folder.segments().into_iter().filter(is_segment).max().unwrap()
}

/// Takes a segment out of the journal; returns where it is.
fn take_away(folder: &DataFolder, segment: &Path) -> PathBuf {
    let away = folder.dir.path().join(format!("away-{}", segment.file_name().unwrap().to_str().unwrap()));
    fs::rename(segment, &away).unwrap();
    away
}

/// A folder whose newest segment, which alone has the metric `second`, was taken away from a start that then stored others.
/// Returns the segment's place and where it is.
fn missing() -> (DataFolder, PathBuf, PathBuf) {
    let folder = DataFolder::new();
    folder.live(&[("stored", 1.0), ("other", 1.0)], true);
    folder.live(&[("second", 3.0)], false);
    let segment = newest(&folder);
    let away = take_away(&folder, &segment);
    folder.live(&[("third", 4.0)], true);
    (again(folder), segment, away)
}

/// A machine on which so many lists of `damaged` fail.
fn lists_fail(times: u64, error: i32) -> Host {
    let left = AtomicU64::new(times);
    let disk = FailingDisk::new(Arc::new(SystemDisk), move |call, path| {
        let fails = call == Call::ReadDir
            && path.ends_with("damaged")
            && left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok();
        fails.then(|| io::Error::from_raw_os_error(error))
    });
    Host { disk: Arc::new(disk), ..Host::system() }
}

/// The file in `damaged` whose name ends so.
fn kept(folder: &DataFolder, ending: &str) -> Option<PathBuf> {
    let files = fs::read_dir(folder.dir.path().join("damaged")).unwrap().map(|entry| entry.unwrap().path());
    files.into_iter().find(|path| path.to_str().unwrap().ends_with(ending))
}

fn rename_ending(file: &Path, from: &str, to: &str) {
    fs::rename(file, file.to_str().unwrap().replace(from, to)).unwrap();
}

#[test]
fn a_folder_of_notes_that_cannot_be_listed_for_a_moment_is_listed_again() {
    for (times, error) in [(2, 5), (9, 116)] {
        let (folder, segment, away) = missing();
        fs::rename(away, segment).unwrap();
        let folder = DataFolder { read_patience: Duration::from_secs(20), ..folder };
        in_life(&folder, lists_fail(times, error), async |ingest| {
            ingest.put_back().await.unwrap();
            assert_eq!(read(ingest, "second").await, Some(3.0), "{error}");
        });
        let folder = again(folder);
        assert_eq!(folder.values(&["second"]), [Some(3.0)]);
        assert_eq!(how(&folder), [""; 0]);
    }
}

#[test]
fn a_segment_stays_as_long_as_notes_cannot_be_listed_and_is_put_back_then() {
    for is_just_removed in [false, true] {
        let (folder, segment, away) = missing();
        if is_just_removed {
            // The store counts as stored what it has not removed.
            folder.live(&[("fourth", 5.0)], false);
        }
        fs::rename(away, &segment).unwrap();
        let bytes = fs::read(&segment).unwrap();
        in_life(&folder, lists_fail(u64::MAX, 5), async |ingest| {
            send(ingest, "fifth", 6.0).await;
            ingest.flush().await.unwrap();
            let _ = ingest.put_back().await;
            assert_eq!(read(ingest, "stored").await, Some(1.0));
        });
        assert!(how(&folder).iter().any(|how| how.contains("it may have been missing")), "{:?}", how(&folder));
        assert!(how(&folder).iter().any(|how| how.contains("cannot be listed")), "{:?}", how(&folder));
        assert_eq!(fs::read(&segment).unwrap(), bytes);
        in_life(&folder, Host::system(), async |ingest| {
            ingest.put_back().await.unwrap();
            assert_eq!(read(ingest, "second").await, Some(3.0));
            assert_eq!(read(ingest, "fifth").await, Some(6.0));
        });
        let folder = again(folder);
        assert_eq!(folder.values(&["second", "fifth"]), [Some(3.0), Some(6.0)]);
        assert_eq!(how(&folder), [""; 0]);
    }
}

#[test]
fn points_of_unknown_names_wait_for_an_operator_where_the_list_of_deletions_is_damaged() {
    let (folder, segment, away) = missing();
    in_life(&folder, Host::system(), async |ingest| delete(ingest, "other").await);
    let list = folder.journal().join("deleted");
    let mut bytes = fs::read(&list).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&list, bytes).unwrap();
    fs::rename(away, segment).unwrap();
    let folder = again(folder);
    in_life(&folder, Host::system(), async |ingest| {
        assert!(how(&folder).iter().any(|how| how.starts_with("it has bytes that are not records")));
        assert_eq!(ingest.put_back().await.unwrap(), 0);
        assert_eq!(read(ingest, "second").await, None);
    });
    assert!(how(&folder).iter().any(|how| how.starts_with("1 points of it are not put back")), "{:?}", how(&folder));
    // Each start says so, and what is deleted is still noted.
    let folder = again(folder);
    assert_eq!(folder.values(&["second"]), [None]);
    assert!(how(&folder).iter().any(|how| how.contains("whether their metrics were deleted since")));
    assert!(list.exists());
    rename_ending(&kept(&folder, "~1-undecided").unwrap(), "~1-undecided", "~named");
    let folder = again(folder);
    in_life(&folder, Host::system(), async |ingest| {
        assert_eq!(ingest.put_back().await.unwrap(), 1);
        assert_eq!(read(ingest, "second").await, Some(3.0));
        assert!(!list.exists(), "nothing waits any more");
    });
    let folder = again(folder);
    assert_eq!(folder.values(&["second", "other"]), [Some(3.0), None]);
    assert_eq!(how(&folder), [""; 0]);
}

#[test]
fn what_was_deleted_without_a_list_does_not_come_back() {
    for is_sent_again in [false, true] {
        let (folder, segment, away) = missing();
        // There was no room for it.
        fs::remove_file(folder.journal().join("deleted")).unwrap();
        in_life(&folder, Host::system(), async |ingest| {
            send(ingest, "second", 7.0).await;
            delete(ingest, "second").await;
            if is_sent_again {
                send_at(ingest, "second", time() + 1, 8.0).await;
            }
            ingest.flush().await.unwrap();
        });
        fs::rename(away, segment).unwrap();
        let folder = again(folder);
        in_life(&folder, Host::system(), async |ingest| {
            assert_eq!(ingest.put_back().await.unwrap(), 0);
            assert_eq!(read(ingest, "second").await, None);
        });
    }
}

#[test]
fn a_folder_of_notes_that_is_away_for_a_moment_does_not_end_the_list_of_deletions() {
    let (folder, segment, away) = missing();
    let (damaged, elsewhere) = (folder.dir.path().join("damaged"), folder.dir.path().join("elsewhere"));
    in_life(&folder, Host::system(), async |ingest| {
        fs::rename(&damaged, &elsewhere).unwrap();
        ingest.put_back().await.unwrap();
        assert!(folder.journal().join("deleted").exists());
        fs::rename(&elsewhere, &damaged).unwrap();
        send(ingest, "second", 7.0).await;
        delete(ingest, "second").await;
        fs::rename(&away, &segment).unwrap();
        ingest.flush().await.unwrap();
        ingest.put_back().await.unwrap();
        assert_eq!(read(ingest, "second").await, None);
        // Removed by an operator.
        fs::remove_dir_all(&damaged).unwrap();
        for _ in 0..4 {
            ingest.put_back().await.unwrap();
        }
        assert!(!folder.journal().join("deleted").exists());
    });
}

#[test]
fn a_folder_of_notes_that_is_not_found_when_it_is_listed_does_not_end_the_list_of_deletions() {
    for error in [2, 5] {
        let (folder, segment, away) = missing();
        in_life(&folder, Host::system(), async |ingest| {
            send(ingest, "second", 7.0).await;
            delete(ingest, "second").await;
            ingest.flush().await.unwrap();
        });
        in_life(&folder, lists_fail(u64::MAX, error), async |ingest| {
            let _ = ingest.put_back().await;
            assert!(folder.journal().join("deleted").exists(), "{error}");
        });
        fs::rename(away, segment).unwrap();
        in_life(&folder, Host::system(), async |ingest| {
            ingest.put_back().await.unwrap();
            assert_eq!(read(ingest, "second").await, None, "{error}");
        });
    }
}

#[test]
fn what_was_not_known_to_be_deleted_without_a_list_waits() {
    let (folder, segment, away) = missing();
    fs::remove_file(folder.journal().join("deleted")).unwrap();
    folder.live(&[("fourth", 5.0)], true);
    fs::rename(away, segment).unwrap();
    let folder = again(folder);
    in_life(&folder, Host::system(), async |ingest| {
        assert_eq!(ingest.put_back().await.unwrap(), 0);
    });
    assert!(how(&folder).iter().any(|how| how.starts_with("1 points of it are not put back")), "{:?}", how(&folder));
}

#[test]
fn a_metric_that_was_deleted_and_sent_again_gets_the_points_since() {
    let folder = DataFolder::new();
    folder.live(&[("stored", 1.0), ("again", 1.0)], true);
    folder.live(&[("lost", 2.0)], false);
    take_away(&folder, &newest(&folder));
    in_life(&folder, Host::system(), async |ingest| {
        delete(ingest, "again").await;
        send(ingest, "again", 5.0).await;
        send(ingest, "new", 5.0).await;
    });
    let segment = newest(&folder);
    let away = take_away(&folder, &segment);
    folder.live(&[("third", 4.0)], true);
    fs::rename(away, segment).unwrap();
    in_life(&folder, Host::system(), async |ingest| {
        ingest.put_back().await.unwrap();
        assert_eq!(read(ingest, "new").await, Some(5.0));
        assert_eq!(read(ingest, "again").await, Some(5.0));
    });
}

#[test]
fn a_metric_that_was_sent_again_and_deleted_again_stays_deleted() {
    let folder = DataFolder::new();
    folder.live(&[("stored", 1.0), ("again", 1.0)], true);
    folder.live(&[("lost", 2.0)], false);
    take_away(&folder, &newest(&folder));
    in_life(&folder, Host::system(), async |ingest| {
        delete(ingest, "again").await;
        for name in ["new", "newer", "again"] {
            send(ingest, name, 5.0).await;
        }
    });
    let segment = newest(&folder);
    let away = take_away(&folder, &segment);
    in_life(&folder, Host::system(), async |ingest| {
        // Under a lower id than the one in the segment.
        send(ingest, "again", 6.0).await;
        delete(ingest, "again").await;
    });
    folder.live(&[("third", 4.0)], true);
    fs::rename(away, segment).unwrap();
    in_life(&folder, Host::system(), async |ingest| {
        ingest.put_back().await.unwrap();
        assert_eq!(read(ingest, "newer").await, Some(5.0));
        assert_eq!(read(ingest, "again").await, None);
    });
}

#[test]
fn points_that_only_another_missing_segment_names_wait_for_it() {
    let folder = DataFolder::new();
    folder.live(&[("stored", 1.0)], true);
    folder.live(&[("second", 3.0)], false);
    let first = newest(&folder);
    in_life(&folder, Host::system(), async |ingest| {
        send_at(ingest, "second", time() + 1, 4.0).await;
    });
    let last = newest(&folder);
    assert!(first < last);
    let (first_away, last_away) = (take_away(&folder, &first), take_away(&folder, &last));
    folder.live(&[("third", 4.0)], true);
    fs::rename(last_away, &last).unwrap();
    let folder = again(folder);
    in_life(&folder, Host::system(), async |ingest| assert_eq!(ingest.put_back().await.unwrap(), 0));
    assert!(how(&folder).iter().any(|how| how.starts_with("1 points of it are not put back")), "{:?}", how(&folder));
    fs::rename(first_away, &first).unwrap();
    rename_ending(&kept(&folder, "~1-undecided").unwrap(), "~1-undecided", "~whole");
    let folder = again(folder);
    in_life(&folder, Host::system(), async |ingest| {
        assert_eq!(ingest.put_back().await.unwrap(), 2);
        assert_eq!(read(ingest, "second").await, Some(3.0));
    });
    let folder = again(folder);
    assert_eq!(folder.values(&["second"]), [Some(3.0)]);
    assert_eq!(how(&folder), [""; 0]);
}
