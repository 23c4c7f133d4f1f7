//! The note that the end of a log was lost, as a later record of the log has it.

use super::place::LogEnd;

/// Bytes of a [`LogEnd`] in a record.
const LEN: usize = 16;

/// An end of the log that a start did not find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LostEnd {
    /// The place up to which the log was on the disk.
    pub(crate) end: LogEnd,
    /// The file that has the note.
    noted_in: u64,
}

impl LostEnd {
    /// The note of a record, in this file, that begins with an end; and the rest of its payload. `None` where the record has no end,
    /// as those of earlier programs.
    pub(crate) fn decode(noted_in: u64, payload: &[u8]) -> Option<(LostEnd, &[u8])> {
        let (end, rest) = payload.split_first_chunk::<LEN>()?;
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        let end = LogEnd { file: number(&end[..8]), bytes: number(&end[8..]) };
        Some((LostEnd { end, noted_in }, rest))
    }

    /// Whether the file is there again, as long as it was. `ends_at` is where the records of each file end. The file that has the
    /// note is not: its length counts what came behind the note, and the right file does not have the note.
    pub(crate) fn is_back(&self, ends_at: impl Fn(u64) -> Option<u64>) -> bool {
        self.end.file != self.noted_in && ends_at(self.end.file).is_some_and(|ends_at| self.end.bytes <= ends_at)
    }
}

/// The bytes of an end, with which a record begins.
pub(crate) fn encode_end(end: LogEnd) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    bytes[..8].copy_from_slice(&end.file.to_le_bytes());
    bytes[8..].copy_from_slice(&end.bytes.to_le_bytes());
    bytes
}
