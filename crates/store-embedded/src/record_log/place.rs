//! Where a record is in its log.

use std::fmt;

use super::frame::FRAME;

/// Where a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(super) file: u64,
    pub(super) offset: u64,
    /// Bytes of the payload.
    pub(super) len: u32,
}

impl Place {
    /// Bytes of the record in its file.
    pub(crate) fn bytes(&self) -> u64 {
        (FRAME as u64) + u64::from(self.len)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {} of file {}", self.offset, self.file)
    }
}
