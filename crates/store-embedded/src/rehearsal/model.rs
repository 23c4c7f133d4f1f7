//! Random operations, faults, kills and power cuts from a seed, against a map of slots.

use std::{collections::BTreeMap, ops::Range};

use host::{Fault, FaultPlan, Random, SeededRandom};
use metric::{MetricId, Slot, Table};
use store::DamageLog;

use super::node::{NOW, Node, run, table};

const METRICS: u32 = 6;
/// Slots that are written, up to now: two windows or three.
const SLOTS: u32 = 3000;

/// What may be stored in a slot.
#[derive(Debug, Clone, Default)]
struct SlotModel {
    /// As of the last sync; bits, so that they compare.
    synced: Option<u64>,
    /// Written since, oldest first.
    later: Vec<u64>,
}

struct Model {
    node: Node,
    random: SeededRandom,
    tables: Vec<Table>,
    slots: BTreeMap<(Table, u32, Slot), SlotModel>,
    what: String,
}

impl Model {
    fn new(seed: u64) -> Model {
        let tables = vec![table(1, 3_000, false), table(1, 100_000, false), table(60, 10_080, true)];
        let (node, random) = (Node::new(), SeededRandom::new(seed));
        Model { node, random, tables, slots: BTreeMap::new(), what: format!("seed {seed}") }
    }

    fn below(&self, bound: u32) -> u32 {
        self.random.below(u64::from(bound)) as u32
    }

    fn any_table(&self) -> Table {
        self.tables[self.random.index(self.tables.len())]
    }

    fn first_slot(&self, table: Table) -> Slot {
        table.stage.slot(NOW).unwrap() - SLOTS
    }

    fn any_slots(&self, table: Table) -> Range<Slot> {
        let longest = if self.below(8) == 0 { 1200 } else { 40 };
        let first = self.first_slot(table) + self.below(SLOTS - 1200);
        first..first + 1 + self.below(longest)
    }

    fn write(&mut self) {
        let mut runs = Vec::new();
        for _ in 0..1 + self.below(8) {
            let (table, metric) = (self.any_table(), self.below(METRICS));
            let slots = self.any_slots(table);
            let level = f64::from(self.below(1000));
            let holes = self.below(3) == 0;
            let value = |_| {
                if holes && self.below(3) == 0 { f64::NAN } else { level + f64::from(self.below(100)) / 100.0 }
            };
            let values: Vec<f64> = slots.clone().map(value).collect();
            for (slot, value) in slots.clone().zip(&values).filter(|(_, value)| !value.is_nan()) {
                self.slots.entry((table, metric, slot)).or_default().later.push(value.to_bits());
            }
            runs.push(run(table, metric, slots.start, values));
        }
        self.node.write(&runs);
    }

    fn synced(&mut self) {
        for slot in self.slots.values_mut() {
            slot.synced = slot.later.pop().or(slot.synced);
            slot.later.clear();
        }
    }

    /// The last value of each slot is read, and nothing where none was written.
    fn check(&self, table: Table, metric: u32, slots: Range<Slot>, is_faulty: bool) {
        let cells = self.node.fetch(table, metric, slots.clone());
        if cells.is_damaged && is_faulty {
            // A file could not be opened.
            return;
        }
        assert!(!cells.is_damaged, "{:?}; {}", self.node.damage.examples(), self.what);
        for (place, slot) in slots.enumerate() {
            let wanted =
                self.slots.get(&(table, metric, slot)).and_then(|slot| slot.later.last().copied().or(slot.synced));
            let got = cells.values.get(place).filter(|value| !value.is_nan()).map(|value| value.to_bits());
            assert_eq!(
                got.map(f64::from_bits),
                wanted.map(f64::from_bits),
                "slot {slot} of {metric} in {table}; {}",
                self.what
            );
            if table.aggregated && got.is_some() {
                assert_eq!(cells.counts[place], 3, "{}", self.what);
            }
        }
    }

    fn check_all(&self) {
        for &table in &self.tables {
            let first = self.first_slot(table);
            (0..METRICS).for_each(|metric| self.check(table, metric, first..first + SLOTS, false));
        }
    }

    /// After the process ended without a sync: each slot has its synced value or a later one, which is from now on what
    /// it has.
    fn settle(&mut self) {
        for &table in &self.tables.clone() {
            let first = self.first_slot(table);
            for metric in 0..METRICS {
                let cells = self.node.fetch(table, metric, first..first + SLOTS);
                assert!(!cells.is_damaged, "{:?}; {}", self.node.damage.examples(), self.what);
                for slot in first..first + SLOTS {
                    let value = cells.values.get((slot - first) as usize).filter(|value| !value.is_nan());
                    let got = value.map(|value| value.to_bits());
                    let known = self.slots.get(&(table, metric, slot)).cloned().unwrap_or_default();
                    let is_right = got == known.synced || got.is_some_and(|got| known.later.contains(&got));
                    assert!(is_right, "{got:?} in slot {slot} of {metric} in {table}, of {known:?}; {}", self.what);
                    match got {
                        Some(got) => {
                            let settled = SlotModel { synced: Some(got), later: Vec::new() };
                            self.slots.insert((table, metric, slot), settled);
                        }
                        None => _ = self.slots.remove(&(table, metric, slot)),
                    }
                }
            }
        }
        self.no_damage();
    }

    fn no_damage(&self) {
        let found = self.node.damage.examples();
        assert!(found.is_empty(), "{found:?}; {}", self.what);
    }

    /// One operation; `is_faulty` when a call of the disk may fail in it.
    fn step(&mut self, is_faulty: bool) {
        match self.below(100) {
            0..45 => self.write(),
            45..60 => {
                let synced = self.node.points().flush();
                assert!(is_faulty || synced.is_ok(), "{synced:?}; {}", self.what);
                if synced.is_ok() {
                    self.synced();
                }
            }
            60..64 => self.node.merge(),
            64..66 => {
                let merged = self.node.merge_fully();
                assert!(is_faulty || merged.is_ok(), "{merged:?}; {}", self.what);
            }
            66..70 => {
                // Early enough that nothing of the model expires; the windows of other times are tested below.
                let expired = self.node.points().expire(NOW - 10);
                assert!(is_faulty || expired.is_ok(), "{expired:?}; {}", self.what);
            }
            _ => {
                let (table, metric) = (self.any_table(), self.below(METRICS));
                let slots = self.any_slots(table);
                self.check(table, metric, slots, is_faulty);
            }
        }
    }

    fn end(&mut self) {
        let disk = match self.below(3) {
            0 => {
                self.node.points().flush().unwrap();
                self.synced();
                self.node.disk.kill()
            }
            1 => self.node.disk.kill(),
            _ => self.node.disk.crash(&self.random),
        };
        self.node.restart_on(disk);
        self.settle();
    }
}

fn seeds(how_many: u64) -> impl Iterator<Item = u64> {
    let one = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    println!("to run one seed again set SEED");
    one.map_or(1..1 + how_many, |seed| seed..seed + 1)
}

#[test]
fn any_operations_kills_and_power_cuts_agree_with_a_map() {
    for seed in seeds(6) {
        let mut model = Model::new(seed);
        for round in 0..5 {
            model.what = format!("seed {seed}, round {round}");
            (0..40).for_each(|_| model.step(false));
            model.check_all();
            model.end();
        }
    }
}

#[test]
fn a_call_of_the_disk_that_fails_loses_nothing() {
    for seed in seeds(12) {
        let mut model = Model::new(seed);
        for round in 0..3 {
            model.what = format!("seed {seed}, round {round}");
            (0..10).for_each(|_| model.step(false));
            let fault = [Fault::EIO, Fault::ENOSPC, Fault::EINTR, Fault::ShortWrite][model.random.index(4)];
            let at = u64::from(model.below(40));
            model.what += &format!(", {fault:?} at {at}");
            let times = if model.below(2) == 0 { 1 } else { 5 };
            model.node.disk.set_plan(Some(FaultPlan { times, ..FaultPlan::once(at, fault) }));
            (0..15).for_each(|_| model.step(true));
            model.node.disk.set_plan(None);
            model.check_all();
            // Files that could not be opened were reported.
            model.node.damage = DamageLog::new();
            model.end();
        }
    }
}

#[test]
fn a_process_that_dies_at_any_call_loses_nothing_that_was_synced() {
    for seed in seeds(12) {
        let mut model = Model::new(seed);
        for round in 0..3 {
            (0..10).for_each(|_| model.step(false));
            let at = u64::from(model.below(60));
            model.what = format!("seed {seed}, round {round}, dies at {at}");
            model.node.disk.set_plan(Some(FaultPlan::once(at, Fault::Die)));
            while !model.node.disk.is_dead() {
                // Reads fail once the process is dead, so that only what changes the disk is done.
                match model.below(4) {
                    0 | 1 => model.write(),
                    2 => {
                        if model.node.points().flush().is_ok() {
                            model.synced();
                        }
                    }
                    _ => _ = model.node.merge_fully(),
                }
            }
            // What the dead process reported about its disk does not count.
            model.node.damage = DamageLog::new();
            let disk = if model.below(2) == 0 { model.node.disk.kill() } else { model.node.disk.crash(&model.random) };
            model.node.restart_on(disk);
            model.settle();
        }
    }
}

#[test]
fn expiry_that_dies_at_any_call_moves_windows_whole() {
    let table = table(1, 1000, false);
    let old = table.stage.slot(NOW).unwrap() - 20_000;
    for at in 0..60 {
        let node = Node::new();
        for window in 0..3 {
            node.write(&[run(table, 1, old + window * 2000, vec![f64::from(window)])]);
        }
        let new = table.stage.slot(NOW).unwrap();
        node.write(&[run(table, 1, new, vec![9.0])]);
        node.points().flush().unwrap();
        node.disk.set_plan(Some(FaultPlan::once(at, Fault::Die)));
        let expired = node.points().expire(NOW);
        for power in [false, true] {
            let disk = if power { node.disk.crash(&SeededRandom::new(at)) } else { node.disk.kill() };
            let mut next = Node::new();
            next.restart_on(disk);
            assert_eq!(next.damage.examples(), [], "dies at {at}");
            assert_eq!(next.fetch(table, 1, new..new + 1).values, [9.0], "dies at {at}");
            for window in 0..3 {
                let slot = old + window * 2000;
                let stored = next.fetch(table, 1, slot..slot + 1).values;
                assert!(stored.is_empty() || expired.is_err() && stored == [f64::from(window)], "dies at {at}");
            }
            next.points().expire(NOW).unwrap();
            assert_eq!(next.fetch(table, 1, old..old + 6000).values, []);
            let in_trash = next.disk.files(std::path::Path::new("/data/trash"));
            assert_eq!(in_trash.iter().filter(|(path, _)| path.extension().is_some()).count(), 3, "{in_trash:?}");
        }
    }
}

#[test]
fn rows_of_deleted_metrics_are_left_out_of_merges() {
    let mut node = Node::new();
    let table = table(60, 10_080, false);
    for round in 0..3 {
        node.write(&[run(table, 1, 28_000_000 + round, vec![1.0]), run(table, 2, 28_000_000 + round, vec![2.0])]);
        node.points().flush().unwrap();
    }
    node.deleted.insert(MetricId(1));
    node.merge_fully().unwrap();
    assert_eq!(node.fetch(table, 1, 28_000_000..28_000_003).values, []);
    assert_eq!(node.fetch(table, 2, 28_000_000..28_000_003).values, [2.0; 3]);
    assert_eq!(node.points().highest_metric(), Some(MetricId(2)));
    assert_eq!(node.points().newest_point(), Some(28_000_002 * 60));
}
