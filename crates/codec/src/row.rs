//! The codec: appends segments to a row, and reads slots from a row.

use std::ops::Range;

use crate::{
    Damaged,
    bytes::{Reader, put_varint},
    floats,
    ints::{self, Ints},
    near::{self, at_distance},
    presence::{self, Presence},
    segment::{
        COUNTED, DECIMALS, Exceptions, FLOATS, LONG_SCALE, MAX_SLOTS, NEAR, Parsed, SCALE_SHIFT, Values,
        WITH_EXCEPTIONS,
    },
};

/// Encodes and decodes with reusable buffers of a few kilobytes. Use one for each thread.
#[derive(Debug, Default)]
pub struct Codec {
    values: Vec<f64>,
    integers: Vec<i64>,
    distances: Vec<i64>,
    exceptions: Vec<u32>,
    runs: Vec<u32>,
    ints: ints::Scratch,
}

impl Codec {
    /// A codec with empty buffers.
    pub fn new() -> Codec {
        Codec::default()
    }

    /// Appends a segment to `row`: `values[i]` goes to the offset `first + i`. NaN is absent; without any present value
    /// nothing is written. `counts` has the length of `values`, or none if the table has no counts. Counts of absent
    /// values are dropped.
    ///
    /// # Panics
    ///
    /// When an offset is not below [`MAX_SLOTS`], or `counts` and `values` differ in length.
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

        let (class, scale) =
            encode_values(present, &mut self.integers, &mut self.distances, &mut self.exceptions, &mut self.ints, row);
        let counted = if counts.is_empty() {
            0
        } else {
            let counts = counts[skipped..end].iter().zip(values);
            self.integers.clear();
            self.integers.extend(counts.filter(|(_, value)| !value.is_nan()).map(|(&count, _)| i64::from(count)));
            ints::encode(&self.integers, &mut self.ints, row);
            COUNTED
        };
        row[head] = form | counted | class | scale.min(LONG_SCALE) << SCALE_SHIFT;
    }

    /// Decodes the offsets `slots` of a row: writes the value of offset `slots.start + i` to `values[i]` and its count to
    /// `counts[i]`, and leaves both unchanged where the row has no value. `values` has the length of `slots`; so has
    /// `counts`, or none to skip counts. Returns whether the row has any value there.
    ///
    /// Accepts any bytes: those that no encoder wrote are [`Damaged`], or decode to some values. After an error, part of
    /// the destination may be written.
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
        if let (Presence::Dense, Values::Decimals { power, ints, distances, exceptions }) =
            (segment.presence, segment.values)
        {
            decode_dense(segment, power, (ints, distances), exceptions, slots, values)?;
        } else if !self.decode_values(segment, slots, values)? {
            return Ok(false);
        }
        if let Some(ints) = segment.counts.filter(|_| !counts.is_empty()) {
            self.decode_counts(segment, ints, slots, counts)?;
        }
        Ok(true)
    }

    /// Decodes the values of any segment by way of a buffer. Returns whether a value is in `slots`.
    fn decode_values(
        &mut self,
        segment: &Parsed<'_>,
        slots: &Range<usize>,
        values: &mut [f64],
    ) -> Result<bool, Damaged> {
        self.values.clear();
        self.values.resize(segment.present, 0.0);
        match segment.values {
            Values::Decimals { power, ints, distances, exceptions } => {
                let decoded = &mut self.values;
                ints.decode(segment.present, |from, batch| {
                    unscale(batch, power, &mut decoded[from..from + batch.len()]);
                })?;
                if let Some(distances) = distances {
                    distances.decode(segment.present, |from, batch| {
                        move_by(batch, &mut decoded[from..from + batch.len()]);
                    })?;
                }
                exceptions.for_each(|index, value| {
                    if let Some(out) = decoded.get_mut(index) {
                        *out = value;
                    }
                })?;
            }
            Values::Floats(floats) => floats.decode(&mut self.values)?,
        }
        let decoded = &self.values;
        let mut any = false;
        segment.presence.for_each(segment.len, |slot, index| {
            let i = (segment.first + slot).checked_sub(slots.start);
            if let (Some(out), Some(&value)) = (i.and_then(|i| values.get_mut(i)), decoded.get(index)) {
                *out = value;
                any = true;
            }
        });
        Ok(any)
    }

    fn decode_counts(
        &mut self,
        segment: &Parsed<'_>,
        ints: Ints<'_>,
        slots: &Range<usize>,
        counts: &mut [u32],
    ) -> Result<(), Damaged> {
        let as_count = |count: i64| u32::try_from(count).unwrap_or(u32::MAX);
        if let Presence::Dense = segment.presence {
            return ints.decode(slots.end - segment.first, |from, batch| {
                if let Some((batch, out)) = overlap(segment.first + from, batch, slots, counts) {
                    out.iter_mut().zip(batch).for_each(|(out, &count)| *out = as_count(count));
                }
            });
        }
        self.integers.clear();
        ints.decode(segment.present, |_, batch| self.integers.extend_from_slice(batch))?;
        segment.presence.for_each(segment.len, |slot, index| {
            let i = (segment.first + slot).checked_sub(slots.start);
            if let (Some(out), Some(&count)) = (i.and_then(|i| counts.get_mut(i)), self.integers.get(index)) {
                *out = as_count(count);
            }
        });
        Ok(())
    }
}

/// Appends the values of a segment in the first class that fits them. Returns class and scale.
fn encode_values(
    values: &[f64],
    integers: &mut Vec<i64>,
    distances: &mut Vec<i64>,
    exceptions: &mut Vec<u32>,
    ints: &mut ints::Scratch,
    row: &mut Vec<u8>,
) -> (u8, u8) {
    let (class, scale) = if let Some(scale) = floats::scale(values, integers, exceptions) {
        (if exceptions.is_empty() { DECIMALS } else { WITH_EXCEPTIONS }, scale)
    } else if let Some(scale) = near::split(values, integers, distances, exceptions) {
        (NEAR, scale)
    } else {
        floats::encode(values, row);
        return (FLOATS, 0);
    };
    if scale >= LONG_SCALE {
        row.push(scale);
    }
    ints::encode(integers, ints, row);
    if class == NEAR {
        ints::encode(distances, ints, row);
    }
    if class != DECIMALS {
        put_varint(row, exceptions.len() as u64);
        let mut before = 0;
        for &i in exceptions.iter() {
            put_varint(row, u64::from(i - before));
            row.extend_from_slice(&values[i as usize].to_le_bytes());
            before = i;
        }
    }
    (class, scale)
}

/// The path of nearly every row: no copy between the integers and the destination.
#[inline]
fn decode_dense(
    segment: &Parsed<'_>,
    power: f64,
    (ints, distances): (Ints<'_>, Option<Ints<'_>>),
    exceptions: Exceptions<'_>,
    slots: &Range<usize>,
    values: &mut [f64],
) -> Result<(), Damaged> {
    let end = slots.end - segment.first;
    ints.decode(end, |from, batch| {
        if let Some((batch, out)) = overlap(segment.first + from, batch, slots, values) {
            unscale(batch, power, out);
        }
    })?;
    if let Some(distances) = distances {
        distances.decode(end, |from, batch| {
            if let Some((batch, out)) = overlap(segment.first + from, batch, slots, values) {
                move_by(batch, out);
            }
        })?;
    }
    exceptions.for_each(|index, value| {
        if let Some(out) = (segment.first + index).checked_sub(slots.start).and_then(|i| values.get_mut(i)) {
            *out = value;
        }
    })
}

#[inline]
fn unscale(integers: &[i64], power: f64, out: &mut [f64]) {
    if power == 1.0 {
        out.iter_mut().zip(integers).for_each(|(out, &integer)| *out = integer as f64);
    } else {
        out.iter_mut().zip(integers).for_each(|(out, &integer)| *out = integer as f64 / power);
    }
}

#[inline]
fn move_by(distances: &[i64], out: &mut [f64]) {
    out.iter_mut().zip(distances).for_each(|(out, &distance)| *out = at_distance(*out, distance));
}

/// The part of `batch`, from offset `first` on, that is in `slots`, and its destination.
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
