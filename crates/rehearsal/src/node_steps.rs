//! Steps of several nodes, from a seed.

use host::{Random as _, SeededRandom};
use metric::Aggregation;
use store_cassandra::{Fate, Layout};

use crate::{
    machine::{LONG, OF_STEPS, PLACES_OF_ROLLED, ROLLED, with_steps},
    network::{PeerWay, TablesWay},
    node_rules::BLOCK,
    seeds::{CLOCKS_OF_NODES, FIRST_STEPS_OF_NODES, NAMES_OF_NODES, RULES_OF_NODES, SEVERAL_LAYOUTS},
};

/// Metrics of each method, where names come and go.
pub(crate) const LETTERS: usize = 2;

/// Seconds of the points of all steps.
pub(crate) const SPAN: i64 = 2900;

/// A point of a metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SentPoint {
    /// Which metric: the number of its method, and once around all methods for each further metric of it.
    pub metric: usize,
    /// Seconds after the first point of all; where names come and go, after this moment; where first steps differ, after the beginning of the
    /// node's minute.
    pub second: i64,
    /// Its value.
    pub value: f64,
}

/// What another node does in the middle of a flush.
#[derive(Debug, Clone, PartialEq)]
pub enum Meanwhile {
    /// It flushes, after it got these points.
    Flush(Vec<SentPoint>),
    /// It answers queries.
    Check,
    /// It deletes metrics.
    Delete(Vec<usize>),
}

/// How a process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// A clean stop.
    Stop,
    /// A kill.
    Kill,
    /// The power fails; the number chooses the state of the disk.
    PowerCut(u64),
    /// A flush and a clean stop; the next process has an empty folder.
    Replace,
}

/// A step. Nodes have numbers from 0.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeStep {
    /// Points for a node. Those of slots that another node has are left out, unless these are stored and the node derives the slot.
    Send(usize, Vec<SentPoint>),
    /// A node writes everything to the tables.
    Flush(usize),
    /// The same, and at one of its statements another node does something.
    FlushWhile(usize, u64, usize, Meanwhile),
    /// A process ends. It starts again when a step needs it.
    End(usize, Ending),
    /// The same, and it starts again with this layout of the tables that it writes.
    Move(usize, Ending, Layout),
    /// The calendar of a node that is down is set, so many seconds from the right time.
    Skew(usize, i64),
    /// The calendar of a node is set, while it runs or is down, so many seconds from the right time.
    Calendar(usize, i64),
    /// The way of a node to the tables.
    Tables(usize, TablesWay),
    /// The way of a node to another one.
    Peer(usize, usize, PeerWay),
    /// Time passes, in seconds.
    Pass(u64),
    /// The operator changes the rules of a node.
    Rules(usize, usize),
    /// A node deletes those of these metrics that it knows.
    Delete(usize, Vec<usize>),
    /// What a node answers is compared with the model.
    Check(usize),
}

/// Steps of several nodes.
#[derive(Debug, Clone)]
pub struct NodesScenario {
    /// Random numbers of the nodes.
    pub seed: u64,
    /// The rules of all nodes at the beginning.
    pub rules: usize,
    /// Whether no name is known before its first point, and metrics are deleted.
    pub has_names: bool,
    /// The layout of the tables that each node writes first. There are as many nodes.
    pub layouts: Vec<Layout>,
    /// What happens.
    pub steps: Vec<NodeStep>,
}

impl NodesScenario {
    /// The scenario of a seed: three to seven nodes. A seed has some of the kinds of faults. From [`SEVERAL_LAYOUTS`] on all nodes
    /// write packed tables, or some of them do, or nodes move from one layout to the other and back.
    pub fn of(seed: u64, steps: usize) -> NodesScenario {
        let random = SeededRandom::new(seed);
        let count = 3 + random.index(5);
        let has = [(); 5].map(|()| random.below(2) == 0);
        let [has_cuts, has_away, has_deaths, has_skew, has_late] = has;
        let (layouts, moving) = layouts(seed, count);
        let mut next_layouts = layouts.clone();
        let mut front = 0;
        let points = |front: &mut i64, is_late: bool| -> Vec<SentPoint> {
            let mut points = Vec::new();
            for _ in 0..1 + random.below(12) {
                let second = if is_late {
                    random.below(1 + *front as u64) as i64
                } else {
                    *front = (*front + 1 + random.below(8) as i64).min(SPAN - 1);
                    *front
                };
                // Numbers whose sums are exact.
                let value = (random.below(2001) as f64 - 1000.0) / 8.0;
                let one = random.index(Aggregation::ALL.len());
                let methods = if random.below(3) == 0 { one..one + 1 } else { 0..Aggregation::ALL.len() };
                points.extend(methods.map(|metric| SentPoint { metric, second, value }));
            }
            points
        };
        let step = |_| {
            let (place, other) = (random.index(count), random.index(count));
            let is_late = has_late && random.below(4) == 0;
            match random.below(32) {
                0..10 => NodeStep::Send(place, points(&mut front, is_late)),
                10..13 => NodeStep::Flush(place),
                13 | 14 => {
                    let meanwhile = match random.below(2) {
                        0 => Meanwhile::Flush(points(&mut front, is_late)),
                        _ => Meanwhile::Check,
                    };
                    NodeStep::FlushWhile(place, random.below(24), other, meanwhile)
                }
                15 | 16 if has_deaths => NodeStep::End(place, ending(&random)),
                17 if has_skew => NodeStep::Skew(place, random.below(600) as i64 - 300),
                18 if has_away => NodeStep::Tables(place, tables_way(&random)),
                19 | 20 if has_cuts => {
                    use PeerWay::{AnswerLost, Refused, Silent, Slow, Up};
                    NodeStep::Peer(place, other, [Up, Refused, Silent, AnswerLost, Slow][random.index(5)])
                }
                21 | 22 => NodeStep::Pass(1 + random.below(20)),
                23..26 if moving > 0 => {
                    let place = place % moving;
                    next_layouts[place] = other_layout(next_layouts[place]);
                    NodeStep::Move(place, ending(&random), next_layouts[place])
                }
                _ => NodeStep::Check(place),
            }
        };
        let steps = (0..steps).map(step).collect();
        let has_names = NAMES_OF_NODES <= seed;
        let mut scenario = NodesScenario { seed, rules: LONG, has_names, layouts, steps };
        match seed {
            _ if FIRST_STEPS_OF_NODES <= seed => scenario.give_first_steps(count),
            _ if RULES_OF_NODES <= seed => {
                scenario.give_names(count);
                scenario.give_rules(count);
            }
            _ if CLOCKS_OF_NODES <= seed => {
                scenario.give_names(count);
                scenario.give_clocks(count);
            }
            _ if NAMES_OF_NODES <= seed => scenario.give_names(count),
            _ => {}
        }
        scenario
    }
}

impl NodesScenario {
    /// Points are of now and not of a span, and of more metrics. Some steps delete metrics. No calendar is wrong: points that were stored
    /// by a clock that is ahead survive a deletion.
    fn give_names(&mut self, count: usize) {
        let random = SeededRandom::new(self.seed ^ 0x6e_616d_6573);
        let metrics = LETTERS * Aggregation::ALL.len();
        let some = || -> Vec<usize> {
            match random.below(3) {
                0 => (0..metrics).collect(),
                1 => (0..Aggregation::ALL.len()).collect(),
                _ => (0..1 + random.below(4)).map(|_| random.index(metrics)).collect(),
            }
        };
        for step in &mut self.steps {
            if let NodeStep::Send(_, points) | NodeStep::FlushWhile(.., Meanwhile::Flush(points)) = step {
                let letter = random.index(LETTERS) * Aggregation::ALL.len();
                let is_late = random.below(6) == 0;
                let mut seconds: Vec<i64> = points.iter().map(|point| point.second).collect();
                seconds.dedup();
                for point in points.iter_mut() {
                    let place = seconds.iter().rev().position(|second| *second == point.second).unwrap_or(0) as i64;
                    point.metric += letter;
                    point.second = if is_late { -place * 97 - 60 } else { -place };
                }
            }
            let place = random.index(count);
            match step {
                NodeStep::Skew(..) => *step = NodeStep::Delete(place, some()),
                NodeStep::FlushWhile(.., meanwhile @ Meanwhile::Check) if random.below(2) == 0 => {
                    *meanwhile = Meanwhile::Delete(some());
                }
                NodeStep::Check(_) if random.below(3) == 0 => *step = NodeStep::Delete(place, some()),
                _ => {}
            }
        }
    }
}

impl NodesScenario {
    /// Calendars are set while nodes run: apart by seconds or by minutes, and right again. Every node reaches the tables and keeps its folder.
    fn give_clocks(&mut self, count: usize) {
        let random = SeededRandom::new(self.seed ^ 0x63_6c6f_636b);
        let most = [8, 40, 240][random.index(3)];
        let set = || {
            let seconds = random.below(2 * most as u64 + 1) as i64 - most;
            NodeStep::Calendar(random.index(count), if random.below(3) == 0 { 0 } else { seconds })
        };
        for step in &mut self.steps {
            match step {
                NodeStep::Tables(..) => *step = set(),
                NodeStep::Check(_) if random.below(5) == 0 => *step = set(),
                NodeStep::Pass(seconds) if random.below(2) == 0 => *seconds *= 3,
                NodeStep::End(_, ending @ Ending::Replace) => *ending = Ending::Stop,
                NodeStep::Move(_, ending @ Ending::Replace, _) => *ending = Ending::Stop,
                _ => {}
            }
        }
    }

    /// An operator changes the rules, of one node after the other. In one seed of two nothing is deleted.
    fn give_rules(&mut self, count: usize) {
        let random = SeededRandom::new(self.seed ^ 0x72_756c_6573);
        self.rules = ROLLED;
        let (has_deletions, is_calm) = (random.below(2) == 0, random.below(2) == 0);
        let mut next = NextRules::default();
        for step in &mut self.steps {
            let is_deletion = matches!(step, NodeStep::Delete(..));
            if matches!(step, NodeStep::FlushWhile(.., Meanwhile::Delete(_))) && !has_deletions {
                let NodeStep::FlushWhile(.., meanwhile) = step else { continue };
                *meanwhile = Meanwhile::Check;
            }
            let is_free = is_deletion && !has_deletions || matches!(step, NodeStep::Check(_)) && random.below(3) == 0;
            if !is_free {
                continue;
            }
            let (node, place) = next.of(&random, count, PLACES_OF_ROLLED);
            *step = NodeStep::Rules(node, ROLLED | place);
        }
        if is_calm {
            self.calm();
            self.change_at_once(count, &random);
        }
    }

    /// The rules change among retentions of several first steps, of one node after the other. No name is known beforehand, and nothing is
    /// deleted. Points are of the last minutes, and each minute is of one node.
    fn give_first_steps(&mut self, count: usize) {
        let random = SeededRandom::new(self.seed ^ 0x73_7465_7073);
        let group = random.index(OF_STEPS.len());
        let places = OF_STEPS[group].len();
        self.rules = with_steps(group, random.index(places));
        let (is_calm, has_late) = (random.below(2) == 0, random.below(2) == 0);
        let mut next = NextRules::default();
        for step in &mut self.steps {
            if let NodeStep::Send(_, points) | NodeStep::FlushWhile(.., Meanwhile::Flush(points)) = step {
                // Minutes before this one, in turns of all nodes.
                let turns = if has_late && random.below(4) == 0 { random.below(3) as i64 } else { 0 };
                let (mut second, gap) = (random.below(40) as i64, 1 + random.below(12) as i64);
                let mut before = None;
                for point in points.iter_mut() {
                    second += if before.replace(point.second) == Some(point.second) { 0 } else { gap };
                    point.second = second % BLOCK - turns * BLOCK * count as i64;
                }
            }
            if let NodeStep::Pass(seconds) = step {
                *seconds *= 4;
            }
            let is_free = matches!(step, NodeStep::Skew(..) | NodeStep::Check(_)) && random.below(3) == 0;
            if is_free {
                let (node, place) = next.of(&random, count, places);
                *step = NodeStep::Rules(node, with_steps(group, place));
            } else if let NodeStep::Skew(..) = step {
                *step = NodeStep::Pass(10 + random.below(40));
            }
        }
        if is_calm {
            self.calm();
            self.change_at_once(count, &random);
        }
    }

    /// In one seed of two all nodes get new rules before further points come.
    fn change_at_once(&mut self, count: usize, random: &SeededRandom) {
        if random.below(2) == 0 {
            return;
        }
        let mut changes = 0;
        let steps = std::mem::take(&mut self.steps);
        for step in steps {
            let NodeStep::Rules(_, rules) = step else {
                self.steps.push(step);
                continue;
            };
            // One change for all in place of one for each.
            if changes % count == 0 {
                self.steps.extend((0..count).map(|node| NodeStep::Rules(node, rules)));
                self.steps.push(NodeStep::Pass(70));
            }
            changes += 1;
        }
    }

    /// No two nodes store points of a metric at the same moment.
    fn calm(&mut self) {
        for step in &mut self.steps {
            match step {
                NodeStep::Tables(node, _) => *step = NodeStep::Check(*node),
                NodeStep::FlushWhile(.., meanwhile @ Meanwhile::Flush(_)) => *meanwhile = Meanwhile::Check,
                _ => {}
            }
        }
    }
}

/// Which rules an operator gives to which node next: new ones once all have those before.
#[derive(Default)]
struct NextRules {
    place: usize,
    /// The nodes that still get them.
    waiting: Vec<usize>,
}

impl NextRules {
    fn of(&mut self, random: &SeededRandom, count: usize, places: usize) -> (usize, usize) {
        if self.waiting.is_empty() {
            self.place = random.index(places);
            self.waiting = (0..count).collect();
        }
        let node = self.waiting.swap_remove(random.index(self.waiting.len()));
        (node, self.place)
    }
}

/// The layouts of the nodes of a seed, and how many of the nodes move between them: those that come first.
fn layouts(seed: u64, count: usize) -> (Vec<Layout>, usize) {
    if seed < SEVERAL_LAYOUTS || NAMES_OF_NODES <= seed && seed.is_multiple_of(2) {
        return (vec![Layout::Rows; count], 0);
    }
    // The other random numbers of a seed are those of a seed without layouts.
    let random = SeededRandom::new(!seed);
    let kind = random.below(4);
    let layout = |_| match kind {
        0 => Layout::Packed,
        1 | 2 => [Layout::Rows, Layout::Packed][random.index(2)],
        _ => Layout::Rows,
    };
    let moving = match kind {
        0 | 1 => 0,
        2 => count,
        // Each of them moves over and back.
        _ => 2,
    };
    ((0..count).map(layout).collect(), moving)
}

fn other_layout(layout: Layout) -> Layout {
    match layout {
        Layout::Rows => Layout::Packed,
        Layout::Packed => Layout::Rows,
    }
}

fn ending(random: &SeededRandom) -> Ending {
    match random.below(5) {
        0 => Ending::Stop,
        1 | 2 => Ending::Kill,
        3 => Ending::PowerCut(random.bits()),
        _ => Ending::Replace,
    }
}

fn tables_way(random: &SeededRandom) -> TablesWay {
    let fate = || [Fate::Done, Fate::Refused, Fate::Lost][random.index(3)];
    TablesWay { reads: fate(), writes: fate(), one_in: [1, 1, 3][random.index(3)] }
}
