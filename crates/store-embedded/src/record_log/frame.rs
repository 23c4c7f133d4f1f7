//! The bytes of a record log: the header of a file, and the frame around each record. All numbers are little-endian.
//!
//! ```text
//! header   "PLBGRLOG" │ version u32 │ table 4 bytes │ store u128 │ number u64 │ replaces u64 │ previous u64
//!          │ previous length u64 │ crc u32
//! record   f5 c3 │ kind u8 │ length u32 │ check u16 │ crc u32 │ payload
//! ```
//!
//! `check` is half a CRC-32 of kind and length: it tells a record that is cut off from one whose length is damaged.
//! `crc` is over kind, length and payload. Both begin with the store's id, the file's number and the record's offset, so
//! that no bytes of another place, and no text that a client sent, can pass for a record.

use std::io;

use host::{DiskFile, read_checked};

/// Bytes of a file's header.
pub(crate) const HEADER: usize = 68;
/// Bytes before a record's payload.
pub(super) const FRAME: usize = 13;
/// The format of the files. A change of format changes the number.
pub(crate) const VERSION: u32 = 1;
/// Longer payloads are not written, and a longer length is damage.
pub(crate) const LONGEST_PAYLOAD: usize = 64 << 20;

/// Longer payloads are not corrected. A correction tries each bit: of this length, in about 40 ms. And two records of more than
/// 11 KB may differ in three bits, so that two wrong ones could make a third of them.
pub(crate) const LONGEST_CORRECTED: usize = 8192;

const MAGIC: &[u8; 8] = b"PLBGRLOG";
/// The first bytes of a record. No text in UTF-8 has the first.
pub(super) const MARK: [u8; 2] = [0xf5, 0xc3];

/// Which table the records of a log are of.
pub(crate) type TableTag = [u8; 4];

/// What the header of a file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) table: TableTag,
    pub(super) store: u128,
    /// The file's number, which is also its name.
    pub(super) number: u64,
    /// Files up to this number are obsolete: what was current in them is in this one.
    pub(super) replaces: u64,
    /// The file that was written before this one, and how long it was then; what follows there was never promised. Zero
    /// of the first file.
    pub(super) previous: u64,
    pub(super) previous_len: u64,
}

/// What a header was found to be.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HeaderRead {
    Good(Header),
    /// A later program wrote the file.
    Newer(u32),
    Damaged,
    /// Reads of it fail.
    Unread,
}

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.table);
        bytes[16..32].copy_from_slice(&self.store.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.number.to_le_bytes());
        for (place, n) in [self.replaces, self.previous, self.previous_len].into_iter().enumerate() {
            bytes[40 + 8 * place..][..8].copy_from_slice(&n.to_le_bytes());
        }
        let crc = crc32fast::hash(&bytes[..64]);
        bytes[64..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(super) fn read(bytes: &[u8]) -> HeaderRead {
        let Some(bytes) = bytes.first_chunk::<HEADER>() else { return HeaderRead::Damaged };
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let crc = u32::from_le_bytes([bytes[64], bytes[65], bytes[66], bytes[67]]);
        if &bytes[..8] != MAGIC || crc32fast::hash(&bytes[..64]) != crc {
            return HeaderRead::Damaged;
        }
        // Every version keeps magic, version and checksum where they are.
        let version = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
        if version != VERSION {
            return HeaderRead::Newer(version);
        }
        HeaderRead::Good(Header {
            table: [bytes[12], bytes[13], bytes[14], bytes[15]],
            store: u128::from_le_bytes(bytes[16..32].try_into().expect("sixteen bytes")),
            number: number(32),
            replaces: number(40),
            previous: number(48),
            previous_len: number(56),
        })
    }
}

/// Reads the header of a file, and again where it is damaged.
pub(super) fn read_header(file: &dyn DiskFile) -> io::Result<HeaderRead> {
    let mut bytes = [0; HEADER];
    let read = read_checked(file, &mut bytes, 0, |bytes| match Header::read(bytes) {
        HeaderRead::Damaged => Err(HeaderRead::Damaged),
        header => Ok(header),
    })?;
    Ok(read.unwrap_or_else(|damaged| damaged))
}

/// The store that a file with this header is of. `None` if it is not the header of a log.
pub(crate) fn store_of(bytes: &[u8]) -> Option<u128> {
    match Header::read(bytes) {
        HeaderRead::Good(header) => Some(header.store),
        _ => None,
    }
}

/// The version of a header that a later program wrote. `None` for a header of this version, and for what is not one.
pub(crate) fn newer(bytes: &[u8]) -> Option<u32> {
    match Header::read(bytes) {
        HeaderRead::Newer(version) => Some(version),
        _ => None,
    }
}

/// The checksums of one file's records.
#[derive(Debug, Clone)]
pub(super) struct Seal(crc32fast::Hasher);

/// The beginning of a record, before its payload is checked.
pub(super) struct Head {
    pub(super) kind: u8,
    pub(super) payload_len: usize,
    crc: u32,
    hasher: crc32fast::Hasher,
}

impl Head {
    /// Whether this is the payload that was written.
    pub(super) fn fits(self, payload: &[u8]) -> bool {
        let mut hasher = self.hasher;
        hasher.update(payload);
        hasher.finalize() == self.crc
    }
}

impl Seal {
    pub(super) fn new(store: u128, number: u64) -> Seal {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&store.to_le_bytes());
        hasher.update(&number.to_le_bytes());
        Seal(hasher)
    }

    fn begin(&self, offset: u64, kind: u8, payload_len: u32) -> crc32fast::Hasher {
        let mut head = [0; 13];
        head[..8].copy_from_slice(&offset.to_le_bytes());
        head[8] = kind;
        head[9..].copy_from_slice(&payload_len.to_le_bytes());
        let mut hasher = self.0.clone();
        hasher.update(&head);
        hasher
    }

    /// Appends a record that will be at `offset`.
    pub(super) fn append(&self, offset: u64, kind: u8, payload: &[u8], bytes: &mut Vec<u8>) {
        debug_assert!(payload.len() <= LONGEST_PAYLOAD, "the caller bounds payloads");
        let len = payload.len() as u32;
        let mut hasher = self.begin(offset, kind, len);
        let check = hasher.clone().finalize() as u16;
        hasher.update(payload);
        bytes.extend_from_slice(&MARK);
        bytes.push(kind);
        bytes.extend_from_slice(&len.to_le_bytes());
        bytes.extend_from_slice(&check.to_le_bytes());
        bytes.extend_from_slice(&hasher.finalize().to_le_bytes());
        bytes.extend_from_slice(payload);
    }

    /// The beginning of the record at an offset. `None` if none begins with these bytes.
    pub(super) fn head(&self, offset: u64, bytes: &[u8]) -> Option<Head> {
        let frame = bytes.first_chunk::<FRAME>()?;
        let len = u32::from_le_bytes([frame[3], frame[4], frame[5], frame[6]]);
        if frame[..2] != MARK || LONGEST_PAYLOAD < len as usize {
            return None;
        }
        let hasher = self.begin(offset, frame[2], len);
        let check = u16::from_le_bytes([frame[7], frame[8]]);
        let crc = u32::from_le_bytes([frame[9], frame[10], frame[11], frame[12]]);
        let is_head = hasher.clone().finalize() as u16 == check;
        is_head.then_some(Head { kind: frame[2], payload_len: len as usize, crc, hasher })
    }

    /// Kind and payload of the record that these bytes are. `None` if it is damaged.
    pub(super) fn open<'a>(&self, offset: u64, record: &'a [u8]) -> Option<(u8, &'a [u8])> {
        let head = self.head(offset, record)?;
        let (kind, payload) = (head.kind, record.get(FRAME..FRAME + head.payload_len)?);
        head.fits(payload).then_some((kind, payload))
    }

    /// The kinds of the records that these damaged bytes were, if the beginnings of all of them are whole.
    pub(super) fn kinds(&self, mut offset: u64, mut bytes: &[u8]) -> Option<Vec<u8>> {
        let mut kinds = Vec::new();
        while !bytes.is_empty() {
            let head = self.head(offset, bytes)?;
            let len = FRAME + head.payload_len;
            bytes = bytes.get(len..)?;
            offset += len as u64;
            kinds.push(head.kind);
        }
        Some(kinds)
    }

    /// The record that these bytes begin with, if one bit of it is wrong: with that bit corrected.
    ///
    /// Two wrong bits are never taken for another record: kind, length and their check differ from those of every other
    /// beginning in four bits at least, and so do payloads of one length up to [`LONGEST_CORRECTED`] with their checksums.
    /// Other wrong bytes behind a beginning that is right are taken for a record with a probability of
    /// one in 2^32 for each bit of it: of a name of 60 bytes, one in eight million. Where several bits would do, none is taken.
    pub(super) fn corrected(&self, offset: u64, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut bytes = bytes[..bytes.len().min(FRAME + LONGEST_CORRECTED)].to_vec();
        let len = self.head(offset, &bytes).map(|head| FRAME + head.payload_len).filter(|&len| len <= bytes.len());
        // Where the beginning is wrong, that wrong bit is the only one.
        let wrong = len.unwrap_or(FRAME).min(bytes.len());
        let mut found = None;
        for bit in 0..wrong * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            if let Some((_, payload)) = self.open(offset, &bytes) {
                let len = FRAME + payload.len();
                if found.replace(bytes[..len].to_vec()).is_some() {
                    return None;
                }
            }
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flipped_bit_in_a_header_is_damage() {
        let header = Header { table: *b"name", store: 7 << 100, number: 3, replaces: 2, previous: 2, previous_len: 99 };
        let good = header.encode();
        assert_eq!(Header::read(&good), HeaderRead::Good(header));
        for bit in 0..HEADER * 8 {
            let mut bytes = good;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::read(&bytes), HeaderRead::Damaged, "bit {bit}");
        }
        let mut newer = good;
        newer[8] = 2;
        let crc = crc32fast::hash(&newer[..64]);
        newer[64..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Header::read(&newer), HeaderRead::Newer(2));
    }

    #[test]
    fn a_record_is_valid_only_where_it_was_written() {
        let (seal, mut bytes) = (Seal::new(5, 1), Vec::new());
        seal.append(100, 7, b"payload", &mut bytes);
        assert_eq!(seal.open(100, &bytes), Some((7, &b"payload"[..])));
        assert_eq!(seal.open(101, &bytes), None);
        assert_eq!(Seal::new(5, 2).open(100, &bytes), None);
        assert_eq!(Seal::new(6, 1).open(100, &bytes), None);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(seal.open(100, &bytes), None, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        for len in 0..bytes.len() {
            assert_eq!(seal.open(100, &bytes[..len]), None);
        }
    }

    fn flip(bytes: &mut [u8], bit: usize) {
        bytes[bit / 8] ^= 1 << (bit % 8);
    }

    #[test]
    fn a_record_with_one_wrong_bit_is_corrected_and_with_two_it_is_not() {
        let (seal, mut bytes) = (Seal::new(5, 1), Vec::new());
        seal.append(100, 7, b"pay", &mut bytes);
        let good = bytes.clone();
        bytes.extend_from_slice(b"what follows");
        for bit in 0..good.len() * 8 {
            flip(&mut bytes, bit);
            assert_eq!(seal.corrected(100, &bytes).as_ref(), Some(&good), "bit {bit}");
            assert_eq!(seal.corrected(101, &bytes), None);
            for other in bit + 1..good.len() * 8 {
                flip(&mut bytes, other);
                assert_eq!(seal.corrected(100, &bytes), None, "bits {bit} and {other}");
                flip(&mut bytes, other);
            }
            for len in 0..good.len() {
                assert_eq!(seal.corrected(100, &bytes[..len]), None, "cut off at {len}");
            }
            flip(&mut bytes, bit);
        }
    }

    #[test]
    fn a_long_record_with_one_wrong_bit_is_corrected_and_a_longer_one_is_left_alone() {
        let seal = Seal::new(5, 1);
        for len in [LONGEST_CORRECTED, LONGEST_CORRECTED + 1] {
            let mut bytes = Vec::new();
            seal.append(100, 7, &vec![0x5a; len], &mut bytes);
            let good = bytes.clone();
            let is_short = len == LONGEST_CORRECTED;
            let places = [3, FRAME * 8, FRAME * 8 + 4001 * 8, good.len() * 8 - 1];
            for bit in places {
                flip(&mut bytes, bit);
                assert_eq!(seal.corrected(100, &bytes), is_short.then(|| good.clone()), "bit {bit} of {len} bytes");
                flip(&mut bytes, bit);
            }
            flip(&mut bytes, places[1]);
            flip(&mut bytes, places[3]);
            assert_eq!(seal.corrected(100, &bytes), None);
        }
    }

    /// What makes two wrong bits never a record: the beginnings of records are far apart.
    #[test]
    fn the_beginnings_of_two_records_differ_in_four_bits_at_least() {
        let seal = Seal::new(5, 1);
        let check = |kind: u8, len: u32| seal.begin(100, kind, len).finalize() as u16;
        // Checksums of differences are the same for all beginnings: one stands for all.
        let of_bits = |bits: u64| (u64::from(check(0, 0)) ^ u64::from(check(bits as u8, (bits >> 8) as u32))) as u16;
        let one: Vec<u16> = (0..40).map(|bit| of_bits(1 << bit)).collect();
        for a in 0..40 {
            assert!(3 <= one[a].count_ones(), "{a}");
            for b in 0..a {
                assert!(2 <= (one[a] ^ one[b]).count_ones(), "{a} {b}");
                for c in 0..b {
                    assert!(1 <= (one[a] ^ one[b] ^ one[c]).count_ones(), "{a} {b} {c}");
                }
            }
        }
    }
}
