//! The tag index: which metrics have a tag, a value of it, or values that match.
//!
//! It knows names and ids of metrics alone: neither the registry nor its locks. [`TagIndex`] is fed with shown metrics;
//! `search.rs` answers tag expressions with a set of ids, `listing.rs` lists tags and values.

mod slab;

mod texts;

mod postings;

mod index;

mod search;

mod listing;

mod saved;

pub(crate) use index::TagIndex;
pub use listing::{ListedTag, ListedValue, TagListing, text_id};
pub(crate) use listing::{list_tags, list_values};
pub(crate) use saved::{NamesFile, read_index, write_index};
pub(crate) use search::{ReadNames, STEPS_PER_NAME, SharedIndex, search};
