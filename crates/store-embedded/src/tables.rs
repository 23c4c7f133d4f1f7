//! What is in the folder of a store: points, metrics and events.

use std::{path::Path, sync::Arc};

use host::{DiskFile, Trash};
use lsm_tree::{Cache, DescriptorTable};
use store::{StoreError, Usage};

use crate::{
    cache,
    events::EventsTable,
    folder::{self, io_error},
    metrics::MetricsTable,
    options::EmbeddedOptions,
    points::Points,
    spec::Spec,
    tree::{Shared, Tree},
};

/// Bytes of memory for blocks of the trees. Names are read once, events rarely.
const TREE_CACHE: u64 = 1 << 20;

/// The tables of a store.
pub(crate) struct Tables {
    pub(crate) options: EmbeddedOptions,
    pub(crate) spec: Spec,
    pub(crate) metrics: MetricsTable,
    pub(crate) events: EventsTable,
    pub(crate) points: Points,
    /// Held until the last call has ended, also one whose caller is gone.
    _lock: Box<dyn DiskFile>,
}

impl Tables {
    /// Locks the folder and opens what is in it.
    pub(crate) fn open(dir: &Path, options: EmbeddedOptions) -> Result<Tables, StoreError> {
        let host = &options.host;
        let lock = folder::open(&*host.disk, dir)?;
        let spec = Spec::open(host, dir)?;
        let shared = Shared {
            cache: Arc::new(Cache::with_capacity_bytes(TREE_CACHE)),
            descriptors: Arc::new(DescriptorTable::new(64)),
            disk: host.disk.clone(),
        };
        let metrics = MetricsTable::open(Tree::open(&dir.join("metrics"), &shared)?)?;
        let events = EventsTable::open(Tree::open(&dir.join("events"), &shared)?)?;
        let data = options.data.as_deref().unwrap_or(dir);
        let trash = Trash::open(host, data).map_err(io_error(format!("reading {}", data.join("trash").display())))?;
        let shared = cache::Shared::new(host, data, options.damage.clone(), Arc::new(trash), options.cache_bytes);
        let points = Points::open(dir, Arc::new(shared), spec.identity().store)?;
        Ok(Tables { options, spec, metrics, events, points, _lock: lock })
    }

    /// Writes everything to files.
    pub(crate) fn flush(&self) -> Result<(), StoreError> {
        self.points.flush()?;
        self.flush_others()
    }

    /// Writes names, policies and events to files. Events are there already, unless the disk was full when they came.
    pub(crate) fn flush_others(&self) -> Result<(), StoreError> {
        self.other_trees().into_iter().try_for_each(Tree::flush)
    }

    /// The trees that hold no points.
    pub(crate) fn other_trees(&self) -> [&Tree; 2] {
        [&self.metrics.tree, &self.events.tree]
    }

    /// The size of the store.
    pub(crate) fn usage(&self) -> Usage {
        let points = self.points.usage();
        let trees = self.other_trees();
        Usage {
            disk_bytes: points.disk_bytes + trees.iter().map(|tree| tree.disk_bytes()).sum::<u64>(),
            memory_bytes: points.memory_bytes + trees.iter().map(|tree| tree.unsynced_bytes()).sum::<u64>(),
            tables: points.tables,
        }
    }
}
