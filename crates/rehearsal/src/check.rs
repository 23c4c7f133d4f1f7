//! Whether a node serves what the model says, and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use metadata::SeenSpan;
use metric::{Aggregation, Policy, Timestamp, Window};
use store::{Event, FetchedSeries, SeriesRequest};

use crate::{
    machine::Life,
    model::{Floor, Metric, Model},
    node::Node,
    same::is_same,
};

/// What a check forgives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fidelity {
    /// Points below this floor may be missing; every value that is served was sent.
    From(Floor),
    /// Bytes rotted: stored points may be missing. Every value that is served was sent.
    Damaged,
}

/// A slot that is missing, or made of fewer points.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostSlot {
    /// Name of the metric.
    pub name: String,
    /// Seconds of the slot.
    pub step: u32,
    /// Its first second.
    pub slot: Timestamp,
}

/// What a node does not serve, though it was sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Losses {
    /// Each slot that is missing.
    pub places: Vec<LostSlot>,
    /// Slots of stage 0 that are missing.
    pub slots: u64,
    /// Coarse slots that are missing or made of fewer points.
    pub coarse: u64,
    /// Metrics that are missing.
    pub metrics: u64,
    /// Events that are missing.
    pub events: u64,
}

impl Losses {
    /// A slot of a stage is missing: once, by whichever methods it is read.
    fn add(&mut self, stage: usize, lost: LostSlot) {
        if !self.places.contains(&lost) {
            *(if stage == 0 { &mut self.slots } else { &mut self.coarse }) += 1;
            self.places.push(lost);
        }
    }
}

/// Seconds between a stage's oldest slot and the oldest that a check reads.
const MARGIN: i64 = 70;

/// Compares everything that a node serves with the model, which learns what was uncertain. Returns what is missing.
/// The calendar is so many seconds ahead of the time of senders.
pub(crate) fn check(life: &Life, model: &mut Model, fidelity: Fidelity, ahead: i64) -> Result<Losses, String> {
    let mut losses = Losses::default();
    check_names(&life.node, model, fidelity, &mut losses)?;
    let (clock, truth) = (life.now(), life.now() - ahead);
    let now = life.within(|node| node.ingest.series().now_for(clock, truth));
    let (asked, requests) = requests(&life.node, model, now);
    let fetch = life.node.ingest.series().fetch(requests);
    let Some(answer) = life.run("a query", fetch) else { return Err("the process died in a check".to_owned()) };
    let answers = answer.map_err(|error| format!("a query fails: {error}"))?;
    check_seen(&life.node, &asked, &answers)?;
    let (expired, has_losses) = (model.expired, model.has_losses);
    for ((name, stage, method), series) in asked.iter().zip(answers) {
        model.compared += series.as_ref().map_or(0, |series| series.values.len() as u64);
        let metric = model.metrics.get_mut(name).expect("its name was listed");
        // Stored rows of a stage that lack bytes show nothing, and what is made of them is not compared.
        if has_losses && 0 < *stage {
            continue;
        }
        // Of a slot from before the rules had the method, see decision 19.
        if series.as_ref().is_some_and(|series| !series.other_methods().is_empty()) {
            metric.first_steps.iter_mut().for_each(|steps| steps.leave_out(*method));
            continue;
        }
        let first = std::mem::replace(&mut metric.policy.aggregation, *method);
        let checked = check_series(name, metric, (*stage, now, expired), series, fidelity, &mut losses);
        metric.policy.aggregation = first;
        checked.map_err(|error| if *method == first { error } else { format!("{method} of {error}") })?;
    }
    if fidelity == Fidelity::From(Floor::Durable) {
        model.forget_unsynced();
    }
    check_events(life, model, fidelity, &mut losses)?;
    Ok(losses)
}

/// Names, their policies, and the ids of each.
fn check_names(node: &Node, model: &mut Model, fidelity: Fidelity, losses: &mut Losses) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    let end = node.registry.read().end();
    for id in (0..end.0).map(metric::MetricId) {
        let name = node.registry.read().name(id).to_owned();
        if name.is_empty() {
            continue;
        }
        if !seen.insert(name.clone()) {
            return Err(format!("two metrics have the name {name}"));
        }
        if model.deleted.contains(&name) {
            return Err(format!("{name} was deleted, and is there again"));
        }
        let Some(metric) = model.metrics.get_mut(&name) else { return Err(format!("no client sent {name}")) };
        let policy = node.registry.policy(node.registry.read().policy_id(id));
        let is_expected = is_policy(&policy, &metric.policy)
            || metric.take_perhaps(&policy)
            || fidelity == Fidelity::From(Floor::Durable) && metric.take_earlier(&policy);
        if !is_expected && fidelity != Fidelity::Damaged {
            return Err(format!("{name} has the policy {policy:?}, expected {:?}", metric.policy));
        }
    }
    let missing: Vec<String> = model.metrics.keys().filter(|name| !seen.contains(*name)).cloned().collect();
    for name in missing {
        // A later point begins it again.
        let metric = model.metrics.remove(&name).expect("its name was listed");
        let is_lost = match fidelity {
            Fidelity::From(floor) => metric.is_certain(floor),
            Fidelity::Damaged => false,
        };
        if is_lost {
            return Err(format!("{name} is lost"));
        }
        losses.metrics += 1;
    }
    Ok(())
}

fn is_policy(found: &Policy, expected: &Policy) -> bool {
    found.is_same(expected)
}

/// What to ask to read every stage of every metric, by each of its methods: names, stages and methods, and the requests.
fn requests(node: &Node, model: &Model, now: Timestamp) -> (Vec<(String, usize, Aggregation)>, Vec<SeriesRequest>) {
    let (mut asked, mut requests) = (Vec::new(), Vec::new());
    for (name, metric) in &model.metrics {
        let found = node.registry.read().find(node.registry.hash(name.as_bytes()), name.as_bytes());
        let Some(id) = found else { continue };
        for (stage, kept) in metric.policy.retention.stages().iter().enumerate() {
            let window = Window::between(now - kept.duration() + MARGIN, now);
            for (place, method) in metric.policy.methods().iter().enumerate() {
                let rollup = (0 < place).then_some(method);
                asked.push((name.clone(), stage, method));
                requests.push(SeriesRequest { metric: id, window, now, max_points: 1 << 20, rollup });
            }
        }
    }
    (asked, requests)
}

/// A metric is found by the time of each of its values.
fn check_seen(
    node: &Node,
    asked: &[(String, usize, Aggregation)],
    answers: &[Option<FetchedSeries>],
) -> Result<(), String> {
    let (seen, end) = (node.registry.seen(), node.registry.read().end());
    // Each looks at the points of all metrics, and most times are those of several series.
    let mut filters = BTreeMap::new();
    for ((name, stage, _), series) in asked.iter().zip(answers) {
        let Some(series) = series else { continue };
        let id = node.registry.read().find(node.registry.hash(name.as_bytes()), name.as_bytes());
        let with_value = series.values.iter().enumerate().filter(|(_, value)| !value.is_nan());
        for time in with_value.map(|(i, _)| series.start + i as i64 * i64::from(series.step)) {
            let times = SeenSpan { from: Some(time), until: Some(time) };
            let unseen = filters.entry(time).or_insert_with(|| seen.filter(times, end));
            if id.is_some_and(|id| unseen.as_ref().is_some_and(|unseen| unseen.hides(id))) {
                return Err(format!("{name} has a value in stage {stage} at {time}, and is not found by this time"));
            }
        }
    }
    Ok(())
}

fn check_series(
    name: &str,
    metric: &mut Metric,
    (stage, now, expired): (usize, Timestamp, Timestamp),
    series: Option<FetchedSeries>,
    fidelity: Fidelity,
    losses: &mut Losses,
) -> Result<(), String> {
    let Some(series) = series else { return Err(format!("{name} has no stage {stage}")) };
    let step = metric.policy.retention.stages()[stage].resolution();
    if series.step != step {
        return Err(format!("stage {stage} of {name} is served in steps of {}, expected {step}", series.step));
    }
    if let Some(steps) = &mut metric.first_steps {
        let compared =
            steps.compare(metric.policy.aggregation, (stage, i64::from(step), now), (series.start, &series.values));
        return compared.map_err(|error| format!("{name} {error}"));
    }
    let floor = if let Fidelity::From(floor) = fidelity { floor } else { Floor::Durable };
    let kept_from = expired - metric.policy.retention.stages()[stage].duration() + MARGIN;
    for (i, &seen) in series.values.iter().enumerate() {
        let slot = series.start + i as i64 * i64::from(step);
        // Most slots are empty, and should be.
        if slot < kept_from || seen.is_nan() && metric.is_untouched(stage, slot) {
            continue;
        }
        let possible = metric.possible(stage, slot, floor);
        if possible.is_empty() {
            continue;
        }
        let is_empty = possible.iter().any(|&partial| metric.shown(stage, partial).is_nan());
        let may_be_filled = metric.has_changed && is_empty;
        let is_right = may_be_filled || possible.iter().any(|&partial| is_same(metric.shown(stage, partial), seen));
        if !is_right {
            if fidelity == Fidelity::Damaged && (seen.is_nan() || stage > 0 || metric.was_sent(slot, seen)) {
                losses.add(stage, LostSlot { name: name.to_owned(), step, slot });
            } else {
                let expected: Vec<f64> = possible.iter().map(|&partial| metric.shown(stage, partial)).collect();
                return Err(format!(
                    "{name} at {slot} ({step} s, {} s old): {seen}, expected one of {expected:?}; sent: {:?}",
                    now - slot,
                    metric.sent_to(slot)
                ));
            }
        }
        let certain = if fidelity == Fidelity::From(Floor::Durable) { Floor::Durable } else { Floor::Acknowledged };
        metric.settle(stage, slot, seen, certain);
    }
    Ok(())
}

fn check_events(life: &Life, model: &mut Model, fidelity: Fidelity, losses: &mut Losses) -> Result<(), String> {
    let read = life.node.events.events((0, 0), Timestamp::MAX, usize::MAX);
    let Some(found) = life.run("reading events", read) else { return Err("the process died in a check".to_owned()) };
    let found: Vec<Event> = found.map_err(|error| format!("events cannot be read: {error}"))?;
    let mut ids = BTreeSet::new();
    let mut seen = BTreeSet::new();
    for event in &found {
        if !ids.insert(event.id) {
            return Err(format!("two events have the id {}", event.id));
        }
        if !model.events.contains_key(&event.content.what) {
            return Err(format!("no client sent the event {:?}", event.content));
        }
        seen.insert(event.content.what.clone());
    }
    for (what, floor) in std::mem::take(&mut model.events) {
        if seen.contains(&what) {
            model.events.insert(what, floor.max(Floor::Acknowledged));
            continue;
        }
        match fidelity {
            Fidelity::From(least) if floor >= least => return Err(format!("the event {what} is lost")),
            _ => losses.events += 1,
        }
    }
    Ok(())
}
