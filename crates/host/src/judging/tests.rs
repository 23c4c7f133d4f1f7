use std::{path::Path, time::Duration};

use super::*;
use crate::{Call, FailingDisk, ManualClock, SystemDisk};

const TODAY: i64 = 1_795_000_000;
const DAY: i64 = 86_400;
const IN_2036: i64 = 2_082_800_000;

fn clock(now: i64) -> Arc<ManualClock> {
    Arc::new(ManualClock::at(now))
}

fn host(clock: &Arc<ManualClock>) -> Host {
    Host { clock: clock.clone(), ..Host::system() }
}

fn open(clock: &Arc<ManualClock>, data: &Path) -> JudgingTime {
    JudgingTime::open(&host(clock), data).unwrap()
}

/// A folder that was in use until `TODAY`.
fn used() -> tempfile::TempDir {
    let data = tempfile::tempdir().unwrap();
    Mark { reached: TODAY, ..Mark::default() }.write(&SystemDisk, &data.path().join("clock")).unwrap();
    data
}

fn pass(clock: &ManualClock, seconds: u64) {
    clock.advance(Duration::from_secs(seconds));
}

/// Batches of one sender whose points are `late` seconds behind `offset` from the clock, a second apart.
fn send(time: &JudgingTime, clock: &ManualClock, ahead: i64, seconds: u64) {
    for _ in 0..seconds {
        pass(clock, 1);
        time.witness(1, clock.now() + ahead, false);
    }
}

#[test]
fn a_clock_that_passes_with_the_stopwatch_is_certain() {
    let clock = clock(TODAY);
    let time = JudgingTime::of(clock.clone());
    pass(&clock, 3 * 3600);
    assert_eq!((time.now(), time.doubt(), time.jumps()), (Now::at(TODAY + 3 * 3600), None, 0));
}

#[test]
fn steps_of_ntp_are_followed_and_never_add_up() {
    let clock = clock(TODAY);
    let time = JudgingTime::of(clock.clone());
    for step in [TOLERANCE, -TOLERANCE, -5, 7, -TOLERANCE, -TOLERANCE] {
        clock.set(clock.now() + step);
        assert_eq!((time.now(), time.jumps()), (Now::at(clock.now()), 0), "a step of {step} s");
    }
}

#[test]
fn a_jump_while_running_keeps_both_times_and_stops_expiry() {
    for jump in [IN_2036 - TODAY, DAY, -DAY, -TODAY] {
        let clock = clock(TODAY);
        let time = JudgingTime::of(clock.clone());
        clock.set(TODAY + jump);
        pass(&clock, 100);
        assert_eq!(time.now(), Now::between(TODAY + 100, TODAY + jump + 100), "{jump}");
        assert_eq!((time.expiry(Some(TODAY)), time.jumps()), (None, 1));
        // Back to where it was: the doubt ends by itself.
        clock.set(TODAY + 130);
        assert_eq!((time.now(), time.doubt()), (Now::at(TODAY + 130), None));
        assert_eq!(time.expiry(None), Some(TODAY + 130));
    }
}

#[test]
fn points_that_agree_with_the_clock_end_the_doubt() {
    for jump in [DAY, -DAY] {
        let clock = clock(TODAY);
        let time = JudgingTime::of(clock.clone());
        clock.set(TODAY + jump);
        assert!(!time.now().is_certain(), "one that ends in doubt");
        send(&time, &clock, -10, 25);
        assert!(time.is_doubtful());
        send(&time, &clock, -10, 10);
        assert_eq!((time.now(), time.doubt()), (Now::at(TODAY + jump + 35), None), "{jump}");
    }
}

#[test]
fn points_that_agree_with_the_time_before_show_that_the_clock_is_wrong() {
    let clock = clock(TODAY);
    let time = JudgingTime::of(clock.clone());
    clock.set(IN_2036);
    time.now();
    send(&time, &clock, TODAY - IN_2036 - 10, 40);
    let doubt = time.doubt().unwrap();
    assert_eq!((doubt.verdict, doubt.before, doubt.clock), (Some(Candidate::Before), TODAY + 40, IN_2036 + 40));
    assert_eq!((time.expiry(None), time.for_points_without_time()), (None, TODAY + 40));
    clock.set(TODAY + 41);
    assert!(time.now().is_certain());
}

#[test]
fn points_that_got_the_time_of_the_clock_here_do_not_vote() {
    let clock = clock(TODAY);
    let time = JudgingTime::of(clock.clone());
    clock.set(IN_2036);
    time.now();
    send(&time, &clock, 0, 300);
    assert!(time.is_doubtful());
    assert_eq!(time.doubt().unwrap().batches, [0, 0]);
}

#[test]
fn three_agents_that_stamp_their_points_now_end_the_doubt_after_a_night() {
    for agents in [1, 3] {
        let (data, clock) = (used(), clock(TODAY + DAY / 2));
        let time = open(&clock, data.path());
        assert!(!time.now().is_certain(), "one that ends in doubt");
        let mut minutes = 0;
        // Each on a connection of its own, once a minute.
        while time.is_doubtful() && minutes < 60 {
            pass(&clock, 60);
            minutes += 1;
            for agent in 0..agents {
                time.witness(100 * minutes + agent, clock.now(), true);
            }
        }
        assert!(!time.is_doubtful() && (10..=15).contains(&minutes), "{agents}: {minutes} minutes");
    }
}

#[test]
fn few_agents_decide_nothing_while_as_many_disagree() {
    let (data, clock) = (used(), clock(TODAY + DAY / 2));
    let time = open(&clock, data.path());
    for minute in 0..120 {
        pass(&clock, 60);
        time.witness(3 * minute, clock.now(), true);
        time.witness(3 * minute + 1, clock.now() - DAY / 2, true);
    }
    assert_eq!(time.doubt().unwrap().verdict, None);
}

#[test]
fn an_operator_settles_it() {
    let clock = clock(TODAY);
    let time = JudgingTime::of(clock.clone());
    assert!(!time.trust(Candidate::Clock), "nothing is in doubt");
    clock.set(TODAY - DAY);
    time.now();
    assert!(time.trust(Candidate::Clock));
    assert_eq!((time.now(), time.reached()), (Now::at(TODAY - DAY), TODAY - DAY));
}

#[test]
fn a_start_soon_after_the_mark_is_certain() {
    for gap in [0, 300, TOLERANCE, -TOLERANCE] {
        let time = open(&clock(TODAY + gap), used().path());
        assert_eq!((time.now(), time.jumps()), (Now::at(TODAY + gap), 0), "{gap}");
    }
}

#[test]
fn a_start_in_2036_and_a_start_in_1970_reject_nothing_and_expire_nothing() {
    let ahead = open(&clock(IN_2036), used().path());
    assert_eq!((ahead.now(), ahead.expiry(Some(TODAY))), (Now::between(TODAY, IN_2036), None));
    let behind = open(&clock(0), used().path());
    assert_eq!((behind.now(), behind.expiry(Some(TODAY))), (Now::between(0, LATEST), None));
    let new = open(&clock(0), tempfile::tempdir().unwrap().path());
    assert_eq!(new.now(), Now::between(0, LATEST));
}

#[test]
fn a_start_after_days_without_the_program_is_settled_by_points() {
    let (data, clock) = (used(), clock(TODAY + 3 * DAY));
    let time = open(&clock, data.path());
    assert_eq!(time.now(), Now::between(TODAY, TODAY + 3 * DAY));
    send(&time, &clock, -20, 31);
    assert_eq!(time.now(), Now::at(TODAY + 3 * DAY + 31));
}

#[test]
fn a_clock_that_starts_in_1970_and_is_set_later_is_settled_by_points() {
    let (data, clock) = (used(), clock(0));
    let time = open(&clock, data.path());
    // A day passed while the machine was off: points are from then.
    for _ in 0..40 {
        pass(&clock, 1);
        time.witness(1, TODAY + DAY, false);
    }
    assert_eq!(time.doubt().unwrap().verdict, Some(Candidate::Before));
    clock.set(TODAY + DAY);
    assert_eq!(time.doubt().unwrap().verdict, None);
    send(&time, &clock, -20, 31);
    assert_eq!((time.doubt(), time.jumps()), (None, 2));
}

#[test]
fn how_far_the_store_has_come_does_not_follow_a_wrong_clock() {
    let clock = clock(TODAY);
    let time = JudgingTime::of(clock.clone());
    pass(&clock, 10);
    assert_eq!(time.reached(), TODAY + 10);
    clock.set(IN_2036);
    pass(&clock, 10);
    assert_eq!(time.reached(), TODAY + 20);
    clock.set(0);
    pass(&clock, 10);
    assert_eq!(time.reached(), TODAY + 20);
    assert!(time.trust(Candidate::Clock));
    assert_eq!(time.reached(), 10);
}

#[test]
fn the_mark_survives_a_restart_in_doubt() {
    let (data, first) = (used(), clock(TODAY + 60));
    let time = open(&first, data.path());
    pass(&first, 100);
    time.save().unwrap();
    first.set(IN_2036);
    pass(&first, 100);
    time.save().unwrap();
    let again = open(&clock(IN_2036 + 1000), data.path());
    assert_eq!(again.now(), Now::between(TODAY + 260, IN_2036 + 1000));
}

#[test]
fn a_damaged_mark_is_moved_aside_and_a_newer_one_is_refused() {
    let data = tempfile::tempdir().unwrap();
    let path = data.path().join("clock");
    for kept in ["clock", "clock~1"] {
        std::fs::write(&path, "plumbago clock 1\nreached 12\n").unwrap();
        let time = open(&clock(TODAY), data.path());
        let moved = time.moved_aside().unwrap().to_owned();
        assert_eq!((moved.clone(), time.doubt()), (format!("damaged/{kept}"), None));
        assert_eq!(std::fs::read_to_string(data.path().join(moved)).unwrap(), "plumbago clock 1\nreached 12\n");
        assert!(!path.exists());
    }
    let lines = "plumbago clock 2\n";
    std::fs::write(&path, format!("{lines}crc32 {:08x}\n", crc32fast::hash(lines.as_bytes()))).unwrap();
    let opened = JudgingTime::open(&host(&clock(TODAY)), data.path());
    assert_eq!(opened.unwrap_err().kind(), io::ErrorKind::Unsupported);
    assert!(path.exists());
}

#[test]
fn without_a_mark_the_clock_is_compared_with_the_last_write_to_the_journal() {
    for (what, ahead, is_doubtful) in [
        ("missing", 40 * DAY, true),
        ("damaged", 400 * DAY, true),
        ("not found", 40 * DAY, true),
        ("missing", 60, false),
    ] {
        let data = used();
        let path = data.path().join("clock");
        std::fs::create_dir(data.path().join("journal")).unwrap();
        for (name, age) in [("00000001.journal", 500), ("00000002.journal", 3), ("lock", -50 * DAY)] {
            let file = std::fs::File::create(data.path().join("journal").join(name)).unwrap();
            let written = std::time::UNIX_EPOCH + Duration::from_secs((TODAY - age) as u64);
            file.set_modified(written).unwrap();
        }
        match what {
            "missing" => std::fs::remove_file(&path).unwrap(),
            "damaged" => std::fs::write(&path, "plumbago clock 1\nreached 12\n").unwrap(),
            _ => {}
        }
        let disk = FailingDisk::new(Arc::new(SystemDisk), move |_, path| {
            (what == "not found" && path.ends_with("clock")).then(|| std::io::Error::from_raw_os_error(2))
        });
        let clock = clock(TODAY + ahead);
        let time = JudgingTime::open(&Host { disk: Arc::new(disk), ..host(&clock) }, data.path()).unwrap();
        assert_eq!(time.doubt().is_some(), is_doubtful, "{what}");
        assert_eq!(time.expiry(None).is_none(), is_doubtful, "{what}");
        assert!(time.now().low() <= TODAY + 60, "{what}: {:?}", time.now());
    }
}

#[test]
fn starts_while_the_clock_is_behind_do_not_move_the_mark() {
    for behind in [10, 60, TOLERANCE, DAY] {
        let data = used();
        for _ in 0..3 {
            let clock = clock(TODAY - behind);
            let time = open(&clock, data.path());
            assert_eq!(time.reached(), TODAY + MARK_AGE, "{behind}");
            time.save().unwrap();
            let found = Mark::read(&SystemDisk, &data.path().join("clock")).unwrap();
            assert!(matches!(found, Found::Mark(Mark { reached: TODAY, .. })), "{behind}: {found:?}");
        }
    }
}

#[test]
fn a_mark_that_cannot_be_read_is_moved_aside() {
    let dir = used();
    let disk = FailingDisk::new(Arc::new(SystemDisk), |call, path| {
        (call == Call::Read && path.ends_with("clock")).then(|| std::io::Error::from_raw_os_error(5))
    });
    let clock = clock(TODAY + 60);
    let time = JudgingTime::open(&Host { disk: Arc::new(disk), ..host(&clock) }, dir.path()).unwrap();
    assert!(time.moved_aside().is_some() && time.doubt().is_none());
}

/// Two relays drain queues of points from `oldest` on, each second many batches of a minute of points, while three agents
/// send what they measure now. Returns whether the clock was accused meanwhile.
fn drain_queues(time: &JudgingTime, clock: &ManualClock, oldest: i64, seconds: i64) -> bool {
    let mut is_accused = false;
    for second in 0..seconds {
        pass(clock, 1);
        for relay in [100, 101] {
            (0..50).for_each(|_| time.witness(relay, oldest + 60 * second, true));
        }
        if second % 10 == 0 {
            (0..3).for_each(|agent| time.witness(agent, clock.now() - 3, true));
        }
        is_accused |= time.doubt().is_some_and(|doubt| doubt.verdict == Some(Candidate::Before));
    }
    is_accused
}

#[test]
fn the_queue_of_a_relay_does_not_put_a_clock_in_doubt() {
    let clock = clock(TODAY);
    let time = JudgingTime::of(clock.clone());
    for oldest in [TODAY - 6 * 3600, TODAY - DAY, TODAY - 30 * DAY] {
        assert!(!drain_queues(&time, &clock, oldest, 360));
        assert_eq!((time.now(), time.jumps()), (Now::at(clock.now()), 0));
    }
}

#[test]
fn the_queue_of_a_relay_does_not_accuse_the_clock_after_a_stop_of_hours() {
    for stop in [3 * 3600, 12 * 3600, 3 * DAY] {
        // The queue begins when the program stopped: its points agree with the time before, which goes on from there.
        let (data, clock) = (used(), clock(TODAY + stop));
        let time = open(&clock, data.path());
        assert!(time.doubt().is_some_and(|doubt| doubt.at_start));
        assert!(!drain_queues(&time, &clock, TODAY, 900), "{stop}");
        assert_eq!((time.now(), time.doubt()), (Now::at(clock.now()), None), "{stop}");
    }
}

#[test]
fn a_start_says_when_no_process_ran_until_that_is_noted() {
    let (data, new) = (used(), tempfile::tempdir().unwrap());
    let clock = clock(TODAY + 7);
    assert_eq!(open(&clock, new.path()).absences(), []);
    let time = open(&clock, data.path());
    let first = Absence { from: TODAY, until: TODAY + 7 };
    assert_eq!(time.absences(), [first]);
    pass(&clock, 60);
    // As a clean stop does: a change of policy a second later is of after it.
    time.save().unwrap();
    pass(&clock, 5);
    let time = open(&clock, data.path());
    let second = Absence { from: TODAY + 67, until: TODAY + 72 };
    assert_eq!(time.absences(), [first, second]);
    time.absences_are_noted();
    assert_eq!(time.absences(), [first, second], "for this process nothing changes");
    time.save().unwrap();
    pass(&clock, 1);
    assert_eq!(open(&clock, data.path()).absences(), [Absence { from: TODAY + 72, until: TODAY + 73 }]);
}

#[test]
fn a_start_in_the_second_of_the_stop_or_by_a_clock_behind_it_is_after_an_absence_too() {
    let data = used();
    for now in [TODAY, TODAY - 5] {
        let none = Absence { from: TODAY, until: TODAY };
        assert_eq!(open(&clock(now), data.path()).absences(), [none]);
        assert!(!none.has(TODAY));
    }
}

#[test]
fn an_absence_ends_when_the_process_began_by_the_clock_that_is_right_in_the_end() {
    for wrong in [3 * 3600, -DAY] {
        let (data, clock) = (used(), clock(TODAY + wrong));
        let time = open(&clock, data.path());
        assert_eq!(time.absences(), [Absence { from: TODAY, until: Absence::OPEN }], "{wrong}: not known yet");
        pass(&clock, 100);
        clock.set(TODAY + 60 + 100);
        let first = Absence { from: TODAY, until: TODAY + 60 };
        assert_eq!(time.absences(), [first], "{wrong}");
        // Parts of a second do not move it; a step of the clock does.
        clock.set(TODAY + 60 + 102);
        assert_eq!(time.absences(), [first], "{wrong}");
        clock.set(TODAY + 60 + 100 + 300);
        assert_eq!(time.absences(), [Absence { from: TODAY, until: TODAY + 360 }], "{wrong}");
        time.begins_now();
        assert_eq!(
            time.absences(),
            [Absence { from: TODAY, until: TODAY + 460 }],
            "{wrong}: it follows others from now on"
        );
        time.absences_are_noted();
        clock.set(clock.now() + 300);
        assert_eq!(time.absences()[0].until, TODAY + 460, "{wrong}: what was noted goes by that");
    }
}

#[test]
fn a_process_that_ended_in_doubt_does_not_cut_an_absence() {
    let (data, clock) = (used(), clock(TODAY + 3 * 3600));
    for _ in 0..3 {
        let time = open(&clock, data.path());
        pass(&clock, 1200);
        time.save().unwrap();
        assert!(!time.now().is_certain(), "one that ends in doubt");
        pass(&clock, 3600);
    }
    let time = open(&clock, data.path());
    assert_eq!(time.absences(), [Absence { from: TODAY, until: Absence::OPEN }]);
    assert!(time.trust(Candidate::Clock));
    assert_eq!(time.absences(), [Absence { from: TODAY, until: clock.now() }]);
}
