//! Points to one of several nodes, its flushes, and its answers.

use std::{collections::BTreeSet, time::Duration};

use ingest::DeletionError;
use metric::{Aggregation, MetricId, Timestamp, Window};
use store::{NameStore, SeriesRequest, SharedMetric};

use crate::{
    Life, Sent,
    machine::{BEGINNING, method_under, rules},
    network::address,
    node_names::Listing,
    node_steps::{SPAN, SentPoint},
    sending::{lines_of, policy_of},
    truth::{Answer, Number, Truth, method_of, name_of},
};

/// How long a flush tries while the tables take nothing.
const FLUSHES_FOR: Duration = Duration::from_secs(20);

/// The time of the first points, before the simulated beginning.
pub(crate) const BASE: i64 = BEGINNING as i64 - 3000;

/// Makes all names known to a node, as a read of all names does.
pub(crate) async fn adopt_all(life: &Life, number: usize) -> Result<(), String> {
    let rules = rules(number);
    let metric = |metric: Number| {
        let name = name_of(metric);
        let policy = policy_of(rules, &name).expect("the rules keep it");
        SharedMetric { name, policy, since: 0, earlier: Vec::new(), created_on: None, updated_on: None }
    };
    let names: &dyn NameStore = &*life.node.names;
    let adopted = cluster::adopt((0..Aggregation::ALL.len()).map(metric).collect(), names, &life.node.ingest).await;
    adopted.map(drop).map_err(|error| error.to_string())
}

/// Metrics that a node has and that are not in the tables of names yet.
pub(crate) fn unregistered(life: &Life) -> BTreeSet<String> {
    let names = life.node.registry.read();
    life.node.ingest.unregistered().into_iter().map(|id| names.name(id).to_owned()).collect()
}

/// Deletes those of these metrics that a node knows. The inner error is that of tables that take nothing; without a number of metrics
/// nothing is deleted.
pub(crate) fn delete(life: &Life, metrics: &[Number]) -> Result<(Vec<Number>, Result<(), DeletionError>), String> {
    let (mut known, mut ids) = (Vec::new(), Vec::new());
    for &metric in metrics {
        if let Some(id) = find(life, metric).filter(|id| !ids.contains(id)) {
            known.push(metric);
            ids.push(id);
        }
    }
    let deleted = life.run("a deletion", life.node.ingest.delete(&ids)).ok_or("the process died in a deletion")?;
    Ok((known, deleted.map(drop)))
}

fn find(life: &Life, metric: Number) -> Option<MetricId> {
    let (registry, name) = (&life.node.registry, name_of(metric));
    registry.read().find(registry.hash(name.as_bytes()), name.as_bytes())
}

/// Sends points to a node, whose seconds count from `base`. Returns how many it accepted.
pub(crate) fn send(
    life: &Life,
    truth: &mut Truth,
    number: u16,
    base: Timestamp,
    points: &[SentPoint],
) -> Result<u64, String> {
    let now = life.now();
    let points: Vec<SentPoint> =
        points.iter().filter(|point| truth.may_send(number, point.metric, base + point.second)).copied().collect();
    let sent =
        |point: &SentPoint| Sent { name: name_of(point.metric), age: now - (base + point.second), value: point.value };
    let mut batch = lines_of(life, &points.iter().map(sent).collect::<Vec<_>>(), now);
    let refused = life.refused();
    life.run("accepting points", life.node.ingest.accept(&mut batch)).ok_or("the process died")?;
    if refused < life.refused() {
        return Err("points are refused".to_owned());
    }
    for point in &points {
        truth.send(number, point.metric, base + point.second, point.value);
    }
    Ok(points.len() as u64)
}

/// Has a node store everything. The inner error is that of tables that take nothing.
pub(crate) fn flush(life: &Life) -> Result<Result<(), String>, String> {
    let flushed = life.run("a flush", life.node.ingest.flush_patiently(FLUSHES_FOR));
    Ok(flushed.ok_or("the process died in a flush")?.map_err(|error| error.to_string()))
}

pub(crate) fn send_and_flush(
    life: &Life,
    truth: &mut Truth,
    number: u16,
    base: Timestamp,
    points: &[SentPoint],
) -> Result<(), String> {
    send(life, truth, number, base, points)?;
    if flush(life)?.is_ok() {
        truth.stored(number);
    }
    Ok(())
}

/// What may be asked of a node.
pub(crate) struct Asked {
    /// Nodes whose points the answer may lack without naming them.
    pub(crate) unknown: BTreeSet<u16>,
    /// The rules of all nodes; `None` while they differ.
    pub(crate) rules: Option<usize>,
    /// Which metrics it has.
    pub(crate) listed: Vec<Listing>,
    /// Whether it reaches the tables.
    pub(crate) is_up: bool,
    /// Whether coarse slots must be right, but for those of `last`.
    pub(crate) are_rows_settled: bool,
    /// Whether all must be.
    pub(crate) is_last_settled: bool,
}

/// Compares all series of a node. Returns the slots that were compared, and the nodes that the answers name. A query that meets the deletion
/// of a metric which another node has made again may lack its points: the next one has them.
pub(crate) fn ask(life: &Life, truth: &Truth, asked: &Asked) -> Result<(u64, BTreeSet<String>), String> {
    let ids = || (0..asked.listed.len()).map(|metric| find(life, metric)).collect::<Vec<Option<MetricId>>>();
    let before = ids();
    let answered = ask_once(life, truth, asked);
    if answered.is_err() && before != ids() { ask_once(life, truth, asked) } else { answered }
}

fn ask_once(life: &Life, truth: &Truth, asked: &Asked) -> Result<(u64, BTreeSet<String>), String> {
    // The clock may be behind.
    let now: Timestamp = life.now().max(BASE + SPAN);
    let mut requests = Vec::new();
    for (number, listed) in asked.listed.iter().enumerate() {
        let metric = match (find(life, number), listed) {
            (None, Listing::Known) => return Err(format!("{} is not known", name_of(number))),
            (Some(_), Listing::Unknown) => return Err(format!("{} is known although it is deleted", name_of(number))),
            (Some(metric), Listing::Known | Listing::Either) => metric,
            (None, Listing::Unknown | Listing::Either) => continue,
        };
        for (step, from) in [(1, BASE - 60), (60, now - 13 * 3600), (86_400, now - 4 * 86_400)] {
            let window = Window::between(from, now);
            requests.push((number, step, SeriesRequest { metric, window, now, max_points: 1 << 20, rollup: None }));
        }
    }
    let fetch = life.node.ingest.series().fetch(requests.iter().map(|(.., request)| request.clone()).collect());
    let answers = match life.run("a query", fetch).ok_or("the process died in a query")? {
        Ok(answers) => answers,
        Err(_) if !asked.is_up => return Ok((0, BTreeSet::new())),
        Err(error) => return Err(format!("a query fails: {error}")),
    };
    let (mut compared, mut missing) = (0, BTreeSet::new());
    for ((metric, step, _), series) in requests.iter().zip(answers) {
        let method = method_under(method_of(*metric), asked.rules.unwrap_or_default());
        let may_lack = asked.rules.is_none();
        let series = series.ok_or_else(|| format!("{method} has no steps of {step} s"))?;
        if series.step != *step {
            return Err(format!("{method} is served in steps of {} s, expected {step}", series.step));
        }
        let named: BTreeSet<String> = series.missing_peers.iter().flat_map(|peers| peers.iter().cloned()).collect();
        // Of several nodes' `last` a row does not tell which is later.
        let is_settled = asked.is_last_settled || asked.are_rows_settled && method != Aggregation::Last;
        if *step > 1 && (!is_settled || may_lack) {
            continue;
        }
        if named.contains(ingest::STORE) {
            // Points in memory alone.
            continue;
        }
        let mut lacking = asked.unknown.clone();
        lacking.extend(truth.holders().into_iter().filter(|holder| named.contains(&address(*holder))));
        let answer =
            Answer { metric: *metric, method, may_lack, start: series.start, step: *step, values: &series.values };
        compared += truth.compare(&answer, &lacking)?;
        missing.extend(named);
    }
    Ok((compared, missing))
}
