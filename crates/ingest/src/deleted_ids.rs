//! Which ids of the journal belong to metrics that were deleted further behind in it.
//!
//! An id is never given again, so that everything under it belongs to the metric that was deleted. A replay needs to know
//! this early where the name has another id by now: of a metric that was created after the deletion, which must not get
//! these points, or given by a replay to the same metric, which must. Only the record of the deletion tells the one from
//! the other.

use std::collections::{HashMap, HashSet};

use metric::MetricId;
use store::Identity;

use crate::{
    journal_ids::{JournalIds, Writer},
    read_patience::ReadPatience,
    wal::{self, Folder, Planned, Record, Segment},
};

/// The ids of a journal that it also deletes.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeletedIds {
    /// Those that are the store's, with any writer.
    common: HashSet<MetricId>,
    /// Those of one writer.
    of_writer: HashSet<(Writer, MetricId)>,
    /// The numbers of segments that could not be read whole: what they delete is not known.
    unread: HashSet<u64>,
}

impl DeletedIds {
    /// Reads all segments for deletions and, where there are any, for the names of the deleted ids: a deletion also ends
    /// the ids that the name had before it.
    pub(crate) fn scan(read: (&Folder, &ReadPatience), identity: &Identity, planned: &[Planned]) -> DeletedIds {
        let mut deletes_any = false;
        let unread = each_name(read, identity, planned, |_, _, _, name| deletes_any |= name.is_empty());
        let mut deleted = DeletedIds { unread, ..DeletedIds::default() };
        if !deletes_any {
            return deleted;
        }
        let mut names: HashMap<(Option<Writer>, MetricId), String> = HashMap::new();
        let mut ids: HashMap<String, Vec<(Option<Writer>, MetricId)>> = HashMap::new();
        let unread = each_name(read, identity, planned, |known, writer, metric, name| {
            if name.is_empty() {
                // The name may be in a segment of an opening before, and so may points.
                let before = writer.into_iter().flat_map(|writer| known.before(writer, metric)).map(Some);
                for writer in before.chain([writer]) {
                    deleted.insert(writer, metric);
                    let named = names.get(&(writer, metric)).and_then(|name| ids.remove(name));
                    named.into_iter().flatten().for_each(|(writer, metric)| deleted.insert(writer, metric));
                }
            } else if names.get(&(writer, metric)).is_none_or(|known| known != name) {
                names.insert((writer, metric), name.to_owned());
                ids.entry(name.to_owned()).or_default().push((writer, metric));
            }
        });
        deleted.unread.extend(unread);
        deleted
    }

    /// Whether pages of a segment could not be read.
    pub(crate) fn is_unread(&self, segment: &Segment) -> bool {
        self.unread.contains(&segment.number)
    }

    fn insert(&mut self, writer: Option<Writer>, metric: MetricId) {
        match writer {
            Some(writer) => _ = self.of_writer.insert((writer, metric)),
            None => _ = self.common.insert(metric),
        }
    }

    /// Whether the journal deletes the metric that this id has with this writer, of whose ids `is_common` says whether
    /// this one is the store's.
    pub(crate) fn contains(&self, writer: Writer, metric: MetricId, is_common: bool) -> bool {
        if self.common.is_empty() && self.of_writer.is_empty() {
            return false;
        }
        self.of_writer.contains(&(writer, metric)) || is_common && self.common.contains(&metric)
    }
}

/// Calls `with` for every name and deletion in the order of the journal; the writer is `None` for an id of the store.
/// What cannot be read is left out; returns the numbers of such segments.
fn each_name(
    (folder, patience): (&Folder, &ReadPatience),
    identity: &Identity,
    planned: &[Planned],
    mut with: impl FnMut(&JournalIds, Option<Writer>, MetricId, &str),
) -> HashSet<u64> {
    let (mut ids, mut unread) = (JournalIds::new(identity.clone()), HashSet::new());
    for planned in planned {
        let read = patience.read_segment(folder, &planned.segment);
        if !read.as_ref().is_ok_and(|read| read.unread.is_empty()) {
            unread.insert(planned.segment.number);
        }
        let bytes = read.map(|read| read.bytes).unwrap_or_default();
        let writer = ids.begin(planned);
        let of_writer = ids.of(writer);
        for (_, record) in wal::records(planned.part(&bytes)) {
            let Record::Metrics { metrics, .. } = record else { continue };
            for &(metric, _, name) in &metrics {
                with(&ids, (!of_writer.is_common(metric)).then_some(writer), metric, name);
            }
        }
    }
    unread
}
