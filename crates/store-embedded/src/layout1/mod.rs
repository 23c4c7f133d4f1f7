//! Folders of layout 1, which had trees of an LSM library: converted once, when they are opened.
//!
//! 1. Everything that can be read is written to `store/converted/`, synced; the file `spec` in it comes last.
//! 2. Everything old moves to `store/replaced/`.
//! 3. `store/spec` says the layout of this program from here on. What is in `converted/` moves to its place.
//! 4. `replaced/` moves to the trash.
//!
//! A start after a crash in step 1 begins again; later, it continues. A tree that is damaged is converted as far as the
//! library can read it, and stays whole in `damaged/`. One that the disk does not return is read again for a while first.

mod rows;
mod tree;

use std::{
    cell::Cell,
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use host::{Host, Trash, retried};
use metric::MetricId;
use store::{Identity, StoreError};

use self::{
    rows::{OldRow, read_event, read_metric, read_row},
    tree::{OldTree, is_tree, link_all, links_of},
};
use crate::{
    damage::Reporter,
    events::EventsLog,
    folder::io_error,
    lost::Lost,
    manifest::table_of,
    names::Names,
    patience::Patience,
    points::Points,
    row_key::{GROUP_SLOTS, RowKey},
    spec,
};

/// Interval between two log lines about the progress.
const LOG_EVERY: Duration = Duration::from_secs(5);
/// Bytes of rows in memory beyond which they are written.
const UNSYNCED: u64 = 32 << 20;
/// Metrics or events that are written together.
const AT_ONCE: usize = 4096;

/// The new tables that a conversion fills.
pub(crate) struct NewTables {
    pub(crate) names: Names,
    pub(crate) events: EventsLog,
    pub(crate) points: Points,
}

/// A folder that may be of layout 1.
pub(crate) struct Layout1<'a> {
    host: &'a Host,
    dir: &'a Path,
    reporter: &'a Reporter,
    trash: &'a Trash,
    /// How long trees that the disk does not return are read again.
    read_patience: Duration,
    /// Whether the disk did not return a tree in this attempt.
    is_unread: Cell<bool>,
    /// Whether what the disk does not return is left out.
    leaves_out_unread: Cell<bool>,
}

/// The spec of a folder of layout 1, which no program wrote with a later row codec.
pub(crate) fn first_lines() -> String {
    format!("plumbago embedded store\nlayout 1\nrow codec 1\nslots per row {GROUP_SLOTS}\n")
}

/// The first lines of a spec without their numbers.
fn words_of(text: &[u8]) -> Vec<u8> {
    let lines = text.split_inclusive(|&byte| byte == b'\n').take(4).flatten();
    lines.copied().filter(|byte| !byte.is_ascii_digit()).collect()
}

impl<'a> Layout1<'a> {
    pub(crate) fn new(
        (host, dir): (&'a Host, &'a Path),
        reporter: &'a Reporter,
        trash: &'a Trash,
        read_patience: Duration,
    ) -> Layout1<'a> {
        let (is_unread, leaves_out_unread) = (Cell::new(false), Cell::new(false));
        Layout1 { host, dir, reporter, trash, read_patience, is_unread, leaves_out_unread }
    }

    /// Converts the folder if it is of layout 1, and completes a conversion that was cut off. `open` opens the tables of
    /// a new store in a folder.
    pub(crate) fn convert(
        &self,
        open: impl Fn(&Path, &Identity) -> Result<NewTables, StoreError>,
    ) -> Result<(), StoreError> {
        let disk = &*self.host.disk;
        let converted = self.dir.join("converted");
        let is_old = self.is_old()?;
        if !is_old && !disk.exists(&converted) && !disk.exists(&self.dir.join("replaced")) {
            return Ok(());
        }
        if is_old {
            // Until something moved, an earlier program may have written to the old files since.
            if !disk.exists(&converted.join("spec")) || !disk.exists(&self.dir.join("replaced")) {
                self.fill_patiently(&converted, open)?;
            }
            self.switch(&converted).map_err(io_error(format!("converting {}", self.dir.display())))?;
        }
        self.finish(&converted).map_err(io_error(format!("converting {}", self.dir.display())))
    }

    /// Whether the spec says so; without a readable one, whether the metrics table is a tree.
    fn is_old(&self) -> Result<bool, StoreError> {
        let path = self.dir.join("spec");
        let first_lines = first_lines();
        match retried(|| self.host.disk.read(&path)) {
            // Another number is another version, and not damage.
            Ok(text) if words_of(&text) == words_of(first_lines.as_bytes()) => {
                Ok(text.starts_with(first_lines.as_bytes()))
            }
            // Also one that cannot be read.
            _ => {
                let is_tree = is_tree(&*self.host.disk, &self.dir.join("metrics"));
                if is_tree {
                    self.reporter.missing(
                        "spec",
                        &path,
                        "the file is missing or damaged; the folder has the files of layout 1",
                    );
                }
                Ok(is_tree)
            }
        }
    }

    /// Removes what step 1 has made: the folder is as the earlier program left it, and the room is free again.
    fn give_up(&self, converted: &Path) {
        if let Err(error) = self.host.disk.remove_dir_all(converted) {
            tracing::warn!(%error, folder = %converted.display(), "cannot remove a conversion that failed; it takes up space until the next start");
        }
    }

    /// Step 1, and again while the disk does not return a tree; at last without what it does not return.
    fn fill_patiently(
        &self,
        converted: &Path,
        open: impl Fn(&Path, &Identity) -> Result<NewTables, StoreError>,
    ) -> Result<(), StoreError> {
        let fill = || {
            self.is_unread.set(false);
            self.fill(converted, &open).inspect_err(|_| self.give_up(converted))
        };
        let patience = Patience::new(&self.host.clock, self.read_patience);
        let filled = patience.retry(|| match fill() {
            Err(error) if self.is_unread.get() => Err(error),
            done => Ok(done),
        });
        filled.unwrap_or_else(|_| {
            self.leaves_out_unread.set(true);
            fill()
        })
    }

    fn fill(
        &self,
        converted: &Path,
        open: impl Fn(&Path, &Identity) -> Result<NewTables, StoreError>,
    ) -> Result<(), StoreError> {
        let disk = &*self.host.disk;
        let failed = || io_error(format!("making {}", converted.display()));
        tracing::info!(folder = %self.dir.display(), "converting the store to the layout of this program; the old files go to the folder trash afterwards");
        if disk.exists(converted) {
            disk.remove_dir_all(converted).map_err(failed())?;
        }
        disk.create_dir_all(converted).map_err(failed())?;
        let identity = Identity { store: self.host.random.bits_128().max(1), chain: Vec::new() };
        let new = open(converted, &identity)?;
        let mut progress = Progress { host: self.host, logged: self.host.clock.instant(), rows: 0 };
        self.names(converted, &new.names, &mut progress)?;
        self.events(converted, &new.events, &mut progress)?;
        for (table, window, path) in self.point_trees()? {
            self.points(converted, (table, window), &path, &new.points, &mut progress)?;
        }
        new.points.flush()?;
        drop(new);
        disk.remove_dir_all(&converted.join("links")).map_err(failed())?;
        host::replace_file(disk, &converted.join("spec"), spec::text_of(&identity).as_bytes()).map_err(failed())?;
        tracing::info!(rows = progress.rows, "converted the store");
        Ok(())
    }

    /// Calls `each` with the rows of a tree. A tree that is not there has none. False when it is damaged, and rows may be
    /// missing.
    fn read_tree(
        &self,
        converted: &Path,
        path: &Path,
        each: impl FnMut(&[u8], &[u8]) -> Result<(), StoreError>,
    ) -> Result<bool, StoreError> {
        let disk = &*self.host.disk;
        if !disk.exists(path) {
            return Ok(true);
        }
        let links = links_of(converted, path);
        link_all(disk, path, &links)?;
        let problem = match OldTree::open(&links) {
            Ok(tree) => tree.scan(each)?,
            Err(problem) => Some(problem),
        };
        if let Some(problem) = problem.as_ref().filter(|problem| problem.may_pass && !self.leaves_out_unread.get()) {
            self.is_unread.set(true);
            return Err(io_error(format!("reading {}", path.display()))(io::Error::other(problem.how.clone())));
        }
        if let Some(problem) = &problem {
            // The library may have removed links to what it could not read.
            disk.remove_dir_all(&links).map_err(io_error(format!("removing {}", links.display())))?;
            link_all(disk, path, &links)?;
            self.reporter.file(
                "table of layout 1",
                &links,
                0,
                &format!(
                    "{} cannot be read whole: {how}. What could be read is converted; the folder is kept as it was, and no \
                     repair reads it. If its rows matter: put the missing or damaged file of it back, from a copy of the data \
                     folder, and convert that copy with an empty data folder of its own",
                    path.display(),
                    how = problem.how
                ),
            );
        }
        Ok(problem.is_none())
    }

    fn names(&self, converted: &Path, names: &Names, progress: &mut Progress<'_>) -> Result<(), StoreError> {
        let path = self.dir.join("metrics");
        let mut policies = HashMap::new();
        let mut damaged = 0;
        // Policies sort behind the metrics that name them.
        self.read_tree(&converted.join("policies"), &path, |key, value| {
            if let Some(OldRow::Policy(id, policy)) = read_row(key, value) {
                policies.insert(id, policy);
            }
            Ok(())
        })?;
        let mut batch = Vec::new();
        self.read_tree(converted, &path, |key, value| {
            progress.row();
            match read_row(key, value) {
                Some(OldRow::Metric(id, value)) => match read_metric(id, value, &policies) {
                    Some(record) => batch.push(record),
                    None => damaged += 1,
                },
                Some(OldRow::Deleted(id)) => names.delete(&[id]),
                Some(OldRow::Policy(..)) => {}
                None => damaged += 1,
            }
            if batch.len() == AT_ONCE {
                names.put(&batch);
                batch.clear();
                if UNSYNCED < names.unsynced_bytes() {
                    names.sync()?;
                }
            }
            Ok(())
        })?;
        names.put(&batch);
        names.sync()?;
        if damaged > 0 {
            self.reporter.missing("names record", &path, &format!("{damaged} rows cannot be read"));
        }
        Ok(())
    }

    fn events(&self, converted: &Path, events: &EventsLog, progress: &mut Progress<'_>) -> Result<(), StoreError> {
        let (mut batch, mut last_id) = (Vec::new(), 0);
        self.read_tree(converted, &self.dir.join("events"), |key, value| {
            progress.row();
            batch.extend(read_event(key, value));
            if let Some(id) = key.strip_prefix(b"i").and_then(|id| id.try_into().ok()) {
                last_id = last_id.max(u64::from_be_bytes(id));
            }
            if batch.len() == AT_ONCE {
                events.restore(&batch)?;
                batch.clear();
            }
            Ok(())
        })?;
        events.restore(&batch)?;
        events.never_give_up_to(last_id)
    }

    fn point_trees(&self) -> Result<Vec<(metric::Table, u32, PathBuf)>, StoreError> {
        let list = |dir: &Path| self.host.disk.read_dir(dir).map_err(io_error(format!("listing {}", dir.display())));
        let mut trees = Vec::new();
        for entry in list(self.dir)? {
            let Some(table) = entry.name.to_str().and_then(table_of) else { continue };
            for window in list(&entry.path)? {
                let Some(number) = window.name.to_str().and_then(|name| name.parse().ok()) else { continue };
                trees.push((table, number, window.path));
            }
        }
        trees.sort();
        Ok(trees)
    }

    fn points(
        &self,
        converted: &Path,
        window: (metric::Table, u32),
        path: &Path,
        points: &Points,
        progress: &mut Progress<'_>,
    ) -> Result<(), StoreError> {
        let (mut damaged, now) = (0, self.host.clock.now());
        let is_whole = self.read_tree(converted, path, |key, value| {
            progress.row();
            let Ok(key) = <[u8; 8]>::try_from(key) else {
                damaged += 1;
                return Ok(());
            };
            let key = u64::from_be_bytes(key);
            points.restore(window, RowKey { group: (key >> 32) as u32, metric: MetricId(key as u32) }, value);
            if UNSYNCED < points.unsynced_bytes() { points.flush() } else { Ok(()) }
        })?;
        if damaged > 0 {
            self.reporter.missing("row", path, &format!("{damaged} rows cannot be read"));
        }
        if is_whole && damaged == 0 { Ok(()) } else { points.note_lost(window, &[Lost::all_of(window, now)]) }
    }

    /// Steps 2 and 3, up to the spec.
    fn switch(&self, converted: &Path) -> io::Result<()> {
        let disk = &*self.host.disk;
        let replaced = self.dir.join("replaced");
        disk.create_dir_all(&replaced)?;
        for entry in disk.read_dir(self.dir)? {
            let stays = ["lock", "spec", "converted", "replaced", "trash", "damaged"];
            if !stays.iter().any(|name| entry.name == *name) {
                disk.rename(&entry.path, &replaced.join(&entry.name))?;
            }
        }
        disk.sync_dir(&replaced)?;
        disk.sync_dir(self.dir)?;
        let spec = disk.read(&converted.join("spec"))?;
        host::replace_file(disk, &self.dir.join("spec"), &spec)
    }

    /// Step 3 from the spec on, and step 4.
    fn finish(&self, converted: &Path) -> io::Result<()> {
        let disk = &*self.host.disk;
        if disk.exists(converted) {
            for entry in disk.read_dir(converted)?.iter().filter(|entry| entry.name != "spec") {
                disk.rename(&entry.path, &self.dir.join(&entry.name))?;
            }
            disk.sync_dir(self.dir)?;
            disk.remove_dir_all(converted)?;
            disk.sync_dir(self.dir)?;
        }
        let replaced = self.dir.join("replaced");
        if disk.exists(&replaced) {
            self.trash.move_in(&replaced)?;
        }
        Ok(())
    }
}

struct Progress<'a> {
    host: &'a Host,
    logged: Instant,
    rows: u64,
}

impl Progress<'_> {
    fn row(&mut self) {
        self.rows += 1;
        if !self.rows.is_multiple_of(1 << 14) {
            return;
        }
        let now = self.host.clock.instant();
        if LOG_EVERY <= now.saturating_duration_since(self.logged) {
            self.logged = now;
            tracing::info!(rows = self.rows, "converting the store");
        }
    }
}
