//! Accepting a batch of points: the path every point takes, once.
//!
//! 1. Wait while the pipeline is full.
//! 2. Names to numbers, under one shared lock; names never seen get a policy and a number, under one
//!    exclusive lock.
//! 3. One record appended to the journal.
//! 4. One slot store a point, under one lock. From here on a reader sees them. While points are parked this is
//!    left for later (`parked.rs`).

use std::{
    collections::VecDeque,
    io,
    path::PathBuf,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use carbon::{Decision, RejectReason, Rules};
use metadata::{PolicyId, Registry};
use metric::{MetricId, Policy, Timestamp, canonical_name};
use parking_lot::{Mutex, RwLock};
use store::{MetricRecord, Store, StoreError};
use tokio::{sync::watch, task::JoinHandle};

use crate::{
    Batch, CountersSnapshot, Protocol, RejectExample, Restored,
    counters::Counters,
    health::{Health, Outage},
    held::{Held, NO_POLICY, Refused},
    journal::{Journal, NumberedPoint, RECORD_POINTS},
    parked::Parked,
    policies::Policies,
    pressure::Pressure,
    rejects::Rejects,
};

/// How far ahead names are fetched into the cache while they are looked up.
const PREFETCH: usize = 12;

/// How long to wait before a failed append is tried again.
const RETRY: Duration = Duration::from_millis(250);

/// How long a start waits until the store has taken what a replay found under policies that do not hold any more.
const WAIT_FOR_REPLAYED: Duration = Duration::from_secs(5);

/// When the journal is put on the disk for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    /// In groups, this long apart: a lost machine (not a killed process) loses at most this.
    Every(Duration),
    /// Before the next bytes of a connection are read.
    Always,
}

/// Settings of the pipeline.
#[derive(Debug, Clone)]
pub struct IngestOptions {
    /// Folder of the journal.
    pub journal_dir: PathBuf,
    /// When it is synced.
    pub sync: Sync,
    /// Bytes of journal at which receivers wait; at half of it everything is written out early.
    pub journal_limit_bytes: u64,
    /// Bytes of held points at which receivers wait; at half of it everything is written out early.
    pub memory_limit_bytes: u64,
    /// How long points wait in memory at most. Longer means fuller rows and less work; it also means a
    /// larger journal and a longer replay.
    pub flush_after: Duration,
}

impl Default for IngestOptions {
    fn default() -> IngestOptions {
        IngestOptions {
            journal_dir: PathBuf::from("data/journal"),
            sync: Sync::Every(Duration::from_secs(1)),
            journal_limit_bytes: 4 << 30,
            memory_limit_bytes: 1 << 30,
            flush_after: Duration::from_secs(3600),
        }
    }
}

/// Why ingestion could not begin.
#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    /// The journal's folder.
    #[error("the journal in {dir}: {source}")]
    Journal {
        /// The folder.
        dir: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The driver.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The rules, and the registry's id of each of their policies.
pub(crate) struct ActiveRules {
    pub(crate) rules: Rules,
    pub(crate) ids: Vec<PolicyId>,
}

/// The pipeline from decoded points to the store.
pub struct Ingest {
    pub(crate) options: IngestOptions,
    pub(crate) store: Store,
    pub(crate) registry: Arc<Registry>,
    pub(crate) journal: Journal,
    pub(crate) held: Mutex<Held>,
    pub(crate) policies: Policies,
    pub(crate) rules: RwLock<Arc<ActiveRules>>,
    pub(crate) pressure: Pressure,
    pub(crate) counters: Counters,
    pub(crate) rejects: Rejects,
    /// What of the following three fails, told as one.
    pub(crate) outage: Arc<Outage>,
    /// Whether the store can be reached, where somebody says so.
    pub(crate) reach: Health,
    /// When the store was last known to have taken something, where somebody says so.
    pub(crate) taken: Mutex<Option<Instant>>,
    /// Whether the store takes points.
    pub(crate) health: Health,
    /// Whether the store takes new metrics, and says that all is on the disk.
    pub(crate) listing: Health,
    /// Whether everything is stored that a replay took aside. Nothing else is taken out of memory before.
    pub(crate) replayed: watch::Sender<bool>,
    /// Points that are in the journal alone.
    pub(crate) parked: Parked,
    /// Metrics that are in the journal and not in the metrics table yet.
    pub(crate) unlisted: Mutex<VecDeque<MetricId>>,
    /// Held by whoever gives them to the driver.
    pub(crate) one_lists: tokio::sync::Mutex<()>,
    /// Metrics that the cycle goes through, and how many of them it has.
    pub(crate) cycle_metrics: AtomicU64,
    pub(crate) cycle_done: AtomicU64,
    /// Callers who wait for everything to be written out.
    pub(crate) hurried: AtomicU32,
    /// One cycle at a time.
    pub(crate) cycle: tokio::sync::Mutex<()>,
    pub(crate) tasks: Mutex<Vec<JoinHandle<()>>>,
    pub(crate) restored: Restored,
    /// Whether the last append failed.
    failing: AtomicBool,
    pub(crate) me: Weak<Ingest>,
}

/// Unix seconds.
pub(crate) fn now() -> Timestamp {
    // A clock before 1970 is a clock that is not set yet; every point would be from the future.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as Timestamp)
}

impl Ingest {
    /// Opens the journal, replays it, and begins to sync and flush. The registry must already hold what the
    /// metrics table holds.
    pub async fn open(
        options: IngestOptions,
        store: impl Into<Store>,
        registry: Arc<Registry>,
        rules: Rules,
    ) -> Result<Arc<Ingest>, IngestError> {
        let store = store.into();
        let in_journal = |source| IngestError::Journal { dir: options.journal_dir.clone(), source };
        let old = match crate::journal::segments(&options.journal_dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            segments => segments.map_err(in_journal)?,
        };
        let mut held = Held::new(store.shared.is_none());
        let policies = Policies::default();
        let counters = Counters::default();
        let (restored, left) = crate::replay::replay_segments(
            &old,
            &registry,
            &mut held,
            &policies,
            &counters,
            options.memory_limit_bytes,
        )
        .map_err(in_journal)?;

        let journal = Journal::open(&options.journal_dir).map_err(in_journal)?;
        let pressure = Pressure::new(options.memory_limit_bytes, options.journal_limit_bytes);
        let opens = held.states.iter().map(|state| &state.open).chain(left.taken.iter().map(|taken| &taken.open));
        pressure.set_parks(left.parked.segment.is_some());
        pressure.grew(opens.map(|open| open.slots() as u64).sum(), journal.bytes());
        let rules = RwLock::new(Arc::new(name_policies(rules, &registry, &journal, &policies)));
        let outage = Arc::new(Outage::default());
        let ingest = Arc::new_cyclic(|me| Ingest {
            options,
            store,
            registry,
            journal,
            held: Mutex::new(held),
            policies,
            rules,
            pressure,
            counters,
            rejects: Rejects::default(),
            reach: Health::of(&outage),
            taken: Mutex::default(),
            health: Health::of(&outage),
            listing: Health::of(&outage),
            outage,
            parked: Parked::new(left.parked),
            replayed: watch::Sender::new(left.taken.is_empty()),
            unlisted: Mutex::new(left.unlisted.into()),
            one_lists: tokio::sync::Mutex::new(()),
            cycle_metrics: AtomicU64::new(0),
            cycle_done: AtomicU64::new(0),
            hurried: AtomicU32::new(0),
            cycle: tokio::sync::Mutex::new(()),
            tasks: Mutex::default(),
            restored,
            failing: AtomicBool::new(false),
            me: me.clone(),
        });
        if !left.taken.is_empty() {
            let writing = ingest.clone();
            tokio::spawn(async move { writing.write_replayed(left.taken).await });
            // These can be read when they are stored. The store may be long in coming, and points are accepted meanwhile.
            let _ = tokio::time::timeout(WAIT_FOR_REPLAYED, ingest.after_replay()).await;
        }
        let tasks = [
            ingest.clone().spawn_sync(),
            ingest.clone().spawn_listing(),
            ingest.clone().spawn_cycles(),
            ingest.clone().spawn_drain(),
            ingest.clone().spawn_telling(),
            ingest.clone().spawn_rules(),
        ];
        ingest.tasks.lock().extend(tasks);
        Ok(ingest)
    }

    /// An empty batch for a connection.
    pub fn batch(&self, protocol: Protocol) -> Batch {
        Batch::new(protocol, self.registry.clone())
    }

    /// Takes every point of the batch, and leaves it empty. Waits while the pipeline is full, which is how
    /// back-pressure reaches the socket, and until the disk takes the record; nothing is ever dropped
    /// without being counted by reason.
    pub async fn accept(&self, batch: &mut Batch) {
        self.report(batch);
        if batch.is_empty() {
            return;
        }
        if self.pressure.is_closed() {
            self.park_if_full();
        }
        if self.pressure.is_closed() {
            let _stall = self.counters.stalls.begin();
            self.pressure.wait().await;
        }
        let mut resolved = false;
        loop {
            match self.try_accept(batch, &mut resolved) {
                Ok(()) => {
                    if self.failing.load(Relaxed) {
                        self.failing.store(false, Relaxed);
                        tracing::info!("the journal can be written again");
                    }
                    break;
                }
                Err(error) => {
                    self.counters.journal_errors.fetch_add(1, Relaxed);
                    // Said once, not at every try: on a full disk log lines are a cost of their own.
                    if !self.failing.swap(true, Relaxed) {
                        tracing::error!(%error, dir = %self.options.journal_dir.display(),
                            "the journal cannot be written: no points are accepted until it can");
                    }
                    let _stall = self.counters.stalls.begin();
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
        if self.options.sync == Sync::Always {
            self.synced().await;
        }
    }

    /// Counts what was refused while decoding.
    fn report(&self, batch: &mut Batch) {
        if batch.refused() == 0 {
            return;
        }
        for reason in RejectReason::ALL {
            let count = std::mem::take(&mut batch.refused[reason as usize]);
            if count > 0 {
                self.counters.refused(reason, u64::from(count));
            }
        }
        let (time, protocol) = (now(), batch.protocol);
        let examples = batch.examples.drain(..);
        self.rejects.keep(examples.map(|(reason, sample)| RejectExample { time, protocol, reason, sample }));
    }

    /// Steps 2 to 4. After an error the batch may be given again as it is.
    fn try_accept(&self, batch: &mut Batch, resolved: &mut bool) -> io::Result<()> {
        let now = now();
        if !*resolved {
            self.resolve(batch, now);
            *resolved = true;
        }
        let numbered = std::mem::take(&mut batch.numbered);
        // One frame may hold millions of points; a record has a length that a replay believes. After an error the
        // pieces before it are appended again, which changes nothing.
        let mut refused: io::Result<usize> = Ok(0);
        for piece in numbered.chunks(RECORD_POINTS) {
            refused = refused.and_then(|before| Ok(before + self.journal_and_hold(piece, batch, now)?));
        }
        batch.numbered = numbered;
        let refused: usize = refused?;
        self.counters.accepted(batch.protocol, (batch.numbered.len() - refused) as u64);
        self.counters.batches.fetch_add(1, Relaxed);
        batch.clear();
        self.report(batch);
        Ok(())
    }

    /// Step 2: fills `batch.numbered`, in the order the points came.
    fn resolve(&self, batch: &mut Batch, now: Timestamp) {
        let mut numbered = std::mem::take(&mut batch.numbered);
        numbered.clear();
        numbered.reserve(batch.sent.len());
        let mut unknown = Vec::new();
        {
            let names = self.registry.read();
            for (i, sent) in batch.sent.iter().enumerate() {
                if let Some(ahead) = batch.sent.get(i + PREFETCH) {
                    names.prefetch(ahead.hash);
                }
                let metric = names.find(sent.hash, batch.name(sent)).unwrap_or_else(|| {
                    unknown.push(i);
                    MetricId::NONE
                });
                numbered.push(NumberedPoint { metric, time: sent.time, value: sent.value });
            }
        }
        if !unknown.is_empty() {
            self.resolve_unknown(batch, &unknown, &mut numbered, now);
            numbered.retain(|point| point.metric != MetricId::NONE);
        }
        batch.numbered = numbered;
    }

    /// Names that were not found as they were sent: put into their canonical form, judged, created.
    #[cold]
    fn resolve_unknown(&self, batch: &mut Batch, unknown: &[usize], numbered: &mut [NumberedPoint], now: Timestamp) {
        let rules = self.rules.read().clone();
        let mut refused: Vec<(RejectReason, usize)> = Vec::new();
        // Everything slow is done before the registry is locked.
        let mut wanted = Vec::with_capacity(unknown.len());
        for &i in unknown {
            let raw = batch.name(&batch.sent[i]);
            let name = match canonical_name(raw) {
                Ok(name) => name,
                Err(error) => {
                    refused.push((error.into(), i));
                    continue;
                }
            };
            let hash = match &name {
                std::borrow::Cow::Borrowed(_) => batch.sent[i].hash,
                std::borrow::Cow::Owned(canonical) => {
                    let hash = self.registry.hash(canonical.as_bytes());
                    // A name sent in another form is here each time, and known all but the first.
                    if let Some(metric) = self.registry.read().find(hash, canonical.as_bytes()) {
                        numbered[i].metric = metric;
                        continue;
                    }
                    hash
                }
            };
            match rules.rules.decide(&name) {
                Decision::Keep(index) => wanted.push((i, name, hash, rules.ids[index.get()])),
                Decision::Blacklisted => refused.push((RejectReason::Blacklisted, i)),
                Decision::NotWhitelisted => refused.push((RejectReason::NotWhitelisted, i)),
            }
        }
        let mut created = Vec::new();
        if !wanted.is_empty() {
            // In this order; and before the names: whoever finds one there finds its state with it.
            let mut held = self.held.lock();
            let mut names = self.registry.write();
            for (i, name, hash, policy) in &wanted {
                numbered[*i].metric = names.find(*hash, name.as_bytes()).unwrap_or_else(|| {
                    let number = names.create(*hash, name, *policy, now);
                    // Under the same lock: whoever finds the metric appends after this.
                    self.journal.name_metric(number, *policy, name, now);
                    // A number that was reserved may have a state already.
                    held.begin(number, *policy);
                    created.push(number);
                    number
                });
            }
            self.counters.created.fetch_add(created.len() as u64, Relaxed);
            // Under the same lock, too: another connection may find the metric and have its record written to
            // a segment that a cycle deletes, and by then the cycle must know that it is to be listed.
            self.unlisted.lock().extend(created);
        }
        drop(wanted);
        for (reason, i) in refused {
            let sample = batch.name(&batch.sent[i]).to_vec();
            batch.refuse(reason, &sample);
        }
    }

    /// Steps 3 and 4. Returns how many points were refused for their time.
    fn journal_and_hold(&self, points: &[NumberedPoint], batch: &mut Batch, now: Timestamp) -> io::Result<usize> {
        if points.is_empty() {
            return Ok(0);
        }
        let record = batch.record.points(now, points);
        let in_memory = self.journal.append(record)?;
        let mut refused = Vec::new();
        // While the guard is held this does not change.
        if self.pressure.parks() {
            self.parked.parked(points.len() as u64, record.len() as u64);
            let mut held = self.held.lock();
            self.ensure_states(&mut held, points);
            let table = self.policies.table();
            held.refuse(points, now, &table.hot, &mut refused);
            refused.retain(|&(place, reason)| {
                reason != RejectReason::TooOld || held.place_of_old(&points[place], now, &table.all).is_none()
            });
            self.pressure.grew(0, self.journal.bytes());
        } else {
            let mut held = self.held.lock();
            self.ensure_states(&mut held, points);
            // Under the lock: no state has a policy that this table lacks.
            let table = self.policies.table();
            let mut grew = held.apply(points, now, &table.hot, &mut refused);
            if !refused.is_empty() {
                refused.retain(|&(place, reason)| {
                    let placed = match reason {
                        RejectReason::TooOld => held.apply_old(&points[place], now, &table.all),
                        _ => None,
                    };
                    grew += placed.unwrap_or(0);
                    placed.is_none()
                });
            }
            // Under the lock, so that nobody stores these slots before they are counted.
            self.pressure.grew(grew as u64, self.journal.bytes());
        }
        drop(in_memory);
        for &(place, reason) in &refused {
            let sample = self.describe(&points[place]);
            batch.refuse(reason, sample.as_bytes());
        }
        Ok(refused.len())
    }

    /// Gives a state to each metric of these points that was created since the last time.
    pub(crate) fn ensure_states(&self, held: &mut Held, points: &[NumberedPoint]) {
        let last = points.iter().map(|point| point.metric).max().expect("there are points");
        if last.index() >= held.states.len() {
            let names = self.registry.read();
            // A number may be taken by a metric that is being adopted.
            let policy_of = |number| if names.name(number).is_empty() { NO_POLICY } else { names.policy_id(number) };
            held.ensure(last, false, policy_of);
        }
    }

    /// Takes in metrics that others created in a store that is shared. Their numbers must have been given by
    /// [`Registry::reserve`], and be remembered where the registry is opened from: the journal does not name them. They are
    /// kept by the policy they come with until points of theirs come here. Returns how many were not known.
    ///
    /// Of thousands of distinct policies those that come last are not taken in, nor their metrics: that is told.
    pub fn adopt(&self, mut records: Vec<MetricRecord>) -> usize {
        {
            // As for new rules: a metric may be kept by a policy only when the journal and the table have it. Under the
            // lock of the rules, so that none puts a table in place that lacks the other's policies.
            let _rules = self.rules.write();
            let known = self.registry.policy_count();
            let before = records.len();
            let can_be_kept = |policy: &Policy| self.registry.try_intern(policy).is_some();
            records.retain(|record| record.policies.last().is_some_and(|change| can_be_kept(&change.policy)));
            if records.len() < before {
                tracing::error!(
                    metrics = before - records.len(),
                    policies = self.registry.policy_count(),
                    "the shared tables have metrics of too many different policies; these cannot be read here until points come for them"
                );
            }
            for id in known..self.registry.policy_count() {
                let id = id as PolicyId;
                self.journal.name_policy(id, &self.registry.policy(id));
            }
            if known < self.registry.policy_count() {
                self.policies.refresh(&self.registry);
            }
        }
        // Held from before the first can be found: a point that comes for it finds its state.
        let mut held = self.held.lock();
        let taken = self.registry.take_in(&records);
        let names = self.registry.read();
        for number in records.iter().map(|record| record.id).filter(|&number| names.is_shown(number)) {
            held.begin(number, names.policy_id(number));
        }
        // Their rows may have been written over by what was remembered of the others' policy.
        self.unlisted.lock().extend(taken.overtaken);
        taken.added
    }

    /// Metrics that are not in the metrics table yet.
    pub fn unlisted(&self) -> Vec<MetricId> {
        self.unlisted.lock().iter().copied().collect()
    }

    fn describe(&self, point: &NumberedPoint) -> String {
        format!("{} {} {}", self.registry.read().name(point.metric), point.value, point.time)
    }

    /// The last inputs that were refused, newest first.
    pub fn rejects(&self) -> Vec<RejectExample> {
        self.rejects.last()
    }

    /// What was found in the journal at the start.
    pub fn restored(&self) -> Restored {
        self.restored
    }

    /// The registry the names are in.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Everything that is counted.
    pub fn counters(&self) -> CountersSnapshot {
        CountersSnapshot {
            journal_bytes: self.journal.bytes(),
            sync_age: self.journal.sync_age(),
            held_slots: self.pressure.held_slots(),
            parked_points: self.parked.points(),
            parked_bytes: self.parked.bytes(),
            parked_points_total: self.parked.total(),
            store_failing: self.is_store_away(),
            store_problem: self.problem().map(|problem| problem.why),
            flushing_metrics: self.held.lock().flushing.len() as u64,
            stalled: self.pressure.is_closed(),
            journal_failing: self.failing.load(Relaxed),
            ..self.counters.snapshot()
        }
    }

    /// Waits for an fsync that covers everything appended so far.
    pub(crate) async fn synced(&self) {
        while let Some(me) = self.me.upgrade() {
            let synced = tokio::task::spawn_blocking(move || me.timed_sync()).await;
            match synced {
                Ok(Ok(())) => return,
                _ => tokio::time::sleep(RETRY).await,
            }
        }
    }

    pub(crate) fn timed_sync(&self) -> io::Result<()> {
        let began = Instant::now();
        let result = self.journal.sync();
        match &result {
            Ok(()) => self.counters.sync.observe(began.elapsed()),
            Err(error) => {
                self.counters.journal_errors.fetch_add(1, Relaxed);
                tracing::error!(%error, dir = %self.options.journal_dir.display(), "the journal cannot be synced to the disk");
            }
        }
        result
    }

    fn spawn_sync(self: Arc<Ingest>) -> JoinHandle<()> {
        let every = match self.options.sync {
            Sync::Every(every) => every,
            Sync::Always => Duration::from_secs(1),
        };
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval(every.max(Duration::from_millis(1)));
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                let me = self.clone();
                // A failure is counted and logged where it happens, and the next tick tries again.
                let _ = tokio::task::spawn_blocking(move || me.timed_sync()).await;
            }
        })
    }

    /// Puts rules in force: for new metrics at once, for those that exist as they are gone through in the
    /// background. Points from then on are kept by the new policy; what is stored stays readable. Rules without a schema
    /// leave every metric that exists as it is kept: carbon's default, unasked, would drop the coarse stages of a store.
    pub async fn set_rules(&self, rules: Rules) {
        {
            // One after the other, so that none puts a table in place that lacks the other's policies.
            let mut active = self.rules.write();
            *active = Arc::new(name_policies(rules, &self.registry, &self.journal, &self.policies));
        }
        match self.me.upgrade().filter(|_| self.pressure.parks()) {
            // Metrics keep their policies until the store has taken what is parked; nobody need wait for that.
            Some(me) => self.tasks.lock().push(me.spawn_rules()),
            None => self.apply_rules().await,
        }
    }

    fn spawn_rules(self: Arc<Ingest>) -> JoinHandle<()> {
        tokio::spawn(async move { self.apply_rules().await })
    }

    /// Judges every metric that exists by the rules in force, until each of them is kept by its policy.
    async fn apply_rules(&self) {
        while self.apply_rules_once().await {
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Whether some metrics must be gone through again.
    async fn apply_rules_once(&self) -> bool {
        self.after_replay().await;
        let count = self.registry.read().end().0;
        self.judge(count, MetricId).await
    }

    /// Where others write the store too: judges the metrics whose first points were taken out since the last time.
    pub(crate) async fn judge_newcomers(&self) {
        let newcomers = self.held.lock().newcomers.clone();
        if newcomers.is_empty() {
            return;
        }
        if !self.judge(newcomers.len() as u32, |place| newcomers[place as usize]).await {
            // Only now: whoever waits for this may go away in the middle of it. Others came behind them.
            self.held.lock().newcomers.drain(..newcomers.len());
        }
    }

    /// Judges the metrics at these places by the rules in force. Whether some must be gone through again.
    async fn judge(&self, places: u32, number_at: impl Fn(u32) -> MetricId) -> bool {
        const AT_ONCE: u32 = 4096;
        if self.pressure.parks() {
            return true;
        }
        let rules = self.rules.read().clone();
        let mut unfinished = false;
        for first in (0..places).step_by(AT_ONCE as usize) {
            let numbers: Vec<MetricId> = (first..places.min(first + AT_ONCE)).map(&number_at).collect();
            let decisions: Vec<Decision> = {
                let names = self.registry.read();
                numbers.iter().map(|&number| rules.rules.decide(names.name(number))).collect()
            };
            let now = now();
            let (mut changed, mut taken) = (Vec::new(), Vec::new());
            {
                let mut held = self.held.lock();
                // Parked points come under the policy that held when they came.
                if self.pressure.parks() {
                    return true;
                }
                // Others came meanwhile, and whoever brought them goes through all metrics after this.
                if !Arc::ptr_eq(&rules, &self.rules.read()) {
                    return false;
                }
                let table = self.policies.table();
                let names = self.registry.read();
                for (number, decision) in numbers.into_iter().zip(decisions) {
                    if number.index() >= held.states.len() || held.states[number.index()].policy == NO_POLICY {
                        continue;
                    }
                    let is_judged = held.is_judged(number);
                    let state = &mut held.states[number.index()];
                    state.refused = match decision {
                        Decision::Blacklisted => Some(Refused::Blacklisted),
                        Decision::NotWhitelisted => Some(Refused::NotWhitelisted),
                        Decision::Keep(_) => None,
                    };
                    let Decision::Keep(index) = decision else { continue };
                    let policy = rules.ids[index.get()];
                    if state.policy == policy || !is_judged || !rules.rules.has_schemas() {
                        continue;
                    }
                    // What it holds is stored by the policy it came under.
                    taken.extend(held.take(number, &table.all));
                    if held.states[number.index()].open.is_empty() {
                        held.set_policy(number, policy, &table.all);
                        // Under the lock, so that it is in the journal before any point that comes under it.
                        self.journal.name_metric(number, policy, names.name(number), now);
                        changed.push((number, policy));
                    } else {
                        // An older part is still on its way, and the newer one has to wait for it.
                        unfinished = true;
                    }
                }
            }
            for &(number, policy) in &changed {
                self.registry.set_policy(number, policy, now);
            }
            self.unlisted.lock().extend(changed.iter().map(|&(number, _)| number));
            if !changed.is_empty() {
                // Not left to the next batch, which may be long in coming while millions are named. After an error
                // it is: what was named is still to be written.
                drop(self.journal.append(&[]));
            }
            // As at the beginning of a flush cycle: names before rows.
            self.write_taken_after_names(taken).await;
            tokio::task::yield_now().await;
        }
        unfinished
    }
}

/// Gives every policy of the rules its id, and names it in the journal and in the table of policies: only
/// then may a metric be kept by it.
fn name_policies(rules: Rules, registry: &Registry, journal: &Journal, policies: &Policies) -> ActiveRules {
    let ids: Vec<PolicyId> = rules.policies().iter().map(|policy| registry.intern(policy)).collect();
    for id in 0..registry.policy_count() {
        let id = id as PolicyId;
        journal.name_policy(id, &registry.policy(id));
    }
    policies.refresh(registry);
    ActiveRules { rules, ids }
}
