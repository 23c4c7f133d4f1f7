//! The metrics table: which ids have which names and policies, which are deleted, and which were ever seen.
//!
//! Rows wait in memory until a sync writes them to the log `store/names/`.

mod logged;
mod record;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use metric::{MetricId, Policy};
use parking_lot::{Mutex, RwLock};
use store::{Incarnation, MetricRecord, StoreError};

use self::{
    logged::Logged,
    record::{
        DELETED, METRIC, OPENING, POLICY, decode_metric, encode_deleted, encode_metric, encode_opening, encode_policy,
    },
};
use crate::{
    id_set::IdSet,
    record_log::{LogFiles, LogFolder},
};

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
    /// All policies, by id, and how many of them the log has.
    policies: Vec<Policy>,
    logged_policies: usize,
    metrics: BTreeMap<MetricId, Vec<u8>>,
    deleted: IdSet,
    bytes: u64,
    next: u32,
}

impl Pending {
    fn policy_id(&mut self, policy: &Policy) -> u16 {
        let known = self.policies.iter().position(|known| known.is_same(policy));
        let id = known.unwrap_or_else(|| {
            self.policies.push(policy.clone());
            self.policies.len() - 1
        });
        u16::try_from(id).expect("schema files have fewer than 65,536 distinct policies")
    }

    fn saw(&mut self, id: MetricId) {
        self.next = self.next.max(id.0.saturating_add(1));
    }

    fn put(&mut self, record: &MetricRecord) {
        let payload = encode_metric(record, |policy| self.policy_id(policy));
        self.saw(record.id);
        self.bytes += payload.len() as u64;
        if let Some(old) = self.metrics.insert(record.id, payload) {
            self.bytes -= old.len() as u64;
        }
    }

    fn delete(&mut self, id: MetricId) {
        self.saw(id);
        self.deleted.insert(id);
        if let Some(old) = self.metrics.remove(&id) {
            self.bytes -= old.len() as u64;
        }
    }

    /// The records that a sync writes, policies first.
    fn records(&self) -> Vec<(u8, Vec<u8>)> {
        let mut records = Vec::with_capacity(self.metrics.len() + 1);
        for (id, policy) in self.policies.iter().enumerate().skip(self.logged_policies) {
            records.push((POLICY, encode_policy(id as u16, policy)));
        }
        records.extend(self.metrics.values().map(|payload| (METRIC, payload.clone())));
        records.extend(self.deleted.runs().chunks(AT_ONCE).map(|runs| (DELETED, encode_deleted(runs))));
        records
    }
}

/// The metric and name of a record, if it is of that kind.
pub(crate) fn name_of(kind: u8, payload: &[u8]) -> Option<(MetricId, String)> {
    let record = (kind == METRIC).then(|| decode_metric(payload, |_| Policy::default())).flatten()?;
    Some((record.id, record.name))
}

impl Names {
    /// Reads the log.
    pub(crate) fn open(folder: LogFolder) -> Result<Names, StoreError> {
        let mut deleted = IdSet::default();
        let logged = Logged::open(folder.clone(), &mut deleted)?;
        let mut pending = Pending { next: logged.next.0, ..Pending::default() };
        let count = logged.policies.keys().max().map_or(0, |last| usize::from(*last) + 1);
        for id in 0..count {
            let policy = logged.policies.get(&(id as u16)).cloned();
            if policy.is_none() {
                let how =
                    format!("policy {id} is missing; its metrics have the default policy until the rules are applied");
                folder.reporter.missing(folder.what, &folder.dir, &how);
            }
            pending.policies.push(policy.unwrap_or_default());
        }
        pending.logged_policies = count;
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

    /// Whether a metric was deleted: its rows are obsolete.
    pub(crate) fn is_deleted(&self, id: MetricId) -> bool {
        self.deleted.read().contains(id)
    }

    /// Bytes that wait for a sync.
    pub(crate) fn unsynced_bytes(&self) -> u64 {
        self.pending.lock().bytes
    }

    /// Bytes on the disk.
    pub(crate) fn disk_bytes(&self) -> u64 {
        self.files.bytes()
    }

    /// Copies what is on the disk into a folder, durably; writes wait meanwhile.
    pub(crate) fn copy_into(&self, into: &Path) -> Result<Vec<PathBuf>, StoreError> {
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

    /// Records an opening, with all policies once more: each then has copies in several places.
    pub(crate) fn begin(&self, opening: Incarnation) -> Result<(), StoreError> {
        let mut logged = self.logged.lock();
        let mut records = vec![(OPENING, encode_opening(&opening))];
        let policies = self.pending.lock().policies.clone();
        records.extend(policies.iter().enumerate().map(|(id, policy)| (POLICY, encode_policy(id as u16, policy))));
        logged.write(&records)?;
        logged.openings.push(opening);
        Ok(())
    }

    /// Writes what is pending, durably. After an error it is pending still.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        let mut logged = self.logged.lock();
        let (records, written) = {
            let mut pending = self.pending.lock();
            let records = pending.records();
            let taken = Pending {
                policies: Vec::new(),
                logged_policies: pending.policies.len(),
                metrics: std::mem::take(&mut pending.metrics),
                deleted: std::mem::take(&mut pending.deleted),
                bytes: std::mem::take(&mut pending.bytes),
                next: 0,
            };
            (records, taken)
        };
        let result = logged.write(&records);
        let mut pending = self.pending.lock();
        if let Err(error) = result {
            // What came meanwhile is newer.
            for (id, payload) in written.metrics {
                if !pending.deleted.contains(id) && !pending.metrics.contains_key(&id) {
                    pending.bytes += payload.len() as u64;
                    pending.metrics.insert(id, payload);
                }
            }
            for id in written.deleted.iter() {
                pending.deleted.insert(id);
            }
            return Err(error);
        }
        let logged_policies = pending.logged_policies;
        for (id, policy) in pending.policies.iter().enumerate().take(written.logged_policies).skip(logged_policies) {
            logged.policies.insert(id as u16, policy.clone());
        }
        pending.logged_policies = pending.logged_policies.max(written.logged_policies);
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

    /// Hands out every metric, with those that wait for a sync.
    pub(crate) fn scan(&self, each: &mut (dyn FnMut(Vec<MetricRecord>) + Send)) {
        let logged = self.logged.lock();
        let (policies, pending) = {
            let pending = self.pending.lock();
            (pending.policies.clone(), pending.metrics.clone())
        };
        let deleted = self.deleted.read().clone();
        let mut records = Vec::with_capacity(AT_ONCE);
        let mut hand_out = |payload: &[u8]| {
            let policy = |id: u16| policies.get(usize::from(id)).cloned().unwrap_or_default();
            records.extend(decode_metric(payload, policy));
            if records.len() == AT_ONCE {
                each(std::mem::replace(&mut records, Vec::with_capacity(AT_ONCE)));
            }
        };
        logged.scan(|id, payload| {
            if !pending.contains_key(&id) && !deleted.contains(id) {
                hand_out(payload);
            }
        });
        pending.values().for_each(|payload| hand_out(payload));
        if !records.is_empty() {
            each(records);
        }
    }
}

#[cfg(test)]
mod tests;
