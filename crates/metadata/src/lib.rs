//! The registry of metrics, and the path index that resolves globs over their names.
//!
//! A metric is a name with an id. [`Registry`] gives out the ids, keeps each name once, and finds a
//! id by name on the path of every point. The same names are indexed for globs: [`Registry::find`]
//! lists the nodes of the tree that a pattern names, [`Registry::leaves`] the metrics to be read. A metric
//! is findable the moment it is created; [`Registry::compact`], called now and then, keeps finding fast.
//!
//! Nothing here knows HTTP, or which driver holds the tables.
//!
//! ```
//! use metadata::{FindLimits, Registry};
//! use metric::Policy;
//!
//! let registry = Registry::new();
//! let policy = registry.intern(&Policy::default());
//! for name in ["web.a.cpu", "web.b.cpu"] {
//!     registry.write().create(registry.hash(name.as_bytes()), name, policy, 1_700_000_000);
//! }
//! let found = registry.leaves("web.*.cpu", &FindLimits::default())?;
//! let names: Vec<&str> = found.leaves().map(|(_id, name)| name).collect();
//! assert_eq!(names, ["web.a.cpu", "web.b.cpu"]);
//! # Ok::<(), metadata::FindError>(())
//! ```

mod arena;
mod cardinality;
mod finder;
mod found;
mod hiding;
mod index;
mod limits;
mod metrics_table;
mod name_order;
mod name_table;
mod names;
mod policies;
mod prefetch;
mod read_policy;
mod registry;
mod removal;
mod same_names;
mod saved;
mod saved_tags;
mod seen;
mod segment;
mod stale;
mod start;
mod tag_changes;
mod tag_expressions;
mod tag_index;
mod tags;
mod text_order;
mod walk;

pub use cardinality::{Cardinality, GroupBy, MetricCounts};
pub use finder::Finder;
pub use found::{Found, Node};
pub use globs::{GlobError, is_pattern};
pub use index::IndexStatistics;
pub use limits::{FindError, FindLimits, NameFilter};
pub use metrics_table::{Adopted, Restored};
pub use names::{Names, NamesMut};
pub use policies::{Elsewhere, PolicyHistory, PolicyId, PolicySpan, XFilesFactors};
pub use prefetch::prefetch;
pub use registry::Registry;
pub use same_names::SameName;
pub use saved::{OpenError, SavedNames};
pub use saved_tags::SAVED_TAGS;
pub use seen::{SEEN, Seen, SeenMark, SeenSpan, TimeFilter, UnstoredPoints, given_as_saved, seen_in_slots};
pub use stale::{HideStale, MAX_STALE_RULES, StaleRule};
pub use start::{SAVED, open_names};
pub use tag_expressions::{Matcher, TagError, TagExpressions, is_plain_or_tagged};
pub use tag_index::{ListedTag, ListedValue, TagListing, text_id};
pub use tags::TaggedIds;
