//! When a node looks again at rows of other writers that it corrected. Pure.
//!
//! A writer that extends its rows from memory does not see the correction, and writes its row over it until the slot is over and its points
//! are flushed: within `flush_after` of the end, where all nodes have that setting. Until then this node comes back: each quarter of
//! `flush_after` after the correction and after the end of each slot, for as long as `flush_after`, and between these after as long again as it
//! has waited so far.

use std::{ops::Range, time::Duration};

use metric::{Stage, Timestamp};

use super::rechecks::SOON;

/// Looks while points that are in memory are written.
const LOOKS: u32 = 4;

/// How long after a correction the first look is.
pub(super) fn first_look(flush_after: Duration) -> Duration {
    flush_after / LOOKS + SOON
}

/// How long after `now` the next look is, so long after the correction. `None` where no other writer extends the coarse slots of the spans
/// any more.
pub(super) fn next_look(
    stages: &[Stage],
    spans: &[Range<Timestamp>],
    (now, corrected_for): (Timestamp, Duration),
    flush_after: Duration,
) -> Option<Duration> {
    let corrected_at = now.saturating_sub(corrected_for.as_secs() as Timestamp);
    let mut next = None;
    for end in spans.iter().flat_map(|span| ends(stages, span)).chain([corrected_at]) {
        for look in 0..=LOOKS {
            let after_end = flush_after * look / LOOKS + SOON;
            let left = end.saturating_add(after_end.as_secs() as Timestamp).saturating_sub(now);
            if let Some(left) = u64::try_from(left).ok().filter(|left| 0 < *left).map(Duration::from_secs) {
                next = Some(next.map_or(left, |next: Duration| next.min(left)));
            }
        }
    }
    Some(next?.min(corrected_for.max(first_look(flush_after))))
}

/// Ends of the coarse slots around the end of a span.
fn ends(stages: &[Stage], span: &Range<Timestamp>) -> impl Iterator<Item = Timestamp> {
    let coarse = stages.get(1..).unwrap_or_default();
    coarse.iter().map(|stage| {
        let resolution = Timestamp::from(stage.resolution());
        (span.end - 1).div_euclid(resolution).saturating_add(1).saturating_mul(resolution)
    })
}

#[cfg(test)]
mod tests {
    use metric::Retention;

    use super::*;

    /// Seconds of all looks after a correction of points of the seconds 10 to 19 at the second 0, where each takes no time.
    fn looks(retention: &str, flush_after: u64) -> Vec<u64> {
        let retention: Retention = retention.parse().unwrap();
        let (flush_after, spans) = (Duration::from_secs(flush_after), [10..15, 15..20]);
        let mut looks = vec![first_look(flush_after).as_secs()];
        while let Some(next) = {
            let at = *looks.last().unwrap();
            next_look(retention.stages(), &spans, (at as Timestamp, Duration::from_secs(at)), flush_after)
        } {
            looks.push(looks.last().unwrap() + next.as_secs());
            assert!(looks.len() < 99, "{looks:?}");
        }
        looks
    }

    #[test]
    fn looks_follow_the_last_rows_of_each_slot_and_come_while_it_is_open() {
        let of_minutes = looks("2160*10s:2880*60s:4320*600s", 60);
        assert_eq!(of_minutes, [25, 40, 55, 70, 85, 100, 115, 130, 260, 520, 610, 625, 640, 655, 670]);
        // The default of `ingest.flush_after`, and days.
        let of_days = looks("11520*60s:720*3600s:365*86400s", 3600);
        assert_eq!(of_days[..3], [910, 1810, 2710]);
        assert_eq!(of_days.last(), Some(&(86_400 + 3610)));
        assert!(of_days.len() < 20, "{of_days:?}");
    }

    #[test]
    fn slots_that_are_over_and_single_stages_need_no_look() {
        let retention: Retention = "2160*10s:2880*60s".parse().unwrap();
        let hour = Duration::from_secs(3600);
        let spans = [10..20, 30..40];
        let next = |stages, now| next_look(stages, &spans, (now, hour + SOON), hour);
        assert_eq!(next(retention.stages(), 60 + 3600 + 9), Some(Duration::from_secs(1)));
        assert_eq!(next(retention.stages(), 60 + 3600 + 10), None);
        assert_eq!(next(&retention.stages()[..1], 30), None);
        // Points that were in memory at the time of the correction may be of a slot long ago.
        assert_eq!(next_look(retention.stages(), &spans, (9_000, hour), hour), Some(SOON));
    }
}
