//! Decimals with few places, as integers; and other values, as doubles.
//!
//! A sender's `12.34` is the double nearest to 1234 / 100, and division rounds correctly, so the integer 1234
//! and the scale 2 give the same bits back. The encoder checks that for every value; the few that fail
//! (negative zero, infinities, a rounding error) follow the integers as exceptions.

use pco::{ChunkConfig, DeltaSpec, ModeSpec, wrapped::FileDecompressor};

use crate::{
    Damaged,
    bytes::{Reader, put_varint},
    pco_chunk::{HEADER, damaged, write_chunk},
};

/// Most decimal places: more would not leave an integer below 2^51 for values above 2.
pub(crate) const MAX_SCALE: u8 = 15;

const POWERS: [f64; MAX_SCALE as usize + 1] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];

/// Adding and subtracting it rounds a double below 2^51 to the nearest integer, in two instructions.
const ROUND: f64 = 6_755_399_441_055_744.0;

const CONSTANT: u8 = 0;
const RAW: u8 = 1;
const PCO: u8 = 2;

/// Ten to the `scale`.
pub(crate) fn power(scale: u8) -> Option<f64> {
    POWERS.get(usize::from(scale)).copied()
}

/// The integer for `value` at a scale, if dividing it again gives the same bits.
#[inline]
fn scaled(value: f64, scale: u8) -> Option<i64> {
    let power = POWERS[usize::from(scale)];
    if scale == 0 {
        let integer = value as i64;
        return (integer as f64).to_bits().eq(&value.to_bits()).then_some(integer);
    }
    let product = value * power;
    let integer = (product + ROUND - ROUND) as i64;
    let same = (integer as f64 / power).to_bits() == value.to_bits();
    // Beyond 2^51 the rounding trick fails, and beyond 2^53 integers are no longer exact.
    (same && product.abs() < (1_u64 << 51) as f64).then_some(integer)
}

/// Fills `integers` with the values at the smallest scale that fits nearly all of them, and `exceptions` with the
/// indices of the others. Returns the scale; `None` when too many values are not decimals.
pub(crate) fn scale(values: &[f64], integers: &mut Vec<i64>, exceptions: &mut Vec<u32>) -> Option<u8> {
    let allowed = values.len() / 8;
    let mut scale = 0;
    'larger: loop {
        integers.clear();
        exceptions.clear();
        let mut before = 0;
        for (i, &value) in values.iter().enumerate() {
            if let Some(integer) = scaled(value, scale) {
                before = integer;
            } else if let Some(larger) = (scale + 1..=MAX_SCALE).find(|&scale| scaled(value, scale).is_some()) {
                // Every value that fits the smaller scale fits the larger, unless its integer becomes too large.
                scale = larger;
                continue 'larger;
            } else {
                exceptions.push(i as u32);
                // Half of the first sixteen failing is enough to give up: each costs a search of all scales.
                if exceptions.len() > allowed || (exceptions.len() == 8 && i < 16) {
                    return None;
                }
            }
            integers.push(before);
        }
        return Some(scale);
    }
}

/// Appends values that are not decimals.
pub(crate) fn encode(values: &[f64], out: &mut Vec<u8>) {
    let first = values[0].to_bits();
    if values.iter().all(|value| value.to_bits() == first) {
        out.push(CONSTANT);
        out.extend_from_slice(&values[0].to_le_bytes());
        return;
    }
    let raw = values.len() * 8;
    if values.len() >= 32 {
        let start = out.len();
        out.push(PCO);
        let mut chunk = Vec::with_capacity(raw);
        write_chunk(values, &settings(values), &mut chunk);
        if chunk.len() < raw {
            put_varint(out, chunk.len() as u64);
            out.extend_from_slice(&chunk);
            return;
        }
        out.truncate(start);
    }
    out.push(RAW);
    values.iter().for_each(|value| out.extend_from_slice(&value.to_le_bytes()));
}

/// The settings of pco. Its own search for a mode and an order of differences takes several times the CPU of the
/// compression, and sums of decimals, which are nearly all that comes here, need no search: each is a multiple of a
/// power of ten and a few units in the last place.
fn settings(values: &[f64]) -> ChunkConfig {
    let config = ChunkConfig::default().with_compression_level(5);
    let Some(step) = decimal_step(values) else { return config };
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let spread: f64 = values.iter().map(|value| (value - mean).abs()).sum();
    let differences: f64 = values.windows(2).map(|pair| (pair[1] - pair[0]).abs()).sum();
    let delta = if differences <= spread * 1.1 { DeltaSpec::TryConsecutive(1) } else { DeltaSpec::NoOp };
    config.with_mode_spec(ModeSpec::TryFloatMult(step)).with_delta_spec(delta)
}

/// The largest of 1, 0.1, … 0.000001 that divides all values, but for rounding errors of a sum.
fn decimal_step(values: &[f64]) -> Option<f64> {
    let is_multiple = |value: f64, power: f64| {
        let nearest = (value * power).round() / power;
        (value - nearest).abs() <= 64.0 * f64::EPSILON * value.abs()
    };
    // Every value of a few, and some of many.
    let each = values.len().div_ceil(64);
    let power = POWERS[..=6].iter().find(|&&power| values.iter().step_by(each).all(|&value| is_multiple(value, power)));
    power.map(|power| 1.0 / power)
}

/// Encoded doubles with a known extent, not decoded yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Floats<'a> {
    form: u8,
    bytes: &'a [u8],
}

impl<'a> Floats<'a> {
    /// Skips `len` values.
    pub(crate) fn parse(len: usize, reader: &mut Reader<'a>) -> Result<Floats<'a>, Damaged> {
        let form = reader.byte()?;
        let size = match form {
            CONSTANT => 8,
            RAW => len * 8,
            PCO => usize::try_from(reader.varint()?).unwrap_or(usize::MAX),
            _ => return Err(Damaged(format!("unknown float form {form}"))),
        };
        Ok(Floats { form, bytes: reader.take(size)? })
    }

    /// Fills `values`, the number that was parsed.
    pub(crate) fn decode(self, values: &mut [f64]) -> Result<(), Damaged> {
        match self.form {
            CONSTANT => values.fill(Reader::new(self.bytes).f64()?),
            RAW => {
                let mut reader = Reader::new(self.bytes);
                for value in values {
                    *value = reader.f64()?;
                }
            }
            _ => {
                let (file, _) = FileDecompressor::new(&HEADER[..]).map_err(damaged)?;
                let (mut chunk, rest) = file.chunk_decompressor::<f64, _>(self.bytes).map_err(damaged)?;
                let mut page = chunk.page_decompressor(rest, values.len()).map_err(damaged)?;
                let progress = page.read(values).map_err(damaged)?;
                if progress.n_processed < values.len() {
                    return Err(Damaged::new("a page of pco is too short"));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums of five values of two decimals, whose level moves or not.
    fn sums(moves: bool) -> Vec<f64> {
        let (mut level, mut state) = (5000_i64, 1_u64);
        let mut value = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let step = (state >> 40) as i64 % 101 - 50;
            level += if moves { step } else { 0 };
            (level + step) as f64 / 100.0
        };
        (0..600).map(|_| (0..5).map(|_| value()).sum()).collect()
    }

    #[test]
    fn sums_of_decimals_take_no_more_bytes_than_with_a_search() {
        for values in [sums(false), sums(true)] {
            assert_eq!(decimal_step(&values), Some(0.01));
            let (mut bytes, mut searched) = (Vec::new(), Vec::new());
            encode(&values, &mut bytes);
            write_chunk(&values, &ChunkConfig::default().with_compression_level(5), &mut searched);
            assert!(bytes.len() <= searched.len() * 102 / 100 + 3, "{} and {} bytes", bytes.len(), searched.len());
            let mut decoded = vec![0.0; values.len()];
            Floats::parse(values.len(), &mut Reader::new(&bytes)).unwrap().decode(&mut decoded).unwrap();
            assert!(decoded.iter().zip(&values).all(|(a, b)| a.to_bits() == b.to_bits()));
        }
    }

    #[test]
    fn values_without_a_step_are_searched() {
        let thirds: Vec<f64> = (1..100).map(|i| f64::from(i) / 3.0).collect();
        assert_eq!(decimal_step(&thirds), None);
        assert_eq!(decimal_step(&[1.0, f64::INFINITY]), None);
    }
}
