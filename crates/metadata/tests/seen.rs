//! Metrics are found by the times of their points.

use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
};

use host::{Disk as _, SimulatedDisk};
use metadata::{
    FindLimits, HideStale, Registry, Seen, SeenMark, SeenSpan, StaleRule, TagExpressions, TagListing, UnstoredPoints,
    given_as_saved,
};
use metric::{MetricId, Policy, Timestamp};

const NOW: Timestamp = 1_800_000_000;
const HOUR: Timestamp = 3600;
const DAY: Timestamp = 24 * HOUR;

/// Points in memory, as a test says.
#[derive(Default)]
struct Unstored {
    are_spilled: AtomicBool,
    points: Mutex<Vec<(MetricId, Timestamp)>>,
}

impl UnstoredPoints for Unstored {
    fn are_known(&self) -> bool {
        !self.are_spilled.load(SeqCst)
    }

    fn spans(&self, ids: &[MetricId], each: &mut dyn FnMut(MetricId, Timestamp, Timestamp)) {
        let points = self.points.lock().unwrap();
        points.iter().filter(|(id, _)| ids.contains(id)).for_each(|&(id, time)| each(id, time, time));
    }
}

/// A registry of metrics, and the times of stored points of each.
fn registry(metrics: &[(&str, &[Timestamp])]) -> (Registry, Arc<Unstored>) {
    let (registry, unstored) = (Registry::new(), Arc::new(Unstored::default()));
    registry.seen().move_to(NOW);
    let of_times: Arc<dyn UnstoredPoints> = unstored.clone();
    registry.seen().begin(Arc::downgrade(&of_times));
    let policy = registry.intern(&Policy::default());
    for (name, times) in metrics {
        let id = registry.write().create(registry.hash(name.as_bytes()), name, policy, NOW);
        registry.seen().note(times.iter().map(|&time| (id, time, time)));
    }
    (registry, unstored)
}

fn limits(from: impl Into<Option<Timestamp>>, until: impl Into<Option<Timestamp>>) -> FindLimits {
    FindLimits { times: SeenSpan { from: from.into(), until: until.into() }, ..FindLimits::default() }
}

fn find(registry: &Registry, pattern: &str, limits: &FindLimits) -> String {
    let found = registry.find(pattern, limits).unwrap();
    found.iter().map(|node| node.path).collect::<Vec<_>>().join(" ")
}

const METRICS: [(&str, &[Timestamp]); 6] = [
    ("dead.a", &[NOW - 300 * DAY, NOW - 200 * DAY]),
    ("dead.b.c", &[NOW - 100 * DAY]),
    ("live.a", &[NOW - 300 * DAY, NOW]),
    ("live.new", &[NOW - HOUR]),
    ("none", &[]),
    ("live.old", &[NOW - 5 * HOUR]),
];

#[test]
fn names_and_branches_are_found_where_they_have_points() {
    let (registry, _memory) = registry(&METRICS);
    for is_compact in [false, true] {
        if is_compact {
            registry.compact_fully();
        }
        let check = |pattern: &str, limits: &FindLimits, expected: &str| {
            assert_eq!(find(&registry, pattern, limits), expected, "{pattern}, {:?}, {is_compact}", limits.times);
        };
        check("*", &limits(None, None), "dead live none");
        check("*", &limits(NOW - DAY, NOW), "live");
        check("*", &limits(NOW - 120 * DAY, None), "dead live");
        check("dead.*", &limits(NOW - 120 * DAY, None), "dead.b");
        check("dead.**", &limits(None, NOW - 150 * DAY), "dead.a");
        check("live.*", &limits(NOW - 2 * HOUR, NOW), "live.a live.new");
        check("live.*", &limits(None, NOW - 2 * HOUR), "live.a live.old");
        check("live.*", &limits(NOW + 3 * HOUR, None), "");
        check("dead.a", &limits(NOW, NOW), "");
        check("dead.a", &limits(NOW - 250 * DAY, NOW - 240 * DAY), "dead.a");
    }
    let found = registry.leaves("live.old", &limits(NOW, None)).unwrap();
    assert!(found.is_empty(), "an exact name as well");
    registry.remove(&[MetricId(3)]);
    assert_eq!(find(&registry, "live.*", &limits(NOW - 2 * HOUR, NOW)), "live.a");
}

#[test]
fn points_in_memory_count_and_spilled_points_hide_nothing() {
    let (registry, unstored) = registry(&METRICS);
    unstored.points.lock().unwrap().push((MetricId(4), NOW));
    assert_eq!(find(&registry, "*", &limits(NOW - HOUR, NOW)), "live none");
    assert_eq!(find(&registry, "*", &limits(None, NOW - 3 * HOUR)), "dead live");
    unstored.are_spilled.store(true, SeqCst);
    assert_eq!(find(&registry, "*", &limits(NOW - HOUR, NOW)), "dead live none");
}

#[test]
fn tags_are_those_of_metrics_with_points() {
    let old: &[Timestamp] = &[NOW - 30 * DAY];
    let (registry, _memory) = registry(&[("cpu;host=a;old=1", old), ("cpu;host=b", &[NOW]), ("cpu;host=c", &[NOW])]);
    let now = limits(NOW - HOUR, NOW);
    let expressions = || TagExpressions::read(&["name=cpu"], |_| unreachable!("no pattern")).unwrap();
    let found = registry.tagged(&expressions(), &now).unwrap();
    assert_eq!(found.leaves().map(|(_, name)| name).collect::<Vec<_>>(), ["cpu;host=b", "cpu;host=c"]);
    assert_eq!(registry.count_tagged(&expressions(), &now), Ok(2));
    let tags = |limits: &FindLimits| {
        let tags = registry.list_tags(&TagListing::default(), limits).unwrap();
        tags.into_iter().map(|one| one.tag).collect::<Vec<_>>().join(" ")
    };
    assert_eq!((tags(&now), tags(&limits(None, None))), ("host name".to_owned(), "host name old".to_owned()));
    let asked = TagListing { expressions: Some(expressions()), ..TagListing::default() };
    let values = registry.list_values("host", &asked, &limits(None, NOW - DAY)).unwrap().unwrap();
    assert_eq!(values.into_iter().map(|one| one.value).collect::<Vec<_>>(), ["a"]);
}

/// Rules, and how often a name was compared with one of them.
fn rules(rules: &[(&'static str, Option<u64>)]) -> (Vec<StaleRule>, Arc<AtomicUsize>) {
    let compared = Arc::new(AtomicUsize::new(0));
    let rule = |&(beginning, max_stale): &(&'static str, Option<u64>)| {
        let compared = compared.clone();
        let matches = move |name: &str| {
            compared.fetch_add(1, SeqCst);
            name.starts_with(beginning)
        };
        StaleRule { max_stale, matches: Box::new(matches) }
    };
    (rules.iter().map(rule).collect(), compared)
}

fn fresh(now: Timestamp, unless: SeenSpan) -> FindLimits {
    FindLimits { stale: Some(HideStale { now, unless: [unless].into() }), ..FindLimits::default() }
}

const DAYS: u64 = DAY as u64;

#[test]
fn metrics_without_points_for_longer_than_their_rule_says_are_hidden() {
    let (registry, unstored) = registry(&METRICS);
    let check = |limits: &FindLimits, expected: &str| {
        for is_compact in [false, true] {
            if is_compact {
                registry.compact_fully();
            }
            assert_eq!(find(&registry, "**", limits), expected, "{:?}", limits.stale);
        }
    };
    let now = fresh(NOW, SeenSpan::default());
    let all = "dead dead.a dead.b dead.b.c live live.a live.new live.old none";
    check(&now, all);
    registry.set_stale_rules(rules(&[("dead.b", None), ("dead", Some(14 * DAYS)), ("", Some(2 * 3600))]).0);
    check(&now, "dead dead.b dead.b.c live live.a live.new");
    check(&FindLimits::default(), all);
    // Of a question with times, these count.
    check(&FindLimits { stale: now.stale.clone(), ..limits(None, NOW - 150 * DAY) }, "dead dead.a live live.a");
    let then = SeenSpan { from: Some(NOW - 210 * DAY), until: Some(NOW - 190 * DAY) };
    check(&fresh(NOW, then), "dead dead.a dead.b dead.b.c live live.a live.new");
    unstored.points.lock().unwrap().push((MetricId(4), NOW));
    check(&now, "dead dead.b dead.b.c live live.a live.new none");
    // A clock that is set far ahead hides nothing more than the end of tomorrow does.
    registry.set_stale_rules(rules(&[("", Some(14 * DAYS))]).0);
    check(&fresh(NOW + 4000 * DAY, SeenSpan::default()), "live live.a live.new live.old none");
    registry.set_stale_rules(Vec::new());
    assert!(find(&registry, "*", &now).contains("dead"));
}

#[test]
fn a_name_is_compared_with_rules_once() {
    let (registry, _memory) = registry(&METRICS);
    let (some, compared) = rules(&[("dead", Some(14 * DAYS)), ("live", Some(14 * DAYS))]);
    registry.set_stale_rules(some);
    while registry.compact() {}
    // Two are dead, four are compared with the second rule, too.
    assert_eq!(compared.swap(0, SeqCst), 2 + 2 * 4);
    let now = fresh(NOW, SeenSpan::default());
    for _ in 0..3 {
        assert_eq!(find(&registry, "*", &now), "live none");
    }
    assert_eq!(compared.load(SeqCst), 0, "questions compare no names");
    let policy = registry.intern(&Policy::default());
    registry.write().create(registry.hash(b"dead.z"), "dead.z", policy, NOW);
    assert_eq!((find(&registry, "dead.*", &now), compared.load(SeqCst)), (String::new(), 1));
    registry.remove(&[MetricId(6)]);
    while registry.compact() {}
    assert_eq!(compared.load(SeqCst), 1);
}

#[test]
fn sizes_count_what_is_there() {
    let day_of_minutes = &[NOW - 40 * DAY, NOW - 39 * DAY][..];
    let (registry, _) =
        registry(&[("old.a", day_of_minutes), ("live.a", &[NOW - HOUR, NOW]), ("gone.a", &[NOW - 200 * DAY])]);
    let policy = registry.intern(&Policy { retention: "129600*60s".parse().unwrap(), ..Policy::default() });
    (0..3).for_each(|id| registry.set_policy(MetricId(id), policy, NOW));
    let by = metadata::GroupBy::Branch { below: String::new(), depth: 1 };
    let counted = registry.cardinality(&by, NOW - DAY, NOW, &FindLimits::default()).unwrap();
    let slots = |branch: &str| counted.groups.iter().find(|(name, _)| name == branch).unwrap().1.slots;
    // Two days, and an hour before now until now; what is older than 90 days is kept no more.
    assert_eq!(slots("old"), 2 * 1440 + 1);
    assert!((61..=121).contains(&slots("live")), "{}", slots("live"));
    assert_eq!((slots("gone"), counted.all.slots), (0, slots("old") + slots("live")));
}

#[test]
fn a_file_of_times_counts_for_the_store_that_it_is_of_and_not_for_a_later_one() {
    let (first, _memory) = registry(&METRICS);
    let (disk, folder) = (SimulatedDisk::new(), Path::new("/data"));
    disk.create_dir_all(folder).unwrap();
    let path = folder.join("seen");
    let mark = SeenMark { store: 7, opening: 8, stored_below: 5 };
    first.seen().save(&disk, &path, mark, MetricId(9)).unwrap();
    let read = |mark: SeenMark| {
        let (second, _of_second) = registry(&METRICS.map(|(name, _)| (name, &[][..])));
        let read: Result<(), String> = Seen::read(second.seen(), &disk, &path, mark);
        read.map(|()| find(&second, "*", &limits(NOW - DAY, NOW)))
    };
    assert_eq!(read(mark), Ok("live".to_owned()));
    assert_eq!(read(SeenMark { stored_below: 4, ..mark }), Ok("live".to_owned()), "the file came first");
    for other in [SeenMark { stored_below: 6, ..mark }, SeenMark { opening: 9, ..mark }, SeenMark { store: 6, ..mark }]
    {
        read(other).unwrap_err();
    }
    for byte in [0, 9, 20, 60, 100] {
        first.seen().save(&disk, &path, mark, MetricId(9)).unwrap();
        disk.rot(&path, |bytes| bytes[byte] ^= 4).unwrap();
        assert_eq!(read(mark), Err("it is damaged".to_owned()), "{byte}");
        assert_eq!(given_as_saved(&disk, &path, 7), MetricId(0), "{byte}");
    }
}

#[test]
fn ids_that_were_given_once_stay_given_whatever_the_age_of_the_file() {
    let (registry, _memory) = registry(&METRICS);
    let (disk, folder) = (SimulatedDisk::new(), Path::new("/data"));
    disk.create_dir_all(folder).unwrap();
    let path = folder.join("seen");
    assert_eq!(given_as_saved(&disk, &path, 7), MetricId(0), "without a file");
    let mark = SeenMark { store: 7, opening: 8, stored_below: 5 };
    registry.seen().save(&disk, &path, mark, MetricId(9)).unwrap();
    assert_eq!((given_as_saved(&disk, &path, 7), given_as_saved(&disk, &path, 6)), (MetricId(9), MetricId(0)));
    // A file of version 1 lacks these four bytes, and tells by its times.
    let mut bytes = Vec::new();
    disk.open(&path, host::Open::Read).unwrap().read_to_end(&mut bytes).unwrap();
    bytes.truncate(bytes.len() - 4);
    bytes[8] = 1;
    bytes.drain(44..48);
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    host::replace_file(&disk, &path, &bytes).unwrap();
    let highest = METRICS.iter().rposition(|(_, times)| !times.is_empty()).unwrap() as u32;
    assert_eq!(given_as_saved(&disk, &path, 7), MetricId(highest + 1));
    registry.seen().read(&disk, &path, mark).unwrap();
}

#[test]
fn metrics_of_unknown_times_are_found_until_the_newest_time_of_the_store() {
    let (registry, _memory) = registry(&METRICS);
    registry.seen().note_unknown([MetricId(4)].into_iter(), Some(NOW - 10 * DAY));
    assert_eq!(find(&registry, "*", &limits(NOW - 20 * DAY, NOW - 12 * DAY)), "live none");
    assert_eq!(find(&registry, "*", &limits(NOW - DAY, NOW)), "live");
    registry.seen().note_unknown([MetricId(4)].into_iter(), None);
    assert_eq!(find(&registry, "*", &limits(NOW + 900 * DAY, None)), "none");
}

#[test]
fn a_metric_takes_little_more_than_two_bytes() {
    let (registry, _memory) = registry(&[]);
    registry.seen().note((0..1_000_000).map(|id| (MetricId(id), NOW, NOW)));
    assert!(registry.seen().memory_bytes() < 2_060_000, "{}", registry.seen().memory_bytes());
}
