//! A file of rows: immutable, in blocks with checksums. `schema/embedded.md` draws every byte.

mod bytes;
mod row_block;

mod file_header;
mod footer;
mod index;

mod open;
mod walk;

mod check;
mod obsolete;
mod reader;
mod writer;

pub use check::{DamagedPart, FileCheck, FileReport, check_file};
pub(crate) use file_header::{Flushes, Header, LEN as HEADER, VERSION, newer, store_of};
pub(crate) use index::Index;
pub(crate) use obsolete::Obsolete;
pub(crate) use open::{
    BlockError, OpenError, cut_len, header_of, is_whole, lacks_blocks, len_of, may_open, newest_slot, written_by,
};
pub(crate) use reader::{Bounds, Lookup, MISSING, Missed, ReadFrom, RowFile, is_short_of_something};
pub(crate) use row_block::{MarkedBlock, RowsOfBlock};
pub(crate) use writer::{RowsWriter, Written};
