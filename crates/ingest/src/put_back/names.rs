//! The points of a segment that is read long after it was written, and the metrics that they belong to now.
//!
//! An id is never given again: a metric that has it is the one that the points came for. An id that no metric has belongs to
//! a metric that was deleted, unless the record that named it is in what could not be read: then the name counts, and none
//! that was deleted since. Ids tell that: one that the writer gave behind those that are deleted came later, and one that a later
//! opening gave was deleted later than all that the writer wrote.

use std::collections::{HashMap, HashSet};

use host::Now;
use metadata::{PolicyId, Registry};
use metric::{MetricId, Policy, Timestamp};
use store::Identity;

use crate::{
    journal_ids::{JournalIds, Writer},
    policy_table::PolicyTable,
    wal::{Deleted, Planned, Record},
};

/// A point, and when it was accepted.
#[derive(Debug, Clone, Copy)]
pub(super) struct LatePoint {
    pub(super) metric: MetricId,
    pub(super) time: u32,
    pub(super) value: f64,
    pub(super) at: Now,
    /// The policy under which it came, as far as its segment says.
    pub(super) under: Under,
    /// Whether it is stored, and coarse slots around it are not: a slot that has this value counts as empty.
    pub(super) is_again: bool,
}

/// What a segment says of the policy under which a point of it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Under {
    /// Nothing: the one of its history that was in force when the point was accepted.
    History,
    /// The one of its history that was in force before this time, at which the segment names another behind the point.
    HistoryBefore(Timestamp),
    /// This one.
    Policy(PolicyId),
}

/// The points of a segment, in their order.
#[derive(Default)]
pub(super) struct LatePoints {
    /// Of metrics that exist.
    pub(super) known: Vec<LatePoint>,
    /// Of names that no metric has.
    pub(super) unknown: Vec<(String, LatePoint)>,
    /// Points of metrics that were deleted, or that nothing names.
    pub(super) left_out: u64,
    /// Those that nothing names.
    pub(super) nameless: u64,
    /// Those whose metrics may have been deleted, or not: that is not known. None of them is in `left_out`.
    pub(super) undecided: u64,
    /// Whether some of its bytes are not records.
    pub(super) has_damage: bool,
}

/// What segments name and delete.
#[derive(Default)]
pub(super) struct Named {
    names: HashMap<(Writer, MetricId), String>,
    ended: HashSet<(Writer, MetricId)>,
    is_of_rows: bool,
}

impl Named {
    /// For points that are laid over stored rows: those are of an id, and a metric that has its name now has others.
    pub(super) fn of_rows() -> Named {
        Named { is_of_rows: true, ..Named::default() }
    }

    /// The name that an id has with a writer, or with an opening before it that gave the id.
    fn name(&self, openings: &[(Writer, MetricId)], id: MetricId) -> Option<&str> {
        let mut given = openings.iter().filter(|&&(_, end)| id < end);
        given.find_map(|&(writer, _)| self.names.get(&(writer, id))).map(String::as_str)
    }

    fn is_ended(&self, openings: &[(Writer, MetricId)], id: MetricId) -> bool {
        openings.iter().any(|&(writer, end)| id < end && self.ended.contains(&(writer, id)))
    }
}

/// Who wrote a segment, and who gave its ids before: the openings, the latest first, and where the ids end that each gave.
fn openings(planned: &Planned, writer: Writer) -> Vec<(Writer, MetricId)> {
    let chain = planned.header.as_ref().map(|header| &*header.identity.chain).unwrap_or_default();
    let ends = chain.iter().skip(1).map(|next| next.first_id).chain([MetricId::NONE]);
    let mut all: Vec<(Writer, MetricId)> = chain.iter().map(|opening| opening.id).zip(ends).collect();
    if all.is_empty() {
        all.push((writer, MetricId::NONE));
    }
    all.reverse();
    all
}

/// What is known of deletions.
pub(super) struct KnownDeletions<'a> {
    pub(super) noted: &'a Deleted,
    /// Whether the metric was deleted that had this id of the store.
    pub(super) is_deleted: &'a dyn Fn(MetricId) -> bool,
    /// Whether other segments are missing, which may name what nothing else names.
    pub(super) are_some_missing: bool,
}

/// Reads the points of a segment. Adds what it names to `named`, which has that of others.
pub(super) fn late_points(
    planned: &Planned,
    bytes: &[u8],
    (ours, registry, policies): (&Identity, &Registry, &PolicyTable),
    KnownDeletions { noted: deleted, is_deleted, are_some_missing }: KnownDeletions<'_>,
    named: &mut Named,
) -> LatePoints {
    let mut ids = JournalIds::new(ours.clone());
    let writer = ids.begin(planned);
    let (openings, mut points) = (openings(planned, writer), Vec::new());
    let mut given = GivenPolicies::new(policies);
    let mut records = planned.records(bytes);
    for (_, record) in records.by_ref() {
        match record {
            Record::Metrics { now, metrics } => {
                for (metric, policy, name) in metrics {
                    given.give(metric, policy, now);
                    if name.is_empty() {
                        named.ended.insert((writer, metric));
                    } else {
                        named.names.insert((writer, metric), name.to_owned());
                    }
                }
            }
            Record::Points { now, points: of_record } => {
                points.extend(of_record.map(|point| (now, given.under(point.metric), point)));
            }
            Record::Policy { id, policy } => given.number(id, &policy),
            Record::Segment { .. } => {}
        }
    }
    // Late points are written whole, and nothing else has them; the end of a segment may never have been written.
    let has_torn_tail = !named.is_of_rows && records.torn_tail().is_some();
    let has_damage = records.damage.len() != usize::from(has_torn_tail);
    let mut late = LatePoints { has_damage, ..LatePoints::default() };
    let registered = registry.read();
    let of_writer = ids.of(writer);
    let mut targets: HashMap<MetricId, Target<'_>> = HashMap::new();
    let target = |id: MetricId| -> Target<'_> {
        let is_common = of_writer.is_common(id);
        if named.is_ended(&openings, id) || is_common && is_deleted(id) {
            return Target::Deleted;
        }
        let (name, ours) = (named.name(&openings, id), if is_common { registered.name(id) } else { "" });
        match name {
            _ if !ours.is_empty() && name.is_none_or(|name| name == ours) => Target::Metric(id),
            _ if named.is_of_rows => Target::Deleted,
            Some(name) if deleted.has_name(name, |last| !of_writer.is_common(last) || id <= last) => Target::Deleted,
            Some(name) if deleted.is_known => {
                let known = registered.find(registry.hash(name.as_bytes()), name.as_bytes());
                known.map_or(Target::Name(name), Target::Metric)
            }
            Some(_) => Target::Undecided,
            None if are_some_missing => Target::Undecided,
            None => Target::None,
        }
    };
    for (at, under, point) in points {
        let under = given.behind(point.metric, under);
        let late_point =
            LatePoint { metric: point.metric, time: point.time, value: point.value, at, under, is_again: false };
        match *targets.entry(point.metric).or_insert_with(|| target(point.metric)) {
            Target::Metric(metric) => late.known.push(LatePoint { metric, ..late_point }),
            Target::Name(name) => late.unknown.push((name.to_owned(), late_point)),
            Target::Deleted => late.left_out += 1,
            Target::Undecided => late.undecided += 1,
            Target::None => (late.left_out, late.nameless) = (late.left_out + 1, late.nameless + 1),
        }
    }
    late
}

/// The policies that a segment gives metrics, by the ids of its writer.
struct GivenPolicies<'a> {
    known: &'a PolicyTable,
    /// The numbers of the segment. `None` for a policy that is not known any more.
    numbers: HashMap<u16, Option<PolicyId>>,
    given: HashMap<MetricId, Under>,
    /// When each metric is first given one.
    first: HashMap<MetricId, Timestamp>,
}

impl<'a> GivenPolicies<'a> {
    fn new(known: &'a PolicyTable) -> GivenPolicies<'a> {
        GivenPolicies { known, numbers: HashMap::new(), given: HashMap::new(), first: HashMap::new() }
    }

    fn number(&mut self, number: u16, policy: &Policy) {
        let known = self.known.all.iter().position(|known| known.is_same(policy));
        self.numbers.insert(number, known.and_then(|known| PolicyId::try_from(known).ok()));
    }

    fn give(&mut self, metric: MetricId, number: u16, now: Timestamp) {
        let policy = self.numbers.get(&number).copied().flatten();
        self.given.insert(metric, policy.map_or(Under::History, Under::Policy));
        self.first.entry(metric).or_insert(now);
    }

    /// The policy of a point that comes now. `None` where the metric is given none so far.
    fn under(&self, metric: MetricId) -> Option<Under> {
        self.given.get(&metric).copied()
    }

    /// The policy of such a point, once all of the segment is read.
    fn behind(&self, metric: MetricId, under: Option<Under>) -> Under {
        under.or_else(|| self.first.get(&metric).map(|&first| Under::HistoryBefore(first))).unwrap_or(Under::History)
    }
}

/// Where the points of an id go.
#[derive(Clone, Copy)]
enum Target<'a> {
    Metric(MetricId),
    /// A name that no metric has.
    Name(&'a str),
    Deleted,
    /// It may have been deleted, or be one that only a missing segment names.
    Undecided,
    None,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use host::SystemDisk;

    use super::*;
    use crate::wal::{Folder, LoosePoints, Segment, loose_segment};

    #[test]
    fn points_over_stored_rows_go_to_the_id_that_has_these_and_others_also_to_a_name() {
        let dir = tempfile::tempdir().unwrap();
        let registry = Registry::new();
        let create = |name: &str| registry.write().create(registry.hash(name.as_bytes()), name, 0, 7);
        let (first, kept) = (create("deleted and sent again"), create("kept"));
        assert_eq!(registry.remove(&[first]), 1);
        let now = create("deleted and sent again");
        let policy = Policy::default();
        let points = [(first, "deleted and sent again"), (kept, "kept")].map(|(metric, name)| LoosePoints {
            metric,
            name,
            policy: &policy,
            points: vec![(Now::at(1_800_000_000), 1_800_000_000, 5.0)],
        });
        let bytes = loose_segment(&points, 1_800_000_000);
        let path = dir.path().join("late-1800000000-0.points");
        std::fs::write(&path, &bytes).unwrap();
        let segment = Segment { number: 1, path, bytes: bytes.len() as u64 };
        let Ok(planned) = Folder::new(Arc::new(SystemDisk), dir.path()).plan_alone(segment) else { unreachable!() };
        // Noting began after the deletion.
        let deleted = Deleted { is_known: true, ..Deleted::default() };
        let none = |_| false;
        let (ours, policies) = (Identity::default(), PolicyTable::default());
        let read = |mut named| {
            let deletions = KnownDeletions { noted: &deleted, is_deleted: &none, are_some_missing: false };
            late_points(&planned, &bytes, (&ours, &registry, &policies), deletions, &mut named)
        };
        let metrics = |late: &LatePoints| late.known.iter().map(|point| point.metric).collect::<Vec<_>>();
        let of_rows = read(Named::of_rows());
        assert_eq!((metrics(&of_rows), of_rows.unknown.len(), of_rows.left_out), (vec![kept], 0, 1));
        assert_eq!(metrics(&read(Named::default())), [now, kept]);
    }
}
