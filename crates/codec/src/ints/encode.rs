//! Integers to bytes: measures a sequence, chooses its form and writes it.

use pco::{ChunkConfig, DeltaSpec, ModeSpec, data_types::Number};

use super::{DIFFERENCES, LINEAR, PACKED, PCO, RUNS, SHORT};
use crate::{
    bits::{pack, packed_len},
    bytes::{put_varint, put_zigzag, varint_len, zigzag_len},
    pco_chunk::write_chunk,
};

/// Below this many values the tables of pco cost more than they save, unless the values are skewed.
const PCO_FROM: usize = 192;

/// Buffers of the encoder, reused so that only pco allocates for a row.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    above: Vec<u64>,
    narrow16: Vec<u16>,
    narrow32: Vec<u32>,
    pco: Vec<u8>,
}

/// The measures that decide the form.
struct Shape {
    first: i64,
    step: i64,
    is_linear: bool,
    runs: usize,
    /// Least and greatest number, and the sum of their distances from the first.
    numbers: Range,
    /// The same of the differences, with their distances from zero.
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

/// The smallest form, and how the numbers are coded.
struct Plan {
    form: u8,
    /// Bytes of that form.
    size: usize,
    /// Whether differences are coded, or the numbers themselves.
    differences: bool,
    range: Range,
    /// Bits of a number above the least.
    width: u32,
    /// Numbers to code.
    coded: usize,
    /// Bytes in front of packed or compressed numbers.
    head: usize,
    /// Whether pco may be smaller still.
    try_pco: bool,
}

/// Appends `numbers`, at least one.
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
    let plan = Plan::of(numbers, &shape);
    if plan.try_pco && write_pco(numbers, shape.first, &plan, scratch, out) {
        return;
    }
    match plan.form {
        SHORT => write_short(numbers, out),
        RUNS => write_runs(numbers, out),
        _ => write_packed(numbers, &plan, out),
    }
}

impl Plan {
    fn of(numbers: &[i64], shape: &Shape) -> Plan {
        // Differences of noise around a level are wider than the noise. The distances from the mean decide:
        // for both kinds of data they are proportional to the bits that an entropy coder needs.
        let mean = mean(numbers);
        let spread: f64 = numbers.iter().map(|&number| (number as f64 - mean).abs()).sum();
        let differences = shape.differences.spread <= spread * 1.1;
        let range = if differences { shape.differences } else { shape.numbers };
        let coded = if differences { numbers.len() - 1 } else { numbers.len() };

        let width = range.width();
        let head = zigzag_len(range.min) + 1 + if differences { zigzag_len(shape.first) } else { 0 };
        let (mut form, mut size) = (PACKED, packed_len(coded, width) + head);
        if shape.short_len < size {
            (form, size) = (SHORT, shape.short_len);
        }
        if shape.runs_len < size {
            (form, size) = (RUNS, shape.runs_len);
        }

        // The size with an entropy coder, for numbers that fall off exponentially to both sides.
        let spread = if differences { shape.differences.spread } else { spread };
        let bits = (2.0 * std::f64::consts::E * spread / coded as f64 + 1.0).log2();
        let expected = bits * coded as f64 / 8.0 + 30.0;
        let try_pco = if coded < PCO_FROM { expected < 0.8 * size as f64 } else { expected < 1.2 * size as f64 };
        Plan { form, size, differences, range, width, coded, head, try_pco }
    }
}

/// Appends the pco form if it is smaller than the planned one; `false` if not.
fn write_pco(numbers: &[i64], first: i64, plan: &Plan, scratch: &mut Scratch, out: &mut Vec<u8>) -> bool {
    let &Plan { differences, range, width, .. } = plan;
    scratch.above.clear();
    let above = |number: i64| number.wrapping_sub(range.min) as u64;
    if differences {
        scratch.above.extend(numbers.windows(2).map(|pair| above(pair[1].wrapping_sub(pair[0]))));
    } else {
        scratch.above.extend(numbers.iter().map(|&number| above(number)));
    }
    debug_assert_eq!(scratch.above.len(), plan.coded);
    scratch.pco.clear();
    let bytes = compress_narrow(width, scratch);
    let head = varint_len(scratch.pco.len() as u64) + plan.head;
    if plan.size <= scratch.pco.len() + head {
        return false;
    }
    out.push(PCO | if differences { DIFFERENCES } else { 0 } | bytes << 4);
    if differences {
        put_zigzag(out, first);
    }
    put_zigzag(out, range.min);
    put_varint(out, scratch.pco.len() as u64);
    out.extend_from_slice(&scratch.pco);
    true
}

fn write_short(numbers: &[i64], out: &mut Vec<u8>) {
    out.push(SHORT);
    put_zigzag(out, numbers[0]);
    for pair in numbers.windows(2) {
        put_zigzag(out, pair[1].wrapping_sub(pair[0]));
    }
}

fn write_runs(numbers: &[i64], out: &mut Vec<u8>) {
    out.push(RUNS);
    let mut before = 0_i64;
    for run in numbers.chunk_by(|a, b| a == b) {
        put_zigzag(out, run[0].wrapping_sub(before));
        put_varint(out, run.len() as u64);
        before = run[0];
    }
}

fn write_packed(numbers: &[i64], plan: &Plan, out: &mut Vec<u8>) {
    let &Plan { differences, range, width, .. } = plan;
    out.push(if differences { PACKED | DIFFERENCES } else { PACKED });
    if differences {
        put_zigzag(out, numbers[0]);
    }
    put_zigzag(out, range.min);
    out.push(width as u8);
    if differences {
        let above = |pair: &[i64]| pair[1].wrapping_sub(pair[0]).wrapping_sub(range.min) as u64;
        pack(numbers.windows(2).map(above), width, out);
    } else {
        pack(numbers.iter().map(|&number| number.wrapping_sub(range.min) as u64), width, out);
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
        // The length of each run is estimated by the mean: it takes two bytes from 128 on.
        let mean_run = (numbers.len() / shape.runs) as u64;
        shape.runs_len += shape.runs * varint_len(mean_run);
        shape
    }
}

fn mean(numbers: &[i64]) -> f64 {
    numbers.iter().map(|&number| number as f64).sum::<f64>() / numbers.len() as f64
}

/// Compresses `scratch.above`, numbers of `width` bits, into `scratch.pco`. Returns the narrowest type that
/// fits them: 0 for 16 bits, 1 for 32, 2 for 64.
fn compress_narrow(width: u32, scratch: &mut Scratch) -> u8 {
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
