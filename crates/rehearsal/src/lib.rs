//! Rehearsals: a whole node in one process over a simulated disk and simulated time, its faults, and a naive model of what
//! it must serve afterwards. For tests only; the program does not contain it.
//!
//! ```text
//! tables                         tables that several nodes write
//! clock ── machine ── node       what outlives a process, and the process
//! first_steps ── model ── check  what was accepted, and whether a node serves that and nothing else
//! step ─── workload              what is done to a node, and the fixed sequence of it
//! sending ── backups             points to a node and its rules, and backups of it
//! bad_pages                      files that cannot be read for a time
//! run                            steps performed on a machine, through stops and deaths
//! faults                         every call fails, or is the last before a kill or a power cut
//! rot                            bits that flip in the files of a node
//! scenario ── shrink             steps with faults, and the fewest of them that still fail
//! kinds ── seeds                 random steps with faults, from a seed
//! writers                        several nodes on the same tables
//! network ── truth               nodes that also ask each other, the ways between them, and what they must answer
//! node_metrics                   the metrics that nodes share, by number
//! node_steps ── node_asks        what is done to them, and their answers
//! node_names                     which names each node must know, and which deletions it has followed
//! node_clocks                    how far their calendars are apart, and what that leaves open
//! node_rules                     what nodes answer whose rules change among several first steps
//! nodes ── node_troubles          steps performed on several nodes; ways, calendars and rules that change
//! node_shrink                    the fewest steps that fail
//! ```

mod tables;

mod clock;
mod machine;
mod node;

mod check;
mod first_steps;
mod model;
mod same;

mod step;
mod workload;

mod backups;
mod bad_pages;
mod sending;

mod run;

mod faults;
mod kinds;
mod rot;
mod scenario;
mod seeds;
mod shrink;

mod writers;

mod network;
mod truth;

mod node_asks;
mod node_clocks;
mod node_metrics;
mod node_names;
mod node_rules;
mod node_shrink;
mod node_steps;
mod node_troubles;
mod nodes;

pub use check::{Fidelity, Losses, LostSlot};
pub use clock::SimulatedClock;
pub use faults::{Rehearsal, What, calls};
pub use machine::{LISTED, LONG, Life, Machine, SHORT, StoreKind, with_steps};
pub use model::{Floor, Model};
pub use network::{PeerWay, TablesWay};
pub use node_steps::{Ending, Meanwhile, NodeStep, NodesScenario, SentPoint};
pub use nodes::perform_nodes;
pub use rot::{Cost, Flip};
pub use run::{Ended, Run};
pub use scenario::{Planned, Scenario, Work};
pub use seeds::{
    ALL_KINDS, BAD_PAGES_AND_BACKUPS, BAD_PAGES_AND_JUMPS, CLOCKS_OF_NODES, FIRST_STEPS, FIRST_STEPS_OF_NODES,
    FIRST_STEPS_WITH_LISTS, LISTS_OF_METHODS, LONG_SLOTS, MORE_KINDS, NAMES_OF_NODES, ROWS_AWAY, RULES_OF_NODES,
    SEVERAL_LAYOUTS, SEVERAL_NODES, WITHIN_A_SECOND, WRITERS, is_in_one_thread,
};
pub use step::{BadPages, FileKind, Sent, Step};
pub use workload::workload;
pub use writers::perform_writers;
