use std::{
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use host::{Call, Disk, FailingDisk, Fault, FaultPlan, Host, SeededRandom, SimulatedDisk, SystemDisk};
use store::DamageLog;

use super::*;
use crate::{damage::Reporter, record_log::WhenUnread, spec::owner_of};

fn open_with(data: &Path, disk: Arc<dyn Disk>, limits: EventLimits, damage: &DamageLog) -> EventsLog {
    let host = Host { disk, ..Host::system() };
    let reporter = Reporter::new(&host, damage, data);
    let dir = data.join("events");
    let folder = LogFolder {
        dir,
        table: *b"evnt",
        what: "event",
        store: 7,
        owner: owner_of(&host.disk, data),
        reporter,
        host,
        when_unread: WhenUnread::GoOn,
        known: None,
        needs_known: false,
    };
    EventsLog::open(folder, limits).unwrap()
}

fn open(data: &Path) -> EventsLog {
    open_with(data, Arc::new(SystemDisk), EventLimits::default(), &DamageLog::new())
}

fn event(when: Timestamp, bytes: usize) -> NewEvent {
    NewEvent { when, what: when.to_string(), tags: "t".to_owned(), data: "x".repeat(bytes) }
}

fn times(events: &EventsLog) -> Vec<Timestamp> {
    events.after((0, 0), 1_000_000, 100_000).unwrap().iter().map(|event| event.content.when).collect()
}

#[test]
fn what_expired_leaves_the_disk_and_its_ids_are_not_given_again() {
    let data = tempfile::tempdir().unwrap();
    let events = open(data.path());
    for when in 1..=60 {
        assert_eq!(events.put(&event(when, 60_000)).unwrap(), when as u64);
    }
    let before = events.disk_bytes();
    assert_eq!(events.usage(), EventUsage { events: 60, bytes: 60 * 60_025 + 51 + 60, refused: 0, failed: 0 });
    assert_eq!(events.expire(51).unwrap(), 50);
    assert_eq!(times(&events), (51..=60).collect::<Vec<_>>());
    assert!(events.disk_bytes() < before / 5, "{} of {before} bytes", events.disk_bytes());
    assert_eq!(events.usage().events, 10);
    assert_eq!(events.expire(100).unwrap(), 10);
    let left = events.usage();
    assert_eq!((left.events, left.bytes), (0, 0));
    drop(events);

    let events = open(data.path());
    assert_eq!((times(&events), events.usage()), (vec![], EventUsage::default()));
    assert_eq!(events.put(&event(7, 1)).unwrap(), 61);
    assert_eq!(open(data.path()).usage().events, 1);
}

#[test]
fn events_that_cannot_be_read_at_a_start_keep_their_ids() {
    let data = tempfile::tempdir().unwrap();
    let events = open(data.path());
    for when in 1..=60 {
        events.put(&event(when, 300)).unwrap();
    }
    drop(events);
    let disk =
        FailingDisk::new(Arc::new(SystemDisk), |_, _| None).with_bad_sector("events/00000001.log", 9000..u64::MAX);
    let events = open_with(data.path(), Arc::new(disk), EventLimits::default(), &DamageLog::new());
    assert!(times(&events).len() < 30);
    assert!(60 < events.put(&event(70, 10)).unwrap());
    drop(events);
    assert_eq!(times(&open(data.path())), (1..=60).chain([70]).collect::<Vec<_>>());
}

#[test]
fn events_beyond_a_limit_are_refused_until_others_expire() {
    let data = tempfile::tempdir().unwrap();
    let limits = EventLimits { events: 3, bytes: 1000 };
    let open = || open_with(data.path(), Arc::new(SystemDisk), limits, &DamageLog::new());
    let events = open();
    let refused = |events: &EventsLog, bytes| match events.put(&event(5, bytes)) {
        Err(StoreError::Full(why)) => why,
        other => panic!("{other:?}"),
    };
    for when in [1, 2] {
        events.put(&event(when, 400)).unwrap();
    }
    assert!(refused(&events, 200).contains("limits.events_bytes allows, 1000"));
    events.put(&event(3, 10)).unwrap();
    assert!(refused(&events, 10).contains("there are 3 events, as many as limits.events allows"));
    assert_eq!(events.usage().refused, 2);
    drop(events);

    // A start counts again.
    let events = open();
    assert!(refused(&events, 10).contains("limits.events"));
    assert_eq!(events.expire(2).unwrap(), 1);
    events.put(&event(9, 10)).unwrap();
    assert_eq!(times(&events), [2, 3, 9]);
}

#[test]
fn an_event_that_could_not_be_written_does_not_count() {
    let data = Path::new("/data");
    let disk = SimulatedDisk::new();
    disk.create_dir_all(data).unwrap();
    let limits = EventLimits { events: 2, bytes: 10_000 };
    let events = open_with(data, Arc::new(disk.clone()), limits, &DamageLog::new());
    events.put(&event(1, 10)).unwrap();
    disk.set_plan(Some(FaultPlan { times: 100, ..FaultPlan::once(0, Fault::EIO) }));
    assert!(matches!(events.put(&event(2, 10)), Err(StoreError::Io { .. })));
    disk.set_plan(None);
    let usage = events.usage();
    assert_eq!((usage.events, usage.failed), (1, 1));
    assert!(events.problem().is_some());
    events.put(&event(3, 10)).unwrap();
    assert_eq!((times(&events), events.problem(), events.usage().failed), (vec![1, 3], None, 1));
}

#[test]
fn a_crash_or_fault_at_any_call_of_an_expiry_loses_no_other_event() {
    let data = Path::new("/data");
    for fault in [Fault::Die, Fault::EIO, Fault::ENOSPC] {
        for at in 0.. {
            let disk = SimulatedDisk::new();
            disk.create_dir_all(data).unwrap();
            disk.sync_dir(Path::new("/")).unwrap();
            let events = open_with(data, Arc::new(disk.clone()), EventLimits::default(), &DamageLog::new());
            for when in 1..=24 {
                events.put(&event(when, 60_000)).unwrap();
            }
            disk.set_plan(Some(FaultPlan::once(at, fault)));
            let expired = events.expire(20);
            let is_over = disk.faults().is_empty();
            disk.set_plan(None);
            drop(events);
            let damage = DamageLog::new();
            let after = Arc::new(disk.crash(&SeededRandom::new(at)));
            let events = open_with(data, after, EventLimits::default(), &damage);
            let left = times(&events);
            assert!(left.ends_with(&[20, 21, 22, 23, 24]), "{fault:?} at {at}: {left:?}");
            assert!(expired.is_err() || left.len() == 5, "{fault:?} at {at}: {left:?}");
            assert_eq!(damage.totals(), (0, 0), "{fault:?} at {at}");
            events.expire(20).unwrap();
            assert_eq!(times(&events), [20, 21, 22, 23, 24]);
            if is_over {
                assert!(10 < at, "the log is written again");
                break;
            }
        }
    }
}

#[test]
fn readers_find_every_event_while_the_log_is_written_again() {
    let data = tempfile::tempdir().unwrap();
    let damage = DamageLog::new();
    let events = open_with(data.path(), Arc::new(SystemDisk), EventLimits::default(), &damage);
    for when in 1..=20 {
        events.put(&event(when, 100)).unwrap();
    }
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| (0..100).for_each(|_| events.write_again().unwrap()));
        while !writer.is_finished() {
            assert_eq!(times(&events).len(), 20);
            assert_eq!(events.get(7).unwrap().unwrap().content.when, 7);
        }
    });
    assert_eq!(damage.totals(), (0, 0));
}

#[test]
fn a_note_of_an_earlier_program_that_the_end_is_lost_stays_when_the_log_is_written_again() {
    let data = tempfile::tempdir().unwrap();
    let events = open(data.path());
    events.log.lock().write(iter::once((CUT, &[][..])), |_, _, _| {}).unwrap();
    drop(events);
    for start in 0..2 {
        let events = open(data.path());
        assert!(events.is_cut());
        for when in 1..=60 {
            events.put(&event(when, 60_000)).unwrap();
        }
        assert_eq!(events.expire(100).unwrap(), 60);
        assert!(events.disk_bytes() < 60_000, "start {start}: {} bytes", events.disk_bytes());
    }
    let events = open(data.path());
    // One of this program says where the end was, and that may be put back.
    events.note_cut(LogEnd { file: 100, bytes: 1 }).unwrap();
    for when in 1..=60 {
        events.put(&event(when, 60_000)).unwrap();
    }
    assert_eq!(events.expire(100).unwrap(), 60);
    assert!(60 * 60_000 < events.disk_bytes());
}

#[test]
fn a_note_that_the_end_is_lost_and_that_the_disk_does_not_take_is_written_before_the_next_event() {
    let data = tempfile::tempdir().unwrap();
    let is_full = Arc::new(AtomicBool::new(false));
    let full = is_full.clone();
    let disk = FailingDisk::new(Arc::new(SystemDisk), move |call, path| {
        let is_of_log = path.extension().is_some_and(|extension| extension == "log");
        (call == Call::Write && is_of_log && full.load(Relaxed)).then(|| io::ErrorKind::StorageFull.into())
    });
    open(data.path()).put(&event(1, 10)).unwrap();
    let events = open_with(data.path(), Arc::new(disk), EventLimits::default(), &DamageLog::new());
    is_full.store(true, Relaxed);
    let end = LogEnd { file: 1, bytes: events.disk_bytes() + 60 };
    assert_eq!(events.reaches(end), Some(false));
    assert!(events.note_cut(end).is_err());
    assert!(events.put(&event(2, 100)).is_err());
    is_full.store(false, Relaxed);
    events.put(&event(3, 100)).unwrap();
    drop(events);
    // The log is as long as it was.
    let events = open(data.path());
    assert_eq!((events.reaches(end), events.is_cut(), times(&events)), (Some(true), true, vec![1, 3]));
}
