//! Counts of metrics: their bound, and their end with their caller.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use metadata::{FindError, FindLimits, GroupBy, Registry};
use metric::Policy;

fn registry(names: impl Iterator<Item = String>) -> Registry {
    let registry = Registry::new();
    let policy = registry.intern(&Policy::default());
    for name in names {
        registry.write().create(registry.hash(name.as_bytes()), &name, policy, 0);
    }
    registry
}

fn count(registry: &Registry, limits: &FindLimits) -> Result<metadata::Cardinality, FindError> {
    let by = GroupBy::Branch { below: String::new(), depth: 1 };
    registry.cardinality(&by, 0, 0, limits)
}

#[test]
fn groups_beyond_the_first_hundred_thousand_are_counted_together() {
    let names = (0..100_100).flat_map(|i| [format!("b{i}.x"), format!("b{i}.y")]);
    let counted = count(&registry(names), &FindLimits::default()).unwrap();
    assert_eq!((counted.groups.len(), counted.others.metrics), (100_000, 200));
    assert_eq!((counted.counted.metrics, counted.all.metrics), (200_200, 200_200));
    assert!(counted.groups.iter().all(|(_, of)| of.metrics == 2));
}

#[test]
fn a_count_ends_with_its_caller() {
    let registry = registry((0..10_000).map(|i| format!("b{i}")));
    let cancelled = Arc::new(AtomicBool::new(false));
    let limits = FindLimits { cancelled: Some(cancelled.clone()), ..FindLimits::default() };
    assert_eq!(count(&registry, &limits).unwrap().groups.len(), 10_000);
    cancelled.store(true, SeqCst);
    assert_eq!(count(&registry, &limits), Err(FindError::Cancelled));
}
