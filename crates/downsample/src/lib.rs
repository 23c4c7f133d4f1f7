//! The in-memory downsampler: the points of a metric that are not stored yet, and the rows that they become.
//!
//! Points wait in [`PendingPoints`], one `f64` a slot; the coarser stages are made when they leave memory. The path of
//! a point is one store into a vector, and every coarse slot is a pure function of the finer slots under it: late,
//! overwritten and replayed points need no case of their own, and a second run changes nothing.
//!
//! 1. [`SortedPoints`]: the pending points by stage and slot, the last write of each slot.
//! 2. [`Stored`] and [`Coverage`]: how far the rows in the store reach.
//! 3. `rollup`: what the row of one coarse slot says. Both ways to a coarse row end there:
//!    [`WriterPartials::extend`] continues this writer's partials and reads nothing;
//!    [`ReadPlan`] and [`WritePlan`] fetch the stored slots around the points.
//!
//! The crate knows neither stores nor clocks: the caller fetches the slots and passes `now`.

mod pending_points;
mod sorted_points;

mod stored;

mod late;
mod rollup;
mod rows;

mod writer_partials;

mod plan;

mod derive;

mod next_partials;

pub use derive::ReadRows;
pub use late::{Change, counted_before, with_changes};
pub use next_partials::{DerivedRows, NextPartials, WritePlan};
pub use pending_points::{Growth, PendingPoints, StagePoint};
pub use plan::{Need, Places, ReadPlan};
pub use rows::DerivedRow;
pub use sorted_points::SortedPoints;
pub use stored::{Coverage, Stored};
pub use writer_partials::WriterPartials;
