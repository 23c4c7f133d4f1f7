//! Calls of the disk that are worth another attempt.

use std::{io, path::Path};

use crate::{Disk, DiskFile, Open, read_whole};

/// Attempts before an error, or bytes with a wrong checksum, count.
const ATTEMPTS: u32 = 3;

/// Makes a call again where it fails, as with EINTR, or with EMFILE for a moment. That there is no such file, or that a file
/// is shorter, is an answer.
pub fn retried<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut attempt = 1;
    loop {
        match call() {
            Err(error)
                if attempt < ATTEMPTS
                    && !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof) =>
            {
                attempt += 1;
            }
            result => return result,
        }
    }
}

/// Reads a part of a file that `check` can tell from wrong bytes. Wrong ones are read again, from the disk: a bit that
/// flipped on the way must not cost what the disk has right.
pub fn read_checked<T, E>(
    file: &dyn DiskFile,
    bytes: &mut [u8],
    offset: u64,
    check: impl Fn(&[u8]) -> Result<T, E>,
) -> io::Result<Result<T, E>> {
    let mut attempt = 1;
    loop {
        retried(|| file.read_exact_at(bytes, offset))?;
        match check(bytes) {
            Err(_) if attempt < ATTEMPTS => {
                file.forget_cached(offset, bytes.len() as u64);
                attempt += 1;
            }
            checked => return Ok(checked),
        }
    }
}

/// As [`read_checked`], of a whole file, which has at most `longest` bytes: of a longer one, which is not as it was
/// written, only these are read. Wrong bytes that the disk does not return again are not damage, but an error.
pub fn read_file_checked(
    disk: &dyn Disk,
    path: &Path,
    longest: u64,
    is_right: impl Fn(&[u8]) -> bool,
) -> io::Result<Vec<u8>> {
    let read = |is_again: bool| {
        let mut file = disk.open(path, Open::Read)?;
        if is_again {
            file.forget_cached(0, longest);
        }
        read_whole(&mut *file, longest)
    };
    let mut bytes = retried(|| read(false))?;
    for _ in 1..ATTEMPTS {
        if is_right(&bytes) {
            break;
        }
        bytes = retried(|| read(true)).map_err(|error| match error.kind() {
            // It was there a moment ago.
            io::ErrorKind::NotFound => io::Error::other(error),
            _ => error,
        })?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    };

    use super::*;
    use crate::{FailingDisk, SystemDisk};

    /// A disk whose first `flips` reads come with a flipped bit.
    fn flipping(flips: usize) -> FailingDisk {
        let reads = AtomicUsize::new(0);
        FailingDisk::new(Arc::new(SystemDisk), |_, _| None).with_changed_reads(move |_, bytes| {
            if !bytes.is_empty() && reads.fetch_add(1, Relaxed) < flips {
                bytes[0] ^= 1;
            }
        })
    }

    #[test]
    fn wrong_bytes_are_read_again_until_they_are_right_or_stay_wrong() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, b"right").unwrap();
        for (flips, is_right) in [(0, true), (1, true), (2, true), (3, false)] {
            let disk = flipping(flips);
            let mut bytes = [0; 5];
            let check = |bytes: &[u8]| if bytes == b"right" { Ok(()) } else { Err(()) };
            let file = disk.open(&path, Open::Read).unwrap();
            let checked = read_checked(&*file, &mut bytes, 0, check).unwrap();
            assert_eq!((checked.is_ok(), &bytes == b"right"), (is_right, is_right), "{flips} flips");
        }
        // Of a whole file, a read has the bytes and another one the end.
        for (flips, is_right) in [(1, true), (100, false)] {
            let bytes = read_file_checked(&flipping(flips), &path, 100, |bytes| bytes == b"right").unwrap();
            assert_eq!(bytes == b"right", is_right, "{flips} flips");
        }
        // What the disk does not return again may be right.
        let opens = AtomicUsize::new(0);
        let fails = move |call, _: &Path| {
            (call == crate::Call::Open && 0 < opens.fetch_add(1, Relaxed)).then(|| io::ErrorKind::NotFound.into())
        };
        let disk = FailingDisk::new(Arc::new(flipping(1)), fails);
        let error = read_file_checked(&disk, &path, 100, |bytes| bytes == b"right").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Other);
        let prefix = read_file_checked(&SystemDisk, &path, 3, |_| false).unwrap();
        assert_eq!(prefix, b"rig", "a file that is longer than it can be");
    }
}
