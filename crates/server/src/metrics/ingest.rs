//! What ingestion counts, as metric families. Names and helps are in the table of `ingest`.

use ingest::{CounterValue, CountersSnapshot};
use prometheus::proto::{MetricFamily, MetricType};

use super::families::{counter, gauge, histogram, labelled};

/// One family a counter.
pub(super) fn ingest_families(counts: &CountersSnapshot) -> Vec<MetricFamily> {
    let family = |row: ingest::Counter| match row.value {
        CounterValue::Total(value) => counter(row.name, row.help, value),
        CounterValue::Now(value) => gauge(row.name, row.help, value),
        CounterValue::ByLabel(label, values) => labelled(row.name, row.help, MetricType::COUNTER, label, values),
        CounterValue::Durations(durations) => histogram(row.name, row.help, &durations),
    };
    counts.counters().into_iter().map(family).collect()
}
