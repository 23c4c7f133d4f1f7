use std::sync::Arc;

use host::{Host, SystemDisk};
use metric::Aggregation;
use store::{DamageLog, PolicyChange};

use super::*;
use crate::damage::Reporter;

fn open(data: &Path) -> Names {
    let host = Host { disk: Arc::new(SystemDisk), ..Host::system() };
    let reporter = Reporter::new(&host, &DamageLog::new(), data);
    let dir = data.join("names");
    Names::open(LogFolder { dir, table: *b"name", what: "names record", store: 7, reporter, host }).unwrap()
}

fn record(id: u32, since: i64) -> MetricRecord {
    let policy = Policy { aggregation: Aggregation::ALL[since as usize % 8], ..Policy::default() };
    let policies = vec![PolicyChange { since, policy }];
    MetricRecord { id: MetricId(id), name: format!("m{id}.{}", "x".repeat(100)), created_on: 5, policies }
}

fn scan(names: &Names) -> Vec<MetricRecord> {
    let mut found = Vec::new();
    names.scan(&mut |records| found.extend(records));
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
