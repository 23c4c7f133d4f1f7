//! A second name of a file, or a copy where there can be none.

use std::{
    io::{self, ErrorKind, Read as _},
    path::Path,
};

use crate::{Disk, Open};

/// Bytes that are copied at once.
const CHUNK: usize = 1 << 20;

/// Whether a link is not possible where it was to be made, so that only a copy is: on another file system, on one without links,
/// where the file has as many as it can have, or where the system allows none to files of others.
pub fn is_link_refused(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::CrossesDevices | ErrorKind::Unsupported | ErrorKind::TooManyLinks | ErrorKind::PermissionDenied
    )
}

/// Why a file is neither linked nor copied.
#[derive(Debug)]
pub struct NotLinked {
    /// What the disk says.
    pub error: io::Error,
    /// Whether a link was refused, and the bytes of the file cannot be read. What is there of them may still be worth a copy.
    pub is_unread: bool,
}

impl From<NotLinked> for io::Error {
    fn from(failed: NotLinked) -> io::Error {
        failed.error
    }
}

/// Links a file, or copies it where [a link is refused](is_link_refused), and syncs the copy. Returns whether it was copied. What
/// a failed copy left is removed.
///
/// # Errors
/// Whatever the disk says.
pub fn link_or_copy(disk: &dyn Disk, from: &Path, to: &Path) -> Result<bool, NotLinked> {
    let unread = |error| NotLinked { error, is_unread: true };
    let unwritten = |error| NotLinked { error, is_unread: false };
    match disk.hard_link(from, to) {
        Err(error) if is_link_refused(&error) => {}
        linked => return linked.map(|()| false).map_err(unwritten),
    }
    let mut source = disk.open(from, Open::Read).map_err(unread)?;
    let mut copy = disk.open(to, Open::CreateNew).map_err(unwritten)?;
    let mut chunk = vec![0; CHUNK];
    let copied = loop {
        match source.read(&mut chunk) {
            Ok(0) => break copy.sync_all().map_err(unwritten),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => break Err(unread(error)),
            Ok(read) => {
                if let Err(error) = copy.write_all(&chunk[..read]) {
                    break Err(unwritten(error));
                }
            }
        }
    };
    if copied.is_err() {
        let _ = disk.remove_file(to);
    }
    copied.map(|()| true)
}

#[cfg(test)]
mod tests {
    use std::{path::PathBuf, sync::Arc};

    use super::*;
    use crate::{Call, FailingDisk, SimulatedDisk};

    #[test]
    fn what_cannot_be_linked_is_copied_and_no_half_copy_stays() {
        let memory = SimulatedDisk::new();
        let (from, to) = (PathBuf::from("from"), PathBuf::from("to"));
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| n as u8).collect();
        memory.open(&from, Open::Create).unwrap().write_shared(&bytes).unwrap();
        assert!(!link_or_copy(&memory, &from, &to).unwrap());
        for (errno, fails) in [(18, None), (18, Some(Call::Read)), (1, None), (2, None), (31, None), (5, None)] {
            memory.remove_file(&to).unwrap_or_default();
            let disk = FailingDisk::new(Arc::new(memory.clone()), move |call, _| match call {
                Call::Rename => Some(io::Error::from_raw_os_error(errno)),
                call if Some(call) == fails => Some(io::Error::from_raw_os_error(5)),
                _ => None,
            });
            let linked = link_or_copy(&disk, &from, &to);
            assert_eq!(linked.as_ref().is_err_and(|failed| failed.is_unread), fails == Some(Call::Read));
            let is_copied = linked.is_ok_and(|is_copied| is_copied);
            assert_eq!(is_copied, fails.is_none() && ![2, 5].contains(&errno), "{errno} {fails:?}");
            assert_eq!(memory.exists(&to), is_copied, "{errno} {fails:?}");
            assert!(!is_copied || memory.read(&to).unwrap() == bytes);
        }
    }
}
