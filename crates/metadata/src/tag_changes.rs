//! Metrics with tags that came, went, were hidden or shown since the tag index was last updated.

use std::collections::HashMap;

use metric::MetricId;

/// Memory of a tag of a new metric in the index: an estimate, above that of usual tags and below that of unique ones.
const TAG_BYTES: usize = 32;

/// As [`TAG_BYTES`], for saved metrics, which were there before: most of them share their values.
const SAVED_TAG_BYTES: usize = 8;

/// Changes that the tag index does not know yet. What a metric is now tells what to do, so that their order is of no
/// importance.
#[derive(Default)]
pub(crate) struct TagChanges {
    /// Changed metrics, some more than once.
    pub ids: Vec<MetricId>,
    /// The names of metrics without a record.
    pub removed: HashMap<MetricId, Box<str>>,
    /// Memory that the index will take for new metrics.
    pub estimated_bytes: usize,
}

impl TagChanges {
    pub(crate) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// A metric was created or restored.
    pub(crate) fn created(&mut self, id: MetricId, name: &str) {
        self.ids.push(id);
        self.estimated_bytes += tags_in(name) * TAG_BYTES;
    }

    /// A metric was read from a saved registry.
    pub(crate) fn read(&mut self, id: MetricId, name: &str) {
        self.ids.push(id);
        self.estimated_bytes += tags_in(name) * SAVED_TAG_BYTES;
    }

    /// A metric was hidden, or is shown again.
    pub(crate) fn hidden_or_shown(&mut self, id: MetricId) {
        self.ids.push(id);
    }

    /// A metric was removed, which had this name.
    pub(crate) fn removed(&mut self, id: MetricId, name: &str) {
        self.ids.push(id);
        self.removed.insert(id, name.into());
    }

    /// Bytes of memory held, and those that the index will take.
    pub(crate) fn memory_bytes(&self) -> usize {
        let names: usize = self.removed.values().map(|name| name.len()).sum();
        self.ids.capacity() * size_of::<MetricId>() + names + self.estimated_bytes
    }
}

fn tags_in(name: &str) -> usize {
    name.bytes().filter(|&byte| byte == b';').count()
}
