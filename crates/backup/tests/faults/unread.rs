//! Backups while the disk does not return all of the journal or of the logs of names and events, or refuses links.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use backup::{restore, verify, verify_backup};
use host::{Call, Disk, FailingDisk, Open, SimulatedDisk};

use super::node::{BACKUPS, DATA, Life, Served, filled, new_disk, points};

/// A data folder as a kill left it, the last segment of its journal, which has several pages, and what is served.
fn many_points() -> (SimulatedDisk, PathBuf, Served) {
    let (disk, _) = filled(&new_disk());
    let life = Life::start(&(Arc::new(disk.clone()) as Arc<dyn Disk>), Path::new(DATA)).unwrap();
    life.send(points("first", 40, 0..20));
    life.send(points("many", 200, 0..10));
    let served = life.served();
    disk.die();
    life.end();
    let disk = disk.kill();
    let segments = disk.files(&Path::new(DATA).join("journal"));
    let (last, bytes) = segments.last().unwrap();
    assert!(3 * 4096 < *bytes, "{segments:?}");
    (disk, last.strip_prefix(DATA).unwrap().to_owned(), served)
}

/// A disk whose reads of a page of the segment fail in the folder with the journal `of` while the flag is set.
fn with_bad_page(disk: &SimulatedDisk, of: &str, segment: &Path, page: u64) -> (Arc<dyn Disk>, Arc<AtomicBool>) {
    let name = format!("{of}/{}", segment.display());
    let is_bad = Arc::new(AtomicBool::new(false));
    let failing = FailingDisk::new(Arc::new(disk.clone()), |_, _| None);
    let failing = failing.with_sector_bad_while(name.leak(), page * 4096..(page + 1) * 4096, is_bad.clone());
    (Arc::new(failing), is_bad)
}

/// A disk that links no file of the data folder which begins so, and whose reads of a page of a file fail while the flag is set.
fn without_links(disk: &SimulatedDisk, of: &'static str, file: &Path, page: u64) -> (Arc<dyn Disk>, Arc<AtomicBool>) {
    let is_bad = Arc::new(AtomicBool::new(false));
    let failing = FailingDisk::new(Arc::new(disk.clone()), move |call, from| {
        let is_kept = from.extension().is_some_and(|end| end == "rows" || end == "journal");
        let is_other = is_kept && from.to_string_lossy().trim_start_matches('/').starts_with(of);
        (call == Call::Rename && is_other && !from.to_string_lossy().contains(".backup"))
            .then(|| std::io::Error::from_raw_os_error(18))
    });
    let name = format!("data/{}", file.display());
    let failing = failing.with_sector_bad_while(name.leak(), page * 4096..(page + 1) * 4096, is_bad.clone());
    (Arc::new(failing), is_bad)
}

/// Restores the backup, and starts it.
fn started(disk: &SimulatedDisk) -> Life {
    restore(disk, Path::new(BACKUPS), Path::new("/restored")).unwrap();
    Life::start(&(Arc::new(disk.clone()) as Arc<dyn Disk>), Path::new("/restored")).unwrap()
}

/// Whether something in `damaged` of the restored folder says of a segment that it is damaged.
fn is_reported(disk: &SimulatedDisk, segment: &Path) -> bool {
    let begin = format!("journal_{}+", segment.file_name().unwrap().to_str().unwrap());
    let kept = disk.read_dir(Path::new("/restored/damaged")).unwrap_or_default();
    kept.iter().any(|entry| entry.name.to_string_lossy().starts_with(&begin))
}

/// Of a segment that is linked into the stage of a backup, or of one on another disk, which is copied there.
fn check_page(is_linked: bool, page: impl Fn(u64) -> u64) {
    let (disk, segment, whole) = many_points();
    let bytes = disk.read(&Path::new(DATA).join(&segment)).unwrap().len() as u64;
    let page = page(bytes.div_ceil(4096));
    let (shared, is_bad) = match is_linked {
        true => with_bad_page(&disk, ".backup", &segment, page),
        false => without_links(&disk, "data/journal", &segment, page),
    };
    let life = Life::start(&shared, Path::new(DATA)).unwrap();
    is_bad.store(true, Relaxed);
    let made = life.back_up().unwrap();
    assert_eq!(made.damaged.iter().map(|file| &file.path).collect::<Vec<_>>(), [&segment]);
    assert!(made.damaged[0].faults.iter().any(|part| part.how.contains("zeros")), "{:?}", made.damaged);
    assert_eq!(made.manifest.lacking, [""; 0], "the rest of it is there");
    assert!(life.served() == whole, "the node has them");
    life.end();
    let (_, report) = verify_backup(&disk, &made.path).unwrap();
    assert!(report.faults().all(|(file, part)| file.path == segment && part.what != "file of a backup"), "{report:?}");
    let life = started(&disk);
    let served = life.served();
    assert!(served != whole && is_reported(&disk, &segment));
    let steady = |name: &str| name.ends_with(" 10 s");
    for (name, values) in served.iter().filter(|(name, _)| steady(name)) {
        assert!(values.iter().all(|(time, value)| whole[name].get(time).is_none_or(|whole| whole == value)), "{name}");
    }
    assert_eq!(served.keys().filter(|name| name.starts_with("second")).count(), 10, "what is stored is there");
    life.end();
}

#[test]
fn a_page_of_the_journal_that_cannot_be_read_costs_a_backup_that_page() {
    check_page(true, |_| 1);
}

#[test]
fn the_last_page_of_the_journal_that_cannot_be_read_is_not_taken_for_the_end_of_a_write() {
    check_page(true, |pages| pages - 1);
}

#[test]
fn a_page_of_a_journal_on_another_disk_that_cannot_be_read_costs_a_backup_that_page() {
    check_page(false, |_| 1);
    check_page(false, |pages| pages - 1);
}

#[test]
fn a_segment_on_another_disk_that_cannot_be_opened_is_named_and_nothing_waits_for_it() {
    let (disk, segment, whole) = many_points();
    let (is_failing, bad) = (Arc::new(AtomicBool::new(false)), segment.clone());
    let failing = is_failing.clone();
    let shared: Arc<dyn Disk> = Arc::new(FailingDisk::new(Arc::new(disk.clone()), move |call, of| {
        let is_it = of.ends_with(&bad) && !of.to_string_lossy().contains(".backup") && failing.load(Relaxed);
        match call {
            Call::Rename if is_it => Some(std::io::Error::from_raw_os_error(18)),
            Call::Open if is_it => Some(std::io::Error::from_raw_os_error(5)),
            _ => None,
        }
    }));
    let life = Life::start(&shared, Path::new(DATA)).unwrap();
    is_failing.store(true, Relaxed);
    let made = life.back_up().unwrap();
    assert_eq!(made.manifest.lacking, [segment.to_str().unwrap()]);
    assert_eq!(made.damaged.iter().map(|file| &file.path).collect::<Vec<_>>(), [&segment]);
    life.end();
    let (_, report) = verify_backup(&disk, &made.path).unwrap();
    assert!(report.faults().all(|(file, _)| *file.path == segment), "{report:?}");
    let life = started(&disk);
    assert!(life.served() != whole && is_noted_gone(&disk, &segment));
    life.end();
}

/// Whether the restored folder has a note which says that a segment is missing for good.
fn is_noted_gone(disk: &SimulatedDisk, segment: &Path) -> bool {
    let begin = format!("journal_{}.missing+", segment.file_stem().unwrap().to_str().unwrap());
    let kept = disk.read_dir(Path::new("/restored/damaged")).unwrap_or_default();
    kept.iter().any(|entry| entry.name.to_string_lossy().starts_with(&begin))
}

#[test]
fn a_file_of_rows_on_another_disk_that_cannot_be_read_is_left_out_of_a_backup() {
    let (disk, _, _) = many_points();
    let life = Life::start(&(Arc::new(disk.clone()) as Arc<dyn Disk>), Path::new(DATA)).unwrap();
    life.flush();
    let (rows, whole) = (life.file_of_rows(), life.served());
    life.end();
    let (shared, is_bad) = without_links(&disk, "data/store", &rows, 0);
    let life = Life::start(&shared, Path::new(DATA)).unwrap();
    is_bad.store(true, Relaxed);
    let made = life.back_up().unwrap();
    assert_eq!(made.manifest.lacking, [rows.to_str().unwrap()]);
    is_bad.store(false, Relaxed);
    assert!(life.served() == whole, "the node has them");
    life.end();
    let (_, report) = verify_backup(&disk, &made.path).unwrap();
    assert!(report.faults().all(|(file, _)| file.path == rows), "{report:?}");
    let life = started(&disk);
    assert!(life.served() != whole && 0 < life.findings());
    life.end();
}

#[test]
fn reads_of_the_journal_that_fail_for_a_moment_cost_a_backup_nothing() {
    let (disk, segment, whole) = many_points();
    let is_failing = Arc::new(AtomicBool::new(false));
    let (failing, bad) = (is_failing.clone(), segment.clone());
    let shared: Arc<dyn Disk> = Arc::new(FailingDisk::new(Arc::new(disk.clone()), move |call, of| {
        // The manifest comes behind the journal.
        if of.starts_with(BACKUPS) && of.ends_with("store/manifest") {
            failing.store(false, Relaxed);
        }
        let is_bad = call == Call::Read && of.ends_with(&bad) && failing.load(Relaxed);
        is_bad.then(|| std::io::Error::from_raw_os_error(5))
    }));
    let life = Life::start(&shared, Path::new(DATA)).unwrap();
    is_failing.store(true, Relaxed);
    let made = life.back_up().unwrap();
    assert!(!is_failing.load(Relaxed) && made.damaged.is_empty(), "{:?}", made.damaged);
    life.end();
    let life = started(&disk);
    assert!(life.served() == whole);
    life.end();
}

#[test]
fn a_restored_backup_puts_points_back_that_could_not_be_read_when_it_was_made() {
    let (disk, segment, whole) = many_points();
    let (shared, is_bad) = with_bad_page(&disk, "data", &segment, 1);
    is_bad.store(true, Relaxed);
    let life = Life::start(&shared, Path::new(DATA)).unwrap();
    assert!(life.served() != whole);
    life.flush();
    let made = life.back_up().unwrap();
    life.end();
    let (_, report) = verify_backup(&disk, &made.path).unwrap();
    assert!(report.is_good(), "{report:?}");
    let life = started(&disk);
    life.put_back();
    assert!(life.served() == whole, "{:?}", disk.files(Path::new("/restored")));
    life.flush();
    life.end();
    let report = verify(&disk, Path::new("/restored")).unwrap();
    assert!(report.is_good(), "{report:?}");
}

/// The file of a log in the data folder.
fn log_of(disk: &SimulatedDisk, log: &str) -> PathBuf {
    let (path, _) = disk.files(&Path::new(DATA).join(log)).pop().unwrap();
    path.strip_prefix(DATA).unwrap().to_owned()
}

#[test]
fn a_page_of_the_log_of_names_or_events_that_cannot_be_read_costs_a_backup_that_page() {
    for (log, is_last) in
        [("store/names", false), ("store/names", true), ("store/events", false), ("store/events", true)]
    {
        let (disk, _, _) = many_points();
        let life = Life::start(&(Arc::new(disk.clone()) as Arc<dyn Disk>), Path::new(DATA)).unwrap();
        (0..400).for_each(|n| life.event(&format!("event {n} of some length, so that the log has pages")));
        life.send(points("more", 300, 0..2));
        life.flush();
        let whole = life.served();
        life.end();
        let path = log_of(&disk, log);
        let bytes = disk.read(&Path::new(DATA).join(&path)).unwrap().len() as u64;
        assert!(3 * 4096 < bytes, "{log} has {bytes} bytes");
        let page = if is_last { (bytes - 1) / 4096 } else { 1 };
        let (shared, is_bad) = with_bad_page(&disk, "data", &path, page);
        let life = Life::start(&shared, Path::new(DATA)).unwrap();
        is_bad.store(true, Relaxed);
        let made = life.back_up().unwrap();
        let faults: Vec<_> =
            made.damaged.iter().flat_map(|file| file.faults.iter().map(|part| (&file.path, part))).collect();
        assert!(faults.iter().all(|(of, _)| **of == path), "{faults:?}");
        assert!(faults.iter().any(|(_, part)| part.how.contains("zeros")), "{faults:?}");
        is_bad.store(false, Relaxed);
        assert!(life.served() == whole, "the node has them");
        life.end();
        let (_, report) = verify_backup(&disk, &made.path).unwrap();
        assert!(report.faults().all(|(_, part)| part.what != "file of a backup") && !report.is_good(), "{report:?}");
        restore(&disk, Path::new(BACKUPS), Path::new("/restored")).unwrap();
        let life = Life::start(&(Arc::new(disk.clone()) as Arc<dyn Disk>), Path::new("/restored")).unwrap();
        let (served, found) = (life.served(), life.findings());
        assert!(0 < found && served.len() < whole.len(), "{log} {is_last}: {found} findings");
        for (name, values) in &served {
            assert!(whole.get(name).is_none_or(|whole| whole == values), "{log} {is_last}: {name}");
        }
        assert!(whole.len() / 3 < served.len(), "{log} {is_last}: {} of {}", served.len(), whole.len());
        life.end();
    }
}

#[test]
fn a_log_of_events_that_a_start_could_not_read_is_read_again_for_a_backup_or_named() {
    for is_right_again in [false, true] {
        let (disk, whole) = filled(&new_disk());
        let path = log_of(&disk, "store/events");
        let (shared, is_bad) = with_bad_page(&disk, "data", &path, 0);
        is_bad.store(true, Relaxed);
        let life = Life::start(&shared, Path::new(DATA)).unwrap();
        assert!(0 < life.findings(), "the start goes on without it");
        is_bad.store(!is_right_again, Relaxed);
        let made = life.back_up().unwrap();
        let named: Vec<_> = made.damaged.iter().map(|file| &file.path).collect();
        assert_eq!(named.is_empty(), is_right_again, "{named:?}");
        assert!(named.iter().all(|of| **of == path), "{named:?}");
        life.end();
        let life = started(&disk);
        assert_eq!(life.served() == whole, is_right_again);
        assert_eq!(life.findings() == 0, is_right_again);
        life.end();
    }
}

#[test]
fn files_that_cannot_be_linked_are_copied() {
    for of in ["data/journal", "data/store", "data/"] {
        let (disk, _, whole) = many_points();
        let shared: Arc<dyn Disk> = Arc::new(FailingDisk::new(Arc::new(disk.clone()), move |call, from| {
            let is_kept = from.extension().is_some_and(|end| end == "rows" || end == "journal");
            let is_other = is_kept && from.to_string_lossy().trim_start_matches('/').starts_with(of);
            (call == Call::Rename && is_other && !from.to_string_lossy().contains(".backup"))
                .then(|| std::io::Error::from_raw_os_error(18))
        }));
        let life = Life::start(&shared, Path::new(DATA)).unwrap();
        let made = life.back_up().unwrap();
        assert!(made.damaged.is_empty(), "{of}: {:?}", made.damaged);
        life.end();
        assert!(verify_backup(&disk, &made.path).unwrap().1.is_good());
        let life = started(&disk);
        assert!(life.served() == whole, "{of}");
        life.end();
    }
}

#[test]
fn a_segment_that_a_backup_lacked_and_that_is_found_later_is_put_back_in_the_restored_folder() {
    let (disk, segment, whole) = many_points();
    let (path, shared) = (Path::new(DATA).join(&segment), Arc::new(disk.clone()) as Arc<dyn Disk>);
    let bytes = disk.read(&path).unwrap();
    disk.remove_file(&path).unwrap();
    let life = Life::start(&shared, Path::new(DATA)).unwrap();
    life.flush();
    let made = life.back_up().unwrap();
    assert_eq!(made.manifest.lacking, [segment.to_str().unwrap()]);
    life.end();
    let life = started(&disk);
    assert!(life.served() != whole && is_noted_gone(&disk, &segment));
    life.flush();
    disk.create_dir_all(Path::new("/backups-of-restored")).unwrap();
    let again = life.back_up_to("/backups-of-restored").unwrap();
    assert_eq!(again.manifest.lacking, [segment.to_str().unwrap()], "so does each backup of the restored folder");
    life.end();
    disk.open(&Path::new("/restored").join(&segment), host::Open::CreateNew).unwrap().write_shared(&bytes).unwrap();
    let life = Life::start(&shared, Path::new("/restored")).unwrap();
    life.put_back();
    assert!(life.served() == whole, "{:?}", disk.files(Path::new("/restored")));
    life.flush();
    life.end();
    let report = verify(&disk, Path::new("/restored")).unwrap();
    assert!(report.is_good(), "{report:?}");
}

/// Points that came too late for a slot that cannot be read, and a stored segment that stays while an older one waits: each bit counts.
#[test]
fn a_flipped_bit_in_late_points_or_a_stored_segment_that_is_kept_is_found() {
    let (disk, segment, _) = many_points();
    let bytes = disk.read(&Path::new(DATA).join(&segment)).unwrap();
    for (file, place) in [
        ("journal/late-5-0.points", bytes.len() / 2),
        ("journal/late-5-0.points", bytes.len() - 1),
        ("journal/00000900.since", bytes.len() / 2),
    ] {
        let of_file = |bytes: Vec<u8>| {
            let disk = disk.kill();
            let path = Path::new(DATA).join(file);
            disk.open(&path, Open::Create).unwrap().write_all(&bytes).unwrap();
            let report = verify(&disk, Path::new(DATA)).unwrap();
            let checked = report.files.into_iter().find(|checked| checked.path == Path::new(file)).unwrap();
            (checked.faults.len(), checked.records)
        };
        let (faults, records) = of_file(bytes.clone());
        assert!(faults == 0 && 0 < records, "{file}: {faults} faults, {records} records");
        let mut flipped = bytes.clone();
        flipped[place] ^= 4;
        assert_eq!(of_file(flipped).0, 1, "{file}, byte {place}");
    }
}
