//! What a read will give, before it is made.

use std::collections::HashMap;

use metadata::{Found, PolicyId};
use metric::{Retention, Timestamp};
use render::Span;

use crate::Api;

/// Reckons from the stages of each metric's policy.
pub(crate) struct Reckoning<'a> {
    api: &'a Api,
    now: Timestamp,
    max_points: usize,
    // By policy and span: there are few of both.
    known: HashMap<(PolicyId, Span), Option<Reckoned>>,
}

/// One series, before it is read.
#[derive(Clone, Copy)]
struct Reckoned {
    step: u32,
    points: usize,
}

impl Reckoning<'_> {
    /// For reads at `now`, of series that should have at most `max_points`.
    pub fn new(api: &Api, now: Timestamp, max_points: usize) -> Reckoning<'_> {
        Reckoning { api, now, max_points, known: HashMap::new() }
    }

    /// Points of all metrics.
    pub fn points(&mut self, span: Span, found: &Found) -> usize {
        let mut points = 0usize;
        self.each(span, found, |series| points = points.saturating_add(series.points));
        points
    }

    /// The largest step among the metrics that have a series, where it is certain. Where there are so many
    /// points that a coarser stage may have to be read, it is not.
    pub fn largest_step(&mut self, span: Span, found: &Found) -> Option<i64> {
        let (mut points, mut step) = (0usize, None);
        self.each(span, found, |series| {
            points = points.saturating_add(series.points);
            step = step.max(Some(i64::from(series.step)));
        });
        step.filter(|_| points <= self.api.limits.points / 16)
    }

    fn each(&mut self, span: Span, found: &Found, mut each: impl FnMut(Reckoned)) {
        let names = self.api.registry.read();
        for (number, _) in found.leaves() {
            let policy = names.policy_id(number);
            let (now, max_points, api) = (self.now, self.max_points, self.api);
            let known = self.known.entry((policy, span));
            let reckoned = known.or_insert_with(|| {
                let retention = &api.registry.policy(policy).retention;
                reckoned(retention, span, now, max_points)
            });
            reckoned.iter().for_each(|&series| each(series));
        }
    }
}

/// The step and the points of one series: of the finest stage that reaches back far enough and has few
/// enough, or of the coarsest there is. These are whisper's rules, and those of every `SeriesSource`.
fn reckoned(retention: &Retention, span: Span, now: Timestamp, max_points: usize) -> Option<Reckoned> {
    let oldest = now - retention.longest().duration();
    if span.from > now || span.until < oldest {
        return None;
    }
    let (from, until) = (span.from.max(oldest), span.until.min(now));
    let fitting = retention.stages().get(retention.stage_holding(from, now)?..)?;
    let mut last = None;
    for stage in fitting {
        let step = i64::from(stage.resolution());
        let points = (until.div_euclid(step) - from.div_euclid(step)).max(1);
        let points = usize::try_from(points).unwrap_or(usize::MAX);
        last = Some(Reckoned { step: stage.resolution(), points });
        if points <= max_points {
            break;
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_finest_stage_that_reaches_and_fits_is_reckoned_with() {
        let retention: Retention = "60*60s:48*3600s".parse().unwrap();
        let now = 1_000_000 * 3600;
        let check = |from: i64, until: i64, max_points: usize| {
            let span = Span { from: now + from, until: now + until };
            reckoned(&retention, span, now, max_points).map(|series| (series.step, series.points))
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
