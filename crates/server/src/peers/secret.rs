//! The secret by which nodes over the same tables know each other.

use std::path::Path;

use anyhow::Context;
use host::Disk;
use sha2::{Digest, Sha256};

/// A shorter one could be guessed.
const LEAST: usize = 16;

/// The secrets of `peers.secret_file`: a line each. The first one is shown to other nodes, and each is accepted from them, so that
/// a secret can be replaced one node after the other.
pub struct PeerSecrets {
    first: String,
    accepted: Vec<[u8; 32]>,
}

impl PeerSecrets {
    /// Reads the file. Logs a warning where any user of the machine may do so.
    ///
    /// # Errors
    /// It cannot be read, or has no secret, or one that is too short or not of visible ASCII.
    pub fn read(path: &Path, disk: &dyn Disk) -> anyhow::Result<PeerSecrets> {
        let text =
            disk.read_to_string(path).with_context(|| format!("cannot read peers.secret_file, {}", path.display()))?;
        if disk.is_readable_by_others(path).unwrap_or(false) {
            tracing::warn!(path = %path.display(),
                "all users of this machine can read peers.secret_file, and with it the points in memory of all nodes; chmod o-r");
        }
        PeerSecrets::of(&text).with_context(|| format!("peers.secret_file, {}", path.display()))
    }

    fn of(text: &str) -> anyhow::Result<PeerSecrets> {
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        for (place, line) in lines.iter().enumerate() {
            let is_valid = LEAST <= line.len() && line.bytes().all(|byte| byte.is_ascii_graphic());
            anyhow::ensure!(
                is_valid,
                "secret {} must be at least {LEAST} visible ASCII characters without spaces",
                place + 1
            );
        }
        let first = lines.first().context("the file is empty; it must have a secret, the same for all nodes")?;
        Ok(PeerSecrets {
            first: (*first).to_owned(),
            accepted: lines.iter().map(|line| digest(line.as_bytes())).collect(),
        })
    }

    /// What this node shows to others.
    pub fn shown(&self) -> &str {
        &self.first
    }

    /// Whether another node shows a secret of this one's. Takes as long for any secret of one length.
    pub fn accepts(&self, given: &[u8]) -> bool {
        let given = digest(given);
        let differs = |secret: &[u8; 32]| secret.iter().zip(given).fold(0, |bits, (one, other)| bits | (one ^ other));
        // All are compared: which one it is, if any, does not show in the time.
        let matches = self.accepted.iter().filter(|secret| std::hint::black_box(differs(secret)) == 0).count();
        0 < matches
    }
}

fn digest(secret: &[u8]) -> [u8; 32] {
    Sha256::digest(secret).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_secret_is_shown_and_each_is_accepted() {
        let secrets = PeerSecrets::of("0123456789abcdef-new\n\n  0123456789abcdef-old\r\n").unwrap();
        assert_eq!(secrets.shown(), "0123456789abcdef-new");
        for (given, is_accepted) in [
            ("0123456789abcdef-new", true),
            ("0123456789abcdef-old", true),
            ("0123456789abcdef-ne", false),
            ("0123456789abcdef-new ", false),
            ("", false),
        ] {
            assert_eq!(secrets.accepts(given.as_bytes()), is_accepted, "{given}");
        }
        for text in ["", "\n", "short", "0123456789abcdef\nshort", "0123456789 abcdef"] {
            assert!(PeerSecrets::of(text).is_err(), "{text:?}");
        }
    }
}
