//! Folders that earlier versions wrote are opened with everything that is in them. `make-folder` made them, with a binary
//! of the commit that is named by the folder, and wrote down what that binary answered over HTTP.

mod conversion;

use std::{
    collections::BTreeMap,
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use host::{Call, FailingDisk, Host, SystemDisk};
use metric::{Aggregation, MetricId, Stage, Table};
use store::{Events, Fetch, MetricRecord, NameStore, PointStore, Run};
use store_embedded::{EmbeddedDriver, EmbeddedOptions, newer_file};

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The metrics and events of the folder; every point of `expected.json` is checked on the way.
fn check(driver: &EmbeddedDriver, expected: &serde_json::Value) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let metrics = metrics_of(driver).await;
        let points = expected["points"].as_object().unwrap();
        assert!(metrics.keys().eq(points.keys()), "{:?}", metrics.keys());
        for (name, points) in points {
            let policies = &metrics[name].policies;
            let retentions: Vec<String> = policies.iter().map(|change| change.policy.retention.to_string()).collect();
            assert_eq!(retentions.last().unwrap(), "20160*60s:8640*600s:43800*3600s");
            check_points(driver, &metrics[name], points.as_array().unwrap()).await;
        }
        let events = driver.events((0, 0), i64::MAX, 100).await.unwrap();
        let expected = expected["events"].as_array().unwrap();
        assert_eq!(events.len(), expected.len());
        for (event, expected) in events.iter().zip(expected) {
            assert_eq!(event.id, expected["id"].as_u64().unwrap());
            assert_eq!(event.content.when, expected["when"].as_i64().unwrap());
            assert_eq!(event.content.what, expected["what"].as_str().unwrap());
            assert_eq!(event.content.data, expected["data"].as_str().unwrap());
            assert_eq!(driver.event(event.id).await.unwrap().as_ref(), Some(event));
        }
        let above: MetricId = driver.next_id();
        assert!(metrics.values().all(|record| record.id < above), "no id is given again");
    });
}

async fn metrics_of(driver: &EmbeddedDriver) -> BTreeMap<String, MetricRecord> {
    let mut metrics = BTreeMap::new();
    let mut each = |records: Vec<MetricRecord>| {
        metrics.extend(records.into_iter().map(|record| (record.name.clone(), record)));
    };
    driver.scan_metrics(&mut each).await.unwrap();
    metrics
}

async fn check_points(driver: &EmbeddedDriver, record: &MetricRecord, points: &[serde_json::Value]) {
    for point in points {
        let (time, value) = (point[0].as_i64().unwrap(), point[1].as_f64().unwrap());
        let (found, _) = values_at(driver, record, time).await;
        assert!(found.contains(&value), "{} at {time}: {found:?}", record.name);
    }
}

/// The values at a time, of the finest stage of each policy, and whether an answer may be incomplete.
async fn values_at(driver: &EmbeddedDriver, record: &MetricRecord, time: i64) -> (Vec<f64>, bool) {
    let fetch = |stage: Stage, slot: u32| Fetch {
        metric: record.id,
        name: record.name.clone(),
        table: Table { stage, aggregated: false, rollup: None },
        first_slot: slot,
        end_slot: slot + 1,
        aggregation: Aggregation::Average,
    };
    let stages = record.policies.iter().map(|change| change.policy.retention.finest());
    let fetches = stages.map(|stage| fetch(stage, stage.slot(time).unwrap())).collect();
    let cells = driver.fetch(fetches).await.unwrap();
    let is_damaged = cells.iter().any(|cells| cells.is_damaged);
    (cells.into_iter().flat_map(|cells| cells.values).filter(|value| !value.is_nan()).collect(), is_damaged)
}

fn folder(name: &str) -> (tempfile::TempDir, serde_json::Value) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/folders").join(name);
    let expected = std::fs::read(from.join("expected.json")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    copy(&from.join("store"), &dir.path().join("store"));
    (dir, serde_json::from_slice(&expected).unwrap())
}

fn options_of(data: &Path) -> EmbeddedOptions {
    EmbeddedOptions { data: Some(data.to_owned()), merges: false, ..EmbeddedOptions::default() }
}

fn open(data: &Path) -> EmbeddedDriver {
    let options = options_of(data);
    let driver = EmbeddedDriver::open(&data.join("store"), options.clone()).unwrap();
    assert_eq!(options.damage.totals(), (0, 0), "{:?}", options.damage.examples());
    driver
}

#[test]
fn a_folder_of_layout_1_is_converted_with_everything_in_it() {
    let (dir, expected) = folder("layout1");
    check(&open(dir.path()), &expected);
    let trash: Vec<_> =
        std::fs::read_dir(dir.path().join("trash")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(
        trash.iter().any(|entry| entry.join("metrics/current").exists()),
        "the old files are in the trash: {trash:?}"
    );
    check(&open(dir.path()), &expected);
}

#[test]
fn a_folder_of_layout_2_is_read() {
    let (dir, expected) = folder("layout2");
    check(&open(dir.path()), &expected);
    assert!(!dir.path().join("trash").exists(), "nothing was converted");
}

#[test]
fn a_store_of_codec_1_on_a_full_disk_is_read_and_takes_rows_once_there_is_room() {
    let (dir, expected) = folder("layout2");
    let spec = || std::fs::read_to_string(dir.path().join("store/spec")).unwrap();
    let before = spec();
    let is_full = Arc::new(AtomicBool::new(true));
    let full = is_full.clone();
    let disk = FailingDisk::new(Arc::new(SystemDisk), move |call, _| {
        let fails = full.load(Relaxed) && call == Call::Write;
        fails.then(|| io::Error::from_raw_os_error(28))
    });
    let options = EmbeddedOptions { host: Host { disk: Arc::new(disk), ..Host::system() }, ..options_of(dir.path()) };
    let driver = EmbeddedDriver::open(&dir.path().join("store"), options.clone()).unwrap();
    check(&driver, &expected);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (name, _) = expected["points"].as_object().unwrap().iter().next().unwrap();
    let record = runtime.block_on(metrics_of(&driver))[name].clone();
    let stage = record.policies.last().unwrap().policy.retention.finest();
    let run = Run {
        metric: record.id,
        name: name.clone(),
        table: Table { stage, aggregated: false, rollup: None },
        first_slot: 29_900_000,
        values: vec![0.1 + 0.2],
        counts: vec![],
        aggregation: Aggregation::Average,
    };
    runtime.block_on(driver.write(vec![run])).unwrap();
    let files = driver.files();
    let error = runtime.block_on(driver.sync()).unwrap_err().to_string();
    assert!(error.contains("spec"), "{error}");
    driver.merge();
    assert_eq!((driver.files(), spec()), (files.clone(), before.clone()), "no row before the spec says so");
    is_full.store(false, Relaxed);
    runtime.block_on(driver.sync()).unwrap();
    assert!(driver.files().len() > files.len() && spec().contains("\nrow codec 2\n"), "{}", spec());
    assert_eq!(options.damage.examples(), []);
    check(&driver, &expected);
}

#[test]
fn every_file_of_rows_says_the_version_of_its_rows_also_where_the_spec_is_lost() {
    let version_of = |path: &Path| {
        let bytes = std::fs::read(path).unwrap();
        u32::from_le_bytes(bytes[8..12].try_into().unwrap())
    };
    let (dir, expected) = folder("layout2");
    let store = dir.path().join("store");
    let driver = open(dir.path());
    let paths = |driver: &EmbeddedDriver| driver.files().iter().map(|file| store.join(&file.path)).collect::<Vec<_>>();
    assert!(paths(&driver).iter().all(|path| version_of(path) == 1), "of the earlier program");
    driver.settle().unwrap();
    let merged: Vec<_> = paths(&driver).into_iter().filter(|path| version_of(path) == 2).collect();
    assert!(!merged.is_empty());
    check(&driver, &expected);
    drop(driver);
    // A later program wrote a file, and its spec is gone.
    let mut bytes = std::fs::read(&merged[0]).unwrap();
    bytes[8] = 4;
    let crc = crc32fast::hash(&bytes[..60]);
    bytes[60..64].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(&merged[0], &bytes).unwrap();
    std::fs::write(store.join("spec"), "damaged").unwrap();
    let newer = newer_file(&SystemDisk, &store).unwrap().unwrap();
    assert_eq!((newer.path, &*newer.found, &*newer.reads), (merged[0].clone(), "version 4", "versions 1 to 3"));
}

#[test]
fn rows_of_codec_1_are_merged_with_rows_of_codec_2_after_the_spec_says_so() {
    let (dir, expected) = folder("layout2");
    let spec = || std::fs::read_to_string(dir.path().join("store/spec")).unwrap();
    let before = spec();
    assert!(before.contains("\nrow codec 1\n"), "{before}");
    let driver = open(dir.path());
    let lines = |text: &str| text.lines().take_while(|line| !line.starts_with("check")).collect::<Vec<_>>().join("\n");
    assert_eq!(
        lines(&spec()),
        lines(&before).replace("layout 2", "layout 3").replace("row codec 1", "row codec 2"),
        "before the first row"
    );

    let sum = |i: u32| f64::from(i) / 10.0 + 0.2 - 0.3;
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let written = runtime.block_on(async {
        let (mut runs, mut written) = (Vec::new(), Vec::new());
        for (name, points) in expected["points"].as_object().unwrap() {
            let record = &metrics_of(&driver).await[name];
            let stage = record.policies.last().unwrap().policy.retention.finest();
            let last = points.as_array().unwrap().iter().map(|point| point[0].as_i64().unwrap()).max().unwrap();
            let first_slot = stage.slot(last).unwrap() + 1;
            let table = Table { stage, aggregated: false, rollup: None };
            let values: Vec<f64> = (0..40).map(sum).collect();
            written.extend((0..40).map(|i| (record.clone(), stage.time(first_slot + i), sum(i))));
            runs.push(Run {
                metric: record.id,
                name: name.clone(),
                table,
                first_slot,
                values,
                counts: vec![],
                aggregation: Aggregation::Average,
            });
        }
        driver.write(runs).await.unwrap();
        driver.sync().await.unwrap();
        written
    });
    let check_all = |driver: &EmbeddedDriver| {
        check(driver, &expected);
        for (record, time, value) in &written {
            let (found, is_damaged) = runtime.block_on(values_at(driver, record, *time));
            let is_found = found.iter().any(|found| found.to_bits() == value.to_bits());
            assert!(is_found && !is_damaged, "{} at {time}: {found:?}, not {value}", record.name);
        }
    };
    check_all(&driver);
    let files = driver.files().len();
    driver.settle().unwrap();
    assert!(driver.files().len() < files, "files are merged");
    check_all(&driver);
    drop(driver);
    check_all(&open(dir.path()));
}
