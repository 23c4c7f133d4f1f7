//! Saving, opening and restoring: what was known is known again, and a damaged file says so.

use metadata::{FindLimits, OpenError, PolicySpan, Registry, Restored, SavedNames};
use metric::{Aggregation, MetricId, Policy};
use store::{MetricRecord, NamesMark, PolicyChange};

fn policy(retention: &str, aggregation: Aggregation) -> Policy {
    Policy { retention: retention.parse().unwrap(), aggregation, x_files_factor: 0.25, ..Policy::default() }
}

fn record(id: u32, name: &str, policies: &[(i64, &Policy)]) -> MetricRecord {
    let policies = policies.iter().map(|&(since, policy)| PolicyChange { since, policy: policy.clone() }).collect();
    MetricRecord { id: MetricId(id), name: name.to_owned(), created_on: 1000 + i64::from(id), policies }
}

fn some_records() -> Vec<MetricRecord> {
    let (minutes, hours) = (policy("1440*60s:720*3600s", Aggregation::Max), policy("720*3600s", Aggregation::AbsMin));
    let list = minutes.clone().with_methods("max,average,min".parse().unwrap());
    vec![
        record(0, "a.b", &[(0, &minutes)]),
        record(1, "a.c", &[(0, &minutes), (1_700_000_000, &hours), (1_700_000_100, &list)]),
        record(2, "é.d", &[(0, &hours)]),
        record(3, "n;t=v", &[(0, &hours)]),
        // An id that is missing stays missing.
        record(5, "a.b.c", &[(0, &Policy::default())]),
    ]
}

fn check_is_whole(registry: &Registry) {
    let ids: Vec<MetricId> = (0..10).map(MetricId).collect();
    assert_eq!(registry.records(&ids), some_records());
    assert_eq!(registry.len(), 5);
    let leaves = registry.leaves("**", &FindLimits::default()).unwrap();
    let leaves: Vec<(MetricId, &str)> = leaves.leaves().collect();
    assert_eq!(leaves, [(MetricId(0), "a.b"), (MetricId(5), "a.b.c"), (MetricId(1), "a.c"), (MetricId(2), "é.d")]);
    let names = registry.read();
    for record in some_records() {
        let hash = registry.hash(record.name.as_bytes());
        assert_eq!(names.find(hash, record.name.as_bytes()), Some(record.id));
        assert_eq!(names.created_on(record.id), record.created_on);
    }
    assert_eq!(names.find(registry.hash(b""), b""), None);
    assert_eq!(names.name(MetricId(4)), "");
    assert_eq!(names.end(), MetricId(6));
}

#[test]
fn records_are_restored_in_any_order_and_any_number_of_times() {
    let registry = Registry::new();
    let mut records = some_records();
    records.reverse();
    for record in records.clone() {
        registry.restore(vec![record]);
    }
    check_is_whole(&registry);
    assert_eq!(registry.restore(records), Restored { added: 0, known: 5, conflicts: 0 });
    check_is_whole(&registry);
    assert_eq!(registry.records(&[MetricId(4), MetricId(6), MetricId::NONE]), []);
}

#[test]
fn a_new_metric_gets_the_id_after_the_highest() {
    let registry = Registry::new();
    registry.restore(some_records());
    let id = registry.intern(&Policy::default());
    let create = |name: &str| registry.write().create(registry.hash(name.as_bytes()), name, id, 7);
    assert_eq!(create("new"), MetricId(6));
    assert_eq!(create("new"), MetricId(6));
    assert_eq!(create("a.c"), MetricId(1));
}

#[test]
fn records_that_contradict_what_is_known_are_left_out_and_counted() {
    let registry = Registry::new();
    registry.restore(some_records());
    let default = Policy::default();
    let conflicts = vec![
        record(0, "another", &[(0, &default)]),
        record(9, "a.b", &[(0, &default)]),
        record(10, &"x".repeat(5000), &[(0, &default)]),
        record(11, "x", &[]),
        record(u32::MAX, "y", &[(0, &default)]),
    ];
    assert_eq!(registry.restore(conflicts), Restored { added: 0, known: 0, conflicts: 5 });
    check_is_whole(&registry);
}

#[test]
fn a_saved_registry_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("names");
    let registry = Registry::new();
    registry.restore(some_records());
    registry.save(&host::SystemDisk, &file, None).unwrap();
    check_is_whole(&Registry::open(&host::SystemDisk, &file).unwrap().registry);
    registry.compact_fully();
    registry.save(&host::SystemDisk, &file, None).unwrap();
    let opened = Registry::open(&host::SystemDisk, &file).unwrap().registry;
    check_is_whole(&opened);
    assert_eq!(opened.index_statistics(), registry.index_statistics());
    // What came after the save is put on top, in any order and again.
    let default = Policy::default();
    let later =
        vec![record(7, "z", &[(0, &default)]), record(0, "a.b", &[(0, &default)]), record(6, "y", &[(0, &default)])];
    assert_eq!(opened.restore(later.clone()), Restored { added: 2, known: 1, conflicts: 0 });
    assert_eq!(opened.restore(later), Restored { added: 0, known: 3, conflicts: 0 });
    let names = |pattern: &str| opened.leaves(pattern, &FindLimits::default()).unwrap().len();
    assert_eq!((names("?"), names("a.*")), (2, 2));
    let files = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let files: std::collections::BTreeSet<_> = files.collect();
    assert_eq!(files, ["names", "tags"].map(Into::into).into(), "nothing unfinished is left");
}

#[test]
fn many_names_are_opened_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("names");
    let registry = Registry::new();
    let id = registry.intern(&Policy::default());
    // Several chunks of names, some in a segment and some in the tail.
    for i in 0..60_000 {
        let name = format!("some.long.name.that.fills.chunks.{}.{i}", i % 100);
        registry.write().create(registry.hash(name.as_bytes()), &name, id, 1);
        if i == 50_000 {
            registry.compact_fully();
        }
    }
    registry.save(&host::SystemDisk, &file, None).unwrap();
    let opened = Registry::open(&host::SystemDisk, &file).unwrap().registry;
    let ids: Vec<MetricId> = (0..60_001).map(MetricId).collect();
    assert_eq!(opened.records(&ids), registry.records(&ids));
    let find = |registry: &Registry| registry.find("some.*.name.**", &FindLimits::default()).unwrap();
    assert_eq!(find(&opened), find(&registry));
    assert_eq!(opened.index_statistics(), registry.index_statistics());
}

#[test]
fn a_torn_or_altered_file_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("names");
    assert!(matches!(Registry::open(&host::SystemDisk, &file), Err(OpenError::Io(_))));
    let registry = Registry::new();
    registry.restore(some_records());
    registry.compact_fully();
    registry.save(&host::SystemDisk, &file, None).unwrap();
    let whole = std::fs::read(&file).unwrap();
    for length in 0..whole.len() {
        std::fs::write(&file, &whole[..length]).unwrap();
        assert!(matches!(Registry::open(&host::SystemDisk, &file), Err(OpenError::Damaged(_))), "cut at {length}");
    }
    for at in 0..whole.len() {
        let mut altered = whole.clone();
        altered[at] ^= 0x10;
        std::fs::write(&file, &altered).unwrap();
        assert!(Registry::open(&host::SystemDisk, &file).is_err(), "altered at {at}");
    }
    let mut newer = whole.clone();
    newer[8] += 1;
    std::fs::write(&file, &newer).unwrap();
    assert!(matches!(Registry::open(&host::SystemDisk, &file), Err(OpenError::Version { found: 4, expected: 3 })));
    // As it was written until metrics could be removed: without the next id.
    let mut older = [&whole[..8], &1u32.to_le_bytes(), &whole[56..whole.len() - 4]].concat();
    older.extend(crc32fast::hash(&older).to_le_bytes());
    std::fs::write(&file, &older).unwrap();
    check_is_whole(&Registry::open(&host::SystemDisk, &file).unwrap().registry);
    // And until it had a mark.
    let mut older = [&whole[..8], &2u32.to_le_bytes(), &whole[52..whole.len() - 4]].concat();
    older.extend(crc32fast::hash(&older).to_le_bytes());
    std::fs::write(&file, &older).unwrap();
    let SavedNames { registry: opened, mark, .. } = Registry::open(&host::SystemDisk, &file).unwrap();
    assert_eq!(mark, None);
    check_is_whole(&opened);
    let mark = NamesMark { store: 7 << 100, opening: 8, end: (9, 10) };
    registry.save(&host::SystemDisk, &file, Some(mark)).unwrap();
    assert_eq!(Registry::open(&host::SystemDisk, &file).unwrap().mark, Some(mark));
    std::fs::write(&file, &whole).unwrap();
    check_is_whole(&Registry::open(&host::SystemDisk, &file).unwrap().registry);
}

/// A forged file can have a right checksum. Opening it may fail or not, but nothing panics.
#[test]
fn a_forged_file_does_not_panic() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("names");
    let registry = Registry::new();
    registry.restore(some_records());
    registry.save(&host::SystemDisk, &file, None).unwrap();
    let whole = std::fs::read(&file).unwrap();
    for at in 12..whole.len() - 4 {
        for value in [0, 1, 0x7f, 0xff] {
            let mut forged = whole.clone();
            forged[at] = value;
            let body = forged.len() - 4;
            let crc = crc32fast::hash(&forged[..body]);
            forged[body..].copy_from_slice(&crc.to_le_bytes());
            std::fs::write(&file, &forged).unwrap();
            if let Ok(registry) = Registry::open(&host::SystemDisk, &file) {
                let _ = registry.registry.find("**", &FindLimits::default());
                let _ = registry.registry.records(&[0, 1, 2, 3, 4, 5].map(MetricId));
            }
        }
    }
}

#[test]
fn a_change_of_policy_keeps_the_ones_before_as_long_as_they_have_data() {
    let registry = Registry::new();
    let hour = registry.intern(&policy("60*60s", Aggregation::Max));
    let day = registry.intern(&policy("1440*60s", Aggregation::Max));
    assert_eq!(registry.intern(&policy("60*60s", Aggregation::Max)), hour);
    assert_eq!(registry.policy(day).retention.to_string(), "1440*60s");
    let id = registry.write().create(registry.hash(b"a"), "a", hour, 1);
    let history = || registry.policies(id).unwrap().to_vec();
    let span = |since, policy| PolicySpan { since, policy };
    assert_eq!(history(), [span(0, hour)]);
    registry.set_policy(id, hour, 500);
    assert_eq!(history(), [span(0, hour)]);
    registry.set_policy(id, day, 10_000);
    assert_eq!(history(), [span(0, hour), span(10_000, day)]);
    assert_eq!(registry.policies(id).unwrap().current(), day);
    assert_eq!(registry.read().policy_id(id), day);
    // Changed back in the same second: points may have come in between, and the journal must tell the changes apart.
    registry.set_policy(id, hour, 10_000);
    registry.set_policy(id, day, 10_000);
    assert_eq!(history(), [span(0, hour), span(10_000, day), span(10_001, hour), span(10_002, day)]);
    let id = registry.write().create(registry.hash(b"b"), "b", hour, 1);
    let history = || registry.policies(id).unwrap().to_vec();
    registry.set_policy(id, day, 20_000);
    registry.set_policy(id, hour, 20_000 + 3600);
    assert_eq!(history(), [span(0, hour), span(20_000, day), span(23_600, hour)]);
    // What the first kept for an hour has passed.
    registry.set_policy(id, day, 23_601);
    assert_eq!(history(), [span(0, day), span(23_600, hour), span(23_601, day)]);
    // A clock that goes back does not put them out of order.
    registry.set_policy(id, hour, 23_000);
    assert!(history().windows(2).all(|pair| pair[0].since < pair[1].since));
    assert_eq!(registry.policies(id).unwrap().current(), hour);
    assert_eq!(registry.policies(MetricId(99)), None);
    for i in 0..100 {
        registry.set_policy(id, if i % 2 == 0 { day } else { hour }, 24_000 + i);
    }
    assert_eq!(history().len(), 32);
    let records = registry.records(&[id]);
    let restored = Registry::new();
    restored.restore(records.clone());
    assert_eq!(restored.records(&[id]), records);
}

#[test]
fn a_change_of_many_metrics_takes_little_memory() {
    let registry = Registry::new();
    let old = registry.intern(&Policy::default());
    let new = registry.intern(&policy("60*60s", Aggregation::Max));
    for i in 0..10_000u32 {
        let name = format!("m.{i}");
        registry.write().create(registry.hash(name.as_bytes()), &name, old, 1);
    }
    let before = registry.memory_bytes();
    for i in 0..10_000 {
        registry.set_policy(MetricId(i), new, 1_000_000 + i64::from(i / 5000));
    }
    let each = (registry.memory_bytes() - before) / 10_000;
    assert!(each < 64, "{each} bytes");
    assert_eq!(registry.policies(MetricId(9999)).unwrap().to_vec()[1], PolicySpan { since: 1_000_001, policy: new });
}

/// A hash is a hint. Names are compared, so that names with equal hashes stay apart.
#[test]
fn names_with_the_same_hash_stay_apart() {
    let registry = Registry::new();
    let id = registry.intern(&Policy::default());
    let names: Vec<String> = (0..100).map(|i| format!("n{i}")).collect();
    let mut guard = registry.write();
    for (i, name) in names.iter().enumerate() {
        assert_eq!(guard.create(42, name, id, 1).index(), i);
    }
    for (i, name) in names.iter().enumerate() {
        assert_eq!(guard.find(42, name.as_bytes()), Some(MetricId(i as u32)));
    }
    assert_eq!(guard.find(42, b"n100"), None);
    assert_eq!(guard.find(43, b"n1"), None);
}

/// One thread holds names and reads a policy while another changes policies: neither stops.
#[test]
fn policies_can_be_read_while_names_are_locked() {
    let registry = Registry::new();
    let ids = [60, 120].map(|n| registry.intern(&policy(&format!("{n}*60s"), Aggregation::Max)));
    registry.write().create(registry.hash(b"a"), "a", ids[0], 1);
    std::thread::scope(|scope| {
        scope.spawn(|| (0..20_000).for_each(|i| registry.set_policy(MetricId(0), ids[i % 2], 5)));
        scope.spawn(|| (0..20_000).for_each(|_| drop(registry.policies(MetricId(0)))));
        for _ in 0..20_000 {
            let names = registry.read();
            assert!(registry.policy(names.policy_id(MetricId(0))).retention.finest().points() >= 60);
            let _names = names;
            registry.intern(&Policy::default());
        }
    });
}

#[test]
fn nothing_is_saved_while_ids_are_reserved() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("names");
    let registry = Registry::new();
    registry.restore(some_records());
    registry.save(&host::SystemDisk, &path, None).unwrap();
    let reserved = registry.reserve(vec!["x.y"], |name| name, |_, _| ());
    registry.save(&host::SystemDisk, &path, None).unwrap();
    assert!(!path.exists() && !path.with_file_name("tags").exists());
    let records: Vec<MetricRecord> =
        reserved.iter().map(|(id, name)| record(id.0, name, &[(0, &Policy::default())])).collect();
    registry.adopt(&records, |_, _| {});
    registry.save(&host::SystemDisk, &path, None).unwrap();
    assert_eq!(Registry::open(&host::SystemDisk, &path).unwrap().registry.records(&[MetricId(6)]), records);
}

#[test]
fn removed_metrics_stay_removed_and_their_ids_are_not_given_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("names");
    let registry = Registry::new();
    registry.restore(some_records());
    registry.compact_fully();
    // One with a history, a tagged one, the one with the highest id.
    assert_eq!(registry.remove(&[MetricId(1), MetricId(3), MetricId(5), MetricId(99)]), 3);
    registry.save(&host::SystemDisk, &file, None).unwrap();
    let opened = Registry::open(&host::SystemDisk, &file).unwrap().registry;
    for registry in [registry, opened] {
        let paths = |pattern: &str| {
            let found = registry.find(pattern, &FindLimits::default()).unwrap();
            found.iter().map(|node| (node.path.to_owned(), node.is_branch)).collect::<Vec<_>>()
        };
        assert_eq!(paths("a.*"), [("a.b".to_owned(), false)]);
        assert_eq!((paths("n;t=v"), registry.policies(MetricId(1))), (vec![], None));
        let policy = registry.intern(&Policy::default());
        let again = registry.write().create(registry.hash(b"a.c"), "a.c", policy, 7);
        assert_eq!(again, MetricId(6));
        assert_eq!(registry.policies(again).unwrap().len(), 1);
        assert_eq!(registry.len(), 3);
        registry.compact_fully();
        assert_eq!(paths("a.*"), [("a.b".to_owned(), false), ("a.c".to_owned(), false)]);
    }
}
