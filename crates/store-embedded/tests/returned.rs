//! A file of rows that was missing, and comes back.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    time::{Duration, Instant},
};

use host::{Call, FailingDisk, Host, ManualClock, SystemDisk};
use metric::{MetricId, Policy};
use store::{Fetch, PointStore, Run};
use store_embedded::{EmbeddedDriver, EmbeddedOptions, lost_rows, unlisted_rows};

fn run(id: u32) -> Run {
    let policy = Policy::default();
    Run {
        metric: MetricId(id),
        name: format!("a.m{id}"),
        table: policy.table(0),
        first_slot: 28_333_000,
        values: vec![0.5, 1.5],
        counts: Vec::new(),
        aggregation: policy.aggregation,
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
}

fn options(data: &std::path::Path) -> EmbeddedOptions {
    EmbeddedOptions { data: Some(data.to_owned()), merges: false, ..EmbeddedOptions::default() }
}

/// The files of rows, in the order of their flushes.
fn files(driver: &EmbeddedDriver) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = driver.files().into_iter().map(|file| file.path).collect();
    files.sort();
    files
}

/// Whether a file with this name is in a folder of the data folder.
fn has(folder: PathBuf, name: &str) -> bool {
    fs::read_dir(folder)
        .is_ok_and(|mut all| all.any(|entry| entry.unwrap().file_name().to_string_lossy().ends_with(name)))
}

/// A store with three files of a window: each has a metric of its own, and a value of metric 9.
fn three(store: &Path, data: &Path) -> Vec<PathBuf> {
    let driver = EmbeddedDriver::open(store, options(data)).unwrap();
    for id in 0..3 {
        let again = Run { values: vec![f64::from(id)], ..run(9) };
        block_on(driver.write(vec![run(id), again])).unwrap();
        block_on(driver.sync()).unwrap();
    }
    files(&driver).iter().map(|file| store.join(file)).collect()
}

/// The values of a metric, and whether some may be lost.
fn read(driver: &EmbeddedDriver, id: u32) -> (Vec<f64>, bool) {
    let Run { metric, name, table, first_slot, aggregation, .. } = run(id);
    let fetch = Fetch { metric, name, table, first_slot, end_slot: first_slot + 1, aggregation };
    let cells = block_on(driver.fetch(vec![fetch])).unwrap().remove(0);
    (cells.values, cells.is_damaged)
}

/// What a start reports of rows; the metrics have no names here.
fn found(options: &EmbeddedOptions) -> Vec<String> {
    let of_rows = options.damage.examples().into_iter().filter(|damage| damage.file.contains("datapoints"));
    of_rows.map(|damage| format!("{}: {}", damage.file, damage.how)).collect()
}

fn unlisted(store: &Path) -> Vec<PathBuf> {
    unlisted_rows(&SystemDisk, store).unwrap().into_iter().map(|(path, _)| path).collect()
}

#[test]
fn a_file_that_comes_back_after_merges_is_used_as_if_it_had_never_been_missing() {
    // The first, one in the middle, the last, and all.
    for missing in [vec![0], vec![1], vec![2], vec![0, 1, 2]] {
        let data = tempfile::tempdir().unwrap();
        let store = data.path().join("store");
        let paths = three(&store, data.path());
        let aside = |n: &usize| data.path().join(format!("aside{n}"));
        missing.iter().for_each(|n| fs::rename(&paths[*n], aside(n)).unwrap());
        for start in 0..3 {
            let opened = options(data.path());
            let driver = EmbeddedDriver::open(&store, opened.clone()).unwrap();
            let reports = found(&opened);
            assert_eq!(reports.len(), missing.len(), "{reports:?}");
            assert!(reports.iter().all(|report| report.contains("missing")), "start {start}: {reports:?}");
            let wanted = |id: u32| if missing.contains(&(id as usize)) { (vec![], true) } else { (vec![0.5], false) };
            for id in 0..3 {
                assert_eq!((read(&driver, id).0, read(&driver, id).1 && wanted(id).1), wanted(id), "{missing:?}");
            }
            assert!(read(&driver, 9).1, "an older value may be in its place");
            // Newer values than all: nothing of the file takes their place.
            block_on(driver.write(vec![Run { values: vec![7.0], ..run(10 + start) }])).unwrap();
            driver.settle().unwrap();
        }
        assert_eq!(lost_rows(&SystemDisk, &store).iter().filter(|lost| lost.is_file).count(), missing.len());
        missing.iter().for_each(|n| fs::rename(aside(n), &paths[*n]).unwrap());
        assert_eq!(lost_rows(&SystemDisk, &store), []);
        for _ in 0..2 {
            let opened = options(data.path());
            let driver = EmbeddedDriver::open(&store, opened.clone()).unwrap();
            assert_eq!(found(&opened), Vec::<String>::new(), "{missing:?}");
            for id in 0..3 {
                assert_eq!(read(&driver, id), (vec![0.5], false), "{missing:?}");
                assert_eq!(read(&driver, 10 + id), (vec![7.0], false), "{missing:?}");
            }
            assert_eq!(read(&driver, 9), (vec![2.0], false), "{missing:?}");
            driver.settle().unwrap();
            assert_eq!(files(&driver).len(), 1, "nothing keeps them apart any more");
        }
    }
}

#[test]
fn a_file_that_comes_back_while_the_store_is_open_is_used_within_a_minute() {
    let data = tempfile::tempdir().unwrap();
    let store = data.path().join("store");
    let second = three(&store, data.path()).remove(1);
    let aside = data.path().join("aside");
    fs::rename(&second, &aside).unwrap();
    let clock = Arc::new(ManualClock::at(1_795_000_000));
    let host = Host { clock: clock.clone(), ..Host::system() };
    let opened = EmbeddedOptions { host, merges: true, ..options(data.path()) };
    let driver = EmbeddedDriver::open(&store, opened.clone()).unwrap();
    assert_eq!((found(&opened).len(), driver.status().missing_files, read(&driver, 1).1), (1, 1, true));
    fs::rename(&aside, &second).unwrap();
    let began = Instant::now();
    while 0 < driver.status().missing_files {
        assert!(began.elapsed() < Duration::from_secs(30), "it was not found in time");
        clock.advance(Duration::from_secs(61));
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!((found(&opened), read(&driver, 1)), (vec![], (vec![0.5], false)));
}

#[test]
fn a_file_that_is_still_being_copied_back_is_used_once_it_is_whole() {
    // The copy began while the store is open, and before its start.
    for is_there_at_start in [false, true] {
        for cut in [0, 40, 2] {
            let data = tempfile::tempdir().unwrap();
            let store = data.path().join("store");
            let second = three(&store, data.path()).remove(1);
            let bytes = fs::read(&second).unwrap();
            fs::remove_file(&second).unwrap();
            drop(EmbeddedDriver::open(&store, options(data.path())).unwrap());
            let clock = Arc::new(ManualClock::at(1_795_000_000));
            let host = Host { clock: clock.clone(), ..Host::system() };
            let opened = EmbeddedOptions { host, ..options(data.path()) };
            let copied = bytes.len().checked_div(cut).unwrap_or(0);
            let copy = || fs::write(&second, &bytes[..copied]).unwrap();
            if is_there_at_start {
                copy();
            }
            let driver = EmbeddedDriver::open(&store, opened.clone()).unwrap();
            copy();
            for _ in 0..3 {
                clock.advance(Duration::from_secs(61));
                driver.look_after_files();
                driver.settle().unwrap();
                assert_eq!((driver.status().missing_files, second.exists()), (1, true), "{copied} bytes");
            }
            fs::write(&second, &bytes).unwrap();
            clock.advance(Duration::from_secs(61));
            driver.look_after_files();
            assert_eq!(
                (found(&opened), driver.status().missing_files, read(&driver, 1)),
                (vec![], 0, (vec![0.5], false))
            );
        }
    }
}

#[test]
fn of_a_file_that_is_back_without_its_end_only_the_end_is_read() {
    let data = tempfile::tempdir().unwrap();
    let store = data.path().join("store");
    let second = three(&store, data.path()).remove(1);
    let bytes = fs::read(&second).unwrap();
    fs::remove_file(&second).unwrap();
    drop(EmbeddedDriver::open(&store, options(data.path())).unwrap());
    // Its blocks are whole.
    fs::write(&second, &bytes[..bytes.len() - 4]).unwrap();
    let opened = Arc::new(AtomicU64::new(0));
    let (path, counted) = (second.clone(), opened.clone());
    let disk = FailingDisk::new(Arc::new(SystemDisk), move |call, of| {
        if call == Call::Open && of == path {
            counted.fetch_add(1, Relaxed);
        }
        None
    });
    let clock = Arc::new(ManualClock::at(1_795_000_000));
    let host = Host { clock: clock.clone(), disk: Arc::new(disk), ..Host::system() };
    let driver = EmbeddedDriver::open(&store, EmbeddedOptions { host, ..options(data.path()) }).unwrap();
    for _ in 0..3 {
        let before = opened.load(Relaxed);
        clock.advance(Duration::from_secs(61));
        driver.look_after_files();
        // An opening that finds no footer reads all blocks, and is made three times.
        assert_eq!(opened.load(Relaxed) - before, 1);
    }
    fs::write(&second, &bytes).unwrap();
    clock.advance(Duration::from_secs(61));
    driver.look_after_files();
    assert_eq!(read(&driver, 1), (vec![0.5], false));
}

#[test]
fn a_file_that_is_back_without_its_end_opens_no_other_one_that_the_disk_does_not_return() {
    let data = tempfile::tempdir().unwrap();
    let store = data.path().join("store");
    let [first, second, _] = three(&store, data.path()).try_into().unwrap();
    let bytes = fs::read(&second).unwrap();
    fs::remove_file(&second).unwrap();
    drop(EmbeddedDriver::open(&store, options(data.path())).unwrap());
    fs::write(&second, &bytes[..bytes.len() / 2]).unwrap();
    let (is_bad, opened, written) =
        (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (is_bad_now, counted, counted_writes, path) = (is_bad.clone(), opened.clone(), written.clone(), second.clone());
    let disk = FailingDisk::new(Arc::new(SystemDisk), move |call, of| {
        counted.fetch_add(u64::from(call == Call::Open && of == path), Relaxed);
        counted_writes.fetch_add(u64::from(call == Call::Write), Relaxed);
        (call == Call::Read && of == first && is_bad_now.load(Relaxed)).then(|| io::Error::from_raw_os_error(5))
    });
    let clock = Arc::new(ManualClock::at(1_795_000_000));
    let host = Host { clock: clock.clone(), disk: Arc::new(disk), ..Host::system() };
    let driver = EmbeddedDriver::open(&store, EmbeddedOptions { host, ..options(data.path()) }).unwrap();
    for _ in 0..3 {
        let before = (opened.load(Relaxed), written.load(Relaxed));
        clock.advance(Duration::from_secs(61));
        driver.look_after_files();
        // The manifest is written under the locks of flushes.
        assert_eq!((opened.load(Relaxed) - before.0, written.load(Relaxed) - before.1), (2, 0));
    }
    is_bad.store(false, Relaxed);
    clock.advance(Duration::from_secs(61));
    driver.look_after_files();
    assert_eq!((read(&driver, 0), driver.status().missing_files), ((vec![0.5], false), 1));
}

#[test]
fn a_merged_file_that_grew_is_kept() {
    let data = tempfile::tempdir().unwrap();
    let store = data.path().join("store");
    let second = three(&store, data.path()).remove(1);
    let driver = EmbeddedDriver::open(&store, options(data.path())).unwrap();
    let grown = [&fs::read(&second).unwrap()[..], b"what a copy wrote since"].concat();
    fs::write(&second, &grown).unwrap();
    driver.settle().unwrap();
    assert_eq!((files(&driver).len(), second.exists()), (1, false));
    drop(driver);
    let mut kept = fs::read_dir(data.path().join("damaged")).unwrap().map(|entry| entry.unwrap().path());
    assert!(kept.any(|path| fs::read(path).unwrap() == grown));
}

#[test]
fn a_merged_file_that_got_nothing_but_its_end_is_removed() {
    let data = tempfile::tempdir().unwrap();
    let store = data.path().join("store");
    let second = three(&store, data.path()).remove(1);
    let bytes = fs::read(&second).unwrap();
    fs::write(&second, &bytes[..bytes.len() - 4]).unwrap();
    let opened = options(data.path());
    let driver = EmbeddedDriver::open(&store, opened.clone()).unwrap();
    assert_eq!(read(&driver, 1), (vec![0.5], false));
    let before = found(&opened);
    fs::write(&second, &bytes).unwrap();
    driver.settle().unwrap();
    assert_eq!((files(&driver).len(), second.exists(), found(&opened)), (1, false, before));
    drop(driver);
    assert!(!has(data.path().join("damaged"), ".rows"));
}

#[test]
fn a_read_that_ends_after_a_merge_removes_no_file() {
    let data = tempfile::tempdir().unwrap();
    let store = data.path().join("store");
    let second = three(&store, data.path()).remove(1);
    let (open, path) = (Arc::new(OnceLock::<Weak<EmbeddedDriver>>::new()), second.clone());
    let (of_disk, is_merged) = (open.clone(), AtomicBool::new(false));
    // A merge, in the middle of a read.
    let disk = FailingDisk::new(Arc::new(SystemDisk), move |call, of| {
        let driver = of_disk.get().and_then(Weak::upgrade).filter(|_| call == Call::Read && of == path);
        if let Some(driver) = driver.filter(|_| !is_merged.swap(true, Relaxed)) {
            std::thread::spawn(move || driver.settle().unwrap()).join().unwrap();
        }
        None
    });
    let host = Host { disk: Arc::new(disk), ..Host::system() };
    let driver = Arc::new(EmbeddedDriver::open(&store, EmbeddedOptions { host, ..options(data.path()) }).unwrap());
    open.set(Arc::downgrade(&driver)).unwrap();
    assert_eq!(read(&driver, 1), (vec![0.5], false));
    // The thread that read may be one that answers other queries, too.
    assert_eq!((files(&driver).len(), second.exists()), (1, true));
    driver.look_after_files();
    assert!(!second.exists());
}

#[test]
fn a_merged_file_goes_in_the_middle_of_the_next_merge_once_its_reader_has_ended() {
    let data = tempfile::tempdir().unwrap();
    let store = data.path().join("store");
    let second = three(&store, data.path()).remove(1);
    let clock = Arc::new(ManualClock::at(1_795_000_000));
    let (reads, is_reading) = mpsc::channel();
    let (goes_on, may_go_on) = mpsc::channel();
    let (ends, has_ended) = mpsc::channel();
    let (may_go_on, has_ended) = (Mutex::new(may_go_on), Mutex::new(has_ended));
    let is_next = Arc::new(AtomicBool::new(false));
    let is_left = Arc::new(Mutex::new(Vec::new()));
    let (of_disk, passes, left, path) = (is_next.clone(), clock.clone(), is_left.clone(), second.clone());
    let is_held = Arc::new(AtomicBool::new(true));
    let held = is_held.clone();
    let disk = FailingDisk::new(Arc::new(SystemDisk), move |call, of| {
        if call != Call::Read {
            return None;
        }
        if of == path && !of_disk.load(Relaxed) && !held.swap(true, Relaxed) {
            reads.send(()).unwrap();
            may_go_on.lock().unwrap().recv().unwrap();
        }
        if of_disk.load(Relaxed) && of.parent() != path.parent() && of.extension().is_some_and(|rows| rows == "rows") {
            let mut left = left.lock().unwrap();
            if left.is_empty() {
                goes_on.send(()).unwrap();
                has_ended.lock().unwrap().recv().unwrap();
            }
            left.push(path.exists());
            passes.advance(Duration::from_secs(2));
        }
        None
    });
    let host = Host { disk: Arc::new(disk), clock, ..Host::system() };
    let driver = Arc::new(EmbeddedDriver::open(&store, EmbeddedOptions { host, ..options(data.path()) }).unwrap());
    is_held.store(false, Relaxed);
    let of_reader = driver.clone();
    let reader = std::thread::spawn(move || {
        assert_eq!(read(&of_reader, 1), (vec![0.5], false));
        ends.send(()).unwrap();
    });
    is_reading.recv().unwrap();
    driver.settle().unwrap();
    for id in 0..3 {
        block_on(driver.write(vec![Run { first_slot: 28_533_000, ..run(id) }])).unwrap();
        block_on(driver.sync()).unwrap();
    }
    assert!(second.exists());
    is_next.store(true, Relaxed);
    driver.settle().unwrap();
    reader.join().unwrap();
    let is_left = is_left.lock().unwrap();
    assert_eq!((is_left.first(), is_left.last()), (Some(&true), Some(&false)), "{is_left:?}");
}

#[test]
fn a_file_that_is_short_at_a_start_is_used_when_it_is_whole() {
    let data = tempfile::tempdir().unwrap();
    let store = data.path().join("store");
    let path = store.join(
        &files(&{
            let driver = EmbeddedDriver::open(&store, options(data.path())).unwrap();
            block_on(driver.write((0..5_000).map(run).collect())).unwrap();
            block_on(driver.sync()).unwrap();
            driver
        })[0],
    );
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let clock = Arc::new(ManualClock::at(1_795_000_000));
    let host = Host { clock: clock.clone(), ..Host::system() };
    let opened = EmbeddedOptions { host, ..options(data.path()) };
    let driver = EmbeddedDriver::open(&store, opened.clone()).unwrap();
    assert_eq!((read(&driver, 0), found(&opened).len()), ((vec![], true), 1));
    // A copy that goes on.
    for tenths in [5, 6, 7, 8] {
        fs::write(&path, &bytes[..bytes.len() * tenths / 10]).unwrap();
        clock.advance(Duration::from_secs(45));
        driver.look_after_files();
        assert_eq!(read(&driver, 0), (vec![], true), "{tenths}");
    }
    fs::write(&path, &bytes).unwrap();
    clock.advance(Duration::from_secs(45));
    driver.look_after_files();
    assert_eq!(
        (found(&opened), read(&driver, 0), read(&driver, 4_999)),
        (vec![], (vec![0.5], false), (vec![0.5], false))
    );
    // One that stays short is used as it is.
    drop(driver);
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let driver = EmbeddedDriver::open(&store, opened).unwrap();
    driver.look_after_files();
    assert_eq!(read(&driver, 0), (vec![], true));
    clock.advance(Duration::from_secs(61));
    driver.look_after_files();
    assert_eq!((read(&driver, 0), read(&driver, 4_999)), ((vec![0.5], false), (vec![], true)));
}

#[test]
fn a_file_that_is_being_copied_is_waited_for_also_where_the_disk_fails_for_a_moment() {
    for (call, is_at_start) in [(Call::Open, false), (Call::Open, true), (Call::ReadDir, true)] {
        let data = tempfile::tempdir().unwrap();
        let store = data.path().join("store");
        let driver = EmbeddedDriver::open(&store, options(data.path())).unwrap();
        block_on(driver.write((0..5_000).map(run).collect())).unwrap();
        block_on(driver.sync()).unwrap();
        let path = store.join(&files(&driver)[0]);
        drop(driver);
        let bytes = fs::read(&path).unwrap();
        let copy = |tenths| fs::write(&path, &bytes[..bytes.len() * tenths / 10]).unwrap();
        copy(4);
        let is_bad = Arc::new(AtomicBool::new(is_at_start));
        let (is_bad_now, fails) = (is_bad.clone(), [path.clone(), path.parent().unwrap().to_owned()]);
        let disk = FailingDisk::new(Arc::new(SystemDisk), move |made, of| {
            let is_failing = is_bad_now.load(Relaxed) && made == call && fails.iter().any(|path| path == of);
            is_failing.then(|| io::Error::from_raw_os_error(24))
        });
        let clock = Arc::new(ManualClock::at(1_795_000_000));
        let host = Host { clock: clock.clone(), disk: Arc::new(disk), ..Host::system() };
        let opened = EmbeddedOptions { host, ..options(data.path()) };
        let driver = EmbeddedDriver::open(&store, opened.clone()).unwrap();
        let look = || {
            clock.advance(Duration::from_secs(45));
            driver.look_after_files();
            read(&driver, 0)
        };
        is_bad.store(true, Relaxed);
        assert_eq!(look(), (vec![], true));
        is_bad.store(false, Relaxed);
        for tenths in 5..9 {
            copy(tenths);
            assert_eq!(look(), (vec![], true), "{call:?} {is_at_start} {tenths}");
        }
        copy(10);
        assert_eq!((look(), read(&driver, 4_999), found(&opened)), ((vec![0.5], false), (vec![0.5], false), vec![]));
        if call == Call::ReadDir {
            continue;
        }
        // One that stays short is used as it is, a minute after the disk returned its length again.
        drop(driver);
        copy(5);
        let driver = EmbeddedDriver::open(&store, opened).unwrap();
        is_bad.store(true, Relaxed);
        clock.advance(Duration::from_secs(61));
        driver.look_after_files();
        is_bad.store(false, Relaxed);
        clock.advance(Duration::from_secs(2));
        driver.look_after_files();
        assert_eq!(read(&driver, 0), (vec![], true));
        clock.advance(Duration::from_secs(61));
        driver.look_after_files();
        assert_eq!((read(&driver, 0), read(&driver, 4_999)), ((vec![0.5], false), (vec![], true)));
    }
}

#[test]
fn points_of_a_file_that_comes_back_are_at_no_moment_absent_without_a_word() {
    let data = tempfile::tempdir().unwrap();
    let store = data.path().join("store");
    let second = three(&store, data.path()).remove(1);
    let aside = data.path().join("aside");
    fs::rename(&second, &aside).unwrap();
    // Reads while the store puts the folder of the file on the disk, which may take long.
    let (open, during) = (Arc::new(OnceLock::<Weak<EmbeddedDriver>>::new()), Arc::new(Mutex::new(Vec::new())));
    let (of_disk, seen, folder) = (open.clone(), during.clone(), second.parent().unwrap().to_owned());
    let disk = FailingDisk::new(Arc::new(SystemDisk), move |call, path| {
        let driver = of_disk.get().and_then(Weak::upgrade).filter(|_| call == Call::Sync && path == folder);
        if let Some(driver) = driver {
            let found = std::thread::spawn(move || read(&driver, 1)).join().unwrap();
            seen.lock().unwrap().push(found);
        }
        None
    });
    let clock = Arc::new(ManualClock::at(1_795_000_000));
    let host = Host { clock: clock.clone(), disk: Arc::new(disk), ..Host::system() };
    let opened = EmbeddedOptions { host, merges: true, ..options(data.path()) };
    let driver = Arc::new(EmbeddedDriver::open(&store, opened).unwrap());
    open.set(Arc::downgrade(&driver)).unwrap();
    assert!(read(&driver, 1).1);
    fs::rename(&aside, &second).unwrap();
    let began = Instant::now();
    while 0 < driver.status().missing_files {
        assert!(began.elapsed() < Duration::from_secs(30), "it was not found in time");
        clock.advance(Duration::from_secs(61));
        std::thread::sleep(Duration::from_millis(10));
    }
    let during = during.lock().unwrap();
    assert!(
        !during.is_empty() && during.iter().all(|(values, may_be_lost)| *may_be_lost || *values == [0.5]),
        "{during:?}"
    );
}

#[test]
fn a_file_that_goes_while_the_store_is_open_is_reported_as_missing_until_it_is_back() {
    let data = tempfile::tempdir().unwrap();
    let store = data.path().join("store");
    let second = three(&store, data.path()).remove(1);
    let aside = data.path().join("aside");
    let clock = Arc::new(ManualClock::at(1_795_000_000));
    let host = Host { clock: clock.clone(), ..Host::system() };
    let opened = EmbeddedOptions { host, merges: true, ..options(data.path()) };
    let driver = EmbeddedDriver::open(&store, opened.clone()).unwrap();
    fs::rename(&second, &aside).unwrap();
    assert_eq!((read(&driver, 1), driver.status().missing_files), ((vec![], true), 1));
    assert!(found(&opened)[0].ends_with(": it is missing") && found(&opened).len() == 1, "{:?}", found(&opened));
    fs::rename(&aside, &second).unwrap();
    let began = Instant::now();
    while 0 < driver.status().missing_files {
        assert!(began.elapsed() < Duration::from_secs(30), "it was not found in time");
        clock.advance(Duration::from_secs(61));
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!((found(&opened), read(&driver, 1)), (vec![], (vec![0.5], false)));
}

#[test]
fn a_missing_file_is_not_reported_any_more_once_its_window_has_expired() {
    for is_missing_before in [true, false] {
        let data = tempfile::tempdir().unwrap();
        let store = data.path().join("store");
        let second = three(&store, data.path()).remove(1);
        let remove = || fs::remove_file(&second).unwrap();
        if is_missing_before {
            remove();
            drop(EmbeddedDriver::open(&store, options(data.path())).unwrap());
        }
        let opened = options(data.path());
        let driver = EmbeddedDriver::open(&store, opened.clone()).unwrap();
        if !is_missing_before {
            remove();
        }
        assert!(read(&driver, 1).1 && found(&opened).len() == 1);
        block_on(driver.expire(9_999_999_999)).unwrap();
        assert_eq!((found(&opened), read(&driver, 1)), (vec![], (vec![], false)));
    }
}

#[test]
fn a_window_whose_folder_was_missing_is_used_when_it_comes_back() {
    let data = tempfile::tempdir().unwrap();
    let store = data.path().join("store");
    let paths = three(&store, data.path());
    let (table, aside) = (paths[0].parent().unwrap().parent().unwrap(), data.path().join("aside"));
    fs::rename(table, &aside).unwrap();
    for _ in 0..2 {
        let opened = options(data.path());
        let driver = EmbeddedDriver::open(&store, opened.clone()).unwrap();
        assert_eq!(found(&opened).len(), 3);
        assert!(read(&driver, 1).1);
    }
    fs::rename(&aside, table).unwrap();
    let opened = options(data.path());
    let driver = EmbeddedDriver::open(&store, opened.clone()).unwrap();
    assert_eq!((found(&opened), read(&driver, 1)), (vec![], (vec![0.5], false)));
}

#[test]
fn a_repair_that_fails_behind_a_rename_keeps_the_rows_that_it_wrote_again() {
    let data = tempfile::tempdir().unwrap();
    let store = data.path().join("store");
    let second = three(&store, data.path()).remove(1);
    let mut bytes = fs::read(&second).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&second, bytes).unwrap();
    let (window, left) = (second.parent().unwrap().to_owned(), AtomicU64::new(1));
    let disk = FailingDisk::new(Arc::new(SystemDisk), move |call, path| {
        let fails = call == Call::Sync
            && path == window
            && left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok();
        fails.then(|| io::Error::from_raw_os_error(5))
    });
    let host = Host { disk: Arc::new(disk), ..Host::system() };
    let lock = store_embedded::lock(&SystemDisk, &store).unwrap();
    let failing = EmbeddedOptions { host, ..options(data.path()) };
    store_embedded::repair(&store, &failing, &lock).unwrap_err();
    store_embedded::repair(&store, &options(data.path()), &lock).unwrap();
    drop(lock);
    let driver = EmbeddedDriver::open(&store, options(data.path())).unwrap();
    assert_eq!((read(&driver, 1), read(&driver, 9)), ((vec![0.5], false), (vec![2.0], false)));
}

#[test]
fn a_file_that_is_put_back_after_a_repair_has_given_it_up_is_kept_and_reported() {
    let data = tempfile::tempdir().unwrap();
    let store = data.path().join("store");
    let second = three(&store, data.path()).remove(1);
    let bytes = fs::read(&second).unwrap();
    fs::remove_file(&second).unwrap();
    drop(EmbeddedDriver::open(&store, options(data.path())).unwrap());
    let lock = store_embedded::lock(&SystemDisk, &store).unwrap();
    store_embedded::repair(&store, &options(data.path()), &lock).unwrap();
    drop(lock);
    assert!(lost_rows(&SystemDisk, &store).iter().all(|lost| !lost.is_file));
    let driver = EmbeddedDriver::open(&store, options(data.path())).unwrap();
    driver.settle().unwrap();
    assert_eq!((files(&driver).len(), read(&driver, 1).1), (1, true));
    drop(driver);
    fs::write(&second, &bytes).unwrap();
    let opened = options(data.path());
    drop(EmbeddedDriver::open(&store, opened.clone()).unwrap());
    assert!(!second.exists());
    let reports = opened.damage.examples();
    let is_kept = |found: &store::Damage| found.how.contains("put back after the merge") && found.moved_to.is_some();
    assert!(reports.iter().any(is_kept), "{reports:?}");
    assert!(has(data.path().join("damaged"), second.file_name().unwrap().to_str().unwrap()));
}

/// The line that says which file is missing is lost, so that its neighbours are merged.
#[test]
fn a_file_that_comes_back_after_a_merge_which_did_not_know_that_it_was_missing_is_kept_and_reported() {
    let data = tempfile::tempdir().unwrap();
    let store = data.path().join("store");
    let second = three(&store, data.path()).remove(1);
    let aside = data.path().join("aside");
    fs::rename(&second, &aside).unwrap();
    block_on(EmbeddedDriver::open(&store, options(data.path())).unwrap().sync()).unwrap();
    let manifest = fs::read_to_string(store.join("manifest")).unwrap();
    let line = manifest.lines().find(|line| line.starts_with("missing")).unwrap();
    fs::write(store.join("manifest"), manifest.replace(line, &"#".repeat(line.len()))).unwrap();
    for _ in 0..2 {
        let opened = options(data.path());
        let driver = EmbeddedDriver::open(&store, opened.clone()).unwrap();
        let reports = opened.damage.examples();
        assert!(reports.iter().any(|found| found.how.contains("missing")), "each start says so: {reports:?}");
        driver.settle().unwrap();
        assert_eq!(files(&driver).len(), 1);
    }
    fs::rename(&aside, &second).unwrap();
    let opened = options(data.path());
    let driver = EmbeddedDriver::open(&store, opened.clone()).unwrap();
    assert_eq!(read(&driver, 9).0, [2.0]);
    let reports = opened.damage.examples();
    let is_kept = |found: &store::Damage| found.how.contains("put back after the merge") && found.moved_to.is_some();
    assert!(reports.iter().any(is_kept), "{reports:?}");
    assert!(has(data.path().join("damaged"), second.file_name().unwrap().to_str().unwrap()));
}

#[test]
fn a_file_that_is_left_from_a_merge_goes_to_the_trash() {
    let data = tempfile::tempdir().unwrap();
    let store = data.path().join("store");
    let second = three(&store, data.path()).remove(1);
    let bytes = fs::read(&second).unwrap();
    EmbeddedDriver::open(&store, options(data.path())).unwrap().settle().unwrap();
    fs::write(&second, &bytes).unwrap();
    let opened = options(data.path());
    drop(EmbeddedDriver::open(&store, opened.clone()).unwrap());
    assert!(found(&opened).is_empty() && !second.exists());
    assert!(has(data.path().join("trash"), second.file_name().unwrap().to_str().unwrap()));
}

#[test]
fn a_verification_finds_the_files_that_a_start_reports_because_the_manifest_does_not_have_them() {
    let data = tempfile::tempdir().unwrap();
    let store = data.path().join("store");
    let second = three(&store, data.path()).remove(1);
    assert_eq!(unlisted(&store), Vec::<PathBuf>::new());
    let bytes = fs::read(&second).unwrap();
    fs::remove_file(&second).unwrap();
    let lock = store_embedded::lock(&SystemDisk, &store).unwrap();
    store_embedded::repair(&store, &options(data.path()), &lock).unwrap();
    drop(lock);
    assert_eq!(unlisted(&store), Vec::<PathBuf>::new());
    fs::write(&second, &bytes).unwrap();
    assert_eq!(unlisted(&store), [second]);
    let opened = options(data.path());
    drop(EmbeddedDriver::open(&store, opened.clone()).unwrap());
    assert!(
        found(&opened).iter().any(|report| report.contains("the manifest does not have it")),
        "{:?}",
        found(&opened)
    );
    assert_eq!(unlisted(&store), Vec::<PathBuf>::new());
}

#[test]
fn a_flipped_bit_in_the_line_of_a_missing_file_does_not_forget_it() {
    let dir = tempfile::tempdir().unwrap();
    let (store, away) = (dir.path().join("store"), dir.path().join("away"));
    let lost = three(&store, dir.path())[1].clone();
    fs::rename(&lost, &away).unwrap();
    let opened = || {
        let options = options(dir.path());
        (EmbeddedDriver::open(&store, options.clone()).unwrap(), found(&options))
    };
    block_on(opened().0.sync()).unwrap();
    let whole = fs::read(store.join("manifest")).unwrap();
    let place = |text: &str| whole.windows(text.len()).position(|part| part == text.as_bytes()).unwrap();
    let name = lost.file_name().unwrap().to_str().unwrap();
    let places = ["plumbago rows", "\nstore", "\nmissing"].map(place).into_iter().flat_map(|at| [at + 2, at + 10]);
    for at in places.chain([place(name)]) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs::write(store.join("manifest"), bytes).unwrap();
        for _ in 0..3 {
            let (driver, reports) = opened();
            assert!(reports.iter().any(|report| report.contains(name)), "byte {at}: {reports:?}");
            assert!(read(&driver, 1).1, "its rows may be lost");
            block_on(driver.write(vec![run(20)])).unwrap();
            block_on(driver.sync()).unwrap();
        }
    }
    fs::rename(&away, &lost).unwrap();
    for _ in 0..2 {
        assert_eq!(read(&opened().0, 1), (vec![0.5], false));
    }
}

#[test]
fn a_manifest_that_is_made_again_keeps_which_files_are_missing_and_uses_one_that_is_back() {
    let dir = tempfile::tempdir().unwrap();
    let (store, away) = (dir.path().join("store"), dir.path().join("away"));
    let lost = three(&store, dir.path())[1].clone();
    fs::rename(&lost, &away).unwrap();
    let opened = || {
        let options = options(dir.path());
        (EmbeddedDriver::open(&store, options.clone()).unwrap(), found(&options))
    };
    // Also where an earlier start has noticed it.
    for starts in 0..2 {
        for _ in 0..starts {
            block_on(opened().0.sync()).unwrap();
        }
        let mut bytes = fs::read(store.join("manifest")).unwrap();
        let end = bytes.len() - 3;
        bytes[end] ^= 1;
        fs::write(store.join("manifest"), bytes).unwrap();
        for _ in 0..2 {
            let (driver, reports) = opened();
            let name = lost.file_name().unwrap().to_str().unwrap();
            assert!(reports.iter().any(|report| report.contains(name)), "{reports:?}");
            assert!(read(&driver, 1).1, "its rows may be lost");
            block_on(driver.write(vec![run(20)])).unwrap();
            block_on(driver.sync()).unwrap();
        }
    }
    fs::rename(&away, &lost).unwrap();
    let (driver, reports) = opened();
    assert_eq!((read(&driver, 1), reports), ((vec![0.5], false), Vec::<String>::new()));
}
