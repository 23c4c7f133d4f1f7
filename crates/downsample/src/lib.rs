//! The in-memory downsampler: what a metric holds that is not stored yet, and the rows it becomes.
//!
//! Points are folded into nothing when they arrive: they wait in [`Open`], one `f64` a slot, and the
//! coarser stages are made from them when they leave. That keeps the path of a point to one store, and
//! makes every coarse slot a pure function of the finer slots under it ([`Derivation`]): late,
//! overwritten and replayed points need no case of their own, and doing it twice changes nothing.
//!
//! No store and no clock is known here: what is stored is handed in, `now` is an argument.

mod derive;
mod open;
mod own;

pub use derive::{Derivation, Derived, Made, Moment, Need, Pending, Remembered};
pub use open::{Late, Open};
pub use own::Own;
