//! Two writers of the same tables store points of one coarse slot at the same moment: what the one derived meanwhile is derived once
//! more, soon, by the one that derived and by the one whose write took long. So are rows of others that a node corrected, which these may
//! write over. Time is moved by the test.

mod support;

use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use carbon::Sink as _;
use host::{Clock as _, Host, ManualClock};
use ingest::{Ingest, Protocol};
use metric::{Aggregation, Stage, Table, Timestamp, Window};
use store::{MetricRecord, PolicyChange, SeriesRequest, Store};
use support::{
    options, registry_of, rules_by_method, runtime,
    shared_tables::{Tables, Writer},
};
use tokio::runtime::Runtime;

/// A whole hour of a day in 2026.
const BEGIN: Timestamp = 1_795_000_000 / 3600 * 3600;

/// After this time a node looks again.
const SOON: Duration = Duration::from_secs(10);

/// Points stay in memory for so long. A quarter of that later, and after the end of each slot, a node looks again at rows of others that it
/// corrected.
const FLUSH_AFTER: Duration = Duration::from_secs(60);

/// Points of a slot of ten seconds, the sum of each half, and the seconds of each.
const FIRST: (std::ops::Range<i64>, f64) = (0..5, 10.0);
const SECOND: (std::ops::Range<i64>, f64) = (5..10, 35.0);

const METHODS: [(&str, Aggregation); 2] = [("sum", Aggregation::Sum), ("max", Aggregation::Max)];
const SUM: &str = "sum.m";
const MAX: &str = "max.m";

struct Two {
    run: Runtime,
    clock: Arc<ManualClock>,
    folders: [tempfile::TempDir; 2],
    writers: [Arc<Writer>; 2],
    nodes: [Arc<Ingest>; 2],
}

async fn open(folder: &Path, writer: &Arc<Writer>, clock: &Arc<ManualClock>) -> Arc<Ingest> {
    let mut options = options(folder, Duration::from_millis(20));
    options.host = Host { clock: clock.clone(), ..Host::system() };
    options.data_dir = Some(folder.to_owned());
    options.flush_after = FLUSH_AFTER;
    let store = Store { shared: Some(writer.clone()), ..Store::of(writer.clone()) };
    Ingest::open(options, store, registry_of(&**writer).await, rules_by_method(&METHODS, 0.0)).await.unwrap()
}

async fn send(node: &Ingest, seconds: impl Iterator<Item = i64>) {
    send_values(node, SUM, seconds.map(|second| (second, second as f64))).await;
}

async fn send_values(node: &Ingest, name: &str, points: impl Iterator<Item = (i64, f64)>) {
    let mut batch = node.batch(Protocol::LineTcp);
    points.for_each(|(second, value)| batch.point(name.as_bytes(), BEGIN + second, value));
    node.accept(&mut batch).await;
}

impl Two {
    fn begin() -> Two {
        let (run, clock) = (runtime(2), Arc::new(ManualClock::at(BEGIN + 600)));
        let (tables, folders) = (Arc::new(Mutex::new(Tables::default())), [0; 2].map(|_| tempfile::tempdir().unwrap()));
        let writers = [0, 1].map(|place| Writer::new(&tables, place));
        let nodes = [0, 1].map(|place| run.block_on(open(folders[place].path(), &writers[place], &clock)));
        Two { run, clock, folders, writers, nodes }
    }

    /// A node gets to know a metric that another one has had for a while.
    fn adopt(&self, place: usize, name: &str) {
        let [(id, name)] = self.nodes[place].reserve(vec![name], |name| name)[..] else { panic!("it is new") };
        let rules = rules_by_method(&METHODS, 0.0);
        let carbon::Decision::Keep(index) = rules.decide(name) else { panic!("the rules keep it") };
        let policy = rules.policy(index).clone();
        let policies = vec![PolicyChange { since: 0, policy }];
        let record = MetricRecord { id, name: name.to_owned(), created_on: BEGIN - 1000, policies };
        assert_eq!(self.nodes[place].adopt(vec![record]), 1);
    }

    fn flush(&self, place: usize) {
        self.run.block_on(self.nodes[place].flush()).unwrap();
    }

    /// Lets time pass, and the nodes flush.
    fn pass(&self, time: Duration) {
        self.clock.advance(time);
        (0..2).for_each(|place| self.flush(place));
    }

    /// Kills a node, and starts it again.
    fn kill(&mut self, place: usize) {
        // Tasks of both end; the other one had nothing to do.
        std::mem::replace(&mut self.run, runtime(2)).shutdown_timeout(Duration::from_secs(1));
        for again in [place, 1 - place] {
            let (folder, writer) = (self.folders[again].path(), &self.writers[again]);
            self.nodes[again] = self.run.block_on(open(folder, writer, &self.clock));
        }
    }

    /// What each node shows of the first slot of ten seconds and of the first minute.
    fn shown(&self) -> [[f64; 2]; 2] {
        self.shown_of(SUM, 0)
    }

    /// The same of another metric, and of the slots of this second.
    fn shown_of(&self, name: &str, second: i64) -> [[f64; 2]; 2] {
        [0, 1].map(|place| {
            [(2 * 3600, 10), (10 * 3600, 60)].map(|(age, step)| self.slot((place, name), age, step, second))
        })
    }

    /// What each node shows of the slot of ten seconds that begins at this second.
    fn tens(&self, second: i64) -> [f64; 2] {
        [0, 1].map(|place| self.slot((place, SUM), 2 * 3600, 10, second))
    }

    /// What a node shows of a metric in the slot of this step at this second, of a window that begins so long ago.
    fn slot(&self, (place, name): (usize, &str), age: Timestamp, step: u32, second: i64) -> f64 {
        let (node, now) = (&self.nodes[place], self.clock.now());
        let registry = node.registry();
        let metric = registry.read().find(registry.hash(name.as_bytes()), name.as_bytes()).expect("it has points");
        let window = Window::between(now - age, now);
        let request = SeriesRequest { metric, window, now, max_points: 1 << 20, rollup: None };
        let series = self.run.block_on(node.series().fetch(vec![request])).unwrap().remove(0).unwrap();
        assert_eq!(series.step, step);
        series.values[((BEGIN + second - series.start) / i64::from(step)) as usize]
    }

    /// Both nodes have a point, at these seconds. A node derives what comes before its point, and extends what comes after it.
    fn know(&self, seconds: [i64; 2]) {
        for (node, second) in self.nodes.iter().zip(seconds) {
            self.run.block_on(send(node, std::iter::once(second)));
        }
        self.pass(Duration::ZERO);
        // And has looked again at that.
        self.pass(SOON);
    }

    /// The first node stores its half of the slot between two reads of the other one, which stores the second half.
    fn store_at_once(&self) {
        self.know([-30, 300]);
        let first = self.nodes[0].clone();
        *self.writers[1].before_rows.lock().unwrap() = Some(Box::pin(async move {
            send(&first, FIRST.0).await;
            first.flush().await.unwrap();
        }));
        self.run.block_on(send(&self.nodes[1], SECOND.0));
        self.flush(1);
    }
}

const ALL: f64 = FIRST.1 + SECOND.1;

#[test]
fn what_two_nodes_stored_at_once_is_right_within_seconds() {
    let two = Two::begin();
    // Both know the metric.
    for node in &two.nodes {
        two.run.block_on(send(node, std::iter::once(300)));
    }
    two.pass(Duration::ZERO);
    // And have looked again at that: a look behind another one comes later.
    two.pass(SOON);
    two.store_at_once();
    assert_eq!(
        two.shown(),
        [[SECOND.1; 2]; 2],
        "the rows of the first one were corrected by what the other one had read"
    );
    two.pass(SOON);
    assert_eq!(two.shown(), [[ALL; 2]; 2]);
    // And it stays so.
    two.pass(20 * SOON);
    two.pass(66 * SOON);
    assert_eq!(two.shown(), [[ALL; 2]; 2]);
}

#[test]
fn slots_that_are_damaged_stay_so_and_the_others_become_right_within_seconds() {
    let two = Two::begin();
    two.store_at_once();
    let minute = Table { stage: Stage::new(60, 2880).unwrap(), aggregated: true, rollup: None };
    let key = (SUM.to_owned(), minute, (BEGIN / 60) as u32);
    let tables = two.writers[0].tables.clone();
    tables.lock().unwrap().damaged.insert(key.clone());
    let stored = tables.lock().unwrap().rows[&key];
    (0..3).for_each(|_| two.pass(SOON));
    for [ten_seconds, minute] in two.shown() {
        assert!(ten_seconds == ALL && minute.is_nan(), "{ten_seconds}, {minute}");
    }
    assert_eq!(tables.lock().unwrap().rows[&key], stored);
    // Nothing that a node could wait for.
    assert_eq!([0, 1].map(|place| two.nodes[place].rechecks_soon()), [0; 2]);
}

#[test]
fn a_metric_that_moves_within_a_slot_of_its_first_stage_is_counted_once_within_seconds() {
    let sum = |first: i64, end: i64| (first..end).sum::<i64>() as f64;
    // Which of them writes first.
    for order in [[0, 1], [1, 0]] {
        let two = Two::begin();
        two.know([589, 500]);
        // The last second comes again to the other node, with those that follow.
        let seconds = [590..596, 595..600];
        for place in order {
            two.run.block_on(send(&two.nodes[place], seconds[place].clone()));
            two.flush(place);
        }
        assert_eq!(two.tens(590), [sum(590, 600) + 595.0; 2], "both extend from memory, and count it");
        two.pass(SOON);
        assert_eq!(two.tens(590), [sum(590, 600); 2]);
        // And back, a minute later.
        two.run.block_on(send(&two.nodes[1], 600..666));
        two.clock.advance(Duration::from_secs(56));
        two.flush(1);
        two.run.block_on(send(&two.nodes[0], 665..670));
        two.flush(0);
        two.pass(SOON);
        assert_eq!(two.tens(660), [sum(660, 670); 2]);
    }
}

#[test]
fn the_first_points_that_a_node_gets_of_a_metric_of_another_are_counted_once_within_seconds() {
    let sum = (590..600).sum::<i64>() as f64;
    for order in [[0, 1], [1, 0]] {
        let two = Two::begin();
        two.adopt(1, SUM);
        let seconds = [590..596, 595..600];
        for place in order {
            two.run.block_on(send(&two.nodes[place], seconds[place].clone()));
            two.flush(place);
        }
        assert_eq!(two.tens(590), [sum + 595.0; 2], "both extend from nothing, and count it");
        two.pass(SOON);
        assert_eq!(two.tens(590), [sum; 2]);
    }
    // A late point through a node that never had the metric replaces one that is stored.
    let two = Two::begin();
    two.adopt(1, SUM);
    two.run.block_on(send(&two.nodes[0], 590..600));
    two.flush(0);
    two.run.block_on(send_values(&two.nodes[1], SUM, std::iter::once((593, 0.0))));
    two.flush(1);
    two.pass(SOON);
    assert_eq!(two.tens(590), [sum - 593.0; 2]);
}

/// A relay's queue, a correction or an import that is repeated: half of the points of an hour come once more, to another node.
#[test]
fn points_that_come_again_to_another_node_are_counted_once_within_seconds() {
    let again = || (0..600).filter(|second| second % 20 < 10);
    let expected: f64 = (0..600).map(|second| if second % 20 < 10 { 5.0 } else { second as f64 }).sum();
    let sum = |two: &Two| {
        [0, 1].map(|place| {
            let minutes = (0..600).step_by(60);
            minutes.map(|second| two.slot((place, SUM), 10 * 3600, 60, second)).sum::<f64>()
        })
    };
    for what in
        ["the metric was on the other node", "it is younger than its points", "it was here before", "it is here"]
    {
        let two = Two::begin();
        match what {
            "the metric was on the other node" => two.adopt(1, SUM),
            "it was here before" => two.know([-31, -100]),
            _ => {}
        }
        two.run.block_on(send(&two.nodes[0], 0..600));
        two.flush(0);
        if what == "it is here" {
            two.know([601, -1]);
            two.clock.advance(FLUSH_AFTER + Duration::from_secs(120));
        }
        two.run.block_on(send_values(&two.nodes[1], SUM, again().map(|second| (second, 5.0))));
        two.flush(1);
        two.pass(SOON);
        assert_eq!(sum(&two), [expected; 2], "{what}");
    }
}

/// The other node stores what it had, and has looked at it, before the first one stores anything.
#[test]
fn a_metric_that_is_away_for_minutes_and_back_before_a_flush_is_counted_once_within_seconds() {
    let sum = |seconds: std::ops::Range<i64>| seconds.sum::<i64>() as f64;
    let two = Two::begin();
    two.know([580, 500]);
    two.run.block_on(send(&two.nodes[0], 590..596));
    two.clock.advance(Duration::from_secs(125));
    two.run.block_on(send(&two.nodes[1], 595..720));
    for time in [Duration::ZERO, SOON, 70 * SOON, 70 * SOON] {
        two.clock.advance(time);
        two.flush(1);
    }
    let now = two.clock.now() - BEGIN;
    two.run.block_on(send(&two.nodes[0], std::iter::once(719).chain(now - 10..now)));
    two.flush(0);
    let shown = || [two.tens(590), two.tens(710)];
    assert_eq!(shown(), [[sum(590..600) + 595.0; 2], [sum(710..720) + 719.0; 2]]);
    two.pass(SOON);
    assert_eq!(shown(), [[sum(590..600); 2], [sum(710..720); 2]]);
}

#[test]
fn a_metric_that_is_deleted_while_its_points_are_written_is_not_looked_at_again() {
    let two = Two::begin();
    two.run.block_on(send(&two.nodes[0], 590..600));
    let node = two.nodes[0].clone();
    *two.writers[0].after_points.lock().unwrap() = Some(Box::pin(async move {
        let find = |node: &Ingest| node.registry().read().find(node.registry().hash(SUM.as_bytes()), SUM.as_bytes());
        let metric = find(&node).expect("it has points");
        // As the deletion of another node is followed.
        node.delete_followed(vec![(metric, BEGIN + 700)], 0, node.registration_turn().await).await.unwrap();
        assert_eq!(find(&node), None);
    }));
    two.flush(0);
    assert_eq!(two.nodes[0].rechecks_soon(), 0);
}

#[test]
fn a_node_that_a_metric_has_left_looks_too_where_it_writes_later() {
    let two = Two::begin();
    two.know([-1, -100]);
    two.run.block_on(send(&two.nodes[1], 4..10));
    two.flush(1);
    two.pass(SOON);
    two.run.block_on(send(&two.nodes[0], FIRST.0));
    two.flush(0);
    assert_eq!(two.shown(), [[ALL + 4.0; 2]; 2]);
    two.pass(SOON);
    assert_eq!(two.shown(), [[ALL; 2]; 2]);
}

#[test]
fn a_metric_that_stays_on_its_node_is_not_read_again() {
    // Seconds between two flushes, and by which points are late: also where a sender or a clock is off, and where a store is slow.
    for (every, late) in [(10, 0), (60, 45), (200, 0), (200, 45)] {
        let two = Two::begin();
        let pass = || {
            two.clock.advance(Duration::from_secs(every as u64));
            let until = two.clock.now() - BEGIN - late;
            two.run.block_on(send(&two.nodes[0], until - every..until));
            (0..2).for_each(|place| two.flush(place));
        };
        let fetched = || two.writers[0].tables.lock().unwrap().fetched;
        two.know([-1, -100]);
        // What it looks at again because of its first points, soon and late.
        (0..3000 / every).for_each(|_| pass());
        let before = fetched();
        (0..9).for_each(|_| pass());
        assert_eq!((fetched(), before > 0), (before, true), "each {every} s, {late} s late");
    }
}

#[test]
fn a_node_that_stops_looks_once_more_before() {
    let two = Two::begin();
    two.store_at_once();
    assert_eq!(two.shown()[0], [SECOND.1; 2]);
    two.run.block_on(two.nodes[1].close_patiently(Duration::from_secs(5))).unwrap();
    assert_eq!(two.shown()[0], [ALL; 2]);
}

#[test]
fn a_node_that_is_killed_looks_again_after_its_next_start() {
    let mut two = Two::begin();
    two.store_at_once();
    two.kill(1);
    two.pass(SOON);
    assert_eq!(two.shown(), [[ALL; 2]; 2]);
}

#[test]
fn a_node_whose_write_took_long_looks_at_what_others_made_of_a_part_of_it() {
    let two = Two::begin();
    two.know([-30, 300]);
    let (other, clock) = (two.nodes[1].clone(), two.clock.clone());
    *two.writers[0].after_points.lock().unwrap() = Some(Box::pin(async move {
        send(&other, SECOND.0).await;
        other.flush().await.unwrap();
        // The other one has looked again, and found what it had written.
        clock.advance(SOON);
        other.flush().await.unwrap();
    }));
    two.run.block_on(send(&two.nodes[0], FIRST.0));
    two.flush(0);
    assert_eq!(two.shown(), [[ALL + FIRST.1; 2]; 2], "the first half counts for both");
    two.pass(SOON);
    assert_eq!(two.shown(), [[ALL; 2]; 2]);
}

#[test]
fn a_correction_that_its_writer_writes_over_is_made_again_until_that_writer_is_at_the_next_slot() {
    let two = Two::begin();
    let store = |place: usize, second: i64, value: f64| {
        let points = std::iter::once((second, value));
        two.run.block_on(send_values(&two.nodes[place], MAX, points));
        two.flush(place);
    };
    let shown = || two.shown_of(MAX, 600);
    two.clock.advance(Duration::from_secs(5));
    // The second one derives what comes before this, the first one extends what it has in memory.
    store(1, 605, 1.0);
    store(0, 600, 100.0);
    two.pass(SOON);
    store(0, 601, 1.0);
    assert_eq!(shown(), [[100.0; 2]; 2]);
    store(1, 600, 2.0);
    assert_eq!(shown(), [[2.0; 2]; 2], "the row of the first one is corrected");
    two.pass(SOON);
    two.pass(FLUSH_AFTER / 4);
    // All looks of the second one so far found it right.
    for second in 602..605 {
        store(0, second, 1.0);
        assert_eq!(shown(), [[100.0; 2]; 2], "the first one has the old extreme in memory");
        two.pass(FLUSH_AFTER / 4);
        assert_eq!(shown(), [[2.0; 2]; 2]);
    }
    two.pass(SOON);
    store(0, 660, 1.0);
    assert_eq!(shown(), [[2.0; 2]; 2]);
    two.pass(FLUSH_AFTER * 2);
    two.pass(66 * SOON);
    assert_eq!((shown(), two.shown_of(MAX, 660)), ([[2.0; 2]; 2], [[1.0; 2]; 2]));
}
