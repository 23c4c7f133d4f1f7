//! Numbers of one width in bits, packed without gaps, the lowest bit first.

/// Bytes of `n` numbers of `width` bits.
pub(crate) fn packed_len(n: usize, width: u32) -> usize {
    (n * width as usize).div_ceil(8)
}

/// Appends `numbers`, each below `2^width`; `width` is at most 64.
pub(crate) fn pack(numbers: impl Iterator<Item = u64>, width: u32, out: &mut Vec<u8>) {
    if width == 0 {
        return;
    }
    let (mut pending, mut pending_bits) = (0_u128, 0);
    for number in numbers {
        pending |= u128::from(number) << pending_bits;
        pending_bits += width;
        if pending_bits >= 64 {
            out.extend_from_slice(&(pending as u64).to_le_bytes());
            pending >>= 64;
            pending_bits -= 64;
        }
    }
    let rest = pending_bits.div_ceil(8) as usize;
    out.extend_from_slice(&(pending as u64).to_le_bytes()[..rest]);
}

/// Reads the packed numbers `from..from + out.len()`; numbers after the end of `bytes` are zero.
pub(crate) fn unpack(bytes: &[u8], width: u32, from: usize, out: &mut [u64]) {
    if width == 0 {
        out.fill(0);
        return;
    }
    let mask = u64::MAX >> (64 - width);
    let mut bit = from * width as usize;
    for number in out {
        let (byte, shift) = (bit / 8, bit % 8);
        *number = if let Some(word) = bytes.get(byte..byte + 8)
            && width <= 56
        {
            u64::from_le_bytes(word.try_into().expect("eight bytes")) >> shift & mask
        } else {
            // Near the end of the bytes, or too wide for one load.
            let mut word = [0; 16];
            let tail = bytes.get(byte..).unwrap_or_default();
            let len = tail.len().min(16);
            word[..len].copy_from_slice(&tail[..len]);
            (u128::from_le_bytes(word) >> shift) as u64 & mask
        };
        bit += width as usize;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_width_survives_and_any_part_can_be_read() {
        for width in 0..=64 {
            let limit = if width == 0 { 0 } else { u64::MAX >> (64 - width) };
            let numbers: Vec<u64> = (0..77_u64).map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15) & limit).collect();
            let mut bytes = Vec::new();
            pack(numbers.iter().copied(), width, &mut bytes);
            assert_eq!(bytes.len(), packed_len(77, width));
            for from in [0, 1, 50, 76] {
                let mut out = vec![0; 77 - from];
                unpack(&bytes, width, from, &mut out);
                assert_eq!(out, numbers[from..], "width {width}");
            }
        }
    }
}
