//! Lines of the manifest that are lost, or that the disk does not return for a moment: what they said is not forgotten.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use host::{Call, FailingDisk, Host, ManualClock, SystemDisk};
use metric::{MetricId, Policy};
use store::{Fetch, PointStore as _, Run, StoreError};
use store_embedded::{EmbeddedDriver, EmbeddedOptions, UnreadRows, lost_rows, remade_manifest};

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
}

/// A value of a metric in a window; windows of the default policy have 20,160 slots.
fn run(id: u32, window: u32) -> Run {
    let policy = Policy::default();
    Run {
        metric: MetricId(id),
        name: format!("a.m{id}"),
        table: policy.table(0),
        first_slot: 28_333_000 + window * 100_000,
        values: vec![f64::from(id)],
        counts: Vec::new(),
        aggregation: policy.aggregation,
    }
}

fn options(data: &Path) -> EmbeddedOptions {
    EmbeddedOptions { data: Some(data.to_owned()), merges: false, ..EmbeddedOptions::default() }
}

fn open(data: &Path) -> EmbeddedDriver {
    EmbeddedDriver::open(&data.join("store"), options(data)).unwrap()
}

fn write(driver: &EmbeddedDriver, runs: Vec<Run>) {
    block_on(driver.write(runs)).unwrap();
    block_on(driver.sync()).unwrap();
}

/// A store with a file for each of these runs, which are of one window after another. Returns the files.
fn with_files(data: &Path, runs: &[Run]) -> Vec<PathBuf> {
    let driver = open(data);
    runs.iter().for_each(|run| write(&driver, vec![run.clone()]));
    let mut files: Vec<PathBuf> = driver.files().iter().map(|file| data.join("store").join(&file.path)).collect();
    files.sort();
    assert_eq!(files.len(), runs.len());
    files
}

/// The value of a run, and whether it may be lost or older than what was stored.
fn read(driver: &EmbeddedDriver, run: &Run) -> (Option<f64>, bool) {
    let Run { metric, name, table, first_slot, aggregation, .. } = run.clone();
    let fetch = Fetch { metric, name, table, first_slot, end_slot: first_slot + 1, aggregation };
    let cells = block_on(driver.fetch(vec![fetch])).unwrap().remove(0);
    (cells.values.first().copied().filter(|value| !value.is_nan()), cells.is_damaged)
}

fn repair_with(data: &Path, options: &EmbeddedOptions) -> Result<Vec<UnreadRows>, StoreError> {
    let store = data.join("store");
    let lock = store_embedded::lock(&SystemDisk, &store).unwrap();
    store_embedded::repair(&store, options, &lock)
}

fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

/// One wrong bit in the first line that begins so.
fn flip_in_line(data: &Path, line: &str) {
    change(&data.join("store/manifest"), |bytes| {
        let place = bytes.windows(line.len()).position(|part| part == line.as_bytes()).expect("the line is there");
        bytes[place] ^= 1;
    });
}

fn line_of(data: &Path, file: &Path) -> String {
    format!("file {}", file.strip_prefix(data.join("store")).unwrap().display())
}

fn missing_files(data: &Path) -> usize {
    lost_rows(&SystemDisk, &data.join("store")).iter().filter(|lost| lost.is_file).count()
}

/// A disk on which `count` attempts to open the manifest for reading fail, behind `good` ones. Counts the attempts.
fn failing_manifest(good: u64, count: u64) -> (Host, Arc<AtomicU64>) {
    let opened = Arc::new(AtomicU64::new(0));
    let seen = opened.clone();
    let disk = FailingDisk::new(Arc::new(SystemDisk), move |call, path| {
        let is_it = call == Call::Open && path.ends_with("store/manifest");
        let fails = is_it && (good..good + count).contains(&seen.fetch_add(1, Relaxed));
        fails.then(|| io::Error::from_raw_os_error(5))
    });
    (Host { disk: Arc::new(disk), ..Host::system() }, opened)
}

/// What makes a file of rows unusable.
fn spoil(file: &Path, other: &Path, how: &str) {
    match how {
        "zeros" => change(file, |bytes| bytes.fill(0)),
        "in another place" => drop(fs::copy(other, file).unwrap()),
        how => unreachable!("{how}"),
    }
}

#[test]
fn what_a_file_had_that_cannot_be_used_and_whose_line_is_lost_is_in_doubt_until_its_window_expires() {
    let runs = [run(1, 0), run(2, 0), run(3, 1)];
    for manifest in ["gone", "bit", "zeros"] {
        for how in ["zeros", "in another place"] {
            for first in ["start", "start without a new manifest", "repair"] {
                let context = format!("manifest: {manifest}, file: {how}, {first}");
                let data = tempfile::tempdir().unwrap();
                let data = data.path();
                let files = with_files(data, &runs);
                spoil(&files[1], &files[2], how);
                match manifest {
                    "gone" => fs::remove_file(data.join("store/manifest")).unwrap(),
                    "bit" => flip_in_line(data, &line_of(data, &files[1])),
                    _ => change(&data.join("store/manifest"), |bytes| bytes.fill(0)),
                }
                match first {
                    "repair" => assert_eq!(repair_with(data, &options(data)).unwrap(), []),
                    "start" => {}
                    _ => {
                        let fails = |call: Call, path: &Path| {
                            let is_it = call == Call::Rename && path.starts_with("/") && path.ends_with("manifest.new");
                            is_it.then(|| io::Error::from(io::ErrorKind::StorageFull))
                        };
                        let disk = Arc::new(FailingDisk::new(Arc::new(SystemDisk), fails));
                        let failing = EmbeddedOptions { host: Host { disk, ..Host::system() }, ..options(data) };
                        let driver = EmbeddedDriver::open(&data.join("store"), failing).unwrap();
                        assert!(driver.status().is_manifest_behind, "{context}");
                        assert!(read(&driver, &runs[0]).1, "{context}");
                    }
                }
                for start in 0..3 {
                    let opened = options(data);
                    let driver = EmbeddedDriver::open(&data.join("store"), opened.clone()).unwrap();
                    let context = format!("{context}, start {start}");
                    assert_eq!(read(&driver, &runs[0]), (Some(1.0), true), "{context}: a later value may be lost");
                    assert_eq!(read(&driver, &runs[1]), (None, true), "{context}");
                    assert_eq!(read(&driver, &runs[2]), (Some(3.0), false), "{context}: another window");
                    let window = files[1].parent().unwrap().strip_prefix(data).unwrap().display().to_string();
                    let reports = opened.damage.examples();
                    assert!(reports.iter().any(|found| found.file.starts_with(&window)), "{context}: {reports:?}");
                    assert_eq!(lost_rows(&SystemDisk, &data.join("store")).len(), 1, "{context}");
                    assert!(!files[1].exists(), "{context}");
                }
                repair_with(data, &options(data)).unwrap();
                assert!(read(&open(data), &runs[0]).1, "{context}: a repair brings nothing back");
            }
        }
    }
}

#[test]
fn a_file_that_cannot_be_used_costs_what_its_line_says_where_that_is_whole_in_a_damaged_manifest() {
    for is_repaired in [false, true] {
        let data = tempfile::tempdir().unwrap();
        let data = data.path();
        let runs = [run(1, 0), run(2, 0), run(3, 1)];
        let files = with_files(data, &runs);
        spoil(&files[1], &files[2], "zeros");
        flip_in_line(data, "next ");
        if is_repaired {
            repair_with(data, &options(data)).unwrap();
        }
        for _ in 0..2 {
            let driver = open(data);
            let found = [0, 1, 2].map(|n: usize| read(&driver, &runs[n]));
            assert_eq!(found, [(Some(1.0), false), (None, true), (Some(3.0), false)], "repaired: {is_repaired}");
        }
    }
}

#[test]
fn a_file_that_the_disk_does_not_return_keeps_a_line_where_the_manifest_is_made_again() {
    let runs = [run(1, 0), run(2, 0), run(3, 0), run(4, 1)];
    for manifest in ["gone", "bit", "without the line"] {
        for first in ["start", "repair"] {
            for then in ["back", "zeros", "zeros and a repair", "away"] {
                let context = format!("manifest: {manifest}, {first}, {then}");
                let data = tempfile::tempdir().unwrap();
                let data = data.path();
                let files = with_files(data, &runs);
                match manifest {
                    "gone" => fs::remove_file(data.join("store/manifest")).unwrap(),
                    "bit" => flip_in_line(data, "end "),
                    _ => flip_in_line(data, &line_of(data, &files[1])),
                }
                let disk = FailingDisk::new(Arc::new(SystemDisk), |_, _| None).with_bad_sector("2-2.rows", 0..1 << 20);
                let failing =
                    EmbeddedOptions { host: Host { disk: Arc::new(disk), ..Host::system() }, ..options(data) };
                if first == "start" {
                    let driver = EmbeddedDriver::open(&data.join("store"), failing).unwrap();
                    assert!(read(&driver, &runs[0]).1, "{context}");
                } else {
                    assert_eq!(repair_with(data, &failing).unwrap().len(), 1, "{context}");
                }
                let aside = data.join("aside");
                match then {
                    "back" => {}
                    "away" => fs::rename(&files[1], &aside).unwrap(),
                    _ => spoil(&files[1], &files[2], "zeros"),
                }
                if then == "zeros and a repair" {
                    assert_eq!(repair_with(data, &options(data)).unwrap(), [], "{context}");
                }
                for start in 0..3 {
                    let context = format!("{context}, start {start}");
                    let opened = options(data);
                    let driver = EmbeddedDriver::open(&data.join("store"), opened.clone()).unwrap();
                    driver.settle().unwrap();
                    let is_back = then == "back";
                    assert_eq!(read(&driver, &runs[0]), (Some(1.0), !is_back), "{context}");
                    assert_eq!(read(&driver, &runs[1]), (is_back.then_some(2.0), !is_back), "{context}");
                    assert_eq!(read(&driver, &runs[3]), (Some(4.0), false), "{context}: another window");
                    assert_eq!(lost_rows(&SystemDisk, &data.join("store")).is_empty(), is_back, "{context}");
                    let reports = opened.damage.examples();
                    assert!(reports.iter().all(|found| !found.how.contains("not the file")), "{context}: {reports:?}");
                }
                if then == "away" {
                    fs::rename(&aside, &files[1]).unwrap();
                    let driver = open(data);
                    let found = runs.each_ref().map(|run| read(&driver, run));
                    assert_eq!(found, [1.0, 2.0, 3.0, 4.0].map(|value| (Some(value), false)), "{context}: put back");
                }
            }
        }
    }
}

#[test]
fn a_file_that_damaged_does_not_take_costs_no_points_of_after_the_manifest_was_made_again() {
    for manifest in ["gone", "bit"] {
        let data = tempfile::tempdir().unwrap();
        let data = data.path();
        let files = with_files(data, &[run(1, 0), run(2, 0)]);
        spoil(&files[1], &files[0], "zeros");
        match manifest {
            "gone" => fs::remove_file(data.join("store/manifest")).unwrap(),
            _ => flip_in_line(data, &line_of(data, &files[1])),
        }
        let later = Run { first_slot: 28_333_300, ..run(3, 0) };
        let at_slot = |slot: i64, is_full: bool| {
            let fails = move |call: Call, path: &Path| {
                let is_it = is_full && call == Call::Rename && path.ends_with("2-2.rows");
                is_it.then(|| io::Error::from(io::ErrorKind::StorageFull))
            };
            let disk = Arc::new(FailingDisk::new(Arc::new(SystemDisk), fails));
            let clock = Arc::new(ManualClock::at(slot * 60));
            EmbeddedOptions { host: Host { disk, clock, ..Host::system() }, ..options(data) }
        };
        let open_at = |slot| EmbeddedDriver::open(&data.join("store"), at_slot(slot, true)).unwrap();
        let driver = open_at(28_333_100);
        write(&driver, vec![later.clone()]);
        drop(driver);
        for slot in [28_333_500, 28_333_600] {
            let driver = open_at(slot);
            assert!(files[1].exists() && read(&driver, &run(1, 0)).1, "manifest: {manifest}, slot {slot}");
            assert_eq!(read(&driver, &later), (Some(3.0), false), "manifest: {manifest}, slot {slot}");
        }
        repair_with(data, &at_slot(28_333_700, false)).unwrap();
        let driver = open(data);
        assert!(!files[1].exists() && read(&driver, &run(1, 0)).1, "manifest: {manifest}");
        assert_eq!(read(&driver, &later), (Some(3.0), false), "manifest: {manifest}");
    }
}

#[test]
fn a_file_that_cannot_be_used_and_whose_rows_a_merged_one_has_costs_nothing() {
    for first in ["start", "repair", "repair after a start"] {
        let data = tempfile::tempdir().unwrap();
        let data = data.path();
        let runs = [run(1, 0), run(2, 0), run(3, 0)];
        let files = with_files(data, &runs);
        open(data).settle().unwrap();
        assert!(!files[1].exists() && files[0].with_file_name("1-3.rows").exists());
        flip_in_line(data, "end ");
        if first == "repair after a start" {
            drop(open(data));
        }
        fs::write(&files[1], vec![0; 1000]).unwrap();
        if first != "start" {
            repair_with(data, &options(data)).unwrap();
        }
        let driver = open(data);
        assert_eq!(runs.each_ref().map(|run| read(&driver, run).1), [false; 3], "{first}");
        assert_eq!(lost_rows(&SystemDisk, &data.join("store")), [], "{first}");
        assert!(!files[1].exists(), "{first}");
    }
}

#[test]
fn a_file_that_cannot_be_used_is_not_forgotten_where_another_one_of_its_window_is_of_a_later_program() {
    let data = tempfile::tempdir().unwrap();
    let data = data.path();
    let files = with_files(data, &[run(1, 0), run(2, 0), run(3, 0)]);
    // It was missing when the manifest was made again.
    fs::remove_file(data.join("store/manifest")).unwrap();
    fs::remove_file(&files[1]).unwrap();
    let is_bad = Arc::new(AtomicBool::new(true));
    let disk = FailingDisk::new(Arc::new(SystemDisk), |_, _| None);
    let disk = disk.with_sector_bad_while("1-1.rows", 0..1 << 20, is_bad.clone());
    let failing = EmbeddedOptions { host: Host { disk: Arc::new(disk), ..Host::system() }, ..options(data) };
    let driver = EmbeddedDriver::open(&data.join("store"), failing).unwrap();
    fs::write(&files[1], vec![0; 1000]).unwrap();
    let later = files[0].with_file_name("9-9.rows");
    fs::copy(&files[2], &later).unwrap();
    change(&later, |bytes| {
        bytes[8] = 77;
        let crc = crc32fast::hash(&bytes[..60]);
        bytes[60..64].copy_from_slice(&crc.to_le_bytes());
    });
    is_bad.store(false, Relaxed);
    driver.look_after_files();
    write(&driver, vec![run(4, 1)]);
    assert!(!files[1].exists(), "the manifest was written, and the file is put aside");
    drop(driver);
    fs::remove_file(&later).unwrap();
    let driver = open(data);
    assert_eq!(read(&driver, &run(2, 0)), (None, true));
    assert_eq!(read(&driver, &run(1, 0)), (Some(1.0), true), "a later value may be lost");
}

#[test]
fn a_repair_that_cannot_write_a_log_again_gives_up_no_missing_file() {
    for log in ["names", "events"] {
        let data = tempfile::tempdir().unwrap();
        let data = data.path();
        let files = with_files(data, &[run(1, 0), run(2, 0)]);
        fs::remove_file(&files[1]).unwrap();
        drop(open(data));
        let fails = move |call: Call, path: &Path| {
            let is_it = call == Call::Rename && path.parent().is_some_and(|dir| dir.ends_with(log));
            is_it.then(|| io::Error::from(io::ErrorKind::StorageFull))
        };
        let disk = Arc::new(FailingDisk::new(Arc::new(SystemDisk), fails));
        let failing = EmbeddedOptions { host: Host { disk, ..Host::system() }, ..options(data) };
        assert!(repair_with(data, &failing).is_err(), "{log}");
        assert_eq!(missing_files(data), 1, "{log}: the next repair lists it");
        repair_with(data, &options(data)).unwrap();
        assert_eq!((missing_files(data), lost_rows(&SystemDisk, &data.join("store")).len()), (0, 1), "{log}");
    }
}

#[test]
fn a_repair_does_not_end_that_the_manifest_was_made_again_while_a_file_cannot_be_read() {
    let data = tempfile::tempdir().unwrap();
    let data = data.path();
    let files = with_files(data, &[run(1, 0), run(2, 0)]);
    fs::remove_file(data.join("store/manifest")).unwrap();
    let disk = FailingDisk::new(Arc::new(SystemDisk), |_, _| None).with_bad_sector("2-2.rows", 0..1 << 20);
    let failing = EmbeddedOptions { host: Host { disk: Arc::new(disk), ..Host::system() }, ..options(data) };
    let is_remade = || remade_manifest(&SystemDisk, &data.join("store")).is_some();
    repair_with(data, &failing).unwrap();
    assert!(is_remade() && files[1].exists());
    repair_with(data, &options(data)).unwrap();
    assert!(!is_remade());
}

#[test]
fn the_number_of_a_missing_file_is_not_given_again_where_a_manifest_is_made_again() {
    for line in ["next ", "end "] {
        let data = tempfile::tempdir().unwrap();
        let data = data.path();
        let runs = [run(1, 0), run(2, 0)];
        let files = with_files(data, &runs);
        let aside = data.join("aside");
        fs::rename(&files[1], &aside).unwrap();
        flip_in_line(data, line);
        let driver = open(data);
        write(&driver, vec![run(3, 0)]);
        assert!(!files[1].exists(), "{line}: the place of the missing file is free");
        drop(driver);
        let driver = open(data);
        assert_eq!((driver.status().missing_files, read(&driver, &runs[1])), (1, (None, true)), "{line}");
        drop(driver);
        fs::rename(&aside, &files[1]).unwrap();
        let driver = open(data);
        assert_eq!(driver.status().missing_files, 0, "{line}");
        let found = [1, 2, 3].map(|id| read(&driver, &run(id, 0)));
        assert_eq!(found, [1.0, 2.0, 3.0].map(|value| (Some(value), false)), "{line}");
    }
}

#[test]
fn a_repair_that_cannot_read_the_manifest_for_a_moment_forgets_nothing_and_can_be_run_again() {
    let mut failed = 0;
    for count in [1, 3, 6] {
        for good in 0.. {
            let data = tempfile::tempdir().unwrap();
            let data = data.path();
            let runs = [run(1, 0), run(2, 0), run(3, 1), run(4, 1), run(5, 2)];
            let files = with_files(data, &runs);
            // Rows of one window were lost before, a block of the second is damaged now, and a file of the third is missing.
            fs::write(&files[1], b"").unwrap();
            drop(open(data));
            repair_with(data, &options(data)).unwrap();
            assert_eq!(lost_rows(&SystemDisk, &data.join("store")).len(), 1);
            change(&files[3], |bytes| {
                let block = bytes.windows(4).position(|four| four == b"PLBk").unwrap();
                bytes[block + 30] ^= 3;
            });
            fs::remove_file(&files[4]).unwrap();
            let (host, opened) = failing_manifest(good, count);
            let context = format!("{count} attempts fail behind {good}");
            if let Err(error) = repair_with(data, &EmbeddedOptions { host, ..options(data) }) {
                failed += 1;
                assert!(error.to_string().contains("run it again"), "{context}: {error}");
                repair_with(data, &options(data)).unwrap();
            }
            assert_eq!(lost_rows(&SystemDisk, &data.join("store")).len(), 3, "{context}");
            let opened_again = options(data);
            let driver = EmbeddedDriver::open(&data.join("store"), opened_again.clone()).unwrap();
            for run in &runs {
                let is_whole = [1, 3].contains(&run.metric.0);
                assert_eq!(read(&driver, run).0.is_some(), is_whole, "{context}: {run:?}");
                assert!(is_whole || read(&driver, run).1, "{context}: {run:?}");
            }
            let reports = opened_again.damage.examples();
            assert!(reports.iter().all(|found| found.what != "manifest"), "{context}: {reports:?}");
            if opened.load(Relaxed) <= good {
                break;
            }
        }
    }
    assert!(2 < failed, "{failed}");
}

#[test]
fn a_start_that_cannot_read_the_manifest_for_a_moment_forgets_nothing() {
    for good in 0..5 {
        let data = tempfile::tempdir().unwrap();
        let data = data.path();
        let files = with_files(data, &[run(1, 0), run(2, 0)]);
        fs::remove_file(&files[1]).unwrap();
        drop(open(data));
        assert_eq!(missing_files(data), 1);
        let (host, opened) = failing_manifest(good, 3);
        let options = EmbeddedOptions { host, read_patience: Duration::from_secs(30), ..options(data) };
        let driver = EmbeddedDriver::open(&data.join("store"), options.clone()).unwrap();
        let reports = options.damage.examples();
        assert!(reports.iter().all(|found| found.what != "manifest"), "behind {good}: {reports:?}");
        assert_eq!((missing_files(data), driver.status().missing_files), (1, 1), "behind {good}");
        if opened.load(Relaxed) <= good {
            break;
        }
    }
}

#[test]
fn lost_lines_of_a_damaged_manifest_of_another_store_are_not_taken_over() {
    let (data, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let files = with_files(data.path(), &[run(1, 0), run(2, 0)]);
    let of_other = with_files(other.path(), &[run(1, 5)]);
    fs::remove_file(&of_other[0]).unwrap();
    drop(open(other.path()));
    let manifest = data.path().join("store/manifest");
    fs::copy(other.path().join("store/manifest"), &manifest).unwrap();
    flip_in_line(data.path(), "end ");
    change(&files[1], |bytes| {
        let block = bytes.windows(4).position(|four| four == b"PLBk").unwrap();
        bytes[block + 30] ^= 3;
    });
    repair_with(data.path(), &options(data.path())).unwrap();
    let window = files[1].parent().unwrap().strip_prefix(data.path().join("store")).unwrap();
    let lost = lost_rows(&SystemDisk, &data.path().join("store"));
    assert!(lost.len() == 1 && lost[0].path == window, "{lost:?}");
}

#[test]
fn a_wrong_number_in_the_line_of_a_window_that_expires_costs_another_window_nothing() {
    let data = tempfile::tempdir().unwrap();
    let data = data.path();
    let runs = [run(1, 0), run(2, 0), run(3, 0)];
    let files = with_files(data, &runs);
    fs::write(&files[1], b"").unwrap();
    drop(open(data));
    repair_with(data, &options(data)).unwrap();
    fs::remove_file(&files[2]).unwrap();
    drop(open(data));
    assert_eq!(lost_rows(&SystemDisk, &data.join("store")).len(), 2);
    let window = files[0].parent().unwrap().strip_prefix(data.join("store")).unwrap().display().to_string();
    change(&data.join("store/manifest"), |bytes| {
        let end = bytes.windows(4).rposition(|four| four == b"end ").unwrap();
        bytes.splice(end..end, format!("expired {window}\n").into_bytes());
    });
    let driver = open(data);
    assert_eq!(lost_rows(&SystemDisk, &data.join("store")).len(), 2);
    assert!(read(&driver, &runs[1]).1 && read(&driver, &runs[2]).1);
}
