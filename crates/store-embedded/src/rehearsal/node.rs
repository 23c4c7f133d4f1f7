//! A store of points on a simulated disk.

use std::{collections::HashSet, path::Path, sync::Arc, time::Duration};

use host::{Host, ManualClock, SeededRandom, SimulatedDisk, Trash};
use metric::{Aggregation, MetricId, Slot, Stage, Table};
use store::{Cells, DamageLog, Fetch, Identity, Run, StoreError};

use crate::{
    cache::Shared,
    merges::{MergeWith, Merges},
    opening::ReadManifest,
    points::Points,
    row_file::{Missed, ReadFrom},
    rows::Recoder,
    spec,
    status::{StoreStatus, status},
};

pub(super) const NOW: i64 = 1_700_000_000;
const DATA: &str = "/data";
const STORE: &str = "/data/store";

pub(super) struct Node {
    pub(super) disk: SimulatedDisk,
    pub(super) clock: Arc<ManualClock>,
    pub(super) damage: DamageLog,
    pub(super) points: Option<Points>,
    merges: Merges,
    pub(super) deleted: HashSet<MetricId>,
    pub(super) cache_bytes: u64,
}

pub(super) fn table(resolution: u32, points: u32, aggregated: bool) -> Table {
    Table { stage: Stage::new(resolution, points).unwrap(), aggregated, rollup: None }
}

pub(super) fn run(table: Table, metric: u32, first_slot: Slot, values: Vec<f64>) -> Run {
    Run {
        metric: MetricId(metric),
        name: String::new(),
        table,
        first_slot,
        counts: if table.aggregated { vec![3; values.len()] } else { Vec::new() },
        values,
        aggregation: Aggregation::Sum,
    }
}

fn fetch(table: Table, metric: u32, slots: std::ops::Range<Slot>) -> Fetch {
    Fetch {
        metric: MetricId(metric),
        name: String::new(),
        table,
        first_slot: slots.start,
        end_slot: slots.end,
        aggregation: Aggregation::Sum,
    }
}

impl Node {
    pub(super) fn new() -> Node {
        let mut node = Node {
            disk: SimulatedDisk::new(),
            clock: Arc::new(ManualClock::at(NOW)),
            damage: DamageLog::new(),
            points: None,
            merges: Merges::default(),
            deleted: HashSet::new(),
            cache_bytes: 1 << 20,
        };
        host::Disk::create_dir_all(&node.disk, Path::new(STORE)).unwrap();
        host::Disk::sync_dir(&node.disk, Path::new("/")).unwrap();
        host::Disk::sync_dir(&node.disk, Path::new(DATA)).unwrap();
        node.open().unwrap();
        node
    }

    /// Starts on what is on the disk.
    pub(super) fn open(&mut self) -> Result<(), StoreError> {
        let host = Host {
            clock: self.clock.clone(),
            disk: Arc::new(self.disk.clone()),
            random: Arc::new(SeededRandom::new(1)),
        };
        let data = Path::new(DATA);
        let trash = Trash::open(&host, data);
        let shared = Shared::new(&host, data, self.damage.clone(), Arc::new(trash), self.cache_bytes);
        let ours = (Identity { store: 42, chain: Vec::new() }, spec::owner_of(&host.disk, Path::new(STORE)));
        let manifest =
            ReadManifest::read(&self.disk, Path::new(STORE)).unwrap_or_else(|error| Some(ReadManifest::unread(&error)));
        self.points = Some(Points::open(Path::new(STORE), Arc::new(shared), ours, false, manifest)?);
        self.merges = Merges::default();
        Ok(())
    }

    /// The process ends, and another starts on this disk.
    pub(super) fn restart_on(&mut self, disk: SimulatedDisk) {
        self.points = None;
        self.disk = disk;
        self.open().unwrap();
    }

    pub(super) fn points(&self) -> &Points {
        self.points.as_ref().unwrap()
    }

    pub(super) fn write(&self, runs: &[Run]) {
        self.points().write(runs, &mut Recoder::default());
    }

    /// Damaged where a file cannot be opened; the driver answers with an error then.
    pub(super) fn fetch(&self, table: Table, metric: u32, slots: std::ops::Range<Slot>) -> Cells {
        let fetch = fetch(table, metric, slots);
        match self.points().fetch(&[&fetch], ReadFrom::Disk, &mut Recoder::default(), || false) {
            Ok(mut cells) => cells.remove(0),
            Err(Missed::Io(..)) => Cells { is_damaged: true, ..Cells::default() },
            Err(Missed::NotCached) => unreachable!("the disk may be read"),
        }
    }

    /// Whether a fetch fails.
    pub(super) fn is_unreadable(&self, table: Table, metric: u32, slots: std::ops::Range<Slot>) -> bool {
        let fetch = fetch(table, metric, slots);
        self.points().fetch(&[&fetch], ReadFrom::Disk, &mut Recoder::default(), || false).is_err()
    }

    /// The same slots of all metrics below a number.
    pub(super) fn fetch_all(&self, table: Table, metrics: u32, slots: std::ops::Range<Slot>) -> Vec<Cells> {
        let fetches: Vec<Fetch> = (0..metrics).map(|metric| fetch(table, metric, slots.clone())).collect();
        let fetches: Vec<&Fetch> = fetches.iter().collect();
        self.points().fetch(&fetches, ReadFrom::Disk, &mut Recoder::default(), || false).unwrap()
    }

    /// Merges what is due after a time without flushes.
    pub(super) fn merge(&self) {
        self.clock.advance(Duration::from_secs(60));
        self.with(|with| self.merges.run(with));
    }

    pub(super) fn merge_fully(&self) -> Result<(), StoreError> {
        self.with(|with| self.merges.run_fully(with))
    }

    /// Merges what is due now, and calls `between` for each block that is read.
    pub(super) fn merge_with(&self, between: &dyn Fn()) {
        let is_stopped = || {
            between();
            false
        };
        self.with(|with| self.merges.run(&MergeWith { is_stopped: &is_stopped, ..*with }));
    }

    pub(super) fn status(&self) -> StoreStatus {
        status(self.points(), &self.merges)
    }

    fn with<T>(&self, merge: impl FnOnce(&MergeWith<'_>) -> T) -> T {
        merge(&MergeWith {
            points: self.points(),
            reserve_bytes: 0,
            is_deleted: &|metric| self.deleted.contains(&metric),
            is_stopped: &|| false,
        })
    }

    /// Paths of the files of rows, in order.
    pub(super) fn row_files(&self) -> Vec<(std::path::PathBuf, u64)> {
        let mut files = self.disk.files(Path::new(STORE));
        files.retain(|(path, _)| path.extension().is_some_and(|ending| ending == "rows"));
        files.sort();
        files
    }
}
