//! A folder of layout 1 that is converted while the process dies, calls fail, the disk is full or the old files are
//! damaged.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use host::{Call, FailingDisk, Host, Random, SeededRandom, SystemDisk};
use store::{DamageLog, Events};
use store_embedded::{EmbeddedDriver, EmbeddedOptions};

use super::{check, folder, metrics_of, open, options_of, values_at};

/// What becomes of the calls of a conversion, which are counted from 0.
type Fault = fn(number: u64, of: u64, call: Call) -> Option<io::Error>;

/// Opens a folder over a disk whose calls may fail. Returns how many calls there were.
fn open_with(data: &Path, at: u64, fault: Fault) -> (u64, Result<EmbeddedDriver, String>) {
    let calls = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&calls);
    let disk = FailingDisk::new(Arc::new(SystemDisk), move |call, _| fault(count.fetch_add(1, Relaxed), at, call));
    let mut options = options_of(data);
    options.host = Host { disk: Arc::new(disk), ..Host::system() };
    let opened = EmbeddedDriver::open(&data.join("store"), options).map_err(|error| error.to_string());
    (calls.load(Relaxed), opened)
}

/// The process is gone: nothing is done any more.
fn dies(number: u64, at: u64, _: Call) -> Option<io::Error> {
    (at <= number).then(|| io::Error::other("the process is gone"))
}

fn fails_once(number: u64, at: u64, _: Call) -> Option<io::Error> {
    (at == number).then(|| io::Error::other("injected"))
}

fn disk_is_full(number: u64, at: u64, call: Call) -> Option<io::Error> {
    let takes_room = matches!(call, Call::Write | Call::CreateDir | Call::SetLen | Call::Sync);
    (at <= number && takes_room).then(|| io::ErrorKind::StorageFull.into())
}

/// The calls at which something happens: every one with `EVERY=1`, otherwise some.
fn places(calls: u64) -> impl Iterator<Item = u64> {
    let every = std::env::var("EVERY").ok().and_then(|every| every.parse().ok()).unwrap_or(calls / 24);
    (0..calls).step_by(every as usize)
}

fn calls_of_a_conversion() -> u64 {
    let (dir, _) = folder("layout1");
    open_with(dir.path(), u64::MAX, dies).0
}

#[test]
fn a_process_that_dies_in_a_conversion_continues_or_begins_again() {
    for at in places(calls_of_a_conversion()) {
        let (dir, expected) = folder("layout1");
        // The second time it dies in what the first one left.
        for at in [at, at / 2] {
            drop(open_with(dir.path(), at, dies));
        }
        println!("died at call {at}");
        check(&open(dir.path()), &expected);
    }
}

#[test]
fn a_call_that_fails_in_a_conversion_costs_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for at in places(calls_of_a_conversion()) {
        let (dir, expected) = folder("layout1");
        println!("call {at} fails");
        if let Ok(driver) = open_with(dir.path(), at, fails_once).1 {
            runtime.block_on(check_flagged(&driver, &expected));
        }
        check(&open(dir.path()), &expected);
    }
}

/// Every point is there, or its answer says that it may be incomplete: until the next start a file may not be open.
async fn check_flagged(driver: &EmbeddedDriver, expected: &serde_json::Value) {
    let metrics = metrics_of(driver).await;
    for (name, points) in expected["points"].as_object().unwrap() {
        for point in points.as_array().unwrap().iter().step_by(7) {
            let (time, value) = (point[0].as_i64().unwrap(), point[1].as_f64().unwrap());
            let (found, is_damaged) = values_at(driver, &metrics[name], time).await;
            assert!(found == [value] || found.is_empty() && is_damaged, "{name} at {time}: {found:?}");
        }
    }
}

/// All files of a folder but for those of a conversion.
fn old_files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            found.extend(old_files(&entry.path()));
        } else {
            found.insert(entry.path(), std::fs::read(entry.path()).unwrap());
        }
    }
    found
}

#[test]
fn a_disk_that_is_full_leaves_the_old_folder_as_it_was() {
    let mut refused = 0;
    for at in places(calls_of_a_conversion()) {
        let (dir, expected) = folder("layout1");
        let before = old_files(&dir.path().join("store"));
        let opened = open_with(dir.path(), at, disk_is_full).1;
        let is_old = !std::fs::read_to_string(dir.path().join("store/spec")).unwrap().contains("layout 3");
        if is_old {
            let error = opened.map(|_| ()).unwrap_err();
            let has_begun_to_switch = dir.path().join("store/replaced").exists();
            assert!(error.contains("no storage space") && error.contains("/store"), "{error}");
            if !has_begun_to_switch {
                assert!(old_files(&dir.path().join("store")) == before, "full at call {at}: {error}");
                refused += 1;
            }
        } else {
            // Folders that could not be synced do not refuse the new one.
            drop(opened);
        }
        println!("full at call {at}");
        check(&open(dir.path()), &expected);
    }
    assert!(refused > 3, "{refused}");
}

/// What was found is right, and what is missing was reported.
async fn check_damaged(driver: &EmbeddedDriver, expected: &serde_json::Value, damage: &DamageLog) -> usize {
    let mut lost = 0;
    let metrics = metrics_of(driver).await;
    let points = expected["points"].as_object().unwrap();
    assert!(metrics.keys().all(|name| points.contains_key(name)), "{:?}", metrics.keys());
    for (name, points) in points {
        let Some(record) = metrics.get(name) else {
            lost += 1;
            continue;
        };
        for point in points.as_array().unwrap().iter().step_by(7) {
            let (time, value) = (point[0].as_i64().unwrap(), point[1].as_f64().unwrap());
            let (found, _) = values_at(driver, record, time).await;
            assert!(found.iter().all(|found| *found == value), "{name} at {time}: {found:?}, not {value}");
            lost += usize::from(found.is_empty());
        }
    }
    let events = driver.events((0, 0), i64::MAX, 100).await.unwrap();
    let all = expected["events"].as_array().unwrap();
    for event in &events {
        let is_it = |other: &&serde_json::Value| other["id"].as_u64() == Some(event.id);
        let other = all.iter().find(is_it).unwrap();
        assert_eq!(event.content.what, other["what"].as_str().unwrap());
        assert_eq!(event.content.when, other["when"].as_i64().unwrap());
        assert_eq!(event.content.data, other["data"].as_str().unwrap());
    }
    lost += all.len() - events.len();
    assert!(lost == 0 || damage.totals().0 > 0, "{lost} are gone without a report");
    lost
}

#[test]
fn damage_in_an_old_tree_costs_what_is_damaged_and_is_reported() {
    let random = SeededRandom::new(SeededRandom::test_seed(21));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let rounds = std::env::var("ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(2);
    let (first, _) = folder("layout1");
    let root = first.path().to_owned();
    let files = old_files(&root.join("store"));
    for (path, bytes) in files.iter().filter(|(path, bytes)| !bytes.is_empty() && !path.ends_with("store/spec")) {
        let inside = path.strip_prefix(&root).unwrap();
        for _ in 0..rounds {
            let (dir, expected) = folder("layout1");
            let mut damaged = bytes.clone();
            let bit = random.index(damaged.len() * 8);
            damaged[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(dir.path().join(inside), &damaged).unwrap();
            println!("{} bit {bit} of {}", inside.display(), damaged.len() * 8);
            let options = options_of(dir.path());
            let driver = EmbeddedDriver::open(&dir.path().join("store"), options.clone()).unwrap();
            let lost = runtime.block_on(check_damaged(&driver, &expected, &options.damage));
            println!("  {lost} lost, {:?}", options.damage.totals());
            drop(driver);
            let again = EmbeddedDriver::open(&dir.path().join("store"), options_of(dir.path())).unwrap();
            assert_eq!(runtime.block_on(check_damaged(&again, &expected, &options.damage)), lost);
        }
    }
}

#[test]
fn a_file_of_an_old_tree_that_the_disk_does_not_return_for_a_while_costs_nothing() {
    let (first, _) = folder("layout1");
    let root = first.path().to_owned();
    let of_tables = |path: &PathBuf| path.components().any(|part| part.as_os_str() == "tables");
    let files: Vec<PathBuf> = old_files(&root.join("store")).into_keys().filter(of_tables).collect();
    assert!(3 < files.len(), "{files:?}");
    for path in files.iter().step_by(2) {
        let (dir, expected) = folder("layout1");
        let (path, away) = (dir.path().join(path.strip_prefix(&root).unwrap()), dir.path().join("away"));
        std::fs::rename(&path, &away).unwrap();
        // To open it fails.
        std::os::unix::fs::symlink(&path, &path).unwrap();
        let options = EmbeddedOptions { read_patience: Duration::from_secs(60), ..options_of(dir.path()) };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(500));
                std::fs::rename(&away, &path).unwrap();
            });
            let driver = EmbeddedDriver::open(&dir.path().join("store"), options.clone()).unwrap();
            assert_eq!(options.damage.totals().0, 0, "{}: {:?}", path.display(), options.damage.examples());
            check(&driver, &expected);
        });
    }
}

#[test]
fn a_damaged_spec_of_layout_1_costs_nothing_and_another_number_in_it_is_refused() {
    let (dir, _) = folder("layout1");
    let spec = std::fs::read(dir.path().join("store/spec")).unwrap();
    for place in (0..spec.len()).step_by(5) {
        let (dir, expected) = folder("layout1");
        let path = dir.path().join("store/spec");
        let mut damaged = spec.clone();
        // A digit stays none, so that it is damage and not another version.
        damaged[place] ^= 0x80;
        std::fs::write(&path, &damaged).unwrap();
        let options = options_of(dir.path());
        let driver = EmbeddedDriver::open(&dir.path().join("store"), options.clone());
        check(&driver.unwrap_or_else(|error| panic!("byte {place}: {error}")), &expected);
        assert_eq!(options.damage.totals().0, 1, "byte {place}: the spec is reported");
    }
    let text = String::from_utf8(spec).unwrap();
    for other in [text.replace("layout 1", "layout 0"), text.replace("codec 1", "codec 2")] {
        let path = dir.path().join("store/spec");
        std::fs::write(&path, &other).unwrap();
        let error = EmbeddedDriver::open(&dir.path().join("store"), options_of(dir.path())).err().unwrap().to_string();
        assert!(error.contains("store/spec") && error.contains("nothing was changed"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), other);
    }
}
