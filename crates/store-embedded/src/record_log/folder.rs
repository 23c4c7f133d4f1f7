//! The folder of a record log: its files by number, and drafts.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, SeekFrom},
    path::{Path, PathBuf},
    sync::Arc,
};

use host::{DiskFile, Host, Open, retried};
use store::{LAST_NUMBER, StoreError};

use super::{
    draft::file_name,
    frame::{HEADER, Header, HeaderRead, Seal, TableTag, VERSION, read_header},
    place::LogEnd,
    replaced::{Replaced, replaced_by},
    walk::{Part, walk},
};
use crate::{damage::Reporter, folder::io_error, owner::Owner};

/// Numbers behind a file among which a start looks for one that the list of the folder lacks. A stray file may have any number.
const MOST_UNLISTED: usize = 1000;

/// Where a log is, and which.
#[derive(Debug, Clone)]
pub(crate) struct LogFolder {
    pub(crate) host: Host,
    pub(crate) dir: PathBuf,
    pub(crate) table: TableTag,
    /// The kind of thing that is damaged, for operators.
    pub(crate) what: &'static str,
    pub(crate) store: u128,
    /// Another process may take the folder.
    pub(crate) owner: Owner,
    pub(crate) reporter: Reporter,
    pub(crate) when_unread: WhenUnread,
    /// How far the log is known to have come.
    pub(crate) known: Option<LogEnd>,
    /// Whether the opening fails where the file of that is not there, and none replaces it.
    pub(crate) needs_known: bool,
}

/// What happens where bytes of a log cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhenUnread {
    /// The records in them are missing until an opening that can read them.
    GoOn,
    /// As [`WhenUnread::GoOn`], but a file that cannot be read at all refuses the opening: for a repair of what the next
    /// refuses.
    GoOnWithTheRest,
    /// The opening is refused: what the records name would get other ids.
    Refuse,
}

/// The files of a folder.
pub(super) struct Found {
    /// By number; without those that others replace.
    pub(super) headers: BTreeMap<u64, Header>,
    /// Those that cannot be read at all now, with their lengths.
    pub(super) unread: Vec<(u64, u64)>,
    /// The highest number that was seen.
    pub(super) highest: u64,
    /// Files up to this number were replaced by others.
    pub(super) replaced: u64,
}

impl LogFolder {
    /// The highest number that a file is known to have had; 0 where none is.
    fn known_file(&self) -> u64 {
        self.known.map_or(0, |end| end.file)
    }

    /// How long the file now is that is known to have been there; 0 where it is not there.
    pub(crate) fn known_len(&self) -> io::Result<u64> {
        let Some(known) = &self.known else { return Ok(0) };
        match retried(|| self.host.disk.open(&self.path(known.file), Open::Read)?.len()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            len => len,
        }
    }

    pub(super) fn path(&self, number: u64) -> PathBuf {
        self.dir.join(file_name(number))
    }

    /// Makes the folder if it is missing, reads the headers, and removes what a crash left. Other obsolete files are kept in `damaged/`.
    pub(super) fn find(&self) -> Result<Found, StoreError> {
        let disk = &*self.host.disk;
        let failed = |source| StoreError::Io { what: format!("opening {}", self.dir.display()), source };
        if !disk.exists(&self.dir) {
            disk.create_dir_all(&self.dir).map_err(failed)?;
            disk.sync_dir(self.dir.parent().unwrap_or(Path::new("."))).map_err(failed)?;
        }
        let mut headers = BTreeMap::new();
        // A number is used once, also where its file is not found now.
        let (mut drafts, mut highest) = (Vec::new(), self.known_file());
        for entry in disk.read_dir(&self.dir).map_err(failed)? {
            let name = entry.name.to_string_lossy().into_owned();
            let number = |suffix: &str| name.strip_suffix(suffix)?.parse::<u64>().ok();
            let is_of_log = |number: &u64| *number <= LAST_NUMBER && self.path(*number) == entry.path;
            if let Some(number) = number(".log").filter(is_of_log) {
                headers.insert(number, entry.len);
            } else if number(".new").is_some() {
                drafts.push(entry.path);
            } else {
                self.reporter.missing("stray file", &entry.path, "the store did not write it; it is left alone");
            }
        }
        // All are read before the first is touched: a later format means that nothing is changed.
        let mut read: Vec<(u64, u64, HeaderRead)> = headers
            .into_iter()
            .map(|(number, len)| Ok((number, len, self.read_header(number)?)))
            .collect::<Result<_, StoreError>>()?;
        self.add_unlisted(&mut read)?;
        self.wait_for_known(&read)?;
        for (number, _, header) in &read {
            if *header == HeaderRead::Unread {
                let has_records = self.has_records(*number);
                if !has_records || self.when_unread == WhenUnread::Refuse {
                    self.cannot_read(*number, HEADER as u64, u64::from(has_records))?;
                }
            }
        }
        let lens: BTreeMap<u64, u64> = read.iter().map(|(number, len, _)| (*number, *len)).collect();
        let (mut headers, mut unread) = (BTreeMap::new(), Vec::new());
        for (number, len, header) in read {
            highest = highest.max(number);
            let is_unread = header == HeaderRead::Unread;
            match self.judge(number, len, header) {
                Some(header) => _ = headers.insert(number, header),
                None if is_unread => unread.push((number, len)),
                None => {}
            }
        }
        for draft in drafts {
            let removed = disk.remove_file(&draft);
            removed.unwrap_or_else(|error| cannot_remove(&draft, &error));
        }
        let replaced = headers.values().map(|header| header.replaces).max().unwrap_or(0);
        let obsolete: Vec<(u64, u64)> = headers.range(..=replaced).map(|(number, _)| (*number, lens[number])).collect();
        self.settle_obsolete(&obsolete, &headers);
        headers.retain(|number, _| replaced < *number);
        unread.retain(|(number, _)| replaced < *number);
        for header in headers.values() {
            if replaced < header.previous && !headers.contains_key(&header.previous) {
                self.reporter.missing(self.what, &self.path(header.previous), "the file is missing");
            }
        }
        Ok(Found { headers, unread, highest, replaced })
    }

    /// Adds the files that are there though the list of the folder lacks them, as that of a network disk may: without them a log
    /// that has lost nothing would begin again.
    fn add_unlisted(&self, read: &mut Vec<(u64, u64, HeaderRead)>) -> Result<(), StoreError> {
        let mut looked = BTreeSet::new();
        while let Some(number) = self.unlisted(read, &mut looked)? {
            let path = self.path(number);
            let len = retried(|| self.host.disk.open(&path, Open::Read)?.len());
            let len = len.map_err(io_error(format!("opening {}", path.display())))?;
            tracing::warn!(file = %path.display(), "the list of the folder lacks a file that is there; it is read");
            read.push((number, len, self.read_header(number)?));
            read.sort_by_key(|(number, ..)| *number);
        }
        Ok(())
    }

    /// The number of a file that is there and not listed. Looks at the numbers behind each listed file that were not `looked` at.
    ///
    /// # Errors
    /// The file that the manifest knows is not there, and the opening needs it.
    fn unlisted(&self, read: &[(u64, u64, HeaderRead)], looked: &mut BTreeSet<u64>) -> Result<Option<u64>, StoreError> {
        let of_header = |header: &HeaderRead| if let HeaderRead::Good(header) = header { header.replaces } else { 0 };
        let replaced = read.iter().map(|(.., header)| of_header(header)).max().unwrap_or(0);
        let listed: BTreeSet<u64> = read.iter().map(|(number, ..)| *number).collect();
        let starts = std::iter::once(replaced).chain(listed.range(replaced + 1..).copied());
        let behind = starts.flat_map(|start| {
            // The number behind the last is the next that would be given.
            let end = listed.range(start + 1..).next().map_or(start + 2, |next| *next);
            (start + 1..end).take(MOST_UNLISTED)
        });
        for number in behind.chain(Some(self.known_file()).filter(|known| replaced < *known)) {
            if listed.contains(&number) || !looked.insert(number) {
                continue;
            }
            let path = self.path(number);
            if self.host.disk.exists(&path) {
                return Ok(Some(number));
            }
            if number == self.known_file() && self.needs_known {
                let what = format!("opening {}, which the manifest of the store knows", path.display());
                return Err(StoreError::Io { what, source: io::ErrorKind::NotFound.into() });
            }
        }
        Ok(None)
    }

    /// # Errors
    /// The file that the manifest knows is shorter than it was, as a network disk may give it for a moment, and the opening needs it.
    fn wait_for_known(&self, read: &[(u64, u64, HeaderRead)]) -> Result<(), StoreError> {
        let Some(known) = self.known.filter(|_| self.needs_known) else { return Ok(()) };
        let is_there = read.iter().any(|(number, ..)| *number == known.file);
        let path = self.path(known.file);
        let len = || self.host.disk.open(&path, Open::Read)?.len();
        match if is_there { retried(len) } else { return Ok(()) } {
            Ok(len) if len < known.bytes => {
                let what = format!("opening {}, which had {} bytes", path.display(), known.bytes);
                Err(StoreError::Io { what, source: io::Error::other(format!("it has {len} bytes")) })
            }
            _ => Ok(()),
        }
    }

    fn read_header(&self, number: u64) -> Result<HeaderRead, StoreError> {
        let path = self.path(number);
        let file = retried(|| self.host.disk.open(&path, Open::Read));
        let file = file.map_err(io_error(format!("opening {}", path.display())))?;
        let header = match read_header(&*file) {
            Ok(header) => header,
            // The file is shorter.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => HeaderRead::Damaged,
            Err(_) => HeaderRead::Unread,
        };
        match header {
            HeaderRead::Newer(version) => Err(StoreError::Spec {
                found: format!(
                    "{} is of format {version}, which a later version of this program wrote",
                    path.display()
                ),
                expected: format!("format {VERSION}; use the later version, or restore a backup"),
            }),
            header => Ok(header),
        }
    }

    /// The header by which a file is read. A file that is not this log's is put aside.
    fn judge(&self, number: u64, len: u64, read: HeaderRead) -> Option<Header> {
        let path = self.path(number);
        let from_name =
            Header { table: self.table, store: self.store, number, replaces: 0, previous: 0, previous_len: 0 };
        match read {
            HeaderRead::Good(header)
                if (header.table, header.store, header.number) == (self.table, self.store, number) =>
            {
                return Some(header);
            }
            HeaderRead::Good(_) => {
                self.reporter.file(self.what, &path, len, "the file is of another store, table or number");
            }
            // Records have checksums of their own, so that they can be trusted without the header.
            _ if self.has_records(number) => {
                self.reporter.missing(self.what, &path, "the header is damaged; the records are read without it");
                return Some(from_name);
            }
            // Reported already; a later start may read it.
            HeaderRead::Unread => {}
            _ => _ = self.reporter.file(self.what, &path, len, "neither header nor records can be read"),
        }
        None
    }

    /// Reports a file whose reads fail; an error where the store is not opened without it.
    pub(super) fn cannot_read(&self, number: u64, bytes: u64, records: u64) -> Result<(), StoreError> {
        let path = self.path(number);
        let may_go_on = match self.when_unread {
            WhenUnread::GoOn => true,
            WhenUnread::GoOnWithTheRest => 0 < records,
            WhenUnread::Refuse => false,
        };
        if !may_go_on {
            let rest = match records {
                0 => "without this file the store starts without its names",
                _ => "plumbago repair goes on without the names in them",
            };
            let what = format!(
                "reading {} (nothing was changed: points of a metric whose name is there would go to a new metric of the same \
                 name; if the disk is failing, copy the folder to another one; {rest})",
                path.display()
            );
            return Err(StoreError::Io { what, source: io::Error::other(format!("{bytes} bytes cannot be read")) });
        }
        let how = format!("{bytes} bytes cannot be read; the file stays where it is, and the next start tries again");
        self.reporter.missing(self.what, &path, &how);
        Ok(())
    }

    /// Removes the obsolete files, numbers and lengths, that a crash left behind the file which replaced them. The others were put back
    /// since, or were not read whole then: what is in them may be nowhere else.
    fn settle_obsolete(&self, obsolete: &[(u64, u64)], headers: &BTreeMap<u64, Header>) {
        if obsolete.is_empty() {
            return;
        }
        let open = |number: u64| retried(|| self.host.disk.open(&self.path(number), Open::Read));
        let replacing = headers.values().filter(|header| 0 < header.replaces).filter_map(|header| {
            Some(replaced_by(&*open(header.number).ok()?, &Seal::new(header.store, header.number)))
        });
        let noted: Vec<Replaced> = replacing.flatten().collect();
        let is_left = |number: u64| -> io::Result<bool> { Ok(noted.contains(&Replaced::of(number, &*open(number)?)?)) };
        let (left, others): (Vec<_>, Vec<_>) =
            obsolete.iter().partition(|(number, _)| is_left(*number).unwrap_or(false));
        self.remove(&left.into_iter().map(|(number, _)| number).collect::<Vec<_>>());
        for (number, bytes) in others {
            self.keep(number, bytes, WAS_REPLACED);
        }
    }

    /// Whether a file has the length that it had when it was read. A network disk may have given the length of a moment ago.
    pub(super) fn has_length(&self, number: u64, bytes: u64) -> bool {
        let len = || self.host.disk.open(&self.path(number), Open::Read)?.len();
        retried(len).is_ok_and(|len| len == bytes)
    }

    /// Moves a file aside, in place of removing it.
    pub(super) fn keep(&self, number: u64, bytes: u64, how: &str) {
        self.reporter.file(self.what, &self.path(number), bytes, how);
    }

    fn has_records(&self, number: u64) -> bool {
        let Ok(file) = retried(|| self.host.disk.open(&self.path(number), Open::Read)) else { return false };
        let mut any = false;
        let seal = Seal::new(self.store, number);
        walk(&*file, file.len().unwrap_or(0), &seal, |part| {
            any |= matches!(part, Part::Record(..) | Part::Corrected(..))
        });
        any
    }

    /// A file of the log, to read it and to write at its cursor.
    pub(super) fn open_to_append(&self, number: u64) -> Result<Box<dyn DiskFile>, StoreError> {
        let path = self.path(number);
        retried(|| self.host.disk.open(&path, Open::ReadWrite)).map_err(io_error(format!("opening {}", path.display())))
    }

    /// As [`LogFolder::open_to_append`], with the cursor at a place.
    pub(super) fn open_at(&self, number: u64, len: u64) -> io::Result<Arc<dyn DiskFile>> {
        let mut file = self.host.disk.open(&self.path(number), Open::ReadWrite)?;
        file.seek(SeekFrom::Start(len))?;
        Ok(Arc::from(file))
    }

    /// Removes files that others replace. One that stays is removed by the next start.
    pub(super) fn remove(&self, numbers: &[u64]) {
        if numbers.is_empty() {
            return;
        }
        for path in numbers.iter().map(|number| self.path(*number)) {
            if let Err(error) = self.host.disk.remove_file(&path) {
                cannot_remove(&path, &error);
            }
        }
        // Files that come back after a crash are obsolete still.
        let _ = self.host.disk.sync_dir(&self.dir);
    }
}

/// Why an obsolete file is kept.
pub(super) const WAS_REPLACED: &str =
    "a later file of the log replaced it, which has not read this one as it is now: what is in it is not used";

fn cannot_remove(path: &Path, error: &io::Error) {
    tracing::warn!(%error, file = %path.display(), "cannot remove an obsolete file; the next start tries again");
}
