//! The layout of a segment, and the codec that writes and reads them.

use std::ops::Range;

use crate::{
    Damaged,
    bytes::{Reader, put_varint},
    floats::{self, Floats},
    ints::{self, Ints},
    presence::{self, Presence},
};

/// Slots a row may have: offsets are below it. Bounds what decoding allocates.
pub const MAX_SLOTS: usize = 4096;

/// The head of a segment: presence in two bits, then these, then the scale in three.
const COUNTED: u8 = 1 << 2;
const DECIMALS: u8 = 0 << 3;
const WITH_EXCEPTIONS: u8 = 1 << 3;
const FLOATS: u8 = 2 << 3;
const CLASS: u8 = 3 << 3;
const SCALE_SHIFT: u8 = 5;
/// A scale of seven or more has a byte of its own.
const LONG_SCALE: u8 = 7;

/// Encodes and decodes, keeping its buffers. One for each thread; a few kilobytes.
#[derive(Debug, Default)]
pub struct Codec {
    values: Vec<f64>,
    integers: Vec<i64>,
    exceptions: Vec<u32>,
    runs: Vec<u32>,
    ints: ints::Scratch,
}

/// Where a segment lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Offsets it spans in the row; its first and its last slot hold values.
    pub slots: Range<usize>,
    /// Its bytes in the row.
    pub bytes: Range<usize>,
}

impl Codec {
    /// A codec with empty buffers.
    pub fn new() -> Codec {
        Codec::default()
    }

    /// Appends a segment to `row`: `values[i]` goes to the offset `first + i`. NaN is absent; a segment in
    /// which nothing is present is not written. `counts` are as many as the values, or none where the
    /// table has none; those of absent values are not kept.
    ///
    /// # Panics
    ///
    /// When an offset would reach [`MAX_SLOTS`], or counts and values differ in number.
    pub fn encode(&mut self, first: usize, values: &[f64], counts: &[u32], row: &mut Vec<u8>) {
        assert!(first + values.len() <= MAX_SLOTS, "offset {first} + {} is beyond a row", values.len());
        assert!(counts.is_empty() || counts.len() == values.len(), "as many counts as values, or none");
        let Some(skipped) = values.iter().position(|value| !value.is_nan()) else { return };
        let end = values.iter().rposition(|value| !value.is_nan()).map_or(0, |last| last + 1);
        let (first, values) = (first + skipped, &values[skipped..end]);

        let head = row.len();
        row.push(0);
        put_varint(row, first as u64);
        put_varint(row, values.len() as u64);
        let form = presence::encode(values.iter().map(|value| !value.is_nan()), &mut self.runs, row);
        let present = if form == presence::DENSE {
            values
        } else {
            self.values.clear();
            self.values.extend(values.iter().filter(|value| !value.is_nan()));
            &self.values
        };

        let scale = floats::scale(present, &mut self.integers, &mut self.exceptions);
        let class = match scale {
            Some(scale) => {
                if scale >= LONG_SCALE {
                    row.push(scale);
                }
                ints::encode(&self.integers, &mut self.ints, row);
                if self.exceptions.is_empty() { DECIMALS } else { WITH_EXCEPTIONS }
            }
            None => {
                floats::encode(present, row);
                FLOATS
            }
        };
        if class == WITH_EXCEPTIONS {
            put_varint(row, self.exceptions.len() as u64);
            let mut before = 0;
            for &i in &self.exceptions {
                put_varint(row, u64::from(i - before));
                row.extend_from_slice(&present[i as usize].to_le_bytes());
                before = i;
            }
        }
        let counted = if counts.is_empty() {
            0
        } else {
            let counts = counts[skipped..end].iter().zip(values);
            self.integers.clear();
            self.integers.extend(counts.filter(|(_, value)| !value.is_nan()).map(|(&count, _)| i64::from(count)));
            ints::encode(&self.integers, &mut self.ints, row);
            COUNTED
        };
        row[head] = form | counted | class | scale.unwrap_or(0).min(LONG_SCALE) << SCALE_SHIFT;
    }

    /// Decodes the offsets `slots` of a row: `values[i]` and `counts[i]` are those of the offset
    /// `slots.start + i`, and are left as they are where the row has no value. `values` are as many as the
    /// slots; so are `counts`, or none when they are not wanted. Returns whether any value was there.
    ///
    /// Any bytes may be given: what no encoder wrote is [`Damaged`], or decodes to some values. On an
    /// error part of the destination may be written.
    pub fn decode(
        &mut self,
        row: &[u8],
        slots: Range<usize>,
        values: &mut [f64],
        counts: &mut [u32],
    ) -> Result<bool, Damaged> {
        debug_assert_eq!(values.len(), slots.len());
        debug_assert!(counts.is_empty() || counts.len() == slots.len());
        let mut any = false;
        let mut reader = Reader::new(row);
        while !reader.is_empty() {
            let segment = Parsed::parse(&mut reader)?;
            if !slots.is_empty() && segment.first < slots.end && slots.start < segment.first + segment.len {
                any |= self.decode_segment(&segment, &slots, values, counts)?;
            }
        }
        Ok(any)
    }

    fn decode_segment(
        &mut self,
        segment: &Parsed<'_>,
        slots: &Range<usize>,
        values: &mut [f64],
        counts: &mut [u32],
    ) -> Result<bool, Damaged> {
        if let (Presence::Dense, Values::Decimals { power, ints, exceptions }) = (segment.presence, segment.values) {
            // The way of nearly every row: no copy between the integers and the destination.
            let end = slots.end - segment.first;
            ints.decode(end, |from, batch| {
                if let Some((batch, out)) = overlap(segment.first + from, batch, slots, values) {
                    unscale(batch, power, out);
                }
            })?;
            exceptions.for_each(|number, value| {
                if let Some(out) = (segment.first + number).checked_sub(slots.start).and_then(|i| values.get_mut(i)) {
                    *out = value;
                }
            })?;
        } else {
            self.values.clear();
            self.values.resize(segment.present, 0.0);
            match segment.values {
                Values::Decimals { power, ints, exceptions } => {
                    let decoded = &mut self.values;
                    ints.decode(segment.present, |from, batch| {
                        unscale(batch, power, &mut decoded[from..from + batch.len()]);
                    })?;
                    exceptions.for_each(|number, value| {
                        if let Some(out) = decoded.get_mut(number) {
                            *out = value;
                        }
                    })?;
                }
                Values::Floats(floats) => floats.decode(&mut self.values)?,
            }
            let decoded = &self.values;
            let mut any = false;
            segment.presence.for_each(segment.len, |slot, number| {
                let i = (segment.first + slot).checked_sub(slots.start);
                if let (Some(out), Some(&value)) = (i.and_then(|i| values.get_mut(i)), decoded.get(number)) {
                    *out = value;
                    any = true;
                }
            });
            if !any {
                return Ok(false);
            }
        }

        let Some(ints) = segment.counts.filter(|_| !counts.is_empty()) else { return Ok(true) };
        let as_count = |count: i64| u32::try_from(count).unwrap_or(u32::MAX);
        if let Presence::Dense = segment.presence {
            ints.decode(slots.end - segment.first, |from, batch| {
                if let Some((batch, out)) = overlap(segment.first + from, batch, slots, counts) {
                    out.iter_mut().zip(batch).for_each(|(out, &count)| *out = as_count(count));
                }
            })?;
        } else {
            self.integers.clear();
            ints.decode(segment.present, |_, batch| self.integers.extend_from_slice(batch))?;
            segment.presence.for_each(segment.len, |slot, number| {
                let i = (segment.first + slot).checked_sub(slots.start);
                if let (Some(out), Some(&count)) = (i.and_then(|i| counts.get_mut(i)), self.integers.get(number)) {
                    *out = as_count(count);
                }
            });
        }
        Ok(true)
    }
}

/// The segments of a row, first to last, found without decoding them.
pub fn segments(row: &[u8]) -> Segments<'_> {
    Segments { len: row.len(), reader: Reader::new(row) }
}

/// What [`segments`] returns. Ends after the first error.
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

/// A segment as it is written: its parts found, their extents checked, nothing decoded.
struct Parsed<'a> {
    first: usize,
    len: usize,
    present: usize,
    presence: Presence<'a>,
    values: Values<'a>,
    counts: Option<Ints<'a>>,
}

#[derive(Clone, Copy)]
enum Values<'a> {
    Decimals { power: f64, ints: Ints<'a>, exceptions: Exceptions<'a> },
    Floats(Floats<'a>),
}

impl<'a> Parsed<'a> {
    fn parse(reader: &mut Reader<'a>) -> Result<Parsed<'a>, Damaged> {
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
        let values = match head & CLASS {
            FLOATS => Values::Floats(Floats::parse(present, reader)?),
            class @ (DECIMALS | WITH_EXCEPTIONS) => {
                let scale = head >> SCALE_SHIFT;
                let scale = if scale == LONG_SCALE { reader.byte()? } else { scale };
                let power = floats::power(scale).ok_or_else(|| Damaged(format!("scale {scale} is not known")))?;
                let ints = Ints::parse(present, reader)?;
                let exceptions = if class == WITH_EXCEPTIONS { Exceptions::parse(reader)? } else { Exceptions::NONE };
                Values::Decimals { power, ints, exceptions }
            }
            _ => return Err(Damaged(format!("the values of head {head:#04x} are of no known class"))),
        };
        let counts = if head & COUNTED != 0 { Some(Ints::parse(present, reader)?) } else { None };
        Ok(Parsed { first, len, present, presence, values, counts })
    }
}

/// Values beside the integers of a segment, by their number among the present.
#[derive(Debug, Clone, Copy)]
struct Exceptions<'a> {
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

    fn for_each(mut self, mut each: impl FnMut(usize, f64)) -> Result<(), Damaged> {
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

#[inline]
fn unscale(integers: &[i64], power: f64, out: &mut [f64]) {
    if power == 1.0 {
        out.iter_mut().zip(integers).for_each(|(out, &integer)| *out = integer as f64);
    } else {
        out.iter_mut().zip(integers).for_each(|(out, &integer)| *out = integer as f64 / power);
    }
}

/// The part of `batch`, which begins at offset `first`, that lies in `slots`, and where it goes.
#[inline]
fn overlap<'b, 'o, T>(
    first: usize,
    batch: &'b [i64],
    slots: &Range<usize>,
    out: &'o mut [T],
) -> Option<(&'b [i64], &'o mut [T])> {
    let from = first.max(slots.start);
    let until = (first + batch.len()).min(slots.end);
    let len = until.checked_sub(from)?;
    Some((batch.get(from - first..)?.get(..len)?, out.get_mut(from - slots.start..)?.get_mut(..len)?))
}
