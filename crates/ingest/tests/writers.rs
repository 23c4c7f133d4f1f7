//! Several writers of the same tables, each with rows of its own that readers add up: random points, flushes, late
//! points and restarts against a naive model. Every run prints its seed; `SEED=…` repeats one. In half of the runs the nodes
//! give each other their points in memory, and store them while another one reads.

mod support;

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use carbon::Sink as _;
use host::{Random, SeededRandom};
use ingest::{AskedHeads, HeadRequest, HeadSource, Ingest, PeerHeads, Protocol};
use metric::{Aggregation, Partial, Timestamp, Window};
use store::{SeriesRequest, Store};
use support::{
    now, options, registry_of, rules_by_method, rules_of, runtime, seeds,
    shared_tables::{Tables, WRITERS, Writer, adds},
};
use tokio::runtime::Runtime;

const STAGES: [(u32, i64); 3] = [(1, 3500), (10, 5 * 3600), (60, 40 * 3600)];
const METHODS: [(&str, Aggregation); 8] = [
    ("sum", Aggregation::Sum),
    ("average", Aggregation::Average),
    ("avg_zero", Aggregation::AvgZero),
    ("max", Aggregation::Max),
    ("min", Aggregation::Min),
    ("absmax", Aggregation::AbsMax),
    ("absmin", Aggregation::AbsMin),
    ("last", Aggregation::Last),
];

async fn open(dir: &Path, driver: Arc<Writer>) -> Arc<Ingest> {
    let registry = registry_of(&*driver).await;
    let options = options(dir, Duration::from_secs(60));
    let store = Store { shared: Some(driver.clone()), ..Store::of(driver) };
    Ingest::open(options, store, registry, rules_by_method(&METHODS, 0.0)).await.unwrap()
}

/// The nodes that are open, by place.
#[derive(Default)]
struct Open {
    nodes: Mutex<HashMap<usize, Arc<Ingest>>>,
    /// What a node does when it is asked: 1 stores its points before it answers, 2 behind its answer.
    moves: AtomicU64,
}

/// The nodes that another one asks for their points in memory.
struct Others {
    place: usize,
    open: Arc<Open>,
}

impl HeadSource for Others {
    fn has_peers(&self) -> bool {
        true
    }

    fn heads(&self, requests: Vec<HeadRequest>, _given_up: Vec<String>) -> AskedHeads<'_> {
        let nodes = self.open.nodes.lock().unwrap().clone();
        let moves = self.open.moves.load(SeqCst);
        Box::pin(async move {
            let mut answer = PeerHeads::default();
            for (_, node) in nodes.iter().filter(|(place, _)| **place != self.place) {
                if moves == 1 {
                    node.flush().await.unwrap();
                }
                answer.of_peers.push(node.heads(&requests, usize::MAX).unwrap());
                if moves == 2 {
                    node.flush().await.unwrap();
                }
            }
            answer
        })
    }
}

/// One program of several.
struct Node {
    dir: tempfile::TempDir,
    driver: Arc<Writer>,
    runtime: Runtime,
    ingest: Arc<Ingest>,
    /// Where nodes give each other their points in memory: all of them.
    open: Option<Arc<Open>>,
    held: Points,
    /// Of each metric, the time after the last point that it stored.
    until: HashMap<String, Timestamp>,
}

type Points = BTreeMap<String, BTreeMap<Timestamp, f64>>;

impl Node {
    fn begin(place: usize, tables: &Arc<Mutex<Tables>>) -> Node {
        let dir = tempfile::tempdir().unwrap();
        let driver = Writer::new(tables, place);
        let runtime = runtime(1);
        let ingest = runtime.block_on(open(dir.path(), driver.clone()));
        Node { dir, driver, runtime, ingest, open: None, held: Points::new(), until: HashMap::new() }
    }

    /// Gives its points in memory to others, and asks them for theirs.
    fn meet(&mut self, open: &Arc<Open>) {
        let place = self.driver.place;
        open.nodes.lock().unwrap().insert(place, self.ingest.clone());
        self.ingest.set_peers(Arc::new(Others { place, open: open.clone() }));
        self.open = Some(open.clone());
    }

    /// What is held is only in the journal then.
    fn crash(&mut self) {
        std::mem::replace(&mut self.runtime, runtime(1)).shutdown_timeout(Duration::from_secs(1));
        self.ingest = self.runtime.block_on(open(self.dir.path(), self.driver.clone()));
        if let Some(open) = self.open.clone() {
            self.meet(&open);
        }
    }

    fn send(&mut self, points: &[(String, Timestamp, f64)]) {
        let mut batch = self.ingest.batch(Protocol::LineTcp);
        for (name, time, value) in points {
            batch.point(name.as_bytes(), *time, *value);
            self.held.entry(name.clone()).or_default().insert(*time, *value);
        }
        self.runtime.block_on(self.ingest.accept(&mut batch));
    }

    fn flush(&mut self, stored: &mut Points) {
        self.runtime.block_on(self.ingest.flush()).unwrap();
        for (name, points) in std::mem::take(&mut self.held) {
            let until = self.until.entry(name.clone()).or_default();
            *until = (*until).max(points.last_key_value().map_or(0, |(time, _)| time + 1));
            stored.entry(name).or_default().extend(points);
        }
    }

    /// What this node shows is what everybody stored, and what it holds; where nodes give it, also what these others hold.
    fn check(&self, stored: &Points, given: &[&Points], what: &str) {
        for (name, held) in
            METHODS.map(|(method, _)| format!("{method}.m")).iter().map(|name| (name, self.held.get(name)))
        {
            let registry = self.ingest.registry();
            let found = registry.read().find(registry.hash(name.as_bytes()), name.as_bytes());
            let Some(number) = found else { continue };
            let mut points = stored.get(name).cloned().unwrap_or_default();
            points.extend(given.iter().filter_map(|of| of.get(name)).flatten());
            points.extend(held.into_iter().flatten());
            let method = METHODS.iter().find(|(method, _)| name.starts_with(&format!("{method}."))).unwrap().1;
            let now = now();
            for (step, age) in STAGES {
                let window = Window::between(now - age, now);
                let request = SeriesRequest { metric: number, window, now, max_points: 1 << 20, rollup: None };
                let series =
                    self.runtime.block_on(self.ingest.series().fetch(vec![request])).unwrap().remove(0).unwrap();
                assert_eq!(series.step, step);
                let mut expected: BTreeMap<Timestamp, Partial> = BTreeMap::new();
                for (&time, &value) in &points {
                    let all = expected.entry(time - time % i64::from(step)).or_insert(Partial::NONE);
                    *all = method.merge(*all, Partial::point(value));
                }
                for (i, &is) in series.values.iter().enumerate() {
                    let time = series.start + i as i64 * i64::from(step);
                    let want = method.finish(expected.get(&time).copied().unwrap_or(Partial::NONE), step, 0.0);
                    // Of two that are as far from zero, which one came first is not in the rows.
                    let is_abs = matches!(method, Aggregation::AbsMax | Aggregation::AbsMin);
                    let (is, want) = if is_abs { (is.abs(), want.abs()) } else { (is, want) };
                    let is_same = is.is_nan() && want.is_nan() || (is - want).abs() <= 1e-9 * want.abs().max(1.0);
                    assert!(
                        is_same,
                        "{what}, writer {}: {name} at {time} ({step} s) is {is}, expected {want}",
                        self.driver.place
                    );
                }
            }
        }
    }
}

/// Checks each node.
fn check(nodes: &[Node], stored: &Points, what: &str) {
    for node in nodes {
        let others = nodes.iter().filter(|other| other.driver.place != node.driver.place);
        let given: Vec<&Points> = others.filter(|other| other.open.is_some()).map(|other| &other.held).collect();
        node.check(stored, &given, what);
    }
}

fn run(seed: u64, gives: bool) {
    println!("SEED={seed}, points in memory are given: {gives}");
    let random = SeededRandom::new(seed);
    let tables = Arc::new(Mutex::new(Tables::default()));
    let mut nodes = Vec::new();
    for place in 0..WRITERS {
        nodes.push(Node::begin(place, &tables));
    }
    let open = Arc::<Open>::default();
    nodes.iter_mut().filter(|_| gives).for_each(|node| node.meet(&open));
    let mut stored = Points::new();
    let base = (now() - 3000) / 60 * 60;
    // Each writer's clock; it has the seconds that are its own remainder to itself.
    let mut clocks = [base; WRITERS];
    for step in 0..80 {
        let place = random.below(WRITERS as u64) as usize;
        let what = format!("step {step}");
        match random.below(12) {
            0..6 => {
                let (count, behind) = (1 + random.below(40), random.below(8) == 0);
                let mut points = Vec::new();
                for _ in 0..count {
                    clocks[place] += WRITERS as i64 * (1 + random.below(2) as i64);
                    let time = clocks[place] / WRITERS as i64 * WRITERS as i64 + place as i64;
                    let value = (random.below(2001) as f64 - 1000.0) / 8.0;
                    if time < base + 2900 {
                        points.extend(METHODS.map(|(method, _)| (format!("{method}.m"), time, value)));
                    }
                }
                if behind {
                    // The other one is in front, now.
                    clocks[1 - place] = clocks[1 - place].max(clocks[place] + 30);
                }
                nodes[place].send(&points);
            }
            6 => {
                // Late: before the last point that this writer has stored. Sums are corrected, whichever writer's point it was;
                // an extreme that a writer goes on from in memory cannot be taken away by another.
                let mut points = Vec::new();
                for (method, aggregation) in METHODS {
                    let name = format!("{method}.m");
                    let Some(&until) = nodes[place].until.get(&name) else { continue };
                    let time = base + random.below((until - base).max(1) as u64) as i64;
                    let has = |points: &Points| points.get(&name).is_some_and(|points| points.contains_key(&time));
                    let is_held = nodes.iter().any(|node| has(&node.held));
                    // A slot that the other one reaches later is counted by both, as in BigGraphite.
                    let is_behind = time < clocks[1 - place];
                    if is_behind && !is_held && (adds(aggregation) || !has(&stored)) {
                        points.push((name, time, random.below(100) as f64));
                    }
                }
                nodes[place].send(&points);
            }
            7..10 => nodes[place].flush(&mut stored),
            10 => nodes[place].crash(),
            _ => {
                let moves = random.below(3);
                open.moves.store(moves, SeqCst);
                check(&nodes, &stored, &format!("{what}, moves {moves}"));
                open.moves.store(0, SeqCst);
            }
        }
    }
    for node in &mut nodes {
        node.flush(&mut stored);
    }
    check(&nodes, &stored, "at the end");
}

#[test]
fn the_rows_of_all_writers_add_up_to_all_points_sent() {
    runs(false);
}

#[test]
fn a_node_that_is_given_points_in_memory_shows_all_points_sent_whatever_is_stored_meanwhile() {
    runs(true);
}

#[test]
fn a_nodes_own_value_of_a_slot_comes_before_that_of_another() {
    let tables = Arc::new(Mutex::new(Tables::default()));
    let mut nodes: Vec<Node> = (0..2).map(|place| Node::begin(place, &tables)).collect();
    let open = Arc::<Open>::default();
    nodes.iter_mut().for_each(|node| node.meet(&open));
    let base = (now() - 3000) / 60 * 60;
    for (place, node) in nodes.iter_mut().enumerate() {
        // Every slot of a minute on the one, every second one on the other, in runs and one by one.
        let times = (0..60).step_by(1 + place).map(|i| base + (i * 7) % 60);
        let value = |time: Timestamp| (time - base + 1000 * place as i64) as f64;
        let points = times.flat_map(|time| METHODS.map(|(method, _)| (format!("{method}.m"), time, value(time))));
        node.send(&points.collect::<Vec<_>>());
    }
    check(&nodes, &Points::new(), "both in memory");
}

fn runs(gives: bool) {
    seeds(6).for_each(|seed| run(seed, gives));
}

#[test]
fn a_writer_that_continues_reads_nothing_and_adds_its_partials() {
    let tables = Arc::new(Mutex::new(Tables::default()));
    let (mut nodes, mut stored) = ((0..2).map(|place| Node::begin(place, &tables)).collect::<Vec<_>>(), Points::new());
    let base = (now() - 3000) / 60 * 60;
    for flush in 0..10 {
        for (place, node) in nodes.iter_mut().enumerate() {
            let times = (0..30).map(|i| base + 60 * flush + 2 * i + place as i64);
            node.send(&times.map(|time| ("sum.m".to_owned(), time, time as f64 / 8.0)).collect::<Vec<_>>());
            node.flush(&mut stored);
        }
    }
    {
        let tables = tables.lock().unwrap();
        assert_eq!((tables.fetched, tables.asked), (0, 0));
        let minute = tables.rows.iter().find(|((_, table, _), _)| table.stage.resolution() == 60).unwrap().1;
        assert_eq!(minute.map(|row| row.map(|row| row.count)), [Some(30), Some(30)]);
    }
    nodes.iter().for_each(|node| node.check(&stored, &[], "all stored"));
    // One that begins again finds out what is stored once, and then goes on.
    nodes[1].crash();
    let send = |node: &mut Node, flush: i64| {
        let times = (0..30).map(|i| base + 60 * flush + i).collect::<Vec<_>>();
        node.send(&times.iter().map(|&time| ("sum.m".to_owned(), time, 1.0)).collect::<Vec<_>>());
    };
    send(&mut nodes[1], 10);
    nodes[1].flush(&mut stored);
    let fetched = tables.lock().unwrap().fetched;
    assert!(fetched > 0);
    send(&mut nodes[1], 11);
    nodes[1].flush(&mut stored);
    assert_eq!(tables.lock().unwrap().fetched, fetched);
    nodes.iter().for_each(|node| node.check(&stored, &[], "after the crash"));
}

/// The value of the slot of `step` seconds around `time`, in the stage that answers for this age.
fn shown(node: &Node, name: &str, age: i64, step: u32, time: Timestamp) -> f64 {
    let registry = node.ingest.registry();
    let metric = registry.read().find(registry.hash(name.as_bytes()), name.as_bytes()).unwrap();
    let window = Window::between(now() - age, now());
    let request = SeriesRequest { metric, window, now: now(), max_points: 1 << 20, rollup: None };
    let series = node.runtime.block_on(node.ingest.series().fetch(vec![request])).unwrap().remove(0).unwrap();
    assert_eq!(series.step, step);
    series.values[((time - series.start) / i64::from(step)) as usize]
}

#[test]
fn a_late_point_after_longer_retentions_counts_with_those_of_coarser_slots() {
    let base = (now() - 7 * 3600) / 600 * 600;
    let minutes = [(base, 153.0), (base + 90, 200.0)];
    for (after, step, age) in
        [("10s:1d,120s:30d", 120, 2 * 86_400), ("10s:1d,60s:7d", 60, 2 * 86_400), ("5s:1d,120s:30d", 120, 2 * 86_400)]
    {
        let tables = Arc::new(Mutex::new(Tables::default()));
        let mut node = Node::begin(0, &tables);
        node.runtime.block_on(node.ingest.set_rules(rules_of("10s:6h,60s:7d", &METHODS, 0.0)));
        let send = |node: &mut Node, points: &[(Timestamp, f64)]| {
            let of = |(method, _): (&str, Aggregation)| {
                points.iter().map(|&(time, value)| (format!("{method}.m"), time, value)).collect::<Vec<_>>()
            };
            node.send(&METHODS.into_iter().flat_map(of).collect::<Vec<_>>());
        };
        send(&mut node, &minutes);
        node.flush(&mut Points::new());
        node.runtime.block_on(node.ingest.set_rules(rules_of(after, &METHODS, 0.0)));
        let slot = base + 60 / i64::from(step) * 60;
        let mut late = -20.0_f64;
        for what in ["in memory", "stored", "sent again", "stored again", "another value", "stored"] {
            match what {
                "in memory" | "sent again" => send(&mut node, &[(base + 70, late)]),
                "another value" => {
                    late = -30.0;
                    send(&mut node, &[(base + 70, late)]);
                }
                _ => node.flush(&mut Points::new()),
            }
            for (name, method) in
                METHODS.into_iter().filter(|(_, method)| step == 60 || !after.starts_with('5') || !adds(*method))
            {
                let of_minutes = minutes.iter().filter(|(time, _)| slot <= *time);
                let all = of_minutes.map(|(_, value)| method.whole(*value, 6)).chain([Partial::point(match method {
                    // An extreme that is overwritten may stay: what else the row has is not known.
                    Aggregation::AbsMin => -20.0,
                    _ => late,
                })]);
                let all = all.fold(Partial::NONE, |all, one| method.merge(all, one));
                let is = shown(&node, &format!("{name}.m"), age, step, base + 60);
                let want = method.finish(all, step / 10, 0.0);
                assert!((is - want).abs() < 1e-9, "{after}, {name}, {what}: {is}, expected {want}");
            }
        }
    }
}
