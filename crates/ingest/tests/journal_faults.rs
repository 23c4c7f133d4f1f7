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

use host::{Call, FailingDisk, Host, SystemDisk};
use ingest::{Ingest, IngestError};
use metric::MetricId;
use store::{Damage, DamageLog};
use store_embedded::{lost_names, same_names};
use support::{
    data_folder::{DataFolder, copy, read, send, send_at, time},
    runtime,
};

/// Calls of one kind for segments of the journal that fail with this error, after some that do not.
#[derive(Clone, Copy, Debug)]
struct Fault {
    call: Call,
    error: i32,
    after: u32,
    times: u32,
}

impl Fault {
    fn host(self) -> Host {
        let calls = AtomicU32::new(0);
        let disk = FailingDisk::new(Arc::new(SystemDisk), move |call, path: &Path| {
            let counts = call == self.call && path.extension().is_some_and(|end| end == "journal");
            let number = if counts { calls.fetch_add(1, Relaxed) } else { return None };
            let fails = (self.after..self.after + self.times).contains(&number);
            fails.then(|| io::Error::from_raw_os_error(self.error))
        });
        Host { disk: Arc::new(disk), ..Host::system() }
    }
}

const EIO: i32 = 5;
const EMFILE: i32 = 24;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;

#[test]
fn calls_that_fail_at_a_start_lose_no_point_and_give_none_back_its_older_value() {
    let folder = DataFolder::new();
    folder.live(&[("a", 1.0), ("b", 2.0)], true);
    folder.live(&[("a", 3.0), ("b", 4.0), ("c", 5.0)], false);
    let (expected, names) = ([Some(3.0), Some(4.0), Some(5.0)], ["a", "b", "c"]);
    let segments = folder.segments().len();
    let mut refused = 0;
    for (call, error) in [(Call::Open, EIO), (Call::Open, EMFILE), (Call::Read, EIO)] {
        for (after, times) in (0..5).flat_map(|after| [1, 3, 1000].map(|times| (after, times))) {
            let fault = Fault { call, error, after, times };
            match folder.values_on(fault.host(), &names) {
                Ok(values) => assert_eq!(values, expected, "{fault:?}"),
                Err(IngestError::UnreadableJournal { .. } | IngestError::Journal { .. }) => refused += 1,
                Err(error) => panic!("{fault:?}: {error}"),
            }
            assert_eq!(folder.damage.totals().0, 0, "{fault:?}: {:?}", folder.damage.examples());
            // Whatever that start did, one without faults has everything.
            assert_eq!(folder.values(&names), expected, "after {fault:?}");
        }
    }
    assert!(0 < refused && segments <= folder.segments().len());
}

/// A folder with a segment of several pages, and the names and values of its points.
fn many_points() -> (DataFolder, Vec<String>, Vec<Option<f64>>) {
    let (folder, names) = (DataFolder::new(), (0..700).map(|i| format!("some.metric.{i}")).collect::<Vec<_>>());
    let points: Vec<(&str, f64)> = (1..).zip(&names).map(|(i, name)| (&**name, f64::from(i))).collect();
    folder.live(&points, false);
    let values = points.iter().map(|&(_, value)| Some(value)).collect();
    (folder, names, values)
}

#[test]
fn reads_that_fail_for_a_while_at_a_start_lose_no_point() {
    let (folder, names, expected) = many_points();
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    let mut started = 0;
    for (after, times) in (0..4).flat_map(|after| [6, 8, 12, 20].map(|times| (after, times))) {
        let fault = Fault { call: Call::Read, error: EIO, after, times };
        match folder.values_on(fault.host(), &names) {
            Ok(values) => assert_eq!(values, expected, "{fault:?}"),
            Err(IngestError::UnreadableJournal { .. } | IngestError::Journal { .. }) => continue,
            Err(error) => panic!("{fault:?}: {error}"),
        }
        started += 1;
        assert_eq!(folder.damage.totals().0, 0, "{fault:?}: {:?}", folder.damage.examples());
    }
    assert!(0 < started);
}

#[test]
fn a_segment_with_a_page_that_cannot_be_read_is_kept_whole() {
    let (folder, names, expected) = many_points();
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    let whole = fs::read(&folder.segments()[0]).unwrap();
    // A page that ends in a record of points: their name is in it, or before it.
    let ends_in_points = |page: &usize| {
        let mut records = ingest::wal::records(&whole);
        let last = records.find(|(place, _)| place.contains(&(4096 * (page + 1))));
        last.is_some_and(|(place, record)| {
            place.start < 4096 * (page + 1) && matches!(record, ingest::wal::Record::Points { .. })
        })
    };
    let page = (1..whole.len() / 4096).find(ends_in_points).expect("there are points at the end of a page");
    let page = 4096 * page as u64;
    let disk = FailingDisk::new(Arc::new(SystemDisk), |_, _| None).with_bad_sector("00000001.journal", page..page + 1);
    let host = Host { disk: Arc::new(disk), ..Host::system() };
    for _ in 0..2 {
        let values = folder.values_on(host.clone(), &names).unwrap();
        let read = values.iter().zip(&expected).filter(|(value, expected)| value == expected).count();
        assert!(0 < read && read < expected.len(), "{read}");
    }
    let found = folder.damage.examples();
    assert!(found.len() == 1 && found[0].how.contains("cannot be read"), "{found:?}");
    folder.live(&[], true);
    let kept = folder.dir.path().join(found[0].moved_to.as_ref().unwrap());
    assert!(!folder.journal().join("00000001.journal").exists());
    assert!(fs::read(kept).unwrap() == whole, "with the page that was not read");
}

#[test]
fn a_start_waits_for_pages_that_cannot_be_read_for_a_while() {
    let (mut folder, names, expected) = many_points();
    folder.read_patience = Duration::from_secs(60);
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    // A page, and all of it.
    for bad in [9000..9001, 0..1 << 30] {
        let is_bad = Arc::new(AtomicBool::new(true));
        let disk = FailingDisk::new(Arc::new(SystemDisk), |_, _| None);
        let disk = disk.with_sector_bad_while("00000001.journal", bad.clone(), is_bad.clone());
        let host = Host { disk: Arc::new(disk), ..Host::system() };
        let mending = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(1500));
            is_bad.store(false, Relaxed);
        });
        assert_eq!(folder.values_on(host, &names).unwrap(), expected, "{bad:?}");
        mending.join().unwrap();
        assert_eq!(folder.damage.totals().0, 0, "{:?}", folder.damage.examples());
    }
}

#[test]
fn records_that_are_repeated_and_cannot_be_read_for_a_while_are_not_left_out_silently() {
    let folder = DataFolder::new();
    let fails = Arc::new(AtomicBool::new(false));
    let is_failing = fails.clone();
    let disk = FailingDisk::new(Arc::new(SystemDisk), move |call, path: &Path| {
        let is_segment = path.extension().is_some_and(|end| end == "journal");
        (call == Call::Sync && is_segment && is_failing.swap(false, Relaxed)).then(|| io::Error::from_raw_os_error(EIO))
    });
    let names: Vec<String> = (0..300).map(|i| format!("some.metric.{i}")).collect();
    let life = runtime(2);
    life.block_on(async {
        let ingest = folder.open_on(Host { disk: Arc::new(disk), ..Host::system() }).await.unwrap();
        for (i, name) in (0..).zip(&names) {
            send(&ingest, name, f64::from(i)).await;
            if i == 5 {
                fails.store(true, Relaxed);
                while folder.segments().len() < 2 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        }
    });
    life.shutdown_timeout(Duration::from_secs(2));
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    let expected: Vec<Option<f64>> = (0..300).map(|i| Some(f64::from(i))).collect();
    assert_eq!(folder.values(&names), expected);
    let mut folder = folder;
    let mut started = 0;
    // The first page, for some reads of the segment: attempts to read all of it, and then pages.
    for (times, skipped) in (3..24).flat_map(|times| (0..4).map(move |skipped| (times, skipped))) {
        folder.damage = DamageLog::new();
        let (reads, is_bad) = (AtomicU32::new(0), Arc::new(AtomicBool::new(false)));
        let bad = is_bad.clone();
        let disk = FailingDisk::new(Arc::new(SystemDisk), move |call, path: &Path| {
            if call == Call::Read && path.ends_with("00000002.journal") {
                bad.store((skipped..skipped + times).contains(&reads.fetch_add(1, Relaxed)), Relaxed);
            }
            None
        });
        let disk = disk.with_sector_bad_while("00000002.journal", 0..1, is_bad);
        let host = Host { disk: Arc::new(disk), ..Host::system() };
        let Ok(values) = folder.values_on(host, &names) else { continue };
        started += 1;
        let is_reported = 0 < folder.damage.totals().0;
        assert!(values == expected || is_reported, "{times} reads after {skipped}");
    }
    assert!(20 < started, "{started}");
}

#[test]
fn a_deletion_that_could_not_be_read_once_does_not_give_points_back() {
    let mut folder = DataFolder::new();
    folder.live(&[("first", 1.0)], true);
    // A store that does not know the openings that follow: it gives their metrics ids of its own.
    let older = DataFolder::of(&folder, &folder);
    folder.live(&[("second", 1.0)], true);
    let name_of_filler = |i: u32| format!("some.filler.{i}");
    let fillers: Vec<String> = (0..2000).map(name_of_filler).collect();
    let mut points = vec![("a", 1.0)];
    points.extend(fillers.iter().map(|name| (&**name, 2.0)));
    points.push(("a", 3.0));
    folder.live(&points, false);
    // Deleted and made again, at another time.
    let life = runtime(2);
    life.block_on(async {
        let ingest = folder.open().await.unwrap();
        let registry = ingest.registry();
        let metric = registry.read().find(registry.hash(b"a"), b"a").unwrap();
        ingest.delete(&[metric]).await.unwrap();
        send_at(&ingest, "a", time() - 5, 4.0).await;
        tokio::time::sleep(Duration::from_millis(1200)).await;
    });
    life.shutdown_timeout(Duration::from_secs(2));
    folder.memory_limit = 4096;
    let segments = folder.segments();
    let with_deletion = segments.last().unwrap().file_name().unwrap().to_str().unwrap();
    let with_deletion: &'static str = with_deletion.to_owned().leak();
    let (mut started, mut refused) = (0, 0);
    for (times, skipped) in (6..14).flat_map(|times| (0..4).map(move |skipped| (times, skipped))) {
        let copied = DataFolder { memory_limit: 4096, ..DataFolder::of(&older, &folder) };
        let (reads, is_bad) = (AtomicU32::new(0), Arc::new(AtomicBool::new(false)));
        let bad = is_bad.clone();
        let disk = FailingDisk::new(Arc::new(SystemDisk), move |call, path: &Path| {
            if call == Call::Read && path.ends_with(with_deletion) {
                bad.store((skipped..skipped + times).contains(&reads.fetch_add(1, Relaxed)), Relaxed);
            }
            None
        });
        let disk = disk.with_sector_bad_while(with_deletion, 0..1, is_bad);
        let host = Host { disk: Arc::new(disk), ..Host::system() };
        let life = runtime(2);
        let value = life.block_on(async {
            let Ok(ingest) = copied.open_on(host).await else { return None };
            tokio::time::timeout(Duration::from_secs(60), ingest.flush()).await.unwrap().unwrap();
            Some(read(&ingest, "a").await)
        });
        life.shutdown_timeout(Duration::from_secs(2));
        let Some(value) = value else {
            refused += 1;
            continue;
        };
        started += 1;
        assert!(value.is_none() || 0 < copied.damage.totals().0, "{times} reads after {skipped}: {value:?}");
    }
    assert!(0 < started && 0 < refused, "{started} {refused}");
}

/// A deletion names an id of its opening; the name and the points are of openings before, and the store knows none of them.
#[test]
fn a_deletion_ends_a_metric_of_earlier_openings_that_an_older_store_does_not_know() {
    let folder = DataFolder::new();
    folder.live(&[("first", 1.0)], true);
    let older = DataFolder::of(&folder, &folder);
    let fillers: Vec<String> = (0..2000).map(|i| format!("some.filler.{i}")).collect();
    let mut points = vec![("a", 1.0)];
    points.extend(fillers.iter().map(|name| (&**name, 2.0)));
    folder.live(&points, false);
    folder.live(&[("a", 3.0)], false);
    let life = runtime(2);
    life.block_on(async {
        let ingest = folder.open().await.unwrap();
        let registry = ingest.registry();
        let metric = registry.read().find(registry.hash(b"a"), b"a").unwrap();
        ingest.delete(&[metric]).await.unwrap();
        send_at(&ingest, "a", time() - 5, 4.0).await;
        tokio::time::sleep(Duration::from_millis(1200)).await;
    });
    life.shutdown_timeout(Duration::from_secs(2));
    for memory_limit in [4096, 1 << 30] {
        let copied = DataFolder { memory_limit, ..DataFolder::of(&older, &folder) };
        let life = runtime(2);
        life.block_on(async {
            let ingest = copied.open().await.unwrap();
            for flushes in [false, true] {
                if flushes {
                    ingest.flush().await.unwrap();
                }
                assert_eq!(read(&ingest, "a").await, None, "{memory_limit} {flushes}");
            }
        });
        life.shutdown_timeout(Duration::from_secs(2));
    }
}

#[test]
fn ids_of_pages_that_cannot_be_read_are_not_given_again() {
    let folder = DataFolder::new();
    folder.live(&[("a", 1.0)], true);
    let other = DataFolder::of(&folder, &folder);
    other.live(&[("c", 1.0)], true);
    let names: Vec<String> = (0..300).map(|i| format!("some.metric.{i}")).collect();
    let points: Vec<(&str, f64)> = names.iter().map(|name| (&**name, 1.0)).collect();
    folder.live(&points, false);
    let both = DataFolder::of(&other, &folder);
    let segment = folder.segments().pop().unwrap();
    let bytes = fs::metadata(&segment).unwrap().len();
    let disk = FailingDisk::new(Arc::new(SystemDisk), |_, _| None);
    let name: &'static str = segment.file_name().unwrap().to_str().unwrap().to_owned().leak();
    let disk = disk.with_bad_sector(name, bytes / 2..bytes);
    let host = Host { disk: Arc::new(disk), ..Host::system() };
    runtime(2).block_on(async {
        let ingest = both.open_on(host).await.unwrap();
        let registry = ingest.registry();
        let given = registry.read().find(registry.hash(b"some.metric.0"), b"some.metric.0").unwrap();
        // The journal gave 1 to 300.
        assert!(300 < given.0, "{given:?}");
    });
}

#[test]
fn a_segment_with_gigabytes_of_zeros_at_its_end_is_read_as_without() {
    let (folder, names, expected) = many_points();
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    let segment = fs::OpenOptions::new().write(true).open(&folder.segments()[0]).unwrap();
    segment.set_len(3 << 30).unwrap();
    drop(segment);
    assert_eq!(folder.values(&names), expected);
    assert_eq!(folder.damage.totals().0, 0, "{:?}", folder.damage.examples());
}

/// Two segments with points that are not stored, behind some that are. Returns their files.
fn two_unstored(folder: &DataFolder) -> Vec<PathBuf> {
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
        let folder = DataFolder::new();
        let files = two_unstored(&folder);
        fs::remove_file(&files[missing]).unwrap();
        assert_eq!(folder.values(&["a", "b"]), values);
        let found = folder.damage.examples();
        assert_eq!(found.iter().filter(|found| found.how.contains("is missing")).count(), 1, "{found:?}");
    }
    // The newest one that the store knows of.
    let folder = DataFolder::new();
    folder.live(&[("a", 1.0)], true);
    folder.live(&[], false);
    assert_eq!((folder.values(&["a"]), folder.damage.totals().0), (vec![Some(1.0)], 0), "a kill damages nothing");
    let folder = DataFolder::new();
    folder.live(&[("a", 1.0)], true);
    fs::remove_file(&folder.segments()[0]).unwrap();
    assert_eq!(folder.values(&["a"]), [Some(1.0)]);
    let found = folder.damage.examples();
    assert!(found.len() == 1 && found[0].file.ends_with("00000002.journal"), "{found:?}");
}

#[test]
fn a_closed_segment_that_has_lost_its_end_is_reported() {
    let folder = DataFolder::new();
    let files = two_unstored(&folder);
    let whole = fs::read(&files[0]).unwrap();
    let ends: Vec<usize> = ingest::wal::records(&whole).map(|(place, _)| place.end).collect();
    let (last, before) = (ends[ends.len() - 1], ends[ends.len() - 2]);
    assert_eq!(last, whole.len());
    // Exactly behind a record, and within one.
    for end in [before, before + 7, last - 1] {
        fs::write(&files[0], &whole[..end]).unwrap();
        let found = |folder: &DataFolder| -> Vec<Damage> {
            let found = folder.damage.examples().into_iter();
            found.filter(|found| found.how.contains(&format!("it has {end} bytes, and {last} were"))).collect()
        };
        assert_eq!(folder.values(&["a", "b"]), [Some(1.0), Some(3.0)]);
        let reported = found(&folder);
        assert!(reported.len() == 1 && reported[0].what == "journal records", "{:?}", folder.damage.examples());
        assert!(reported[0].how.contains("they were accepted"), "{reported:?}");
    }
    fs::write(&files[0], &whole).unwrap();
    let found = folder.damage.totals();
    assert_eq!((folder.values(&["a", "b"]), folder.damage.totals()), (vec![Some(2.0), Some(3.0)], found));
}

#[test]
fn a_segment_that_has_lost_its_contents_is_reported() {
    let folder = DataFolder::new();
    let files = two_unstored(&folder);
    fs::write(&files[0], b"").unwrap();
    assert_eq!(folder.values(&["a", "b"]), [Some(1.0), Some(3.0)]);
    let found = folder.damage.examples();
    assert!(found.len() == 1 && found[0].how.contains("no header and no record"), "{found:?}");
}

#[test]
fn a_segment_that_the_store_has_already_overwrites_nothing() {
    let folder = DataFolder::new();
    folder.live(&[("a", 1.0), ("b", 1.0)], false);
    let old = folder.segments().remove(0);
    let bytes = fs::read(&old).unwrap();
    folder.live(&[("a", 2.0)], true);
    assert!(!old.exists());
    // Soon after it was removed, and again after another flush.
    fs::write(&old, &bytes).unwrap();
    assert_eq!(folder.values(&["a", "b"]), [Some(2.0), Some(1.0)]);
    assert_eq!(folder.damage.totals().0, 0);
    folder.live(&[("b", 4.0)], true);
    assert!(!old.exists());
    folder.live(&[("b", 5.0)], true);
    let newest = folder.segments().pop().unwrap();
    fs::write(&old, &bytes).unwrap();
    assert_eq!(folder.values(&["a", "b"]), [Some(2.0), Some(5.0)]);
    let found = folder.damage.examples();
    assert!(found.len() == 1 && found[0].what == "stale journal segment", "{found:?}");
    assert_eq!(fs::read(folder.dir.path().join(found[0].moved_to.as_ref().unwrap())).unwrap(), bytes);
    // No number is given twice: an emptied journal goes on behind it.
    fs::remove_dir_all(folder.journal()).unwrap();
    folder.live(&[("b", 6.0)], false);
    assert!(newest < folder.segments()[0]);
    assert_eq!(folder.values(&["a", "b"]), [Some(2.0), Some(6.0)]);
}

#[test]
fn an_older_store_next_to_a_newer_journal_says_what_is_missing() {
    let folder = DataFolder::new();
    folder.live(&[("a", 1.0)], true);
    let older = tempfile::tempdir().unwrap();
    copy(&folder.dir.path().join("store"), older.path());
    folder.live(&[("a", 2.0), ("b", 2.0)], true);
    folder.live(&[("b", 3.0)], false);
    fs::remove_dir_all(folder.dir.path().join("store")).unwrap();
    copy(older.path(), &folder.dir.path().join("store"));
    assert_eq!(folder.values(&["a"]), [Some(1.0)]);
    let found = folder.damage.examples();
    assert!(found.iter().any(|found| found.how.contains("is missing")), "{found:?}");
}

/// A host whose disk has no room for the journal while the flag is set.
fn filled_by(is_full: &Arc<AtomicBool>) -> Host {
    let full = is_full.clone();
    let disk = FailingDisk::new(Arc::new(SystemDisk), move |call, path: &Path| {
        let fails = call == Call::Write && path.extension().is_some_and(|end| end == "journal") && full.load(Relaxed);
        fails.then(|| io::Error::from_raw_os_error(ENOSPC))
    });
    Host { disk: Arc::new(disk), ..Host::system() }
}

/// A sender that gives up while the disk is full, and a disk that has room again afterwards. Returns when the journal
/// works without a sender.
async fn fill_and_free(ingest: &Arc<Ingest>, is_full: &AtomicBool) {
    is_full.store(true, Relaxed);
    let sending = tokio::time::timeout(Duration::from_millis(200), send(ingest, "a", 1.0)).await;
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
}

#[test]
fn a_journal_that_could_not_be_written_recovers_without_a_sender() {
    let (folder, is_full) = (DataFolder::new(), Arc::new(AtomicBool::new(false)));
    runtime(2).block_on(async {
        let ingest = folder.open_on(filled_by(&is_full)).await.unwrap();
        fill_and_free(&ingest, &is_full).await;
    });
}

#[test]
fn a_journal_that_often_could_not_be_written_keeps_every_acknowledged_point_in_few_files() {
    let (folder, is_full) = (DataFolder::new(), Arc::new(AtomicBool::new(false)));
    let names: Vec<String> = (0..3).map(|i| format!("n{i}")).collect();
    let life = runtime(2);
    life.block_on(async {
        let ingest = folder.open_on(filled_by(&is_full)).await.unwrap();
        for (i, name) in (1..).zip(&names) {
            for _ in 0..3 {
                fill_and_free(&ingest, &is_full).await;
            }
            assert_eq!(folder.segments().len(), i, "one without a record, behind those with one");
            send(&ingest, name, i as f64).await;
        }
    });
    life.shutdown_timeout(Duration::from_secs(2));
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    assert_eq!(folder.values(&names), [Some(1.0), Some(2.0), Some(3.0)]);
    assert_eq!(folder.damage.totals().0, 0, "{:?}", folder.damage.examples());
}

/// A host whose folder `damaged` takes nothing.
fn without_room_for_damage(error: i32) -> Host {
    let disk = FailingDisk::new(Arc::new(SystemDisk), move |call, path: &Path| {
        let is_damaged = path.components().any(|part| part.as_os_str() == "damaged");
        let changes = !matches!(call, Call::Read | Call::ReadDir);
        (is_damaged && changes).then(|| io::Error::from_raw_os_error(error))
    });
    Host { disk: Arc::new(disk), ..Host::system() }
}

/// A life on a host that reads these values, sends a point, and flushes.
fn flushed_on(folder: &DataFolder, host: Host) {
    let life = runtime(2);
    life.block_on(async {
        let ingest = folder.open_on(host).await.unwrap();
        send(&ingest, "later", 9.0).await;
        ingest.flush().await.unwrap();
    });
    life.shutdown_timeout(Duration::from_secs(2));
}

/// Starts and flushes where damaged bytes cannot be copied keep the file that has them, and put it aside later.
fn check_kept_without_room(folder: &DataFolder, damaged: &Path, values: &[Option<f64>]) {
    let bytes = fs::read(damaged).unwrap();
    for error in [ENOSPC, EIO, EROFS] {
        let host = without_room_for_damage(error);
        assert_eq!(folder.values_on(host, &["a", "b"]).unwrap(), values, "{error}");
    }
    let found = folder.damage.examples();
    assert!(found.iter().any(|found| found.how.contains("the file stays")), "{found:?}");
    flushed_on(folder, without_room_for_damage(ENOSPC));
    let aside = damaged.with_extension("damaged");
    assert!(!damaged.exists(), "its points are stored");
    assert_eq!(fs::read(&aside).unwrap(), bytes);
    assert_eq!(folder.values_on(without_room_for_damage(EIO), &["later"]).unwrap(), [Some(9.0)]);
    assert_eq!(fs::read(&aside).unwrap(), bytes);
    // There is room.
    assert_eq!(folder.values(&["later"]), [Some(9.0)]);
    assert!(!aside.exists());
    let name = aside.file_name().unwrap().to_str().unwrap();
    assert_eq!(fs::read(folder.dir.path().join("damaged").join(format!("journal_{name}"))).unwrap(), bytes);
}

#[test]
fn damage_of_the_journal_without_room_for_its_bytes_refuses_no_start() {
    let folder = DataFolder::new();
    let files = two_unstored(&folder);
    let mut bytes = fs::read(&files[1]).unwrap();
    let last = bytes.len() - 3;
    bytes[last] ^= 1;
    fs::write(&files[1], &bytes).unwrap();
    check_kept_without_room(&folder, &files[1], &[Some(2.0), Some(1.0)]);
}

#[test]
fn points_without_a_name_and_without_room_for_them_refuse_no_start() {
    let folder = DataFolder::new();
    folder.live(&[("a", 1.0)], true);
    folder.live(&[("b", 1.0)], false);
    let file = folder.segments().pop().unwrap();
    let bytes = fs::read(&file).unwrap();
    // The record that names b; the store has not got it either.
    let name = bytes.windows(3).position(|bytes| bytes == [1, 0, b'b']).unwrap();
    let mut bytes = bytes;
    bytes[name + 2] ^= 1;
    fs::write(&file, &bytes).unwrap();
    fs::remove_dir_all(folder.store().join("names")).ok();
    check_kept_without_room(&folder, &file, &[None, None]);
}

/// A process that is killed after this.
fn in_life(folder: &DataFolder, then: impl AsyncFn(&Ingest)) {
    let life = runtime(2);
    life.block_on(async { then(&*folder.open().await.unwrap()).await });
    life.shutdown_timeout(Duration::from_secs(2));
}

#[test]
fn points_that_nothing_named_at_a_start_are_put_back_once_the_log_of_names_is_there_again() {
    let folder = DataFolder::new();
    in_life(&folder, async |ingest| {
        send_at(ingest, "a", time() - 5, 1.0).await;
        ingest.flush().await.unwrap();
    });
    in_life(&folder, async |ingest| send(ingest, "a", 2.0).await);
    // Its disk is not mounted.
    let (names, away) = (folder.store().join("names"), folder.dir.path().join("away"));
    fs::rename(&names, &away).unwrap();
    in_life(&folder, async |ingest| ingest.flush().await.unwrap());
    assert_eq!(folder.damage.examples().iter().filter(|found| found.what == "points without a name").count(), 1);
    fs::remove_dir_all(&names).unwrap();
    fs::rename(&away, &names).unwrap();
    let folder = DataFolder { damage: DamageLog::new(), ..folder };
    in_life(&folder, async |ingest| {
        assert_eq!(read(ingest, "a").await, None);
        assert_eq!(ingest.put_back().await.unwrap(), 1);
        assert_eq!(read(ingest, "a").await, Some(2.0));
        assert_eq!(ingest.put_back().await.unwrap(), 0);
    });
    let folder = DataFolder { damage: DamageLog::new(), ..folder };
    assert_eq!(folder.values(&["a"]), [Some(2.0)]);
    assert_eq!(folder.damage.totals().0, 0, "{:?}", folder.damage.examples());
}

#[test]
fn names_that_come_while_their_log_is_away_are_new_metrics_and_no_value_goes_to_another_name() {
    let folder = DataFolder::new();
    folder.live(&[("a", 1.0), ("b", 2.0)], true);
    let (names, away) = (folder.store().join("names"), folder.dir.path().join("away"));
    fs::rename(&names, &away).unwrap();
    // The first of them would get the id of "a", if that were given again.
    folder.live(&[("c", 3.0), ("a", 4.0)], true);
    assert_eq!(folder.values(&["a", "b", "c"]), [Some(4.0), None, Some(3.0)]);
    assert_eq!(lost_names(&SystemDisk, &folder.store()), [(MetricId(0), MetricId(1))]);
    // Both logs are there, as on a disk of the network that has come back: the name has the first of its metrics.
    fs::copy(away.join("00000001.log"), names.join("00000001.log")).unwrap();
    for _ in 0..2 {
        assert_eq!(folder.values(&["a", "b", "c"]), [Some(1.0), Some(2.0), Some(3.0)]);
        let same = same_names(&SystemDisk, &folder.store());
        assert!(same.len() == 1 && same[0].0 == "a" && same[0].1[0] == MetricId(0), "{same:?}");
        assert_eq!(lost_names(&SystemDisk, &folder.store()), []);
    }
}

#[test]
fn a_stale_segment_without_room_to_move_it_refuses_no_start() {
    let folder = DataFolder::new();
    folder.live(&[("a", 1.0), ("b", 1.0)], false);
    let old = folder.segments().remove(0);
    let bytes = fs::read(&old).unwrap();
    folder.live(&[("a", 2.0)], true);
    folder.live(&[("b", 4.0)], true);
    fs::write(&old, &bytes).unwrap();
    check_kept_without_room(&folder, &old, &[Some(2.0), Some(4.0)]);
}

#[test]
fn points_of_a_segment_that_was_missing_at_a_start_are_put_back_once_it_is_there_again() {
    for is_flushed in [false, true] {
        let folder = DataFolder::new();
        let names: Vec<String> = (0..8).map(|i| format!("some.metric.{i}")).collect();
        let all = |value: f64| -> Vec<(&str, f64)> { names.iter().map(|name| (&**name, value)).collect() };
        let life = runtime(2);
        life.block_on(async {
            let ingest = folder.open().await.unwrap();
            for (value, flushes) in [(1.0, true), (2.0, false)] {
                for (name, value) in all(value) {
                    send(&ingest, name, value).await;
                }
                if flushes {
                    ingest.flush().await.unwrap();
                }
            }
        });
        life.shutdown_timeout(Duration::from_secs(2));
        let segment = folder.segments().pop().unwrap();
        let elsewhere = folder.dir.path().join("elsewhere");
        fs::rename(&segment, &elsewhere).unwrap();
        // Points are taken, and stored: the next flush counts the number of the missing one as stored.
        let life = runtime(2);
        life.block_on(async {
            let ingest = folder.open().await.unwrap();
            send_at(&ingest, &names[0], time(), 3.0).await;
            send_at(&ingest, &names[1], time() - 5, 4.0).await;
            if is_flushed {
                ingest.flush().await.unwrap();
            } else {
                ingest.close().await.unwrap();
            }
        });
        life.shutdown_timeout(Duration::from_secs(2));
        assert!(folder.damage.examples().iter().any(|found| found.how.contains("is missing")));
        fs::rename(&elsewhere, &segment).unwrap();
        let folder = DataFolder { damage: DamageLog::new(), ..folder };
        let life = runtime(2);
        life.block_on(async {
            let ingest = folder.open().await.unwrap();
            let found = folder.damage.examples();
            assert!(found.len() == 1 && found[0].how.contains("it is back"), "{found:?}");
            assert!(!segment.exists());
            ingest.put_back().await.unwrap();
            assert_eq!(folder.damage.examples(), []);
            for (i, name) in names.iter().enumerate() {
                assert_eq!(read(&ingest, name).await, Some(if i == 0 { 3.0 } else { 2.0 }), "{name}");
            }
            ingest.flush().await.unwrap();
        });
        life.shutdown_timeout(Duration::from_secs(2));
        let folder = DataFolder { damage: DamageLog::new(), ..folder };
        folder.live(&[], true);
        assert_eq!(folder.damage.examples(), []);
    }
}
