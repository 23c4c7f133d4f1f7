//! Where fetched series come from, for requests that ask: the policy of a metric, and which of its stages was read.

use std::collections::HashMap;

use metadata::PolicyId;
use metric::{Aggregation, Methods, MetricId, Policy, Retention};
use render::{Lineage, Source, fetched_from};
use store::{CoarserSlots, FetchedSeries};

use crate::query::Backend;

/// By policy, step, method, earlier methods and coarser slots; there are few of each.
type Read = (PolicyId, u32, Aggregation, Methods, Vec<CoarserSlots>);

/// The lineages of the series of one read.
pub(crate) struct Origins<'a> {
    backend: &'a Backend,
    known: HashMap<Read, Lineage>,
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
        let key = (policy, read.step, read.aggregation, read.earlier, read.coarser.clone());
        let lineage = self.known.entry(key);
        lineage.or_insert_with(|| fetched_from(sources(&registry.policy(policy), read).into_iter())).clone()
    }
}

/// A source for each method whose values were read, that of the policy first, and then the coarser slots that stand for finer ones,
/// with the stages of the policy that they are of: the stage that was read is one of these.
fn sources(policy: &Policy, read: &FetchedSeries) -> Vec<Source> {
    let stages = policy.retention.stages();
    // Metrics whose policy has changed may be read at a step that no stage of today has.
    let stage = stages.iter().position(|stage| stage.resolution() >= read.step).unwrap_or(stages.len() - 1);
    let methods = std::iter::once(read.aggregation).chain(read.earlier.iter().filter(|of| *of != read.aggregation));
    let finer = methods.map(|of| source(&policy.retention, stage, read.step, of));
    let coarser = read.coarser.iter().map(|CoarserSlots { retention, stage, method }| {
        source(retention, *stage, retention.stages()[*stage].resolution(), *method)
    });
    finer.chain(coarser).collect()
}

fn source(retention: &Retention, stage: usize, step: u32, of: Aggregation) -> Source {
    let stages = retention.stages().iter();
    let texts = stages.map(|stage| format!("{}:{}", short(stage.resolution().into()), short(stage.duration())));
    Source { stages: texts.collect::<Vec<_>>().join(","), stage, step: step.into(), method: method(of) }
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
        let read = |step| FetchedSeries {
            start: 0,
            step,
            values: Vec::new(),
            aggregation: Aggregation::Max,
            ..FetchedSeries::default()
        };
        let stages = "1min:1d,5min:1w,1h:2y".to_owned();
        let expected = Source { stages: stages.clone(), stage: 1, step: 300, method: "Maximum" };
        assert_eq!(sources(&policy, &read(300)), [expected]);
        let stage = |step| sources(&policy, &read(step))[0].stage;
        let earlier = "avg,max,min".parse().unwrap();
        let of_several = sources(&policy, &FetchedSeries { earlier, ..read(300) });
        assert_eq!(of_several.iter().map(|of| of.method).collect::<Vec<_>>(), ["Maximum", "Average", "Minimum"]);
        assert_eq!([1, 60, 61, 3600, 86_400].map(stage), [0, 0, 1, 2, 2]);
        // Coarser slots of earlier policies have the stages of these.
        let of = |text: &str, stage, method| CoarserSlots { retention: text.parse().unwrap(), stage, method };
        let coarser = vec![
            of("1440*60s:17520*3600s", 1, Aggregation::Max),
            of("8640*10s:2016*300s:3650*86400s", 2, Aggregation::Sum),
        ];
        let of_coarser = sources(&policy, &FetchedSeries { coarser, ..read(60) });
        let of_coarser: Vec<_> = of_coarser.iter().map(|of| (&*of.stages, of.stage, of.step, of.method)).collect();
        assert_eq!(
            of_coarser,
            [
                (&*stages, 0, 60, "Maximum"),
                ("1min:1d,1h:2y", 1, 3600, "Maximum"),
                ("10s:1d,5min:1w,1d:10y", 2, 86_400, "Sum"),
            ]
        );
        assert_eq!([1, 90, 120, 7200, 1_209_600].map(short), ["1s", "90s", "2min", "2h", "2w"]);
    }
}
