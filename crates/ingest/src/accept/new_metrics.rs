//! Metrics that begin to exist here: created for points, or adopted from other nodes.
//!
//! Locks are taken in this order: memtable, registry, the journal's names, the counts, the queue of registration. Under the
//! registry's, every metric that comes or goes is counted for limits by prefix, quotas and tokens.

use std::{
    borrow::Cow,
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use carbon::{QuotaRule, RejectReason};
use metadata::{NamesMut, PolicyId, Registry};
use metric::{MetricId, Timestamp};
use parking_lot::Mutex;
use store::MetricRecord;

use super::{
    name_limits::{Admission, NameLimits, NoRoom, PrefixCounts},
    quotas::{BranchUse, Quotas},
    restrictions::{Gate, ListenerGate},
    spellings::Spellings,
    token_counts::TokenCounts,
};
use crate::{active_rules::ActiveRules, memtable::Memtable, registration::Registration, wal::Journal};

/// A name that no metric has, and how its points are to be kept.
pub(super) struct NewMetric<'a> {
    pub(super) name: Cow<'a, str>,
    pub(super) hash: u64,
    pub(super) policy: PolicyId,
}

/// Deleted names with times to come that are remembered: none while the clocks of nodes agree.
const DELETED_AHEAD: usize = 200_000;

/// Counts one more metric, unless a limit of all or of its listener forbids it.
fn admit(
    admission: &mut Admission,
    names: &NamesMut<'_>,
    name: &str,
    listener: Option<&ListenerGate>,
    now: Timestamp,
) -> Result<(), NoRoom> {
    let Some(listener) = listener else { return admission.admit(names, name) };
    if !listener.has_room() {
        return Err(NoRoom { reason: RejectReason::TooManyMetrics, limit: "max_metrics of the token".into() });
    }
    if !listener.admits(now) {
        let limit = "creations_per_minute of the [[listener]] or token".into();
        return Err(NoRoom { reason: RejectReason::TooManyNewMetrics, limit });
    }
    admission.admit(names, name).inspect_err(|_| listener.takes_back())
}

/// Gives metrics their ids, and makes them known to everything that must know them before their first point.
pub(crate) struct NewMetrics {
    registry: Arc<Registry>,
    rules: Arc<ActiveRules>,
    journal: Arc<Journal>,
    memtable: Arc<Memtable>,
    registration: Arc<Registration>,
    // Locked before the memtable.
    admission: Mutex<Admission>,
    prefixes: Arc<PrefixCounts>,
    quotas: Arc<Quotas>,
    tokens: TokenCounts,
    spellings: Spellings,
    names_bytes: u64,
    created: AtomicU64,
    /// Names that were deleted at times that are still to come here: by nodes whose calendars are ahead.
    deleted_ahead: Mutex<HashMap<String, Timestamp>>,
}

impl NewMetrics {
    pub(crate) fn new(
        registry: Arc<Registry>,
        rules: Arc<ActiveRules>,
        journal: Arc<Journal>,
        memtable: Arc<Memtable>,
        registration: Arc<Registration>,
        limits: NameLimits,
    ) -> NewMetrics {
        let quotas = Arc::new(Quotas::new(limits.quotas.clone(), &registry));
        let prefixes = Arc::new(PrefixCounts::new(limits.prefixes.clone(), &registry));
        let names_bytes = limits.names_bytes;
        let admission = Mutex::new(Admission::new(limits, prefixes.clone(), quotas.clone()));
        NewMetrics {
            registry,
            rules,
            journal,
            memtable,
            registration,
            admission,
            prefixes,
            quotas,
            tokens: TokenCounts::default(),
            spellings: Spellings::default(),
            names_bytes,
            created: AtomicU64::new(0),
            deleted_ahead: Mutex::default(),
        }
    }

    /// Names that were deleted at these times, Unix seconds. Metrics of them that are created from now on are of after these times, whatever the
    /// calendar here says.
    pub(crate) fn note_deletions<'a>(&self, deletions: impl Iterator<Item = (&'a str, Timestamp)>, now: Timestamp) {
        let mut ahead = self.deleted_ahead.lock();
        ahead.retain(|_, at| now <= *at);
        for (name, at) in deletions.filter(|(_, at)| now <= *at) {
            if ahead.len() < DELETED_AHEAD {
                let noted = ahead.entry(name.to_owned()).or_insert(at);
                *noted = at.max(*noted);
            }
        }
    }

    /// Other spellings of names of known metrics.
    pub(super) fn spellings(&self) -> &Spellings {
        &self.spellings
    }

    /// Bytes of memory of these.
    pub(crate) fn spelling_bytes(&self) -> usize {
        self.spellings.bytes()
    }

    /// Remembers spellings: hash, text, metric. They take as much memory as names do at most, and no more than these leave.
    pub(super) fn remember<'a>(&self, spelt: impl Iterator<Item = (u64, &'a [u8], MetricId)>) {
        let used = self.registry.memory_bytes();
        let left = usize::try_from(self.names_bytes).unwrap_or(usize::MAX).saturating_sub(used);
        self.spellings.add(spelt, used.min(left));
    }

    /// The quotas of branches.
    pub(crate) fn quotas(&self) -> &Arc<Quotas> {
        &self.quotas
    }

    /// The use of all quotas and limits by prefix.
    pub(crate) fn quotas_used(&self) -> Vec<BranchUse> {
        let mut used = self.admission.lock().used();
        used.extend(self.quotas.used());
        used
    }

    /// Puts other quotas of branches into force.
    pub(crate) fn set_quotas(&self, rules: Vec<QuotaRule>) {
        self.quotas.replace(rules, &self.registry);
    }

    /// Whether branches have quotas.
    pub(crate) fn has_quotas(&self) -> bool {
        self.quotas.has_rules()
    }

    /// Before metrics are created for a sender: counts those that it has.
    pub(super) fn count_for(&self, gate: &Gate) {
        gate.count_metrics(&self.tokens, &self.registry);
    }

    /// Removes metrics from the registry, and returns how many there were.
    pub(crate) fn remove(&self, metrics: &[MetricId]) -> usize {
        self.registry.remove_each(metrics, |id, name| self.count_one_less(id, name))
    }

    /// Hides those of some metrics whose names are `meant`, and returns how many there were.
    pub(crate) fn hide(&self, metrics: &[MetricId], meant: impl Fn(&str) -> bool) -> usize {
        self.registry.hide_each(metrics, |id, name| {
            let is_meant = meant(name);
            if is_meant {
                self.count_one_less(id, name);
            }
            is_meant
        })
    }

    /// Creates the metrics that do not exist, as of `created_on`, and calls `id_of` with the place and the id of each. Returns the
    /// places of those that a limit forbids, of all or of the `listener` they came by, and why.
    pub(super) fn create(
        &self,
        new: &[(usize, NewMetric<'_>)],
        (now, created_on): (Timestamp, Timestamp),
        listener: Option<&ListenerGate>,
        mut id_of: impl FnMut(usize, MetricId),
    ) -> Vec<(NoRoom, usize)> {
        if new.is_empty() {
            return Vec::new();
        }
        let (mut created, mut rejected) = (Vec::new(), Vec::new());
        let mut admission = self.admission.lock();
        // Before the names: a point for a name must find the slot of its metric.
        let mut memtable = self.memtable.lock();
        let mut names = self.registry.write();
        let spelt = self.spellings.bytes();
        admission.begin(&names, spelt, now);
        let fitting = |admission: &Admission| admission.fitting(new.iter().map(|(_, metric)| &*metric.name));
        let fits = fitting(&admission);
        if 0 < spelt && fits < new.len() {
            admission.begin(&names, 0, now);
            // Where names have no room without them either, they stay.
            if fits < fitting(&admission) {
                self.spellings.forget();
            } else {
                admission.begin(&names, spelt, now);
            }
        }
        let ahead = self.deleted_ahead.lock();
        for (place, NewMetric { name, hash, policy }) in new {
            let known = names.find(*hash, name.as_bytes());
            if known.is_none()
                && let Err(no_room) = admit(&mut admission, &names, name, listener, now)
            {
                rejected.push((no_room, *place));
                continue;
            }
            let metric = known.unwrap_or_else(|| {
                let created_on = ahead.get(&**name).map_or(created_on, |at| created_on.max(at + 1));
                let metric = names.create(*hash, name, *policy, created_on);
                self.quotas.created(metric, name);
                self.tokens.created(metric, name);
                // Under the lock of the names: points that find the metric are appended after this.
                self.journal.name_metric(metric, *policy, name, created_on);
                // An id that was reserved may have a slot already.
                memtable.begin(metric, *policy);
                created.push(metric);
                metric
            });
            id_of(*place, metric);
        }
        self.created.fetch_add(created.len() as u64, Relaxed);
        // Under the lock of the names, too: another connection may find the metric and have its record written to a
        // segment that a cycle deletes, and by then the cycle must know that it is to be registered.
        self.registration.add(created);
        drop(names);
        drop(memtable);
        if !rejected.is_empty() {
            let name = |wanted: usize| new.iter().find(|(place, _)| *place == wanted).map(|(_, metric)| &*metric.name);
            admission.report(|limit| {
                let of_limit = rejected.iter().rev().find(|(no_room, _): &&(NoRoom, usize)| *no_room.limit == *limit);
                of_limit.and_then(|(_, place)| name(*place)).unwrap_or("")
            });
        }
        rejected
    }

    /// Gives ids to metrics of a shared store; see [`crate::Ingest::reserve`].
    pub(crate) fn reserve<T>(&self, found: Vec<T>, name_of: impl Fn(&T) -> &str) -> Vec<(MetricId, T)> {
        self.registry.reserve(found, name_of, |id, name| self.count_one_more(id, name))
    }

    /// Counts a metric that came through the tables. The caller holds the lock of the names.
    fn count_one_more(&self, id: MetricId, name: &str) {
        self.prefixes.created(name);
        self.quotas.adopted(id, name);
        self.tokens.created(id, name);
    }

    /// Counts a metric less. The caller holds the lock of the names.
    fn count_one_less(&self, id: MetricId, name: &str) {
        self.prefixes.removed(name);
        self.quotas.removed(id, name);
        self.tokens.removed(id, name);
    }

    /// Takes in metrics that others created in a shared store; see [`crate::Ingest::adopt`]. Returns how many were not known, and those
    /// that points made meanwhile, or another call took in, with another policy: the store may have either record of them.
    pub(crate) fn adopt(&self, mut records: Vec<MetricRecord>) -> (usize, Vec<MetricId>) {
        let without_room = self.rules.admit_policies(&mut records);
        if 0 < without_room {
            tracing::error!(
                metrics = without_room,
                policies = self.registry.policy_count(),
                "the shared tables have metrics with too many different policies; queries of this node do not find them until it receives points for them"
            );
        }
        // Locked before the first metric can be found: a point for it must find its slot.
        let mut memtable = self.memtable.lock();
        let adopted = self.registry.adopt(&records, |id, name| self.count_one_more(id, name));
        let names = self.registry.read();
        for metric in records.iter().map(|record| record.id).filter(|&metric| names.is_shown(metric)) {
            memtable.begin(metric, names.policy_id(metric));
        }
        let known = adopted.known_meanwhile;
        // Before the journal that names them is trimmed. Others are not written for all: no point of them came here.
        self.registration.add(known.iter().copied().filter(|&metric| memtable.has_come(metric)));
        (adopted.added, known)
    }

    /// Metrics created for points.
    pub(crate) fn created(&self) -> u64 {
        self.created.load(Relaxed)
    }
}
