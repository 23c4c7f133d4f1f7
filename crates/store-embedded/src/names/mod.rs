//! The metrics table: which ids have which names and policies, which are deleted, and which were ever seen.
//!
//! Records wait in memory until a sync writes them to the log `store/names/`.

mod logged;
mod losses;
pub(crate) mod lost_ends;
mod policies;
mod record;

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use metric::{MetricId, Policy};
use parking_lot::{Mutex, RwLock};
use store::{Incarnation, LostPolicy, MetricRecord, StoreError};

use self::{
    logged::Logged,
    policies::Policies,
    record::{
        DELETED, LOST, METRIC, MISSING, MOST_RUNS, OPENING, POLICY, SEEN, decode_deleted, decode_metric,
        decode_opening, decode_policy, decode_runs, decode_seen, encode_metric, encode_runs, id_of,
    },
};
use crate::{
    id_set::IdSet,
    patience::Patience,
    record_log::{CopiedLog, LogEnd, LogFiles, LogFolder, Records},
};

pub(crate) use self::losses::Losses;

/// Records handed out at once by a scan.
const AT_ONCE: usize = 4096;

/// The metrics table.
#[derive(Debug)]
pub(crate) struct Names {
    deleted: RwLock<IdSet>,
    /// Taken before `pending` by what needs both.
    logged: Mutex<Logged>,
    pending: Mutex<Pending>,
    /// For readers that must not wait for a sync.
    files: LogFiles,
}

/// What the next sync writes.
#[derive(Debug, Default)]
struct Pending {
    policies: Policies,
    /// Records of metrics. Of several with one id the last counts; those of deleted ones may be among them.
    metrics: Records,
    deleted: IdSet,
    next: u32,
}

impl Pending {
    fn saw(&mut self, id: MetricId) {
        self.next = self.next.max(id.0.saturating_add(1));
    }

    fn put(&mut self, record: &MetricRecord) {
        let mut metrics = std::mem::take(&mut self.metrics);
        metrics.push_with(METRIC, |payload| encode_metric(record, |policy| self.policies.number(policy), payload));
        self.metrics = metrics;
        self.saw(record.id);
    }

    fn delete(&mut self, id: MetricId) {
        self.saw(id);
        self.deleted.insert(id);
    }

    /// Takes what a sync writes. The policies stay.
    fn take(&mut self) -> Unwritten {
        let policies = self.policies.unwritten();
        let deleted = std::mem::take(&mut self.deleted);
        let mut deletions = Records::default();
        for runs in deleted.runs().chunks(MOST_RUNS) {
            deletions.push(DELETED, &encode_runs(runs));
        }
        let metrics = std::mem::take(&mut self.metrics);
        Unwritten { policies, last_policy: self.policies.end(), metrics, deleted, deletions }
    }

    /// Takes back what could not be written.
    fn take_back(&mut self, mut unwritten: Unwritten) {
        // What came meanwhile is newer.
        unwritten.metrics.append(&self.metrics);
        self.metrics = unwritten.metrics;
        for id in unwritten.deleted.iter() {
            self.deleted.insert(id);
        }
    }
}

/// What a sync writes, in this order.
struct Unwritten {
    policies: Records,
    /// How many policies the log has once it is written.
    last_policy: usize,
    metrics: Records,
    /// The deletions behind the metrics, as a set and as records.
    deleted: IdSet,
    deletions: Records,
}

impl Unwritten {
    fn records(&self) -> impl Iterator<Item = (u8, &[u8])> + Clone {
        self.policies.iter().chain(self.metrics.iter()).chain(self.deletions.iter())
    }
}

/// The metric and name of a record, if it is of that kind.
pub(crate) fn name_of(kind: u8, payload: &[u8]) -> Option<(MetricId, String)> {
    let record = (kind == METRIC).then(|| decode_metric(payload, |_| Policy::default())).flatten()?;
    Some((record.id, record.name))
}

/// The metrics that a record names, or says are deleted.
pub(crate) fn ids_of(kind: u8, payload: &[u8], each: impl FnMut(MetricId)) {
    match kind {
        METRIC => id_of(payload).into_iter().for_each(each),
        DELETED => decode_deleted(payload).for_each(each),
        _ => {}
    }
}

/// Whether records of a kind name a metric.
pub(crate) fn is_metric(kind: u8) -> bool {
    kind == METRIC
}

/// The number of the policy that a record is of.
pub(crate) fn policy_of(kind: u8, payload: &[u8]) -> Option<u16> {
    (kind == POLICY).then(|| decode_policy(payload)).flatten().map(|(number, _)| number)
}

/// The numbers of the policies that a metric has which a record names.
pub(crate) fn policies_of(kind: u8, payload: &[u8], mut each: impl FnMut(u16)) {
    if kind == METRIC {
        record::policies_of(payload).for_each(|(_, number)| each(number));
    }
}

/// Adds what a record notes of losses.
pub(crate) fn take_losses(kind: u8, payload: &[u8], losses: &mut Losses) {
    if kind == LOST {
        losses.take(payload);
    }
}

/// The runs of ids that a record says are missing: first and how many.
pub(crate) fn missing_of(kind: u8, payload: &[u8]) -> Vec<(MetricId, u32)> {
    if kind == MISSING { decode_runs(payload).collect() } else { Vec::new() }
}

/// The opening that a record is of.
pub(crate) fn opening_of(kind: u8, payload: &[u8]) -> Option<Incarnation> {
    (kind == OPENING).then(|| decode_opening(payload)).flatten()
}

/// Above every id that a record says was given.
pub(crate) fn next_of(kind: u8, payload: &[u8]) -> MetricId {
    let above = |id: MetricId| MetricId(id.0.saturating_add(1));
    let next = match kind {
        METRIC => id_of(payload).map(above),
        DELETED => decode_deleted(payload).max().map(above),
        OPENING => decode_opening(payload).map(|opening| opening.first_id),
        SEEN => decode_seen(payload),
        _ => None,
    };
    next.unwrap_or(MetricId(0))
}

/// Names that the log had when it was opened, and that the disk does not return now.
fn unread_names(folder: &Path, source: io::Error) -> StoreError {
    let what = format!(
        "reading the names in {} (nothing was changed: points of a metric whose name is there would go to a new metric of the same \
         name; start again when the disk answers; if it never will, plumbago repair goes on without these names)",
        folder.display()
    );
    StoreError::Io { what, source }
}

impl Names {
    /// Reads the log.
    pub(crate) fn open(folder: LogFolder) -> Result<Names, StoreError> {
        let mut deleted = IdSet::default();
        let mut logged = Logged::open(folder.clone(), &mut deleted)?;
        let mut pending = Pending { next: logged.next.0, ..Pending::default() };
        pending.policies = Policies::logged(&logged.policies, logged.used_policies.len());
        logged.find_lost_policies(&folder);
        logged.find_losses(&deleted);
        let files = logged.files();
        Ok(Names { files, deleted: RwLock::new(deleted), logged: Mutex::new(logged), pending: Mutex::new(pending) })
    }

    /// Above every id that the table has seen.
    pub(crate) fn next_id(&self) -> MetricId {
        MetricId(self.pending.lock().next)
    }

    /// The openings that the log knows, oldest first.
    pub(crate) fn openings(&self) -> Vec<Incarnation> {
        self.logged.lock().openings.clone()
    }

    /// Whether the log has lost no record.
    pub(crate) fn is_whole(&self) -> bool {
        let logged = self.logged.lock();
        !logged.has_damage() && !logged.has_unread()
    }

    /// The policies whose records the log has lost, of metrics that it has.
    pub(crate) fn lost_policies(&self) -> Vec<LostPolicy> {
        self.logged.lock().lost_policies.clone()
    }

    /// Says what a lost policy was. The next sync or opening writes its record.
    pub(crate) fn set_lost_policy(&self, number: u16, policy: &Policy, how: &str) {
        let mut logged = self.logged.lock();
        let Some(place) = logged.lost_policies.iter().position(|lost| lost.number == number) else { return };
        let lost = logged.lost_policies.swap_remove(place);
        self.pending.lock().policies.set_lost(number, policy);
        logged.policies.insert(number, policy.clone());
        let how = format!(
            "policy {number}, of {} metrics, is taken to be \"{} {}\" with xFilesFactor {}: {how}",
            lost.metrics.len(),
            policy.methods(),
            policy.retention,
            policy.x_files_factor
        );
        let folder = logged.folder();
        folder.reporter.policy_lost(&folder.dir, lost.metrics.iter().map(|(metric, _)| *metric), &how);
    }

    /// Where the log ends, if it has every record that it should have.
    pub(crate) fn end(&self) -> Option<LogEnd> {
        let is_whole = self.is_whole() && self.missing().is_empty() && self.lost_policies().is_empty();
        (is_whole && self.unsynced_bytes() == 0).then(|| self.files.end())?
    }

    /// The highest metric that the log names, or says is deleted.
    pub(crate) fn highest_given(&self) -> Option<MetricId> {
        self.logged.lock().highest().max(self.deleted.read().highest())
    }

    /// The folder of the log.
    pub(crate) fn folder(&self) -> PathBuf {
        self.logged.lock().folder().dir.clone()
    }

    /// Whether a metric was deleted: its rows are obsolete.
    pub(crate) fn is_deleted(&self, id: MetricId) -> bool {
        self.deleted.read().contains(id)
    }

    /// Bytes that wait for a sync.
    pub(crate) fn unsynced_bytes(&self) -> u64 {
        self.pending.lock().metrics.bytes()
    }

    /// The files of the log.
    pub(crate) fn log_files(&self) -> &LogFiles {
        &self.files
    }

    /// Bytes on the disk.
    pub(crate) fn disk_bytes(&self) -> u64 {
        self.files.bytes()
    }

    /// Copies what is on the disk into a folder, durably; writes wait meanwhile.
    pub(crate) fn copy_into(&self, into: &Path) -> Result<Vec<CopiedLog>, StoreError> {
        self.logged.lock().copy_into(into)
    }

    pub(crate) fn put(&self, records: &[MetricRecord]) {
        let deleted = self.deleted.read();
        let mut pending = self.pending.lock();
        for record in records.iter().filter(|record| !deleted.contains(record.id)) {
            pending.put(record);
        }
    }

    pub(crate) fn delete(&self, ids: &[MetricId]) {
        let mut deleted = self.deleted.write();
        let mut pending = self.pending.lock();
        for &id in ids {
            if deleted.insert(id) {
                pending.delete(id);
            }
        }
    }

    /// The next sync notes that all ids below were given.
    pub(crate) fn note_given(&self, next: MetricId) {
        let mut pending = self.pending.lock();
        pending.next = pending.next.max(next.0);
    }

    /// The files, for readers.
    pub(crate) fn files(&self) -> LogFiles {
        self.files.clone()
    }

    /// Whether a part of the log cannot be read now, and may be later.
    pub(crate) fn has_unread(&self) -> bool {
        self.logged.lock().has_unread()
    }

    /// Runs of ids that rows were stored for, and whose records the log had lost when a start looked and still lacks: first and how many.
    pub(crate) fn missing(&self) -> Vec<(MetricId, u32)> {
        self.logged.lock().still_missing(&self.deleted.read())
    }

    /// The next rewrite leaves out which ids are missing, and what else damage has cost. Deletions that are known to be lost are made
    /// again.
    pub(crate) fn forget_missing(&self) {
        let losses = {
            let mut logged = self.logged.lock();
            logged.forget_missing();
            logged.forget_losses()
        };
        self.delete(&losses.succeeded.iter().collect::<Vec<_>>());
    }

    /// Reports what damage has cost, and notes it durably. Where the end of the log is noted to be missing, that stands for deletions
    /// in damage there.
    pub(crate) fn settle_losses(&self) -> Result<(), StoreError> {
        let is_noted = self.missing().iter().any(|(_, count)| *count == 0);
        self.logged.lock().settle_losses(is_noted)
    }

    /// Whether the log has what was on the disk once, or replaces it. `None` where that is not known now.
    pub(crate) fn reaches(&self, end: LogEnd) -> Option<bool> {
        self.logged.lock().reaches(end)
    }

    /// Notes durably that the end of the log is missing, with the records of all ids from there up to `next`. `end` is where it was,
    /// where that is known.
    pub(crate) fn note_missing(&self, next: MetricId, end: Option<LogEnd>) -> Result<(), StoreError> {
        let mut logged = self.logged.lock();
        let first = self.next_id();
        logged.note_missing((first, next), end)
    }

    /// Makes the log, where there is none yet.
    pub(crate) fn make_file(&self) -> Result<(), StoreError> {
        self.logged.lock().make_file()
    }

    /// Records an opening, with all policies once more: each then has copies in several places. After an error the next
    /// write records it first, so that the log has no name that an opening gave without the opening.
    pub(crate) fn begin(&self, opening: Incarnation) -> Result<(), StoreError> {
        let mut logged = self.logged.lock();
        let records = self.pending.lock().policies.records();
        logged.begin(opening, records)
    }

    /// Writes what is pending, durably. After an error it is pending still.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        let mut logged = self.logged.lock();
        let unwritten = self.pending.lock().take();
        let result = logged.write(unwritten.records());
        let mut pending = self.pending.lock();
        if let Err(error) = result {
            pending.take_back(unwritten);
            return Err(error);
        }
        logged.policies.extend(pending.policies.wrote(unwritten.last_policy));
        logged.next = MetricId(pending.next);
        drop(pending);
        logged.rewrite_if_stale(&self.deleted);
        Ok(())
    }

    /// Writes the log again without what is obsolete or damaged.
    pub(crate) fn rewrite(&self) -> Result<(), StoreError> {
        let mut logged = self.logged.lock();
        logged.rewrite(&self.deleted.read().runs())
    }

    /// Hands out every metric, with those that wait for a sync. What the disk does not return is read again as long as `patience`
    /// lasts. Records that were damaged since the log was opened are reported.
    ///
    /// # Errors
    /// Some records cannot be read: their metrics are not handed out, and would get other ids.
    pub(crate) fn scan(
        &self,
        patience: &Patience,
        each: &mut (dyn FnMut(Vec<MetricRecord>) + Send),
    ) -> Result<(), StoreError> {
        let logged = self.logged.lock();
        let (policies, pending) = {
            let pending = self.pending.lock();
            (pending.policies.clone(), pending.metrics.clone())
        };
        let pending: BTreeMap<MetricId, &[u8]> =
            pending.iter().filter_map(|(_, payload)| Some((id_of(payload)?, payload))).collect();
        let deleted = self.deleted.read().clone();
        let mut records = Vec::with_capacity(AT_ONCE);
        let mut hand_out = |payload: &[u8]| {
            let policy = |number: u16| policies.get(number).cloned().unwrap_or_default();
            records.extend(decode_metric(payload, policy));
            if records.len() == AT_ONCE {
                each(std::mem::replace(&mut records, Vec::with_capacity(AT_ONCE)));
            }
        };
        let mut left = logged.known().clone();
        let succeeded = logged.losses.succeeded.iter();
        pending.keys().copied().chain(deleted.iter()).chain(succeeded).for_each(|id| _ = left.remove(id));
        patience.retry(|| {
            let scanned = logged.scan(|id, payload| {
                if left.remove(id) {
                    hand_out(payload);
                }
            });
            match scanned {
                Err(source) if left.highest().is_some() => Err(unread_names(&logged.folder().dir, source)),
                _ => Ok(()),
            }
        })?;
        if left.highest().is_some() {
            let folder = logged.folder();
            for (what, how, metrics) in (Losses { nameless: left, ..Losses::default() }).texts(&[]) {
                folder.reporter.names_lost(what, &folder.dir, metrics, &how);
            }
        }
        for (_, payload) in pending.iter().filter(|(id, _)| !deleted.contains(**id)) {
            hand_out(payload);
        }
        if !records.is_empty() {
            each(records);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
