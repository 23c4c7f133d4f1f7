//! Points that were sent to replace a value, and were not read when they should have: they replace it where their slot got
//! nothing since, which the segments behind theirs tell, as long as all of them are there.

use std::{
    collections::{HashMap, HashSet},
    io,
    sync::Arc,
};

use host::Now;
use metric::{MetricId, Policy, Slot, Timestamp};
use store::Identity;

use super::{
    names::{LatePoint, LatePoints},
    slots::Taken,
};
use crate::wal::{Folder, Planned, Segment};

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

    /// The slot of a point, where it is asked about, and what the point is there.
    fn what(&self, point: &LatePoint) -> Option<((MetricId, Slot), Since)> {
        let policy = self.policies.get(&point.metric)?;
        let slot = (point.metric, policy.retention.finest().slot(Timestamp::from(point.time))?);
        let at = self.slots.get(&slot)?;
        Some((slot, if at.low() <= point.at.low() { Since::Newer } else { Since::Unclear }))
    }
}

/// What the segments behind one say, of the slots that are asked about. Stored segments do not change: they are read once.
#[derive(Default)]
pub(super) struct SinceFiles {
    stored: HashMap<u64, Said>,
}

/// What one of these segments says.
#[derive(Clone)]
struct Said {
    /// The segment before it, and how long that is at least.
    previous: u64,
    previous_bytes: u64,
    slots: Arc<HashMap<(MetricId, Slot), Since>>,
}

impl SinceFiles {
    /// The slots, of those that are asked about, that got points behind a segment. `None` where that is not known: not all
    /// segments behind it are there and whole.
    pub(super) fn since(
        &mut self,
        (folder, identity): (&Folder, &Identity),
        segment: &Segment,
        asked: &Asked,
        mut load: impl FnMut(&Segment) -> io::Result<Option<LatePoints>>,
    ) -> io::Result<Option<HashMap<(MetricId, Slot), Since>>> {
        // In this order: a segment of the first may be among the second before it is read.
        let mut segments = folder.segments()?;
        let kept = folder.since()?;
        let stored: HashSet<u64> = kept.iter().map(|kept| kept.number).collect();
        segments.retain(|segment| !stored.contains(&segment.number));
        segments.extend(kept);
        segments.retain(|other| segment.number < other.number);
        segments.sort_by_key(|segment| segment.number);
        let lengths: HashMap<u64, u64> = segments.iter().map(|segment| (segment.number, segment.bytes)).collect();
        let mut since = HashMap::new();
        for other in &segments {
            let known = self.stored.get(&other.number).filter(|_| stored.contains(&other.number)).cloned();
            let Some(said) =
                known.map_or_else(|| said((folder, identity), other, asked, &mut load), |said| Ok(Some(said)))?
            else {
                return Ok(None);
            };
            // A stored segment that has lost its end looks as one whose last record a crash cut off.
            let is_whole = lengths.get(&said.previous).is_some_and(|bytes| said.previous_bytes <= *bytes);
            if segment.number < said.previous && !is_whole {
                return Ok(None);
            }
            said.slots.iter().for_each(|(&slot, &what)| note(&mut since, slot, what));
            if stored.contains(&other.number) {
                self.stored.insert(other.number, said);
            }
        }
        Ok((!segments.is_empty()).then_some(since))
    }
}

/// What a segment says. `None` where it is not one of ours, or not whole.
fn said(
    (folder, identity): (&Folder, &Identity),
    other: &Segment,
    asked: &Asked,
    load: &mut impl FnMut(&Segment) -> io::Result<Option<LatePoints>>,
) -> io::Result<Option<Said>> {
    let Ok(Planned { header: Some(header), .. }) = folder.plan_alone(other.clone()) else { return Ok(None) };
    let of = header.identity.chain.last().map(|opening| opening.id);
    let is_ours =
        header.identity.store == identity.store && identity.chain.iter().any(|opening| Some(opening.id) == of);
    // Another one in its place says nothing of it.
    let is_it = header.segment == other.number;
    let Some(previous) = header.previous.filter(|_| is_ours && is_it) else { return Ok(None) };
    let Some(late) = load(other)?.filter(|late| !late.has_damage && late.nameless == 0) else { return Ok(None) };
    let mut slots = HashMap::new();
    for point in &late.known {
        if let Some((slot, what)) = asked.what(point) {
            note(&mut slots, slot, what);
        }
    }
    let previous_bytes = header.previous_bytes.max(header.previous_whole.unwrap_or(0));
    Ok(Some(Said { previous, previous_bytes, slots: Arc::new(slots) }))
}

fn note(slots: &mut HashMap<(MetricId, Slot), Since>, slot: (MetricId, Slot), what: Since) {
    let noted = slots.entry(slot).or_insert(what);
    if what == Since::Newer {
        *noted = what;
    }
}
