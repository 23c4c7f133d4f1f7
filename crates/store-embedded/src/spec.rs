//! The file `spec`: which program wrote the folder, which store it is, and its openings.
//!
//! ```text
//! plumbago embedded store
//! layout 2
//! row codec 1
//! slots per row 1000
//! store 5f0c…                      32 hex digits
//! opening 83ab… 0                  16 hex digits, and the first id that it could give out; one line each, oldest first
//! check 1f2e3d4c                   CRC-32 of the lines above
//! ```

use std::{
    fmt::Write as _,
    io,
    path::{Path, PathBuf},
};

use host::Host;
use metric::MetricId;
use parking_lot::Mutex;
use store::{Identity, Incarnation, StoreError};

use crate::{folder::io_error, row_key::GROUP_SLOTS};

/// The layout of keys, values and folders. A change of layout changes the number.
const LAYOUT: u32 = 2;

/// Openings that are kept; older ones go first. A journal that is older than all of them has nothing in common with the
/// store.
const MOST_OPENINGS: usize = 512;

/// The first lines of a folder that this program can use.
fn expected() -> String {
    format!("plumbago embedded store\nlayout {LAYOUT}\nrow codec {}\nslots per row {GROUP_SLOTS}\n", codec::VERSION)
}

/// The whole text.
pub(crate) fn text_of(identity: &Identity) -> String {
    let mut text = expected();
    let mut line = |line: std::fmt::Arguments<'_>| text.write_fmt(line).expect("writing into memory");
    line(format_args!("store {:032x}\n", identity.store));
    for opening in &identity.chain {
        line(format_args!("opening {:016x} {}\n", opening.id, opening.first_id));
    }
    let check = crc32fast::hash(text.as_bytes());
    text.write_fmt(format_args!("check {check:08x}\n")).expect("writing into memory");
    text
}

/// The identity in a text whose first lines are as expected. `None` when it is damaged.
fn parse_identity(text: &str) -> Option<Identity> {
    let (lines, check) = text.strip_suffix('\n')?.rsplit_once('\n')?;
    let crc = u32::from_str_radix(check.strip_prefix("check ")?, 16).ok()?;
    if crc32fast::hash(text[..=lines.len()].as_bytes()) != crc {
        return None;
    }
    let mut identity = Identity::default();
    for line in lines.strip_prefix(&expected())?.lines() {
        match line.split_once(' ')? {
            ("store", store) => identity.store = u128::from_str_radix(store, 16).ok()?,
            ("opening", opening) => {
                let (id, first_id) = opening.split_once(' ')?;
                let id = u64::from_str_radix(id, 16).ok()?;
                identity.chain.push(Incarnation { id, first_id: MetricId(first_id.parse().ok()?) });
            }
            _ => return None,
        }
    }
    (identity.store != 0).then_some(identity)
}

/// The spec of an open store.
pub(crate) struct Spec {
    host: Host,
    path: PathBuf,
    identity: Mutex<Identity>,
}

impl Spec {
    /// Reads the file, and writes it where the folder is new. The caller holds the folder's lock.
    pub(crate) fn open(host: &Host, dir: &Path) -> Result<Spec, StoreError> {
        let path = dir.join("spec");
        let spec = |identity| Spec { host: host.clone(), path: path.clone(), identity: Mutex::new(identity) };
        let found = match host.disk.read(&path) {
            Ok(found) => String::from_utf8_lossy(&found).into_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => expected(),
            Err(error) => return Err(io_error(format!("reading {}", path.display()))(error)),
        };
        if found == expected() {
            // New, or from a version without identities.
            let new = spec(Identity { store: host.random.bits_128().max(1), chain: Vec::new() });
            new.write(&new.identity.lock())?;
            return Ok(new);
        }
        if let Some(identity) = parse_identity(&found) {
            return Ok(spec(identity));
        }
        let one_line = |text: &str| text.trim_end().replace('\n', ", ");
        Err(StoreError::Spec {
            found: format!("in {}: {}", path.display(), one_line(&found)),
            expected: one_line(&expected()),
        })
    }

    pub(crate) fn identity(&self) -> Identity {
        self.identity.lock().clone()
    }

    /// Adds an opening, durably.
    pub(crate) fn begin(&self, first_id: MetricId) -> Result<Identity, StoreError> {
        let mut identity = self.identity.lock();
        let mut next = identity.clone();
        next.chain.push(Incarnation { id: self.host.random.bits(), first_id });
        next.chain.drain(..next.chain.len().saturating_sub(MOST_OPENINGS));
        self.write(&next)?;
        *identity = next;
        Ok(identity.clone())
    }

    fn write(&self, identity: &Identity) -> Result<(), StoreError> {
        let written = host::replace_file(&*self.host.disk, &self.path, text_of(identity).as_bytes());
        written.map_err(io_error(format!("writing {}", self.path.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_as_it_was_written_and_no_other() {
        let opening = |id, first| Incarnation { id, first_id: MetricId(first) };
        let identity = Identity { store: 0x5f0c << 112, chain: vec![opening(7, 0), opening(u64::MAX, 4_000_000_000)] };
        let text = text_of(&identity);
        assert_eq!(parse_identity(&text).as_ref(), Some(&identity));
        for place in 0..text.len() {
            for bit in 0..8 {
                let mut bytes = text.clone().into_bytes();
                bytes[place] ^= 1 << bit;
                let changed = String::from_utf8_lossy(&bytes).into_owned();
                // Hex digits have two cases.
                let read = parse_identity(&changed);
                assert!(read.is_none() || changed.eq_ignore_ascii_case(&text), "{changed}");
            }
            assert_eq!(parse_identity(&text[..place]), None);
        }
    }
}
