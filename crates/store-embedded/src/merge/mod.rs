//! Merging files of rows: which, and how.

mod policy;
mod run;
mod tail;

pub(crate) use policy::{Window as WindowForMerge, choose, choose_within, debt};
pub(crate) use run::{MergeError, Merging};
