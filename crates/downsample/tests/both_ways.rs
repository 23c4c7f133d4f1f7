//! A writer that extends its partials and one that derives from stored slots write the same rows, bit for bit.

use std::collections::BTreeMap;

use downsample::{Coverage, DerivedRow, Need, PendingPoints, SortedPoints, Stored, WritePlan, WriterPartials};
use host::{Random, SeededRandom};
use metric::{Aggregation, Partial, Policy, Retention, Slot};

/// Of each stage, what is stored.
type Store = Vec<BTreeMap<Slot, Partial>>;

fn coverage(all_writers: Stored, now: i64) -> Coverage {
    Coverage {
        all_writers,
        this_writer: Stored::Unknown,
        now,
        policy_since: 0,
        is_alone: false,
        points_since: i64::MAX,
        rows_alone_until: i64::MIN,
    }
}

fn put(store: &mut Store, rows: &[DerivedRow]) {
    for row in rows {
        for (i, &value) in row.values.iter().enumerate().filter(|(_, value)| !value.is_nan()) {
            let count = row.counts.get(i).copied().unwrap_or(1);
            store[row.stage].insert(row.first_slot + i as u32, Partial { value, count });
        }
    }
}

fn fetch(store: &Store, plan: &WritePlan<'_>) -> Vec<(Vec<f64>, Vec<u32>)> {
    let cells = |need: &Need| {
        let stored = |slot| store[need.stage].get(&slot).copied().unwrap_or(Partial::NONE);
        need.slots.clone().map(|slot| (stored(slot).value, stored(slot).count)).unzip()
    };
    plan.needs().map(cells).collect()
}

/// Every stage from stage 0, folded in order, child by child.
fn naive(policy: &Policy, points: &BTreeMap<Slot, Partial>) -> Store {
    let mut stages = vec![points.clone()];
    for pair in policy.retention.stages().windows(2) {
        let ratio = pair[1].resolution() / pair[0].resolution();
        let mut coarse = BTreeMap::new();
        for (slot, &partial) in stages.last().unwrap() {
            let all = coarse.entry(slot / ratio).or_insert(Partial::NONE);
            *all = policy.aggregation.merge(*all, partial);
        }
        stages.push(coarse);
    }
    stages
}

#[test]
fn both_ways_to_a_slot_give_the_same_bits() {
    let random = SeededRandom::new(SeededRandom::test_seed(20_261_121));
    let below = |n: u64| random.below(n);
    let (mut extended, mut derived) = (0, 0);
    for method in Aggregation::ALL {
        let retention: Retention = "2000*1s:700*7s:400*21s:300*84s".parse().unwrap();
        let policy = Policy { retention, aggregation: method, x_files_factor: 0.0, ..Policy::default() };
        let mut own = Some(WriterPartials::nothing(policy.coarse_tables()));
        let mut store: Store = vec![BTreeMap::new(); 4];
        let mut points = BTreeMap::new();
        let mut next: Slot = 3;
        for flush in 0..120 {
            let mut open = PendingPoints::default();
            for _ in 0..below(40) {
                next += 1 + (below(10) == 0) as u32 * below(60) as u32;
                let late = below(150) == 0;
                let slot = if late { below(u64::from(next)) as u32 } else { next };
                let value = (below(2000) as f64 - 1000.0) * 0.1;
                open.push(slot, value);
                points.insert(slot, Partial::point(value));
            }
            if below(12) == 0 {
                own = None;
            }
            let pending = SortedPoints::of(&[&open]);
            if pending.is_empty() {
                continue;
            }
            let rows = match own.as_mut().filter(|own| own.precedes(&pending)) {
                Some(own) => {
                    extended += 1;
                    own.extend(&policy, &pending)
                }
                None => {
                    derived += 1;
                    let all_writers = own.as_ref().map_or(Stored::Unknown, WriterPartials::stored);
                    let plan = WritePlan::new(&policy, &pending, coverage(all_writers, 1500), own.as_ref());
                    let cells = fetch(&store, &plan);
                    let cells: Vec<_> = cells.iter().map(|(values, counts)| (&values[..], &counts[..])).collect();
                    let derived = plan.derive(&cells);
                    own = derived.next.map(|next| next.as_derived().clone());
                    derived.rows
                }
            };
            put(&mut store, &rows);
            if let Some(own) = &own {
                assert_eq!(own.stored().end(), points.last_key_value().map(|(slot, _)| slot + 1));
            }
            for (k, (is, want)) in store.iter().zip(naive(&policy, &points)).enumerate() {
                let bits = |(slot, partial): (&Slot, &Partial)| (*slot, partial.value.to_bits(), partial.count);
                let (is, want): (Vec<_>, Vec<_>) = (is.iter().map(bits).collect(), want.iter().map(bits).collect());
                assert_eq!(is, want, "{method}, stage {k}, flush {flush}");
            }
        }
    }
    assert!(extended > 100 && derived > 100, "{extended} flushes extended, {derived} derived");
}

#[test]
fn counts_of_other_writers_are_left_out_of_this_writers_partials() {
    let policy = Policy {
        retention: "60*60s:48*3600s:60*86400s".parse().unwrap(),
        aggregation: Aggregation::Sum,
        x_files_factor: 0.0,
        ..Policy::default()
    };
    let mut open = PendingPoints::default();
    (58..63).for_each(|slot| _ = open.push(slot, 1.0));
    let pending = SortedPoints::of(&[&open]);
    let plan = WritePlan::new(&policy, &pending, coverage(Stored::Unknown, 63 * 60), None);
    // Another writer stored minutes 57 and 60.
    let cells = |need: &Need| -> (Vec<f64>, Vec<u32>) {
        let one = |slot| match (need.stage, slot) {
            (0, 57 | 60) | (1, 0 | 1) => (1.0, 1),
            (2, 0) => (2.0, 2),
            _ => (f64::NAN, 0),
        };
        need.slots.clone().map(one).unzip()
    };
    let cells: Vec<_> = plan.needs().map(cells).collect();
    let cells: Vec<_> = cells.iter().map(|(values, counts)| (&values[..], &counts[..])).collect();
    let derived = plan.derive(&cells);
    let next = derived.next.expect("nothing is stored after these");
    assert_eq!(next.open_slots(&policy.retention).collect::<Vec<_>>(), [(1, 1), (2, 0)]);
    assert_eq!(
        next.as_derived().rows(Aggregation::Sum),
        [3.0, 6.0].map(|value| Partial { value, count: value as u32 })
    );
    let own = next.with_rows([(2.0, 2), (4.0, 4)].map(|(value, count)| Partial { value, count }).into_iter());
    let own = own.expect("both rows have closed children");
    assert_eq!(
        (own.stored().end(), own.closed()[0], own.closed()[1]),
        (Some(63), Partial { value: 2.0, count: 2 }, Partial { value: 2.0, count: 2 })
    );
}

#[test]
fn a_point_in_the_last_slot_of_all_is_derived() {
    let policy = Policy {
        retention: "3600*1s:40000000*60s".parse().unwrap(),
        aggregation: Aggregation::Sum,
        x_files_factor: 0.0,
        ..Policy::default()
    };
    let mut open = PendingPoints::default();
    open.push(Slot::MAX, 1.0);
    let points = SortedPoints::of(&[&open]);
    let plan = WritePlan::new(&policy, &points, coverage(Stored::Unknown, 0), None);
    let nothing: Vec<(&[f64], &[u32])> = plan.needs().map(|_| (&[][..], &[][..])).collect();
    let derived = plan.derive(&nothing);
    assert_eq!((derived.rows[0].first_slot, &derived.rows[0].values[..]), (Slot::MAX, &[1.0][..]));
    let next = derived.next.expect("nothing is stored after this point");
    let partials = next.as_derived();
    assert_eq!((partials.stored().end(), partials.precedes(&points)), (None, false));
}
