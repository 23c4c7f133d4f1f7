//! A run: a row that tells its version and proves where it belongs, for cells of a store that programs of other versions share.
//!
//! One byte of version, the row, and four bytes of CRC-32, little endian. The checksum is over the *place* too: bytes that name
//! where the run is stored and that are not stored in it. So a run that was copied to another key is damaged there.

use crate::Damaged;

/// The version of the runs that are written. A reader rejects every later one.
pub const RUN_VERSION: u8 = 1;

/// Bytes of the checksum.
const CHECKSUM: usize = 4;

/// Makes a run of the bytes of `run`: a row, behind one byte that the caller left for the version.
///
/// ```
/// let mut run = vec![0];
/// codec::Codec::new().encode(10, &[12.34, 12.29], &[], &mut run);
/// codec::seal_run(b"a.b.c", &mut run);
///
/// let row = codec::open_run(b"a.b.c", &run).unwrap();
/// assert_eq!(codec::segments(row).next().unwrap().unwrap().slots, 10..12);
/// assert!(codec::open_run(b"a.b.d", &run).is_err());
/// ```
///
/// # Panics
///
/// When `run` has no byte for the version.
pub fn seal_run(place: &[u8], run: &mut Vec<u8>) {
    run[0] = RUN_VERSION;
    let checksum = checksum(place, run);
    run.extend_from_slice(&checksum);
}

/// The row of a run. Its bytes are those that were sealed; anything else is [`Damaged`], and so is a later version.
pub fn open_run<'a>(place: &[u8], run: &'a [u8]) -> Result<&'a [u8], Damaged> {
    let Some((sealed, found)) = run.split_last_chunk::<CHECKSUM>() else {
        return Err(Damaged(format!("a run has at least {} bytes, not {}", CHECKSUM + 1, run.len())));
    };
    let Some((&version, row)) = sealed.split_first() else {
        return Err(Damaged(format!("a run has at least {} bytes, not {}", CHECKSUM + 1, run.len())));
    };
    // Before the checksum: a later version may have another one.
    if version != RUN_VERSION {
        return Err(Damaged(format!("a run of version {version}; this program reads version {RUN_VERSION}")));
    }
    if checksum(place, sealed) != *found {
        return Err(Damaged::new("the checksum of a run is wrong"));
    }
    Ok(row)
}

fn checksum(place: &[u8], sealed: &[u8]) -> [u8; CHECKSUM] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(place);
    hasher.update(sealed);
    hasher.finalize().to_le_bytes()
}
