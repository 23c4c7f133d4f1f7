//! Reading numbers of a file: every read checks the end of the bytes.

use crate::row_key::RowKey;

/// Bytes that no writer wrote; what was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bad(pub(crate) &'static str);

/// Reads from the front of some bytes.
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], Bad> {
        let (taken, left) = self.0.split_at_checked(len).ok_or(Bad("the bytes end too early"))?;
        self.0 = left;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Bad> {
        Ok(self.take(N)?.try_into().expect("as many bytes were taken"))
    }

    pub(super) fn u8(&mut self) -> Result<u8, Bad> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn u32(&mut self) -> Result<u32, Bad> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Bad> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn u128(&mut self) -> Result<u128, Bad> {
        self.array().map(u128::from_le_bytes)
    }

    pub(super) fn key(&mut self) -> Result<RowKey, Bad> {
        self.array().map(RowKey::from_bytes)
    }

    /// Unsigned LEB128.
    #[inline]
    pub(super) fn varint(&mut self) -> Result<u64, Bad> {
        // Nearly all have one or two bytes, and a search of a block reads hundreds.
        match *self.0 {
            [byte @ ..0x80, ref left @ ..] => {
                self.0 = left;
                Ok(u64::from(byte))
            }
            [low, high @ ..0x80, ref left @ ..] => {
                self.0 = left;
                Ok(u64::from(low & 0x7f) | u64::from(high) << 7)
            }
            _ => self.long_varint(),
        }
    }

    #[cold]
    fn long_varint(&mut self) -> Result<u64, Bad> {
        let mut n = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            n |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(n);
            }
        }
        Err(Bad("a number is longer than ten bytes"))
    }
}

pub(super) fn put_varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}
