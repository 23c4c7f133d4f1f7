//! Reading and writing whole bytes: varints, zigzag, and fixed-width numbers, all little endian.

use crate::Damaged;

/// Unsigned LEB128: seven bits a byte, the lowest first, the top bit set on all but the last.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// A signed number as a varint: 0, -1, 1, -2, … become 0, 1, 2, 3, …
pub(crate) fn put_zigzag(out: &mut Vec<u8>, n: i64) {
    put_varint(out, zigzag(n));
}

/// Bytes of a number written by [`put_varint`].
pub(crate) fn varint_len(n: u64) -> usize {
    (70 - (n | 1).leading_zeros() as usize) / 7
}

/// Bytes of a number written by [`put_zigzag`].
pub(crate) fn zigzag_len(n: i64) -> usize {
    varint_len(zigzag(n))
}

fn zigzag(n: i64) -> u64 {
    ((n << 1) ^ (n >> 63)) as u64
}

/// Reads from the front of some bytes. Every read checks their end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) const EMPTY: Reader<'static> = Reader { left: &[] };

    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { left: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// Bytes not read yet.
    pub(crate) fn len(&self) -> usize {
        self.left.len()
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Damaged> {
        let (&byte, left) = self.left.split_first().ok_or_else(cut)?;
        self.left = left;
        Ok(byte)
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], Damaged> {
        let (taken, left) = self.left.split_at_checked(len).ok_or_else(cut)?;
        self.left = left;
        Ok(taken)
    }

    pub(crate) fn varint(&mut self) -> Result<u64, Damaged> {
        let mut n = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            n |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(n);
            }
        }
        Err(Damaged::new("a varint is longer than ten bytes"))
    }

    pub(crate) fn zigzag(&mut self) -> Result<i64, Damaged> {
        let n = self.varint()?;
        Ok((n >> 1) as i64 ^ -((n & 1) as i64))
    }

    pub(crate) fn f64(&mut self) -> Result<f64, Damaged> {
        let bytes = self.take(8)?;
        Ok(f64::from_le_bytes(bytes.try_into().expect("eight bytes were taken")))
    }
}

fn cut() -> Damaged {
    Damaged::new("the bytes end inside a segment")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_of_number_survives() {
        for shift in 0..64 {
            for n in [1_u64 << shift, (1 << shift) - 1, u64::MAX >> shift] {
                let mut bytes = Vec::new();
                put_varint(&mut bytes, n);
                assert_eq!(bytes.len(), varint_len(n), "{n}");
                put_zigzag(&mut bytes, n as i64);
                put_zigzag(&mut bytes, (n as i64).wrapping_neg());
                let mut reader = Reader::new(&bytes);
                assert_eq!(reader.varint(), Ok(n));
                assert_eq!(reader.zigzag(), Ok(n as i64));
                assert_eq!(reader.zigzag(), Ok((n as i64).wrapping_neg()));
                assert!(reader.is_empty());
            }
        }
    }

    #[test]
    fn truncated_or_endless_numbers_are_damaged() {
        assert!(Reader::new(&[]).varint().is_err());
        assert!(Reader::new(&[0x80]).varint().is_err());
        assert!(Reader::new(&[0x80; 11]).varint().is_err());
        assert!(Reader::new(&[0; 7]).f64().is_err());
    }
}
