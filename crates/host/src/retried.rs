//! Calls of the disk that are worth another attempt.

use std::io;

/// Attempts before an error counts.
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
