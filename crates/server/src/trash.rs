//! Emptying the trash of the data folder: by running time, oldest first, and earlier while the disk is short.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use host::{Host, JudgingTime, Trash};

/// Interval between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(300);

/// With fewer free bytes on the disk, the oldest of the trash goes before its time.
const SHORT_OF_DISK: u64 = 1 << 30;

/// A start with fewer free bytes may fail at its first writes.
const NO_ROOM: u64 = 16 << 20;

/// What emptying the trash needs.
#[derive(Clone)]
pub struct Emptying {
    pub trash: Arc<Trash>,
    pub time: Arc<JudgingTime>,
    pub host: Host,
    pub data: PathBuf,
    /// How long the program must have run since something came.
    pub keep: Duration,
}

impl Emptying {
    /// Empties the trash now and then. Nothing goes while the clock is in doubt: it may be what made things expire.
    pub async fn run(self) {
        let mut before = self.host.clock.instant();
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let this = self.clone();
            let looked = tokio::task::spawn_blocking(move || this.look(before)).await;
            match looked {
                Ok((counted, emptied)) => {
                    before = counted;
                    if let Err(error) = emptied {
                        tracing::warn!(%error, "cannot empty the trash of the data folder; retrying");
                    }
                }
                Err(panic) => std::panic::resume_unwind(panic.into_panic()),
            }
        }
    }

    /// Counts the time since `before`, and deletes what is old enough. Returns up to when time is counted, whether or not all was deleted.
    fn look(&self, before: Instant) -> (Instant, io::Result<()>) {
        let now = self.host.clock.instant();
        let counted = self.trash.add_running(now.saturating_duration_since(before));
        let until = if counted.is_ok() { now } else { before };
        // Also where time cannot be counted: a disk that is full has no room for the count either. Entries are younger then.
        let emptied = if self.time.doubt().is_none() { self.empty() } else { Ok(()) };
        let counted =
            counted.map_err(|error| io::Error::new(error.kind(), format!("counting the running time: {error}")));
        (until, emptied.and(counted))
    }

    fn empty(&self) -> io::Result<()> {
        let mut emptied = Ok(());
        for entry in self.trash.entries()? {
            let is_short = self.host.disk.free_bytes(&self.data)? < SHORT_OF_DISK;
            if entry.age < self.keep && !is_short {
                // The others are younger.
                break;
            }
            if let Err(error) = self.trash.delete(&entry.name) {
                // Those behind it may go.
                emptied = Err(io::Error::new(error.kind(), format!("trash/{}: {error}", entry.name)));
                continue;
            }
            tracing::info!(
                entry = entry.what,
                bytes = entry.bytes,
                is_short_of_disk = is_short,
                "deleted from the trash"
            );
        }
        emptied
    }
}

/// Empties the trash, oldest first, before a start that has no room for its first writes. Errors are logged; the write says
/// that the disk is full.
pub fn make_room(trash: &Trash, time: &JudgingTime, host: &Host, data: &Path) {
    let is_below = |bytes: u64| host.disk.free_bytes(data).is_ok_and(|free| free < bytes);
    if !is_below(NO_ROOM) || time.doubt().is_some() {
        return;
    }
    let empty = || -> io::Result<()> {
        for entry in trash.entries()? {
            if !is_below(SHORT_OF_DISK) {
                break;
            }
            match trash.delete(&entry.name) {
                Ok(()) => {
                    tracing::warn!(entry = entry.what, bytes = entry.bytes, "deleted from the trash: the disk is full")
                }
                Err(error) => tracing::warn!(%error, entry = entry.what, "cannot delete this from the trash"),
            }
        }
        Ok(())
    };
    if let Err(error) = empty() {
        tracing::warn!(%error, "cannot empty the trash of the data folder");
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use host::{Disk as _, ManualClock, SimulatedDisk};

    use super::*;

    #[test]
    fn a_start_without_room_empties_the_trash_unless_the_clock_is_in_doubt() {
        let disk = SimulatedDisk::new();
        let data = Path::new("/data");
        disk.create_dir_all(data).unwrap();
        let clock = Arc::new(ManualClock::at(1_795_000_000));
        let host = Host { clock: clock.clone(), disk: Arc::new(disk.clone()), ..Host::system() };
        let trash = Trash::open(&host, data);
        for name in ["first", "second"] {
            disk.open(&data.join(name), host::Open::Create).unwrap().write_all(&[0; 1000]).unwrap();
            trash.move_in(&data.join(name)).unwrap();
        }
        let time = JudgingTime::of(clock.clone());
        make_room(&trash, &time, &host, data);
        assert_eq!(trash.entries().unwrap().len(), 2, "there is room");
        disk.set_capacity(2100);
        clock.set(1_895_000_000);
        make_room(&trash, &time, &host, data);
        assert_eq!(trash.entries().unwrap().len(), 2, "in doubt");
        make_room(&trash, &JudgingTime::of(clock), &host, data);
        assert_eq!(trash.entries().unwrap(), []);
    }

    #[test]
    fn a_disk_that_is_full_empties_the_trash_though_the_running_time_cannot_be_counted() {
        let (data, disk) = (Path::new("/data"), SimulatedDisk::new());
        disk.create_dir_all(data).unwrap();
        let clock = Arc::new(ManualClock::at(1_795_000_000));
        let host = Host { clock: clock.clone(), disk: Arc::new(disk.clone()), ..Host::system() };
        let trash = Arc::new(Trash::open(&host, data));
        let time = Arc::new(JudgingTime::of(clock.clone()));
        let keep = Duration::from_secs(86_400);
        let emptying = Emptying { trash, time, host, data: data.to_owned(), keep };
        disk.open(&data.join("old"), host::Open::Create).unwrap().write_all(&[0; 1000]).unwrap();
        emptying.trash.move_in(&data.join("old")).unwrap();
        disk.set_capacity(1000);
        let begin = emptying.host.clock.instant();
        clock.advance(keep / 3);
        let (counted, emptied) = emptying.look(begin);
        assert_eq!((counted, emptied.unwrap_err().kind()), (begin, io::ErrorKind::StorageFull));
        assert_eq!(emptying.trash.entries().unwrap(), []);
        // With room, the time of before counts.
        disk.set_capacity(u64::MAX);
        disk.open(&data.join("new"), host::Open::Create).unwrap().write_all(&[0; 1000]).unwrap();
        emptying.trash.move_in(&data.join("new")).unwrap();
        let (counted, emptied) = emptying.look(begin);
        emptied.unwrap();
        assert_eq!((counted, emptying.trash.entries().unwrap()[0].age), (begin + keep / 3, keep / 3));
    }

    #[test]
    fn the_age_of_trash_is_running_time_and_a_doubt_keeps_all() {
        let data = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(1_795_000_000));
        let host = Host { clock: clock.clone(), ..Host::system() };
        let trash = Arc::new(Trash::open(&host, data.path()));
        let time = Arc::new(JudgingTime::of(clock.clone()));
        let keep = Duration::from_secs(3 * 86_400);
        let emptying = Emptying { trash, time, host, data: data.path().to_owned(), keep };
        std::fs::write(data.path().join("old"), "x").unwrap();
        emptying.trash.move_in(&data.path().join("old")).unwrap();
        let entries = || emptying.trash.entries().unwrap().len();

        // A year by the calendar alone.
        let begin = emptying.host.clock.instant();
        clock.set(1_795_000_000 + 365 * 86_400);
        emptying.look(begin).1.unwrap();
        assert_eq!(entries(), 1);
        clock.advance(keep);
        let (counted, emptied) = emptying.look(begin);
        emptied.unwrap();
        assert_eq!(entries(), 1, "in doubt");
        assert!(emptying.time.trust(host::Candidate::Clock));
        emptying.look(counted).1.unwrap();
        assert_eq!(entries(), 0);
    }

    #[test]
    fn an_entry_that_cannot_be_deleted_holds_up_no_other_and_ages_nothing() {
        let (data, disk) = (Path::new("/data"), SimulatedDisk::new());
        disk.create_dir_all(data).unwrap();
        let clock = Arc::new(ManualClock::at(1_795_000_000));
        let fails = |call: host::Call, path: &Path| {
            let is_first = path.to_string_lossy().ends_with("-first");
            (call == host::Call::Remove && is_first).then(|| io::Error::from_raw_os_error(5))
        };
        let failing = host::FailingDisk::new(Arc::new(disk.clone()), fails);
        let host = Host { clock: clock.clone(), disk: Arc::new(failing), ..Host::system() };
        let trash = Arc::new(Trash::open(&host, data));
        let keep = Duration::from_secs(86_400);
        let time = Arc::new(JudgingTime::of(clock.clone()));
        let emptying = Emptying { trash, time, host, data: data.to_owned(), keep };
        for name in ["first", "second"] {
            disk.open(&data.join(name), host::Open::Create).unwrap().write_all(&[0; 10]).unwrap();
            emptying.trash.move_in(&data.join(name)).unwrap();
        }
        let names = || emptying.trash.entries().unwrap().into_iter().map(|entry| entry.what).collect::<Vec<_>>();
        let begin = emptying.host.clock.instant();
        clock.advance(keep);
        let (counted, emptied) = emptying.look(begin);
        assert!(emptied.unwrap_err().to_string().contains("-first"));
        assert_eq!(names(), ["first"]);
        // What comes now is as young as it is, however often that fails.
        disk.open(&data.join("third"), host::Open::Create).unwrap().write_all(&[0; 10]).unwrap();
        emptying.trash.move_in(&data.join("third")).unwrap();
        clock.advance(keep / 3);
        let (counted, _) = emptying.look(counted);
        clock.advance(keep / 3);
        let (counted, _) = emptying.look(counted);
        assert_eq!(names(), ["first", "third"]);
        clock.advance(keep / 3);
        emptying.look(counted).1.unwrap_err();
        assert_eq!(names(), ["first"]);
    }
}
