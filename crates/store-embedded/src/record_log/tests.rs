use std::{
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use host::{Call, Disk, FailingDisk, Host, Random, SeededRandom, SystemDisk};
use store::DamageLog;

use super::*;
use crate::{damage::Reporter, spec::owner_of};

type Written = Vec<(u8, Vec<u8>)>;

fn folder(data: &Path, disk: Arc<dyn Disk>, damage: &DamageLog) -> LogFolder {
    let host = Host { disk, ..Host::system() };
    let reporter = Reporter::new(&host, damage, data);
    LogFolder {
        dir: data.join("names"),
        table: *b"name",
        what: "names record",
        store: 7 << 90,
        owner: owner_of(&host.disk, data),
        reporter,
        host,
        when_unread: WhenUnread::GoOn,
        known: None,
        needs_known: false,
    }
}

fn open(data: &Path, damage: &DamageLog) -> Result<(RecordLog, Written), StoreError> {
    open_on(data, Arc::new(SystemDisk), damage)
}

fn open_on(data: &Path, disk: Arc<dyn Disk>, damage: &DamageLog) -> Result<(RecordLog, Written), StoreError> {
    open_in(folder(data, disk, damage))
}

fn open_in(folder: LogFolder) -> Result<(RecordLog, Written), StoreError> {
    let mut records = Vec::new();
    let log = RecordLog::open(folder, |_, kind, payload| {
        // As tables do.
        if kind != REPLACED {
            records.push((kind, payload.to_vec()));
        }
    })?;
    Ok((log, records))
}

fn records(range: std::ops::Range<u32>) -> Written {
    range.map(|i| (i as u8 % 3 + 1, format!("record {i} {}", "x".repeat(i as usize % 40)).into_bytes())).collect()
}

fn write(log: &mut RecordLog, records: &Written) -> Result<(), StoreError> {
    log.write(records.iter().map(|(kind, payload)| (*kind, &payload[..])), |_, _, _| {})
}

/// A folder with ten records, in two writes.
fn small() -> (tempfile::TempDir, std::path::PathBuf, Vec<u8>) {
    let data = tempfile::tempdir().unwrap();
    let (mut log, _) = open(data.path(), &DamageLog::new()).unwrap();
    write(&mut log, &records(0..6)).unwrap();
    write(&mut log, &records(6..10)).unwrap();
    let path = data.path().join("names/00000001.log");
    let bytes = std::fs::read(&path).unwrap();
    (data, path, bytes)
}

#[test]
fn a_file_that_is_cut_anywhere_keeps_the_records_before() {
    let (data, path, bytes) = small();
    for len in HEADER..=bytes.len() {
        std::fs::write(&path, &bytes[..len]).unwrap();
        let damage = DamageLog::new();
        let (mut log, found) = open(data.path(), &damage).unwrap();
        assert_eq!(found, records(0..found.len() as u32), "cut at {len}");
        assert_eq!(damage.totals(), (0, 0), "cut at {len}: {:?}", damage.examples());
        write(&mut log, &records(50..51)).unwrap();
        let (_, again) = open(data.path(), &damage).unwrap();
        assert_eq!(again, [found, records(50..51)].concat(), "cut at {len}");
        assert_eq!(damage.totals(), (0, 0), "cut at {len}");
    }
}

#[test]
fn a_flipped_bit_costs_nothing_and_is_reported_once() {
    let (data, path, bytes) = small();
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&path, &flipped).unwrap();
        let damage = DamageLog::new();
        let (_, found) = open(data.path(), &damage).unwrap();
        assert_eq!(found, records(0..10), "bit {bit}");
        assert_eq!(damage.totals().0, 1, "bit {bit} of {}: {:?}", bytes.len(), damage.examples());
    }
}

#[test]
fn two_flipped_bits_cost_one_record_and_are_reported() {
    let (data, path, bytes) = small();
    for bit in 0..bytes.len() * 8 - 1 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        flipped[bit / 8] ^= 1 << ((bit + 1) % 8);
        std::fs::write(&path, &flipped).unwrap();
        let damage = DamageLog::new();
        let (_, found) = open(data.path(), &damage).unwrap();
        let lost: Vec<_> = records(0..10).into_iter().filter(|record| !found.contains(record)).collect();
        assert!(lost.len() <= 1 && found.len() + lost.len() == 10, "bit {bit}: {lost:?}");
        assert!(0 < damage.totals().0, "bit {bit} of {} is not reported", bytes.len());
    }
}

#[test]
fn a_file_of_a_later_version_is_refused_and_left_alone() {
    let (data, path, mut bytes) = small();
    bytes[8] = 2;
    let crc = crc32fast::hash(&bytes[..64]);
    bytes[64..68].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(&path, &bytes).unwrap();
    let error = open(data.path(), &DamageLog::new()).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("00000001.log is of format 2") && error.contains("format 1"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
}

#[test]
fn bytes_from_a_seed_are_read_to_their_end() {
    let (data, path, bytes) = small();
    let random = SeededRandom::new(SeededRandom::test_seed(11));
    for _ in 0..200 {
        let mut mixed = bytes[..HEADER].to_vec();
        for _ in 0..random.below(12) {
            let from = random.index(bytes.len());
            let part = &bytes[from..(from + random.index(80)).min(bytes.len())];
            match random.below(3) {
                0 => mixed.extend_from_slice(part),
                1 => mixed.extend((0..random.below(60)).map(|_| random.bits() as u8)),
                _ => mixed.extend_from_slice(&MARKS),
            }
        }
        std::fs::write(&path, &mixed).unwrap();
        let (_, found) = open(data.path(), &DamageLog::new()).unwrap();
        assert!(found.iter().all(|record| records(0..10).contains(record)), "{found:?}");
    }
}

const MARKS: [u8; 6] = [0xf5, 0xc3, 0xf5, 0xf5, 0xc3, 1];

/// Writes, rewrites and reopenings, while calls fail: what was acknowledged is there, in its order.
#[test]
fn acknowledged_records_outlive_faults() {
    let seed = SeededRandom::test_seed(5);
    for round in 0..60 {
        let random = SeededRandom::new(seed + round);
        let data = tempfile::tempdir().unwrap();
        let calls = Arc::new(AtomicU64::new(0));
        let every = 2 + random.below(25);
        let faulty = SeededRandom::new(seed + round + 1_000_000);
        let fault = move |call: Call, _: &Path| {
            let is_due =
                matches!(call, Call::Write | Call::Sync | Call::SetLen | Call::Rename | Call::Remove | Call::Open)
                    && calls.fetch_add(1, Relaxed) > 20
                    && faulty.below(every) == 0;
            is_due.then(|| io::Error::other("injected"))
        };
        let disk: Arc<dyn Disk> = Arc::new(FailingDisk::new(Arc::new(SystemDisk), fault));
        let mut kept: Vec<(u8, Vec<u8>)> = Vec::new();
        let mut log = open(data.path(), &DamageLog::new()).unwrap().0;
        for step in 0..40_u32 {
            match random.below(8) {
                0 => {
                    drop(log);
                    let damage = DamageLog::new();
                    let (_, found) = open(data.path(), &damage).unwrap();
                    let in_order = kept.iter().try_fold(0, |from, record| {
                        found[from..].iter().position(|other| other == record).map(|place| from + place)
                    });
                    assert!(
                        in_order.is_some(),
                        "SEED={seed} round {round} step {step}: {} of {}",
                        found.len(),
                        kept.len()
                    );
                    log = match open_on(data.path(), disk.clone(), &damage) {
                        Ok((log, _)) => log,
                        Err(_) => open(data.path(), &damage).unwrap().0,
                    };
                }
                1 => {
                    let all = kept.clone();
                    let _ = log.rewrite(|draft| {
                        all.iter().try_for_each(|(kind, payload)| draft.put(*kind, payload).map(|_| ()))
                    });
                }
                _ => {
                    let mut new = records(step * 10..step * 10 + 1 + random.below(5) as u32);
                    if random.below(6) == 0 {
                        // The disk gets these in several writes.
                        new.extend((0..3).map(|i| (i, vec![step as u8; PIECE * 2 / 3])));
                    }
                    if write(&mut log, &new).is_ok() {
                        kept.extend(new);
                    }
                }
            }
        }
    }
}

#[test]
fn zeros_behind_a_log_are_skipped_however_many_they_are() {
    let (data, path, bytes) = small();
    let reads = Arc::new(AtomicU64::new(0));
    let counted = reads.clone();
    let disk = FailingDisk::new(Arc::new(SystemDisk), move |call, _| {
        counted.fetch_add(u64::from(call == Call::Read), Relaxed);
        None
    });
    let open_file = || std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    open_file().set_len(1 << 40).unwrap();
    let (log, found) = open_on(data.path(), Arc::new(disk.clone()), &DamageLog::new()).unwrap();
    assert_eq!((found, log.wants_rewrite()), (records(0..10), false));
    assert_eq!(std::fs::metadata(&path).unwrap().len(), bytes.len() as u64);
    // With bytes behind them that are not a record.
    drop(log);
    std::os::unix::fs::FileExt::write_all_at(&open_file(), b"text", 1 << 40).unwrap();
    let damage = DamageLog::new();
    let (_, found) = open_on(data.path(), Arc::new(disk), &damage).unwrap();
    assert_eq!(found, records(0..10));
    let hows: Vec<String> = damage.examples().into_iter().map(|damage| damage.how).collect();
    assert!(hows.len() <= 3 && hows.iter().any(|how| how.contains("are zeros")), "{hows:?}");
    assert!(reads.load(Relaxed) < 1000, "{reads:?}");
}

#[test]
fn a_file_that_the_list_of_the_folder_lacked_is_not_replaced() {
    let (_kept, listed_late, bytes) = small();
    let data = tempfile::tempdir().unwrap();
    let damage = DamageLog::new();
    let (mut log, _) = open(data.path(), &damage).unwrap();
    let path = data.path().join("names/00000001.log");
    std::fs::copy(&listed_late, &path).unwrap();
    let _ = write(&mut log, &records(50..51));
    write(&mut log, &records(51..52)).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    drop(log);
    let (_, found) = open(data.path(), &damage).unwrap();
    assert!(found.starts_with(&records(0..10)), "{found:?}");
    assert!(found.ends_with(&records(51..52)), "{found:?}");
}

/// Seed 50888: the disk was right again between the search for the next record and the last read of the bytes before it.
#[test]
fn reads_that_fail_for_a_while_do_not_count_as_damage() {
    for failing in 0..160 {
        let (data, path, bytes) = small();
        let left = Arc::new(AtomicU64::new(failing));
        let disk = FailingDisk::new(Arc::new(SystemDisk), move |call, path| {
            let is_of_log = call == Call::Read && path.extension().is_some_and(|extension| extension == "log");
            let is_due = is_of_log && left.try_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok();
            is_due.then(|| io::Error::other("injected"))
        });
        let damage = DamageLog::new();
        // Without a record it is an error, as for a file that cannot be read at all.
        let opened = open_on(data.path(), Arc::new(disk), &damage);
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "{failing}");
        if let Ok((log, found)) = opened {
            assert!(found == records(0..10) || log.has_unread(), "{failing}: {found:?}");
            assert!(!log.has_damage(), "{failing}: {:?}", damage.examples());
        }
        assert_eq!(open(data.path(), &damage).unwrap().1, records(0..10), "{failing}");
    }
}

#[test]
fn a_log_is_not_written_again_before_its_damaged_bytes_are_kept() {
    let (data, path, bytes) = small();
    let mut damaged = bytes;
    let middle = damaged.len() / 2;
    damaged[middle..middle + 4].fill(0xff);
    std::fs::write(&path, &damaged).unwrap();
    let is_full = Arc::new(AtomicBool::new(true));
    let full = is_full.clone();
    let disk = FailingDisk::new(Arc::new(SystemDisk), move |call, path| {
        let is_kept = path.parent().is_some_and(|folder| folder.ends_with("damaged"));
        (call == Call::Open && is_kept && full.load(Relaxed)).then(|| io::ErrorKind::StorageFull.into())
    });
    let (mut log, found) = open_on(data.path(), Arc::new(disk), &DamageLog::new()).unwrap();
    let fill = |log: &mut RecordLog| {
        log.rewrite(|draft| found.iter().try_for_each(|(kind, payload)| draft.put(*kind, payload).map(drop)))
    };
    assert!(fill(&mut log).unwrap_err().to_string().contains("make room"));
    write(&mut log, &records(10..11)).unwrap();
    assert!(std::fs::read(&path).unwrap().starts_with(&damaged));
    is_full.store(false, Relaxed);
    fill(&mut log).unwrap();
    assert!(!path.exists());
    let kept = std::fs::read_dir(data.path().join("damaged")).unwrap().map(|entry| entry.unwrap().path());
    assert!(kept.into_iter().any(|path| std::fs::read(path).unwrap().windows(4).any(|four| four == [0xff; 4])));
}

fn rewrite(log: &mut RecordLog, records: &Written) -> Result<(), StoreError> {
    log.rewrite(|draft| records.iter().try_for_each(|(kind, payload)| draft.put(*kind, payload).map(drop)))
}

#[test]
fn a_replaced_file_goes_if_a_crash_left_it_and_is_kept_if_it_is_another() {
    let (data, path, bytes) = small();
    let mut log = open(data.path(), &DamageLog::new()).unwrap().0;
    rewrite(&mut log, &records(0..10)).unwrap();
    drop(log);
    assert!(!path.exists());
    let middle = bytes.len() / 2;
    let another = [&bytes[..middle], &[!bytes[middle]], &bytes[middle + 1..]].concat();
    for (back, is_kept) in [(&bytes[..], 0), (&bytes[..middle], 1), (&another, 1)] {
        std::fs::write(&path, back).unwrap();
        let verified = check_file(&SystemDisk, &path, "names record", Some(7 << 90), |_, _| ()).unwrap();
        let damage = DamageLog::new();
        let (_, found) = open(data.path(), &damage).unwrap();
        assert_eq!(found, records(0..10));
        assert_eq!((verified.damaged.len(), damage.totals().0, path.exists()), (is_kept, is_kept as u64, false));
        let moved = damage.examples().into_iter().filter_map(|damage| damage.moved_to);
        moved.for_each(|moved| assert_eq!(std::fs::read(data.path().join(moved)).unwrap(), back));
    }
}

#[test]
fn a_file_that_an_earlier_program_replaced_is_kept() {
    let (data, path, bytes) = small();
    let header = Header { table: *b"name", store: 7 << 90, number: 2, replaces: 1, previous: 0, previous_len: 0 };
    write_draft(&SystemDisk, path.parent().unwrap(), &header, |draft| draft.put(1, b"all").map(drop)).unwrap();
    let damage = DamageLog::new();
    let (_, found) = open(data.path(), &damage).unwrap();
    assert_eq!((found, damage.totals().0, path.exists()), (vec![(1, b"all".to_vec())], 1, false));
    let moved = damage.examples().remove(0).moved_to.unwrap();
    assert_eq!(std::fs::read(data.path().join(moved)).unwrap(), bytes);
}

#[test]
fn a_file_that_is_longer_than_a_rewrite_has_read_is_kept() {
    for is_right_before in [false, true] {
        let data = tempfile::tempdir().unwrap();
        let (mut log, _) = open(data.path(), &DamageLog::new()).unwrap();
        write(&mut log, &records(0..6)).unwrap();
        let path = data.path().join("names/00000001.log");
        let before = std::fs::metadata(&path).unwrap().len();
        write(&mut log, &records(6..10)).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        // A network disk gives a length of before.
        let is_stale = Arc::new(AtomicBool::new(true));
        let stale = is_stale.clone();
        let disk = FailingDisk::new(Arc::new(SystemDisk), |_, _| None).with_changed_lengths(move |path, len| {
            if path.ends_with("00000001.log") && stale.load(Relaxed) { before } else { len }
        });
        let damage = DamageLog::new();
        let (mut log, found) = open_on(data.path(), Arc::new(disk), &damage).unwrap();
        is_stale.store(!is_right_before, Relaxed);
        log.rewrite(|draft| {
            is_stale.store(false, Relaxed);
            found.iter().try_for_each(|(kind, payload)| draft.put(*kind, payload).map(drop))
        })
        .unwrap();
        let moved = damage.examples().remove(0).moved_to.unwrap();
        assert_eq!(std::fs::read(data.path().join(moved)).unwrap(), bytes);
    }
}

#[test]
fn a_rewrite_removes_a_file_with_what_a_failed_write_left() {
    let (data, path, _) = small();
    let damage = DamageLog::new();
    let fails = Arc::new(AtomicBool::new(false));
    let failing = fails.clone();
    let disk = FailingDisk::new(Arc::new(SystemDisk), move |call, _| {
        (call == Call::Sync && failing.swap(false, Relaxed)).then(|| io::Error::other("injected"))
    });
    let (mut log, _) = open_on(data.path(), Arc::new(disk), &damage).unwrap();
    fails.store(true, Relaxed);
    write(&mut log, &records(10..11)).unwrap();
    assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 2);
    rewrite(&mut log, &records(0..11)).unwrap();
    assert_eq!((path.exists(), damage.totals().0), (false, 0));
}

#[test]
fn a_stray_file_with_a_large_number_does_not_hold_up_a_start() {
    let (data, path, _) = small();
    let stray = path.with_file_name("20261127.log");
    std::fs::write(&stray, "notes").unwrap();
    let damage = DamageLog::new();
    let (mut log, found) = open(data.path(), &damage).unwrap();
    assert_eq!((found, damage.totals().0, stray.exists()), (records(0..10), 1, false));
    rewrite(&mut log, &records(0..10)).unwrap();
    write(&mut log, &records(10..11)).unwrap();
    drop(log);
    let damage = DamageLog::new();
    assert_eq!((open(data.path(), &damage).unwrap().1, damage.totals().0), (records(0..11), 0));
}

#[test]
fn a_log_is_not_written_again_while_damaged_bytes_that_are_not_kept_cannot_be_read() {
    let (data, path, bytes) = small();
    let mut damaged = bytes;
    let middle = damaged.len() / 2;
    damaged[middle..middle + 4].fill(0xff);
    std::fs::write(&path, &damaged).unwrap();
    let (is_full, is_bad) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
    let full = is_full.clone();
    let disk = FailingDisk::new(Arc::new(SystemDisk), move |call, path| {
        let is_kept = path.parent().is_some_and(|folder| folder.ends_with("damaged"));
        (call == Call::Open && is_kept && full.load(Relaxed)).then(|| io::ErrorKind::StorageFull.into())
    });
    let disk = disk.with_sector_bad_while("00000001.log", middle as u64..middle as u64 + 4, is_bad.clone());
    let (mut log, found) = open_on(data.path(), Arc::new(disk), &DamageLog::new()).unwrap();
    is_full.store(false, Relaxed);
    is_bad.store(true, Relaxed);
    assert!(rewrite(&mut log, &found).unwrap_err().to_string().contains("its damaged bytes"));
    assert_eq!(std::fs::read(&path).unwrap(), damaged);
    is_bad.store(false, Relaxed);
    rewrite(&mut log, &found).unwrap();
    let kept = std::fs::read_dir(data.path().join("damaged")).unwrap().map(|entry| entry.unwrap().path());
    assert!(kept.into_iter().any(|path| std::fs::read(path).unwrap().windows(4).any(|four| four == [0xff; 4])));
}

/// A disk that fails each sync of a file of the log.
fn not_syncing(file: &'static str) -> Arc<dyn Disk> {
    let fault =
        move |call, path: &Path| (call == Call::Sync && path.ends_with(file)).then(|| io::Error::other("injected"));
    Arc::new(FailingDisk::new(Arc::new(SystemDisk), fault))
}

#[test]
fn what_comes_while_the_newest_of_several_files_is_away_is_read_when_it_is_back() {
    let data = tempfile::tempdir().unwrap();
    let (first, second) = (data.path().join("names/00000001.log"), data.path().join("names/00000002.log"));
    write(&mut open(data.path(), &DamageLog::new()).unwrap().0, &records(0..3)).unwrap();
    let (mut log, _) = open_on(data.path(), not_syncing("00000001.log"), &DamageLog::new()).unwrap();
    write(&mut log, &records(3..6)).unwrap();
    let counts = std::fs::metadata(&first).unwrap().len();
    let end = log.files().end();
    assert_eq!(end.map(|end| end.file), Some(2));
    drop(log);

    let away = data.path().join("away");
    std::fs::rename(&second, &away).unwrap();
    for new in [50, 51] {
        // The first of them was not flushed: the manifest still knows the second file.
        let folder = LogFolder { known: end, ..folder(data.path(), Arc::new(SystemDisk), &DamageLog::new()) };
        let (mut log, _) = open_in(folder).unwrap();
        assert_eq!((log.is_incomplete(), log.reaches(end.unwrap())), (true, Some(false)));
        write(&mut log, &records(new..new + 1)).unwrap();
    }
    assert_eq!(std::fs::metadata(&first).unwrap().len(), counts);
    std::fs::rename(&away, &second).unwrap();
    let damage = DamageLog::new();
    let (log, found) = open(data.path(), &damage).unwrap();
    assert_eq!((found, damage.totals().0), ([records(0..6), records(50..52)].concat(), 0));
    assert_eq!(std::fs::read_dir(data.path().join("names")).unwrap().count(), 3);

    // An earlier program went on in the first file: what it wrote there is not read, and that is said.
    for (bytes, is_read) in [(counts, true), (counts + 1, false)] {
        let end = LogEnd { file: 1, bytes };
        assert_eq!(log.reaches(end), Some(is_read));
        assert_eq!(reaches(&SystemDisk, &data.path().join("names"), 7 << 90, end), is_read);
    }
}

#[test]
fn a_file_that_is_begun_has_its_first_records_or_is_not_there() {
    let (data, first, bytes) = small();
    let end = LogEnd { file: 1, bytes: bytes.len() as u64 };
    std::fs::remove_file(&first).unwrap();
    let known = |disk| LogFolder { known: Some(end), ..folder(data.path(), disk, &DamageLog::new()) };
    for call in [Call::Write, Call::Sync, Call::Rename] {
        let fault = move |now, path: &Path| {
            let is_of_log = path.parent().is_some_and(|folder| folder.ends_with("names"));
            (now == call && is_of_log).then(|| io::Error::other("injected"))
        };
        let (mut log, _) = open_in(known(Arc::new(FailingDisk::new(Arc::new(SystemDisk), fault)))).unwrap();
        assert!(write(&mut log, &records(50..51)).is_err(), "{call:?}");
        assert_eq!(std::fs::read_dir(first.parent().unwrap()).unwrap().count(), 0, "{call:?}");
    }
    let fault = |call, path: &Path| {
        (call == Call::Write && path.ends_with("00000002.log")).then(|| io::Error::other("injected"))
    };
    let (mut log, _) = open_in(known(Arc::new(FailingDisk::new(Arc::new(SystemDisk), fault)))).unwrap();
    write(&mut log, &records(50..51)).unwrap();
    drop(log);
    assert_eq!(open(data.path(), &DamageLog::new()).unwrap().1, records(50..51));
    std::fs::remove_file(data.path().join("names/00000002.log")).unwrap();
    // A file of an earlier program, which did not note there that the one before is missing.
    let header = Header { table: *b"name", store: 7 << 90, number: 2, replaces: 0, previous: 0, previous_len: 0 };
    write_draft(&SystemDisk, first.parent().unwrap(), &header, |_| Ok(())).unwrap();
    assert_eq!(open_in(known(Arc::new(SystemDisk))).unwrap().0.reaches(end), Some(false));
    assert!(!reaches(&SystemDisk, first.parent().unwrap(), 7 << 90, end));
}

#[test]
fn records_go_to_no_file_in_front_of_the_last() {
    let (data, first, bytes) = small();
    let end = LogEnd { file: 1, bytes: bytes.len() as u64 };
    std::fs::remove_file(&first).unwrap();
    let folder = LogFolder { known: Some(end), ..folder(data.path(), Arc::new(SystemDisk), &DamageLog::new()) };
    write(&mut open_in(folder).unwrap().0, &records(50..51)).unwrap();
    // A copy of it is still under way.
    std::fs::write(&first, &bytes[..bytes.len() - 5]).unwrap();
    let (mut log, _) = open_on(data.path(), not_syncing("00000002.log"), &DamageLog::new()).unwrap();
    assert_eq!(std::fs::read(&first).unwrap(), bytes[..bytes.len() - 5]);
    std::fs::write(&first, &bytes).unwrap();
    write(&mut log, &records(51..52)).unwrap();
    drop(log);
    let (_, found) = open(data.path(), &DamageLog::new()).unwrap();
    assert_eq!(found, [records(0..10), records(50..52)].concat());
}

#[test]
fn a_write_that_fails_behind_a_damaged_end_does_not_make_that_end_known() {
    let (data, path, bytes) = small();
    std::fs::write(&path, [&bytes[..], &[0xaa; 60]].concat()).unwrap();
    let fails = Arc::new(AtomicBool::new(false));
    let failing = fails.clone();
    let disk = FailingDisk::new(Arc::new(SystemDisk), move |call, path: &Path| {
        let is_due = call == Call::Write && path.ends_with("00000001.log") && failing.load(Relaxed);
        is_due.then(|| io::Error::other("injected"))
    });
    let (mut log, _) = open_on(data.path(), Arc::new(disk), &DamageLog::new()).unwrap();
    assert_eq!(log.files().end(), None);
    fails.store(true, Relaxed);
    assert!(write(&mut log, &records(10..11)).is_err());
    assert_eq!(log.files().end(), None);
    fails.store(false, Relaxed);
    write(&mut log, &records(10..11)).unwrap();
    assert_eq!(log.files().end().map(|end| end.bytes), Some(std::fs::metadata(&path).unwrap().len()));
}

#[test]
fn records_behind_the_length_at_which_a_later_file_continues_are_kept() {
    // The later file continues behind a record of the right one, or inside of it.
    for meanwhile in [60..60, 60..61] {
        let data = tempfile::tempdir().unwrap();
        let (mut log, _) = open(data.path(), &DamageLog::new()).unwrap();
        let path = data.path().join("names/00000001.log");
        write(&mut log, &records(0..6)).unwrap();
        let before = std::fs::read(&path).unwrap();
        write(&mut log, &records(6..10)).unwrap();
        drop(log);
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, before).unwrap();
        write(&mut open(data.path(), &DamageLog::new()).unwrap().0, &records(meanwhile)).unwrap();
        let (mut log, _) = open_on(data.path(), not_syncing("00000001.log"), &DamageLog::new()).unwrap();
        write(&mut log, &records(50..51)).unwrap();
        drop(log);

        std::fs::write(&path, &whole).unwrap();
        let is_said = |how: &str| how.contains("behind byte");
        let verified = check_file(&SystemDisk, &path, "names record", Some(7 << 90), |_, _| ()).unwrap();
        assert!(verified.damaged.iter().any(|part| is_said(&part.how)), "{verified:?}");
        let damage = DamageLog::new();
        let (mut log, found) = open(data.path(), &damage).unwrap();
        assert!(log.wants_rewrite() && found.ends_with(&records(50..51)), "{found:?}");
        assert!(damage.examples().iter().any(|damage| is_said(&damage.how)), "{:?}", damage.examples());
        rewrite(&mut log, &found).unwrap();
        let moved = damage.examples().into_iter().find_map(|damage| damage.moved_to).unwrap();
        assert_eq!(std::fs::read(data.path().join(moved)).unwrap(), whole);
    }
}

#[test]
fn a_file_stays_where_the_one_that_continues_it_cannot_be_compared_with_it() {
    for reads in 0..12 {
        let (data, path, before) = small();
        let (mut log, _) = open(data.path(), &DamageLog::new()).unwrap();
        write(&mut log, &records(20..24)).unwrap();
        drop(log);
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, before).unwrap();
        let (mut log, _) = open_on(data.path(), not_syncing("00000001.log"), &DamageLog::new()).unwrap();
        write(&mut log, &records(50..51)).unwrap();
        drop(log);
        std::fs::write(&path, &whole).unwrap();

        let (good, done) = (Arc::new(AtomicUsize::new(reads)), Arc::new(AtomicBool::new(false)));
        let is_over = done.clone();
        let disk = FailingDisk::new(Arc::new(SystemDisk), move |call, path| {
            let is_continuing = call == Call::Read && path.ends_with("00000002.log") && !is_over.load(Relaxed);
            let fails = is_continuing && good.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_err();
            fails.then(|| io::Error::other("injected"))
        });
        let Ok((mut log, found)) = open_on(data.path(), Arc::new(disk), &DamageLog::new()) else { continue };
        done.store(true, Relaxed);
        _ = rewrite(&mut log, &found);
        let folders = [path.parent().unwrap().to_owned(), data.path().join("damaged")];
        let files = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten();
        let mut contents = files.filter_map(|entry| std::fs::read(entry.unwrap().path()).ok());
        assert!(contents.any(|bytes| bytes == whole), "after {reads} reads");
    }
}

#[test]
fn what_a_failed_sync_left_behind_is_in_the_next_file_and_goes() {
    // All of it, a part, and bytes that are not a record.
    for left in [usize::MAX, 9, 0] {
        let (data, path, bytes) = small();
        let fails = Arc::new(AtomicBool::new(false));
        let failing = fails.clone();
        let disk = FailingDisk::new(Arc::new(SystemDisk), move |call, _| {
            let fails = match call {
                Call::Sync => failing.load(Relaxed),
                // Nor are they cut off.
                Call::SetLen => failing.swap(false, Relaxed),
                _ => false,
            };
            fails.then(|| io::Error::other("injected"))
        });
        let (mut log, _) = open_on(data.path(), Arc::new(disk), &DamageLog::new()).unwrap();
        fails.store(true, Relaxed);
        write(&mut log, &records(10..14)).unwrap();
        write(&mut log, &records(14..15)).unwrap();
        drop(log);
        let mut found = std::fs::read(&path).unwrap();
        assert!(bytes.len() < found.len());
        found.truncate(left.saturating_add(bytes.len()));
        found.extend(vec![0xaa; if left == 0 { 60 } else { 0 }]);
        std::fs::write(&path, found).unwrap();
        let verified = check_file(&SystemDisk, &path, "names record", Some(7 << 90), |_, _| ()).unwrap();
        let damage = DamageLog::new();
        let (mut log, found) = open(data.path(), &damage).unwrap();
        assert_eq!((found, log.wants_rewrite(), verified.damaged), (records(0..15), false, Vec::new()));
        rewrite(&mut log, &records(0..15)).unwrap();
        assert_eq!((path.exists(), damage.totals().0), (false, 0));
    }
}

#[test]
fn a_write_that_was_refused_after_a_failed_sync_is_not_reported_later() {
    let (data, path, bytes) = small();
    let fails = Arc::new(AtomicBool::new(false));
    let failing = fails.clone();
    let disk = FailingDisk::new(Arc::new(SystemDisk), move |call, _| {
        (call == Call::Sync && failing.load(Relaxed)).then(|| io::Error::other("injected"))
    });
    let (mut log, _) = open_on(data.path(), Arc::new(disk), &DamageLog::new()).unwrap();
    fails.store(true, Relaxed);
    assert!(write(&mut log, &records(10..11)).is_err());
    fails.store(false, Relaxed);
    write(&mut log, &records(11..12)).unwrap();
    drop(log);
    let damage = DamageLog::new();
    let (log, found) = open(data.path(), &damage).unwrap();
    assert_eq!(found, [records(0..10), records(11..12)].concat());
    assert_eq!((log.wants_rewrite(), damage.totals().0, std::fs::read(path).unwrap()), (false, 0, bytes));
}
