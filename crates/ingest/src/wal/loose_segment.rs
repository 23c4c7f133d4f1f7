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
    /// By which time each was judged, its own time and its value: the first chooses the stage.
    pub(crate) points: Vec<(Now, u32, f64)>,
}

/// The bytes of the file. `now` is when it is made, Unix seconds.
pub(crate) fn loose_segment(metrics: &[LoosePoints<'_>], now: Timestamp) -> Vec<u8> {
    let mut bytes = MAGIC_OF_VERSION_1.to_vec();
    let mut names = MetricsWriter::default();
    let mut policies: Vec<&Policy> = Vec::new();
    for metric in metrics {
        let known = policies.iter().position(|known| known.is_same(metric.policy));
        let id = u16::try_from(known.unwrap_or(policies.len()));
        let id = id.expect("schema files have fewer than 65,536 distinct policies");
        if known.is_none() {
            policies.push(metric.policy);
            push_policy(&mut bytes, id, metric.policy);
        }
        names.push(metric.metric, id, metric.name, now);
        bytes.extend_from_slice(&names.take());
        for group in metric.points.chunk_by(|a, b| a.0 == b.0) {
            let resolved = |&(_, time, value): &(Now, u32, f64)| ResolvedPoint { metric: metric.metric, time, value };
            let points: Vec<ResolvedPoint> = group.iter().map(resolved).collect();
            push_points(&mut bytes, group[0].0, &points);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wal::{Record, records};

    #[test]
    fn a_file_has_the_points_of_more_metrics_than_a_policy_id_counts() {
        let all = 3 + u32::from(u16::MAX);
        let (first, other) = (Policy::default(), Policy { x_files_factor: 0.75, ..Policy::default() });
        let names: Vec<String> = (0..all).map(|id| format!("a.m{id}")).collect();
        let metrics: Vec<LoosePoints<'_>> = (0..all)
            .zip(&names)
            .map(|(id, name)| LoosePoints {
                metric: MetricId(id),
                name,
                policy: if id % 3 == 0 { &other } else { &first },
                points: vec![(Now::at(1000), id, f64::from(id))],
            })
            .collect();
        let bytes = loose_segment(&metrics, 2000);
        let (mut policies, mut named, mut found) = (Vec::new(), 0, 0);
        for (_, record) in records(&bytes) {
            match record {
                Record::Policy { id, policy } => policies.push((id, policy)),
                Record::Metrics { metrics, .. } => {
                    for (metric, policy, name) in metrics {
                        let is_other = metric.0 % 3 == 0;
                        let (_, policy) = policies.iter().rev().find(|(id, _)| *id == policy).expect("it came before");
                        assert!(
                            policy.is_same(if is_other { &other } else { &first }) && name == names[named],
                            "{name}"
                        );
                        named += 1;
                    }
                }
                Record::Points { points, .. } => {
                    found += points
                        .filter(|point| (point.time, point.value) == (point.metric.0, f64::from(point.metric.0)))
                        .count();
                }
                Record::Segment { .. } => {}
            }
        }
        assert_eq!((policies.len(), named, found), (2, all as usize, all as usize));
    }
}
