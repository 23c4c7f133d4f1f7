//! The header of a file of rows, and its name.

use metric::{Stage, Table};

use super::bytes::{Bad, Bytes};

const MAGIC: [u8; 8] = *b"PLBGROWS";

/// The version of the bytes of a file of rows.
pub(crate) const VERSION: u32 = 1;

/// Bytes of a header.
pub(crate) const LEN: usize = 64;

/// The flushes whose rows a file has, first and last included. A later flush wins where two have the same slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Flushes {
    // Invariant: first <= last.
    pub(crate) first: u64,
    pub(crate) last: u64,
}

impl Flushes {
    /// Whether a file of these flushes replaces one of the `others`.
    pub(crate) fn contains(self, others: Flushes) -> bool {
        self.first <= others.first && others.last <= self.last
    }

    /// `3-9.rows`
    pub(crate) fn file_name(self) -> String {
        format!("{}-{}.rows", self.first, self.last)
    }

    pub(crate) fn of_file_name(name: &str) -> Option<Flushes> {
        let (first, last) = name.strip_suffix(".rows")?.split_once('-')?;
        let flushes = Flushes { first: first.parse().ok()?, last: last.parse().ok()? };
        (flushes.first <= flushes.last && flushes.file_name() == name).then_some(flushes)
    }
}

/// What a file of rows is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// The random number of the store.
    pub(crate) store: u128,
    pub(crate) table: Table,
    pub(crate) window: u32,
    pub(crate) flushes: Flushes,
}

impl Header {
    pub(super) fn encode(&self) -> [u8; LEN] {
        let mut out = Vec::with_capacity(LEN);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.table.stage.resolution().to_le_bytes());
        out.extend_from_slice(&self.table.stage.points().to_le_bytes());
        out.extend_from_slice(&u32::from(self.table.aggregated).to_le_bytes());
        out.extend_from_slice(&self.window.to_le_bytes());
        out.extend_from_slice(&self.flushes.first.to_le_bytes());
        out.extend_from_slice(&self.flushes.last.to_le_bytes());
        out.extend_from_slice(&self.store.to_le_bytes());
        out.extend_from_slice(&crc32fast::hash(&out).to_le_bytes());
        out.try_into().expect("the parts add up to the length of a header")
    }

    pub(super) fn parse(bytes: &[u8; LEN]) -> Result<Header, HeaderError> {
        let mut parts = Bytes(bytes);
        let bad = |what| HeaderError::Bad(Bad(what));
        if parts.array()? != MAGIC {
            return Err(bad("the file does not begin as a file of rows"));
        }
        let version = parts.u32()?;
        let crc_is_right = crc32fast::hash(&bytes[..LEN - 4]).to_le_bytes() == bytes[LEN - 4..];
        if crc_is_right && version != VERSION {
            return Err(HeaderError::Version(version));
        }
        if !crc_is_right {
            return Err(bad("the checksum of the header is wrong"));
        }
        let (resolution, points, aggregated) = (parts.u32()?, parts.u32()?, parts.u32()?);
        let stage = Stage::new(resolution, points).map_err(|_| bad("the header names an impossible stage"))?;
        let table = Table { stage, aggregated: aggregated == 1 };
        let window = parts.u32()?;
        let flushes = Flushes { first: parts.u64()?, last: parts.u64()? };
        if aggregated > 1 || flushes.first > flushes.last {
            return Err(bad("the header contradicts itself"));
        }
        Ok(Header { store: parts.u128()?, table, window, flushes })
    }

    /// The number that the checksums of all blocks begin with.
    pub(super) fn seal(&self) -> u32 {
        let bytes = self.encode();
        u32::from_le_bytes(bytes[LEN - 4..].try_into().expect("four bytes"))
    }
}

/// The store that a file with this header is of. `None` if it is not the header of a file of rows.
pub(crate) fn store_of(bytes: &[u8]) -> Option<u128> {
    Header::parse(bytes.first_chunk()?).ok().map(|header| header.store)
}

/// The version of a header that a later program wrote. `None` for a header of this version, and for what is not one.
pub(crate) fn newer(bytes: &[u8]) -> Option<u32> {
    match Header::parse(bytes.first_chunk()?) {
        Err(HeaderError::Version(version)) => Some(version),
        _ => None,
    }
}

/// Why a header is not one of this version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HeaderError {
    Bad(Bad),
    /// A later program wrote it.
    Version(u32),
}

impl From<Bad> for HeaderError {
    fn from(bad: Bad) -> HeaderError {
        HeaderError::Bad(bad)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::row_file) fn header() -> Header {
        let table = Table { stage: Stage::new(60, 10_080).unwrap(), aggregated: false };
        Header { store: 7 << 80, table, window: 7083, flushes: Flushes { first: 3, last: 9 } }
    }

    #[test]
    fn a_header_survives_and_any_flipped_bit_is_noticed() {
        let bytes = header().encode();
        assert_eq!(Header::parse(&bytes), Ok(header()));
        for bit in 0..LEN * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(Header::parse(&flipped), Err(HeaderError::Bad(_))), "bit {bit}");
        }
    }

    #[test]
    fn a_later_version_is_named() {
        let mut bytes = header().encode();
        bytes[8] = 2;
        let crc = crc32fast::hash(&bytes[..LEN - 4]);
        bytes[LEN - 4..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Header::parse(&bytes), Err(HeaderError::Version(2)));
    }

    #[test]
    fn the_name_of_a_file_is_its_flushes() {
        assert_eq!(Flushes::of_file_name("3-9.rows"), Some(Flushes { first: 3, last: 9 }));
        for name in ["3-9", "9-3.rows", "03-9.rows", "3-9.rows.draft", "a-b.rows", "+3-9.rows"] {
            assert_eq!(Flushes::of_file_name(name), None, "{name}");
        }
    }
}
