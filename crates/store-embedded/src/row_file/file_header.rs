//! The header of a file of rows, and its name.

use std::ops::RangeInclusive;

use metric::{Aggregation, Stage, Table};
use store::LAST_NUMBER;

use super::bytes::{Bad, Bytes};

const MAGIC: [u8; 8] = *b"PLBGROWS";

/// The last version of a file of rows that is read. Version 1 has rows of row codec 1 alone, and version 2 of codec 2 as well;
/// all other bytes are the same. Version 3 is written for the rollup of a method, whose number is in the header; its rows
/// have the codecs of version 2. A program that does not know the version of a file refuses it, also where the spec that
/// says so is damaged.
pub(crate) const VERSION: u32 = 3;

/// The version that is written for a table without a method of its own: the last row codec that its rows may have.
const WITHOUT_ROLLUP: u32 = 2;
const _: () = assert!(codec::VERSION == WITHOUT_ROLLUP, "a later row codec is a later version");

/// The kind of a table: 0 points, 1 aggregates of policies with one method; from here on the rollup of a method, by its
/// place in [`Aggregation::ALL`].
const FIRST_ROLLUP: u32 = 2;

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
        let is_number = flushes.first <= flushes.last && flushes.last <= LAST_NUMBER;
        (is_number && flushes.file_name() == name).then_some(flushes)
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

/// A header as a file has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sealed {
    pub(super) header: Header,
    /// The number that the checksums of all blocks of the file begin with: that of the header.
    pub(super) seal: u32,
}

impl Header {
    /// As this program writes it.
    pub(super) fn encode(&self) -> [u8; LEN] {
        self.encode_as(*self.versions().end())
    }

    /// The versions that a file with this header may have.
    fn versions(&self) -> RangeInclusive<u32> {
        if self.table.rollup.is_some() { VERSION..=VERSION } else { 1..=WITHOUT_ROLLUP }
    }

    fn encode_as(&self, version: u32) -> [u8; LEN] {
        let mut out = Vec::with_capacity(LEN);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&version.to_le_bytes());
        out.extend_from_slice(&self.table.stage.resolution().to_le_bytes());
        out.extend_from_slice(&self.table.stage.points().to_le_bytes());
        out.extend_from_slice(&kind_of(self.table).to_le_bytes());
        out.extend_from_slice(&self.window.to_le_bytes());
        out.extend_from_slice(&self.flushes.first.to_le_bytes());
        out.extend_from_slice(&self.flushes.last.to_le_bytes());
        out.extend_from_slice(&self.store.to_le_bytes());
        out.extend_from_slice(&crc32fast::hash(&out).to_le_bytes());
        out.try_into().expect("the parts add up to the length of a header")
    }

    pub(super) fn parse(bytes: &[u8; LEN]) -> Result<Sealed, HeaderError> {
        let mut parts = Bytes(bytes);
        let bad = |what| HeaderError::Bad(Bad(what));
        if parts.array()? != MAGIC {
            return Err(bad("the file does not begin as a file of rows"));
        }
        let version = parts.u32()?;
        let crc_is_right = crc32fast::hash(&bytes[..LEN - 4]).to_le_bytes() == bytes[LEN - 4..];
        if crc_is_right && !(1..=VERSION).contains(&version) {
            return Err(HeaderError::Version(version));
        }
        if !crc_is_right {
            return Err(bad("the checksum of the header is wrong"));
        }
        let (resolution, points, kind) = (parts.u32()?, parts.u32()?, parts.u32()?);
        let stage = Stage::new(resolution, points).map_err(|_| bad("the header names an impossible stage"))?;
        let rollup = kind.checked_sub(FIRST_ROLLUP).map(|place| Aggregation::ALL.get(place as usize).copied());
        let table = Table { stage, aggregated: 0 < kind, rollup: rollup.flatten() };
        let window = parts.u32()?;
        let flushes = Flushes { first: parts.u64()?, last: parts.u64()? };
        let header = Header { store: parts.u128()?, table, window, flushes };
        if rollup == Some(None) || !header.versions().contains(&version) || flushes.first > flushes.last {
            return Err(bad("the header contradicts itself"));
        }
        Ok(Sealed { header, seal: parts.u32()? })
    }

    /// The seal of a file that this program writes.
    pub(super) fn seal(&self) -> u32 {
        seal_of(&self.encode())
    }

    /// The seals that a file of each version has with this header, the latest version first.
    pub(super) fn seals(&self) -> impl Iterator<Item = u32> {
        self.versions().rev().map(|version| seal_of(&self.encode_as(version)))
    }
}

/// The number of a table's kind.
fn kind_of(table: Table) -> u32 {
    match table.rollup {
        Some(rollup) => {
            let place = Aggregation::ALL.iter().position(|&method| method == rollup);
            FIRST_ROLLUP + place.expect("every method is in the list of all") as u32
        }
        None => u32::from(table.aggregated),
    }
}

fn seal_of(bytes: &[u8; LEN]) -> u32 {
    u32::from_le_bytes(bytes[LEN - 4..].try_into().expect("four bytes"))
}

/// The store that a file with this header is of. `None` if it is not the header of a file of rows.
pub(crate) fn store_of(bytes: &[u8]) -> Option<u128> {
    Header::parse(bytes.first_chunk()?).ok().map(|sealed| sealed.header.store)
}

/// The version of a header that a later program wrote. `None` for a header that is read, and for what is not one.
pub(crate) fn newer(bytes: &[u8]) -> Option<u32> {
    match Header::parse(bytes.first_chunk()?) {
        Err(HeaderError::Version(version)) => Some(version),
        _ => None,
    }
}

/// Why a header is not one that is read.
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
        let table = Table { stage: Stage::new(60, 10_080).unwrap(), aggregated: false, rollup: None };
        Header { store: 7 << 80, table, window: 7083, flushes: Flushes { first: 3, last: 9 } }
    }

    #[test]
    fn a_header_survives_and_any_flipped_bit_is_noticed() {
        for header in [header(), of_rollup(Aggregation::Max)] {
            let bytes = header.encode();
            assert_eq!(Header::parse(&bytes), Ok(Sealed { header, seal: header.seal() }));
            for bit in 0..LEN * 8 {
                let mut flipped = bytes;
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert!(matches!(Header::parse(&flipped), Err(HeaderError::Bad(_))), "bit {bit}");
            }
        }
    }

    fn of_rollup(method: Aggregation) -> Header {
        let table = Table { aggregated: true, rollup: Some(method), ..header().table };
        Header { table, ..header() }
    }

    #[test]
    fn only_files_of_rollups_have_the_version_that_earlier_programs_refuse() {
        let version = |header: &Header| header.encode()[8];
        assert_eq!(version(&header()), 2);
        for method in Aggregation::ALL {
            let header = of_rollup(method);
            assert_eq!((version(&header), header.seals().collect::<Vec<_>>()), (3, vec![header.seal()]));
            // A header that says otherwise was not written by any program.
            assert!(matches!(Header::parse(&header.encode_as(2)), Err(HeaderError::Bad(_))));
        }
        assert!(matches!(Header::parse(&header().encode_as(3)), Err(HeaderError::Bad(_))));
    }

    #[test]
    fn earlier_versions_are_read_and_others_are_named() {
        let seals: Vec<u32> = (1..=WITHOUT_ROLLUP)
            .map(|version| {
                let sealed = Header::parse(&header().encode_as(version)).unwrap();
                assert_eq!((sealed.header, newer(&header().encode_as(version))), (header(), None));
                sealed.seal
            })
            .collect();
        assert_eq!(seals.into_iter().rev().collect::<Vec<_>>(), header().seals().collect::<Vec<_>>());
        for version in [0, VERSION + 1, 7] {
            let bytes = header().encode_as(version);
            assert_eq!((Header::parse(&bytes), newer(&bytes)), (Err(HeaderError::Version(version)), Some(version)));
        }
    }

    #[test]
    fn the_name_of_a_file_is_its_flushes() {
        assert_eq!(Flushes::of_file_name("3-9.rows"), Some(Flushes { first: 3, last: 9 }));
        for name in ["3-9", "9-3.rows", "03-9.rows", "3-9.rows.draft", "a-b.rows", "+3-9.rows"] {
            assert_eq!(Flushes::of_file_name(name), None, "{name}");
        }
    }
}
