//! The layout of a segment: finds its parts and checks their extents, without decoding them.

use std::ops::Range;

use crate::{
    Damaged,
    bytes::Reader,
    floats::{self, Floats},
    ints::Ints,
    presence::Presence,
};

/// Most slots of a row: offsets are below it. Bounds the memory of decoding.
pub const MAX_SLOTS: usize = 4096;

/// The head of a segment: presence in two bits, then these, then the scale in three bits.
pub(crate) const COUNTED: u8 = 1 << 2;
pub(crate) const DECIMALS: u8 = 0 << 3;
pub(crate) const WITH_EXCEPTIONS: u8 = 1 << 3;
pub(crate) const FLOATS: u8 = 2 << 3;
/// Near decimals: distances behind the integers, then exceptions.
pub(crate) const NEAR: u8 = 3 << 3;
pub(crate) const CLASS: u8 = 3 << 3;
pub(crate) const SCALE_SHIFT: u8 = 5;
/// A scale of seven or more has a byte of its own.
pub(crate) const LONG_SCALE: u8 = 7;

/// The place of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Its offsets in the row; its first and its last slot have values.
    pub slots: Range<usize>,
    /// Its bytes in the row.
    pub bytes: Range<usize>,
}

/// The segments of a row, first to last, without decoding them.
pub fn segments(row: &[u8]) -> Segments<'_> {
    Segments { len: row.len(), reader: Reader::new(row) }
}

/// The iterator of [`segments`]. Ends after the first error.
#[derive(Debug, Clone)]
pub struct Segments<'a> {
    len: usize,
    reader: Reader<'a>,
}

impl Iterator for Segments<'_> {
    type Item = Result<Segment, Damaged>;

    fn next(&mut self) -> Option<Result<Segment, Damaged>> {
        if self.reader.is_empty() {
            return None;
        }
        let start = self.len - self.reader.len();
        let parsed = Parsed::parse(&mut self.reader);
        if parsed.is_err() {
            self.reader = Reader::EMPTY;
        }
        let bytes = start..self.len - self.reader.len();
        Some(parsed.map(|segment| Segment { slots: segment.first..segment.first + segment.len, bytes }))
    }
}

/// An encoded segment, with the extents of its parts checked and nothing decoded.
pub(crate) struct Parsed<'a> {
    pub(crate) first: usize,
    pub(crate) len: usize,
    pub(crate) present: usize,
    pub(crate) presence: Presence<'a>,
    pub(crate) values: Values<'a>,
    pub(crate) counts: Option<Ints<'a>>,
}

#[derive(Clone, Copy)]
pub(crate) enum Values<'a> {
    /// Integers divided by a power of ten; with distances, the double so many units in the last place away.
    Decimals {
        power: f64,
        ints: Ints<'a>,
        distances: Option<Ints<'a>>,
        exceptions: Exceptions<'a>,
    },
    Floats(Floats<'a>),
}

impl<'a> Parsed<'a> {
    pub(crate) fn parse(reader: &mut Reader<'a>) -> Result<Parsed<'a>, Damaged> {
        let head = reader.byte()?;
        let first = reader.varint()?;
        let len = reader.varint()?;
        let max = MAX_SLOTS as u64;
        if len == 0 || first >= max || len > max - first {
            return Err(Damaged(format!("a segment has {len} slots from offset {first}")));
        }
        let (first, len) = (first as usize, len as usize);
        let (presence, present) = Presence::parse(head & 3, len, reader)?;
        if present == 0 {
            return Err(Damaged::new("a segment holds no value"));
        }
        let class = head & CLASS;
        let values = if class == FLOATS {
            Values::Floats(Floats::parse(present, reader)?)
        } else {
            let scale = head >> SCALE_SHIFT;
            let scale = if scale == LONG_SCALE { reader.byte()? } else { scale };
            let power = floats::power(scale).ok_or_else(|| Damaged(format!("unknown scale {scale}")))?;
            let ints = Ints::parse(present, reader)?;
            let distances = if class == NEAR { Some(Ints::parse(present, reader)?) } else { None };
            let exceptions = if class == DECIMALS { Exceptions::NONE } else { Exceptions::parse(reader)? };
            Values::Decimals { power, ints, distances, exceptions }
        };
        let counts = if head & COUNTED != 0 { Some(Ints::parse(present, reader)?) } else { None };
        Ok(Parsed { first, len, present, presence, values, counts })
    }
}

/// Values that are not decimals, by their index among the present values.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exceptions<'a> {
    count: u64,
    reader: Reader<'a>,
}

impl<'a> Exceptions<'a> {
    const NONE: Exceptions<'static> = Exceptions { count: 0, reader: Reader::EMPTY };

    fn parse(reader: &mut Reader<'a>) -> Result<Exceptions<'a>, Damaged> {
        let count = reader.varint()?;
        let exceptions = Exceptions { count, reader: *reader };
        for _ in 0..count {
            reader.varint()?;
            reader.f64()?;
        }
        Ok(exceptions)
    }

    pub(crate) fn for_each(mut self, mut each: impl FnMut(usize, f64)) -> Result<(), Damaged> {
        let mut number = 0_u64;
        for _ in 0..self.count {
            number = number.saturating_add(self.reader.varint()?);
            let value = self.reader.f64()?;
            if let Ok(number) = u16::try_from(number) {
                each(usize::from(number), value);
            }
        }
        Ok(())
    }
}
