//! Metric families made from plain numbers.

use ingest::Histogram;
use prometheus::proto::{Bucket, Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};

/// 1 for true, as Prometheus writes flags.
pub(super) fn flag(set: bool) -> f64 {
    f64::from(u8::from(set))
}

fn family(name: &str, help: &str, kind: MetricType, metrics: Vec<Metric>) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(name.to_owned());
    family.set_help(help.to_owned());
    family.set_field_type(kind);
    family.set_metric(metrics);
    family
}

fn value_of(kind: MetricType, value: f64) -> Metric {
    let mut metric = Metric::default();
    if kind == MetricType::COUNTER {
        let mut counter = Counter::default();
        counter.set_value(value);
        metric.set_counter(counter);
    } else {
        let mut gauge = Gauge::default();
        gauge.set_value(value);
        metric.set_gauge(gauge);
    }
    metric
}

pub(super) fn counter(name: &str, help: &str, value: f64) -> MetricFamily {
    family(name, help, MetricType::COUNTER, vec![value_of(MetricType::COUNTER, value)])
}

pub(super) fn gauge(name: &str, help: &str, value: f64) -> MetricFamily {
    family(name, help, MetricType::GAUGE, vec![value_of(MetricType::GAUGE, value)])
}

pub(super) fn labelled(
    name: &str,
    help: &str,
    kind: MetricType,
    label: &str,
    values: Vec<(&str, f64)>,
) -> MetricFamily {
    by_labels(name, help, kind, [label], values.into_iter().map(|(labelled, value)| ([labelled], value)))
}

pub(super) fn labelled_twice(
    name: &str,
    help: &str,
    kind: MetricType,
    labels: [&str; 2],
    values: Vec<([&str; 2], f64)>,
) -> MetricFamily {
    by_labels(name, help, kind, labels, values.into_iter())
}

fn by_labels<'a, const N: usize>(
    name: &str,
    help: &str,
    kind: MetricType,
    labels: [&str; N],
    values: impl Iterator<Item = ([&'a str; N], f64)>,
) -> MetricFamily {
    let metric = |(labelled, value): ([&str; N], f64)| {
        let pairs = labels.iter().zip(labelled).map(|(label, labelled)| {
            let mut pair = LabelPair::default();
            pair.set_name((*label).to_owned());
            pair.set_value(labelled.to_owned());
            pair
        });
        let mut metric = value_of(kind, value);
        metric.set_label(pairs.collect());
        metric
    };
    family(name, help, kind, values.map(metric).collect())
}

pub(super) fn histogram(name: &str, help: &str, durations: &Histogram) -> MetricFamily {
    let buckets = Histogram::BOUNDS.iter().zip(durations.cumulative).map(|(&bound, count)| {
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(bound);
        bucket.set_cumulative_count(count);
        bucket
    });
    let mut histogram = prometheus::proto::Histogram::default();
    histogram.set_bucket(buckets.collect());
    histogram.set_sample_count(durations.count);
    histogram.set_sample_sum(durations.seconds);
    let mut metric = Metric::default();
    metric.set_histogram(histogram);
    family(name, help, MetricType::HISTOGRAM, vec![metric])
}
