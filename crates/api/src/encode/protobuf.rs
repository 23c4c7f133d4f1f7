//! The wire format of protocol buffers, as far as carbonapi's messages need it: writes fields and reads them.
//!
//! Not a library: there are a dozen messages, the largest is one column of doubles that is sent in chunks, and a
//! generated codec needs each message whole in memory.

/// Bytes of the longest varint.
const MAX_VARINT_BYTES: usize = 10;

const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const BYTES: u8 = 2;
const FIXED32: u8 = 5;

/// Writes a whole number, seven bits a byte, the lowest first.
pub(crate) fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Number of bytes that [`varint`] writes.
pub(crate) fn varint_len(value: u64) -> usize {
    (70 - (value | 1).leading_zeros() as usize) / 7
}

fn tag(out: &mut Vec<u8>, field: u32, kind: u8) {
    varint(out, u64::from(field) << 3 | u64::from(kind));
}

/// Begins a field of `len` bytes: a text, a message or a packed list.
pub(crate) fn bytes_head(out: &mut Vec<u8>, field: u32, len: usize) {
    tag(out, field, BYTES);
    varint(out, len as u64);
}

/// Number of bytes of a field that contains `len` bytes, with its head.
pub(crate) fn bytes_len(field: u32, len: usize) -> usize {
    varint_len(u64::from(field) << 3) + varint_len(len as u64) + len
}

/// Writes a text; nothing when empty, as in proto3.
pub(crate) fn text(out: &mut Vec<u8>, field: u32, text: &str) {
    if !text.is_empty() {
        bytes(out, field, text.as_bytes());
    }
}

/// Writes bytes, also when empty: an element of a list, or a message.
pub(crate) fn bytes(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    bytes_head(out, field, bytes.len());
    out.extend_from_slice(bytes);
}

/// Writes an `int32` or `int64`; nothing for zero. Readers of an `int32` take the lowest 32 bits.
pub(crate) fn int(out: &mut Vec<u8>, field: u32, value: i64) {
    if value != 0 {
        tag(out, field, VARINT);
        varint(out, value as u64);
    }
}

/// Writes a `bool`; nothing for false.
pub(crate) fn boolean(out: &mut Vec<u8>, field: u32, value: bool) {
    int(out, field, i64::from(value));
}

/// Writes a `float`; nothing for zero.
pub(crate) fn float(out: &mut Vec<u8>, field: u32, value: f32) {
    if value != 0.0 {
        tag(out, field, FIXED32);
        out.extend_from_slice(&value.to_le_bytes());
    }
}

/// The value of a field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Value<'a> {
    /// A varint: `int32`, `int64`, `bool`.
    Int(i64),
    /// A text, a message or a packed list.
    Bytes(&'a [u8]),
    /// Any other type; no field that this server reads has one.
    Other,
}

/// The fields of a message in their order, as `(number, value)`. The caller skips numbers that it does not know; the
/// first error ends the iteration.
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

/// The bytes are not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the protobuf message is cut off or damaged")]
pub(crate) struct Damaged;

impl<'a> Fields<'a> {
    pub fn of(message: &'a [u8]) -> Fields<'a> {
        Fields { rest: message }
    }

    fn varint(&mut self) -> Result<u64, Damaged> {
        let mut value = 0u64;
        for (index, &byte) in self.rest.iter().take(MAX_VARINT_BYTES).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                self.rest = self.rest.get(index + 1..).ok_or(Damaged)?;
                return Ok(value);
            }
        }
        Err(Damaged)
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Damaged> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Damaged)?;
        self.rest = rest;
        Ok(taken)
    }

    fn field(&mut self) -> Result<(u32, Value<'a>), Damaged> {
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_| Damaged)?;
        let value = match (tag & 7) as u8 {
            VARINT => Value::Int(self.varint()? as i64),
            BYTES => {
                let len = usize::try_from(self.varint()?).map_err(|_| Damaged)?;
                Value::Bytes(self.take(len)?)
            }
            FIXED64 => self.take(8).map(|_| Value::Other)?,
            FIXED32 => self.take(4).map(|_| Value::Other)?,
            _ => return Err(Damaged),
        };
        Ok((number, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>), Damaged>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

/// Reads the text in a field.
pub(crate) fn read_text(bytes: &[u8]) -> Result<String, Damaged> {
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| Damaged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varint_len_is_the_length_of_a_varint() {
        for bits in 0..64 {
            for value in [1u64 << bits, (1u64 << bits) - 1, u64::MAX >> bits] {
                let mut out = Vec::new();
                varint(&mut out, value);
                assert_eq!(out.len(), varint_len(value), "{value}");
                assert_eq!(Fields::of(&out).varint(), Ok(value));
            }
        }
    }

    #[test]
    fn fields_read_back_as_written() {
        let mut out = Vec::new();
        text(&mut out, 1, "a");
        text(&mut out, 2, "");
        int(&mut out, 3, -1);
        int(&mut out, 4, 0);
        boolean(&mut out, 5, true);
        float(&mut out, 6, 0.5);
        bytes(&mut out, 300, b"");
        assert_eq!(bytes_len(300, 0), 3);
        let fields: Vec<_> = Fields::of(&out).map(Result::unwrap).collect();
        let expected = [
            (1, Value::Bytes(b"a")),
            (3, Value::Int(-1)),
            (5, Value::Int(1)),
            (6, Value::Other),
            (300, Value::Bytes(b"")),
        ];
        assert_eq!(fields, expected);
    }

    #[test]
    fn a_truncated_message_is_damaged_and_ends_the_iteration() {
        let mut out = Vec::new();
        int(&mut out, 1, 1 << 40);
        bytes(&mut out, 2, b"abc");
        float(&mut out, 3, 1.0);
        let whole = [7, 12];
        for len in 1..out.len() {
            let fields: Vec<_> = Fields::of(&out[..len]).collect();
            let damaged = fields.iter().position(Result::is_err);
            assert!(damaged.is_none_or(|place| place + 1 == fields.len()));
            assert_eq!(damaged.is_none(), whole.contains(&len), "{len}");
        }
        for nonsense in
            [&[0xff; 11][..], &[0x0f], &[0x0b], &[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]]
        {
            assert!(Fields::of(nonsense).any(|field| field.is_err()), "{nonsense:?}");
        }
    }
}
