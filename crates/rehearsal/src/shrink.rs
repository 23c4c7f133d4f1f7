//! The fewest steps, faults and points that still fail.

use crate::{Scenario, Sent, Step, Work};

impl Scenario {
    /// The fewest steps, faults and points found that still fail, performed so, in one of so many attempts, and how. For the author
    /// of the test that a failing seed becomes.
    pub fn shrink(
        mut self,
        attempts: usize,
        perform: fn(&Scenario) -> Result<Work, String>,
    ) -> (Scenario, Option<String>) {
        let fails = |scenario: &Scenario| (0..attempts).find_map(|_| perform(scenario).err());
        let mut error = fails(&self);
        let Some(first) = error.clone() else { return (self, None) };
        for size in [16, 4, 2, 1, 1] {
            for fewer in Part::ALL {
                let mut place = 0;
                while place < fewer.count(&self) {
                    let smaller = fewer.without(&self, place, size);
                    let count = fewer.count(&self);
                    if let Some(found) = fails(&smaller).filter(|found| kind(found) == kind(&first)) {
                        (self, error) = (smaller, Some(found));
                    }
                    // Faults that are gone still have their places.
                    if fewer.count(&self) == count {
                        place += size;
                    }
                }
            }
        }
        (self, error)
    }
}

/// Texts of errors of different kinds: fewer steps may fail for another reason.
const KINDS: [&str; 5] = ["the time is", "has the policy", "expected one of", "counted as rejected", "panicked"];

fn kind(error: &str) -> Option<usize> {
    KINDS.iter().position(|kind| error.contains(kind))
}

/// What a scenario is made smaller by.
#[derive(Debug, Clone, Copy)]
enum Part {
    Steps,
    Names,
    Faults,
    Points,
}

impl Part {
    const ALL: [Part; 4] = [Part::Steps, Part::Names, Part::Faults, Part::Points];

    fn names(scenario: &Scenario) -> Vec<String> {
        let mut names: Vec<String> = sends(scenario).map(|sent| sent.name.clone()).collect();
        names.sort();
        names.dedup();
        names
    }

    fn count(self, scenario: &Scenario) -> usize {
        match self {
            Part::Steps | Part::Faults => scenario.steps.len(),
            Part::Names => Part::names(scenario).len(),
            Part::Points => sends(scenario).count(),
        }
    }

    fn without(self, scenario: &Scenario, place: usize, size: usize) -> Scenario {
        let mut fewer = scenario.clone();
        let gone = place..place + size;
        match self {
            Part::Steps => _ = fewer.steps.drain(place..(place + size).min(scenario.steps.len())),
            Part::Faults => fewer.steps.iter_mut().skip(place).take(size).for_each(|planned| planned.plan = None),
            Part::Names => {
                let names: Vec<String> = Part::names(scenario).into_iter().skip(place).take(size).collect();
                retain(&mut fewer, |sent| !names.contains(&sent.name));
            }
            Part::Points => {
                let mut count = 0..;
                retain(&mut fewer, |_| !gone.contains(&count.next().expect("it has no end")));
            }
        }
        fewer
    }
}

fn sends(scenario: &Scenario) -> impl Iterator<Item = &Sent> {
    let connections = scenario.steps.iter().filter_map(|planned| match &planned.step {
        Step::Send(connections) => Some(connections),
        _ => None,
    });
    connections.flatten().flatten()
}

fn retain(scenario: &mut Scenario, mut is_kept: impl FnMut(&Sent) -> bool) {
    for planned in &mut scenario.steps {
        if let Step::Send(connections) = &mut planned.step {
            connections.iter_mut().for_each(|connection| connection.retain(&mut is_kept));
            connections.retain(|connection| !connection.is_empty());
        }
    }
}
