//! Reading a file of a record log without opening the log.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use host::{Disk, DiskFile, Open};
use store::LAST_NUMBER;

use super::{
    behind::{Behind, behind, not_used},
    draft::file_name,
    folder::WAS_REPLACED,
    frame::{self, FRAME, HEADER, Header, HeaderRead, Seal, VERSION},
    place::LogEnd,
    replaced::{Replaced, replaced_by},
    walk::{ONE_BIT, Part, walk},
};
use crate::row_file::DamagedPart;

/// What a file of a log of names or events has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogReport {
    /// Bytes of the file.
    pub bytes: u64,
    /// Records that can be read.
    pub records: u64,
    /// Bytes at the end of the log that a write left which was cut off. That is normal after a crash.
    pub cut_off: u64,
    /// Where the last record ends, also one whose payload alone is damaged, or bytes that cannot be read.
    pub ends_at: u64,
    /// What cannot be read, in the order of the file.
    pub damaged: Vec<DamagedPart>,
}

/// What the headers of a log's files say of each other.
#[derive(Debug, Default)]
struct Headers {
    /// The length up to which a file counts, where a later file says so.
    ends: BTreeMap<u64, u64>,
    /// Files that continue others, by those.
    continuing: BTreeMap<u64, Vec<(PathBuf, Seal)>>,
    /// Files up to this number are obsolete.
    replaced: u64,
    /// Obsolete files, as those that replaced them read them.
    read_before: Vec<Replaced>,
    /// The files that there are.
    there: Vec<u64>,
}

impl Headers {
    fn read(disk: &dyn Disk, dir: &Path, store: Option<u128>) -> io::Result<Headers> {
        let mut headers = Headers::default();
        for entry in disk.read_dir(dir)? {
            let Some(number) = number_of(&entry.path) else { continue };
            headers.there.push(number);
            // A file that cannot be read is met again, and is damage then.
            let Ok(HeaderRead::Good(header)) = read_header(disk, &entry.path) else { continue };
            if header.number == number && store.is_none_or(|store| store == header.store) {
                headers.replaced = headers.replaced.max(header.replaces);
                if 0 < header.replaces
                    && let Ok(file) = disk.open(&entry.path, Open::Read)
                {
                    headers.read_before.extend(replaced_by(&*file, &Seal::new(header.store, number)));
                }
                if header.previous != 0 {
                    let counts = headers.ends.entry(header.previous).or_insert(0);
                    *counts = header.previous_len.max(*counts);
                    let continuing = headers.continuing.entry(header.previous).or_default();
                    continuing.push((entry.path.clone(), Seal::new(header.store, number)));
                }
            }
        }
        Ok(headers)
    }
}

/// The number of a file of a log, by its name.
pub(crate) fn number_of(path: &Path) -> Option<u64> {
    let number = path.file_name()?.to_str()?.strip_suffix(".log")?.parse().ok()?;
    (number <= LAST_NUMBER && path.file_name()?.to_str()? == file_name(number)).then_some(number)
}

fn read_header(disk: &dyn Disk, path: &Path) -> io::Result<HeaderRead> {
    frame::read_header(&*disk.open(path, Open::Read)?)
}

/// Files of a log that others name and that are not there, with the bytes that they had.
pub(crate) fn missing_files(disk: &dyn Disk, dir: &Path, store: Option<u128>) -> io::Result<Vec<(PathBuf, u64)>> {
    let headers = match Headers::read(disk, dir, store) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Headers::default(),
        headers => headers?,
    };
    let is_missing = |number: &u64| headers.replaced < *number && !headers.there.contains(number);
    let missing = headers.ends.iter().filter(|(number, _)| is_missing(number));
    Ok(missing.map(|(number, bytes)| (dir.join(file_name(*number)), *bytes)).collect())
}

/// Whether a log has what was on the disk once, or replaces it. True where that cannot be read: then other checks fail.
pub(crate) fn reaches(disk: &dyn Disk, dir: &Path, store: u128, end: LogEnd) -> bool {
    let headers = match Headers::read(disk, dir, Some(store)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Headers::default(),
        Err(_) => return true,
        Ok(headers) => headers,
    };
    if end.file <= headers.replaced {
        return true;
    }
    let path = dir.join(file_name(end.file));
    if has_record_across(disk, &path, store, end) {
        return false;
    }
    if let Some(counts) = headers.ends.get(&end.file) {
        return end.bytes <= *counts;
    }
    if !headers.there.contains(&end.file) {
        return false;
    }
    let read = check_file(disk, &path, "record", Some(store), |_, _| ());
    read.map_or(true, |report| end.bytes <= report.ends_at)
}

/// Whether a record is across a place up to which a file is known: it is another file than the one that was there. False where it
/// cannot be read.
fn has_record_across(disk: &dyn Disk, path: &Path, store: u128, end: LogEnd) -> bool {
    let Ok(file) = disk.open(path, Open::Read) else { return false };
    let mut is_across = false;
    walk(&*file, file.len().unwrap_or(0), &Seal::new(store, end.file), |part| {
        if let Part::Record(offset, _, payload) = part {
            is_across |= offset < end.bytes && end.bytes < offset + (FRAME + payload.len()) as u64;
        }
    });
    is_across
}

/// Reads all of a file that counts, and calls `each` with kind and payload of every record. `store` is that of the spec, for
/// a file whose header is damaged.
///
/// # Errors
/// The reason in words, when the file cannot be read as one of a log at all.
pub(crate) fn check_file(
    disk: &dyn Disk,
    path: &Path,
    what: &'static str,
    store: Option<u128>,
    mut each: impl FnMut(u8, &[u8]),
) -> Result<LogReport, String> {
    let file = disk.open(path, Open::Read).map_err(|error| error.to_string())?;
    let bytes = file.len().map_err(|error| error.to_string())?;
    let mut report = LogReport { bytes, ends_at: HEADER as u64, ..LogReport::default() };
    let number = number_of(path).ok_or("its name is not a number")?;
    let dir = path.parent().unwrap_or(Path::new("."));
    let headers = Headers::read(disk, dir, store).map_err(|error| error.to_string())?;
    if number <= headers.replaced {
        // A start removes what a crash left, and moves others to `damaged/`.
        let is_left = Replaced::of(number, &*file).is_ok_and(|now| headers.read_before.contains(&now));
        if !is_left {
            report.damaged.push(DamagedPart::of_file(what, bytes, WAS_REPLACED.to_owned()));
        }
        return Ok(report);
    }
    let store = match read_header(disk, path).unwrap_or(HeaderRead::Damaged) {
        HeaderRead::Newer(version) => {
            return Err(format!("a later program wrote it (version {version}, this one reads {VERSION})"));
        }
        HeaderRead::Good(header) if header.number == number && store.is_none_or(|store| store == header.store) => {
            header.store
        }
        HeaderRead::Good(_) => return Err("it is of another store or number".to_owned()),
        HeaderRead::Damaged | HeaderRead::Unread => {
            let bytes = (HEADER as u64).min(bytes);
            report.damaged.push(DamagedPart::of_file("header of a log", bytes, "its checksum is wrong"));
            store.ok_or("neither its header nor the spec can be read")?
        }
    };
    let end = headers.ends.get(&number).copied();
    let counts = end.unwrap_or(bytes).min(bytes);
    let damaged =
        |offset, until: u64, how: String| DamagedPart { offset, ..DamagedPart::of_file(what, until - offset, how) };
    let seal = Seal::new(store, number);
    walk(&*file, counts, &seal, |part| match part {
        Part::Record(offset, kind, payload) => {
            report.records += 1;
            report.ends_at = offset + (FRAME + payload.len()) as u64;
            each(kind, payload);
        }
        Part::Corrected(offset, bytes, kind, payload) => {
            report.records += 1;
            report.ends_at = offset + bytes.len() as u64;
            report.damaged.push(damaged(offset, report.ends_at, ONE_BIT.to_owned()));
            each(kind, payload);
        }
        Part::Damaged(offset, bytes) => {
            let end = offset + bytes.len() as u64;
            if seal.kinds(offset, bytes).is_some() {
                report.ends_at = end;
            }
            report.damaged.push(damaged(offset, end, "the bytes are not a record".to_owned()));
        }
        Part::Zeros(offset, bytes) => {
            report.damaged.push(damaged(offset, offset + bytes, "the bytes are zeros".to_owned()));
        }
        Part::Unread(offset, bytes) => {
            report.ends_at = offset + bytes;
            report.damaged.push(damaged(offset, offset + bytes, "the bytes cannot be read".to_owned()));
        }
        Part::Torn(offset) if end.is_some() => {
            report.damaged.push(damaged(offset, counts, "the record is cut off".to_owned()));
        }
        Part::Torn(offset) => report.cut_off = counts - offset,
    });
    if let Some(end) = end {
        let continuing = headers.continuing.get(&number).into_iter().flatten();
        let files: Option<Vec<_>> =
            continuing.map(|(path, seal)| Some((disk.open(path, Open::Read).ok()?, seal.clone()))).collect();
        let of = |files: &Vec<_>| {
            behind(
                (&*file, &seal),
                end,
                files.iter().map(|(file, seal): &(Box<dyn DiskFile>, Seal)| (&**file, seal.clone())),
            )
        };
        if files.is_some_and(|files| of(&files) == Behind::Others) {
            report.damaged.push(damaged(end, bytes.max(end), not_used(end)));
        }
    }
    if let Some(end) = end.filter(|&end| bytes < end) {
        let how = format!("the file has {bytes} bytes, and the next one says that {end} were written");
        report.damaged.push(damaged(bytes, end, how));
    }
    Ok(report)
}

/// The bytes of a file of a log that has these records.
pub(crate) fn file_bytes<'r>(store: u128, number: u64, records: impl Iterator<Item = (u8, &'r [u8])>) -> Vec<u8> {
    let header = Header { table: *b"test", store, number, replaces: 0, previous: 0, previous_len: 0 };
    let (seal, mut bytes) = (Seal::new(store, number), header.encode().to_vec());
    for (kind, payload) in records {
        seal.append(bytes.len() as u64, kind, payload, &mut bytes);
    }
    bytes
}
