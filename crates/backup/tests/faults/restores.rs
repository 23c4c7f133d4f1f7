//! Restores of a backup, to a folder that is missing or empty.

use std::{path::Path, sync::Arc};

use backup::{BackupError, Restored, costs, repair, restore, verify, verify_backup};
use host::{Disk, Fault, FaultPlan, SimulatedDisk};

use super::{
    calls_of,
    node::{BACKUPS, DATA, Life, Served, filled, host, new_disk},
    places, run,
};

const TARGET: &str = "/restored";

/// A disk with a backup, and what it serves.
fn with_backup() -> (SimulatedDisk, Served) {
    let (disk, served) = filled(&new_disk());
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let life = Life::start(&shared, Path::new(DATA)).unwrap();
    life.back_up().unwrap();
    disk.die();
    life.end();
    (disk.kill(), served)
}

fn restore_on(disk: &SimulatedDisk) -> Result<Restored, BackupError> {
    restore(disk, Path::new(BACKUPS), Path::new(TARGET))
}

fn served(disk: &SimulatedDisk) -> Result<Served, String> {
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let life = Life::start(&shared, Path::new(TARGET))?;
    let served = life.served();
    life.end();
    Ok(served)
}

fn a_fault_at_any_call(is_there: bool) {
    let (base, expected) = with_backup();
    if is_there {
        base.create_dir_all(Path::new(TARGET)).unwrap();
    }
    let (calls, restored) = {
        let disk = base.kill();
        calls_of(&disk, || restore_on(&disk))
    };
    restored.unwrap();
    for (what, at) in places(calls) {
        let disk = base.kill();
        let (disk, done) = run(&disk, what, at, || restore_on(&disk));
        let context = format!("{what:?} at {at}: {:?}, {done:?}", disk.faults());
        if !matches!(done, Some(Ok(_))) {
            // What is there is all of it, nothing, or refused by a start.
            let has_any = disk.exists(Path::new(TARGET).join("store").as_path())
                || disk.exists(Path::new("/restored.unfinished"))
                || disk.exists(Path::new(TARGET).join(".restoring").as_path());
            match has_any.then(|| served(&disk.kill())) {
                None => {}
                Some(Ok(found)) => assert_eq!(found, expected, "{context}"),
                Some(Err(error)) => assert!(
                    error.contains("interrupted; empty the folder") || error.contains("interrupted; restore again"),
                    "{context}: {error}"
                ),
            }
            // The next attempt works, or says what to do first.
            if let Err(error) = restore_on(&disk) {
                let error = error.to_string();
                assert!(
                    error.contains("empty it and restore again") || error.contains("is not empty"),
                    "{context}: {error}"
                );
                disk.remove_dir_all(Path::new(TARGET)).unwrap();
                restore_on(&disk).unwrap();
            }
        }
        assert_eq!(served(&disk).unwrap(), expected, "{context}");
    }
}

#[test]
fn a_fault_at_any_call_of_a_restore_leaves_nothing_that_a_start_takes_for_whole() {
    a_fault_at_any_call(false);
}

#[test]
fn a_fault_at_any_call_of_a_restore_into_a_mount_point_leaves_nothing_that_a_start_takes_for_whole() {
    a_fault_at_any_call(true);
}

#[test]
fn a_full_disk_is_said_and_the_next_restore_works() {
    let (base, expected) = with_backup();
    for room in [0, 100, 3000] {
        let disk = base.kill();
        disk.set_capacity(disk.used() + room);
        let error = restore_on(&disk).unwrap_err().to_string();
        assert!(error.contains("make room"), "{error}");
        assert!(!disk.exists(Path::new(TARGET)));
        assert_eq!(disk.files(Path::new("/restored.unfinished")), [], "what was copied took up room");
        assert!(served(&disk.kill()).unwrap_err().contains("interrupted; restore again"));
        disk.set_capacity(u64::MAX);
        restore_on(&disk).unwrap();
        assert_eq!(served(&disk).unwrap(), expected);
    }
}

#[test]
fn a_restore_to_a_folder_that_a_refused_start_made_removes_what_the_one_before_left() {
    let (disk, expected) = with_backup();
    disk.create_dir_all(Path::new("/restored.unfinished")).unwrap();
    assert!(served(&disk).unwrap_err().contains("interrupted; restore again"));
    restore_on(&disk).unwrap();
    assert_eq!(served(&disk).unwrap(), expected);
    assert!(!disk.exists(Path::new("/restored.unfinished")));
}

#[test]
fn a_backup_that_cannot_be_read_is_refused_with_the_name_of_another() {
    let (disk, _) = with_backup();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let life = Life::start(&shared, Path::new(DATA)).unwrap();
    let made = life.back_up().unwrap();
    life.end();
    disk.rot(&made.path.join("backup.json"), |bytes| bytes.truncate(100)).unwrap();
    let error = restore_on(&disk).unwrap_err().to_string();
    assert!(error.contains("the newest other one is /backups/backup-000001"), "{error}");
}

#[test]
fn a_call_that_fails_makes_no_restore_of_an_older_backup() {
    let (disk, _) = with_backup();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let life = Life::start(&shared, Path::new(DATA)).unwrap();
    let newest = life.back_up().unwrap().path;
    life.end();
    let mut failed = 0;
    for call in 0..10 {
        let disk = disk.kill();
        disk.set_plan(Some(FaultPlan::once(disk.changes() + call, Fault::EIO)));
        match restore_on(&disk) {
            Ok(restored) => assert_eq!(restored.backup, newest, "call {call} failed: {:?}", disk.faults()),
            Err(_) => failed += 1,
        }
    }
    assert!(0 < failed);
}

#[test]
fn what_a_repaired_copy_of_a_backup_lacks_of_the_journal_is_reported_once_it_is_restored() {
    type Damage = fn(&SimulatedDisk, &Path);
    let damages: [(Damage, &str); 2] = [
        (|disk, segment| disk.remove_file(segment).unwrap(), "a segment of the journal was missing"),
        (|disk, segment| disk.rot(segment, |bytes| bytes[100..140].fill(0)).unwrap(), "damaged bytes"),
    ];
    for (damage, report) in damages {
        let (disk, _) = with_backup();
        let copy = Path::new(BACKUPS).join("backup-000001");
        let segments = disk.files(&copy.join("journal"));
        let segment = segments
            .into_iter()
            .map(|(path, _)| path)
            .find(|path| path.extension().is_some_and(|end| end == "journal"));
        damage(&disk, &segment.unwrap());
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        assert!(repair(&host(&shared), &copy, false).unwrap().after.unwrap().is_good());
        assert!(verify_backup(&disk, &copy).unwrap().1.is_good());
        restore_on(&disk).unwrap();
        for _ in 0..2 {
            let found = verify(&disk, Path::new(TARGET)).unwrap();
            assert!(found.is_good(), "{found:?}");
            let losses = &found.known_losses;
            assert!(
                losses.iter().any(|loss| loss.file.starts_with("damaged") && loss.how.contains(report)),
                "{losses:?}"
            );
            served(&disk).unwrap();
        }
    }
}

#[test]
fn a_repaired_copy_of_a_damaged_backup_is_verified_and_restored() {
    let (disk, whole) = with_backup();
    let copy = Path::new(BACKUPS).join("backup-000001");
    let paths: Vec<_> = disk.files(&copy).into_iter().map(|(path, _)| path).collect();
    let is = |ending: &'static str| paths.iter().find(move |path| path.to_string_lossy().ends_with(ending)).unwrap();
    for ending in [".rows", "store/names/00000001.log", ".journal", "/clock"] {
        disk.rot(is(ending), |bytes| {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 4;
        })
        .unwrap();
    }
    disk.remove_file(is("store/events/00000001.log")).unwrap();
    assert!(restore_on(&disk).is_err());
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let repaired = repair(&host(&shared), &copy, false).unwrap();
    assert!(repaired.after.unwrap().is_good());
    let lost = repaired.before.faults().filter(|(_, part)| costs(part)).count();
    assert!(3 < lost, "{:?}", repaired.before);
    let (_, report) = verify_backup(&disk, &copy).unwrap();
    assert!(report.is_good(), "{report:?}");
    let again = repair(&host(&shared), &copy, false).unwrap();
    assert!(again.before.is_good() && again.after.is_none());
    restore_on(&disk).unwrap();
    let served = served(&disk).unwrap();
    assert!(!served.is_empty() && served.len() < whole.len());
}
