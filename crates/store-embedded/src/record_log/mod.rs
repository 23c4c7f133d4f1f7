//! A log of small records: what is appended last counts.
//!
//! Files are numbered from 1 on and read in order. A write is on the disk when it returns:
//!
//! 1. The records go to the end of the last file, and the file is synced.
//! 2. After a write that failed, what it left is cut off.
//! 3. After a sync that failed, the file is not used again: which of its pages are on the disk is not known, and a second
//!    sync would not say. The next file gets the records, and names the length up to which the file before it counts.
//! 4. A file that is begun has its first records before it has its name, so that none is there without the note why.
//!
//! A file that replaces the others is written whole, synced and renamed before the others go. Damage costs the records
//! that it touches: reading goes on at the next whole record.

mod behind;
mod check;
mod draft;
mod files;
mod folder;
mod frame;
mod lost_end;
mod place;
mod records;
mod replaced;
mod walk;

use std::{
    collections::BTreeMap,
    io::{self, SeekFrom},
    path::Path,
    sync::Arc,
};

use host::DiskFile;
use store::StoreError;

use self::{
    behind::{Behind, behind, not_used},
    draft::{Draft, write_draft},
    files::LogFile,
    folder::Found,
    frame::{FRAME, Header, Seal},
    replaced::{REPLACED, Replaced},
    walk::{Part, walk},
};
pub use self::{check::LogReport, files::CopiedLog, walk::ONE_BIT};
pub(crate) use self::{
    check::{check_file, file_bytes, missing_files, number_of, reaches},
    files::LogFiles,
    folder::{LogFolder, WhenUnread},
    frame::{HEADER, LONGEST_CORRECTED, LONGEST_PAYLOAD, VERSION, newer, store_of},
    lost_end::{LostEnd, encode_end},
};
pub(crate) use self::{
    place::{LogEnd, LogEnds, Place},
    records::Records,
};
use crate::folder::io_error;

/// Bytes of records that one write has, about.
const PIECE: usize = 256 << 10;

const NOT_A_RECORD: &str = "the bytes are not a record";

fn cut_off(offset: u64) -> String {
    format!("the record at byte {offset} is cut off")
}

fn zeros(offset: u64, bytes: u64) -> String {
    format!("{bytes} bytes from byte {offset} on are zeros")
}

/// Why [`RecordLog::rewrite`] is given up when a record that counts is not there any more.
pub(crate) fn rotted() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "records were damaged since the start; they are in damage of /admin/status",
    )
}

/// A log that is written to.
#[derive(Debug)]
pub(crate) struct RecordLog {
    folder: LogFolder,
    files: LogFiles,
    /// The number of the file that is appended to. `None` where the next write begins one.
    tail: Option<u64>,
    next_number: u64,
    /// Files up to this number were replaced.
    replaced: u64,
    /// The last file that was there when the log was opened.
    last_read: u64,
    /// Where the last record of each file ended, also one whose payload alone is damaged, or bytes that could not be read.
    ends_at: BTreeMap<u64, u64>,
    /// Whether a record is across the place up to which the log is known: another file than the one that was there.
    is_other: bool,
    /// The length up to which a file counts that a later one continues, also where it is not there.
    continued: BTreeMap<u64, u64>,
    /// Whether damaged or unsure bytes are in the files, which a rewrite leaves out.
    wants_rewrite: bool,
    /// Whether `damaged/` did not take all damaged bytes: the files stay until it does.
    has_unkept: bool,
    /// Whether reads of some bytes failed when the log was opened. The files that have them are never removed: another
    /// start may read them.
    has_unread: bool,
    /// Files that could not be read at all, and their lengths.
    unread: Vec<(u64, u64)>,
    /// Bytes that are damaged, or could not be read or found when the log was opened.
    hidden_bytes: u64,
    /// Whether a file, or the end of one, is not there that another file or the manifest knows. It may be put back.
    is_incomplete: bool,
    /// Whether records were lost before the log was opened.
    has_damage: bool,
    /// The last place, a file and an offset, of damaged records of each kind when the log was opened; `None` stands for those
    /// whose kind is not known.
    lost: BTreeMap<Option<u8>, (u64, u64)>,
    /// Whether a rewrite has found records damaged that were whole when the log was opened.
    has_rotted: bool,
}

impl RecordLog {
    /// Opens the files of a folder, and calls `each` with every record, in order.
    ///
    /// # Errors
    /// [`StoreError::Spec`] for a file of a later format, and [`StoreError::Io`] where nothing of a required file can be
    /// read; nothing is changed then.
    pub(crate) fn open(folder: LogFolder, mut each: impl FnMut(Place, u8, &[u8])) -> Result<RecordLog, StoreError> {
        let Found { headers, unread, highest, replaced } = folder.find()?;
        let is_there = |number: &u64| headers.contains_key(number) || unread.iter().any(|(unread, _)| unread == number);
        let absent = folder.known.filter(|end| replaced < end.file && !is_there(&end.file));
        let is_missing = |before: &u64| replaced < *before && !is_there(before);
        let missing = headers.values().map(|header| header.previous).filter(is_missing).max();
        let mut continued = BTreeMap::new();
        for header in headers.values().filter(|header| 0 < header.previous) {
            // A start that did not find the file behind one begins another behind the same.
            let counts = continued.entry(header.previous).or_insert(0);
            *counts = header.previous_len.max(*counts);
        }
        let mut log = RecordLog {
            files: LogFiles::default(),
            tail: None,
            next_number: highest + 1,
            replaced,
            last_read: 0,
            ends_at: BTreeMap::new(),
            is_other: false,
            continued,
            wants_rewrite: false,
            has_unkept: false,
            has_unread: !unread.is_empty(),
            hidden_bytes: unread.iter().map(|(_, bytes)| bytes).chain(absent.iter().map(|end| &end.bytes)).sum(),
            unread,
            is_incomplete: absent.is_some() || missing.is_some(),
            has_damage: false,
            lost: BTreeMap::new(),
            has_rotted: false,
            folder,
        };
        log.lost.extend(missing.map(|before| (None, (before, u64::MAX))));
        let last = headers.keys().next_back().copied();
        // Behind a file that is not there now, and that comes later, nothing may be appended to the one before it.
        let last = last.filter(|last| absent.is_none_or(|end| end.file < *last));
        for &number in headers.keys() {
            log.read_file(number, Some(number) == last, &mut each)?;
        }
        for (&number, &counts) in &log.continued {
            let continuing = headers.iter().filter(|(_, header)| header.previous == number);
            log.wants_rewrite |= log.keeps_others(number, counts, continuing.map(|(continuing, _)| *continuing));
        }
        // Behind damage the next record is found. A new file at each start would be without end while the log is not written again.
        if log.has_unread {
            log.tail = None;
        }
        Ok(log)
    }

    /// The folder and files, for readers.
    pub(crate) fn files(&self) -> LogFiles {
        self.files.clone()
    }

    /// The folder.
    pub(crate) fn folder(&self) -> &LogFolder {
        &self.folder
    }

    /// Copies the files into a folder; see [`LogFiles::copy_into`]. Those that could not be read at all when the log was opened are
    /// read again.
    pub(crate) fn copy_into(&self, into: &Path) -> Result<Vec<CopiedLog>, StoreError> {
        let disk = &*self.folder.host.disk;
        let mut copied = Vec::new();
        for (number, len) in &self.unread {
            copied.push(files::copy_unread(disk, &self.folder.path(*number), *len, into)?);
        }
        copied.extend(self.files.copy_into(disk, into)?);
        Ok(copied)
    }

    /// Whether the files are where they were.
    fn check_places(&self) -> Result<(), StoreError> {
        self.files.check_places(&self.folder.dir)
    }

    /// Whether the log has what was on the disk once, or replaces it. `None` where the file is there and cannot be read now.
    pub(crate) fn reaches(&self, end: LogEnd) -> Option<bool> {
        if end.file <= self.replaced {
            return Some(true);
        }
        if self.is_other && self.folder.known == Some(end) {
            return Some(false);
        }
        // The folder reports what is missing of a file that a later one continues.
        if let Some(read) = self.continued.get(&end.file).or_else(|| self.ends_at.get(&end.file)) {
            return Some(end.bytes <= *read);
        }
        (!self.folder.host.disk.exists(&self.folder.path(end.file))).then_some(false)
    }

    /// Whether reads of some bytes failed when the log was opened.
    pub(crate) fn has_unread(&self) -> bool {
        self.has_unread
    }

    /// Whether a file, or the end of one, was not there when the log was opened. Until it is back, or given up, a log is not written
    /// again: a file that is replaced is not read any more.
    pub(crate) fn is_incomplete(&self) -> bool {
        self.is_incomplete
    }

    /// Whether an end that was lost is there again.
    pub(crate) fn is_back(&self, lost: &LostEnd) -> bool {
        lost.is_back(|file| self.ends_at.get(&file).copied())
    }

    /// Whether an end that was lost would be read if it were put back: nothing has replaced its file.
    pub(crate) fn would_be_read(&self, lost: &LostEnd) -> bool {
        self.replaced < lost.end.file
    }

    /// An end of the log that was lost and whose place is not known.
    pub(crate) fn unknown_end(&self) -> LogEnd {
        let last = self.files.0.read().last_key_value().map_or(0, |(number, _)| *number);
        LogEnd { file: last.max(self.replaced + 1), bytes: u64::MAX }
    }

    /// The most records that the bytes can have which are damaged, or could not be read or found when the log was opened.
    pub(crate) fn most_hidden(&self) -> u64 {
        self.hidden_bytes / FRAME as u64
    }

    /// Whether records were lost before the log was opened.
    pub(crate) fn has_damage(&self) -> bool {
        self.has_damage
    }

    /// The last place where a record of this kind may have been lost before the log was opened, in a file that is there or between
    /// others. Records from there on are later.
    pub(crate) fn last_lost(&self, kind: u8) -> Option<(u64, u64)> {
        self.lost.get(&None).copied().max(self.lost.get(&Some(kind)).copied())
    }

    /// Whether a place is behind all records that its file had when the log was opened, or behind the last file.
    pub(crate) fn is_at_end(&self, (file, offset): (u64, u64)) -> bool {
        self.ends_at.get(&file).map_or(self.last_read < file, |ends_at| *ends_at <= offset)
    }

    /// Whether a rewrite would leave out damaged bytes.
    pub(crate) fn wants_rewrite(&self) -> bool {
        self.wants_rewrite
    }

    /// Reads a file up to where a later one continues it, or to its own end. The last one is appended to from then on.
    fn read_file(
        &mut self,
        number: u64,
        is_last: bool,
        each: &mut dyn FnMut(Place, u8, &[u8]),
    ) -> Result<(), StoreError> {
        let path = self.folder.path(number);
        let mut file = self.folder.open_to_append(number)?;
        let found = file.len().map_err(io_error(format!("reading {}", path.display())))?;
        let end = self.continued.get(&number).copied();
        let wanted = end.unwrap_or(found);
        let (what, reporter) = (self.folder.what, &self.folder.reporter);
        if found < wanted {
            let how = format!("the file has {found} bytes instead of {wanted}");
            reporter.missing(what, &path, &how);
            (self.is_incomplete, self.wants_rewrite, self.has_damage) = (true, true, true);
            self.lost.insert(None, (number, found));
        }
        let seal = Seal::new(self.folder.store, number);
        let (mut good_until, mut is_damaged, mut is_corrected, mut is_unsure) = (HEADER as u64, false, false, false);
        let (mut records, mut unread, mut damaged, mut ends_at) = (0_u64, 0, 0, HEADER as u64);
        let known = self.folder.known.filter(|known| known.file == number).map(|known| known.bytes);
        let (lost, mut has_unkept, mut is_other) = (&mut self.lost, false, false);
        let mut lose = |kind: Option<u8>, offset: u64| {
            let last = lost.entry(kind).or_insert((number, offset));
            *last = (*last).max((number, offset));
        };
        walk(&*file, found.min(wanted), &seal, |part| match part {
            Part::Record(offset, kind, payload) => {
                let place = Place { file: number, offset, len: payload.len() as u32 };
                each(place, kind, payload);
                good_until = offset + place.bytes();
                ends_at = good_until;
                records += 1;
                is_other |= known.is_some_and(|known| offset < known && known < ends_at);
            }
            Part::Corrected(offset, bytes, kind, payload) => {
                reporter.bytes(what, &path, offset, bytes, ONE_BIT);
                let place = Place { file: number, offset, len: payload.len() as u32 };
                each(place, kind, payload);
                good_until = offset + place.bytes();
                ends_at = good_until;
                records += 1;
                is_corrected = true;
            }
            Part::Unread(offset, bytes) => {
                good_until = offset + bytes;
                ends_at = good_until;
                unread += bytes;
            }
            Part::Damaged(offset, bytes) => {
                has_unkept |= !reporter.bytes(what, &path, offset, bytes, NOT_A_RECORD);
                let kinds = seal.kinds(offset, bytes);
                // Records of this file, whole ones but for their payloads, are not an end that was lost.
                let kinds_are_known = kinds.is_some();
                match kinds {
                    Some(kinds) => kinds.into_iter().for_each(|kind| lose(Some(kind), offset)),
                    None => lose(None, offset),
                }
                good_until = offset + bytes.len() as u64;
                if kinds_are_known {
                    ends_at = good_until;
                }
                damaged += bytes.len() as u64;
                is_damaged = true;
            }
            Part::Zeros(offset, bytes) => {
                reporter.missing(what, &path, &zeros(offset, bytes));
                lose(None, offset);
                good_until = offset + bytes;
                is_damaged = true;
            }
            Part::Torn(offset) => {
                if end.is_some() {
                    reporter.missing(what, &path, &cut_off(offset));
                    lose(None, offset);
                    is_damaged = true;
                } else {
                    tracing::info!(file = %path.display(), offset, "the last write of the file was cut off before it was complete");
                }
            }
        });
        self.has_damage |= is_damaged;
        self.has_unkept |= has_unkept;
        self.is_other |= is_other;
        self.last_read = number;
        self.ends_at.insert(number, ends_at);
        self.hidden_bytes += unread + damaged;
        if 0 < unread {
            self.folder.cannot_read(number, unread, records)?;
            self.has_unread = true;
        }
        if end.is_none() {
            // What a killed process wrote, and the name of the file, may be in memory only.
            let is_cut = is_last && good_until < found;
            let settled = if is_cut { file.set_len(good_until) } else { Ok(()) };
            let settled = settled.and_then(|()| file.sync_data());
            let settled = settled.and_then(|()| self.folder.host.disk.sync_dir(&self.folder.dir));
            match settled.and_then(|()| file.seek(SeekFrom::Start(good_until))) {
                Ok(_) => self.tail = is_last.then_some(number),
                Err(error) => {
                    tracing::error!(%error, file = %path.display(), "cannot sync a file of the store; its records are written to another one");
                    (is_damaged, is_unsure) = (true, true);
                }
            }
        }
        self.wants_rewrite |= is_damaged || is_corrected;
        let len = if end.is_some() { found.min(wanted) } else { good_until };
        is_unsure |= ends_at < len;
        self.files.0.write().insert(number, LogFile { file: Arc::from(file), seal, len, most: found, is_unsure });
        Ok(())
    }

    /// Reports records behind the length up to which a file counts that are in none of the files that continue it. Returns whether there
    /// are any. A rewrite keeps the file then, and also where that is not known.
    fn keeps_others(&self, number: u64, counts: u64, continuing: impl Iterator<Item = u64>) -> bool {
        let mut files = self.files.0.write();
        let Some(LogFile { file, seal, .. }) = files.get(&number) else { return false };
        let of = |number| files.get(&number).map(|LogFile { file, seal, .. }| (&**file, seal.clone()));
        let behind = behind((&**file, seal), counts, continuing.filter_map(of));
        if behind == Behind::Nothing {
            return false;
        }
        files.entry(number).and_modify(|file| file.most = counts);
        if behind == Behind::Others {
            self.folder.reporter.missing(self.folder.what, &self.folder.path(number), &not_used(counts));
        }
        behind == Behind::Others
    }

    /// Makes the first file of a log that has none.
    pub(crate) fn make_file(&mut self) -> Result<(), StoreError> {
        if self.files.0.read().is_empty() {
            self.begin_file(std::iter::empty())?;
        }
        Ok(())
    }

    /// Writes records, durably, and calls `each` with every one and its place. After an error none of them counts,
    /// though the next start may find some.
    pub(crate) fn write<'r>(
        &mut self,
        records: impl Iterator<Item = (u8, &'r [u8])> + Clone,
        mut each: impl FnMut(Place, u8, &'r [u8]),
    ) -> Result<(), StoreError> {
        // Also without a record: who asks relies on those before.
        self.check_places()?;
        self.folder.owner.check()?;
        if records.clone().next().is_none() {
            return Ok(());
        }
        let (file, mut offset) = loop {
            let Some(number) = self.tail else {
                // With the file, or not at all: once it is there, nothing else may say that the one before it is missing.
                break (self.begin_file(records.clone())?, HEADER as u64);
            };
            self.check_length(number)?;
            match self.append(number, records.clone()) {
                Ok(offset) => break (number, offset),
                // There is no tail any more.
                Err(AppendError::Sync) => {}
                Err(AppendError::Write(source)) => {
                    let what = format!("writing {}", self.folder.path(number).display());
                    return Err(StoreError::Io { what, source });
                }
            }
        };
        for (kind, payload) in records {
            let place = Place { file, offset, len: payload.len() as u32 };
            offset += place.bytes();
            each(place, kind, payload);
        }
        // Before the caller gives up what else has the records.
        self.check_places()
    }

    /// Refuses a file that is longer than this process knows: another one wrote to it, and these records would be over its own.
    fn check_length(&self, number: u64) -> Result<(), StoreError> {
        let LogFile { file, len, .. } = self.files.0.read()[&number].clone();
        let path = self.folder.path(number);
        let failed = || io_error(format!("writing {}", path.display()));
        let found = file.len().map_err(failed())?;
        if found <= len {
            return Ok(());
        }
        Err(failed()(io::Error::other(format!(
            "the file has {found} bytes, and this process knows {len}: another process writes to it; stop one of both"
        ))))
    }

    /// Returns where the first record is.
    fn append<'r>(&mut self, number: u64, records: impl Iterator<Item = (u8, &'r [u8])>) -> Result<u64, AppendError> {
        let LogFile { file, seal, len, .. } = self.files.0.read()[&number].clone();
        let end = match write_in_pieces(&*file, &seal, len, records) {
            Ok(end) => end,
            Err(error) => {
                // Nothing may be between the records before and those after.
                let is_cut = file.set_len(len).and_then(|()| self.folder.open_at(number, len));
                match is_cut {
                    // Its end is known as little as before.
                    Ok(file) => {
                        _ = self.files.0.write().entry(number).and_modify(|now| (now.file, now.most) = (file, len))
                    }
                    Err(_) => self.give_up_tail(number),
                }
                return Err(AppendError::Write(error));
            }
        };
        if file.sync_data().is_err() {
            self.give_up_tail(number);
            return Err(AppendError::Sync);
        }
        self.insert(number, file, seal, end);
        Ok(len)
    }

    /// A file that is on the disk as it is.
    fn insert(&self, number: u64, file: Arc<dyn DiskFile>, seal: Seal, len: u64) {
        self.files.0.write().insert(number, LogFile { file, seal, len, most: len, is_unsure: false });
    }

    /// Appends to another file, behind a write whose bytes may be in this one.
    fn give_up_tail(&mut self, number: u64) {
        self.tail = None;
        let LogFile { file, len, .. } = self.files.0.read()[&number].clone();
        // As far as that works: what was refused, or is in the next file as well, is not taken for the records of another file later.
        if self.folder.owner.check().is_ok() {
            _ = file.set_len(len);
        }
        self.files.0.write().entry(number).and_modify(|file| file.most = u64::MAX);
    }

    /// The number of a new file behind the others, which begins with these records.
    fn begin_file<'r>(&mut self, mut records: impl Iterator<Item = (u8, &'r [u8])>) -> Result<u64, StoreError> {
        let last = self.files.0.read().last_key_value().map(|(number, file)| (*number, file.len));
        let (previous, previous_len) = last.unwrap_or_default();
        self.add_file(0, (previous, previous_len), |draft| {
            records.try_for_each(|(kind, payload)| draft.put(kind, payload).map(drop))
        })
    }

    /// Writes a file that replaces all others. `fill` puts everything that counts into it. After an error the others
    /// still count. With [`rotted`] it says that a record is damaged that was whole when the log was opened: that is
    /// reported, and the log is not written again before the next start, which reads what is left.
    pub(crate) fn rewrite(&mut self, fill: impl FnOnce(&mut Draft) -> io::Result<()>) -> Result<(), StoreError> {
        if self.has_rotted {
            return Err(io_error(format!("writing {} again", self.folder.dir.display()))(rotted()));
        }
        if self.has_unkept && !self.report_damage() {
            return Err(io_error(format!("writing {} again", self.folder.dir.display()))(io::Error::other(
                "the folder damaged does not take its damaged bytes, and nothing else has them; make room there",
            )));
        }
        self.has_unkept = false;
        self.check_places()?;
        self.folder.owner.check()?;
        let replaces = self.next_number - 1;
        // Of what cannot be read now nothing is said: it is kept.
        let sources = if self.has_unread { Vec::new() } else { self.sources() };
        let fill = |draft: &mut Draft| {
            if !sources.is_empty() {
                draft.put(REPLACED, &replaced::encode(&sources))?;
            }
            fill(draft)
        };
        let number = self.add_file(replaces, (0, 0), fill).inspect_err(|error| {
            if let StoreError::Io { source, .. } = error
                && source.kind() == io::ErrorKind::InvalidData
            {
                self.has_rotted = true;
                let _ = self.report_damage();
            }
        })?;
        let old: Vec<(u64, u64)> = self.files.0.read().range(..number).map(|(n, file)| (*n, file.len)).collect();
        self.files.0.write().retain(|known, _| *known == number);
        let is_read = |number: u64| {
            let source = sources.iter().find(|source| source.number == number);
            source.is_some_and(|source| self.folder.has_length(number, source.bytes))
        };
        let (read, others): (Vec<_>, Vec<_>) = old.into_iter().partition(|(number, _)| is_read(*number));
        self.folder.remove(&read.into_iter().map(|(number, _)| number).collect::<Vec<_>>());
        for (number, bytes) in others.into_iter().chain(std::mem::take(&mut self.unread)) {
            self.folder.keep(number, bytes, "what can be read of it was written to another file");
        }
        (self.wants_rewrite, self.has_unread, self.is_incomplete) = (false, false, false);
        Ok(())
    }

    /// The files as they are now; without those that the disk does not return whole, and those that are longer than when they were
    /// read: nothing else has what is behind that.
    fn sources(&self) -> Vec<Replaced> {
        let files = self.files.0.read();
        let of = |(number, file): (&u64, &LogFile)| {
            let source = Replaced::of(*number, &*file.file).ok()?;
            (source.bytes <= file.most).then_some(source)
        };
        files.iter().filter_map(of).collect()
    }

    /// Keeps and reports what is damaged now. What was reported at the start is not reported again. Returns whether all of it is kept.
    fn report_damage(&self) -> bool {
        let mut is_kept = true;
        for (number, LogFile { file, seal, len, .. }) in &*self.files.0.read() {
            let path = self.folder.path(*number);
            walk(&**file, *len, seal, |part| match part {
                Part::Damaged(offset, bytes) => {
                    is_kept &= self.folder.reporter.bytes(self.folder.what, &path, offset, bytes, NOT_A_RECORD);
                }
                Part::Zeros(offset, bytes) => {
                    self.folder.reporter.missing(self.folder.what, &path, &zeros(offset, bytes));
                }
                Part::Torn(offset) => self.folder.reporter.missing(self.folder.what, &path, &cut_off(offset)),
                // It may be what was not kept before. Of a log that had such bytes at the start, the files are kept whole.
                Part::Unread(..) => is_kept &= self.has_unread,
                Part::Record(..) | Part::Corrected(..) => {}
            });
        }
        is_kept
    }

    fn add_file(
        &mut self,
        replaces: u64,
        (previous, previous_len): (u64, u64),
        fill: impl FnOnce(&mut Draft) -> io::Result<()>,
    ) -> Result<u64, StoreError> {
        let number = self.next_number;
        // A number is used once: a rename that failed half may still be there after a crash.
        self.next_number += 1;
        self.tail = None;
        let header =
            Header { table: self.folder.table, store: self.folder.store, number, replaces, previous, previous_len };
        let path = self.folder.path(number);
        let failed = || io_error(format!("writing {}", path.display()));
        let len = write_draft(&*self.folder.host.disk, &self.folder.dir, &header, fill).map_err(failed())?;
        let file = self.folder.open_at(number, len).map_err(failed())?;
        let seal = Seal::new(header.store, number);
        self.insert(number, file, seal, len);
        self.tail = Some(number);
        Ok(number)
    }
}

/// Writes records behind `len` bytes of a file. Returns how long the file is then.
fn write_in_pieces<'r>(
    file: &dyn DiskFile,
    seal: &Seal,
    len: u64,
    records: impl Iterator<Item = (u8, &'r [u8])>,
) -> io::Result<u64> {
    let mut end = len;
    let mut piece = Vec::new();
    for (kind, payload) in records {
        seal.append(end, kind, payload, &mut piece);
        end += (FRAME + payload.len()) as u64;
        if PIECE <= piece.len() {
            file.write_shared(&piece)?;
            piece.clear();
        }
    }
    if !piece.is_empty() {
        file.write_shared(&piece)?;
    }
    Ok(end)
}

enum AppendError {
    Write(io::Error),
    Sync,
}

#[cfg(test)]
mod tests;
