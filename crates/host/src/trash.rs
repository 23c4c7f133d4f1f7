//! The folder `trash/`: what expired or was replaced, until it is old enough to delete.
//!
//! ```text
//! trash/00000001-1700000000-86400-store_datapoints_10080p_60s_0_7083
//! trash/running                                   "seconds 200200 crc 1a2b3c4d": seconds that the program has run
//! ```
//!
//! `crc` is the CRC-32 of the text before its word. Earlier programs wrote the seconds alone.
//!
//! The name of an entry has a number, the time by the clock, and the running time when the entry came, so that one
//! rename puts it there. Its age is running time: a clock that is wrong empties nothing.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crate::{Clock, Disk, Host, damaged_folder::flat_name, replace_file, retried};

/// The file with the running time.
const RUNNING: &str = "running";

/// Something in the trash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrashEntry {
    /// Its name in the folder.
    pub name: String,
    /// Its path before, with `_` between the parts.
    pub what: String,
    /// When it came, Unix seconds by the clock of then.
    pub since: i64,
    /// How long the program has run since.
    pub age: Duration,
    /// Bytes of it, with everything below it.
    pub bytes: u64,
}

/// The trash of a data folder. Share it: it numbers the entries.
#[derive(Debug)]
pub struct Trash {
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    data: PathBuf,
    dir: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The number of the last entry.
    last: u64,
    /// Seconds.
    running: u64,
}

impl Trash {
    /// Reads the running time so far. Without it entries are younger than they are, and nothing is lost. A trash that cannot be listed
    /// is used all the same: it has only what is to be deleted. [`Trash::entries`] says why.
    pub fn open(host: &Host, data: &Path) -> Trash {
        let dir = data.join("trash");
        let saved = retried(|| host.disk.read(&dir.join(RUNNING))).ok().and_then(|text| parse_running(&text));
        let trash = Trash {
            disk: host.disk.clone(),
            clock: host.clock.clone(),
            data: data.to_owned(),
            dir,
            state: Mutex::new(State { last: 0, running: saved.unwrap_or(0) }),
        };
        let names = trash.names().unwrap_or_else(|_| {
            // New entries come behind those that are there.
            trash.state.lock().unwrap_or_else(PoisonError::into_inner).last = trash.clock.now().try_into().unwrap_or(0);
            Vec::new()
        });
        for (number, _, running, _) in names.iter().filter_map(|name| parse(name)) {
            let mut state = trash.state.lock().unwrap_or_else(PoisonError::into_inner);
            // Without the file, entries are as young as the oldest can be.
            state.running = state.running.max(running);
            state.last = state.last.max(number);
        }
        trash
    }

    /// Moves a file or folder of the data folder here, durably. Returns its name relative to the data folder.
    pub fn move_in(&self, path: &Path) -> io::Result<String> {
        if !self.disk.exists(&self.dir) {
            self.disk.create_dir_all(&self.dir)?;
            self.disk.sync_dir(&self.data)?;
        }
        let (number, running) = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.last += 1;
            (state.last, state.running)
        };
        let what = flat_name(path.strip_prefix(&self.data).unwrap_or(path));
        let name = format!("{number:08}-{}-{running}-{what}", self.clock.now());
        self.disk.rename(path, &self.dir.join(&name))?;
        self.disk.sync_dir(&self.dir)?;
        self.disk.sync_dir(path.parent().unwrap_or(Path::new(".")))?;
        Ok(format!("trash/{name}"))
    }

    /// What is in the trash, oldest first. Bytes that cannot be counted are 0.
    pub fn entries(&self) -> io::Result<Vec<TrashEntry>> {
        let now = self.state.lock().unwrap_or_else(PoisonError::into_inner).running;
        let names = self.names()?;
        let mut parsed: Vec<_> = names.iter().filter_map(|name| Some((parse(name)?, name))).collect();
        parsed.sort_unstable();
        // An entry is not older than those before it: it may have come while the running time could not be read.
        let mut came = 0;
        let entry = |((_, since, running, what), name): ((u64, i64, u64, &str), &String)| {
            came = running.max(came);
            let age = Duration::from_secs(now.saturating_sub(came));
            // What cannot be listed can be deleted all the same, or a later look says why not.
            let bytes = self.bytes_of(&self.dir.join(name)).unwrap_or(0);
            TrashEntry { what: what.to_owned(), since, age, bytes, name: name.clone() }
        };
        Ok(parsed.into_iter().map(entry).collect())
    }

    /// Adds to the running time, durably. The caller measures with a stopwatch; what is not added is lost at a crash, and
    /// entries stay that much longer.
    pub fn add_running(&self, time: Duration) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let running = state.running + time.as_secs();
        if self.disk.exists(&self.dir) {
            replace_file(&*self.disk, &self.dir.join(RUNNING), running_text(running).as_bytes())?;
        }
        state.running = running;
        Ok(())
    }

    /// Deletes an entry.
    pub fn delete(&self, name: &str) -> io::Result<()> {
        let path = self.dir.join(name);
        let is_dir = self.disk.read_dir(&self.dir)?.iter().any(|entry| entry.path == path && entry.is_dir);
        if is_dir {
            self.disk.remove_dir_all(&path)?;
        } else {
            self.disk.remove_file(&path)?;
        }
        self.disk.sync_dir(&self.dir)
    }

    fn names(&self) -> io::Result<Vec<String>> {
        match retried(|| self.disk.read_dir(&self.dir)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            entries => Ok(entries?.into_iter().filter_map(|entry| entry.name.into_string().ok()).collect()),
        }
    }

    fn bytes_of(&self, path: &Path) -> io::Result<u64> {
        let parent = path.parent().unwrap_or(Path::new("."));
        let Some(entry) = self.disk.read_dir(parent)?.into_iter().find(|entry| entry.path == path) else {
            return Ok(0);
        };
        if entry.is_dir { self.bytes_below(path) } else { Ok(entry.len) }
    }

    fn bytes_below(&self, dir: &Path) -> io::Result<u64> {
        let mut bytes = 0;
        for entry in self.disk.read_dir(dir)? {
            bytes += if entry.is_dir { self.bytes_below(&entry.path)? } else { entry.len };
        }
        Ok(bytes)
    }
}

fn running_text(seconds: u64) -> String {
    let text = format!("seconds {seconds} ");
    format!("{text}crc {:08x}\n", crc32fast::hash(text.as_bytes()))
}

/// The seconds; `None` where the bytes are damaged.
fn parse_running(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let seconds = text.trim().trim_start_matches("seconds ").split(' ').next()?.parse().ok()?;
    let is_old = text.trim().bytes().all(|byte| byte.is_ascii_digit());
    (is_old || text == running_text(seconds)).then_some(seconds)
}

/// Number, time, running time and path of an entry's name.
fn parse(name: &str) -> Option<(u64, i64, u64, &str)> {
    let (number, rest) = name.split_once('-')?;
    let (since, rest) = rest.split_once('-')?;
    let (running, what) = rest.split_once('-')?;
    Some((number.parse().ok()?, since.parse().ok()?, running.parse().ok()?, what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Call, ManualClock};

    #[test]
    fn a_flipped_bit_in_the_running_time_makes_nothing_older() {
        assert_eq!(parse_running(b"200200\n"), Some(200_200), "of an earlier program");
        let good = running_text(200_200).into_bytes();
        assert_eq!(parse_running(&good), Some(200_200));
        for bit in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(parse_running(&bytes), None, "bit {bit}");
        }
    }

    #[test]
    fn a_running_time_that_cannot_be_read_refuses_no_start() {
        let data = tempfile::tempdir().unwrap();
        let fails = |call: Call, path: &Path| {
            (call == Call::Read && path.ends_with(RUNNING)).then(|| io::Error::other("a bad sector"))
        };
        let disk = Arc::new(crate::FailingDisk::new(Arc::new(crate::SystemDisk), fails));
        std::fs::create_dir(data.path().join("trash")).unwrap();
        std::fs::write(data.path().join("trash/running"), running_text(60)).unwrap();
        let host = Host { disk, ..Host::system() };
        assert_eq!(Trash::open(&host, data.path()).entries().unwrap(), []);
    }

    #[test]
    fn a_trash_that_cannot_be_listed_takes_what_comes() {
        let data = tempfile::tempdir().unwrap();
        let trash = data.path().join("trash");
        std::fs::create_dir(&trash).unwrap();
        std::fs::write(trash.join("00000007-1700000000-60-store_7083"), "").unwrap();
        let fails = |call: Call, path: &Path| {
            (call == Call::ReadDir && path.ends_with("trash")).then(|| io::Error::other("a bad sector"))
        };
        let disk = Arc::new(crate::FailingDisk::new(Arc::new(crate::SystemDisk), fails));
        let host = Host { disk, clock: Arc::new(ManualClock::at(1_700_000_100)), ..Host::system() };
        std::fs::write(data.path().join("7084"), "rows").unwrap();
        Trash::open(&host, data.path()).move_in(&data.path().join("7084")).unwrap();
        let entries = Trash::open(&Host::system(), data.path()).entries().unwrap();
        assert_eq!(entries.iter().map(|entry| &entry.what[..]).collect::<Vec<_>>(), ["store_7083", "7084"]);
    }

    #[test]
    fn what_came_while_the_running_time_could_not_be_read_is_not_older_than_what_came_before() {
        let data = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(1_700_000_100));
        let good = Host { clock: clock.clone(), ..Host::system() };
        let put = |trash: &Trash, name: &str| {
            std::fs::write(data.path().join(name), "rows").unwrap();
            trash.move_in(&data.path().join(name)).unwrap();
        };
        let trash = Trash::open(&good, data.path());
        trash.add_running(Duration::from_secs(2_000_000)).unwrap();
        put(&trash, "7083");
        trash.add_running(Duration::from_secs(60)).unwrap();
        let fails = |call: Call, path: &Path| {
            let is_unread = call == Call::ReadDir && path.ends_with("trash") || path.ends_with(RUNNING);
            is_unread.then(|| io::Error::other("a bad sector"))
        };
        let disk = Arc::new(crate::FailingDisk::new(Arc::new(crate::SystemDisk), fails));
        let trash = Trash::open(&Host { disk, ..good.clone() }, data.path());
        put(&trash, "7084");
        trash.add_running(Duration::from_secs(300)).unwrap();
        put(&trash, "7085");
        let entries = Trash::open(&good, data.path()).entries().unwrap();
        let ages: Vec<_> = entries.iter().map(|entry| (&entry.what[..], entry.age.as_secs())).collect();
        assert_eq!(ages, [("7083", 0), ("7084", 0), ("7085", 0)]);
    }

    #[test]
    fn entries_have_the_running_time_as_their_age_across_restarts() {
        let data = tempfile::tempdir().unwrap();
        let host = Host { clock: Arc::new(ManualClock::at(1_700_000_000)), ..Host::system() };
        let put = |trash: &Trash, name: &str| {
            let dir = data.path().join("store").join(name);
            host.disk.create_dir_all(&dir).unwrap();
            replace_file(&*host.disk, &dir.join("rows"), b"12345").unwrap();
            let moved = trash.move_in(&dir).unwrap();
            assert!(!host.disk.exists(&dir) && host.disk.exists(&data.path().join(moved).join("rows")));
        };
        let trash = Trash::open(&host, data.path());
        assert_eq!(trash.entries().unwrap(), []);
        put(&trash, "7083");
        trash.add_running(Duration::from_secs(3600)).unwrap();
        put(&trash, "7084");
        drop(trash);

        let trash = Trash::open(&host, data.path());
        trash.add_running(Duration::from_secs(60)).unwrap();
        put(&trash, "7083");
        let entries = trash.entries().unwrap();
        let shown: Vec<_> = entries.iter().map(|e| (e.what.as_str(), e.since, e.age.as_secs(), e.bytes)).collect();
        let at = 1_700_000_000;
        assert_eq!(shown, [("store_7083", at, 3660, 5), ("store_7084", at, 60, 5), ("store_7083", at, 0, 5)]);

        // Without the running time, entries are younger, not older.
        host.disk.remove_file(&data.path().join("trash/running")).unwrap();
        let trash = Trash::open(&host, data.path());
        let ages: Vec<u64> = trash.entries().unwrap().iter().map(|entry| entry.age.as_secs()).collect();
        assert_eq!(ages, [3660, 60, 0]);
        trash.delete(&entries[0].name).unwrap();
        assert_eq!(trash.entries().unwrap().len(), 2);
    }
}
