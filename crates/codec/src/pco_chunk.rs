//! Chunks of pco, written and read without pco's file header.

use pco::{ChunkConfig, data_types::Number, errors::PcoError, wrapped::FileCompressor};

use crate::Damaged;

/// pco's header in front of a chunk: the version of its format, which this crate's version implies.
pub(crate) const HEADER: [u8; 2] = [4, 1];

/// Appends a chunk of pco and its only page.
pub(crate) fn write_chunk<T: Number>(numbers: &[T], config: &ChunkConfig, out: &mut Vec<u8>) {
    let mut chunk = FileCompressor::default()
        .chunk_compressor(numbers, config)
        .expect("valid settings and a row that is not empty");
    chunk.write_meta(&mut *out).expect("a vector takes any write");
    chunk.write_page(0, &mut *out).expect("a vector takes any write");
}

/// The error for bytes that pco rejects.
pub(crate) fn damaged(error: PcoError) -> Damaged {
    Damaged(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pco_writes_the_version_that_is_read() {
        let mut header = Vec::new();
        FileCompressor::default().write_header(&mut header).unwrap();
        assert_eq!(header, HEADER);
    }
}
