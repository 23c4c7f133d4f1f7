//! The words of the domain: names, globs, points, windows, stages, retentions, aggregation methods.
//!
//! Everything here is a value. No clock, no socket, no store, nothing asynchronous.

mod aggregation;
mod id;
mod name;
mod policy;
mod retention;
mod stage;
mod time;

pub use aggregation::{Aggregation, Partial, SATURATED_COUNT, UnknownAggregation};
pub use id::MetricId;
pub use name::{MAX_COMPONENTS, MAX_NAME_BYTES, NameError, canonical_name, is_tagged};
pub use policy::Policy;
pub use retention::{Retention, RetentionError};
pub use stage::{ROW_POINTS, Stage, StageError, Table};
pub use time::{Point, Slot, Timestamp, Window};
