//! What a file that replaces others says of them. A start compares: a file that a crash left goes, and one that was put back is kept.

use std::io;

use host::{DiskFile, read_checked, retried};

use super::frame::{FRAME, HEADER, Seal};

/// The kind of the first record of a file that replaces others. Tables pass over it.
pub(super) const REPLACED: u8 = 255;

/// Bytes that are read at once.
const CHUNK: usize = 1 << 20;

/// Bytes of one of them in a record.
const LEN: usize = 20;

/// A file that another one replaces, as it was when that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Replaced {
    pub(super) number: u64,
    pub(super) bytes: u64,
    crc: u32,
}

impl Replaced {
    /// Reads a file as it is now.
    pub(super) fn of(number: u64, file: &dyn DiskFile) -> io::Result<Replaced> {
        let bytes = file.len()?;
        let (mut hasher, mut offset, mut chunk) = (crc32fast::Hasher::new(), 0, Vec::new());
        while offset < bytes {
            chunk.resize(CHUNK.min((bytes - offset) as usize), 0);
            retried(|| file.read_exact_at(&mut chunk, offset))?;
            hasher.update(&chunk);
            offset += chunk.len() as u64;
        }
        Ok(Replaced { number, bytes, crc: hasher.finalize() })
    }
}

/// The payload of the record.
pub(super) fn encode(files: &[Replaced]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(files.len() * LEN);
    for Replaced { number, bytes, crc } in files {
        payload.extend_from_slice(&number.to_le_bytes());
        payload.extend_from_slice(&bytes.to_le_bytes());
        payload.extend_from_slice(&crc.to_le_bytes());
    }
    payload
}

/// What the first record of a file says; nothing where that is another one, as of earlier programs, or cannot be read.
pub(super) fn replaced_by(file: &dyn DiskFile, seal: &Seal) -> Vec<Replaced> {
    let at = HEADER as u64;
    let read = || -> io::Result<Option<Vec<u8>>> {
        let mut frame = [0; FRAME];
        let head = read_checked(file, &mut frame, at, |frame| seal.head(at, frame).ok_or(()))?;
        let Ok(head) = head else { return Ok(None) };
        if head.kind != REPLACED {
            return Ok(None);
        }
        let mut record = vec![0; FRAME + head.payload_len];
        let open = |record: &[u8]| seal.open(at, record).map(|(_, payload)| payload.to_vec()).ok_or(());
        Ok(read_checked(file, &mut record, at, open)?.ok())
    };
    let payload = read().ok().flatten().unwrap_or_default();
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    let of = |file: &[u8; LEN]| Replaced {
        number: number(&file[..8]),
        bytes: number(&file[8..16]),
        crc: u32::from_le_bytes([file[16], file[17], file[18], file[19]]),
    };
    payload.as_chunks::<LEN>().0.iter().map(of).collect()
}
