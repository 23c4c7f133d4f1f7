//! A file of rows read slowly and piece by piece, to find rot before a query does.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use host::{Clock, Disk, Open};
use store::{Damage, DamageLog};
use store_embedded::{DamagedPart, FileCheck};

/// Bytes that are read at once, at most, before the rest that keeps to the rate.
const PIECE: u64 = 256 << 10;

/// A piece of a file that was read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Piece {
    /// Bytes.
    pub bytes: u64,
    /// What cannot be read and was not reported before.
    pub damage: Vec<Damage>,
    /// What cannot be read, reported before or not.
    pub faults: u64,
    /// How long to wait before the next piece, to keep to the rate.
    pub rest: Duration,
}

/// How far a file is read.
enum State {
    Unread,
    Read(Box<FileCheck>),
    Done,
}

/// A file of rows of a running server that is read piece by piece.
pub struct FileScrub {
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    log: DamageLog,
    data: PathBuf,
    path: PathBuf,
    bytes_per_second: u64,
    state: State,
    /// Parts of the file's damage that were reported.
    reported: usize,
}

impl FileScrub {
    /// Of a file at a path in the data folder. Nothing is read yet.
    pub fn new(
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        log: DamageLog,
        data: &Path,
        path: &Path,
        bytes_per_second: u64,
    ) -> FileScrub {
        let (data, path) = (data.to_owned(), path.to_owned());
        FileScrub { disk, clock, log, data, path, bytes_per_second, state: State::Unread, reported: 0 }
    }

    /// Reads the next piece, and reports to the log what cannot be read. `None` at the end. A file that is gone was merged or
    /// has expired since.
    pub fn next_piece(&mut self) -> Option<Piece> {
        let full = self.data.join(&self.path);
        let mut piece = Piece::default();
        match &mut self.state {
            State::Done => return None,
            State::Unread => match FileCheck::open(&*self.disk, &full) {
                Ok(check) => self.state = State::Read(Box::new(check)),
                Err(how) => {
                    self.state = State::Done;
                    self.report_unreadable(&full, how, &mut piece);
                    return Some(piece);
                }
            },
            State::Read(check) => {
                piece.bytes = check.read(PIECE.min(self.bytes_per_second.max(1)));
                if piece.bytes == 0 {
                    self.state = State::Done;
                    return None;
                }
            }
        }
        self.report_new(&full, &mut piece);
        piece.rest = Duration::from_secs_f64(piece.bytes as f64 / self.bytes_per_second.max(1) as f64);
        Some(piece)
    }

    fn report_unreadable(&self, full: &Path, how: String, piece: &mut Piece) {
        // Merged or expired since it was listed.
        if self.disk.exists(full) {
            let bytes = self.disk.open(full, Open::Read).and_then(|file| file.len()).unwrap_or(0);
            self.report(DamagedPart::of_file("file of rows", bytes, ""), how, piece);
        }
    }

    fn report_new(&mut self, full: &Path, piece: &mut Piece) {
        let State::Read(check) = &self.state else { return };
        let new = check.report().damaged[self.reported..].to_vec();
        self.reported += new.len();
        if !new.is_empty() && self.disk.exists(full) {
            for part in new {
                // The text that a query gives the same damage, so that it counts once.
                let how = format!("bytes {} to {}: {}", part.offset, part.offset + part.bytes, part.how);
                self.report(part, how, piece);
            }
        }
    }

    fn report(&self, part: DamagedPart, how: String, piece: &mut Piece) {
        let DamagedPart { what, bytes, metrics, span, .. } = part;
        let (found_at, file) = (self.clock.now(), self.path.display().to_string());
        let damage = Damage { found_at, what, file, how, bytes, moved_to: None, metrics, span };
        piece.faults += 1;
        if self.log.report(damage.clone()) {
            piece.damage.push(damage);
        }
    }
}
