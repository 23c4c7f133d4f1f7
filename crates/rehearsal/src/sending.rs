//! Points sent to a node, and the rules by which it keeps them.

use std::{io::Write as _, time::Duration};

use carbon::{Decision, LineDecoder, Rules};
use host::Now;
use ingest::{Batch, Protocol};
use metadata::Registry;
use metric::{MetricId, Policy, Timestamp};

use crate::{
    Floor, Machine, Model, Sent,
    machine::{LISTED, Life, rules},
    model::Ticket,
};

/// Longer than a node takes to judge its metrics once it can.
const UNTIL_JUDGED: Duration = Duration::from_secs(5);

/// The batches of one step.
pub(crate) struct Sending<'a> {
    pub(crate) life: &'a Life,
    pub(crate) machine: &'a Machine,
    /// Whether the rules in force do not hold for the metrics that exist, because the clock is in doubt.
    pub(crate) are_rules_waiting: bool,
    /// Whether pages that cannot be read may hide metrics.
    pub(crate) may_miss_metrics: bool,
}

impl Sending<'_> {
    /// Sends lines of several connections at the same time. A point that is refused must be counted.
    pub(crate) fn send(&self, model: &mut Model, connections: &[Vec<Sent>]) -> Result<(), String> {
        let Sending { life, machine, .. } = *self;
        let truth = life.now() - machine.ahead;
        let judged = life.judged();
        let was_certain = judged.is_certain();
        let before = life.refused();
        let accepted = self.accept(connections, truth);
        // In doubt, the batch itself is evidence, and judged afterwards.
        let judged = if was_certain { judged } else { life.judged() };
        // The rules that waited come into force before its points or after them.
        let rules_end_waiting = self.are_rules_waiting && !was_certain && judged.is_certain();
        let (rules, listed) = (rules(machine.rules), rules(machine.rules | LISTED));
        let (mut tickets, mut refused) = (Vec::new(), 0);
        for connection in connections {
            if connections.len() == 1 {
                model.next_rank();
            }
            for sent in connection {
                let point = (sent.name.as_str(), truth - sent.age, sent.value);
                let is_either = rules_end_waiting && self.may_be_either(model, (rules, judged), point);
                match self.expected(model, (rules, judged), point) {
                    Some(_) if is_either => {}
                    // The list before may still be in force for it.
                    Some(_) if self.are_rules_waiting && policy_of(listed, &sent.name).is_none() => {}
                    Some(ticket) => tickets.push(ticket),
                    None => refused += 1,
                }
            }
        }
        if !accepted {
            return Ok(());
        }
        let counted = life.refused() - before;
        if counted != refused && !self.are_rules_waiting && !self.may_miss_metrics {
            return Err(format!("{counted} points are counted as rejected, expected {refused}"));
        }
        let floor = match machine.sync {
            ingest::Sync::Always => Floor::Durable,
            ingest::Sync::Every(_) => Floor::Acknowledged,
        };
        model.acknowledge(&tickets, floor);
        Ok(())
    }

    /// Has the node accept what all connections sent. Returns false where the process died meanwhile.
    fn accept(&self, connections: &[Vec<Sent>], truth: Timestamp) -> bool {
        let ingest = &self.life.node.ingest;
        let batches = connections.iter().map(|connection| lines_of(self.life, connection, truth));
        let accepted = self.life.run("accepting points", async {
            let accept = |mut batch| {
                let ingest = ingest.clone();
                tokio::spawn(async move { ingest.accept(&mut batch).await })
            };
            for task in batches.map(accept).collect::<Vec<_>>() {
                task.await.expect("accepting does not panic");
            }
        });
        accepted.is_some()
    }

    /// Whether a point goes to another stage under the rules that waited than under the policy of its metric. It is then sent
    /// under these rules, too, and neither is certain.
    fn may_be_either(&self, model: &mut Model, (rules, judged): (&Rules, Now), point: (&str, Timestamp, f64)) -> bool {
        let known = model.metrics.get(point.0).map(|metric| metric.policy.clone());
        let (Some(known), Some(coming)) = (known, policy_of(rules, point.0)) else { return false };
        let stage = |policy: &Policy| policy.retention.stage_holding(point.1, judged.low());
        let is_either = stage(&known) != stage(&coming);
        if is_either {
            model.send(&coming, judged, point);
        }
        is_either
    }

    /// What the model expects of a point. `None` where it is refused.
    fn expected(
        &self,
        model: &mut Model,
        (rules, judged): (&Rules, Now),
        point: (&str, Timestamp, f64),
    ) -> Option<Ticket> {
        let by_rules = policy_of(rules, point.0);
        let known = model.metrics.get(point.0).map(|metric| metric.policy.clone());
        if by_rules.is_none() && !(self.are_rules_waiting && known.is_some()) {
            return None;
        }
        let policy = known.or(by_rules)?;
        model.send(&policy, judged, point)
    }
}

/// A batch of the lines of a connection, whose ages count from `now`.
pub(crate) fn lines_of(life: &Life, connection: &[Sent], now: Timestamp) -> Batch {
    let mut lines = Vec::new();
    for sent in connection {
        writeln!(lines, "{} {} {}", sent.name, sent.value, now - sent.age).expect("a vector takes bytes");
    }
    let mut batch = life.node.ingest.batch(Protocol::LineTcp);
    let read = LineDecoder::new().decode(&lines, now, &mut batch);
    assert_eq!(read, lines.len(), "the lines are whole");
    batch
}

/// Waits until a node keeps all metrics by these rules. While points spill, metrics keep their policies.
pub(crate) async fn until_in_force(life: &Life, rules: &Rules, were_waiting: bool) {
    if were_waiting {
        tokio::time::sleep(UNTIL_JUDGED).await;
    }
    while !are_in_force(rules, &life.node.registry) {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Whether all metrics have their policies by these rules.
fn are_in_force(rules: &Rules, registry: &Registry) -> bool {
    let end = registry.read().end();
    (0..end.0).map(MetricId).all(|id| {
        let names = registry.read();
        let name = names.name(id);
        let expected = if name.is_empty() { None } else { policy_of(rules, name) };
        expected.is_none_or(|expected| registry.policy(names.policy_id(id)).is_same(&expected))
    })
}

/// The policy of a metric by the rules. `None` where a list refuses it: a metric that is there keeps the one that it has.
pub(crate) fn policy_of(rules: &Rules, name: &str) -> Option<Policy> {
    match rules.decide(name) {
        Decision::Keep(index) => Some(rules.policy(index).clone()),
        Decision::Blacklisted | Decision::NotWhitelisted => None,
    }
}
