//! Estimates what a read will return, before it runs.

use std::collections::HashMap;

use metadata::{Found, PolicyId};
use metric::{MetricId, Retention, Timestamp, Window};
use render::Span;

use crate::query::Backend;

/// Estimates from the stages of each metric's policy.
pub(crate) struct ReadEstimate<'a> {
    backend: &'a Backend,
    now: Timestamp,
    max_points: usize,
    // By policy and span; there are few of both.
    cache: HashMap<(PolicyId, Span), Option<SeriesEstimate>>,
}

/// The estimate of one series.
#[derive(Clone, Copy)]
pub(crate) struct SeriesEstimate {
    step: u32,
    pub points: usize,
}

impl ReadEstimate<'_> {
    /// Estimates reads at `now` of series with at most `max_points`.
    pub fn new(backend: &Backend, now: Timestamp, max_points: usize) -> ReadEstimate<'_> {
        ReadEstimate { backend, now, max_points, cache: HashMap::new() }
    }

    /// The largest step among the metrics that have a series. `None` when uncertain: with many points, the reader may
    /// select a coarser stage.
    pub fn largest_step(&mut self, span: Span, found: &Found) -> Option<i64> {
        let (mut points, mut step) = (0usize, None);
        self.each(span, found, |_, _, series| {
            let Some(series) = series else { return };
            points = points.saturating_add(series.points);
            step = step.max(Some(i64::from(series.step)));
        });
        step.filter(|_| points <= self.backend.limits.points / 16)
    }

    /// Calls `each` with the id and the name of each metric; without an estimate where nothing of the span is kept.
    pub fn each(&mut self, span: Span, found: &Found, mut each: impl FnMut(MetricId, &str, Option<SeriesEstimate>)) {
        let names = self.backend.registry.read();
        for (id, name) in found.leaves() {
            let policy = names.policy_id(id);
            let (now, max_points, registry) = (self.now, self.max_points, &self.backend.registry);
            let estimate = self.cache.entry((policy, span)).or_insert_with(|| {
                let retention = &registry.policy(policy).retention;
                estimated(retention, span, now, max_points)
            });
            each(id, name, *estimate);
        }
    }
}

/// The step and the points of one series, by whisper's rules, as every `SeriesSource` reads.
fn estimated(retention: &Retention, span: Span, now: Timestamp, max_points: usize) -> Option<SeriesEstimate> {
    let choice = retention.choose(Window::between(span.from, span.until), now, max_points)?;
    let points = choice.slots.end.saturating_sub(choice.slots.start);
    let step = retention.stages()[choice.stage].resolution();
    Some(SeriesEstimate { step, points: usize::try_from(points).unwrap_or(usize::MAX) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_is_from_the_finest_stage_that_reaches_and_fits() {
        let retention: Retention = "60*60s:48*3600s".parse().unwrap();
        let now = 1_000_000 * 3600;
        let check = |from: i64, until: i64, max_points: usize| {
            let span = Span { from: now + from, until: now + until };
            estimated(&retention, span, now, max_points).map(|series| (series.step, series.points))
        };
        assert_eq!(check(-3600, 0, 100), Some((60, 60)));
        assert_eq!(check(-3600, 0, 59), Some((3600, 1)));
        assert_eq!(check(-3601, 0, 100), Some((3600, 2)));
        assert_eq!(check(-10, -5, 100), Some((60, 1)));
        assert_eq!(check(-1_000_000, 1_000_000, 1), Some((3600, 48)));
        assert_eq!(check(1, 100, 100), None);
        assert_eq!(check(-1_000_000, -500_000, 100), None);
    }
}
