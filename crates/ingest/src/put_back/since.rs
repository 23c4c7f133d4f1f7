//! Points that were sent to replace a value, and were not read when they should have: they replace it where their slot got
//! nothing since, which the segments behind theirs tell, as long as all of them are there.

use std::{
    collections::{HashMap, HashSet},
    io,
    sync::Arc,
};

use host::Now;
use metadata::PolicyId;
use metric::{MetricId, Policy, Slot, Timestamp};
use store::Identity;

use super::names::{LatePoint, LatePoints};
use crate::wal::{Folder, Segment};

/// A point whose slot has another value.
pub(super) struct Taken {
    pub(super) point: LatePoint,
    pub(super) slot: Slot,
    pub(super) policy_id: PolicyId,
    pub(super) policy: Arc<Policy>,
    /// Whether it is a point of the finest stage of a metric that never had another policy. Of others the value in the slot
    /// may be made of several.
    pub(super) is_plain: bool,
}

/// What became of such points.
#[derive(Default)]
pub(super) struct Replaced {
    pub(super) points: u64,
    /// Points of slots that may have an older or a newer value.
    pub(super) unclear: u64,
    /// Whether some have to wait for a flush.
    pub(super) is_waiting: bool,
}

/// What came for a slot behind a segment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Since {
    Newer,
    /// It was accepted at an earlier time: it may have been put back itself.
    Unclear,
}

/// The slots that are asked about.
pub(super) struct Asked {
    /// When their points were accepted.
    slots: HashMap<(MetricId, Slot), Now>,
    policies: HashMap<MetricId, Arc<Policy>>,
}

impl Asked {
    pub(super) fn about(taken: &[Taken]) -> Asked {
        Asked {
            slots: taken.iter().map(|taken| ((taken.point.metric, taken.slot), taken.point.at)).collect(),
            policies: taken.iter().map(|taken| (taken.point.metric, taken.policy.clone())).collect(),
        }
    }
}

/// The slots, of those that are asked about, that got points behind a segment. `None` where that is not known: not all
/// segments behind it are there and whole.
pub(super) fn since(
    (folder, identity): (&Folder, &Identity),
    segment: &Segment,
    asked: &Asked,
    mut load: impl FnMut(&Segment) -> io::Result<Option<LatePoints>>,
) -> io::Result<Option<HashMap<(MetricId, Slot), Since>>> {
    // In this order: a segment of the first may be among the second before it is read.
    let mut segments = folder.segments()?;
    let kept = folder.since()?;
    let numbers: HashSet<u64> = kept.iter().map(|kept| kept.number).collect();
    segments.retain(|segment| !numbers.contains(&segment.number));
    segments.extend(kept);
    segments.retain(|other| segment.number < other.number);
    segments.sort_by_key(|segment| segment.number);
    let numbers: HashSet<u64> = segments.iter().map(|segment| segment.number).collect();
    let mut since = HashMap::new();
    for other in &segments {
        let Ok(planned) = folder.plan_alone(other.clone()) else { return Ok(None) };
        let Some(header) = &planned.header else { return Ok(None) };
        let of = header.identity.chain.last().map(|opening| opening.id);
        let is_ours =
            header.identity.store == identity.store && identity.chain.iter().any(|opening| Some(opening.id) == of);
        let follows = |previous: u64| previous <= segment.number || numbers.contains(&previous);
        if !is_ours || !header.previous.is_some_and(follows) {
            return Ok(None);
        }
        let Some(late) = load(other)? else { return Ok(None) };
        if late.has_damage || 0 < late.nameless {
            return Ok(None);
        }
        for point in &late.known {
            note(point, asked, &mut since);
        }
    }
    Ok((!segments.is_empty()).then_some(since))
}

fn note(point: &LatePoint, asked: &Asked, since: &mut HashMap<(MetricId, Slot), Since>) {
    let Some(policy) = asked.policies.get(&point.metric) else { return };
    let Some(slot) = policy.retention.finest().slot(Timestamp::from(point.time)) else { return };
    let Some(at) = asked.slots.get(&(point.metric, slot)) else { return };
    let noted = since.entry((point.metric, slot)).or_insert(Since::Unclear);
    if at.low() <= point.at.low() {
        *noted = Since::Newer;
    }
}
