//! The owners that points are put back to, and how a segment is read.

use std::{cmp::Reverse, io, ops::Range, sync::Arc};

use metadata::Registry;
use metric::{MetricId, Policy};
use store::{Identity, NameStore, PointStore};

use super::names::{KnownDeletions, LatePoints, Named, late_points};
use crate::{
    accept::Acceptor,
    active_rules::ActiveRules,
    back_pressure::BackPressure,
    flush::RowWriter,
    memtable::Memtable,
    wal::{self, Journal, JournalDamage, KeptDeletions, PlanError, Record, Segment, SegmentHeader},
};

/// The owners.
pub(crate) struct PutBackParts {
    pub(crate) identity: Identity,
    pub(crate) damage: JournalDamage,
    pub(crate) deletions: Arc<KeptDeletions>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) rules: Arc<ActiveRules>,
    pub(crate) store: Arc<dyn PointStore>,
    pub(crate) names: Arc<dyn NameStore>,
    /// Whether no other process writes the store.
    pub(crate) is_alone: bool,
    pub(crate) journal: Arc<Journal>,
    pub(crate) memtable: Arc<Memtable>,
    pub(crate) back_pressure: Arc<BackPressure>,
    pub(crate) writer: Arc<RowWriter>,
    pub(crate) acceptor: Arc<Acceptor>,
}

/// The policy that a record names.
fn policy_of((_, record): (Range<usize>, Record<'_>)) -> Option<Policy> {
    match record {
        Record::Policy { policy, .. } => Some(policy),
        _ => None,
    }
}

impl PutBackParts {
    pub(super) async fn elsewhere<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        self.journal.elsewhere(move |_| work()).await?
    }

    /// The segments that were not read whole, newest first. One of another store waits for nothing here.
    pub(super) fn waiting(&self) -> io::Result<Vec<Segment>> {
        let mut segments = self.damage.unread_segments()?;
        let folder = self.journal.folder();
        segments.retain(|segment| folder.header_of(segment).is_none_or(|header| !self.is_foreign(&header)));
        let copies = segments.chunk_by_mut(|one, other| one.number == other.number);
        for copies in copies.filter(|copies| 1 < copies.len()) {
            // The whole one first: what another one lacks came last, and may have replaced something of that.
            copies.sort_by_cached_key(|copy| Reverse(folder.whole_bytes(copy)));
        }
        Ok(segments)
    }

    fn is_foreign(&self, header: &SegmentHeader) -> bool {
        let (theirs, ours) = (header.identity.store, self.identity.store);
        theirs != 0 && ours != 0 && theirs != ours
    }

    /// The points of a segment; `None` while its disk does not return all of it.
    pub(super) fn load(&self, segment: &Segment, named: &mut Named) -> io::Result<Option<LatePoints>> {
        let PutBackParts { identity, deletions, registry, journal, .. } = self;
        let planned = match journal.folder().plan_alone(segment.clone()) {
            Ok(planned) => planned,
            Err(PlanError::Unreadable { source, .. }) if wal::is_damage(&source) => return Ok(None),
            Err(PlanError::Disk(error) | PlanError::Unreadable { source: error, .. }) => return Err(error),
            Err(PlanError::Newer { version, .. }) => return Err(io::Error::other(format!("its version is {version}"))),
        };
        if planned.header.as_ref().is_some_and(|header| self.is_foreign(header)) {
            return Err(io::Error::other(format!("{} is of another store", segment.path.display())));
        }
        let read = match journal.folder().read_parts(segment) {
            Err(error) if wal::is_damage(&error) => return Ok(None),
            read => read?,
        };
        if !read.unread.is_empty() {
            return Ok(None);
        }
        // No metric may have some of them any more.
        let named_policies: Vec<Policy> = planned.records(&read.bytes).filter_map(policy_of).collect();
        self.rules.admit_earlier(named_policies.iter());
        let (policies, mut deleted) = (self.memtable.policies(), deletions.read()?);
        if deleted.is_damaged {
            self.damage.report_deletions(journal.folder());
        }
        let is_by_name = segment.is_by_name();
        deleted.is_known |= is_by_name;
        let are_some_missing = !is_by_name && !self.damage.missing()?.is_empty();
        let known = (identity, &**registry, &*policies);
        // Also before something was kept, where the record of the deletion could not be read.
        let is_deleted = |id: MetricId| deleted.ids.contains(&id) || self.names.is_deleted(id);
        let known_deletions = KnownDeletions { noted: &deleted, is_deleted: &is_deleted, are_some_missing };
        Ok(Some(late_points(&planned, &read.bytes, known, known_deletions, named)))
    }
}
