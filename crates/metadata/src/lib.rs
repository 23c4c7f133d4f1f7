//! The registry of metrics, and the path index that resolves globs over their names.
//!
//! A metric is a name with an id. [`Registry`] hands out the ids, keeps each name once, and finds a
//! id by name on the path of every point. The same names are indexed for globs: [`Registry::find`]
//! lists the nodes of the tree that a pattern names, [`Registry::leaves`] the metrics to be read. A metric
//! is findable the moment it is created; [`Registry::compact`], called now and then, keeps finding fast.
//!
//! Nothing here knows HTTP, or which driver holds the tables.

mod arena;
mod find;
mod index;
mod name_table;
mod policies;
mod registry;
mod saved;
mod segment;
mod tags;
mod walk;

pub use find::{FindError, FindLimits, Finder, Found, Node};
pub use globs::{GlobError, is_pattern};
pub use index::IndexStatistics;
pub use policies::{PolicyHistory, PolicyId, PolicySpan};
pub use registry::{Names, NamesMut, Registry, Restored, TakenIn};
pub use saved::OpenError;
pub use tags::{Matcher, TagError, TagExpressions};
