//! The driver: tables found by name and time, work spread over threads, memory and files kept in bounds.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use lsm_tree::{Cache, DescriptorTable};
use metric::{MetricId, ROW_POINTS, Slot, Stage, Table, Timestamp};
use parking_lot::{Condvar, Mutex, RwLock};
use store::{
    Cells, DriverFuture, Event, Events, Fetch, MetricRecord, NameStore, NewEvent, PointStore, Run, StoreError, Usage,
};

use crate::{
    events::EventsTable,
    folder::{self, io_error},
    metrics::MetricsTable,
    rows::{GROUP_SLOTS, Rows},
    tree::{Shared, Tree},
};

/// Trees that one table is cut into, about. More make expiry finer and reads wider.
const TREES_PER_TABLE: u32 = 48;

/// Fetches below this number are answered by the asking thread.
const FEW: usize = 8;

/// How often the background thread looks for files to merge.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Looks after which a tree that was not written to is merged into one: twenty seconds, and half a second more for
/// each MiB, so that a large tree that is written every few minutes is not rewritten as often.
fn quiet_looks(tree: &Tree) -> u32 {
    u32::try_from(40 + (tree.disk_bytes() >> 20)).unwrap_or(u32::MAX)
}

/// Settings of the embedded store.
#[derive(Debug, Clone)]
pub struct EmbeddedOptions {
    /// Bytes of memory for blocks that were read.
    pub cache_bytes: u64,
    /// Bytes of rows in memory beyond which they are written to files at once.
    pub unsynced_bytes: u64,
}

impl Default for EmbeddedOptions {
    fn default() -> EmbeddedOptions {
        EmbeddedOptions { cache_bytes: 64 << 20, unsynced_bytes: 48 << 20 }
    }
}

/// The span of time of one tree: this many whole partitions of its table.
fn window_slots(stage: Stage) -> u32 {
    let partitions = stage.points().div_ceil(ROW_POINTS) + 1;
    partitions.div_ceil(TREES_PER_TABLE) * ROW_POINTS
}

/// The driver.
pub struct EmbeddedDriver {
    inner: Arc<Inner>,
    stop: Arc<Stop>,
    background: Option<thread::JoinHandle<()>>,
}

/// Tells the background thread that the driver is going.
#[derive(Default)]
struct Stop {
    is_stopped: Mutex<bool>,
    changed: Condvar,
}

struct Inner {
    dir: PathBuf,
    options: EmbeddedOptions,
    shared: Shared,
    metrics: MetricsTable,
    events: EventsTable,
    /// By table and window number.
    trees: RwLock<BTreeMap<(Table, u32), Arc<Tree>>>,
    /// Rows are read, changed and written back: one writer at a time.
    writing: Arc<tokio::sync::Mutex<()>>,
    _lock: File,
}

impl EmbeddedDriver {
    /// Opens the folder, or makes it.
    pub fn open(dir: &Path, options: EmbeddedOptions) -> Result<EmbeddedDriver, StoreError> {
        let lock = folder::open(dir)?;
        let shared = Shared {
            cache: Arc::new(Cache::with_capacity_bytes(options.cache_bytes)),
            descriptors: Arc::new(DescriptorTable::new(512)),
        };
        let metrics = MetricsTable::open(Tree::open(&dir.join("metrics"), &shared)?)?;
        let events = EventsTable::open(Tree::open(&dir.join("events"), &shared)?)?;
        let mut trees = BTreeMap::new();
        let listed = fs::read_dir(dir).map_err(io_error(format!("listing {}", dir.display())))?;
        for entry in listed {
            let entry = entry.map_err(io_error(format!("listing {}", dir.display())))?;
            let Some(table) = entry.file_name().to_str().and_then(table_of) else { continue };
            let path = entry.path();
            let windows = fs::read_dir(&path).map_err(io_error(format!("listing {}", path.display())))?;
            for window in windows {
                let window = window.map_err(io_error(format!("listing {}", path.display())))?;
                let Some(window_number) = window.file_name().to_str().and_then(|name| name.parse().ok()) else {
                    continue;
                };
                trees.insert((table, window_number), Arc::new(Tree::open(&window.path(), &shared)?));
            }
        }
        let inner = Arc::new(Inner {
            dir: dir.to_owned(),
            options,
            shared,
            metrics,
            events,
            trees: RwLock::new(trees),
            writing: Arc::default(),
            _lock: lock,
        });
        let stop = Arc::new(Stop::default());
        let (inner_there, stop_there) = (inner.clone(), stop.clone());
        let background = thread::Builder::new()
            .name("compaction".to_owned())
            .spawn(move || compact_until_stopped(&inner_there, &stop_there))
            .map_err(io_error("starting a thread".to_owned()))?;
        Ok(EmbeddedDriver { inner, stop, background: Some(background) })
    }

    /// Writes everything to files and merges them until no row is on the disk twice, as the background does when
    /// a store has been quiet for a while. Takes as long as reading and writing all of it.
    pub fn settle(&self) -> Result<(), StoreError> {
        self.inner.flush()?;
        let trees: Vec<Arc<Tree>> = self.inner.trees.read().values().cloned().collect();
        for tree in trees.iter().map(|tree| &**tree).chain(self.inner.other_trees()) {
            tree.compact_fully()?;
        }
        Ok(())
    }
}

/// Waits for the merge that is under way, so that the folder can be opened again at once.
impl Drop for EmbeddedDriver {
    fn drop(&mut self) {
        *self.stop.is_stopped.lock() = true;
        self.stop.changed.notify_all();
        if let Some(background) = self.background.take() {
            // A panic there was told by its own thread.
            let _ = background.join();
        }
    }
}

/// `datapoints_10080p_60s_0` as a table.
fn table_of(name: &str) -> Option<Table> {
    let (stage, kind) = name.strip_prefix("datapoints_")?.rsplit_once('_')?;
    let (points, resolution) = stage.strip_suffix('s')?.split_once("p_")?;
    let stage = Stage::new(resolution.parse().ok()?, points.parse().ok()?).ok()?;
    let table = Table { stage, aggregated: kind == "aggr" };
    (table.to_string() == name).then_some(table)
}

impl Inner {
    fn tree(&self, table: Table, window: u32) -> Option<Arc<Tree>> {
        self.trees.read().get(&(table, window)).cloned()
    }

    fn tree_or_new(&self, table: Table, window: u32) -> Result<Arc<Tree>, StoreError> {
        if let Some(tree) = self.tree(table, window) {
            return Ok(tree);
        }
        let mut trees = self.trees.write();
        if let Some(tree) = trees.get(&(table, window)) {
            return Ok(tree.clone());
        }
        let path = self.dir.join(table.to_string()).join(window.to_string());
        fs::create_dir_all(&path).map_err(io_error(format!("making the folder {}", path.display())))?;
        // A file is only as durable as the folders that it is in; the library sees to its own.
        for above in path.ancestors().skip(1).take(2) {
            let sync = File::open(above).and_then(|folder| folder.sync_all());
            sync.map_err(io_error(format!("syncing the folder {}", above.display())))?;
        }
        let tree = Arc::new(Tree::open(&path, &self.shared)?);
        trees.insert((table, window), tree.clone());
        Ok(tree)
    }

    fn write(&self, runs: &[Run], rows: &mut Rows) -> Result<(), StoreError> {
        let mut last: Option<((Table, u32), Arc<Tree>)> = None;
        for run in runs {
            let windows = window_slots(run.table.stage);
            for (group, place) in groups(run.first_slot, run.values.len()) {
                let first = run.first_slot + place.start as u32;
                let at = (run.table, first / windows);
                let tree = match &last {
                    Some((known, tree)) if *known == at => tree.clone(),
                    _ => last.insert((at, self.tree_or_new(at.0, at.1)?)).1.clone(),
                };
                let counts = if run.counts.is_empty() { &[] } else { &run.counts[place.clone()] };
                let offset = (first - group * GROUP_SLOTS) as usize;
                rows.write(&tree, run.metric, group, offset, &run.values[place], counts)?;
            }
        }
        Ok(())
    }

    fn fetch(&self, fetch: &Fetch, rows: &mut Rows) -> Result<Cells, StoreError> {
        let windows = window_slots(fetch.table.stage);
        let len = fetch.end_slot.saturating_sub(fetch.first_slot) as usize;
        let mut cells = Cells::default();
        for (group, place) in groups(fetch.first_slot, len) {
            let first = fetch.first_slot + place.start as u32;
            let Some(tree) = self.tree(fetch.table, first / windows) else { continue };
            let known = !cells.values.is_empty();
            if !known {
                cells.values.resize(len, f64::NAN);
                cells.counts.resize(if fetch.table.aggregated { len } else { 0 }, 0);
            }
            let counts = if fetch.table.aggregated { &mut cells.counts[place.clone()] } else { &mut [] };
            let any = rows.read(&tree, fetch.metric, group, first, &mut cells.values[place], counts)?;
            if !any && !known {
                // Not cleared: a miss keeps no memory.
                cells = Cells::default();
            }
        }
        Ok(cells)
    }

    /// Writes every tree's rows to files.
    fn flush(&self) -> Result<(), StoreError> {
        self.flush_points()?;
        self.other_trees().into_iter().try_for_each(Tree::flush)
    }

    /// Writes the rows of points to files.
    fn flush_points(&self) -> Result<(), StoreError> {
        let trees: Vec<Arc<Tree>> = self.trees.read().values().cloned().collect();
        trees.iter().try_for_each(|tree| tree.flush())
    }

    /// The trees that hold no points.
    fn other_trees(&self) -> [&Tree; 2] {
        [&self.metrics.tree, &self.events.tree]
    }

    /// Drops the trees of which nothing is kept at `now`, and deletes their folders.
    fn expire(&self, now: Timestamp) -> Result<(), StoreError> {
        let mut expired = Vec::new();
        self.trees.write().retain(|&(table, window), tree| {
            // A partition longer than it is kept: neighbours of a late point at the edge are still there.
            let until = (i64::from(window) + 1) * i64::from(window_slots(table.stage)) + i64::from(ROW_POINTS);
            let is_expired = until * i64::from(table.stage.resolution()) + table.stage.duration() < now;
            if is_expired {
                expired.push(tree.clone());
            }
            !is_expired
        });
        for tree in expired {
            tree.delete()?;
            tracing::info!(folder = %tree.path().display(), "expired points were deleted");
        }
        Ok(())
    }

    fn unsynced_bytes(&self) -> u64 {
        let trees: u64 = self.trees.read().values().map(|tree| tree.unsynced_bytes()).sum();
        trees + self.other_trees().into_iter().map(Tree::unsynced_bytes).sum::<u64>()
    }
}

/// The groups that slots lie in, and the places of the slots in each.
fn groups(first_slot: Slot, len: usize) -> impl Iterator<Item = (u32, std::ops::Range<usize>)> {
    let mut place = 0;
    std::iter::from_fn(move || {
        if place >= len {
            return None;
        }
        let slot = first_slot + place as u32;
        let group = slot / GROUP_SLOTS;
        let left = (GROUP_SLOTS - slot % GROUP_SLOTS) as usize;
        let end = len.min(place + left);
        let of_group = place..end;
        place = end;
        Some((group, of_group))
    })
}

/// Merges files until the driver is dropped.
fn compact_until_stopped(inner: &Inner, stop: &Stop) {
    // How long each tree has been quiet; one that is gets merged fully, once.
    let mut quiet: BTreeMap<PathBuf, u32> = BTreeMap::new();
    loop {
        let mut is_stopped = stop.is_stopped.lock();
        if !*is_stopped {
            stop.changed.wait_for(&mut is_stopped, LOOK_EVERY);
        }
        if *is_stopped {
            return;
        }
        drop(is_stopped);
        let trees: Vec<Arc<Tree>> = inner.trees.read().values().cloned().collect();
        for tree in trees.iter().map(|tree| &**tree).chain(inner.other_trees()) {
            if *stop.is_stopped.lock() {
                return;
            }
            let merged = match tree.compact() {
                Ok(merged) => merged,
                Err(error) => {
                    tracing::error!(%error, "files of the store cannot be merged; it is tried again when more are written");
                    continue;
                }
            };
            let looks = quiet.entry(tree.path().to_owned()).or_default();
            *looks = if merged || tree.unsynced_bytes() > 0 { 0 } else { looks.saturating_add(1) };
            if *looks == quiet_looks(tree)
                && let Err(error) = tree.compact_fully()
            {
                tracing::error!(%error, "files of the store cannot be merged; it is tried again when more are written");
            }
        }
        let others = inner.other_trees();
        let is_there = |path: &Path| trees.iter().map(|tree| &**tree).chain(others).any(|tree| tree.path() == path);
        quiet.retain(|path, _| is_there(path));
    }
}

/// Tells threads that nobody waits for them any more.
struct Cancel(Arc<AtomicBool>);

impl Drop for Cancel {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn threads() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

async fn joined<T>(task: tokio::task::JoinHandle<T>) -> Result<T, StoreError> {
    task.await.map_err(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_) => StoreError::Unavailable("the program is stopping".to_owned()),
    })
}

/// Cuts work into a piece for each thread, all runs of one metric in one piece.
fn pieces<T>(mut items: Vec<T>, metric: impl Fn(&T) -> MetricId) -> Vec<Vec<T>> {
    let each = items.len().div_ceil(threads()).max(1);
    let mut pieces = Vec::new();
    while !items.is_empty() {
        let mut end = each.min(items.len());
        while 0 < end && end < items.len() && metric(&items[end]) == metric(&items[end - 1]) {
            end += 1;
        }
        let rest = items.split_off(end);
        pieces.push(std::mem::replace(&mut items, rest));
    }
    pieces
}

impl PointStore for EmbeddedDriver {
    fn write(&self, mut runs: Vec<Run>) -> DriverFuture<'_, ()> {
        Box::pin(async move {
            // Shared by the tasks: when nobody waits for this write any more they still run to their end, and until
            // then no other may read, change and write back the same rows.
            let one = Arc::new(self.inner.writing.clone().lock_owned().await);
            // Stable: of runs that overlap, the later one wins.
            runs.sort_by_key(|run| (run.metric, run.table));
            let is_over = self.inner.unsynced_bytes() > self.inner.options.unsynced_bytes;
            if is_over {
                // Before anything is added: while the disk is full, memory does not grow.
                let (inner, one) = (self.inner.clone(), one.clone());
                joined(tokio::task::spawn_blocking(move || (inner.flush(), one).0)).await??;
            }
            let tasks: Vec<_> = pieces(runs, |run| run.metric)
                .into_iter()
                .map(|piece| {
                    let (inner, one) = (self.inner.clone(), one.clone());
                    tokio::task::spawn_blocking(move || (inner.write(&piece, &mut Rows::default()), one).0)
                })
                .collect();
            for task in tasks {
                joined(task).await??;
            }
            Ok(())
        })
    }

    fn fetch(&self, fetches: Vec<Fetch>) -> DriverFuture<'_, Vec<Cells>> {
        Box::pin(async move {
            if fetches.len() <= FEW {
                let mut rows = Rows::default();
                return fetches.iter().map(|fetch| self.inner.fetch(fetch, &mut rows)).collect();
            }
            let cancelled = Arc::new(AtomicBool::new(false));
            let _cancel = Cancel(cancelled.clone());
            let mut answers = Vec::with_capacity(fetches.len());
            let tasks: Vec<_> = pieces(fetches, |fetch| fetch.metric)
                .into_iter()
                .map(|piece| {
                    let (inner, cancelled) = (self.inner.clone(), cancelled.clone());
                    tokio::task::spawn_blocking(move || {
                        let mut rows = Rows::default();
                        let wanted = piece.iter().take_while(|_| !cancelled.load(Relaxed));
                        wanted.map(|fetch| inner.fetch(fetch, &mut rows)).collect::<Result<Vec<Cells>, StoreError>>()
                    })
                })
                .collect();
            for task in tasks {
                answers.extend(joined(task).await??);
            }
            Ok(answers)
        })
    }

    fn sync(&self) -> DriverFuture<'_, ()> {
        Box::pin(async move {
            // Writers go on meanwhile: what they add is in the next memtable.
            let inner = self.inner.clone();
            joined(tokio::task::spawn_blocking(move || inner.flush_points())).await?
        })
    }

    fn expire(&self, now: Timestamp) -> DriverFuture<'_, ()> {
        Box::pin(async move {
            let one = self.inner.writing.clone().lock_owned().await;
            let inner = self.inner.clone();
            let expire = move || (inner.expire(now), one).0;
            joined(tokio::task::spawn_blocking(expire)).await?
        })
    }

    fn usage(&self) -> Usage {
        let trees = self.inner.trees.read();
        let mut tables: Vec<Table> = trees.keys().map(|(table, _)| *table).collect();
        tables.dedup();
        let all = || trees.values().map(|tree| &**tree).chain(self.inner.other_trees());
        Usage {
            disk_bytes: all().map(Tree::disk_bytes).sum(),
            memory_bytes: all().map(Tree::unsynced_bytes).sum(),
            tables: tables.len() as u64,
        }
    }
}

impl NameStore for EmbeddedDriver {
    fn put_metrics(&self, records: Vec<MetricRecord>) -> DriverFuture<'_, ()> {
        Box::pin(async move {
            let one = self.inner.writing.clone().lock_owned().await;
            let inner = self.inner.clone();
            let put = move || {
                let _one = one;
                if inner.metrics.tree.unsynced_bytes() > inner.options.unsynced_bytes {
                    inner.metrics.tree.flush()?;
                }
                inner.metrics.put(&records);
                Ok(())
            };
            joined(tokio::task::spawn_blocking(put)).await?
        })
    }

    fn scan_metrics<'a>(&'a self, each: &'a mut (dyn FnMut(Vec<MetricRecord>) + Send)) -> DriverFuture<'a, ()> {
        // Read once, at the start, when nobody else waits for this thread.
        Box::pin(async move { self.inner.metrics.scan(each) })
    }

    fn sync_metrics(&self) -> DriverFuture<'_, ()> {
        let inner = self.inner.clone();
        Box::pin(async move { joined(tokio::task::spawn_blocking(move || inner.metrics.tree.flush())).await? })
    }
}

impl Events for EmbeddedDriver {
    fn put_event(&self, event: NewEvent) -> DriverFuture<'_, u64> {
        let inner = self.inner.clone();
        Box::pin(async move { joined(tokio::task::spawn_blocking(move || inner.events.put(&event))).await? })
    }

    fn events(&self, after: (Timestamp, u64), until: Timestamp, most: usize) -> DriverFuture<'_, Vec<Event>> {
        let inner = self.inner.clone();
        let read = move || inner.events.after(after, until, most);
        Box::pin(async move { joined(tokio::task::spawn_blocking(read)).await? })
    }

    fn event(&self, id: u64) -> DriverFuture<'_, Option<Event>> {
        let inner = self.inner.clone();
        Box::pin(async move { joined(tokio::task::spawn_blocking(move || inner.events.get(id))).await? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tables_name_says_which_it_is() {
        for name in ["datapoints_10080p_60s_0", "datapoints_720p_3600s_aggr"] {
            assert_eq!(table_of(name).unwrap().to_string(), name);
        }
        for name in ["metrics", "datapoints_10080p_60s_x", "datapoints_0p_60s_0", "datapoints_1p_60_0"] {
            assert_eq!(table_of(name), None, "{name}");
        }
    }

    #[test]
    fn slots_are_cut_at_groups() {
        let cut = |first, len| groups(first, len).collect::<Vec<_>>();
        assert_eq!(cut(1998, 4), [(1, 0..2), (2, 2..4)]);
        assert_eq!(cut(0, 2500), [(0, 0..1000), (1, 1000..2000), (2, 2000..2500)]);
        assert_eq!(cut(5, 0), []);
    }

    #[test]
    fn a_window_is_whole_partitions_and_a_table_has_few() {
        for points in [1, 1440, 10_080, 86_400, 31_536_000] {
            let slots = window_slots(Stage::new(1, points).unwrap());
            assert_eq!(slots % ROW_POINTS, 0);
            assert!(points / slots <= TREES_PER_TABLE);
        }
    }
}
