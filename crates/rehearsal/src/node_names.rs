//! Which names the nodes must know at a moment, and which deletions each has followed.
//!
//! A name that a node created is in the tables within seconds, and known to each other node that reaches them a little later. A
//! deletion is followed as quickly. A node that did not reach the tables needs some time more.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::{
    node_metrics::{Number, name_of},
    truth::Truth,
};

/// Within this time a node that reaches the tables has followed what is in the log.
const FOLLOWED: Duration = Duration::from_secs(4);

/// The same, where it could not read the names at its start: it reads them again after half a minute.
const READ: Duration = Duration::from_secs(40);

/// Within this time a new name is in the tables and the log, where its node reaches them.
const LISTED: Duration = Duration::from_secs(6);

/// Within this time a node tries again to write names, where that has failed for a while.
const TRIED_AGAIN: Duration = Duration::from_secs(30);

/// Within this time a name is found that is in the tables and not in the log.
const FOUND: Duration = Duration::from_secs(700);

/// Whether a node has a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listing {
    Known,
    Unknown,
    Either,
}

/// A place of a node, as far as names go.
#[derive(Debug, Clone, Copy)]
struct Reach {
    /// Since when it runs and reaches the tables; `None` where it does not.
    since: Option<Duration>,
    /// Whether it has read the names of others.
    has_names: bool,
}

/// Names of several nodes.
#[derive(Debug)]
pub(crate) struct NamesTruth {
    places: Vec<Reach>,
    /// When a node first got points of a metric, since the latest deletion.
    sent: BTreeMap<(Number, usize), Duration>,
    /// Metrics that are in the tables for certain, and since when.
    listed: BTreeMap<Number, Duration>,
    /// Metrics that others may find late.
    found_at: BTreeMap<Number, Duration>,
    /// Metrics of nodes that may be in the tables and in no log: the node does not know that its name is there. Another node that starts
    /// meanwhile has the name from the tables, and does not log it.
    unlogged: BTreeSet<(Number, usize)>,
    /// The latest deletion.
    deleted: BTreeMap<Number, Duration>,
    /// The latest time that it may have, by the calendar that is furthest ahead.
    deleted_until: BTreeMap<Number, Duration>,
    /// Where a node may learn of it late, when all have.
    followed_at: BTreeMap<Number, Duration>,
    /// Metrics whose deletion failed half way, or that a node may bring back.
    is_any: BTreeSet<Number>,
    /// The latest deletion that other nodes may have missed or undone, as with a name that they were to write.
    undone: BTreeMap<Number, Duration>,
}

impl NamesTruth {
    pub(crate) fn new(count: usize) -> NamesTruth {
        NamesTruth {
            places: vec![Reach { since: None, has_names: false }; count],
            sent: BTreeMap::new(),
            listed: BTreeMap::new(),
            found_at: BTreeMap::new(),
            unlogged: BTreeSet::new(),
            deleted: BTreeMap::new(),
            deleted_until: BTreeMap::new(),
            followed_at: BTreeMap::new(),
            is_any: BTreeSet::new(),
            undone: BTreeMap::new(),
        }
    }

    /// A node runs and reaches the tables at this moment, or not.
    pub(crate) fn note(&mut self, place: usize, reaches: bool, now: Duration) {
        let reach = &mut self.places[place];
        if !reaches {
            // Names that it wrote to the tables, and not to the log any more.
            if let Some(since) = reach.since.take() {
                let is_new =
                    |((_, of), sent): &(&(Number, usize), &Duration)| *of == place && now < since.max(**sent) + LISTED;
                self.unlogged.extend(self.sent.iter().filter(is_new).map(|(one, _)| *one));
            }
            return;
        }
        let since = *reach.since.get_or_insert(now);
        reach.has_names |= since + READ <= now;
        for (&(metric, _), sent) in self.sent.iter().filter(|((_, of), _)| *of == place) {
            if since.max(*sent) + LISTED <= now {
                self.listed.entry(metric).or_insert(now);
            }
            if since.max(*sent) + TRIED_AGAIN + LISTED <= now {
                self.unlogged.remove(&(metric, place));
            }
        }
    }

    /// A node that writes these names to the tables does not learn that they are there.
    pub(crate) fn are_unlogged(&mut self, place: usize, unregistered: &BTreeSet<String>) {
        let of_place = self.sent.keys().filter(|(metric, of)| *of == place && unregistered.contains(&name_of(*metric)));
        self.unlogged.extend(of_place);
    }

    /// A node went on alone for so long, and the others did so behind it: what they changed meanwhile it has still to read.
    pub(crate) fn went_alone(&mut self, place: usize, ahead: Duration, now: Duration) {
        let reach = &mut self.places[place];
        if FOLLOWED < ahead && reach.since.is_some() {
            reach.since = Some(now);
        }
    }

    /// A node starts. `is_new` says that its folder is empty.
    pub(crate) fn started(&mut self, place: usize, is_new: bool, reaches: bool, now: Duration) {
        let reach = &mut self.places[place];
        reach.since = reaches.then_some(now);
        // It reads all names at its start, where it can.
        reach.has_names = reaches || reach.has_names && !is_new;
    }

    /// A node ends. `is_gone` says that its folder is empty afterwards: another node is there. `has_logged` that its new names are in the
    /// log. Otherwise some may be in the tables alone, where others find them when they read all names. `unregistered` names are in neither.
    pub(crate) fn ended(
        &mut self,
        place: usize,
        is_gone: bool,
        has_logged: bool,
        unregistered: &BTreeSet<String>,
        now: Duration,
    ) {
        self.places[place].since = None;
        for &(metric, _) in self.sent.keys().filter(|(_, of)| *of == place) {
            if !unregistered.contains(&name_of(metric)) {
                self.listed.entry(metric).or_insert(if has_logged { now } else { now + FOUND });
            }
        }
        if is_gone {
            let unlogged: Vec<Number> = self.unlogged.iter().filter(|(_, of)| *of == place).map(|one| one.0).collect();
            unlogged.into_iter().for_each(|metric| self.is_found_at(metric, now + FOUND));
            self.unlogged.retain(|(_, of)| *of != place);
            self.places[place].has_names = false;
            self.sent.retain(|(_, of), _| *of != place);
        }
    }

    pub(crate) fn sent(&mut self, place: usize, metric: Number, now: Duration) {
        self.sent.entry((metric, place)).or_insert(now);
    }

    /// A metric is deleted. `is_any` says that it may be there all the same.
    pub(crate) fn delete(&mut self, metric: Number, now: Duration, is_any: bool) {
        self.sent.retain(|(of, _), _| *of != metric);
        self.listed.remove(&metric);
        self.deleted.insert(metric, now);
        self.deleted_until.insert(metric, now);
        self.followed_at.remove(&metric);
        self.found_at.remove(&metric);
        self.unlogged.retain(|(of, _)| *of != metric);
        if is_any {
            self.is_any.insert(metric);
            self.undone.insert(metric, now);
        } else {
            self.is_any.remove(&metric);
        }
    }

    /// The deletion of this moment may have a time up to this one.
    pub(crate) fn is_deleted_until(&mut self, metric: Number, until: Duration) {
        self.deleted_until.insert(metric, until);
    }

    /// All nodes have followed the deletion of this moment at that time.
    pub(crate) fn is_followed_at(&mut self, metric: Number, at: Duration) {
        self.followed_at.insert(metric, at);
    }

    /// Names of this moment are in the log where nodes look for them at that time.
    pub(crate) fn is_found_at(&mut self, metric: Number, at: Duration) {
        let late = self.found_at.entry(metric).or_default();
        *late = (*late).max(at);
    }

    /// A calendar is set at this moment: names that may not be in the log yet are there where nodes look for them at that time.
    pub(crate) fn are_found_at(&mut self, at: Duration, now: Duration) {
        let since = |place: usize| self.places[place].since.unwrap_or(now);
        let is_new = |&(&(_, place), sent): &(&(Number, usize), &Duration)| now < since(place).max(*sent) + LISTED;
        let new: Vec<Number> = self.sent.iter().filter(is_new).map(|(&(metric, _), _)| metric).collect();
        new.into_iter().for_each(|metric| self.is_found_at(metric, at));
    }

    /// Whether another node than this one has created a metric within the last seconds: it may write the name, or say so in the log, after
    /// a deletion. One that does not reach the tables cannot tell a deletion in the second of its creation from one before it.
    pub(crate) fn is_fresh(&self, place: usize, metric: Number, (now, recent): (Duration, Duration)) -> bool {
        let is_fresh = |(&(of, other), sent): (&(Number, usize), &Duration)| {
            let is_new = match self.places[other].since {
                Some(since) => now < since.max(*sent) + LISTED + recent,
                // The deletion began up to two seconds ago.
                None => now.as_secs() <= sent.as_secs() + 2,
            };
            of == metric && other != place && is_new
        };
        // What undid a deletion may undo one that comes just behind it, too.
        let is_undone = self.undone.get(&metric).is_some_and(|at| now < *at + LISTED + recent);
        is_undone || self.sent.iter().any(is_fresh)
    }

    /// Whether a metric may be there although it was deleted.
    pub(crate) fn may_be_back(&self, metric: Number) -> bool {
        self.is_any.contains(&metric)
    }

    pub(crate) fn set_may_be_back(&mut self, metric: Number) {
        self.is_any.insert(metric);
    }

    /// The metrics whose latest deletion a node may not have followed.
    pub(crate) fn unfollowed(&self, place: usize, now: Duration) -> Vec<Number> {
        self.deleted.keys().copied().filter(|&metric| !self.has_followed(place, metric, now)).collect()
    }

    pub(crate) fn deleted_until(&self, metric: Number) -> Option<Duration> {
        self.deleted_until.get(&metric).copied()
    }

    /// Whether a node has followed the latest deletion of a metric.
    pub(crate) fn has_followed(&self, place: usize, metric: Number, now: Duration) -> bool {
        let Some(&deleted) = self.deleted.get(&metric) else { return true };
        if self.followed_at.get(&metric).is_some_and(|at| now < *at) {
            return false;
        }
        // The deletion waited for those that reached the tables meanwhile.
        self.places[place].since.is_some_and(|since| since + FOLLOWED <= now || since < deleted)
    }

    /// Whether a node has a metric.
    pub(crate) fn listing(&self, place: usize, metric: Number, truth: &Truth, now: Duration) -> Listing {
        if self.is_any.contains(&metric) || truth.has_ghosts(metric) {
            return Listing::Either;
        }
        let reach = &self.places[place];
        let follows = |at: Duration| reach.since.is_some_and(|since| since.max(at) + FOLLOWED <= now);
        if !truth.has(metric) {
            let is_gone = self.deleted.get(&metric).is_none_or(|at| follows(*at))
                && self.followed_at.get(&metric).is_none_or(|at| *at <= now);
            return if is_gone { Listing::Unknown } else { Listing::Either };
        }
        let is_unlogged = self.unlogged.iter().any(|(of, _)| *of == metric);
        if is_unlogged || self.found_at.get(&metric).is_some_and(|at| now < *at) {
            return Listing::Either;
        }
        let is_known = self.listed.get(&metric).is_some_and(|at| reach.has_names && follows(*at));
        if is_known { Listing::Known } else { Listing::Either }
    }
}
