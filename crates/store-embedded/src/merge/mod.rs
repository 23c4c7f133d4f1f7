//! Merging files of rows: which, and how.

mod policy;
mod run;
mod tail;

pub(crate) use policy::{Window as WindowForMerge, choose, debt};
pub(crate) use run::{MergeError, Merging};
