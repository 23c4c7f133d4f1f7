//! The end of the journal: the file that records are appended to.

use std::{io, sync::Arc};

use host::DiskFile;

use super::{
    names::UnwrittenNames,
    record::{MAGIC, RecordWriter},
};

/// The current segment.
#[derive(Debug)]
pub(super) struct Writer {
    file: Arc<dyn DiskFile>,
    segment: u64,
    length: u64,
    /// Closed segments that were not synced before they were closed.
    unsynced: Vec<Arc<dyn DiskFile>>,
    /// Policies that the current segment names.
    named: Vec<u16>,
    scratch: RecordWriter,
}

impl Writer {
    pub(super) fn new(file: Arc<dyn DiskFile>, segment: u64) -> Writer {
        Writer {
            file,
            segment,
            length: MAGIC.len() as u64,
            unsynced: Vec::new(),
            named: Vec::new(),
            scratch: RecordWriter::default(),
        }
    }

    pub(super) fn segment(&self) -> u64 {
        self.segment
    }

    /// Bytes of the current segment.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Whether the current segment has no record.
    pub(super) fn is_empty(&self) -> bool {
        self.length == MAGIC.len() as u64
    }

    /// Appends the names, then the record. On an error none of it is in the segment, and the names stay unwritten.
    pub(super) fn append(&mut self, names: &mut UnwrittenNames, record: &[u8]) -> io::Result<()> {
        let before = self.length;
        match self.write_names(names).and_then(|()| self.write(record)) {
            Ok(()) => {
                // Only now: a record that fails takes the names before it back as well.
                names.metrics.clear();
                self.named.extend(names.policies.drain(..).map(|(id, _)| id));
                Ok(())
            }
            Err(error) => {
                // Cut the torn record off: the next one must begin where the last complete one ended.
                let cut = self.file.set_len(before);
                self.length = before;
                cut.and(Err(error))
            }
        }
    }

    fn write_names(&mut self, names: &mut UnwrittenNames) -> io::Result<()> {
        for (id, policy) in &names.policies {
            if !self.named.contains(id) {
                let mut scratch = std::mem::take(&mut self.scratch);
                let written = self.write(scratch.policy(*id, policy));
                self.scratch = scratch;
                written?;
            }
        }
        self.write(names.metrics.finish())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !bytes.is_empty() {
            self.file.write_shared(bytes)?;
            self.length += bytes.len() as u64;
        }
        Ok(())
    }

    /// Goes on in `file`, which is the next segment.
    pub(super) fn begin_segment(&mut self, file: Arc<dyn DiskFile>) {
        self.unsynced.push(std::mem::replace(&mut self.file, file));
        self.segment += 1;
        self.length = MAGIC.len() as u64;
        self.named.clear();
    }

    /// The files that may hold bytes that are not on the disk, the current one last.
    pub(super) fn unsynced(&self) -> Vec<Arc<dyn DiskFile>> {
        self.unsynced.iter().chain([&self.file]).cloned().collect()
    }

    /// Forgets the first `count` closed segments: they are on the disk.
    pub(super) fn synced(&mut self, count: usize) {
        self.unsynced.drain(..count);
    }
}
