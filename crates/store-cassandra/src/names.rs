//! The tables of names: metrics, directories, and what each metric is kept by.

pub(crate) mod config;
mod delete;
mod directories;
mod find;
mod paths;
mod plan;
mod report;
mod scan;
mod tables;
mod touch;
mod write;

pub use report::{RejectedNames, ScanReport};
pub(crate) use tables::Names;
pub(crate) use touch::Touch;
