use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use host::{Call, Disk, FailingDisk, Host, SystemDisk};
use metric::Aggregation;
use store::{DamageLog, PolicyChange};

use super::*;
use crate::{damage::Reporter, record_log::WhenUnread, spec::owner_of};

fn open(data: &Path) -> Names {
    open_on(data, Arc::new(SystemDisk))
}

fn open_on(data: &Path, disk: Arc<dyn Disk>) -> Names {
    let host = Host { disk, ..Host::system() };
    open_with(data, host, &DamageLog::new())
}

fn open_with(data: &Path, host: Host, damage: &DamageLog) -> Names {
    let reporter = Reporter::new(&host, damage, data);
    let dir = data.join("names");
    Names::open(LogFolder {
        dir,
        table: *b"name",
        what: "names record",
        store: 7,
        owner: owner_of(&host.disk, data),
        reporter,
        host,
        when_unread: WhenUnread::Refuse,
        known: None,
        needs_known: false,
    })
    .unwrap()
}

fn record(id: u32, since: i64) -> MetricRecord {
    let policy = Policy { aggregation: Aggregation::ALL[since as usize % 8], ..Policy::default() };
    let policies = vec![PolicyChange { since, policy }];
    MetricRecord { id: MetricId(id), name: format!("m{id}.{}", "x".repeat(100)), created_on: 5, policies }
}

fn scan(names: &Names) -> Vec<MetricRecord> {
    let mut found = Vec::new();
    let patience = Patience::new(&Host::system().clock, Duration::ZERO);
    names.scan(&patience, &mut |records| found.extend(records)).unwrap();
    found.sort_by_key(|record| record.id);
    found
}

#[test]
fn a_log_that_is_mostly_obsolete_is_written_again_without_losing_anything() {
    let data = tempfile::tempdir().unwrap();
    let names = open(data.path());
    names.begin(Incarnation { id: 9, first_id: MetricId(0) }).unwrap();
    names.delete(&[MetricId(500), MetricId(9_999)]);
    for since in 0..20 {
        names.put(&(0..1000).map(|id| record(id, since)).collect::<Vec<_>>());
        names.sync().unwrap();
    }
    let one_version = 1000 * 150;
    assert!(names.disk_bytes() < 12 * one_version, "{} bytes", names.disk_bytes());
    let expected: Vec<MetricRecord> = (0..1000).filter(|id| *id != 500).map(|id| record(id, 19)).collect();
    assert_eq!(scan(&names), expected);
    drop(names);

    let names = open(data.path());
    assert_eq!(scan(&names), expected);
    assert_eq!(names.next_id(), MetricId(10_000));
    assert!(names.is_deleted(MetricId(500)) && names.is_deleted(MetricId(9_999)) && !names.is_deleted(MetricId(1)));
    assert_eq!(names.openings(), [Incarnation { id: 9, first_id: MetricId(0) }]);
}

#[test]
fn of_what_waits_for_a_sync_the_last_counts_also_after_a_sync_that_failed() {
    let data = tempfile::tempdir().unwrap();
    let fails = Arc::new(AtomicBool::new(false));
    let asked = fails.clone();
    let fault = move |call: Call, _: &Path| {
        (call == Call::Write && asked.load(Relaxed)).then(|| io::Error::other("the disk is full"))
    };
    let names = open_on(data.path(), Arc::new(FailingDisk::new(Arc::new(SystemDisk), fault)));
    names.put(&[record(1, 10), record(2, 10), record(3, 10)]);
    names.sync().unwrap();

    fails.store(true, Relaxed);
    names.put(&[record(1, 11), record(1, 12), record(2, 11), record(4, 11), record(5, 11)]);
    names.delete(&[MetricId(2), MetricId(4)]);
    assert!(names.sync().is_err());
    // What comes while a sync is under way is newer than what it could not write.
    let unwritten = names.pending.lock().take();
    names.put(&[record(5, 12)]);
    names.pending.lock().take_back(unwritten);
    names.put(&[record(1, 13), record(2, 13), record(6, 13)]);
    names.delete(&[MetricId(3)]);
    let expected = [record(1, 13), record(5, 12), record(6, 13)];
    assert_eq!(scan(&names), expected);

    fails.store(false, Relaxed);
    names.sync().unwrap();
    assert_eq!((scan(&names), names.unsynced_bytes()), (expected.to_vec(), 0));
    drop(names);
    assert_eq!(scan(&open(data.path())), expected);
}

#[test]
fn a_rewrite_whose_reads_fail_is_given_up() {
    let data = tempfile::tempdir().unwrap();
    let fails = Arc::new(AtomicBool::new(false));
    let asked = fails.clone();
    let fault = move |call: Call, _: &Path| {
        (call == Call::Read && asked.load(Relaxed)).then(|| io::Error::other("a bad sector"))
    };
    let names = open_on(data.path(), Arc::new(FailingDisk::new(Arc::new(SystemDisk), fault)));
    names.put(&(0..100).map(|id| record(id, 1)).collect::<Vec<_>>());
    names.sync().unwrap();
    fails.store(true, Relaxed);
    assert!(names.rewrite().is_err());
    fails.store(false, Relaxed);
    assert_eq!(scan(&names).len(), 100);
    drop(names);
    assert_eq!(scan(&open(data.path())).len(), 100);
}

#[test]
fn a_rewrite_over_records_that_were_damaged_since_the_start_is_given_up_and_reported() {
    let data = tempfile::tempdir().unwrap();
    let damage = DamageLog::new();
    let names = open_with(data.path(), Host::system(), &damage);
    names.put(&(0..100).map(|id| record(id, 1)).collect::<Vec<_>>());
    names.sync().unwrap();
    let path = data.path().join("names/00000001.log");
    let mut bytes = std::fs::read(&path).unwrap();
    let name = bytes.windows(4).position(|window| window == b"m50.").unwrap();
    bytes[name] ^= 3;
    std::fs::write(&path, bytes).unwrap();

    for _ in 0..2 {
        assert!(names.rewrite().unwrap_err().to_string().contains("names"));
        assert!(path.exists(), "the file stays");
        assert_eq!(damage.totals().0, 1);
    }
    // Names that come after it are kept, and the next start says what is lost.
    names.put(&[record(100, 1)]);
    names.sync().unwrap();
    drop(names);
    let damage = DamageLog::new();
    let names = open_with(data.path(), Host::system(), &damage);
    assert_eq!(scan(&names).len(), 100);
    assert!(0 < damage.totals().0);
}

/// A table with a metric that was deleted and made again, and the bytes of the deletion in its log.
fn made_again(data: &Path) -> (std::path::PathBuf, std::ops::Range<usize>) {
    let names = open(data);
    let path = data.join("names/00000001.log");
    let len = || std::fs::metadata(&path).unwrap().len() as usize;
    names.begin(Incarnation { id: 9, first_id: MetricId(0) }).unwrap();
    names.put(&[record(0, 1), record(1, 1)]);
    names.sync().unwrap();
    let from = len();
    names.delete(&[MetricId(1)]);
    names.sync().unwrap();
    let deletion = from..len();
    names.put(&[MetricRecord { id: MetricId(2), ..record(1, 1) }]);
    names.sync().unwrap();
    (path, deletion)
}

#[test]
fn a_deletion_with_one_wrong_bit_is_a_deletion() {
    let data = tempfile::tempdir().unwrap();
    let (path, deletion) = made_again(data.path());
    let whole = std::fs::read(&path).unwrap();
    for bit in deletion.start * 8..deletion.end * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&path, bytes).unwrap();
        let damage = DamageLog::new();
        let names = open_with(data.path(), Host::system(), &damage);
        let found: Vec<MetricId> = scan(&names).into_iter().map(|record| record.id).collect();
        assert_eq!((found, damage.totals().0), (vec![MetricId(0), MetricId(2)], 1), "bit {bit}");
        assert!(names.is_deleted(MetricId(1)));
    }
}

/// Flips bits of a file.
fn flip(path: &Path, at: usize, bits: u8) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= bits;
    std::fs::write(path, bytes).unwrap();
}

/// What a start reports of names, with the names opened.
fn reported(data: &Path) -> (Names, Vec<String>) {
    let damage = DamageLog::new();
    let names = open_with(data, Host::system(), &damage);
    names.settle_losses().unwrap();
    let of_names = damage.examples().into_iter().filter(|found| ["names", "deletions"].contains(&found.what));
    (names, of_names.map(|found| found.how).collect())
}

fn ids(names: &Names) -> Vec<u32> {
    scan(names).into_iter().map(|record| record.id.0).collect()
}

#[test]
fn a_metric_whose_deletion_is_lost_does_not_hide_a_later_one_of_its_name() {
    // The beginning of the record, and its runs.
    for place in [3, 14] {
        let data = tempfile::tempdir().unwrap();
        let (path, deletion) = made_again(data.path());
        flip(&path, deletion.start + place, 3);
        for start in 0..3 {
            let (names, reported) = reported(data.path());
            assert_eq!(ids(&names), [0, 2], "start {start}");
            let said = |text: &str| reported.iter().any(|how| how.contains(text));
            assert!(said("deletions of 1 metrics are lost (ids 1 to 1): the names m1.x"), "{reported:?}");
            assert!(said("metrics with ids up to 1 that were deleted may be back"), "{reported:?}");
            assert_eq!(said("found before"), 0 < start, "{reported:?}");
            names.put(&[record(10 + start, 1)]);
            names.sync().unwrap();
            if start == 1 {
                names.rewrite().unwrap();
            }
            names.delete(&[MetricId(10 + start)]);
            names.sync().unwrap();
        }
        // A repair makes the deletion again.
        let (names, _) = reported(data.path());
        names.forget_missing();
        names.sync().unwrap();
        names.rewrite().unwrap();
        drop(names);
        let (names, reported) = reported(data.path());
        assert_eq!((ids(&names), reported, names.is_deleted(MetricId(1))), (vec![0, 2], Vec::new(), true));
    }
}

#[test]
fn losses_in_a_log_that_waits_are_noted_once() {
    let data = tempfile::tempdir().unwrap();
    let (path, deletion) = made_again(data.path());
    let names = open(data.path());
    names.note_missing(MetricId(0), Some(LogEnd { file: 9, bytes: 99 })).unwrap();
    drop(names);
    flip(&path, deletion.start + 14, 3);
    let place = std::fs::read(&path).unwrap().windows(3).position(|part| part == b"m0.").unwrap();
    flip(&path, place, 3);
    let mut bytes = Vec::new();
    for start in 0..3 {
        let (names, reported) = reported(data.path());
        assert_eq!(reported.len(), 3, "{reported:?}");
        assert!(reported.iter().all(|how| how.contains("found before") == (0 < start)), "start {start}: {reported:?}");
        names.sync().unwrap();
        bytes.push(std::fs::metadata(&path).unwrap().len());
    }
    assert!(bytes[0] == bytes[1] && bytes[1] == bytes[2], "{bytes:?}");
}

#[test]
fn a_lost_deletion_is_reported_until_a_repair() {
    let data = tempfile::tempdir().unwrap();
    let (path, deletion) = made_again(data.path());
    // Without the metric that was made again.
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(deletion.end as u64).unwrap();
    flip(&path, deletion.start + 14, 3);
    for _ in 0..3 {
        let (names, reported) = reported(data.path());
        assert_eq!(ids(&names)[..2], [0, 1]);
        assert!(reported.iter().any(|how| how.contains("ids up to 1 that were deleted may be back")), "{reported:?}");
        names.put(&[record(5, 1)]);
        names.sync().unwrap();
        names.rewrite().unwrap();
    }
    let (names, _) = reported(data.path());
    names.forget_missing();
    names.rewrite().unwrap();
    drop(names);
    assert_eq!(reported(data.path()).1, Vec::<String>::new());
}

#[test]
fn a_lost_name_is_reported_until_it_is_back_or_a_repair_and_no_deletion_is_doubted() {
    for is_back in [true, false] {
        let data = tempfile::tempdir().unwrap();
        let names = open(data.path());
        names.put(&[record(0, 1), record(1, 1), record(2, 1)]);
        names.sync().unwrap();
        drop(names);
        let path = data.path().join("names/00000001.log");
        let place = std::fs::read(&path).unwrap().windows(3).position(|part| part == b"m1.").unwrap();
        flip(&path, place, 3);
        for start in 0..3 {
            let (names, reported) = reported(data.path());
            let lost = "at most 1 metrics have lost their names (ids 1 to 1)";
            assert!(reported.len() == 1 && reported[0].contains(lost), "start {start}: {reported:?}");
            names.sync().unwrap();
            names.rewrite().unwrap();
        }
        let names = open(data.path());
        if is_back {
            names.put(&[record(1, 1)]);
            names.sync().unwrap();
        } else {
            names.forget_missing();
            names.rewrite().unwrap();
        }
        drop(names);
        let (names, reported) = reported(data.path());
        assert_eq!((reported, ids(&names).len()), (Vec::new(), if is_back { 3 } else { 2 }));
    }
}

/// Damages the text of the policy of `record(_, since)` at its place in the log.
fn damage_policy(data: &Path, since: i64) {
    let policy = &record(0, since).policies[0].policy;
    let text = format!("{} {}", policy.methods(), policy.retention);
    let path = data.join("names/00000001.log");
    let mut bytes = std::fs::read(&path).unwrap();
    let place = bytes.windows(text.len()).position(|window| window == text.as_bytes()).unwrap();
    bytes[place] ^= 3;
    std::fs::write(&path, bytes).unwrap();
}

#[test]
fn a_lost_policy_is_reported_with_its_metrics_until_it_is_known_and_no_other_gets_its_number() {
    // The first, one in between, and the last, which no later number shows to be missing.
    for lost in 0..3 {
        let data = tempfile::tempdir().unwrap();
        let names = open(data.path());
        names.begin(Incarnation { id: 9, first_id: MetricId(0) }).unwrap();
        names.put(&(0..9).map(|id| record(id, i64::from(id) % 3 + 1)).collect::<Vec<_>>());
        names.sync().unwrap();
        drop(names);
        damage_policy(data.path(), lost + 1);

        let of_lost: Vec<MetricId> = (0..3).map(|round| MetricId(round * 3 + lost as u32)).collect();
        for round in 0..3 {
            let damage = DamageLog::new();
            let names = open_with(data.path(), Host::system(), &damage);
            let found = names.lost_policies();
            assert_eq!(found.iter().map(|lost| lost.number).collect::<Vec<_>>(), [lost as u16], "{round}");
            assert_eq!(found[0].metrics, of_lost.iter().map(|&id| (id, lost + 1)).collect::<Vec<_>>());
            let reported = damage.examples().into_iter().find(|found| found.what == "policy").expect("it is reported");
            assert_eq!(reported.metrics, Some((of_lost[0], of_lost[2])));
            assert!(
                reported.how.contains(&format!("policy {lost} ")) && reported.how.contains("3 metrics"),
                "{reported:?}"
            );
            assert_eq!(names.end(), None, "a copy of the names does not stand for the log");
            names.begin(Incarnation { id: 10 + round, first_id: MetricId(9 + round as u32) }).unwrap();
            if 0 < round {
                // Another policy, and a rewrite without the damaged record.
                names.put(&[record(8 + round as u32, 3 + round as i64)]);
                names.sync().unwrap();
                names.rewrite().unwrap();
            }
            for is in scan(&names) {
                let is_lost = of_lost.contains(&is.id);
                let since = if is.id.0 < 9 { i64::from(is.id.0) % 3 + 1 } else { i64::from(is.id.0) - 5 };
                let policy = record(0, since).policies.remove(0).policy;
                assert_eq!(is.policies[0].policy, if is_lost { Policy::default() } else { policy }, "{}", is.id);
            }
        }

        let names = open(data.path());
        names.set_lost_policy(lost as u16, &record(0, lost + 1).policies[0].policy, "a test says so");
        let expected: Vec<MetricRecord> = (0..9).map(|id| record(id, i64::from(id) % 3 + 1)).collect();
        assert_eq!(scan(&names)[..9], expected);
        names.begin(Incarnation { id: 20, first_id: MetricId(12) }).unwrap();
        drop(names);
        let damage = DamageLog::new();
        let names = open_with(data.path(), Host::system(), &damage);
        assert_eq!((scan(&names)[..9].to_vec(), names.lost_policies(), damage.totals().0), (expected, vec![], 0));
        assert!(names.end().is_some());
    }
}

#[test]
fn a_note_of_an_earlier_program_that_the_end_is_lost_stays_when_the_log_is_written_again() {
    let data = tempfile::tempdir().unwrap();
    let names = open(data.path());
    let mut records = Records::default();
    records.push(MISSING, &encode_runs(&[(MetricId(3), 0), (MetricId(20), 5)]));
    names.logged.lock().write(records.iter()).unwrap();
    drop(names);
    for start in 0..2 {
        let names = open(data.path());
        assert_eq!(names.missing(), [(MetricId(3), 0), (MetricId(20), 5)]);
        for since in 0..20 {
            names.put(
                &(0..1000)
                    .map(|id| record(id, since))
                    .filter(|record| !(20..25).contains(&record.id.0))
                    .collect::<Vec<_>>(),
            );
            names.sync().unwrap();
        }
        assert!(names.disk_bytes() < 12 * 1000 * 150, "start {start}: {} bytes", names.disk_bytes());
    }
    // One of this program says where the end was, and that may be put back.
    let names = open(data.path());
    let end = LogEnd { file: 100, bytes: 1 };
    for _ in 0..2 {
        names.note_missing(MetricId(0), Some(end)).unwrap();
    }
    assert_eq!(names.missing(), [(MetricId(3), 0), (MetricId(20), 5), (MetricId(1000), 0)]);
    for since in 0..20 {
        names.put(&(0..1000).map(|id| record(id, since)).collect::<Vec<_>>());
        names.sync().unwrap();
    }
    assert!(20 * 1000 * 100 < names.disk_bytes());
}
