//! Reading a file of a record log without opening the log.

use std::path::Path;

use host::{Disk, Open};

use super::{
    frame::{HEADER, Header, HeaderRead, Seal, VERSION},
    walk::{Part, walk},
};
use crate::row_file::DamagedPart;

/// What a file of a log of names or events has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogReport {
    /// Bytes of the file.
    pub bytes: u64,
    /// Records that can be read.
    pub records: u64,
    /// What cannot be read, in the order of the file. A write that was cut off at the end is not damage.
    pub damaged: Vec<DamagedPart>,
}

/// Reads all of a file, and calls `each` with kind and payload of every record. `store` is that of the spec, for a file
/// whose header is damaged.
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
    let mut report = LogReport { bytes, ..LogReport::default() };
    let damaged = |what, offset, bytes, how: &str| DamagedPart {
        what,
        offset,
        bytes,
        how: how.to_owned(),
        metrics: None,
        span: None,
    };
    let number = path.file_stem().and_then(|name| name.to_str()?.parse().ok()).ok_or("its name is not a number")?;
    let mut header = [0; HEADER];
    let read = file.read_exact_at(&mut header, 0).map_or(HeaderRead::Damaged, |()| Header::read(&header));
    let store = match read {
        HeaderRead::Newer(version) => {
            return Err(format!("a later program wrote it (version {version}, this one reads {VERSION})"));
        }
        HeaderRead::Good(header) if header.number == number && store.is_none_or(|store| store == header.store) => {
            header.store
        }
        HeaderRead::Good(_) => return Err("it is of another store or number".to_owned()),
        HeaderRead::Damaged | HeaderRead::Unread => {
            let bytes = (HEADER as u64).min(bytes);
            report.damaged.push(damaged("header of a log", 0, bytes, "its checksum is wrong"));
            store.ok_or("neither its header nor the spec can be read")?
        }
    };
    walk(&*file, bytes, &Seal::new(store, number), |part| match part {
        Part::Record(_, kind, payload) => {
            report.records += 1;
            each(kind, payload);
        }
        Part::Damaged(offset, bytes) => {
            report.damaged.push(damaged(what, offset, bytes.len() as u64, "the bytes are not a record"));
        }
        Part::Unread(offset, bytes) => report.damaged.push(damaged(what, offset, bytes, "the bytes cannot be read")),
        Part::Torn(_) => {}
    });
    Ok(report)
}
