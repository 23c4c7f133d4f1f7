//! The suites that every driver passes: what a store keeps, said once, as facts.
//!
//! There is a suite for each trait. Each fact has metrics of its own and needs no empty store, so that a driver whose
//! store is expensive to make (a keyspace, a cluster) runs a whole suite in one. A fact that does not hold panics.

use std::{future::Future, sync::Arc};

mod events;
mod metric;
mod model;
mod names;
mod points;
mod shared;

pub use events::events_suite;
pub use names::names_suite;
pub use points::points_suite;
pub use shared::shared_points_suite;

/// Opens a driver for a suite. `S` is the trait that the suite checks.
pub trait Fixture<S: ?Sized> {
    /// Whether synced data is still there when the store is opened again.
    const OUTLIVES: bool;

    /// Opens the store. Before every call but the first, the suite has dropped the driver of the call before.
    fn open(&mut self) -> impl Future<Output = Arc<S>>;
}
