//! What is held in memory: the open points of every metric, and those that are on their way to the store.

use std::{collections::HashMap, sync::Arc};

use carbon::RejectReason;
use downsample::{PendingPoints, SortedPoints, Stored, WriterPartials};
use metadata::PolicyId;
use metric::{MetricId, Policy, Slot, Timestamp};

use crate::{
    journal::NumberedPoint,
    owns::{OwnRef, Owns},
    policies::Hot,
};

/// The policy of a number that no metric has: the table of policies never grows so long.
pub(crate) const NO_POLICY: PolicyId = PolicyId::MAX;

/// One metric. A million metrics have a million of these: forty-eight bytes.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) open: PendingPoints,
    /// What this writer has stored of it.
    own: OwnRef,
    pub(crate) policy: PolicyId,
    /// Set when the blacklist or the whitelist turned against a metric that exists.
    pub(crate) refused: Option<Refused>,
    /// Whether points of it were taken out to be stored since the start. Until then a metric of a store that
    /// others write too may be theirs alone, and is left to the policy they keep it by.
    received: bool,
}

/// Which list refuses a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    Blacklisted,
    NotWhitelisted,
}

impl From<Refused> for RejectReason {
    fn from(refused: Refused) -> RejectReason {
        match refused {
            Refused::Blacklisted => RejectReason::Blacklisted,
            Refused::NotWhitelisted => RejectReason::NotWhitelisted,
        }
    }
}

/// The points of one metric on their way to the store.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) metric: MetricId,
    pub(crate) policy: PolicyId,
    pub(crate) open: PendingPoints,
    /// What this writer had stored before, where that is known.
    pub(crate) own: Option<WriterPartials>,
    /// Whether what is stored afterwards may be remembered: not when other parts, under other policies, are stored
    /// between this one and what came after it.
    pub(crate) is_latest: bool,
}

impl Taken {
    /// How far this writer's rows reached before.
    pub(crate) fn stored_before(&self) -> Stored {
        self.own.as_ref().map_or(Stored::Unknown, WriterPartials::stored)
    }
}

/// All metrics, by number. One lock guards it: a batch of points pays for it once.
#[derive(Debug)]
pub(crate) struct Held {
    /// Whether nobody else writes the store: what is not stored by this writer is not stored then.
    is_alone: bool,
    pub(crate) states: Vec<State>,
    owns: Owns,
    pub(crate) flushing: HashMap<MetricId, Arc<Taken>>,
    /// Where others write too: metrics that were received for the first time since this was looked at, and must be
    /// judged by the rules.
    pub(crate) newcomers: Vec<MetricId>,
}

impl Held {
    pub(crate) fn new(is_alone: bool) -> Held {
        Held { is_alone, states: Vec::new(), owns: Owns::default(), flushing: HashMap::new(), newcomers: Vec::new() }
    }

    /// Makes states up to and including `number`. `policy_of` tells the policy of each new one.
    /// `stored` says whether the store may hold something of them already.
    pub(crate) fn ensure(&mut self, number: MetricId, stored: bool, policy_of: impl Fn(MetricId) -> PolicyId) {
        let own = if stored { OwnRef::UNKNOWN } else { OwnRef::NOTHING };
        for next in (self.states.len() as u32..=number.0).map(MetricId) {
            self.states.push(State {
                open: PendingPoints::default(),
                own,
                policy: policy_of(next),
                refused: None,
                received: false,
            });
        }
    }

    /// A number that was reserved has a metric now: its state, if it has one already, gets that one's policy.
    pub(crate) fn begin(&mut self, number: MetricId, policy: PolicyId) {
        if let Some(state) = self.states.get_mut(number.index()).filter(|state| state.policy == NO_POLICY) {
            state.policy = policy;
        }
    }

    /// Takes points that the journal holds. Every number has a state. Returns by how many slots the memory
    /// held grew; a point that is refused goes to `refused` by its place.
    pub(crate) fn apply(
        &mut self,
        points: &[NumberedPoint],
        now: Timestamp,
        hot: &[Hot],
        refused: &mut Vec<(usize, RejectReason)>,
    ) -> usize {
        let mut grew = 0;
        self.judge(points, now, hot, refused, |open, slot, value| grew += open.push(slot, value));
        grew
    }

    /// Tells which points `apply` would refuse, and holds none.
    pub(crate) fn refuse(
        &mut self,
        points: &[NumberedPoint],
        now: Timestamp,
        hot: &[Hot],
        refused: &mut Vec<(usize, RejectReason)>,
    ) {
        self.judge(points, now, hot, refused, |_, _, _| ());
    }

    #[inline]
    fn judge(
        &mut self,
        points: &[NumberedPoint],
        now: Timestamp,
        hot: &[Hot],
        refused: &mut Vec<(usize, RejectReason)>,
        mut hold: impl FnMut(&mut PendingPoints, Slot, f64),
    ) {
        for (place, point) in points.iter().enumerate() {
            let state = &mut self.states[point.metric.index()];
            let policy = hot[usize::from(state.policy)];
            let age = now - i64::from(point.time);
            // The future is bounded by the same length as the past.
            if age <= i64::from(policy.finest) && age >= -i64::from(policy.longest) && state.refused.is_none() {
                hold(&mut state.open, point.time / policy.resolution, point.value);
            } else {
                let reason = match state.refused {
                    Some(refused) => refused.into(),
                    None if age > i64::from(policy.longest) => RejectReason::TooOld,
                    None if age < 0 => RejectReason::TooFarAhead,
                    // Too old for stage 0 only: the caller, who knows every stage, places it.
                    None => {
                        refused.push((place, RejectReason::TooOld));
                        continue;
                    }
                };
                refused.push((place, reason));
            }
        }
    }

    /// Puts a point into the finest coarser stage that still holds its time, if one does.
    pub(crate) fn apply_old(
        &mut self,
        point: &NumberedPoint,
        now: Timestamp,
        policies: &[Arc<Policy>],
    ) -> Option<usize> {
        let (stage, slot) = self.place_of_old(point, now, policies)?;
        Some(self.states[point.metric.index()].open.push_coarse(stage, slot, point.value))
    }

    /// The finest coarser stage that still holds a point's time, and the slot there.
    pub(crate) fn place_of_old(
        &self,
        point: &NumberedPoint,
        now: Timestamp,
        policies: &[Arc<Policy>],
    ) -> Option<(u8, Slot)> {
        let retention = &policies[usize::from(self.states[point.metric.index()].policy)].retention;
        let stage = retention.stage_holding(i64::from(point.time), now).filter(|&stage| stage > 0)?;
        Some((stage as u8, retention.stages()[stage].slot(i64::from(point.time))?))
    }

    /// Takes out what a metric holds, to be stored, unless an earlier part of it is still on its way.
    pub(crate) fn take(&mut self, number: MetricId, policies: &[Arc<Policy>]) -> Option<Arc<Taken>> {
        let state = &mut self.states[number.index()];
        if state.open.is_empty() || self.flushing.contains_key(&number) {
            return None;
        }
        if !state.received {
            state.received = true;
            if !self.is_alone {
                self.newcomers.push(number);
            }
        }
        let open = std::mem::take(&mut state.open);
        let own = self.owns.get(state.own, &policies[usize::from(state.policy)].retention);
        let taken = Arc::new(Taken { metric: number, policy: state.policy, open, own, is_latest: true });
        self.flushing.insert(number, taken.clone());
        Some(taken)
    }

    /// Takes out what a metric holds without having it on its way: the caller stores it before anything that is
    /// taken later.
    pub(crate) fn take_aside(&mut self, number: MetricId) -> Option<Arc<Taken>> {
        let state = &mut self.states[number.index()];
        if state.open.is_empty() {
            return None;
        }
        let open = std::mem::take(&mut state.open);
        Some(Arc::new(Taken { metric: number, policy: state.policy, open, own: None, is_latest: false }))
    }

    /// Lets go of what was taken: it is stored, and afterwards this writer has stored `own`.
    pub(crate) fn stored(&mut self, taken: &Taken, own: Option<&WriterPartials>, policies: &[Arc<Policy>]) {
        self.flushing.remove(&taken.metric);
        let state = &mut self.states[taken.metric.index()];
        // Given another policy meanwhile, what is stored was forgotten already.
        if state.policy == taken.policy {
            let coarse = policies[usize::from(taken.policy)].retention.stages().len() - 1;
            state.own = self.owns.set(state.own, own.filter(|_| taken.is_latest), coarse);
        }
    }

    /// Whether the rules of this node say how a metric is kept: not where others write the store too and no point
    /// of it came here.
    pub(crate) fn is_judged(&self, number: MetricId) -> bool {
        let state = &self.states[number.index()];
        self.is_alone || state.received || !state.open.is_empty()
    }

    /// Whether a metric, after `take` was tried, holds points: they wait for an earlier part that is still on
    /// its way.
    pub(crate) fn is_busy(&self, number: MetricId) -> bool {
        !self.states[number.index()].open.is_empty()
    }

    /// Gives a metric another policy. What it holds must have been taken before.
    pub(crate) fn set_policy(&mut self, number: MetricId, policy: PolicyId, policies: &[Arc<Policy>]) {
        let state = &mut self.states[number.index()];
        debug_assert!(state.open.is_empty(), "points held by one policy are not stored by another");
        if let Some(before) = policies.get(usize::from(state.policy)) {
            self.owns.forget(state.own, before.retention.stages().len() - 1);
        }
        state.policy = policy;
        // The new stages may share tables with the old ones.
        state.own = OwnRef::UNKNOWN;
    }

    /// What waits for a metric under this policy, in the order it came, the part that is on its way first.
    /// What came under another is counted in other slots: it is visible again once it is stored.
    pub(crate) fn waiting(&self, number: MetricId, policy: PolicyId) -> Waiting<'_> {
        // What another writer has stored is known to the store alone.
        let of_all = |this_writer| if self.is_alone { this_writer } else { Stored::Unknown };
        let Some(state) = self.states.get(number.index()) else {
            // Nothing came for it.
            return Waiting { all_writers: of_all(Stored::Nothing), ..Waiting::default() };
        };
        let taken = self.flushing.get(&number).filter(|taken| taken.policy == policy);
        let is_current = state.policy == policy;
        let this_writer = match taken {
            Some(taken) => taken.stored_before(),
            None if is_current => self.owns.stored(state.own),
            None => Stored::Unknown,
        };
        Waiting {
            taken: taken.map(|taken| &taken.open),
            open: (is_current && !state.open.is_empty()).then_some(&state.open),
            all_writers: of_all(this_writer),
            this_writer,
        }
    }
}

/// What waits in memory for one metric.
#[derive(Debug, Default)]
pub(crate) struct Waiting<'a> {
    pub(crate) taken: Option<&'a PendingPoints>,
    pub(crate) open: Option<&'a PendingPoints>,
    /// The rows of all writers, without what is on its way.
    pub(crate) all_writers: Stored,
    /// The rows of this writer, without what is on its way: later points all wait here, so that a reader is given
    /// them when the store is away.
    pub(crate) this_writer: Stored,
}

impl Waiting<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        self.taken.is_none() && self.open.is_none()
    }

    /// As the downsampler wants it.
    pub(crate) fn points(&self) -> SortedPoints {
        let parts: Vec<&PendingPoints> = self.taken.into_iter().chain(self.open).collect();
        SortedPoints::of(&parts)
    }

    /// The rows of this writer, if none of the waiting points may be in them: what is on its way may be stored by now.
    pub(crate) fn apart_from_points(&self) -> Stored {
        if self.taken.is_some() { Stored::Unknown } else { self.this_writer }
    }

    /// Lays the stage-0 points over `values`, whose first is of `first_slot`.
    pub(crate) fn overlay(&self, first_slot: Slot, values: &mut [f64]) {
        for open in self.taken.into_iter().chain(self.open) {
            for late in open.late().iter().filter(|late| late.stage == 0) {
                let place = late.slot.checked_sub(first_slot);
                if let Some(value) = place.and_then(|place| values.get_mut(place as usize)) {
                    *value = late.value;
                }
            }
            let (run_first, run) = open.run();
            let skip = first_slot.saturating_sub(run_first) as usize;
            let place = run_first.saturating_sub(first_slot) as usize;
            if skip >= run.len() || place >= values.len() {
                continue;
            }
            for (value, &held) in values[place..].iter_mut().zip(&run[skip..]) {
                if !held.is_nan() {
                    *value = held;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_as_small_as_a_million_of_them_must_be() {
        assert!(size_of::<State>() <= 48, "{}", size_of::<State>());
    }

    #[test]
    fn what_waits_under_another_policy_is_not_read_as_if_it_were_of_this_one() {
        let mut held = Held::new(true);
        held.ensure(MetricId(0), false, |_| 1);
        held.states[0].open.push(10, 1.0);
        let (same, other) = (held.waiting(MetricId(0), 1), held.waiting(MetricId(0), 0));
        assert_eq!((same.is_empty(), same.all_writers), (false, Stored::Nothing));
        assert_eq!((other.is_empty(), other.all_writers), (true, Stored::Unknown));
    }

    #[test]
    fn what_waits_is_laid_over_a_window_that_only_meets_it() {
        let mut open = PendingPoints::default();
        for slot in 10..20 {
            open.push(slot, f64::from(slot));
        }
        let waiting = Waiting { open: Some(&open), ..Waiting::default() };
        let mut window = [0.0; 4];
        waiting.overlay(8, &mut window);
        assert_eq!(window, [0.0, 0.0, 10.0, 11.0]);
        let mut window = [0.0; 4];
        waiting.overlay(18, &mut window);
        assert_eq!(window, [18.0, 19.0, 0.0, 0.0]);
        let mut window = [0.0; 2];
        waiting.overlay(30, &mut window);
        waiting.overlay(2, &mut window);
        assert_eq!(window, [0.0, 0.0]);
    }
}
