//! Records in memory, before they are written: one allocation for all of them.

/// Bytes before a payload: its kind, and its length as a little-endian u32.
const HEAD: usize = 5;

/// Records in the order in which they are written.
#[derive(Debug, Clone, Default)]
pub(crate) struct Records(Vec<u8>);

impl Records {
    pub(crate) fn push(&mut self, kind: u8, payload: &[u8]) {
        self.push_with(kind, |bytes| bytes.extend_from_slice(payload));
    }

    /// `append` appends the payload.
    pub(crate) fn push_with(&mut self, kind: u8, append: impl FnOnce(&mut Vec<u8>)) {
        let start = self.0.len();
        self.0.extend_from_slice(&[kind, 0, 0, 0, 0]);
        append(&mut self.0);
        let len = (self.0.len() - start - HEAD) as u32;
        self.0[start + 1..start + HEAD].copy_from_slice(&len.to_le_bytes());
    }

    pub(crate) fn append(&mut self, after: &Records) {
        self.0.extend_from_slice(&after.0);
    }

    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.len() as u64
    }

    /// Kinds and payloads.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u8, &[u8])> + Clone {
        let mut left = &self.0[..];
        std::iter::from_fn(move || {
            let (&[kind, a, b, c, d], rest) = left.split_first_chunk::<HEAD>()?;
            let (payload, rest) = rest.split_at(u32::from_le_bytes([a, b, c, d]) as usize);
            left = rest;
            Some((kind, payload))
        })
    }
}
