//! Points to one of several nodes, its flushes, and its answers.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use ingest::DeletionError;
use metadata::PolicyHistory;
use metric::{Aggregation, MetricId, Policy, Retention, Timestamp, Window};
use store::{NameStore, SeriesRequest, SharedMetric};

use crate::{
    Life, Sent,
    first_steps::first_step,
    machine::{BEGINNING, method_under, rules, x_files_factor_under},
    network::address,
    node_metrics::{Number, method_of, name_of},
    node_names::Listing,
    node_rules::StageAnswer,
    node_steps::{SPAN, SentPoint},
    sending::{lines_of, policy_of},
    truth::{Answer, Truth},
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
/// nothing is deleted. Says whether all were deleted: while it waits the node may follow an earlier deletion of a metric that others have made again,
/// which is then another one.
pub(crate) fn delete(life: &Life, metrics: &[Number]) -> Result<(Vec<Number>, Result<bool, DeletionError>), String> {
    let (mut known, mut ids) = (Vec::new(), Vec::new());
    for &metric in metrics {
        if let Some(id) = find(life, metric).filter(|id| !ids.contains(id)) {
            known.push(metric);
            ids.push(id);
        }
    }
    let deleted = life.run("a deletion", life.node.ingest.delete(&ids)).ok_or("the process died in a deletion")?;
    Ok((known, deleted.map(|deleted| deleted == ids.len())))
}

/// The policy by which a node keeps a metric.
fn policy_on(life: &Life, metric: Number) -> Option<Arc<Policy>> {
    let (registry, id) = (&life.node.registry, find(life, metric)?);
    let policy = registry.read().policy_id(id);
    Some(registry.policy(policy))
}

/// Whether a node has had all retentions under which points of a metric came.
fn are_known(life: &Life, truth: &Truth, metric: Number) -> bool {
    truth.are_known(metric, &known_retentions(life, metric))
}

/// Notes metrics that a node knows, and whose points came under retentions that it has not had.
pub(crate) fn note_split(life: &Life, truth: &mut Truth, metrics: usize) {
    for metric in 0..metrics {
        if find(life, metric).is_some() && !are_known(life, truth, metric) {
            truth.note_split(metric);
        }
    }
}

/// The retentions that a metric has had on a node. Not those of others whose time it does not know: of two values of one slot it shows the one
/// under its own.
fn known_retentions(life: &Life, metric: Number) -> Vec<Retention> {
    let registry = &life.node.registry;
    let history = find(life, metric).and_then(|id| registry.policies(id));
    let spans = history.iter().flat_map(|history| history.with_times());
    spans.map(|span| registry.policy(span.policy).retention.clone()).collect()
}

fn known_steps(life: &Life, metric: Number) -> Vec<i64> {
    known_retentions(life, metric).iter().map(first_step).collect()
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
    let may_send = |point: &&SentPoint| {
        let time = base + point.second;
        match truth.steps {
            None => {
                let may_send = truth.may_send(number, point.metric, time);
                // Otherwise the slot of a table that it does not know would stay as it is.
                may_send && (truth.is_own(number, point.metric, time) || are_known(life, truth, point.metric))
            }
            Some(_) => {
                let is_later = now < time;
                !is_later && truth.may_send_to_block(number, point.metric, time, &known_steps(life, point.metric))
            }
        }
    };
    let points: Vec<SentPoint> = points.iter().filter(may_send).copied().collect();
    let before: Vec<Option<Arc<Policy>>> = points.iter().map(|point| policy_on(life, point.metric)).collect();
    let history = |metric: Number| find(life, metric).and_then(|id| life.node.registry.policies(id));
    let histories: Vec<Option<PolicyHistory>> = points.iter().map(|point| history(point.metric)).collect();
    let sent =
        |point: &SentPoint| Sent { name: name_of(point.metric), age: now - (base + point.second), value: point.value };
    let mut batch = lines_of(life, &points.iter().map(sent).collect::<Vec<_>>(), now);
    let refused = life.refused();
    life.run("accepting points", life.node.ingest.accept(&mut batch)).ok_or("the process died")?;
    if refused < life.refused() {
        return Err("points are refused".to_owned());
    }
    truth.receive(number, points.iter().map(|point| point.metric), now);
    for ((point, before), history_before) in points.iter().zip(before).zip(histories) {
        let time = base + point.second;
        let policy = policy_on(life, point.metric).ok_or("a metric is not known behind its point")?;
        match &before {
            Some(before) => [before, &policy].iter().for_each(|of| truth.came_under(point.metric, &of.retention)),
            // It was made, and may have got another policy since.
            None => known_retentions(life, point.metric).iter().for_each(|of| truth.came_under(point.metric, of)),
        }
        let Some(steps) = &mut truth.steps else {
            truth.send(number, point.metric, time, point.value);
            continue;
        };
        steps.send(point.metric, time, point.value, &policy);
        // Another node's policy may have been taken over meanwhile, and the rules of this one put in force again.
        if before.is_none_or(|before| before.retention != policy.retention) || history_before != history(point.metric) {
            steps.is_under_either(point.metric, time);
        }
        truth.send_under(number, point.metric, (time, point.value), first_step(&policy.retention));
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
    (base, now): (Timestamp, Duration),
    points: &[SentPoint],
) -> Result<(), String> {
    send(life, truth, number, base, points)?;
    if flush(life)?.is_ok() {
        truth.stored(number, now);
    }
    Ok(())
}

/// What may be asked of a node.
pub(crate) struct Asked {
    /// The id of the node.
    pub(crate) number: u16,
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
    /// Whether rules have changed: where a node lacks the seconds of a minute, it shows their aggregate at the beginning.
    pub(crate) have_rules_changed: bool,
}

/// Compares all series of a node. Returns the slots that were compared, and the nodes that the answers name. A query that meets the deletion
/// of a metric which another node has made again may lack its points: the next one has them.
pub(crate) fn ask(life: &Life, truth: &mut Truth, asked: &Asked) -> Result<(u64, BTreeSet<String>), String> {
    let ids = || (0..asked.listed.len()).map(|metric| find(life, metric)).collect::<Vec<Option<MetricId>>>();
    let before = ids();
    let answered = ask_once(life, truth, asked);
    if answered.is_err() && before != ids() { ask_once(life, truth, asked) } else { answered }
}

/// The metrics that a node has, where these are the right ones.
fn listed(life: &Life, asked: &Asked) -> Result<Vec<(Number, MetricId)>, String> {
    let mut all = Vec::new();
    for (number, listed) in asked.listed.iter().enumerate() {
        match (find(life, number), listed) {
            (None, Listing::Known) => return Err(format!("{} is not known", name_of(number))),
            (Some(_), Listing::Unknown) => return Err(format!("{} is known although it is deleted", name_of(number))),
            (Some(metric), Listing::Known | Listing::Either) => all.push((number, metric)),
            (None, Listing::Unknown | Listing::Either) => {}
        }
    }
    Ok(all)
}

fn ask_once(life: &Life, truth: &mut Truth, asked: &Asked) -> Result<(u64, BTreeSet<String>), String> {
    if truth.steps.is_some() {
        return ask_stages(life, truth, asked);
    }
    // The clock may be behind.
    let now: Timestamp = life.now().max(BASE + SPAN);
    let mut requests = Vec::new();
    for (number, metric) in listed(life, asked)? {
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
        let may_lack = asked.rules.is_none() || !are_known(life, truth, *metric);
        let series = series.ok_or_else(|| format!("{method} has no steps of {step} s"))?;
        if series.step != *step {
            return Err(format!("{method} is served in steps of {} s, expected {step}", series.step));
        }
        let named: BTreeSet<String> = series.missing_peers.iter().flat_map(|peers| peers.iter().cloned()).collect();
        // Of several nodes' `last` a row does not tell which is later.
        let is_settled = asked.is_last_settled || asked.are_rows_settled && method != Aggregation::Last;
        if *step > 1 && (!is_settled || may_lack || truth.is_split(*metric)) {
            continue;
        }
        if named.contains(ingest::STORE) {
            // Points in memory alone.
            continue;
        }
        let mut lacking = asked.unknown.clone();
        lacking.extend(truth.holders().into_iter().filter(|holder| named.contains(&address(*holder))));
        let x_files_factor = x_files_factor_under(asked.rules.unwrap_or_default());
        let answer = Answer {
            metric: *metric,
            method,
            x_files_factor,
            may_lack,
            may_aggregate: asked.have_rules_changed,
            start: series.start,
            step: *step,
            values: &series.values,
        };
        compared += truth.compare(&answer, &lacking)?;
        missing.extend(named);
    }
    Ok((compared, missing))
}

/// The same where retentions have several first steps: each stage that the node has now.
fn ask_stages(life: &Life, truth: &mut Truth, asked: &Asked) -> Result<(u64, BTreeSet<String>), String> {
    let now: Timestamp = life.now().max(BASE + SPAN);
    let (mut of, mut requests) = (Vec::new(), Vec::new());
    for (number, metric) in listed(life, asked)? {
        let policy = policy_on(life, number).ok_or("a metric that is known has no policy")?;
        if let Some(ruled) = asked.rules.and_then(|rules_now| policy_of(rules(rules_now), &name_of(number)))
            && ruled.retention != policy.retention
            && truth.has_received(asked.number, number)
        {
            return Err(format!("{} is kept by {}, not by {}", name_of(number), policy.retention, ruled.retention));
        }
        for (stage, kept) in policy.retention.stages().iter().enumerate() {
            let from =
                if stage == 0 { BASE + SPAN - 1200 } else { now - kept.duration() + i64::from(kept.resolution()) };
            let window = Window::between(from, now);
            of.push((number, stage, policy.clone()));
            requests.push(SeriesRequest { metric, window, now, max_points: 1 << 20, rollup: None });
        }
    }
    let fetch = life.node.ingest.series().fetch(requests);
    let answers = match life.run("a query", fetch).ok_or("the process died in a query")? {
        Ok(answers) => answers,
        Err(_) if !asked.is_up => return Ok((0, BTreeSet::new())),
        Err(error) => return Err(format!("a query fails: {error}")),
    };
    let (mut compared, mut missing) = (0, BTreeSet::new());
    for ((metric, stage, policy), series) in of.into_iter().zip(answers) {
        let (name, step) = (name_of(metric), policy.retention.stages()[stage].resolution());
        let series = series.ok_or_else(|| format!("{name} has no steps of {step} s"))?;
        // A change of policy may have come between the two.
        let is_same_policy = policy_on(life, metric).is_some_and(|now| now.retention == policy.retention);
        if series.step != step && is_same_policy {
            return Err(format!("{name} is served in steps of {} s, expected {step}", series.step));
        }
        let named: BTreeSet<String> = series.missing_peers.iter().flat_map(|peers| peers.iter().cloned()).collect();
        let mut lacking = asked.unknown.clone();
        lacking.extend(truth.holders().into_iter().filter(|holder| named.contains(&address(*holder))));
        let mut held = truth.held(metric, &lacking);
        held.extend(truth.mixed(metric, asked.number));
        let is_split = truth.is_split(metric);
        let method = policy.aggregation;
        let is_settled = asked.is_last_settled || asked.are_rows_settled && method != Aggregation::Last;
        let is_all_known = asked.rules.is_some() && are_known(life, truth, metric);
        let Some(steps) = &mut truth.steps else { unreachable!("it has steps") };
        let answer =
            StageAnswer { metric, stage, step: i64::from(step), now, start: series.start, values: &series.values };
        let wrong = |error: String| format!("{name} {error}");
        if !is_same_policy
            || named.contains(ingest::STORE)
            || stage > 0 && (is_split || !is_settled || !held.is_empty())
        {
            steps.leave_out(metric, method);
        } else if is_all_known {
            steps.compare(&answer, &policy, held.into_iter()).map_err(wrong)?;
            compared += series.values.len() as u64;
        } else {
            steps.leave_out(metric, method);
            if stage == 0 && step == 1 {
                steps.compare_sent(&answer).map_err(wrong)?;
                compared += series.values.len() as u64;
            }
        }
        if !named.contains(ingest::STORE) {
            missing.extend(named);
        }
    }
    Ok((compared, missing))
}
