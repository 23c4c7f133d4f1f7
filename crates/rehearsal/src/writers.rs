//! Several nodes that write the same tables: random batches, late points, flushes, stops, kills and power cuts of one of them,
//! faults of its disk and of the tables. Each must show what all of them stored, and what it has itself.

use std::collections::BTreeMap;

use host::{Fault, FaultPlan, Random as _, SeededRandom};
use metric::{Aggregation, Partial, Timestamp, Window};
use store::SeriesRequest;

use crate::{
    Life, Machine, Sent, StoreKind, Work,
    machine::{BEGINNING, LONG},
    same::is_same,
    sending::lines_of,
    tables::{SharedTables, WRITERS, adds},
};

/// Methods whose value does not depend on the order of two writers' points.
const METHODS: [Aggregation; 7] = [
    Aggregation::Sum,
    Aggregation::Average,
    Aggregation::AvgZero,
    Aggregation::Max,
    Aggregation::Min,
    Aggregation::AbsMax,
    Aggregation::AbsMin,
];

/// The steps of the stages, and how far back a window of each begins.
const STAGES: [(u32, i64); 3] = [(1, 3100), (60, 12 * 3600), (86_400, 4 * 86_400)];

/// The time of the first points, before the simulated beginning.
const BASE: i64 = BEGINNING as i64 - 3000;

type Points = BTreeMap<String, BTreeMap<Timestamp, f64>>;

/// One node, and what it has that the tables may lack.
struct Node {
    machine: Machine,
    life: Option<Life>,
    held: Points,
    /// Of each metric, the time behind its last point that this node stored.
    until: BTreeMap<String, Timestamp>,
    /// Whether the tables may have part of what it holds, because a flush did not end.
    is_unsure: bool,
}

/// Nodes and their tables.
struct Cluster {
    random: SeededRandom,
    tables: SharedTables,
    nodes: Vec<Node>,
    stored: Points,
    /// Each writer's time. It has the seconds that are its own remainder to itself.
    clocks: [i64; WRITERS],
}

/// Performs the steps of a seed.
///
/// # Errors
/// What is wrong, in one sentence.
pub fn perform_writers(seed: u64, count: usize) -> Result<Work, String> {
    let tables = SharedTables::default();
    let node = |place| {
        let mut machine = Machine::new(StoreKind::Embedded, seed * 2 + place as u64);
        machine.rules = LONG;
        machine.shared = Some(tables.writer(place));
        Node { machine, life: None, held: Points::new(), until: BTreeMap::new(), is_unsure: false }
    };
    let nodes = (0..WRITERS).map(node).collect();
    let random = SeededRandom::new(seed);
    let mut cluster = Cluster { random, tables, nodes, stored: Points::new(), clocks: [BASE; WRITERS] };
    let mut work = Work::default();
    for step in 0..count {
        let place = cluster.random.index(WRITERS);
        cluster.step(place, &mut work).map_err(|error| format!("step {step}, writer {place}: {error}"))?;
        work.steps += 1;
    }
    for place in 0..WRITERS {
        cluster.flush(place)?;
    }
    (0..WRITERS).try_for_each(|place| cluster.check(place)).map_err(|error| format!("at the end: {error}"))?;
    work.calls = cluster.nodes.iter().map(|node| node.machine.disk.changes()).sum();
    Ok(work)
}

impl Node {
    fn life(&mut self) -> Result<&Life, String> {
        if self.life.is_none() {
            self.life = Some(self.machine.start().map_err(|error| format!("it does not start: {error}"))?);
        }
        Ok(self.life.as_ref().expect("it was started"))
    }

    /// The process dies; with `cut`, the power fails.
    fn die(&mut self, cut: Option<u64>) {
        let disk = match cut {
            Some(seed) => self.machine.disk.crash(&SeededRandom::new(seed)),
            None => self.machine.disk.kill(),
        };
        self.machine.disk.die();
        self.end();
        self.machine.disk = disk;
    }

    fn end(&mut self) {
        if let Some(life) = self.life.take() {
            self.machine.now = life.end();
        }
    }

    fn has(&self, name: &str, time: Timestamp) -> bool {
        self.held.get(name).is_some_and(|points| points.contains_key(&time))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.machine.disk.die();
        self.end();
    }
}

fn name(method: Aggregation) -> String {
    format!("{}.a", method.name())
}

impl Cluster {
    fn step(&mut self, place: usize, work: &mut Work) -> Result<(), String> {
        match self.random.below(20) {
            0..8 => self.send_new(place, work),
            8 | 9 => self.send_late(place, work),
            10..13 => self.flush(place),
            13 => self.flush_with_faults(place, work),
            14 => self.flush_and_die(place, work),
            15 => {
                let cut = (self.random.below(2) == 0).then(|| self.random.bits());
                self.nodes[place].die(cut);
                work.deaths += 1;
                Ok(())
            }
            16 => self.stop(place),
            _ => (0..WRITERS).try_for_each(|place| self.check(place)),
        }
    }

    fn send(&mut self, place: usize, points: &[(String, Timestamp, f64)], work: &mut Work) -> Result<(), String> {
        let node = &mut self.nodes[place];
        let life = node.life()?;
        let now = life.now();
        let sent = |(name, time, value): &(String, Timestamp, f64)| Sent {
            name: name.clone(),
            age: now - time,
            value: *value,
        };
        let sent: Vec<Sent> = points.iter().map(sent).collect();
        let mut batch = lines_of(life, &sent, now);
        let accepted = life.run("accepting points", life.node.ingest.accept(&mut batch));
        accepted.ok_or("the process died")?;
        for (name, time, value) in points {
            node.held.entry(name.clone()).or_default().insert(*time, *value);
        }
        work.points += points.len() as u64;
        Ok(())
    }

    fn send_new(&mut self, place: usize, work: &mut Work) -> Result<(), String> {
        let (count, is_behind) = (1 + self.random.below(20), self.random.below(8) == 0);
        let mut points = Vec::new();
        for _ in 0..count {
            self.clocks[place] += WRITERS as i64 * (1 + self.random.below(2) as i64);
            let time = self.clocks[place] / WRITERS as i64 * WRITERS as i64 + place as i64;
            let value = (self.random.below(2001) as f64 - 1000.0) / 8.0;
            if time < BASE + 2900 {
                points.extend(METHODS.map(|method| (name(method), time, value)));
            }
        }
        if is_behind {
            // The other one is in front, now.
            self.clocks[1 - place] = self.clocks[1 - place].max(self.clocks[place] + 30);
        }
        self.send(place, &points, work)
    }

    /// Points before the last one that this writer has stored. Sums are corrected, whichever writer's point it was; an
    /// extreme that a writer goes on from in memory cannot be taken away by another. A slot that the other one reaches later is
    /// counted by both, as in BigGraphite.
    fn send_late(&mut self, place: usize, work: &mut Work) -> Result<(), String> {
        if self.nodes.iter().any(|node| node.is_unsure) {
            return Ok(());
        }
        let mut points = Vec::new();
        for method in METHODS {
            let name = name(method);
            let Some(&until) = self.nodes[place].until.get(&name) else { continue };
            let time = BASE + self.random.below((until - BASE).max(1) as u64) as i64;
            let is_held = self.nodes.iter().any(|node| node.has(&name, time));
            let is_stored = self.stored.get(&name).is_some_and(|points| points.contains_key(&time));
            if time < self.clocks[1 - place] && !is_held && (adds(method) || !is_stored) {
                points.push((name, time, self.random.below(100) as f64));
            }
        }
        self.send(place, &points, work)
    }

    fn flush(&mut self, place: usize) -> Result<(), String> {
        let life = self.nodes[place].life()?;
        match life.run("a flush", life.node.ingest.flush()) {
            Some(Ok(())) => self.stored_all(place),
            other => return Err(format!("a flush ends with {other:?}")),
        }
        Ok(())
    }

    /// Everything that a node holds is in the tables.
    fn stored_all(&mut self, place: usize) {
        let node = &mut self.nodes[place];
        node.is_unsure = false;
        for (name, points) in std::mem::take(&mut node.held) {
            let until = node.until.entry(name.clone()).or_default();
            *until = (*until).max(points.last_key_value().map_or(0, |(time, _)| time + 1));
            self.stored.entry(name).or_default().extend(points);
        }
    }

    /// The tables fail some calls, and then not.
    fn flush_with_faults(&mut self, place: usize, work: &mut Work) -> Result<(), String> {
        let calls = 1 + self.random.below(4);
        self.nodes[place].life()?;
        self.tables.fail(calls, self.random.below(2) == 0);
        work.faults += calls;
        let flushed = self.flush(place);
        self.tables.fail(0, false);
        flushed
    }

    /// The process dies in a flush: at a call of its disk, or while the tables are away.
    fn flush_and_die(&mut self, place: usize, work: &mut Work) -> Result<(), String> {
        let node = &mut self.nodes[place];
        node.life()?;
        node.machine.disk.set_plan(Some(FaultPlan::once(self.random.below(12), Fault::Die)));
        if self.random.below(2) == 0 {
            self.tables.fail(1 + self.random.below(2), self.random.below(2) == 0);
        }
        let life = node.life()?;
        let flushed = life.run("a flush", life.node.ingest.flush());
        self.tables.fail(0, false);
        node.machine.disk.set_plan(None);
        work.faults += 1;
        node.is_unsure |= !node.held.is_empty();
        if let Some(Ok(())) = flushed {
            self.stored_all(place);
        }
        let cut = (self.random.below(2) == 0).then(|| self.random.bits());
        self.nodes[place].die(cut);
        work.deaths += 1;
        Ok(())
    }

    fn stop(&mut self, place: usize) -> Result<(), String> {
        let node = &mut self.nodes[place];
        let disk = node.machine.disk.clone();
        let life = node.life()?;
        match life.run("a stop", life.node.stop(&disk)) {
            Some(Ok(())) => {}
            other => return Err(format!("a stop ends with {other:?}")),
        }
        node.end();
        self.stored_all(place);
        Ok(())
    }

    /// What a node shows is what all have stored, and what it has itself.
    fn check(&mut self, place: usize) -> Result<(), String> {
        if self.nodes.iter().enumerate().any(|(other, node)| other != place && node.is_unsure) {
            return Ok(());
        }
        self.nodes[place].life()?;
        let node = &self.nodes[place];
        let life = node.life.as_ref().expect("it was started");
        let registry = &life.node.registry;
        let now = life.now();
        for method in METHODS {
            let name = name(method);
            let Some(metric) = registry.read().find(registry.hash(name.as_bytes()), name.as_bytes()) else { continue };
            let mut points = self.stored.get(&name).cloned().unwrap_or_default();
            points.extend(node.held.get(&name).into_iter().flatten());
            let request = |(_, age)| SeriesRequest {
                metric,
                window: Window::between(now - age, now),
                now,
                max_points: 1 << 20,
                rollup: None,
            };
            let fetch = life.node.ingest.series().fetch(STAGES.map(request).to_vec());
            let answer = life.run("a query", fetch).ok_or("the process died in a check")?;
            let answers = answer.map_err(|error| format!("a query fails: {error}"))?;
            for ((step, _), series) in STAGES.into_iter().zip(answers) {
                let series = series.ok_or_else(|| format!("{name} has no steps of {step} s"))?;
                let values = (series.start, series.step, &series.values[..]);
                compare(method, &points, step, values).map_err(|error| format!("{name} of writer {place} {error}"))?;
            }
        }
        Ok(())
    }
}

/// Compares a series with the aggregates of points.
fn compare(
    method: Aggregation,
    points: &BTreeMap<Timestamp, f64>,
    step: u32,
    (start, shown, values): (Timestamp, u32, &[f64]),
) -> Result<(), String> {
    if shown != step {
        return Err(format!("is served in steps of {shown} s, expected {step}"));
    }
    let mut expected: BTreeMap<Timestamp, Partial> = BTreeMap::new();
    for (&time, &value) in points {
        let all = expected.entry(time - time % i64::from(step)).or_insert(Partial::NONE);
        *all = method.merge(*all, Partial::point(value));
    }
    // Of two that are as far from zero, which one came first is not in the rows.
    let is_abs = matches!(method, Aggregation::AbsMax | Aggregation::AbsMin);
    for (i, &seen) in values.iter().enumerate() {
        let time = start + i as i64 * i64::from(step);
        let want = method.finish(expected.get(&time).copied().unwrap_or(Partial::NONE), step, 0.0);
        let is_right = if is_abs { is_same(seen.abs(), want.abs()) } else { is_same(seen, want) };
        if !is_right {
            return Err(format!("at {time} ({step} s) is {seen}, expected {want}"));
        }
    }
    Ok(())
}
