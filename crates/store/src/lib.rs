//! What a driver must do, and what a reader may ask.
//!
//! Below are the drivers: [`PointStore`] keeps points, [`NameStore`] the metrics table of one node, [`Events`] events.
//! The embedded driver and [`MemoryDriver`] implement all three. A driver of tables that several programs write also
//! implements [`SharedPoints`] and [`SharedNames`]. [`Store`] puts the stores of a node together.
//!
//! Above are queries: a [`SeriesSource`] reads whole series, stored rows and points in memory already merged.
//!
//! Nothing here knows files, CQL or HTTP.

mod composition;
pub mod conformance;
mod error;
mod events;
mod memory;
mod names;
mod points;
mod scripted;
mod series;
mod shared;

pub use composition::Store;
pub use error::{DriverFuture, StoreError};
pub use events::{Event, Events, NewEvent};
pub use memory::MemoryDriver;
pub use names::{MetricRecord, NameStore, PolicyChange};
pub use points::{Cells, Fetch, PointStore, Run, Usage};
pub use scripted::{Gate, ScriptedDriver};
pub use series::{FetchError, FetchedSeries, SeriesRequest, SeriesSource};
pub use shared::{EachBatch, ScanProgress, SharedMetric, SharedNames, SharedNode, SharedPoints};
