//! Where a record is in its log.

use std::fmt;

use super::frame::FRAME;

/// A place up to which a log was on the disk: the number of its last file, and the bytes of it that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogEnd {
    pub(crate) file: u64,
    pub(crate) bytes: u64,
}

/// [`LogEnd`]s of the logs of a store, where they are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LogEnds {
    pub(crate) names: Option<LogEnd>,
    pub(crate) events: Option<LogEnd>,
}

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

    /// Where it begins, a file and an offset.
    pub(crate) fn start(&self) -> (u64, u64) {
        (self.file, self.offset)
    }

    /// Where the next record of the file begins.
    pub(crate) fn end(&self) -> (u64, u64) {
        (self.file, self.offset + self.bytes())
    }

    /// Whether it is in front of a place, a file and an offset.
    pub(crate) fn is_before(&self, place: (u64, u64)) -> bool {
        (self.file, self.offset) < place
    }

    /// Bytes of its payload.
    pub(crate) fn payload_bytes(&self) -> u64 {
        u64::from(self.len)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {} of file {}", self.offset, self.file)
    }
}
