//! Metrics that this node has just deleted from the tables. Other nodes may write points of them until they have followed the deletion.

use std::collections::VecDeque;

use parking_lot::Mutex;
use store::MetricRecord;

/// Metrics that are remembered. Beyond that the first ones are forgotten.
const REMEMBERED: usize = 100_000;

#[derive(Default)]
struct Deletions {
    /// Each with its time, microseconds since 1970.
    groups: VecDeque<(i64, Vec<MetricRecord>)>,
    metrics: usize,
}

/// These metrics.
#[derive(Default)]
pub(crate) struct RecentDeletions(Mutex<Deletions>);

impl RecentDeletions {
    /// Metrics were deleted at this time, microseconds since 1970.
    pub(crate) fn add(&self, at: i64, metrics: Vec<MetricRecord>) {
        let Deletions { groups, metrics: number } = &mut *self.0.lock();
        *number += metrics.len();
        groups.push_back((at, metrics));
        while REMEMBERED < *number
            && let Some((_, forgotten)) = groups.pop_front()
        {
            *number -= forgotten.len();
        }
    }

    /// Takes those that were deleted until this time, each group with its time, microseconds since 1970.
    pub(crate) fn take(&self, until: i64) -> Vec<(i64, Vec<MetricRecord>)> {
        let Deletions { groups, metrics } = &mut *self.0.lock();
        let end = groups.iter().take_while(|(at, _)| *at <= until).count();
        let taken: Vec<_> = groups.drain(..end).collect();
        *metrics -= taken.iter().map(|(_, of_group)| of_group.len()).sum::<usize>();
        taken
    }
}

#[cfg(test)]
mod tests {
    use metric::MetricId;

    use super::*;

    fn record(number: u32) -> MetricRecord {
        MetricRecord { id: MetricId(number), name: format!("a.n{number}"), created_on: 0, policies: Vec::new() }
    }

    #[test]
    fn deletions_are_taken_once_when_they_are_old_enough_and_the_oldest_are_forgotten() {
        let deletions = RecentDeletions::default();
        deletions.add(1_000, vec![record(1)]);
        deletions.add(2_000, vec![record(2)]);
        assert_eq!(deletions.take(999), []);
        assert_eq!(deletions.take(1_500), [(1_000, vec![record(1)])]);
        deletions.add(3_000, vec![record(3); REMEMBERED]);
        assert_eq!(deletions.take(5_000), [(3_000, vec![record(3); REMEMBERED])]);
        assert_eq!(deletions.take(5_000), []);
    }
}
