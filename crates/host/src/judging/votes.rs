//! What incoming points say about a clock in doubt.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// How many batches must agree, and for how long.
#[derive(Debug, Clone, Copy)]
struct Rule {
    /// Batches that must agree, at least.
    batches: u32,
    /// How long they must agree, at least.
    span: Duration,
    /// How many times as many they must be as those that disagree, at least.
    lead: u32,
    /// Votes older than this are forgotten: a relay that drains an old queue says something about the past first.
    fade: Duration,
}

/// Of senders of many points.
const QUICK: Rule = Rule { batches: 20, lead: 1, span: Duration::from_secs(30), fade: Duration::from_secs(300) };

/// Of a few that send once a minute: fewer batches, over a longer time.
const SLOW: Rule = Rule { batches: 6, lead: 3, span: Duration::from_secs(600), fade: Duration::from_secs(3600) };

/// Senders that are counted separately. Further ones count as one.
const SENDERS: usize = 1024;

/// Which of two times points agree with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Candidate {
    /// The machine's clock.
    Clock,
    /// The time before the jump, continued by the stopwatch.
    Before,
}

/// Votes of the last while.
#[derive(Debug)]
pub(super) struct Votes {
    quick: Tally,
    slow: Tally,
}

impl Default for Votes {
    fn default() -> Votes {
        Votes { quick: Tally::of(QUICK), slow: Tally::of(SLOW) }
    }
}

impl Votes {
    /// Counts the vote of a batch. Returns the candidate that most senders and most batches agree with, once they are
    /// enough.
    pub(super) fn count(&mut self, sender: u64, candidate: Candidate, now: Instant) -> Option<Candidate> {
        let (quick, slow) = (self.quick.count(sender, candidate, now), self.slow.count(sender, candidate, now));
        quick.or(slow)
    }

    /// Batches of the last hour that agree with the clock, and with the time before.
    pub(super) fn batches(&self) -> [u32; 2] {
        self.slow.batches()
    }
}

/// Votes since one moment.
#[derive(Debug)]
struct Tally {
    rule: Rule,
    began: Option<Instant>,
    senders: HashMap<u64, [u32; 2]>,
}

impl Tally {
    fn of(rule: Rule) -> Tally {
        Tally { rule, began: None, senders: HashMap::new() }
    }

    fn count(&mut self, sender: u64, candidate: Candidate, now: Instant) -> Option<Candidate> {
        let since = |began: Instant| now.saturating_duration_since(began);
        if self.began.is_none_or(|began| self.rule.fade < since(began)) {
            *self = Tally { began: Some(now), ..Tally::of(self.rule) };
        }
        let is_known = self.senders.contains_key(&sender);
        let sender = if is_known || self.senders.len() < SENDERS { sender } else { u64::MAX };
        self.senders.entry(sender).or_default()[candidate as usize] += 1;
        let is_long_enough = self.began.is_some_and(|began| self.rule.span <= since(began));
        if is_long_enough { self.majority() } else { None }
    }

    fn batches(&self) -> [u32; 2] {
        self.senders.values().fold([0, 0], |all, votes| [all[0] + votes[0], all[1] + votes[1]])
    }

    /// More than half of the batches and more than half of the senders. One sender with many connections, or one
    /// with many batches, does not decide against the others alone.
    fn majority(&self) -> Option<Candidate> {
        let batches = self.batches();
        if batches[0] + batches[1] < self.rule.batches {
            return None;
        }
        let for_clock = self.senders.values().filter(|votes| votes[1] < votes[0]).count();
        let for_before = self.senders.values().filter(|votes| votes[0] < votes[1]).count();
        let lead = self.rule.lead;
        if batches[1] < batches[0] && lead * batches[1] <= batches[0] && for_before < for_clock {
            return Some(Candidate::Clock);
        }
        (batches[0] < batches[1] && lead * batches[0] <= batches[1] && for_clock < for_before)
            .then_some(Candidate::Before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Candidate::{Before, Clock};

    /// Votes of (sender, candidate), one each second, twenty rounds; the last answer.
    fn vote(senders: &[(u64, Candidate)], rounds: u64) -> Option<Candidate> {
        let (mut votes, began) = (Votes::default(), Instant::now());
        let mut last = None;
        for round in 0..rounds {
            for &(sender, candidate) in senders {
                last = votes.count(sender, candidate, began + Duration::from_secs(round));
            }
        }
        last
    }

    #[test]
    fn one_sender_decides_where_there_is_no_other_after_half_a_minute() {
        assert_eq!(vote(&[(1, Clock)], 30), None, "29 seconds");
        assert_eq!(vote(&[(1, Clock)], 31), Some(Clock));
        assert_eq!(vote(&[(1, Before)], 31), Some(Before));
    }

    #[test]
    fn a_few_batches_decide_nothing_however_long_they_take() {
        let (mut votes, began) = (Votes::default(), Instant::now());
        for round in 0..19 {
            assert_eq!(votes.count(1, Clock, began + Duration::from_secs(10 * round)), None);
        }
        assert_eq!(votes.count(1, Clock, began + Duration::from_secs(190)), Some(Clock));
    }

    #[test]
    fn most_senders_and_most_batches_must_agree() {
        assert_eq!(vote(&[(1, Clock), (2, Clock), (3, Before)], 40), Some(Clock));
        assert_eq!(vote(&[(1, Clock), (2, Before)], 40), None);
        assert_eq!(vote(&[(1, Clock), (1, Clock), (1, Clock), (2, Before), (3, Before)], 40), None, "one is loud");
    }

    #[test]
    fn old_votes_fade() {
        let (mut votes, began) = (Votes::default(), Instant::now());
        for round in 0..1000 {
            votes.count(1, Before, began + Duration::from_millis(round));
        }
        let later = began + QUICK.fade + Duration::from_secs(2);
        let last = (0..40).map(|round| votes.count(1, Clock, later + Duration::from_secs(round))).last();
        assert_eq!(last, Some(Some(Clock)));
    }
}
