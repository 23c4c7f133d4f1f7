//! Rehearsals: a whole node in one process over a simulated disk and simulated time, its faults, and a naive model of what
//! it must serve afterwards. For tests only; the program does not contain it.
//!
//! ```text
//! clock ── machine ── node       what outlives a process, and the process
//! model ── check                 what was accepted, and whether a node serves that and nothing else
//! step ─── workload              what is done to a node, and the fixed sequence of it
//! run                            steps performed on a machine, through stops and deaths
//! faults                         every call fails, or is the last before a kill or a power cut
//! rot                            bits that flip in the files of a node
//! simulation                     random steps with faults, from a seed
//! ```

mod clock;
mod machine;
mod node;

mod check;
mod model;

mod step;
mod workload;

mod run;

mod faults;
mod rot;
mod simulation;

pub use check::{Fidelity, Losses};
pub use clock::SimulatedClock;
pub use faults::{Rehearsal, What, calls};
pub use machine::{Life, Machine, StoreKind};
pub use model::{Floor, Model};
pub use rot::{Cost, Flip};
pub use run::{Ended, Run};
pub use simulation::{MORE_KINDS, Planned, Scenario, Work};
pub use step::{Sent, Step};
pub use workload::workload;
