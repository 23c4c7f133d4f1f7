//! Reading all of a file of rows, to find damage before a query does.

use std::path::Path;

use codec::Codec;
use host::{Disk, DiskFile};
use metric::{MetricId, Table, Timestamp};

use super::{
    file_header::{Flushes, Header},
    index::{Entry, Index},
    open::{BlockError, OpenError, Opened, Problem, open, open_file, read_block},
    row_block::RowsOfBlock,
};
use crate::{
    id_set::IdSet,
    manifest::{not_its_place, window_of},
    row_key::{GROUP_SLOTS, RowKey},
};

/// Bytes of a file that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedPart {
    /// The kind of thing.
    pub what: &'static str,
    /// Offset of its first byte.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
    /// What was found instead.
    pub how: String,
    /// First and last of the metrics that may be touched; none where no row is.
    pub metrics: Option<(MetricId, MetricId)>,
    /// From and until of the points that may be touched, Unix seconds; none where no row is.
    pub span: Option<(Timestamp, Timestamp)>,
}

/// What a file of rows has.
#[derive(Debug, Clone, PartialEq)]
pub struct FileReport {
    /// The store that wrote it.
    pub store: u128,
    /// The table of its rows.
    pub table: Table,
    /// The number of its window.
    pub window: u32,
    /// First and last flush whose rows it has.
    pub flushes: (u64, u64),
    /// Bytes of the file.
    pub bytes: u64,
    /// Rows that can be read.
    pub rows: u64,
    /// Their metrics.
    pub metrics: IdSet,
    /// Values that can be read.
    pub points: u64,
    /// What cannot be read, in the order of the file.
    pub damaged: Vec<DamagedPart>,
}

impl FileReport {
    /// Why a file with this path in the folder of a store does not belong there; a start does not use it. `None` where it does, or
    /// where its path is not that of a file of rows.
    pub fn misplaced(&self, store: Option<u128>, path: &Path) -> Option<String> {
        let (table, window) = window_of(path.parent()?)?;
        let flushes = Flushes::of_file_name(path.file_name()?.to_str()?)?;
        let (first, last) = self.flushes;
        let found =
            Header { store: self.store, table: self.table, window: self.window, flushes: Flushes { first, last } };
        let place = Header { store: store.unwrap_or(self.store), table, window, flushes };
        (found != place).then(|| not_its_place(&found, place.store))
    }
}

impl DamagedPart {
    /// A file, or all that is left of it.
    pub fn of_file(what: &'static str, bytes: u64, how: impl Into<String>) -> DamagedPart {
        DamagedPart { what, offset: 0, bytes, how: how.into(), metrics: None, span: None }
    }
}

/// A file of rows that is read piece by piece. Needs the memory of one block and the index.
pub struct FileCheck {
    opened: Opened,
    index: Index,
    /// The next block.
    next: usize,
    rows: RowCheck,
    report: FileReport,
}

impl FileCheck {
    /// Opens a file, and reads its header, footer and index. One without these is read to its end here.
    ///
    /// # Errors
    /// The reason in words, when the file cannot be read as one of rows at all.
    pub fn open(disk: &dyn Disk, path: &Path) -> Result<FileCheck, String> {
        FileCheck::of_opened(open(disk, path, None))
    }

    /// As [`FileCheck::open`], of a file that is open. It is read at offsets only.
    ///
    /// # Errors
    /// The reason in words, when the file cannot be read as one of rows at all.
    pub fn of(file: Box<dyn DiskFile>) -> Result<FileCheck, String> {
        FileCheck::of_opened(open_file(file, None))
    }

    fn of_opened(opened: Result<Opened, OpenError>) -> Result<FileCheck, String> {
        let opened = opened.map_err(|error| error.to_string())?;
        let (index, problem) = opened.index().map_err(|error| error.to_string())?;
        let header = opened.header;
        let Flushes { first, last } = header.flushes;
        let mut report = FileReport {
            store: header.store,
            table: header.table,
            window: header.window,
            flushes: (first, last),
            bytes: opened.len,
            rows: 0,
            metrics: IdSet::default(),
            points: 0,
            damaged: Vec::new(),
        };
        for Problem { what, offset, bytes, how } in opened.problems.iter().cloned().chain(problem) {
            report.damaged.push(DamagedPart { offset, ..DamagedPart::of_file(what, bytes, how) });
        }
        Ok(FileCheck { opened, index, next: 0, rows: RowCheck::default(), report })
    }

    /// Reads blocks, and decodes every row, until these bytes are read. Returns how many were: none at the end of the file.
    pub fn read(&mut self, bytes: u64) -> u64 {
        let mut read = 0;
        while read < bytes.max(1)
            && let Some(&entry) = self.index.blocks.get(self.next)
        {
            self.block(entry);
            read += u64::from(entry.len);
            self.next += 1;
        }
        read
    }

    fn block(&mut self, entry: Entry) {
        let Opened { header, seal, ref file, .. } = self.opened;
        let checked = read_block(&**file, seal, entry.offset, entry.len);
        match checked.and_then(|block| self.rows.count(&block, &mut self.report.metrics)) {
            Ok((of_block, points)) => {
                self.report.rows += of_block;
                self.report.points += points;
            }
            Err(error) => {
                let summary = self.opened.summary;
                let last = self.index.last_key(self.next, summary.last).max(entry.first);
                self.report.damaged.push(DamagedPart {
                    what: "block of rows",
                    offset: entry.offset,
                    bytes: u64::from(entry.len),
                    how: error.to_string(),
                    metrics: entry.first.metrics_to(last).or(Some(summary.metrics)),
                    span: Some(entry.first.span_to(last, header.table.stage)),
                });
            }
        }
    }

    /// Reads the rest.
    pub fn finish(mut self) -> FileReport {
        while 0 < self.read(u64::MAX) {}
        self.report.damaged.sort_by_key(|part| part.offset);
        self.report
    }

    /// What was read until now.
    pub fn report(&self) -> &FileReport {
        &self.report
    }
}

/// Reads all of a file and decodes every row.
///
/// # Errors
/// The reason in words, when the file cannot be read as one of rows at all.
pub fn check_file(disk: &dyn Disk, path: &Path) -> Result<FileReport, String> {
    FileCheck::open(disk, path).map(FileCheck::finish)
}

/// Decodes rows to see that they can be.
#[derive(Default)]
struct RowCheck {
    codec: Codec,
    values: Vec<f64>,
}

impl RowCheck {
    /// Rows and values of a block; adds the rows' metrics to a set.
    fn count(&mut self, block: &[u8], metrics: &mut IdSet) -> Result<(u64, u64), BlockError> {
        let (mut rows, mut points) = (0, 0);
        for row in RowsOfBlock::new(block).map_err(|bad| BlockError::Damaged(bad.0))? {
            let (key, row): (RowKey, &[u8]) = row.map_err(|bad| BlockError::Damaged(bad.0))?;
            self.values.clear();
            self.values.resize(GROUP_SLOTS as usize, f64::NAN);
            let decoded = self.codec.decode(row, 0..GROUP_SLOTS as usize, &mut self.values, &mut []);
            decoded.map_err(|_| BlockError::Damaged("a row cannot be decoded"))?;
            rows += 1;
            metrics.insert(key.metric);
            points += self.values.iter().filter(|value| !value.is_nan()).count() as u64;
        }
        Ok((rows, points))
    }
}
