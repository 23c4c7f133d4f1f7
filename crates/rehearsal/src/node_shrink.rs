//! The fewest steps on several nodes that still fail.

use crate::{
    Work,
    node_steps::{Meanwhile, NodeStep, NodesScenario},
};

impl NodesScenario {
    /// The fewest steps found that still fail in the same way, performed so, in one of so many attempts, and how.
    pub fn shrink(
        mut self,
        attempts: usize,
        perform: fn(&NodesScenario) -> Result<Work, String>,
    ) -> (NodesScenario, Option<String>) {
        let mut error = (0..attempts).find_map(|_| perform(&self).err());
        let way = error.as_deref().map(way_of);
        let fails = |scenario: &NodesScenario| {
            let failures = (0..attempts).filter_map(|_| perform(scenario).err());
            failures.into_iter().find(|error| Some(way_of(error)) == way)
        };
        for size in [16, 4, 1, 1] {
            let mut place = 0;
            while error.is_some() && place < self.steps.len() {
                let mut fewer = self.clone();
                fewer.steps.drain(place..(place + size).min(self.steps.len()));
                match fails(&fewer) {
                    Some(found) => (self, error) = (fewer, Some(found)),
                    None => place += size,
                }
            }
        }
        let mut step = 0;
        while error.is_some() && step < self.steps.len() {
            let mut point = 0;
            loop {
                let mut fewer = self.clone();
                let (NodeStep::Send(_, points) | NodeStep::FlushWhile(.., Meanwhile::Flush(points))) =
                    &mut fewer.steps[step]
                else {
                    break;
                };
                if points.len() <= point {
                    break;
                }
                points.remove(point);
                match fails(&fewer) {
                    Some(found) => (self, error) = (fewer, Some(found)),
                    None => point += 1,
                }
            }
            step += 1;
        }
        (self, error)
    }
}

/// In which way a scenario fails, without names, times and numbers.
fn way_of(error: &str) -> &'static str {
    let ways = ["is known although", "is not known", "is NaN, expected", "expected NaN", ", expected", "names"];
    ways.into_iter().find(|way| error.contains(way)).unwrap_or_default()
}
