//! The words of the domain: names, points, windows, stages, retentions, aggregation methods, policies.
//!
//! Everything here is a value. The crate knows no clock, socket or store, and nothing in it is asynchronous.
//!
//! ```
//! use metric::{Retention, Window};
//!
//! // A day of minutes, then a month of hours.
//! let retention: Retention = "1440*60s:720*3600s".parse()?;
//! let now = 1_700_000_000;
//! let week = Window::between(now - 7 * 86_400, now);
//! let choice = retention.choose(week, now, 1_000).expect("the retention reaches back a week");
//! assert_eq!((choice.stage, choice.slots.len()), (1, 7 * 24));
//! # Ok::<(), metric::RetentionError>(())
//! ```

mod column;
mod id;
mod name;

mod time;

mod stage;

mod retention;

mod choice;

mod aggregation;
mod methods;
mod policy;

pub use aggregation::{Aggregation, Partial, SATURATED_COUNT, UnknownAggregation};
pub use choice::StageChoice;
pub use column::Column;
pub use id::MetricId;
pub use methods::{Methods, MethodsError};
pub use name::{MAX_COMPONENTS, MAX_NAME_BYTES, NameError, canonical_name, is_tagged};
pub use policy::Policy;
pub use retention::{Retention, RetentionError};
pub use stage::{ROW_POINTS, Stage, StageError, Table};
pub use time::{Point, Slot, Timestamp, Window};
