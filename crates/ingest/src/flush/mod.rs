//! From the memtable to the store: flush cycles, and spilled points on their way back.

mod attempt;
mod corrected;
mod cycle;
mod late_files;
mod outcome;
mod plan;
mod read_back;
mod recheck;
mod recheck_file;
mod rechecks;
mod row_writer;
mod set_aside;
mod unread;
mod unsure_rows;

pub(crate) use cycle::{CycleParts, FlushCycle};
pub(crate) use late_files::LateFiles;
pub use outcome::{FlushError, FlushProgress};
pub(crate) use read_back::{ReadBack, ReadBackParts, ReadFrom};
pub(crate) use recheck_file::RecheckFile;
pub(crate) use row_writer::{RowWriter, RowWriterParts};
pub(crate) use set_aside::Aside;
