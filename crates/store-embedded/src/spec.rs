//! The file `spec`: which program wrote the folder, which store it is, and its openings.
//!
//! ```text
//! plumbago embedded store
//! layout 3
//! row codec 2
//! slots per row 1000
//! store 5f0c…                      32 hex digits
//! opening 83ab… 0                  16 hex digits, and the first id that it could give out; one line each, oldest first
//! check 1f2e3d4c                   CRC-32 of the lines above
//! ```

use std::{
    fmt::{Display, Write as _},
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use host::{Disk, Host, read_file_checked};
use metric::MetricId;
use parking_lot::Mutex;
use store::{Identity, Incarnation, StoreError};

use crate::{
    damage::Reporter,
    folder::io_error,
    owner::Owner,
    row_key::GROUP_SLOTS,
    survey::{is_foreign, survey},
};

/// The name of the file in the folder of a store.
const FILE: &str = "spec";

/// The layout of keys, values and folders. A change of layout changes the number. Layout 2 is read: it has no policies with
/// several methods, which an earlier program does not know, in its names nor in the journal.
const LAYOUT: u32 = 3;

/// The layout without policies of several methods.
const WITHOUT_ROLLUPS: u32 = 2;

/// Openings that are kept; older ones go first. A journal that is older than all of them has nothing in common with the
/// store.
const MOST_OPENINGS: usize = 512;

/// Bytes of the file, at most: the first lines, and fewer than 64 for each opening.
pub(crate) const LONGEST: u64 = 64 * (MOST_OPENINGS as u64 + 8);

/// The versions of the formats of a folder: the layout, and the row codec.
type Formats = (u32, u32);

/// Those that this program writes.
const WRITTEN: Formats = (LAYOUT, codec::VERSION);

/// The first lines of a folder with a version of each format, or with several.
fn first_lines(layout: impl Display, codec: impl Display) -> String {
    format!("plumbago embedded store\nlayout {layout}\nrow codec {codec}\nslots per row {GROUP_SLOTS}\n")
}

/// What this program reads, for messages.
fn expected() -> String {
    first_lines(format_args!("{WITHOUT_ROLLUPS} to {LAYOUT}"), format_args!("1 to {}", codec::VERSION))
}

/// The versions and the lines behind the first, in a text that this program reads.
fn split_first_lines(text: &str) -> Option<(Formats, &str)> {
    let mut all = (WITHOUT_ROLLUPS..=LAYOUT).flat_map(|layout| (1..=codec::VERSION).map(move |codec| (layout, codec)));
    all.find_map(|formats| Some((formats, text.strip_prefix(&first_lines(formats.0, formats.1))?)))
}

/// The whole text.
pub(crate) fn text_of(identity: &Identity) -> String {
    let mut text = first_lines(LAYOUT, codec::VERSION);
    let mut line = |line: std::fmt::Arguments<'_>| text.write_fmt(line).expect("writing into memory");
    line(format_args!("store {:032x}\n", identity.store));
    for opening in &identity.chain {
        line(format_args!("opening {:016x} {}\n", opening.id, opening.first_id));
    }
    let check = crc32fast::hash(text.as_bytes());
    text.write_fmt(format_args!("check {check:08x}\n")).expect("writing into memory");
    text
}

/// The identity in a text that this program reads, and the versions of its formats. `None` when it is damaged.
fn parse(text: &str) -> Option<(Identity, Formats)> {
    let (lines, check) = text.strip_suffix('\n')?.rsplit_once('\n')?;
    let crc = u32::from_str_radix(check.strip_prefix("check ")?, 16).ok()?;
    if crc32fast::hash(&text.as_bytes()[..=lines.len()]) != crc {
        return None;
    }
    let mut identity = Identity::default();
    let (formats, rest) = split_first_lines(lines)?;
    for line in rest.lines() {
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
    (identity.store != 0).then_some((identity, formats))
}

/// The identity in the bytes of a spec. `None` when they are damaged, or of another layout.
pub(crate) fn identity_of(bytes: &[u8]) -> Option<Identity> {
    parse(std::str::from_utf8(bytes).ok()?).map(|(identity, _)| identity)
}

/// Who owns the store in a folder, by its spec.
pub(crate) fn owner_of(disk: &Arc<dyn Disk>, dir: &Path) -> Owner {
    Owner::new(disk, dir.join(FILE), |bytes| identity_of(bytes)?.chain.last().map(|last| last.id))
}

/// The store in the bytes of a spec. `None` when they are damaged, or of another layout.
pub(crate) fn store_of(bytes: &[u8]) -> Option<u128> {
    parse(std::str::from_utf8(bytes).ok()?).map(|(identity, _)| identity.store)
}

/// What the bytes of a spec say, and what this program reads, where another version of the program wrote them and they are
/// whole. Layout 1 has no checksum, and is read.
pub(crate) fn newer(bytes: &[u8]) -> Option<(String, String)> {
    let text = std::str::from_utf8(bytes).ok()?;
    let is_other = checksum_is_right(text) == Some(true) && split_first_lines(text).is_none();
    is_other.then(|| (formats_of(text), formats_of(&expected())))
}

/// The lines of a spec about formats, in one.
fn formats_of(text: &str) -> String {
    text.lines().skip(1).take(3).collect::<Vec<_>>().join(", ")
}

/// The spec of an open store.
pub(crate) struct Spec {
    host: Host,
    path: PathBuf,
    identity: Mutex<Identity>,
    /// An earlier program wrote the file, or it lacks the last opening.
    is_behind: AtomicBool,
    owner: Owner,
    /// Whether this process has begun an opening.
    has_begun: AtomicBool,
}

impl Spec {
    /// Reads the file, and writes it where the folder is new. The caller holds the folder's lock.
    ///
    /// # Errors
    /// [`StoreError::Spec`] for a folder of another layout, and for one whose spec is damaged or missing while its files do
    /// not agree on a store. Nothing is changed then.
    pub(crate) fn open(host: &Host, dir: &Path, reporter: &Reporter) -> Result<Spec, StoreError> {
        let path = dir.join(FILE);
        let mut unread = None;
        let is_right = |bytes: &[u8]| std::str::from_utf8(bytes).is_ok_and(|text| parse(text).is_some());
        let found = match read_file_checked(&*host.disk, &path, LONGEST, is_right) {
            Ok(found) => Some(found),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                unread = Some(error);
                Some(Vec::new())
            }
        };
        let spec = |(identity, formats)| Spec {
            host: host.clone(),
            path: path.clone(),
            identity: Mutex::new(identity),
            is_behind: AtomicBool::new(formats != WRITTEN),
            owner: owner_of(&host.disk, dir),
            has_begun: AtomicBool::new(false),
        };
        let text = found.as_deref().map(String::from_utf8_lossy);
        let reading = || io_error(format!("reading {}", dir.display()));
        let parsed = text.as_deref().and_then(parse);
        let is_foreign = match &parsed {
            Some((identity, _)) => is_foreign(&*host.disk, dir, identity.store).map_err(reading())?,
            None => false,
        };
        if let Some(parsed) = parsed
            && !is_foreign
        {
            return Ok(spec(parsed));
        }
        if let Some(text) = &text
            && is_whole(text)
            && !is_foreign
        {
            return Err(other_layout(&path, text));
        }
        let survey = survey(&*host.disk, dir).map_err(reading())?;
        let mut stores = survey.stores.iter();
        let identity = match (stores.next(), stores.next()) {
            (Some(&store), None) => Identity { store, chain: Vec::new() },
            (None, _) if found.is_none() && survey.files == 0 => {
                Identity { store: host.random.bits_128().max(1), chain: Vec::new() }
            }
            _ => match unread {
                Some(error) => return Err(io_error(format!("reading {}", path.display()))(error)),
                None => return Err(not_rebuilt(&path, text.as_deref(), survey.stores.len())),
            },
        };
        match &found {
            Some(_) if unread.is_some() => {
                reporter.missing("spec", &path, "the file cannot be read; it was made from the other files");
            }
            Some(bytes) if is_foreign => {
                let how = "the file is of another store than all others; it was made from them";
                reporter.bytes("spec", &path, 0, bytes, how);
            }
            Some(bytes) => {
                let how = "the file is damaged; it was made from the other files";
                reporter.bytes("spec", &path, 0, bytes, how);
            }
            None if survey.files == 0 => {}
            None => reporter.missing("spec", &path, "the file is missing; it was made from the other files"),
        }
        let spec = spec((identity, WRITTEN));
        spec.write(&spec.identity.lock())?;
        Ok(spec)
    }

    /// Says that the folder has rows as this program writes them, so that no earlier one takes them for damage, and which
    /// opening writes, durably. Called before any row is written; a store whose disk is full is read without it.
    pub(crate) fn raise(&self) -> Result<(), StoreError> {
        if self.is_behind.load(Relaxed) { self.write(&self.identity.lock()) } else { Ok(()) }
    }

    /// Takes the openings that the other files know, where a spec was damaged or is an older one. The next opening writes
    /// them.
    pub(crate) fn restore_chain(&self, openings: Vec<Incarnation>) {
        self.identity.lock().chain = openings;
    }

    /// Whether the folder still belongs to this process.
    pub(crate) fn owner(&self) -> &Owner {
        &self.owner
    }

    pub(crate) fn identity(&self) -> Identity {
        self.identity.lock().clone()
    }

    /// Adds an opening. Where it cannot be written now, as on a full disk, [`Spec::raise`] writes it before anything refers to
    /// it.
    pub(crate) fn begin(&self, first_id: MetricId) -> Identity {
        let mut identity = self.identity.lock();
        identity.chain.push(Incarnation { id: self.host.random.bits(), first_id });
        let forgotten = identity.chain.len().saturating_sub(MOST_OPENINGS);
        identity.chain.drain(..forgotten);
        self.is_behind.store(true, Relaxed);
        self.has_begun.store(true, Relaxed);
        if let Err(error) = self.write(&identity) {
            tracing::error!(%error, "cannot note this start in the store; stored points are served, and no point is accepted until it can be \
                written; if the disk is full, make room: see trash/ and damaged/ in the data folder");
        }
        identity.clone()
    }

    fn write(&self, identity: &Identity) -> Result<(), StoreError> {
        self.owner.check()?;
        let written = host::replace_file(&*self.host.disk, &self.path, text_of(identity).as_bytes());
        written.map_err(io_error(format!("writing {}", self.path.display())))?;
        if self.has_begun.load(Relaxed)
            && let Some(opening) = identity.chain.last()
        {
            self.owner.took(opening.id);
        }
        self.is_behind.store(false, Relaxed);
        Ok(())
    }
}

/// Whether a text that this program does not know is as it was written: its checksum is right, or it has none.
fn is_whole(text: &str) -> bool {
    let has_none = || text.starts_with("plumbago embedded store") && !text.contains("\nopening ");
    checksum_is_right(text).unwrap_or_else(has_none)
}

/// Whether the last line has the checksum of those before it; `None` where it has no checksum.
fn checksum_is_right(text: &str) -> Option<bool> {
    let Some((lines, check)) = text.strip_suffix('\n').and_then(|text| text.rsplit_once('\n')) else {
        return Some(false);
    };
    let crc = u32::from_str_radix(check.strip_prefix("check ")?, 16);
    Some(crc.is_ok_and(|crc| crc32fast::hash(&text.as_bytes()[..=lines.len()]) == crc))
}

fn one_line(text: &str) -> String {
    text.trim_end().replace('\n', ", ")
}

fn other_layout(path: &Path, text: &str) -> StoreError {
    let first: String = text.lines().take(4).collect::<Vec<_>>().join(", ");
    StoreError::Spec {
        found: format!("in {}: {first}", path.display()),
        expected: format!(
            "{}; nothing was changed: start the version of the program that wrote the folder, or restore a backup",
            one_line(&expected())
        ),
    }
}

fn not_rebuilt(path: &Path, text: Option<&str>, stores: usize) -> StoreError {
    let state = text.map_or("is missing".to_owned(), |text| format!("is damaged ({})", one_line(text)));
    StoreError::Spec {
        found: format!("nothing: {} {state}, and the files next to it are of {stores} stores", path.display()),
        expected: format!(
            "{}; nothing was changed: put back the spec file, or restore a backup into another data folder",
            one_line(&expected())
        ),
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
        assert_eq!(parse(&text), Some((identity, WRITTEN)));
        for place in 0..text.len() {
            for bit in 0..8 {
                let mut bytes = text.clone().into_bytes();
                bytes[place] ^= 1 << bit;
                let changed = String::from_utf8_lossy(&bytes).into_owned();
                // Hex digits have two cases.
                let read = parse(&changed);
                assert!(read.is_none() || changed.eq_ignore_ascii_case(&text), "{changed}");
            }
            assert_eq!(parse(&text[..place]), None);
        }
    }

    #[test]
    fn earlier_formats_are_read_and_later_ones_are_another_version() {
        let identity = Identity { store: 7, chain: vec![Incarnation { id: 9, first_id: MetricId(3) }] };
        let of_formats = |(layout, codec): (u32, u32)| {
            let text = text_of(&identity).replace(&first_lines(LAYOUT, codec::VERSION), &first_lines(layout, codec));
            let (lines, _) = text.rsplit_once("check ").expect("a checksum");
            format!("{lines}check {:08x}\n", crc32fast::hash(lines.as_bytes()))
        };
        for formats in [(2, 1), (2, 2), (3, 1), (3, 2)] {
            let text = of_formats(formats);
            assert_eq!(parse(&text), Some((identity.clone(), formats)));
            assert_eq!((newer(text.as_bytes()), store_of(text.as_bytes())), (None, Some(7)));
        }
        for (layout, codec) in [(2, 0), (3, 3), (2, 10), (2, 21), (4, 2), (1, 1), (30, 2)] {
            let text = of_formats((layout, codec));
            assert_eq!(parse(&text), None);
            let formats = |layout: &str, codec: &str| format!("layout {layout}, row codec {codec}, slots per row 1000");
            let found = formats(&layout.to_string(), &codec.to_string());
            assert_eq!(newer(text.as_bytes()), Some((found, formats("2 to 3", "1 to 2"))));
        }
    }
}
