//! A handle of a file on a simulated disk.

use std::{
    io::{self, Read, Seek, SeekFrom, Write},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
};

use super::{
    plan::{Fault, dead},
    state::Shared,
    tree::Node,
};
use crate::{Call, DiskFile, Open};

/// An open file.
#[derive(Debug)]
pub(super) struct SimulatedFile {
    disk: Arc<Shared>,
    node: Node,
    path: Box<Path>,
    how: Open,
    cursor: AtomicU64,
    has_lock: AtomicBool,
}

impl SimulatedFile {
    pub(super) fn new(disk: Arc<Shared>, node: Node, path: &Path, how: Open) -> SimulatedFile {
        let (cursor, has_lock) = (AtomicU64::new(0), AtomicBool::new(false));
        SimulatedFile { disk, node, path: path.into(), how, cursor, has_lock }
    }

    /// One call of the system: writes some of the bytes.
    fn write_some(&self, bytes: &[u8]) -> io::Result<usize> {
        let (mut state, fault) = self.disk.begin_with_fault(Call::Write, &self.path)?;
        if self.how == Open::Read {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let offset = match self.how {
            Open::CreateNew => state.file(self.node).live.len() as u64,
            _ => self.cursor.load(SeqCst),
        };
        let taken = match fault {
            None => bytes,
            // A write that took some bytes before a signal returns their number instead.
            Some(Fault::EINTR) => &[],
            Some(_) => &bytes[..bytes.len() / 2],
        };
        let written = state.put(self.node, offset, taken)?;
        self.cursor.store(offset + written as u64, SeqCst);
        match fault {
            Some(Fault::Error(number)) => Err(io::Error::from_raw_os_error(number)),
            Some(Fault::Die) => {
                state.is_dead = true;
                Err(dead())
            }
            Some(Fault::ShortWrite) | None => Ok(written),
        }
    }

    fn sync(&self) -> io::Result<()> {
        match self.disk.begin_with_fault(Call::Sync, &self.path)? {
            (mut state, None | Some(Fault::ShortWrite)) => {
                state.file(self.node).sync();
                Ok(())
            }
            (mut state, Some(Fault::Error(number))) => {
                state.file(self.node).forsake();
                Err(io::Error::from_raw_os_error(number))
            }
            (mut state, Some(Fault::Die)) => {
                state.is_dead = true;
                Err(dead())
            }
        }
    }
}

impl Drop for SimulatedFile {
    fn drop(&mut self) {
        self.disk.state().tree.drop_handle(self.node, self.has_lock.load(SeqCst));
    }
}

impl Read for SimulatedFile {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut state = self.disk.begin(Call::Read, &self.path)?;
        let live = state.file(self.node).live.clone();
        let from = (self.cursor.load(SeqCst) as usize).min(live.len());
        let read = bytes.len().min(live.len() - from);
        let read = state.readable(self.node, &self.path, from as u64..(from + read) as u64)? as usize;
        drop(state);
        bytes[..read].copy_from_slice(&live[from..from + read]);
        self.cursor.fetch_add(read as u64, SeqCst);
        Ok(read)
    }
}

impl Write for SimulatedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_some(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for SimulatedFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let len = self.len()? as i64;
        let place = match to {
            SeekFrom::Start(offset) => offset as i64,
            SeekFrom::End(offset) => len + offset,
            SeekFrom::Current(offset) => self.cursor.load(SeqCst) as i64 + offset,
        };
        let place = u64::try_from(place).map_err(|_| io::ErrorKind::InvalidInput)?;
        self.cursor.store(place, SeqCst);
        Ok(place)
    }
}

impl DiskFile for SimulatedFile {
    fn write_shared(&self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let written = self.write_some(rest)?;
            if written == 0 && rest.len() > 1 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            rest = &rest[written..];
        }
        Ok(())
    }

    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let mut state = self.disk.begin(Call::Read, &self.path)?;
        let live = state.file(self.node).live.clone();
        let (from, mut place) = (offset as usize, offset);
        let found = live.get(from..from + bytes.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        let end = offset + bytes.len() as u64;
        while place < end {
            place += state.readable(self.node, &self.path, place..end)?;
        }
        drop(state);
        bytes.copy_from_slice(found);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.begin(Call::SetLen, &self.path)?.cut(self.node, len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.state().file(self.node).live.len() as u64)
    }

    fn try_lock(&self) -> io::Result<bool> {
        let mut state = self.disk.state();
        let file = state.file(self.node);
        let is_free = !file.is_locked || self.has_lock.load(SeqCst);
        if is_free {
            file.is_locked = true;
            self.has_lock.store(true, SeqCst);
        }
        Ok(is_free)
    }
}
