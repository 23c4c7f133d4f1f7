//! The footer of a file of rows: where its index is, and what its rows are of.

use metric::{MetricId, Slot};
use store::Incarnation;

use super::{
    bytes::{Bad, Bytes},
    file_header::{self, Header, HeaderError, Sealed},
};
use crate::row_key::RowKey;

const MAGIC: [u8; 8] = *b"PLBGEND.";

/// Bytes of a footer.
pub(super) const LEN: usize = file_header::LEN + 80;

/// Of a file that does not say.
const NO_OPENING: Incarnation = Incarnation { id: 0, first_id: MetricId(0) };

/// What a file says of its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) rows: u64,
    /// The first and the last key; no meaning without rows.
    pub(crate) first: RowKey,
    pub(crate) last: RowKey,
    /// The lowest and the highest metric; no meaning without rows.
    pub(crate) metrics: (MetricId, MetricId),
    /// The newest slot that has a value, or that a row may have where its bytes were not read.
    pub(crate) newest: Slot,
}

impl Summary {
    /// Of a file without rows.
    pub(crate) const NONE: Summary = Summary {
        rows: 0,
        first: RowKey::LAST,
        last: RowKey::FIRST,
        metrics: (MetricId(u32::MAX), MetricId(0)),
        newest: 0,
    };

    /// Counts a row.
    pub(super) fn add(&mut self, key: RowKey, newest: Slot) {
        self.rows += 1;
        self.first = self.first.min(key);
        self.last = self.last.max(key);
        self.metrics = (self.metrics.0.min(key.metric), self.metrics.1.max(key.metric));
        self.newest = self.newest.max(newest);
    }
}

/// The footer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Footer {
    /// Again, in case that the first bytes of the file are damaged.
    pub(super) header: Header,
    /// The seal of the file.
    pub(super) seal: u32,
    pub(super) index_offset: u64,
    pub(super) index_len: u64,
    pub(super) index_crc: u32,
    pub(super) summary: Summary,
    /// The opening of the store that wrote the file. Earlier programs wrote zeros.
    pub(super) opening: Option<Incarnation>,
}

impl Footer {
    /// As this program writes it.
    pub(super) fn encode(&self) -> [u8; LEN] {
        let Footer { header, index_offset, index_len, index_crc, summary, opening, .. } = self;
        let mut out = Vec::with_capacity(LEN);
        out.extend_from_slice(&header.encode());
        out.extend_from_slice(&index_offset.to_le_bytes());
        out.extend_from_slice(&index_len.to_le_bytes());
        out.extend_from_slice(&summary.rows.to_le_bytes());
        out.extend_from_slice(&summary.first.to_bytes());
        out.extend_from_slice(&summary.last.to_bytes());
        for number in [summary.metrics.0.0, summary.metrics.1.0, summary.newest, *index_crc] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        let Incarnation { id, first_id } = opening.unwrap_or(NO_OPENING);
        out.extend_from_slice(&id.to_le_bytes());
        out.extend_from_slice(&first_id.0.to_le_bytes());
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&crc32fast::hash(&out).to_le_bytes());
        out.try_into().expect("the parts add up to the length of a footer")
    }

    pub(super) fn parse(bytes: &[u8; LEN]) -> Result<Footer, HeaderError> {
        let bad = |what| HeaderError::Bad(Bad(what));
        if bytes[LEN - 12..LEN - 4] != MAGIC {
            return Err(bad("the file does not end as a file of rows"));
        }
        if crc32fast::hash(&bytes[..LEN - 4]).to_le_bytes() != bytes[LEN - 4..] {
            return Err(bad("the checksum of the footer is wrong"));
        }
        let mut parts = Bytes(bytes);
        let Sealed { header, seal } = Header::parse(&parts.array()?)?;
        let (index_offset, index_len) = (parts.u64()?, parts.u64()?);
        let (rows, first, last) = (parts.u64()?, parts.key()?, parts.key()?);
        let metrics = (MetricId(parts.u32()?), MetricId(parts.u32()?));
        let newest = parts.u32()?;
        let index_crc = parts.u32()?;
        let opening = Incarnation { id: parts.u64()?, first_id: MetricId(parts.u32()?) };
        let opening = (opening != NO_OPENING).then_some(opening);
        let summary = Summary { rows, first, last, metrics, newest };
        Ok(Footer { header, seal, index_offset, index_len, index_crc, summary, opening })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::file_header::tests::header, *};

    #[test]
    fn a_footer_survives_and_any_flipped_bit_is_noticed() {
        let key = |group| RowKey { group, metric: MetricId(3) };
        let summary = Summary { rows: 5, first: key(1), last: key(2), metrics: (MetricId(3), MetricId(4)), newest: 77 };
        let footer = Footer {
            header: header(),
            seal: header().seal(),
            index_offset: 99,
            index_len: 32,
            index_crc: 0xABCD,
            summary,
            opening: Some(Incarnation { id: 0x83ab << 48, first_id: MetricId(2) }),
        };
        assert_eq!(Footer::parse(&Footer { opening: None, ..footer }.encode()).unwrap().opening, None);
        let bytes = footer.encode();
        assert_eq!(Footer::parse(&bytes), Ok(footer));
        for bit in 0..LEN * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Footer::parse(&flipped).is_err(), "bit {bit}");
        }
    }
}
