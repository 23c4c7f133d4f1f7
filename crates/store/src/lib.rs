//! What a driver must do, and what a reader may ask.
//!
//! Below are the drivers: [`PointStore`] keeps points, [`NameStore`] the metrics table of one node, [`Events`] events.
//! The embedded driver and [`MemoryDriver`] implement all three. A driver of tables that several programs write also
//! implements [`SharedPoints`] and [`SharedNames`]. [`Store`] puts the stores of a node together.
//!
//! Above are queries: a [`SeriesSource`] reads whole series, stored rows and points in memory already merged.
//!
//! Nothing here knows files, CQL or HTTP.
//!
//! ```
//! # async fn example() -> Result<(), store::StoreError> {
//! use metric::{Aggregation, MetricId, Stage, Table};
//! use store::{Fetch, MemoryDriver, PointStore, Run};
//!
//! let driver = MemoryDriver::new();
//! let table = Table { stage: Stage::new(60, 1440).expect("a minute for a day"), aggregated: false, rollup: None };
//! let (metric, name, aggregation) = (MetricId(0), "a.b".to_owned(), Aggregation::Sum);
//! let (values, counts) = (vec![1.0, f64::NAN, 3.0], vec![]);
//! driver.write(vec![Run { metric, name: name.clone(), table, first_slot: 100, values, counts, aggregation }]).await?;
//! let fetch = Fetch { metric, name, table, first_slot: 100, end_slot: 103, aggregation };
//! let cells = driver.fetch(vec![fetch]).await?.remove(0);
//! assert_eq!((cells.values[0], cells.values[2]), (1.0, 3.0));
//! assert!(cells.values[1].is_nan(), "no point in this slot");
//! # Ok(())
//! # }
//! # let poll = std::pin::pin!(example()).poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
//! # assert!(matches!(poll, std::task::Poll::Ready(Ok(()))));
//! ```

mod composition;
pub mod conformance;
mod damage;
mod error;
mod events;
mod identity;
mod memory;
mod names;
mod points;
mod scripted;
mod series;
mod shared;

pub use composition::Store;
pub use damage::{Damage, DamageLog, LostPoints};
pub use error::{DriverFuture, StoreError};
pub use events::{Event, Events, NewEvent};
pub use identity::{Identity, Incarnation, LAST_NUMBER};
pub use memory::MemoryDriver;
pub use names::{JournalMark, LostPolicy, MetricRecord, NameStore, NamesMark, PolicyChange};
pub use points::{Cells, Fetch, PointStore, Run, Usage};
pub use scripted::{Gate, ScriptedDriver};
pub use series::{CoarserSlots, FetchError, FetchedSeries, SeriesRequest, SeriesSource};
pub use shared::{
    EachBatch, OtherWriters, OwnRows, ScanPace, ScanProgress, SharedMetric, SharedNames, SharedNode, SharedPoints,
};
