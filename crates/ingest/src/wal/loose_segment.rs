//! A file in the journal's format that is not a part of the journal: points that were set aside, with their names and
//! policies. Copied into the journal's folder before a start, it is replayed.

use host::Now;
use metric::{MetricId, Policy, Timestamp};

use super::record::{MetricsWriter, ResolvedPoint, push_points, push_policy};

/// Without a header: its ids are taken as they are, and their names are compared.
const MAGIC_OF_VERSION_1: &[u8; 8] = b"PLBGJNL1";

/// The points of one metric.
pub(crate) struct LoosePoints<'a> {
    pub(crate) metric: MetricId,
    pub(crate) name: &'a str,
    pub(crate) policy: &'a Policy,
    /// When each was accepted, its time and its value: that time chooses the stage.
    pub(crate) points: Vec<(Timestamp, u32, f64)>,
}

/// The bytes of the file. `now` is when it is made, Unix seconds.
pub(crate) fn loose_segment(metrics: &[LoosePoints<'_>], now: Timestamp) -> Vec<u8> {
    let mut bytes = MAGIC_OF_VERSION_1.to_vec();
    let mut names = MetricsWriter::default();
    for (id, metric) in (0..=u16::MAX).zip(metrics) {
        push_policy(&mut bytes, id, metric.policy);
        names.push(metric.metric, id, metric.name, now);
        bytes.extend_from_slice(&names.take());
        for group in metric.points.chunk_by(|a, b| a.0 == b.0) {
            let resolved =
                |&(_, time, value): &(Timestamp, u32, f64)| ResolvedPoint { metric: metric.metric, time, value };
            let points: Vec<ResolvedPoint> = group.iter().map(resolved).collect();
            push_points(&mut bytes, Now::at(group[0].0), &points);
        }
    }
    bytes
}
