//! What a driver must do, and what a reader may ask.
//!
//! Two seams live here, and a small third ([`Events`]). [`Driver`] is the lower one: the logical tables (datapoints per stage, metrics,
//! spec) that the embedded store, Cassandra and the in-memory specification all keep. [`SeriesSource`] is
//! the upper one: whole series as a query wants them, stored rows and unflushed memory already merged.
//!
//! Nothing here knows files, CQL or HTTP.

mod catalogue;
pub mod conformance;
pub mod conformance_events;
mod driver;
mod events;
mod memory;
mod series;

pub use catalogue::{Catalogue, EachBatch, ScanProgress, SharedMetric, SharedNode};
pub use driver::{Cells, Driver, DriverFuture, Fetch, MetricRecord, PolicyChange, Run, StoreError, Usage};
pub use events::{Event, Events, NewEvent};
pub use memory::MemoryDriver;
pub use series::{FetchError, FetchedSeries, SeriesRequest, SeriesSource};
