//! The metrics table: a row for each metric, and a row for each policy that they name.
//!
//! ```text
//! key  'm' │ id u32 BE          value  created_on u32 │ policies u8 │ { since u32 │ policy u16 }… │ name
//!                               value  nothing, of a deleted metric
//! key  'p' │ id u16 BE          value  xFilesFactor f64 │ "average 10080*60s:720*3600s"
//! ```
//!
//! Little-endian but for keys, which sort. A policy is written before the first metric that names it.

use std::collections::HashSet;

use metric::{MetricId, Policy, Timestamp};
use parking_lot::Mutex;
use store::{MetricRecord, PolicyChange, StoreError};

use crate::tree::Tree;

const METRIC: u8 = b'm';
const POLICY: u8 = b'p';

/// Records handed out at once by a scan.
const AT_ONCE: usize = 4096;

pub(crate) struct MetricsTable {
    pub(crate) tree: Tree,
    /// By id.
    policies: Mutex<Vec<Policy>>,
    ids: Mutex<Ids>,
}

/// Which ids were seen and which are gone.
struct Ids {
    next: u32,
    deleted: HashSet<MetricId>,
}

impl MetricsTable {
    pub(crate) fn open(tree: Tree) -> Result<MetricsTable, StoreError> {
        let mut policies = Vec::new();
        for id in 0..=u16::MAX {
            let Some(value) = tree.get(&policy_key(id))? else { break };
            policies.push(Policy::decode(&value).ok_or_else(|| damaged(&tree, format!("policy {id}")))?);
        }
        let last = tree.last_below(&[METRIC + 1])?;
        let next = last.and_then(|key| Some(u32::from_be_bytes(key.get(1..)?.try_into().ok()?) + 1)).unwrap_or(0);
        let mut deleted = HashSet::new();
        tree.scan(|key, value| {
            if let [METRIC, a, b, c, d] = *key
                && value.is_empty()
            {
                deleted.insert(MetricId(u32::from_be_bytes([a, b, c, d])));
            }
            Ok(())
        })?;
        Ok(MetricsTable { tree, policies: Mutex::new(policies), ids: Mutex::new(Ids { next, deleted }) })
    }

    /// Above every id of a row.
    pub(crate) fn next_id(&self) -> MetricId {
        MetricId(self.ids.lock().next)
    }

    /// The ids that were deleted.
    pub(crate) fn deleted(&self) -> HashSet<MetricId> {
        self.ids.lock().deleted.clone()
    }

    pub(crate) fn delete(&self, deleted: &[MetricId]) {
        let mut ids = self.ids.lock();
        for &id in deleted {
            self.tree.insert(&metric_key(id), &[]);
            ids.next = ids.next.max(id.0 + 1);
            ids.deleted.insert(id);
        }
    }

    pub(crate) fn put(&self, records: &[MetricRecord]) {
        let mut value = Vec::new();
        let mut ids = self.ids.lock();
        let mut next = ids.next;
        for record in records.iter().filter(|record| !ids.deleted.contains(&record.id)) {
            value.clear();
            value.extend_from_slice(&seconds(record.created_on).to_le_bytes());
            // The registry keeps far fewer.
            let kept = &record.policies[record.policies.len().saturating_sub(usize::from(u8::MAX))..];
            value.push(kept.len() as u8);
            for change in kept {
                value.extend_from_slice(&seconds(change.since).to_le_bytes());
                value.extend_from_slice(&self.id(&change.policy).to_le_bytes());
            }
            value.extend_from_slice(record.name.as_bytes());
            self.tree.insert(&metric_key(record.id), &value);
            next = next.max(record.id.0 + 1);
        }
        ids.next = next;
    }

    fn id(&self, policy: &Policy) -> u16 {
        let mut policies = self.policies.lock();
        let known = policies.iter().position(|known| known.is_same(policy));
        let id = known.unwrap_or_else(|| {
            policies.push(policy.clone());
            let mut value = Vec::new();
            policy.encode(&mut value);
            self.tree.insert(&policy_key(policies.len() as u16 - 1), &value);
            policies.len() - 1
        });
        u16::try_from(id).expect("schema files have fewer than 65,536 distinct policies")
    }

    pub(crate) fn scan(&self, each: &mut (dyn FnMut(Vec<MetricRecord>) + Send)) -> Result<(), StoreError> {
        let policies = self.policies.lock().clone();
        let mut records = Vec::with_capacity(AT_ONCE);
        self.tree.scan(|key, value| {
            let [METRIC, id @ ..] = key else { return Ok(()) };
            if value.is_empty() {
                return Ok(());
            }
            let id = id.try_into().map(|id| MetricId(u32::from_be_bytes(id)));
            let id = id.map_err(|_| damaged(&self.tree, format!("the row of key {key:02x?}")))?;
            let record = read_metric(id, value, &policies);
            records.push(record.ok_or_else(|| damaged(&self.tree, format!("the row of metric {id}")))?);
            if records.len() == AT_ONCE {
                each(std::mem::replace(&mut records, Vec::with_capacity(AT_ONCE)));
            }
            Ok(())
        })?;
        each(records);
        Ok(())
    }
}

fn metric_key(id: MetricId) -> [u8; 5] {
    let [a, b, c, d] = id.0.to_be_bytes();
    [METRIC, a, b, c, d]
}

fn policy_key(id: u16) -> [u8; 3] {
    let [a, b] = id.to_be_bytes();
    [POLICY, a, b]
}

/// Unsigned seconds last until 2106.
fn seconds(time: Timestamp) -> u32 {
    u32::try_from(time.max(0)).unwrap_or(u32::MAX)
}

fn read_metric(id: MetricId, value: &[u8], policies: &[Policy]) -> Option<MetricRecord> {
    let (created_on, rest) = value.split_first_chunk::<4>()?;
    let (&count, mut rest) = rest.split_first()?;
    let mut changes = Vec::with_capacity(usize::from(count));
    for _ in 0..count {
        let (since, after) = rest.split_first_chunk::<4>()?;
        let (id, after) = after.split_first_chunk::<2>()?;
        let policy = policies.get(usize::from(u16::from_le_bytes(*id)))?.clone();
        changes.push(PolicyChange { since: Timestamp::from(u32::from_le_bytes(*since)), policy });
        rest = after;
    }
    Some(MetricRecord {
        id,
        name: std::str::from_utf8(rest).ok()?.to_owned(),
        created_on: Timestamp::from(u32::from_le_bytes(*created_on)),
        policies: changes,
    })
}

fn damaged(tree: &Tree, what: String) -> StoreError {
    StoreError::Damaged { what: format!("{what} in {}", tree.path().display()), how: "it cannot be read".to_owned() }
}
