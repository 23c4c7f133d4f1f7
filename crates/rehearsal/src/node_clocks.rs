//! How far the calendars of nodes are apart, where they are set while nodes run, and what that leaves open.
//!
//! Nodes write by the calendar that is furthest ahead, where that is more than some seconds. They know it from heartbeats: for some seconds
//! after a calendar is set, each goes by what it knew.

use std::time::Duration;

use metric::Timestamp;

use crate::machine::moved;

/// Within this time after a calendar was set all nodes have read a heartbeat that says so.
const KNOWN: Duration = Duration::from_secs(13);

/// A deletion or a new name of a time before that is found within this time: a poll looks minutes back once a minute.
pub(crate) const FOUND_LATE: Duration = Duration::from_secs(75);

/// A calendar that is ahead by so little is not followed.
const NEAR: i64 = 10;

/// What a node stored within this time before another one's deletion may survive that.
pub(crate) const RECENT: Duration = Duration::from_secs(17);

/// The calendars of all nodes.
#[derive(Debug)]
pub(crate) struct NodeClocks {
    /// The latest time that any calendar has shown.
    furthest: Duration,
    unsteady_until: Duration,
    /// Nodes whose calendar was set while they were down.
    are_set: Vec<bool>,
}

impl NodeClocks {
    pub(crate) fn new(count: usize, now: Duration) -> NodeClocks {
        NodeClocks { furthest: now, unsteady_until: Duration::ZERO, are_set: vec![false; count] }
    }

    /// The calendar of a node is set.
    pub(crate) fn set(&mut self, place: usize, is_down: bool, now: Duration) {
        match is_down {
            true => self.are_set[place] = true,
            false => self.unsteady_until = now + KNOWN,
        }
    }

    /// A node starts.
    pub(crate) fn started(&mut self, place: usize, now: Duration) {
        if std::mem::take(&mut self.are_set[place]) {
            self.unsteady_until = now + KNOWN;
        }
    }

    /// Calendars are so many seconds wrong.
    pub(crate) fn note(&mut self, skews: &[i64], now: Duration) {
        let ahead = skews.iter().copied().max().unwrap_or(0);
        self.furthest = self.furthest.max(moved(now, ahead));
    }

    pub(crate) fn is_unsteady(&self, now: Duration) -> bool {
        now < self.unsteady_until
    }

    /// The latest time that a deletion may have now.
    pub(crate) fn latest(&self, now: Duration) -> Duration {
        self.furthest.max(now)
    }

    /// The earliest time that a deletion of a node may have now, Unix seconds. Its own calendar, and the one of others that is furthest ahead, are so
    /// many seconds wrong.
    pub(crate) fn earliest(&self, own: i64, others: Option<i64>, now: Duration) -> Timestamp {
        let followed = others.filter(|_| !self.is_unsteady(now)).map_or(own, |others| own.max(others - NEAR));
        // The deletion began up to two seconds ago.
        now.as_secs() as Timestamp + followed - 3
    }
}
