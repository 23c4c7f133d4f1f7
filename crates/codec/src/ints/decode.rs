//! Integers from bytes.

use pco::{data_types::Number, wrapped::FileDecompressor};

use super::{DIFFERENCES, LINEAR, PACKED, PCO, RUNS, SHORT};
use crate::{
    Damaged,
    bits::{packed_len, unpack},
    bytes::Reader,
    pco_chunk::{HEADER, damaged},
};

/// Integers decoded at once: pco's own batch.
const BATCH: usize = pco::FULL_BATCH_N;

/// Encoded integers with a known extent, not decoded yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ints<'a> {
    form: u8,
    differences: bool,
    /// Bytes of pco's type: 0, 1 or 2 for 16, 32 or 64 bits.
    narrow: u8,
    first: i64,
    /// The step of the linear form; the least number or difference of the others.
    min: i64,
    width: u32,
    payload: Reader<'a>,
    bytes: &'a [u8],
    len: usize,
}

impl<'a> Ints<'a> {
    /// Reads past `len` integers, at least one.
    pub(crate) fn parse(len: usize, reader: &mut Reader<'a>) -> Result<Ints<'a>, Damaged> {
        let head = reader.byte()?;
        let differences = head & DIFFERENCES != 0;
        let mut ints = Ints {
            form: head & 7,
            differences,
            narrow: head >> 4,
            first: 0,
            min: 0,
            width: 0,
            payload: *reader,
            bytes: &[],
            len,
        };
        let coded = if differences { len - 1 } else { len };
        match ints.form {
            LINEAR => {
                ints.first = reader.zigzag()?;
                ints.min = if len > 1 { reader.zigzag()? } else { 0 };
            }
            SHORT => {
                ints.first = reader.zigzag()?;
                ints.payload = *reader;
                for _ in 1..len {
                    reader.varint()?;
                }
            }
            PACKED => {
                ints.first = if differences { reader.zigzag()? } else { 0 };
                ints.min = reader.zigzag()?;
                ints.width = u32::from(reader.byte()?);
                if ints.width > 64 {
                    return Err(Damaged(format!("integers are packed in {} bits each", ints.width)));
                }
                ints.bytes = reader.take(packed_len(coded, ints.width))?;
            }
            PCO => {
                ints.first = if differences { reader.zigzag()? } else { 0 };
                ints.min = reader.zigzag()?;
                let size = reader.varint()?;
                ints.bytes = reader.take(usize::try_from(size).unwrap_or(usize::MAX))?;
            }
            RUNS => {
                ints.payload = *reader;
                let mut decoded = 0;
                while decoded < len {
                    reader.varint()?;
                    let run = reader.varint()?;
                    if run == 0 || run > (len - decoded) as u64 {
                        return Err(Damaged::new("runs of integers do not add up to their segment"));
                    }
                    decoded += run as usize;
                }
            }
            form => return Err(Damaged(format!("unknown integer form {form}"))),
        }
        Ok(ints)
    }

    /// Calls `each(index of the first, integers)` with up to [`BATCH`] integers at a time, in order, up to index `end`.
    pub(crate) fn decode(mut self, end: usize, mut each: impl FnMut(usize, &[i64])) -> Result<(), Damaged> {
        let end = end.min(self.len);
        let mut batch = [0_i64; BATCH];
        match self.form {
            LINEAR => {
                let mut number = self.first;
                for from in (0..end).step_by(BATCH) {
                    let batch = &mut batch[..BATCH.min(end - from)];
                    for out in batch.iter_mut() {
                        *out = number;
                        number = number.wrapping_add(self.min);
                    }
                    each(from, batch);
                }
            }
            SHORT => {
                let mut number = self.first;
                for from in (0..end).step_by(BATCH) {
                    let batch = &mut batch[..BATCH.min(end - from)];
                    for (i, out) in batch.iter_mut().enumerate() {
                        if from + i > 0 {
                            number = number.wrapping_add(self.payload.zigzag()?);
                        }
                        *out = number;
                    }
                    each(from, batch);
                }
            }
            RUNS => {
                let (mut number, mut left) = (0_i64, 0);
                for from in (0..end).step_by(BATCH) {
                    let batch = &mut batch[..BATCH.min(end - from)];
                    for out in batch.iter_mut() {
                        if left == 0 {
                            number = number.wrapping_add(self.payload.zigzag()?);
                            left = self.payload.varint()?;
                        }
                        left -= 1;
                        *out = number;
                    }
                    each(from, batch);
                }
            }
            PACKED => {
                let mut above = [0_u64; BATCH];
                self.undo(end, &mut batch, &mut each, |from, len, undo| {
                    unpack(self.bytes, self.width, from, &mut above[..len]);
                    undo.run(&above[..len], |&above| above);
                    Ok(())
                })?;
            }
            _ => match self.narrow {
                0 => self.decode_pco::<u16>(end, &mut batch, &mut each)?,
                1 => self.decode_pco::<u32>(end, &mut batch, &mut each)?,
                2 => self.decode_pco::<u64>(end, &mut batch, &mut each)?,
                narrow => return Err(Damaged(format!("unknown type {narrow} of integers"))),
            },
        }
        Ok(())
    }

    fn decode_pco<T: Number + Into<u64>>(
        self,
        end: usize,
        batch: &mut [i64; BATCH],
        each: &mut impl FnMut(usize, &[i64]),
    ) -> Result<(), Damaged> {
        let (file, _) = FileDecompressor::new(&HEADER[..]).map_err(damaged)?;
        let (mut chunk, rest) = file.chunk_decompressor::<T, _>(self.bytes).map_err(damaged)?;
        let coded = self.len - usize::from(self.differences);
        let mut page = chunk.page_decompressor(rest, coded).map_err(damaged)?;
        let mut above = [T::default(); BATCH];
        self.undo(end, batch, each, |_, len, undo| {
            let progress = page.read(&mut above).map_err(damaged)?;
            // Only the last batch of the page may be short; batches are read in order.
            if progress.n_processed < len {
                return Err(Damaged::new("a page of pco is too short"));
            }
            undo.run(&above[..len], |&above| above.into());
            Ok(())
        })
    }

    /// Turns coded numbers back into integers, batch by batch: `read(from, len, undo)` reads coded numbers
    /// `from..from + len` and hands them to `undo`.
    fn undo(
        self,
        end: usize,
        batch: &mut [i64; BATCH],
        each: &mut impl FnMut(usize, &[i64]),
        mut read: impl FnMut(usize, usize, &mut Undo<'_>) -> Result<(), Damaged>,
    ) -> Result<(), Damaged> {
        let (min, differences) = (self.min, self.differences);
        let first = usize::from(differences);
        if differences && end > 0 {
            each(0, &[self.first]);
        }
        let mut number = self.first;
        for from in (0..end.saturating_sub(first)).step_by(BATCH) {
            let len = BATCH.min(end - first - from);
            // Pages are read in whole batches, so the last may have more numbers than needed.
            read(from, len, &mut Undo { min, differences, number: &mut number, batch: &mut batch[..len] })?;
            each(first + from, &batch[..len]);
        }
        Ok(())
    }
}

/// A batch, and the state that turns its coded numbers into integers.
struct Undo<'a> {
    min: i64,
    differences: bool,
    number: &'a mut i64,
    batch: &'a mut [i64],
}

impl Undo<'_> {
    #[inline]
    fn run<T>(&mut self, coded: &[T], above: impl Fn(&T) -> u64) {
        if self.differences {
            let mut number = *self.number;
            for (out, coded) in self.batch.iter_mut().zip(coded) {
                number = number.wrapping_add(self.min).wrapping_add(above(coded) as i64);
                *out = number;
            }
            *self.number = number;
        } else {
            for (out, coded) in self.batch.iter_mut().zip(coded) {
                *out = self.min.wrapping_add(above(coded) as i64);
            }
        }
    }
}
