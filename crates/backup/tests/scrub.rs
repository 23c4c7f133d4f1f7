//! A file of rows that is scrubbed piece by piece.

use std::{path::Path, sync::Arc, time::Duration};

use backup::FileScrub;
use host::{Disk, Host, ManualClock, SeededRandom, SimulatedDisk};
use metric::{Aggregation, MetricId, Stage, Table};
use store::{DamageLog, PointStore as _, Run};
use store_embedded::{EmbeddedDriver, EmbeddedOptions};

const DATA: &str = "/data";

/// A disk with one file of rows of many blocks, and its path in the data folder.
fn rows() -> (SimulatedDisk, std::path::PathBuf) {
    let disk = SimulatedDisk::new();
    let host = Host {
        clock: Arc::new(ManualClock::at(1_800_000_000)),
        disk: Arc::new(disk.clone()),
        random: Arc::new(SeededRandom::new(1)),
    };
    let random = SeededRandom::new(2);
    let options = EmbeddedOptions { host, merges: false, data: Some(DATA.into()), ..EmbeddedOptions::default() };
    let driver = EmbeddedDriver::open(&Path::new(DATA).join("store"), options).unwrap();
    let table = Table { stage: Stage::new(60, 10_080).unwrap(), aggregated: false, rollup: None };
    let run = |metric| {
        let values = (0..900).map(|_| host::Random::bits(&random) as f64 / 7.0).collect();
        let (name, aggregation) = (format!("m{metric}"), Aggregation::Average);
        Run { metric: MetricId(metric), name, table, first_slot: 30_000_000, values, counts: Vec::new(), aggregation }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    runtime.block_on(driver.write((0..200).map(run).collect())).unwrap();
    driver.settle().unwrap();
    let file = driver.files().into_iter().max_by_key(|file| file.bytes).unwrap();
    (disk, Path::new("store").join(file.path))
}

#[test]
fn pieces_keep_to_the_rate_and_damage_is_found_once() {
    let (disk, path) = rows();
    let full = Path::new(DATA).join(&path);
    let bytes = disk.read(&full).unwrap().len() as u64;
    assert!(1_000_000 < bytes, "{bytes} bytes");
    let middle = bytes as usize / 2;
    let (clock, log) = (Arc::new(ManualClock::at(1_800_000_000)), DamageLog::new());
    let scrub = |bytes_per_second: u64| {
        let (mut read, mut rest, mut longest, mut pieces) = (0, Duration::ZERO, 0, 0);
        let (mut faults, mut reported) = (0, Vec::new());
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let mut file = FileScrub::new(shared, clock.clone(), log.clone(), Path::new(DATA), &path, bytes_per_second);
        while let Some(piece) = file.next_piece() {
            (read, rest, pieces) = (read + piece.bytes, rest + piece.rest, pieces + 1);
            longest = longest.max(piece.bytes);
            faults += piece.faults;
            reported.extend(piece.damage);
        }
        // All but header, index and footer.
        assert!(bytes * 98 / 100 < read && read <= bytes, "{read} of {bytes}");
        let expected = read as f64 / bytes_per_second as f64;
        assert!((rest.as_secs_f64() - expected).abs() < 0.001, "{rest:?}");
        (longest, pieces, faults, reported)
    };
    let (longest, pieces, faults, _) = scrub(20_000);
    assert!(longest < 20_000 + 64 * 1024 && 10 < pieces && faults == 0, "{longest} {pieces} {faults}");
    let (longest, _, _, _) = scrub(1 << 40);
    assert!(longest < (256 + 64) << 10, "{longest}");

    disk.rot(&full, |bytes| bytes[middle] ^= 1).unwrap();
    let (_, _, faults, reported) = scrub(100_000);
    assert_eq!((faults, reported.len(), log.totals().0), (1, 1, 1));
    assert!(reported[0].metrics.is_some() && reported[0].span.is_some(), "{reported:?}");
    // The next round finds it again, and reports nothing new.
    let (_, _, faults, reported) = scrub(100_000);
    assert_eq!((faults, reported.len(), log.totals().0), (1, 0, 1));
}

#[test]
fn a_file_that_is_merged_meanwhile_is_not_damaged() {
    let (disk, path) = rows();
    let log = DamageLog::new();
    let clock = Arc::new(ManualClock::at(1_800_000_000));
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut file = FileScrub::new(shared.clone(), clock.clone(), log.clone(), Path::new(DATA), &path, 100_000);
    for _ in 0..3 {
        assert!(file.next_piece().is_some());
    }
    disk.remove_file(&Path::new(DATA).join(&path)).unwrap();
    while file.next_piece().is_some() {}
    let mut gone = FileScrub::new(shared, clock, log.clone(), Path::new(DATA), &path, 100_000);
    while gone.next_piece().is_some() {}
    assert_eq!(log.totals(), (0, 0));
}
