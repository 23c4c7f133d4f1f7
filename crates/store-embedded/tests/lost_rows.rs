//! Rows that are lost touch no metric that their file never had, whether the file is missing, damaged, repaired or merged.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use host::{Call, FailingDisk, Host, ManualClock, SystemDisk};
use metric::{MetricId, Policy};
use store::{Fetch, PointStore as _, Run, StoreError};
use store_embedded::{EmbeddedDriver, EmbeddedOptions, lost_rows};

/// The first slot of the second group of a window; the runs here have slots in both.
const SECOND_GROUP: u32 = 28_333_000;

/// The metrics of the damaged file.
const OF_FILE: std::ops::Range<u32> = 1_000..4_000;

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
}

fn run(id: u32) -> Run {
    let policy = Policy::default();
    Run {
        metric: MetricId(id),
        name: format!("a.m{id}"),
        table: policy.table(0),
        first_slot: SECOND_GROUP - 2,
        values: vec![0.5; 4],
        counts: Vec::new(),
        aggregation: policy.aggregation,
    }
}

fn options(data: &Path) -> EmbeddedOptions {
    EmbeddedOptions { merges: false, data: Some(data.to_owned()), ..EmbeddedOptions::default() }
}

/// A store with a file of all metrics and one of some, which is returned.
fn two_files(data: &Path) -> PathBuf {
    let store = data.join("store");
    let driver = EmbeddedDriver::open(&store, options(data)).unwrap();
    for ids in [0..5_000, OF_FILE] {
        block_on(driver.write(ids.map(run).collect())).unwrap();
        block_on(driver.sync()).unwrap();
    }
    store.join(&driver.files()[1].path)
}

/// Group and metric of the rows that may be lost, as reads say.
fn lost(driver: &EmbeddedDriver) -> Vec<(u32, u32)> {
    let mut lost = Vec::new();
    for group in [0, 1] {
        let first_slot = SECOND_GROUP - 1 + group;
        let ids: Vec<u32> = (0..5_000).step_by(7).chain([999, 1_000, 3_999, 4_000, 9_000]).collect();
        let fetch = |id: &u32| {
            let Run { metric, name, table, aggregation, .. } = run(*id);
            Fetch { metric, name, table, first_slot, end_slot: first_slot + 1, aggregation }
        };
        let cells = block_on(driver.fetch(ids.iter().map(fetch).collect())).unwrap();
        lost.extend(ids.iter().zip(cells).filter(|(_, cells)| cells.is_damaged).map(|(id, _)| (group, *id)));
    }
    lost
}

fn open(data: &Path) -> EmbeddedDriver {
    EmbeddedDriver::open(&data.join("store"), options(data)).unwrap()
}

fn repair(data: &Path) {
    repair_with(data, options(data)).unwrap();
}

fn repair_with(data: &Path, options: EmbeddedOptions) -> Result<(), StoreError> {
    let store = data.join("store");
    let lock = store_embedded::lock(&host::SystemDisk, &store).unwrap();
    store_embedded::repair(&store, &options, &lock).map(drop)
}

/// A disk on which one rename fails.
fn failing_rename(number: u64) -> Host {
    let renames = AtomicU64::new(0);
    let fails = move |call: Call, _: &Path| {
        let is_it = call == Call::Rename && renames.fetch_add(1, Relaxed) == number;
        is_it.then(|| io::Error::from(io::ErrorKind::StorageFull))
    };
    Host { disk: Arc::new(FailingDisk::new(Arc::new(SystemDisk), fails)), ..Host::system() }
}

/// What reports say of the metrics.
fn reported(data: &Path) -> Vec<(MetricId, MetricId)> {
    lost_rows(&host::SystemDisk, &data.join("store")).into_iter().map(|lost| lost.metrics.unwrap()).collect()
}

#[test]
fn slots_that_are_newer_than_all_that_a_missing_file_had_are_not_in_doubt() {
    let folder = tempfile::tempdir().unwrap();
    fs::remove_file(two_files(folder.path())).unwrap();
    let driver = open(folder.path());
    let Run { metric, name, table, aggregation, .. } = run(1_500);
    let fetch = Fetch { metric, name, table, first_slot: SECOND_GROUP, end_slot: SECOND_GROUP + 500, aggregation };
    let cells = block_on(driver.fetch(vec![fetch])).unwrap().remove(0);
    assert!(cells.is_damaged && cells.is_away);
    assert_eq!(
        cells.damage(),
        Some((&[][..], std::slice::from_ref(&(0..2)))),
        "the file had slots of both groups, two in this one"
    );
}

#[test]
fn a_missing_file_touches_the_metrics_that_it_had_also_once_a_repair_has_given_it_up() {
    let data = tempfile::tempdir().unwrap();
    let path = two_files(data.path());
    fs::remove_file(path).unwrap();
    let found = lost(&open(data.path()));
    assert!(!found.is_empty() && found.iter().all(|(_, id)| OF_FILE.contains(id)), "{found:?}");
    assert_eq!(found.iter().filter(|(group, _)| *group == 0).count() * 2, found.len());
    let metrics = vec![(MetricId(OF_FILE.start), MetricId(OF_FILE.end - 1))];
    assert_eq!(reported(data.path()), metrics);
    repair(data.path());
    for _ in 0..2 {
        assert_eq!(lost(&open(data.path())), found);
        assert_eq!(reported(data.path()), metrics);
    }
}

#[test]
fn a_damaged_block_of_two_groups_touches_the_metrics_that_it_had_also_once_a_repair_or_a_merge_has_left_it_out() {
    let data = tempfile::tempdir().unwrap();
    let path = two_files(data.path());
    let whole = fs::read(&path).unwrap();
    let blocks: Vec<usize> =
        whole.windows(4).enumerate().filter(|(_, four)| *four == b"PLBk").map(|(at, _)| at).collect();
    assert!(2 < blocks.len());
    drop(data);
    let mut of_two_groups = 0;
    for place in 0..blocks.len() {
        for is_repaired in [true, false] {
            let data = tempfile::tempdir().unwrap();
            let path = two_files(data.path());
            let mut bytes = fs::read(&path).unwrap();
            bytes[blocks[place] + 40..blocks[place] + 60].fill(0);
            fs::write(&path, bytes).unwrap();
            let found = {
                let driver = open(data.path());
                let found = lost(&driver);
                if !is_repaired {
                    driver.settle().unwrap();
                    assert_eq!(driver.files().len(), 1);
                    assert_eq!(lost(&driver), found, "block {place}");
                }
                found
            };
            assert!(!found.is_empty() && found.iter().all(|(_, id)| OF_FILE.contains(id)), "{found:?}");
            of_two_groups += u32::from(found.iter().any(|(group, _)| *group == 0) && found.last().unwrap().0 == 1);
            if is_repaired {
                repair(data.path());
            }
            assert_eq!(lost(&open(data.path())), found, "block {place}, repaired: {is_repaired}");
            let bounds = reported(data.path());
            let is_named = |id: &u32| bounds.iter().any(|(low, high)| (low.0..=high.0).contains(id));
            assert!(found.iter().all(|(_, id)| is_named(id)), "{bounds:?}");
            assert!(
                bounds.iter().all(|(low, high)| OF_FILE.contains(&low.0) && OF_FILE.contains(&high.0)),
                "{bounds:?}"
            );
        }
    }
    assert!(0 < of_two_groups);
}

#[test]
fn a_lost_end_touches_the_metrics_that_the_file_had_also_once_a_repair_or_a_merge_has_left_it_out() {
    let found = [true, false].map(|is_repaired| {
        let data = tempfile::tempdir().unwrap();
        let path = two_files(data.path());
        let bytes = fs::read(&path).unwrap();
        let second = bytes.windows(4).enumerate().filter(|(_, four)| *four == b"PLBk").nth(1).unwrap().0;
        fs::write(&path, &bytes[..second + 50]).unwrap();
        if is_repaired {
            repair(data.path());
        } else {
            let clock = Arc::new(ManualClock::at(1_795_000_000));
            let host = Host { clock: clock.clone(), ..Host::system() };
            let options = EmbeddedOptions { host, ..options(data.path()) };
            let driver = EmbeddedDriver::open(&data.path().join("store"), options).unwrap();
            // Its end may be there within a minute.
            clock.advance(std::time::Duration::from_secs(61));
            driver.look_after_files();
            driver.settle().unwrap();
        }
        let found = lost(&open(data.path()));
        assert!(!found.is_empty() && found.iter().all(|(_, id)| OF_FILE.contains(id)), "{found:?}");
        found
    });
    assert_eq!(found[0], found[1]);
}

#[test]
fn a_missing_file_that_is_back_without_its_end_touches_the_metrics_that_it_had_once_it_is_repaired() {
    let data = tempfile::tempdir().unwrap();
    let path = two_files(data.path());
    let bytes = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    drop(open(data.path()));
    let second = bytes.windows(4).enumerate().filter(|(_, four)| *four == b"PLBk").nth(1).unwrap().0;
    fs::write(&path, &bytes[..second + 50]).unwrap();
    repair(data.path());
    let found = lost(&open(data.path()));
    assert!(!found.is_empty() && found.iter().all(|(_, id)| OF_FILE.contains(id)), "{found:?}");
    assert!(reported(data.path()).iter().all(|(low, high)| OF_FILE.contains(&low.0) && OF_FILE.contains(&high.0)));
}

/// Damages the second block.
fn damage_block(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let second = bytes.windows(4).enumerate().filter(|(_, four)| *four == b"PLBk").nth(1).unwrap().0;
    bytes[second + 40..second + 60].fill(0);
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_repair_that_fails_anywhere_forgets_nothing_of_what_is_lost_and_can_be_run_again() {
    let mut failed = 0;
    for number in 0.. {
        let data = tempfile::tempdir().unwrap();
        damage_block(&two_files(data.path()));
        let found = lost(&open(data.path()));
        assert!(!found.is_empty());
        let is_failed =
            repair_with(data.path(), EmbeddedOptions { host: failing_rename(number), ..options(data.path()) }).is_err();
        failed += u32::from(is_failed);
        for _ in 0..2 {
            assert_eq!(lost(&open(data.path())), found, "after a failure at rename {number}");
            repair(data.path());
        }
        assert_eq!(lost(&open(data.path())), found, "repaired after a failure at rename {number}");
        if !is_failed && 8 < number {
            break;
        }
    }
    assert!(2 < failed);
}

#[test]
fn a_repair_with_a_damaged_manifest_forgets_nothing_of_what_is_lost() {
    for damage in [
        |_: &Path| {},
        |manifest: &Path| {
            let mut text = fs::read(manifest).unwrap();
            text[20] ^= 1;
            fs::write(manifest, text).unwrap();
        },
        |manifest: &Path| {
            fs::write(manifest, "plumbago rows 3\nstore 0000000000000000000000000000002a\nend f86b2c5f\n").unwrap()
        },
        |manifest: &Path| fs::remove_file(manifest).unwrap(),
    ] {
        let data = tempfile::tempdir().unwrap();
        damage_block(&two_files(data.path()));
        let found = lost(&open(data.path()));
        damage(&data.path().join("store/manifest"));
        repair(data.path());
        assert_eq!(lost(&open(data.path())), found);
    }
}

#[test]
fn a_file_without_an_end_whose_rows_are_all_there_touches_no_others_after_several_starts_and_a_repair() {
    let data = tempfile::tempdir().unwrap();
    let path = two_files(data.path());
    let mut bytes = fs::read(&path).unwrap();
    let index = bytes.windows(4).position(|four| four == b"PLBi").unwrap();
    bytes[index..].fill(0);
    fs::write(&path, bytes).unwrap();
    for _ in 0..3 {
        let found = lost(&open(data.path()));
        assert!(found.iter().all(|(_, id)| OF_FILE.contains(id)), "{found:?}");
    }
    repair(data.path());
    assert_eq!(lost(&open(data.path())), []);
    assert_eq!(reported(data.path()), []);
}

#[test]
fn a_repair_of_a_file_whose_blocks_are_all_damaged_touches_no_times_that_the_file_never_had() {
    let data = tempfile::tempdir().unwrap();
    let store = data.path().join("store");
    let driver = EmbeddedDriver::open(&store, options(data.path())).unwrap();
    for ids in [0..5_000, 1_000..1_100] {
        let late = |id| Run { first_slot: SECOND_GROUP, ..run(id) };
        block_on(driver.write(ids.map(late).collect())).unwrap();
        block_on(driver.sync()).unwrap();
    }
    let path = store.join(&driver.files()[1].path);
    drop(driver);
    let mut bytes = fs::read(&path).unwrap();
    let blocks: Vec<usize> = (0..bytes.len() - 4).filter(|&at| bytes[at..].starts_with(b"PLBk")).collect();
    blocks.iter().for_each(|at| bytes[at + 40..at + 60].fill(0));
    fs::write(&path, bytes).unwrap();
    let found = lost(&open(data.path()));
    assert!(!found.is_empty() && found.iter().all(|(group, _)| *group == 1), "{found:?}");
    repair(data.path());
    assert!(!path.exists());
    assert_eq!(lost(&open(data.path())), found);
    let spans: Vec<_> = lost_rows(&host::SystemDisk, &store).into_iter().map(|lost| lost.span.0).collect();
    assert_eq!(spans.iter().filter(|from| **from < i64::from(SECOND_GROUP) * 60).count(), 0, "{spans:?}");
}
