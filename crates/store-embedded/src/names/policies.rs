//! The policies of the metrics table by their numbers, also the numbers whose records the log has lost.

use std::collections::HashMap;

use metric::Policy;

use super::record::{POLICY, encode_policy};
use crate::record_log::Records;

/// Every policy by its number. A number is never given again: where the record of a policy is lost, metrics still name it.
#[derive(Debug, Clone, Default)]
pub(super) struct Policies {
    all: Vec<Option<Policy>>,
    /// How many of them the log has.
    logged: usize,
}

impl Policies {
    /// Those of the log; its metrics name numbers below `end`.
    pub(super) fn logged(policies: &HashMap<u16, Policy>, end: usize) -> Policies {
        let end = policies.keys().max().map_or(0, |last| usize::from(*last) + 1).max(end);
        let all: Vec<Option<Policy>> = (0..end).map(|number| policies.get(&(number as u16)).cloned()).collect();
        Policies { logged: all.len(), all }
    }

    /// The number of a policy, which is given one when it is new.
    pub(super) fn number(&mut self, policy: &Policy) -> u16 {
        let known = self.all.iter().position(|known| known.as_ref().is_some_and(|known| known.is_same(policy)));
        let number = known.unwrap_or_else(|| {
            self.all.push(Some(policy.clone()));
            self.all.len() - 1
        });
        u16::try_from(number).expect("schema files have fewer than 65,536 distinct policies")
    }

    /// The policy of a number, unless its record is lost.
    pub(super) fn get(&self, number: u16) -> Option<&Policy> {
        self.all.get(usize::from(number))?.as_ref()
    }

    /// Says what a policy was whose record is lost.
    pub(super) fn set_lost(&mut self, number: u16, policy: &Policy) {
        if let Some(lost @ None) = self.all.get_mut(usize::from(number)) {
            *lost = Some(policy.clone());
            // The next sync writes it, and those behind it again.
            self.logged = self.logged.min(usize::from(number));
        }
    }

    /// How many numbers are given.
    pub(super) fn end(&self) -> usize {
        self.all.len()
    }

    /// The records of all policies.
    pub(super) fn records(&self) -> Records {
        self.records_from(0)
    }

    /// The records of those that the log does not have.
    pub(super) fn unwritten(&self) -> Records {
        self.records_from(self.logged)
    }

    fn records_from(&self, first: usize) -> Records {
        let mut records = Records::default();
        for (number, policy) in self.all.iter().enumerate().skip(first) {
            if let Some(policy) = policy {
                records.push(POLICY, &encode_policy(number as u16, policy));
            }
        }
        records
    }

    /// Takes note that the log has those below `end`. Returns the ones that it had not.
    pub(super) fn wrote(&mut self, end: usize) -> impl Iterator<Item = (u16, Policy)> + '_ {
        let first = self.logged;
        self.logged = first.max(end);
        let new = self.all.iter().enumerate().take(end).skip(first);
        new.filter_map(|(number, policy)| Some((number as u16, policy.clone()?)))
    }
}
