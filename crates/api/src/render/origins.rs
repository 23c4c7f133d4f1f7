//! Where fetched series come from, for requests that ask: the policy of a metric, and which of its stages was read.

use std::{collections::HashMap, sync::Arc};

use metadata::PolicyId;
use metric::{Aggregation, MetricId, Policy};
use render::{Lineage, Source, fetched_from};
use store::FetchedSeries;

use crate::query::Backend;

/// The lineages of the series of one read.
pub(crate) struct Origins<'a> {
    backend: &'a Backend,
    // By policy, step and method; there are few of each.
    known: HashMap<(PolicyId, u32, Aggregation), Lineage>,
}

impl Origins<'_> {
    /// For metrics of the backend.
    pub fn new(backend: &Backend) -> Origins<'_> {
        Origins { backend, known: HashMap::new() }
    }

    /// The lineage of a metric's series.
    pub fn of(&mut self, metric: MetricId, read: &FetchedSeries) -> Lineage {
        let registry = &self.backend.registry;
        let policy = registry.read().policy_id(metric);
        let lineage = self.known.entry((policy, read.step, read.aggregation));
        lineage.or_insert_with(|| fetched_from(Arc::new(source(&registry.policy(policy), read)))).clone()
    }
}

fn source(policy: &Policy, read: &FetchedSeries) -> Source {
    let stages = policy.retention.stages();
    // Metrics whose policy has changed may be read at a step that no stage of today has.
    let stage = stages.iter().position(|stage| stage.resolution() >= read.step).unwrap_or(stages.len() - 1);
    let texts = stages.iter().map(|stage| format!("{}:{}", short(stage.resolution().into()), short(stage.duration())));
    Source {
        stages: texts.collect::<Vec<_>>().join(","),
        stage,
        step: read.step.into(),
        method: method(read.aggregation),
    }
}

/// Seconds as `storage-schemas.conf` has them.
fn short(seconds: i64) -> String {
    const UNITS: [(i64, &str); 5] = [(365 * 86_400, "y"), (7 * 86_400, "w"), (86_400, "d"), (3600, "h"), (60, "min")];
    let unit = UNITS.iter().find(|(unit, _)| seconds >= *unit && seconds % unit == 0);
    unit.map_or_else(|| format!("{seconds}s"), |(unit, name)| format!("{}{name}", seconds / unit))
}

/// The method as Metrictank calls it.
fn method(aggregation: Aggregation) -> &'static str {
    match aggregation {
        Aggregation::Average => "Average",
        Aggregation::Sum => "Sum",
        Aggregation::Last => "Last",
        Aggregation::Max => "Maximum",
        Aggregation::Min => "Minimum",
        Aggregation::AvgZero => "AverageZero",
        Aggregation::AbsMax => "AbsoluteMaximum",
        Aggregation::AbsMin => "AbsoluteMinimum",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_names_the_stage_that_was_read() {
        let policy = Policy {
            retention: "1440*60s:2016*300s:17520*3600s".parse().unwrap(),
            aggregation: Aggregation::Max,
            ..Policy::default()
        };
        let read = |step| FetchedSeries { start: 0, step, values: Vec::new(), aggregation: Aggregation::Max };
        let stages = "1min:1d,5min:1w,1h:2y".to_owned();
        let expected = Source { stages, stage: 1, step: 300, method: "Maximum" };
        assert_eq!(source(&policy, &read(300)), expected);
        let stage = |step| source(&policy, &read(step)).stage;
        assert_eq!([1, 60, 61, 3600, 86_400].map(stage), [0, 0, 1, 2, 2]);
        assert_eq!([1, 90, 120, 7200, 1_209_600].map(short), ["1s", "90s", "2min", "2h", "2w"]);
    }
}
