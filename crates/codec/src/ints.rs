//! A sequence of integers, in the form that takes the fewest bytes for its length.
//!
//! The forms, smallest first where they apply:
//!
//! 0. *linear*: the first and a step. Constants, and counters of constant rate.
//! 1. *short*: the first, then differences as varints. A few values.
//! 2. *packed*: numbers or differences above their minimum, in one width of bits.
//! 3. *pco*: the same, entropy-coded by pco. Long rows; its tables cost some thirty bytes.
//! 4. *runs*: a difference and how often the value repeats. Steps, and counts with a short tail.
//!
//! Differences are taken here rather than by pco because they fit a narrow type: a table entry for a
//! 16-bit number takes 16 bits where one for a 64-bit number takes 64, which at 1,000 values is 3 to 4 %
//! of the whole, and it decodes faster.

use pco::{
    ChunkConfig, DeltaSpec, ModeSpec,
    data_types::Number,
    wrapped::{FileCompressor, FileDecompressor},
};

use crate::{
    Damaged,
    bits::{pack, packed_len, unpack},
    bytes::{Reader, put_varint, put_zigzag, varint_len, zigzag_len},
};

const LINEAR: u8 = 0;
const SHORT: u8 = 1;
const PACKED: u8 = 2;
const PCO: u8 = 3;
const RUNS: u8 = 4;

/// Set in the form byte when differences are coded, clear when the numbers themselves are.
const DIFFERENCES: u8 = 1 << 3;

/// Integers decoded at once: pco's own batch.
pub(crate) const BATCH: usize = pco::FULL_BATCH_N;

/// What pco would write before a chunk: the version of its format, which this crate's version implies.
pub(crate) const PCO_HEADER: [u8; 2] = [4, 1];

/// Below this many values the tables of pco cost more than they save, unless the values are skewed.
const PCO_FROM: usize = 192;

/// Buffers of the encoder, kept so that a row allocates nothing but what pco does.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    above: Vec<u64>,
    narrow16: Vec<u16>,
    narrow32: Vec<u32>,
    pco: Vec<u8>,
}

/// What decides the form.
struct Shape {
    first: i64,
    step: i64,
    is_linear: bool,
    runs: usize,
    /// Least and greatest number, and the sum of their distances from the first.
    numbers: Range,
    /// The same of the differences, their distances from zero.
    differences: Range,
    short_len: usize,
    runs_len: usize,
}

#[derive(Clone, Copy)]
struct Range {
    min: i64,
    max: i64,
    spread: f64,
}

impl Range {
    const EMPTY: Range = Range { min: i64::MAX, max: i64::MIN, spread: 0.0 };

    fn add(&mut self, number: i64, distance: f64) {
        self.min = self.min.min(number);
        self.max = self.max.max(number);
        self.spread += distance.abs();
    }

    fn width(self) -> u32 {
        64 - (self.max.wrapping_sub(self.min) as u64).leading_zeros()
    }
}

/// Appends `numbers`, of which there is at least one.
pub(crate) fn encode(numbers: &[i64], scratch: &mut Scratch, out: &mut Vec<u8>) {
    let shape = Shape::of(numbers);
    if shape.is_linear {
        out.push(LINEAR);
        put_zigzag(out, shape.first);
        if numbers.len() > 1 {
            put_zigzag(out, shape.step);
        }
        return;
    }

    // Differences of noise around a level are wider than the noise. The distances from the mean tell:
    // for both kinds of data they are proportional to the bits an entropy coder needs.
    let mean = mean(numbers);
    let spread: f64 = numbers.iter().map(|&number| (number as f64 - mean).abs()).sum();
    let differences = shape.differences.spread <= spread * 1.1;
    let range = if differences { shape.differences } else { shape.numbers };
    let coded = if differences { numbers.len() - 1 } else { numbers.len() };

    let width = range.width();
    let packed_size = packed_len(coded, width) + zigzag_len(range.min) + 1;
    let packed_size = if differences { packed_size + zigzag_len(shape.first) } else { packed_size };
    let (mut form, mut size) = (PACKED, packed_size);
    if shape.short_len < size {
        (form, size) = (SHORT, shape.short_len);
    }
    if shape.runs_len < size {
        (form, size) = (RUNS, shape.runs_len);
    }

    // What an entropy coder needs for numbers that fall off exponentially to both sides.
    let spread = if differences { shape.differences.spread } else { spread };
    let bits = (2.0 * std::f64::consts::E * spread / coded as f64 + 1.0).log2();
    let hoped = bits * coded as f64 / 8.0 + 30.0;
    let try_pco = if coded < PCO_FROM { hoped < 0.8 * size as f64 } else { hoped < 1.2 * size as f64 };
    if try_pco {
        scratch.above.clear();
        let above = |number: i64| number.wrapping_sub(range.min) as u64;
        if differences {
            scratch.above.extend(numbers.windows(2).map(|pair| above(pair[1].wrapping_sub(pair[0]))));
        } else {
            scratch.above.extend(numbers.iter().map(|&number| above(number)));
        }
        scratch.pco.clear();
        let bytes = encode_pco(width, scratch);
        let head = varint_len(scratch.pco.len() as u64) + packed_size - packed_len(coded, width);
        if scratch.pco.len() + head < size {
            out.push(PCO | if differences { DIFFERENCES } else { 0 } | bytes << 4);
            if differences {
                put_zigzag(out, shape.first);
            }
            put_zigzag(out, range.min);
            put_varint(out, scratch.pco.len() as u64);
            out.extend_from_slice(&scratch.pco);
            return;
        }
    }

    match form {
        SHORT => {
            out.push(SHORT);
            put_zigzag(out, shape.first);
            for pair in numbers.windows(2) {
                put_zigzag(out, pair[1].wrapping_sub(pair[0]));
            }
        }
        RUNS => {
            out.push(RUNS);
            let mut before = 0_i64;
            for run in numbers.chunk_by(|a, b| a == b) {
                put_zigzag(out, run[0].wrapping_sub(before));
                put_varint(out, run.len() as u64);
                before = run[0];
            }
        }
        _ if differences => {
            out.push(PACKED | DIFFERENCES);
            put_zigzag(out, shape.first);
            put_zigzag(out, range.min);
            out.push(width as u8);
            let above = |pair: &[i64]| pair[1].wrapping_sub(pair[0]).wrapping_sub(range.min) as u64;
            pack(numbers.windows(2).map(above), width, out);
        }
        _ => {
            out.push(PACKED);
            put_zigzag(out, range.min);
            out.push(width as u8);
            pack(numbers.iter().map(|&number| number.wrapping_sub(range.min) as u64), width, out);
        }
    }
}

impl Shape {
    fn of(numbers: &[i64]) -> Shape {
        let first = numbers[0];
        let step = numbers.get(1).map_or(0, |&second| second.wrapping_sub(first));
        let mut shape = Shape {
            first,
            step,
            is_linear: true,
            runs: 1,
            numbers: Range::EMPTY,
            differences: Range::EMPTY,
            short_len: zigzag_len(first),
            runs_len: zigzag_len(first),
        };
        shape.numbers.add(first, 0.0);
        for pair in numbers.windows(2) {
            let difference = pair[1].wrapping_sub(pair[0]);
            shape.numbers.add(pair[1], 0.0);
            shape.differences.add(difference, difference as f64);
            shape.is_linear &= difference == step;
            let len = zigzag_len(difference);
            shape.short_len += len;
            if difference != 0 {
                shape.runs += 1;
                shape.runs_len += len;
            }
        }
        // How long each run is, guessed from the mean: two bytes from 128 on.
        let mean_run = (numbers.len() / shape.runs) as u64;
        shape.runs_len += shape.runs * varint_len(mean_run);
        shape
    }
}

fn mean(numbers: &[i64]) -> f64 {
    numbers.iter().map(|&number| number as f64).sum::<f64>() / numbers.len() as f64
}

/// Compresses `scratch.above`, numbers of `width` bits, into `scratch.pco`, as the narrowest type that
/// holds them: 0 for 16 bits, 1 for 32, 2 for 64.
fn encode_pco(width: u32, scratch: &mut Scratch) -> u8 {
    match width {
        0..=16 => {
            scratch.narrow16.clear();
            scratch.narrow16.extend(scratch.above.iter().map(|&number| number as u16));
            compress(&scratch.narrow16, &mut scratch.pco);
            0
        }
        17..=32 => {
            scratch.narrow32.clear();
            scratch.narrow32.extend(scratch.above.iter().map(|&number| number as u32));
            compress(&scratch.narrow32, &mut scratch.pco);
            1
        }
        _ => {
            compress(&scratch.above, &mut scratch.pco);
            2
        }
    }
}

/// One chunk of pco, metadata and page, without its file header.
fn compress<T: Number>(numbers: &[T], out: &mut Vec<u8>) {
    // Level 5 takes 15 ns a value at 1,000 values and comes within 1 % of level 8, which takes 23; level 2
    // takes 10 and is 4 % larger. Below some 300 values no level gains on level 1.
    let level = if numbers.len() < 320 { 1 } else { 5 };
    let config = ChunkConfig::default()
        .with_compression_level(level)
        .with_mode_spec(ModeSpec::Classic)
        .with_delta_spec(DeltaSpec::NoOp);
    write_chunk(numbers, &config, out);
}

/// Appends a chunk of pco and its only page.
pub(crate) fn write_chunk<T: Number>(numbers: &[T], config: &ChunkConfig, out: &mut Vec<u8>) {
    let mut chunk = FileCompressor::default()
        .chunk_compressor(numbers, config)
        .expect("the settings are valid and the row is not empty");
    chunk.write_meta(&mut *out).expect("a vector takes any write");
    chunk.write_page(0, &mut *out).expect("a vector takes any write");
}

/// Integers as they are written, their extent known and not yet decoded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ints<'a> {
    form: u8,
    differences: bool,
    /// Bytes of pco's type: 0, 1 or 2 for 16, 32 or 64 bits.
    narrow: u8,
    first: i64,
    /// The step of a linear form, the least number or difference of the others.
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
            form => return Err(Damaged(format!("integer form {form} is not known"))),
        }
        Ok(ints)
    }

    /// Calls `each(number of the first, integers)` with up to [`BATCH`] integers at a time, in order,
    /// until those before `end` are told.
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
                narrow => return Err(Damaged(format!("type {narrow} of integers is not known"))),
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
        let damaged = |error: pco::errors::PcoError| Damaged(error.to_string());
        let (file, _) = FileDecompressor::new(&PCO_HEADER[..]).map_err(damaged)?;
        let (mut chunk, rest) = file.chunk_decompressor::<T, _>(self.bytes).map_err(damaged)?;
        let coded = self.len - usize::from(self.differences);
        let mut page = chunk.page_decompressor(rest, coded).map_err(damaged)?;
        let mut above = [T::default(); BATCH];
        self.undo(end, batch, each, |_, len, undo| {
            let progress = page.read(&mut above).map_err(damaged)?;
            // Only the last batch of the page may be short; batches are asked for in order.
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
            // Pages are read in whole batches, so the last may hold more than is wanted.
            read(from, len, &mut Undo { min, differences, number: &mut number, batch: &mut batch[..len] })?;
            each(first + from, &batch[..len]);
        }
        Ok(())
    }
}

/// A batch being turned from coded numbers into integers.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn check(numbers: &[i64], form: u8, at_most: usize) {
        let mut bytes = Vec::new();
        encode(numbers, &mut Scratch::default(), &mut bytes);
        assert_eq!(bytes[0] & 7, form, "form of {numbers:?}");
        assert!(bytes.len() <= at_most, "{} bytes for {numbers:?}", bytes.len());
        for end in [0, 1, numbers.len() / 2, numbers.len()] {
            let mut reader = Reader::new(&bytes);
            let ints = Ints::parse(numbers.len(), &mut reader).unwrap();
            assert!(reader.is_empty());
            let mut decoded = Vec::new();
            ints.decode(end, |from, batch| {
                assert_eq!(from, decoded.len());
                decoded.extend_from_slice(batch);
            })
            .unwrap();
            assert_eq!(decoded, numbers[..end]);
        }
    }

    /// Numbers without a pattern below `limit`.
    fn noise(n: usize, limit: u64) -> impl Iterator<Item = i64> {
        (1..=n as u64).map(move |i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as i64 % limit as i64)
    }

    #[test]
    fn each_form_is_chosen_where_it_is_smallest() {
        check(&[5], LINEAR, 2);
        check(&[-7; 1000], LINEAR, 3);
        check(&(0..1000).map(|i| 100_000 + 60 * i).collect::<Vec<_>>(), LINEAR, 6);
        check(&[1000, 1010, 999], SHORT, 5);
        check(&noise(100, 128).collect::<Vec<_>>(), PACKED, 95);
        let counter = |n, limit| noise(n, limit).scan(0, |sum, step| Some(std::mem::replace(sum, *sum + step)));
        check(&counter(100, 128).collect::<Vec<_>>(), PACKED, 95);
        check(&counter(1000, 5).map(|i| i * 40).collect::<Vec<_>>(), PCO, 400);
        check(&counter(1000, 7).map(|i| i * 1_000_003).collect::<Vec<_>>(), PCO, 500);
        check(&counter(1000, 7).map(|i| i * 10_000_000_019).collect::<Vec<_>>(), PCO, 600);
        let tail: Vec<i64> = [60; 999].into_iter().chain([17]).collect();
        check(&tail, RUNS, 8);
    }

    #[test]
    fn the_whole_range_of_integers_survives() {
        let extremes = [i64::MIN, i64::MAX, 0, -1, 1, i64::MAX, i64::MIN, i64::MIN, 77];
        check(&extremes, SHORT, 100);
        let long: Vec<i64> = (0..500).map(|i| extremes[i * 7 % 9].wrapping_add(i as i64)).collect();
        let mut bytes = Vec::new();
        encode(&long, &mut Scratch::default(), &mut bytes);
        let mut decoded = Vec::new();
        let ints = Ints::parse(500, &mut Reader::new(&bytes)).unwrap();
        ints.decode(500, |_, batch| decoded.extend_from_slice(batch)).unwrap();
        assert_eq!(decoded, long);
    }

    #[test]
    fn pco_writes_the_version_that_is_read() {
        let mut header = Vec::new();
        FileCompressor::default().write_header(&mut header).unwrap();
        assert_eq!(header, PCO_HEADER);
    }
}
