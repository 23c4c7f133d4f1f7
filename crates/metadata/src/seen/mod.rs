//! When metrics have points: the first and the last time of each, in two bytes, rounded outwards.
//!
//! [`Seen`] is fed as rows are written ([`Seen::note`]) and says of a metric and a span of time whether there may be a row.
//! Points in memory are asked for where it rules one out ([`UnstoredPoints`]). It says nothing
//! until it is begun, as over tables that others write too.

mod filter;
mod saved;
mod scale;
mod times;
mod unstored;

pub use filter::TimeFilter;
pub use saved::{SEEN, SeenMark, given_as_saved};
pub use times::{Seen, SeenSpan, seen_in_slots};
pub use unstored::UnstoredPoints;
