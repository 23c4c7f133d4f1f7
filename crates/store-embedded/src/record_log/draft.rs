//! A file of a record log that is written under another name first.

use std::{io, path::Path};

use host::{Disk, DiskFile, Open};

use super::{
    frame::{HEADER, Header, Seal},
    place::Place,
};

/// Bytes that are written at once.
const DRAFT_BYTES: usize = 1 << 20;

/// The name of a file.
pub(super) fn file_name(number: u64) -> String {
    format!("{number:08}.log")
}

/// A file that is not in place yet.
pub(crate) struct Draft {
    file: Box<dyn DiskFile>,
    seal: Seal,
    number: u64,
    bytes: Vec<u8>,
    /// Bytes of the file, those in memory included.
    len: u64,
}

impl Draft {
    /// Appends a record.
    pub(crate) fn put(&mut self, kind: u8, payload: &[u8]) -> io::Result<Place> {
        let place = Place { file: self.number, offset: self.len, len: payload.len() as u32 };
        self.seal.append(self.len, kind, payload, &mut self.bytes);
        self.len += place.bytes();
        if DRAFT_BYTES <= self.bytes.len() {
            self.file.write_all(&self.bytes)?;
            self.bytes.clear();
        }
        Ok(place)
    }
}

/// Writes a file under another name, syncs it, and renames it. Returns its length. A file of this number that is there is
/// not replaced.
pub(super) fn write_draft(
    disk: &dyn Disk,
    dir: &Path,
    header: &Header,
    fill: impl FnOnce(&mut Draft) -> io::Result<()>,
) -> io::Result<u64> {
    let (draft, path) = (dir.join(format!("{:08}.new", header.number)), dir.join(file_name(header.number)));
    if disk.exists(&path) {
        // A network disk can leave a file out of the list of its folder for a while.
        let there =
            "a file of this number is there already, though the list of the folder lacked it; it is left as it is";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, there));
    }
    let write = || -> io::Result<u64> {
        let mut file = disk.open(&draft, Open::Create)?;
        file.write_all(&header.encode())?;
        let seal = Seal::new(header.store, header.number);
        let mut filled = Draft { file, seal, number: header.number, bytes: Vec::new(), len: HEADER as u64 };
        fill(&mut filled)?;
        filled.file.write_all(&filled.bytes)?;
        filled.file.sync_all()?;
        Ok(filled.len)
    };
    let written = write().and_then(|len| disk.rename(&draft, &path).map(|()| len));
    match written {
        Ok(len) => disk.sync_dir(dir).map(|()| len),
        Err(error) => {
            // On a full disk these are the bytes that the next attempt needs.
            let _ = disk.remove_file(&draft);
            Err(error)
        }
    }
}
