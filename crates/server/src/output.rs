//! Standard output.

use std::io::{self, Write};

/// Writes text. A closed pipe (`plumbago settings | head`) or a full disk is not an error.
pub fn print(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
