//! Backups of a running node.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use backup::{Made, find, restore, verify_backup};
use host::{Call, Disk, FailingDisk, SimulatedDisk};

use super::{
    calls_of,
    node::{BACKUPS, DATA, Life, Served, filled, new_disk, points},
    places, run,
    two_disks::TwoDisks,
};

/// Everything that is named as a backup is one, and what is not complete passes for nothing.
fn check_folder(disk: &dyn Disk) -> usize {
    let mut complete = 0;
    for entry in disk.read_dir(Path::new(BACKUPS)).unwrap() {
        let name = entry.name.to_string_lossy().into_owned();
        if name.ends_with(".unfinished") {
            let refused = [
                restore(disk, &entry.path, Path::new("/of-unfinished")).map(drop),
                verify_backup(disk, &entry.path).map(drop),
            ];
            for refused in refused {
                let error = refused.expect_err(&name).to_string();
                assert!(error.contains("an interrupted backup") && error.contains("removes it"), "{error}");
            }
        } else {
            let (_, report) = verify_backup(disk, &entry.path).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(report.is_good(), "{name}: {report:?}");
            complete += 1;
        }
    }
    complete
}

/// Restores the newest backup, starts it, and returns what it serves.
fn restored(disk: &Arc<dyn Disk>) -> Served {
    let to = PathBuf::from(format!("/restored-{}", disk.read_dir(Path::new("/")).unwrap().len()));
    restore(&**disk, Path::new(BACKUPS), &to).unwrap();
    let life = Life::start(disk, &to).unwrap();
    let served = life.served();
    life.end();
    served
}

fn started(disk: &SimulatedDisk) -> Life {
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let life = Life::start(&shared, Path::new(DATA)).unwrap();
    // The first backup is there; the next has links to it.
    life.back_up().unwrap();
    life.send(points("later", 4, 0..10));
    life
}

#[test]
fn a_fault_at_any_call_of_a_backup_costs_at_most_that_backup() {
    let (base, _) = filled(&new_disk());
    let calls = {
        let disk = base.kill();
        let life = started(&disk);
        let (calls, made) = calls_of(&disk, || life.back_up());
        made.unwrap();
        life.end();
        calls
    };
    assert!(100 < calls, "{calls} calls");
    for (what, at) in places(calls) {
        let disk = base.kill();
        let mut life = started(&disk);
        let served = life.served();
        let (disk, made) = run(&disk, what, at, || life.back_up());
        if made.is_none() {
            life.end();
            life = Life::start(&(Arc::new(disk.clone()) as Arc<dyn Disk>), Path::new(DATA)).unwrap();
            assert!(!disk.exists(Path::new("/data/.backup")), "a start removes the stage");
        }
        let context = format!("{what:?} at {at}: {:?}, {made:?}", disk.faults());
        assert_eq!(life.served(), served, "{context}");
        let complete = check_folder(&disk);
        match &made {
            Some(Ok(_)) => assert_eq!(complete, 2, "{context}"),
            _ => assert!(complete == 1 || complete == 2, "{context}"),
        }
        life.back_up_patiently();
        assert_eq!(check_folder(&disk), complete + 1, "{context}");
        assert!(!disk.exists(Path::new("/data/.backup")), "{context}");
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        assert_eq!(restored(&shared), served, "{context}");
        assert_eq!(life.served(), served, "{context}");
        life.end();
    }
}

fn two_disks() -> (TwoDisks, Arc<dyn Disk>, Life) {
    let (data, _) = filled(&new_disk());
    let disks = TwoDisks { data, backups: new_disk() };
    let shared: Arc<dyn Disk> = Arc::new(disks.clone());
    let life = Life::start(&shared, Path::new(DATA)).unwrap();
    life.flush();
    (disks, shared, life)
}

fn rows_of(made: &Made) -> u64 {
    made.manifest.files.iter().filter(|file| file.index_crc.is_some()).count() as u64
}

#[test]
fn backups_on_another_disk_are_copied_once_and_then_linked() {
    let (disks, shared, life) = two_disks();
    let first = life.back_up().unwrap();
    assert_eq!(first.linked, 0);
    assert_eq!(first.copied_bytes, first.manifest.files.iter().map(|file| file.bytes).sum::<u64>());
    assert_eq!(disks.backups.used(), first.copied_bytes + manifest_bytes(&disks, &first));
    let second = life.back_up().unwrap();
    assert_eq!((second.linked, second.linked > 0), (rows_of(&second), true));
    let of_second = second.copied_bytes + manifest_bytes(&disks, &second);
    assert_eq!(disks.backups.used(), first.copied_bytes + manifest_bytes(&disks, &first) + of_second);
    // Rows that a flush adds are copied, the others are links still.
    life.send(points("more", 4, 0..10));
    life.flush();
    let third = life.back_up().unwrap();
    assert!(0 < third.linked && third.linked < rows_of(&third), "{third:?}");
    // Old backups go in any order; the last has all that it needs.
    let served = life.served();
    for old in [&second, &first] {
        shared.remove_dir_all(&old.path).unwrap();
    }
    assert_eq!(check_folder(&*shared), 1);
    assert_eq!(restored(&shared), served);
    life.end();
}

/// Makes the file of rows of a backup another file, with other bytes, as rot on the disk of the backups does.
fn change(disk: &dyn Disk, path: &Path, how: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = disk.read(path).unwrap();
    how(&mut bytes);
    disk.remove_file(path).unwrap();
    host::replace_file(disk, path, &bytes).unwrap();
}

#[test]
fn damage_of_a_backup_is_reported_by_the_next_one_and_not_in_it() {
    let flip = |bytes: &mut Vec<u8>| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 4;
    };
    let cut = |bytes: &mut Vec<u8>| bytes.truncate(bytes.len() / 3);
    let (base, _) = filled(&new_disk());
    let (disks, shared, on_two) = two_disks();
    let one: Arc<dyn Disk> = Arc::new(base);
    let on_one = Life::start(&one, Path::new(DATA)).unwrap();
    for (life, disk) in [(on_two, shared), (on_one, one)] {
        life.flush();
        let path = life.file_of_rows();
        let mut last = life.back_up().unwrap();
        for how in [&flip as &dyn Fn(&mut Vec<u8>), &cut] {
            let damaged = last.path.join(&path);
            change(&*disk, &damaged, how);
            let made = life.back_up().unwrap();
            assert_eq!(made.damaged_before.iter().map(|file| &file.path).collect::<Vec<_>>(), [&damaged]);
            assert_eq!(made.damaged, []);
            let (_, report) = verify_backup(&*disk, &made.path).unwrap();
            assert!(report.is_good(), "{report:?}");
            last = life.back_up().unwrap();
            assert_eq!((&last.damaged_before, last.linked), (&Vec::new(), rows_of(&last)));
        }
        change(&*disk, &last.path.join("backup.json"), flip);
        let made = life.back_up().unwrap();
        assert_eq!(made.damaged_before.len(), 1, "{:?}", made.damaged_before);
        assert!(0 < made.linked, "the backup before that is read");
        assert_eq!(restored(&disk), life.served());
        life.end();
    }
    assert!(0 < disks.backups.used());
}

#[test]
fn damage_that_a_backup_was_made_with_is_reported_by_each_until_the_data_folder_is_whole() {
    let (disks, shared, life) = two_disks();
    let path = life.file_of_rows();
    let full = Path::new(DATA).join(&path);
    let flip = |bytes: &mut Vec<u8>| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 4;
    };
    disks.data.rot(&full, flip).unwrap();
    for _ in 0..2 {
        let made = life.back_up().unwrap();
        assert_eq!(made.damaged.iter().map(|file| &file.path).collect::<Vec<_>>(), [&path]);
    }
    disks.data.rot(&full, flip).unwrap();
    let made = life.back_up().unwrap();
    assert_eq!((&made.damaged, &made.damaged_before), (&Vec::new(), &Vec::new()));
    assert!(verify_backup(&*shared, &made.path).unwrap().1.is_good());
    life.end();
}

fn manifest_bytes(disks: &TwoDisks, made: &Made) -> u64 {
    disks.backups.read(&made.path.join("backup.json")).unwrap().len() as u64
}

#[test]
fn on_the_same_disk_rows_are_links_from_the_first_backup_on() {
    let (base, _) = filled(&new_disk());
    let shared: Arc<dyn Disk> = Arc::new(base.clone());
    let life = Life::start(&shared, Path::new(DATA)).unwrap();
    life.flush();
    let made = life.back_up().unwrap();
    assert_eq!((made.linked, made.linked > 0), (rows_of(&made), true));
    life.end();
}

#[test]
fn a_full_disk_of_backups_is_said_and_leaves_nothing_there() {
    let (disks, shared, life) = two_disks();
    life.back_up().unwrap();
    life.send(points("more", 30, 0..30));
    life.flush();
    let (served, used) = (life.served(), disks.backups.used());
    let mut failed = 0;
    for room in (0..).step_by(700) {
        disks.backups.set_capacity(used + room);
        match life.back_up() {
            Ok(_) => break,
            Err(error) => {
                let error = error.to_string();
                assert!(error.contains(BACKUPS) && error.contains("make room"), "{error}");
            }
        }
        failed += 1;
        assert_eq!(disks.backups.used(), used, "what did not fit is removed");
        assert_eq!(check_folder(&*shared), 1);
        assert!(!shared.exists(Path::new("/data/.backup")));
        assert_eq!(life.served(), served);
    }
    assert!(5 < failed, "{failed} attempts failed");
    disks.backups.set_capacity(u64::MAX);
    assert_eq!(check_folder(&*shared), 2);
    assert_eq!(restored(&shared), served);
    life.end();
}

#[test]
fn a_folder_with_backups_of_another_server_is_refused_and_stays_as_it_is() {
    let (disk, _) = filled(&new_disk());
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let life = Life::start(&shared, Path::new(DATA)).unwrap();
    let first = life.back_up().unwrap();
    life.end();
    // Another store with the backups of the first.
    disk.remove_dir_all(Path::new(DATA)).unwrap();
    let life = Life::start(&shared, Path::new(DATA)).unwrap();
    life.send(points("other", 3, 0..10));
    let error = life.back_up().unwrap_err().to_string();
    assert!(error.contains("is of the store") && error.contains("name a folder"), "{error}");
    assert_eq!(find(&disk, Path::new(BACKUPS)).unwrap(), first.path);
    assert_eq!(check_folder(&disk), 1);
    life.end();
}

#[test]
fn a_backup_of_a_damaged_folder_says_so_and_has_the_rest() {
    let (disk, _) = filled(&new_disk());
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let life = Life::start(&shared, Path::new(DATA)).unwrap();
    let path = life.file_of_rows();
    let full = Path::new(DATA).join(&path);
    disk.rot(&full, |bytes| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 4;
    })
    .unwrap();
    let made = life.back_up().unwrap();
    let damaged: Vec<_> = made.damaged.iter().map(|file| (&file.path, file.faults[0].what)).collect();
    assert_eq!(damaged, [(&path, "block of rows")]);
    let (_, report) = verify_backup(&disk, &made.path).unwrap();
    assert_eq!(report.faults().count(), 1, "{report:?}");
    life.end();
}

#[test]
fn a_file_of_rows_that_went_away_is_named_and_the_rest_is_in_the_backup() {
    let (disk, _) = filled(&new_disk());
    let life = Life::start(&(Arc::new(disk.clone()) as Arc<dyn Disk>), Path::new(DATA)).unwrap();
    let path = life.file_of_rows();
    disk.remove_file(&Path::new(DATA).join(&path)).unwrap();
    let made = life.back_up().unwrap();
    assert_eq!(made.damaged.iter().map(|file| &file.path).collect::<Vec<_>>(), [&path]);
    let (_, report) = verify_backup(&disk, &made.path).unwrap();
    let lacking: Vec<_> = report.known_losses.iter().map(|loss| &loss.file).collect();
    assert!(report.is_good() && lacking == [&path], "the backup says what it lacks: {report:?}");
    life.end();
}

#[test]
fn a_file_of_rows_that_the_disk_cannot_read_is_left_out_of_a_backup_and_named() {
    let (disk, _) = filled(&new_disk());
    let life = Life::start(&(Arc::new(disk.clone()) as Arc<dyn Disk>), Path::new(DATA)).unwrap();
    let path = life.file_of_rows();
    life.end();
    let bad = path.clone();
    let failing = FailingDisk::new(Arc::new(disk.clone()), move |call, of| {
        (call == Call::Read && of.ends_with(&bad)).then(|| std::io::Error::from_raw_os_error(5))
    });
    let shared: Arc<dyn Disk> = Arc::new(failing);
    let life = Life::start(&shared, Path::new(DATA)).unwrap();
    let made = life.back_up().unwrap();
    assert_eq!(made.damaged.iter().map(|file| &file.path).collect::<Vec<_>>(), [&path]);
    assert!(!disk.exists(&made.path.join(&path)) && disk.exists(&made.path.join("store/manifest")));
    let (_, report) = verify_backup(&disk, &made.path).unwrap();
    let lacking: Vec<_> = report.known_losses.iter().map(|loss| &loss.file).collect();
    assert!(report.is_good() && lacking == [&path], "the backup says what it lacks: {report:?}");
    restore(&disk, Path::new(BACKUPS), Path::new("/restored")).unwrap();
    life.end();
}

#[test]
fn reads_of_a_file_of_rows_that_fail_for_a_moment_do_not_leave_it_out_of_a_backup() {
    let (disk, whole) = filled(&new_disk());
    let life = Life::start(&(Arc::new(disk.clone()) as Arc<dyn Disk>), Path::new(DATA)).unwrap();
    let bad = life.file_of_rows();
    life.end();
    let is_failing = Arc::new(AtomicBool::new(false));
    let failing = is_failing.clone();
    let failing = FailingDisk::new(Arc::new(disk.clone()), move |call, of| {
        // The manifest comes behind the rows.
        if of.starts_with(BACKUPS) && of.ends_with("store/manifest") {
            failing.store(false, Relaxed);
        }
        let is_bad = call == Call::Read && of.ends_with(&bad) && failing.load(Relaxed);
        is_bad.then(|| std::io::Error::from_raw_os_error(5))
    });
    let shared: Arc<dyn Disk> = Arc::new(failing);
    let life = Life::start(&shared, Path::new(DATA)).unwrap();
    is_failing.store(true, Relaxed);
    let made = life.back_up().unwrap();
    assert!(!is_failing.load(Relaxed) && made.damaged.is_empty(), "{:?}", made.damaged);
    life.end();
    assert_eq!(check_folder(&disk), 1);
    assert_eq!(restored(&(Arc::new(disk) as Arc<dyn Disk>)), whole);
}

#[test]
fn a_folder_in_the_data_folder_or_in_a_backup_is_refused() {
    let (disk, _) = filled(&new_disk());
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let life = Life::start(&shared, Path::new(DATA)).unwrap();
    let backup = life.back_up().unwrap().path;
    disk.create_dir_all(Path::new("/data/backups")).unwrap();
    let in_backup = backup.join("store");
    disk.create_dir_all(Path::new("/other/store")).unwrap();
    disk.open(Path::new("/other/store/spec"), host::Open::Create).unwrap();
    let inside = [
        (DATA, "data folder"),
        ("/data/backups", "data folder"),
        ("/other", "data folder"),
        (backup.to_str().unwrap(), "the backup"),
    ];
    for (dir, what) in inside.into_iter().chain([(in_backup.to_str().unwrap(), "the backup")]) {
        let error = life.back_up_to(dir).expect_err(dir).to_string();
        assert!(error.contains(&format!("is in the {}", what.trim_start_matches("the "))), "{error}");
    }
    assert_eq!(check_folder(&disk), 1);
    assert!(!disk.exists(Path::new("/data/backup-000001")) && !disk.exists(Path::new("/data/.backup")));
    life.end();
}

#[test]
fn an_error_of_the_disk_is_in_the_text_once() {
    let error = restore(&new_disk(), Path::new("/missing"), Path::new("/restored")).unwrap_err();
    assert!(error.to_string().starts_with("reading /missing: "), "{error}");
    assert!(std::error::Error::source(&error).is_none(), "a chain of causes would print it again");
}

#[test]
fn a_file_that_another_server_removes_from_a_backup_fails_it() {
    let (disk, _) = filled(&new_disk());
    let other = disk.clone();
    let failing = FailingDisk::new(Arc::new(disk.clone()), move |call, of| {
        // As a server does where folders cannot be locked: it takes the backup for one that was interrupted. The manifest
        // comes behind the rows.
        if call == Call::Open && of.starts_with(BACKUPS) && of.ends_with("store/manifest") {
            let folder = of.parent().unwrap();
            let folders = other.read_dir(folder).unwrap().into_iter().filter(|entry| entry.is_dir);
            folders.take(1).for_each(|rows| other.remove_dir_all(&rows.path).unwrap());
        }
        None
    });
    let shared: Arc<dyn Disk> = Arc::new(failing);
    let life = Life::start(&shared, Path::new(DATA)).unwrap();
    let error = life.back_up().unwrap_err().to_string();
    assert!(error.contains("looking once more at what was written to"), "{error}");
    assert_eq!(check_folder(&disk), 0);
    life.end();
}
