//! What happens to several nodes besides points, and what is noted of it: their ways to the tables, their calendars, and their rules.

use std::time::Duration;

use metric::Aggregation;
use store_cassandra::{Fate, HIDES_AHEAD};

use crate::{
    machine::rules,
    network::TablesWay,
    node_asks::{note_split, unregistered},
    node_clocks::FOUND_LATE,
    node_steps::{LETTERS, SentPoint},
    nodes::{MET, Nodes, READ_OF, WRITTEN},
};

/// Rules are in force within this time, where nodes reach the tables: points under those before are stored by then.
const IN_FORCE: Duration = Duration::from_secs(60);

/// So long a deletion hides what nodes write that have not read of it.
const HIDDEN: Duration = Duration::from_secs(HIDES_AHEAD.as_secs() + 6);

impl Nodes {
    /// Sets the way of a node to the tables. Where names come and go, one that was cut off and gets through in part may store points that it
    /// would lose to a deletion: that way is left out.
    pub(crate) fn set_tables(&mut self, place: usize, way: TablesWay) {
        self.fade();
        let before = self.network.tables_way(place);
        let was_cut_off = self.is_cut_off(place);
        self.network.set_tables(place, way);
        if self.names.is_some() && was_cut_off && way != TablesWay::UP && !self.is_cut_off(place) {
            self.network.set_tables(place, before);
        }
        self.note_names(place);
        self.note_unlogged(place);
    }

    /// Where a node writes nothing to the tables, no other one reads of the deletions that just failed there.
    pub(crate) fn note_unlogged(&mut self, place: usize) {
        let way = self.network.tables_way(place);
        if way.writes == Fate::Refused && way.one_in == 1 {
            self.are_unlogged(place);
        }
    }

    /// The same of a node that ends.
    pub(crate) fn are_unlogged(&mut self, place: usize) {
        let now = self.now;
        self.failed_deletions.retain(|(.., at)| now < *at + READ_OF);
        let Some(names) = &mut self.names else { return };
        for &(_, metric, at) in self.failed_deletions.iter().filter(|(of, ..)| *of == place) {
            names.is_followed_at(metric, at + HIDDEN);
        }
    }

    /// Nodes whose row may be absent or old are in trouble for a while after the tables are there again.
    pub(crate) fn trouble(&mut self, place: usize) {
        self.note_names(place);
        if self.network.tables_way(place) != TablesWay::UP && self.network.alive(place).is_some() {
            self.unseen_until[place] = self.now + MET;
        }
        // While one of two that have not met is cut off from the tables, they do not meet.
        for other in 0..self.machines.len() {
            let is_cut_off = [place, other].iter().any(|node| self.network.tables_way(*node) != TablesWay::UP);
            let until = &mut self.unmet_until[place][other];
            if is_cut_off && self.now < *until {
                *until = (*until).max(self.now + MET);
            }
        }
        if self.network.has_row(place) {
            let of_place = self.unmet_until.iter_mut().map(|unmet| &mut unmet[place]);
            of_place.filter(|until| **until == Duration::MAX).for_each(|until| *until = self.now + MET);
        }
    }

    /// Sets the calendar of a node, while it runs or is down.
    pub(crate) fn set_calendar(&mut self, place: usize, seconds: i64) {
        let alive = self.network.alive(place);
        if let Some(alive) = &alive {
            alive.life.jump(seconds - self.skews[place]);
        }
        self.note_clocks();
        self.skews[place] = seconds;
        if let Some(clocks) = &mut self.clocks {
            clocks.set(place, alive.is_none(), self.now);
        }
        if let Some(names) = &mut self.names {
            names.are_found_at(self.now + FOUND_LATE, self.now);
        }
        self.note_clocks();
    }

    pub(crate) fn note_clocks(&mut self) {
        if let Some(clocks) = &mut self.clocks {
            clocks.note(&self.skews, self.now);
        }
    }

    /// Changes the rules of a node.
    pub(crate) fn set_rules(&mut self, place: usize, number: usize) {
        self.machines[place].rules = number;
        (self.have_rules_changed, self.alike_since) = (true, None);
        if let Some(alive) = self.network.alive(place) {
            let ingest = alive.life.node.ingest.clone();
            // It waits for points under the rules before, which the tables may not take now.
            alive.life.run("a change of rules", async move {
                tokio::spawn(async move { ingest.set_rules(rules(number).clone()).await });
                tokio::time::sleep(WRITTEN).await;
            });
        }
        self.pass(WRITTEN);
    }

    /// Notes which metrics have points that a node does not know of.
    pub(crate) fn note_split(&mut self) {
        if !self.have_rules_changed {
            return;
        }
        for place in 0..self.machines.len() {
            if let Some(alive) = self.network.alive(place) {
                note_split(&alive.life, &mut self.truth, LETTERS * Aggregation::ALL.len());
            }
        }
    }

    /// A node gets points of these metrics. Where rules differ then, or a node that is down has points under earlier ones, rows of the later
    /// retention may lack points that are stored under the earlier one.
    pub(crate) fn note_mixed(&mut self, points: &[SentPoint]) {
        if !self.have_rules_changed {
            return;
        }
        let holders = self.truth.holders();
        let is_down =
            |place: usize| self.network.alive(place).is_none() && holders.contains(&self.network.number(place));
        let has_earlier = (0..self.machines.len()).any(is_down);
        if has_earlier || self.rules().is_none() {
            points.iter().for_each(|point| self.truth.note_split(point.metric));
        }
    }

    /// The rules of all nodes, where these are in force on all.
    pub(crate) fn rules(&mut self) -> Option<usize> {
        let number = self.machines[0].rules;
        if !self.have_rules_changed {
            return Some(number);
        }
        let is_alike = |place: usize| {
            let is_down = self.network.alive(place).is_none();
            self.machines[place].rules == number && (is_down || self.network.tables_way(place) == TablesWay::UP)
        };
        if !(0..self.machines.len()).all(is_alike) {
            self.alike_since = None;
            return None;
        }
        let since = *self.alike_since.get_or_insert(self.now);
        (since + IN_FORCE <= self.now).then_some(number)
    }

    /// Notes whether a node follows names.
    pub(crate) fn note_names(&mut self, place: usize) {
        let (alive, way) = (self.network.alive(place), self.network.tables_way(place));
        let Some(names) = &mut self.names else { return };
        names.note(place, alive.is_some() && way == TablesWay::UP, self.now);
        if let Some(alive) = alive.filter(|_| way.writes == Fate::Lost) {
            names.are_unlogged(place, &unregistered(&alive.life));
        }
    }
}
