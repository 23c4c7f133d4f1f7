//! Repairs of a damaged data folder.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use backup::{BackupError, Repaired, costs, repair, restore, verify, verify_backup};
use host::{Call, Disk, FailingDisk, Fault, FaultPlan, Open, SimulatedDisk};

use super::{
    calls_of,
    node::{DATA, Life, Served, filled, host, new_disk, points},
    places, run,
};

fn repair_on(disk: &SimulatedDisk) -> Result<Repaired, BackupError> {
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    repair(&host(&shared), Path::new(DATA), false)
}

fn served(disk: &SimulatedDisk) -> Result<Served, String> {
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let life = Life::start(&shared, Path::new(DATA))?;
    let served = life.served();
    life.end();
    Ok(served)
}

fn file(disk: &SimulatedDisk, is_it: impl Fn(&str) -> bool) -> PathBuf {
    let files = disk.files(Path::new(DATA));
    let found = files.into_iter().filter(|(path, _)| is_it(&path.to_string_lossy())).max_by_key(|(_, len)| *len);
    found.expect("the folder has such a file").0
}

/// A damaged data folder, what it served before, and what it serves with the damage.
fn damaged() -> (SimulatedDisk, Served, Served) {
    let (disk, whole) = filled(&new_disk());
    let kinds: [&dyn Fn(&str) -> bool; 6] = [
        &|path| path.ends_with(".rows"),
        &|path| path.contains("store/names/"),
        &|path| path.ends_with("store/manifest"),
        &|path| path.ends_with("store/spec"),
        &|path| path.ends_with(".journal"),
        &|path| path.ends_with("/clock"),
    ];
    for is_it in kinds {
        let path = file(&disk, is_it);
        disk.rot(&path, |bytes| {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 4;
        })
        .unwrap();
    }
    let with_damage = served(&disk.kill()).unwrap();
    (disk, whole, with_damage)
}

/// Whether every value of the one is in the other.
fn is_within(some: &Served, all: &Served) -> bool {
    some.iter().all(|(name, values)| {
        values.iter().all(|(time, value)| all.get(name).and_then(|of_name| of_name.get(time)) == Some(value))
    })
}

#[test]
fn a_fault_at_any_call_of_a_repair_loses_nothing_that_could_be_read() {
    let (base, whole, with_damage) = damaged();
    assert!(is_within(&with_damage, &whole) && with_damage != whole);
    let (calls, repaired) = {
        let disk = base.kill();
        calls_of(&disk, || repair_on(&disk))
    };
    let repaired = repaired.unwrap();
    assert!(repaired.after.unwrap().is_good());
    assert!(50 < calls, "{calls} calls");
    for (what, at) in places(calls) {
        let disk = base.kill();
        let (disk, done) = run(&disk, what, at, || repair_on(&disk));
        let context = format!("{what:?} at {at}: {:?}", disk.faults());
        // A start in place of the next repair.
        let between = served(&disk.kill()).unwrap_or_else(|error| panic!("{context}: {error}"));
        assert!(is_within(&with_damage, &between) && is_within(&between, &whole), "{context}");
        let again = repair_on(&disk).unwrap_or_else(|error| panic!("{context}: {error}, after {done:?}"));
        assert!(again.after.unwrap_or(again.before).is_good(), "{context}");
        assert!(verify(&disk, Path::new(DATA)).unwrap().is_good(), "{context}");
        let served = served(&disk).unwrap();
        assert!(is_within(&with_damage, &served) && is_within(&served, &whole), "{context}");
    }
}

/// As after a restore by another user: it is not damaged, and what it says is not known.
#[test]
fn a_file_that_may_not_be_read_is_not_put_aside() {
    for name in ["segments", "clock"] {
        let (disk, _) = filled(&new_disk());
        let path = Path::new(DATA).join(name);
        assert!(disk.exists(&path));
        let forbidden = path.clone();
        let failing = FailingDisk::new(Arc::new(disk.clone()), move |call, path| {
            (call == Call::Open && path == forbidden).then(|| std::io::ErrorKind::PermissionDenied.into())
        });
        let shared: Arc<dyn Disk> = Arc::new(failing);
        let refused = repair(&host(&shared), Path::new(DATA), false).unwrap_err();
        assert!(refused.to_string().contains(name), "{refused}");
        assert!(disk.exists(&path));
    }
}

#[test]
fn a_torn_end_of_the_journal_is_said_and_does_not_count_as_damage() {
    let (disk, whole) = filled(&new_disk());
    let journal = file(&disk, |path| path.ends_with(".journal"));
    let torn = [200, 0, 0, 0, 1, 2, 3, 4, 1, 9, 9];
    disk.rot(&journal, |bytes| bytes.extend_from_slice(&torn)).unwrap();
    let before = disk.read(&journal).unwrap();
    let report = verify(&disk, Path::new(DATA)).unwrap();
    assert!(report.is_good(), "{report:?}");
    let cut_off: Vec<u64> = report.cut_off().map(|file| file.cut_off).collect();
    assert_eq!(cut_off, [torn.len() as u64]);
    let repaired = repair_on(&disk).unwrap();
    assert_eq!((repaired.after, repaired.before.is_good()), (None, true));
    assert_eq!(disk.read(&journal).unwrap(), before, "a repair leaves it");
    assert_eq!(served(&disk).unwrap(), whole);
}

#[test]
fn missing_emptied_and_stale_segments_of_the_journal_are_found() {
    let (disk, whole) = filled(&new_disk());
    let journal = file(&disk, |path| path.ends_with(".journal"));
    let bytes = disk.read(&journal).unwrap();
    let found = |disk: &SimulatedDisk| {
        let report = verify(disk, Path::new(DATA)).unwrap();
        report.faults().map(|(file, part)| (file.path.clone(), part.what, costs(part))).collect::<Vec<_>>()
    };
    let shown = journal.strip_prefix(DATA).unwrap().to_owned();
    assert_eq!(found(&disk), []);

    // Each with a repair: the loss is listed, and the rest is served.
    let missing = disk.kill();
    missing.remove_file(&journal).unwrap();
    let emptied = disk.kill();
    emptied.rot(&journal, |bytes| bytes.clear()).unwrap();
    let zeros = disk.kill();
    zeros.rot(&journal, |bytes| bytes.fill(0)).unwrap();
    for damaged in [missing, emptied, zeros] {
        assert_eq!(found(&damaged), [(shown.clone(), "journal segment", true)]);
        assert_eq!(
            verify(&damaged, Path::new(DATA)).unwrap().cut_off().count(),
            0,
            "zeros are not also the end of a write"
        );
        let repaired = repair_on(&damaged).unwrap();
        assert!(!repaired.before.is_good() && repaired.after.unwrap().is_good());
        assert_eq!(found(&damaged), [], "a repair ends the report");
        let notes = damaged.read_to_string(Path::new("/data/damaged/list")).unwrap();
        assert!(notes.contains(".missing"), "what is lost stays written down: {notes}");
        assert!(is_within(&served(&damaged).unwrap(), &whole));
        assert_eq!(found(&damaged), [], "a start has said it, and goes on");
    }

    // A copy of a segment that was removed long ago.
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let life = Life::start(&shared, Path::new(DATA)).unwrap();
    for round in 0..3 {
        life.send(points("later", 2, round..round + 1));
        life.flush();
    }
    let whole = life.served();
    life.end();
    let stale = disk.kill();
    assert_eq!(found(&stale), []);
    stale.open(&journal, Open::Create).unwrap().write_all(&bytes).unwrap();
    assert_eq!(found(&stale), [(shown, "stale journal segment", false)]);
    assert!(repair_on(&stale).unwrap().after.unwrap().is_good());
    assert_eq!((found(&stale), served(&stale).unwrap()), (Vec::new(), whole));
}

#[test]
fn a_file_with_a_number_that_none_has_is_found_and_put_aside() {
    let (disk, whole) = filled(&new_disk());
    let stray = PathBuf::from(format!("{DATA}/journal/{}.journal", u64::MAX));
    disk.open(&stray, Open::Create).unwrap().write_all(b"text").unwrap();
    assert_eq!(served(&disk).unwrap(), whole);
    assert!(disk.exists(&stray) && !verify(&disk, Path::new(DATA)).unwrap().is_good());
    let repaired = repair_on(&disk).unwrap();
    assert!(repaired.before.faults().all(|(_, part)| part.what == "stray file" && !costs(part)));
    assert!(repaired.after.unwrap().is_good() && verify(&disk, Path::new(DATA)).unwrap().is_good());
    assert_eq!(served(&disk).unwrap(), whole);
}

#[test]
fn a_segment_without_its_end_is_found_until_a_repair() {
    let (disk, whole) = filled(&new_disk());
    let journal = file(&disk, |path| path.ends_with(".journal"));
    // A start begins a segment behind it, which is killed too.
    assert_eq!(served(&disk).unwrap(), whole);
    let found = |disk: &SimulatedDisk| {
        let report = verify(disk, Path::new(DATA)).unwrap();
        report.faults().map(|(_, part)| (part.what, part.bytes, costs(part))).collect::<Vec<_>>()
    };
    assert_eq!(found(&disk), []);
    let bytes = disk.read(&journal).unwrap();
    let (last, _) = ingest::wal::records(&bytes).last().unwrap();
    assert_eq!(last.end, bytes.len());
    disk.rot(&journal, |bytes| bytes.truncate(last.start)).unwrap();
    assert_eq!(found(&disk), [("journal records", last.len() as u64, true)]);
    let probe = disk.kill();
    let (calls, _) = calls_of(&probe, || repair_on(&probe).unwrap());
    for at in 0..calls {
        let again = disk.kill();
        let (interrupted, _) = run(&again, super::What::Kill, at, || repair_on(&again));
        assert!(matches!(&*found(&interrupted), [] | [("journal records", ..)]), "call {at}");
    }
    assert!(repair_on(&disk).unwrap().after.unwrap().is_good());
    assert_eq!(found(&disk), []);
    let left = served(&disk).unwrap();
    assert!(is_within(&left, &whole) && left != whole);
    assert_eq!(found(&disk), []);
}

#[test]
fn a_repair_keeps_the_folder_locked_from_its_beginning_to_its_end() {
    let (disk, ..) = damaged();
    let (seen, inner) = (Arc::new(Mutex::new(Vec::new())), disk.clone());
    let free = seen.clone();
    let watching = FailingDisk::new(Arc::new(disk.clone()), move |call, path| {
        let lock = inner.open(Path::new("/data/store/lock"), Open::Read).unwrap();
        free.lock().unwrap().push((lock.try_lock().unwrap(), call, path.to_owned()));
        None
    });
    let shared: Arc<dyn Disk> = Arc::new(watching);
    let repaired = repair(&host(&shared), Path::new(DATA), false).unwrap();
    assert!(repaired.after.unwrap().is_good());
    let seen = seen.lock().unwrap();
    let locked = seen.iter().position(|(is_free, ..)| !is_free).expect("it is locked");
    assert!(locked < 5, "{:?}", &seen[..locked]);
    let gap = seen[locked..].iter().find(|(is_free, ..)| *is_free);
    assert_eq!(gap, None, "another process could have locked the folder");
}

#[test]
fn a_folder_in_use_is_not_repaired() {
    let (disk, ..) = damaged();
    let before = disk.files(Path::new("/"));
    let in_use = backup::lock(&disk, Path::new(DATA)).unwrap();
    assert!(repair_on(&disk).unwrap_err().to_string().contains("another process uses"));
    assert_eq!(disk.files(Path::new("/")), before);
    drop(in_use);
    assert!(repair_on(&disk).unwrap().after.unwrap().is_good());
}

#[test]
fn names_that_are_missing_at_the_end_of_their_log_are_reported_and_their_ids_stay_given() {
    let (base, whole) = filled(&new_disk());
    let log = file(&base, |path| path.contains("store/names/"));
    let bytes = base.read(&log).unwrap();
    let name = b"second.m001";
    let boundary = bytes.windows(name.len()).position(|part| part == name).unwrap() + name.len();
    // Cut behind a record, empty, and gone.
    for len in [Some(boundary), Some(0), None] {
        let disk = base.kill();
        match len {
            Some(len) => disk.rot(&log, |bytes| bytes.truncate(len)).unwrap(),
            None => disk.remove_file(&log).unwrap(),
        }
        let found = verify(&disk, Path::new(DATA)).unwrap();
        let lost: Vec<_> = found.faults().filter(|(_, part)| part.what == "names record" && costs(part)).collect();
        assert_eq!(lost.len(), 1, "{len:?}: {found:?}");
        let (first, last) = lost[0].1.metrics.unwrap();
        assert!(first.0 <= 42 && last.0 == 45, "{len:?}: {first} to {last}");
        let repaired = repair_on(&disk).unwrap();
        assert!(repaired.before.faults().any(|(_, part)| costs(part)), "{len:?}");
        assert!(repaired.after.unwrap().is_good(), "{len:?}");
        assert!(is_within(&served(&disk).unwrap(), &whole), "{len:?}");
    }
}

#[test]
fn a_log_that_a_later_file_says_was_longer_is_damaged() {
    let (disk, _) = filled(&new_disk());
    // A sync of the log fails: the next records go to another file, which names the length of this one.
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let life = Life::start(&shared, Path::new(DATA)).unwrap();
    disk.set_plan(Some(FaultPlan { kinds: vec![Call::Sync], at: 0, times: 1, fault: Fault::EIO }));
    life.event("third");
    disk.set_plan(None);
    disk.die();
    life.end();
    let disk = disk.kill();
    let logs = disk.files(Path::new("/data/store/events"));
    assert_eq!(logs.len(), 2, "{logs:?}");
    assert!(verify(&disk, Path::new(DATA)).unwrap().is_good());
    let header = disk.read(&logs[1].0).unwrap();
    let counts = u64::from_le_bytes(header[56..64].try_into().unwrap());
    for cut in [1, 20] {
        let disk = disk.kill();
        disk.rot(&logs[0].0, |bytes| bytes.truncate((counts - cut) as usize)).unwrap();
        let report = verify(&disk, Path::new(DATA)).unwrap();
        let places: Vec<_> = report.faults().map(|(file, part)| (file.path.clone(), part.what)).collect();
        assert!(places.contains(&(PathBuf::from("store/events/00000001.log"), "event")), "{cut}: {report:?}");
    }
    let disk = disk.kill();
    disk.remove_file(&logs[0].0).unwrap();
    let report = verify(&disk, Path::new(DATA)).unwrap();
    assert!(report.faults().any(|(_, part)| part.what == "event"), "{report:?}");
    assert!(repair_on(&disk).unwrap().after.unwrap().is_good());
}

#[test]
fn a_folder_without_rows_is_good() {
    let disk = new_disk();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let life = Life::start(&shared, Path::new(DATA)).unwrap();
    life.send(points("only.journal", 1, 0..1));
    life.end();
    let report = verify(&disk.kill(), Path::new(DATA)).unwrap();
    assert!(report.is_good(), "{report:?}");
}

#[test]
fn one_repair_says_of_all_segments_that_are_missing_that_they_are_and_they_are_put_back_when_found() {
    for (from_end, count) in [(0, 1), (0, 3), (1, 2), (2, 1)] {
        let (mut disk, _) = filled(&new_disk());
        for name in ["second life", "third life", "fourth life"] {
            let life = Life::start(&(Arc::new(disk.clone()) as Arc<dyn Disk>), Path::new(DATA)).unwrap();
            life.send(points(name.split(' ').next().unwrap(), 2, 0..3));
            disk.die();
            life.end();
            disk = disk.kill();
        }
        let whole = served(&disk.kill()).unwrap();
        let segments: Vec<PathBuf> =
            disk.files(&Path::new(DATA).join("journal")).into_iter().map(|(path, _)| path).collect();
        let segments: Vec<PathBuf> =
            segments.into_iter().filter(|path| path.extension().is_some_and(|end| end == "journal")).collect();
        let end = segments.len() - from_end;
        let lost: Vec<(PathBuf, Vec<u8>)> =
            segments[end - count..end].iter().map(|path| (path.clone(), disk.read(path).unwrap())).collect();
        lost.iter().for_each(|(path, _)| disk.remove_file(path).unwrap());
        let context = format!("{count} segments, {from_end} before the end");
        let repaired = repair_on(&disk).unwrap();
        let after = repaired.after.unwrap();
        assert!(after.is_good(), "{context}: {after:?}");
        // They are found.
        for (path, bytes) in &lost {
            let life = Life::start(&(Arc::new(disk.clone()) as Arc<dyn Disk>), Path::new(DATA)).unwrap();
            life.flush();
            life.end();
            disk.open(path, Open::CreateNew).unwrap().write_shared(bytes).unwrap();
        }
        let life = Life::start(&(Arc::new(disk.clone()) as Arc<dyn Disk>), Path::new(DATA)).unwrap();
        life.put_back();
        // Names that only such a segment has may have been deleted since the repair: their points wait for a decision, and are reported.
        let kept = disk.files(&Path::new(DATA).join("damaged"));
        let is_undecided = kept.iter().any(|(path, _)| path.to_string_lossy().ends_with("-undecided"));
        let served = life.served();
        assert!(is_within(&served, &whole) && (served == whole || is_undecided), "{context}: {kept:?}");
        life.end();
    }
}

#[test]
fn a_repair_leaves_a_file_of_rows_that_the_disk_does_not_return_and_says_so() {
    let (disk, whole) = filled(&new_disk());
    let rows = file(&disk, |path| path.ends_with(".rows"));
    let bytes = disk.read(&rows).unwrap();
    disk.rot(&file(&disk, |path| path.ends_with("/clock")), |bytes| bytes[0] ^= 4).unwrap();
    let shown = rows.strip_prefix(DATA).unwrap().to_owned();
    let name = format!("data/{}", shown.display());
    let bad = FailingDisk::new(Arc::new(disk.clone()), |_, _| None).with_bad_sector(name.leak(), 100..200);
    let shared: Arc<dyn Disk> = Arc::new(bad);
    let dry = repair(&host(&shared), Path::new(DATA), true).unwrap();
    assert!(dry.unread.len() == 1 && dry.is_left(&shown), "{:?}", dry.unread);
    let repaired = repair(&host(&shared), Path::new(DATA), false).unwrap();
    assert!(repaired.unread.len() == 1 && repaired.is_left(&shown), "{:?}", repaired.unread);
    assert!(!repaired.is_bad_still() && !repaired.after.unwrap().is_good());
    assert_eq!(disk.read(&rows).unwrap(), bytes);
    assert!(verify(&disk, Path::new(DATA)).unwrap().is_good(), "the rest is repaired");
    assert_eq!(served(&disk).unwrap(), whole);
}

#[test]
fn a_repair_of_a_copy_of_a_backup_leaves_a_file_of_rows_that_the_disk_does_not_return() {
    let (disk, _) = filled(&new_disk());
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let life = Life::start(&shared, Path::new(DATA)).unwrap();
    let (backup, whole) = (life.back_up().unwrap().path, life.served());
    life.end();
    let of_backup = |end: &str| {
        let files = disk.files(&backup).into_iter().filter(|(path, _)| path.to_string_lossy().ends_with(end));
        files.max_by_key(|(_, len)| *len).unwrap().0
    };
    let (rows, clock) = (of_backup(".rows"), of_backup("/clock"));
    disk.rot(&clock, |bytes| bytes[0] ^= 4).unwrap();
    let shown = rows.strip_prefix(&backup).unwrap();
    let name = rows.strip_prefix("/").unwrap().display().to_string();
    let bad = FailingDisk::new(Arc::new(disk.clone()), |_, _| None).with_bad_sector(name.leak(), 100..200);
    let bad: Arc<dyn Disk> = Arc::new(bad);
    for is_again in [false, true] {
        let repaired = repair(&host(&bad), &backup, false).unwrap();
        assert!(repaired.is_left(shown) && repaired.unread.len() == 1, "{is_again}: {:?}", repaired.unread);
        assert!(!repaired.is_bad_still(), "{is_again}: {:?}", repaired.after);
    }
    // The disk is copied to another one.
    let (_, report) = verify_backup(&disk, &backup).unwrap();
    assert!(report.is_good(), "{report:?}");
    restore(&disk, &backup, Path::new("/restored")).unwrap();
    let life = Life::start(&shared, Path::new("/restored")).unwrap();
    assert_eq!(life.served(), whole);
    life.end();
}
