//! Reading series: stored rows, with the points in memory laid over them.

mod older_jobs;
mod older_policies;
mod reader;
mod reading;

pub(crate) use reader::Reader;
