//! The trees of a store, found by table and time.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use host::DiskFile;
use lsm_tree::{Cache, DescriptorTable};
use metric::{ROW_POINTS, Slot, Stage, Table, Timestamp};
use parking_lot::RwLock;
use store::{Cells, Fetch, Run, StoreError, Usage};

use crate::{
    events::EventsTable,
    folder::{self, io_error},
    metrics::MetricsTable,
    options::EmbeddedOptions,
    rows::{GROUP_SLOTS, Rows},
    spec::Spec,
    tree::{Shared, Tree},
};

/// Trees that one table is cut into, about. More make expiry finer and reads wider.
const TREES_PER_TABLE: u32 = 48;

/// The span of time of one tree: this many whole partitions of its table.
fn window_slots(stage: Stage) -> u32 {
    let partitions = stage.points().div_ceil(ROW_POINTS) + 1;
    partitions.div_ceil(TREES_PER_TABLE) * ROW_POINTS
}

/// The trees of a store.
pub(crate) struct Tables {
    dir: PathBuf,
    pub(crate) options: EmbeddedOptions,
    shared: Shared,
    pub(crate) spec: Spec,
    pub(crate) metrics: MetricsTable,
    pub(crate) events: EventsTable,
    /// By table and window number.
    trees: RwLock<BTreeMap<(Table, u32), Arc<Tree>>>,
    /// Held until the last call has ended, also one whose caller is gone.
    _lock: Box<dyn DiskFile>,
}

impl Tables {
    /// Locks the folder and opens its trees.
    pub(crate) fn open(dir: &Path, options: EmbeddedOptions) -> Result<Tables, StoreError> {
        let lock = folder::open(&*options.host.disk, dir)?;
        let spec = Spec::open(&options.host, dir)?;
        let shared = Shared {
            cache: Arc::new(Cache::with_capacity_bytes(options.cache_bytes)),
            descriptors: Arc::new(DescriptorTable::new(512)),
            disk: options.host.disk.clone(),
        };
        let metrics = MetricsTable::open(Tree::open(&dir.join("metrics"), &shared)?)?;
        let events = EventsTable::open(Tree::open(&dir.join("events"), &shared)?)?;
        let list = |dir: &Path| options.host.disk.read_dir(dir).map_err(io_error(format!("listing {}", dir.display())));
        let mut trees = BTreeMap::new();
        for entry in list(dir)? {
            let Some(table) = entry.name.to_str().and_then(table_of) else { continue };
            for window in list(&entry.path)? {
                let Some(number) = window.name.to_str().and_then(|name| name.parse().ok()) else { continue };
                trees.insert((table, number), Arc::new(Tree::open(&window.path, &shared)?));
            }
        }
        Ok(Tables {
            dir: dir.to_owned(),
            options,
            shared,
            spec,
            metrics,
            events,
            trees: RwLock::new(trees),
            _lock: lock,
        })
    }

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
        let disk = &*self.options.host.disk;
        disk.create_dir_all(&path).map_err(io_error(format!("making the folder {}", path.display())))?;
        // A file is only as durable as the folders that it is in; the library sees to its own.
        for above in path.ancestors().skip(1).take(2) {
            disk.sync_dir(above).map_err(io_error(format!("syncing the folder {}", above.display())))?;
        }
        let tree = Arc::new(Tree::open(&path, &self.shared)?);
        trees.insert((table, window), tree.clone());
        Ok(tree)
    }

    pub(crate) fn write(&self, runs: &[Run], rows: &mut Rows) -> Result<(), StoreError> {
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

    pub(crate) fn fetch(&self, fetch: &Fetch, rows: &mut Rows) -> Result<Cells, StoreError> {
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
    pub(crate) fn flush(&self) -> Result<(), StoreError> {
        self.flush_points()?;
        self.flush_others()
    }

    /// Writes names, policies and events to files. Events are there already, unless the disk was full when they came.
    pub(crate) fn flush_others(&self) -> Result<(), StoreError> {
        self.other_trees().into_iter().try_for_each(Tree::flush)
    }

    /// Writes the rows of points to files.
    pub(crate) fn flush_points(&self) -> Result<(), StoreError> {
        self.point_trees().iter().try_for_each(|tree| tree.flush())
    }

    /// The trees that hold no points.
    pub(crate) fn other_trees(&self) -> [&Tree; 2] {
        [&self.metrics.tree, &self.events.tree]
    }

    /// Drops the trees whose points have all expired at `now`, and deletes their folders.
    pub(crate) fn expire(&self, now: Timestamp) -> Result<(), StoreError> {
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
            tracing::info!(folder = %tree.path().display(), "deleted expired points");
        }
        Ok(())
    }

    pub(crate) fn unsynced_bytes(&self) -> u64 {
        let trees: u64 = self.trees.read().values().map(|tree| tree.unsynced_bytes()).sum();
        trees + self.other_trees().into_iter().map(Tree::unsynced_bytes).sum::<u64>()
    }

    /// The trees that hold points.
    pub(crate) fn point_trees(&self) -> Vec<Arc<Tree>> {
        self.trees.read().values().cloned().collect()
    }

    /// The size of the store.
    pub(crate) fn usage(&self) -> Usage {
        let trees = self.trees.read();
        let mut tables: Vec<Table> = trees.keys().map(|(table, _)| *table).collect();
        tables.dedup();
        let all = || trees.values().map(|tree| &**tree).chain(self.other_trees());
        Usage {
            disk_bytes: all().map(Tree::disk_bytes).sum(),
            memory_bytes: all().map(Tree::unsynced_bytes).sum(),
            tables: tables.len() as u64,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_table_identifies_it() {
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
