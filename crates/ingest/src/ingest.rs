//! The pipeline as the rest of the program sees it: each call goes to the owner that answers it.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use carbon::{QuotaRule, Rules, Sink};
use host::JudgingTime;
use metadata::Registry;
use metric::{MetricId, Timestamp};
use parking_lot::Mutex;
use store::{MetricRecord, NameStore, SeriesSource, SharedMetric, StoreError};
use tokio::task::JoinHandle;

use crate::{
    accept::{Acceptor, Batch, BranchUse, RejectExample},
    deletion::{Condition, DeletionError},
    flush::{FlushError, FlushProgress},
    heads::{Head, HeadRequest, HeadSource, TooManyPoints},
    policy_changes::PolicyChanges,
    protocol::Protocol,
    put_back::PutBack,
    recovered::Restored,
    registration::Turn,
    stats::{CountersSnapshot, Stats},
    store_health::StoreHealth,
    supervisor::Supervisor,
    wal::StagedJournal,
};

/// Points of a batch that is accepted again.
const ACCEPTED_AGAIN: usize = 1000;

/// How long a stop waits for the note of how much of the journal is on the disk.
const NOTE_PATIENCE: Duration = Duration::from_secs(2);

/// How long a stop derives coarse slots again that other nodes may have written too.
const LAST_LOOK: Duration = Duration::from_secs(3);

/// The pipeline from decoded points to the store.
pub struct Ingest {
    pub(crate) stats: Stats,
    policy_changes: Arc<PolicyChanges>,
    put_back: Arc<PutBack>,
    restored: Restored,
    supervisor: Supervisor,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    /// Held while what others deleted is deleted here.
    following: Arc<tokio::sync::Mutex<()>>,
}

impl Ingest {
    pub(crate) fn new(
        stats: Stats,
        policy_changes: Arc<PolicyChanges>,
        put_back: Arc<PutBack>,
        restored: Restored,
        supervisor: Supervisor,
        tasks: Vec<JoinHandle<()>>,
    ) -> Ingest {
        Ingest {
            stats,
            policy_changes,
            put_back,
            restored,
            supervisor,
            tasks: Mutex::new(tasks),
            following: Arc::default(),
        }
    }

    /// Where receivers hand in points.
    pub fn acceptor(&self) -> Arc<Acceptor> {
        self.stats.acceptor.clone()
    }

    /// An empty batch for a connection.
    pub fn batch(&self, protocol: Protocol) -> Batch {
        self.stats.acceptor.batch(protocol)
    }

    /// Accepts every point of the batch; see [`Acceptor::accept`].
    pub async fn accept(&self, batch: &mut Batch) {
        self.stats.acceptor.accept(batch).await;
    }

    /// Where queries read from.
    pub fn series(&self) -> Arc<dyn SeriesSource> {
        self.stats.reader.clone()
    }

    /// Answers of [`Ingest::series`] have the points in memory of these nodes from now on, which write the same store. At most once.
    pub fn set_peers(&self, peers: Arc<dyn HeadSource>) {
        self.stats.reader.set_peers(peers);
    }

    /// The points in memory of these metrics, for another node: a head for each request, `most` points in all. Waits for locks.
    ///
    /// # Errors
    /// There are more.
    pub fn heads(&self, requests: &[HeadRequest], most: usize) -> Result<Vec<Head>, TooManyPoints> {
        self.stats.reader.heads(requests, most)
    }

    /// The time by which points are judged.
    pub fn time(&self) -> &Arc<JudgingTime> {
        self.stats.acceptor.time()
    }

    /// The registry the names are in.
    pub fn registry(&self) -> &Arc<Registry> {
        self.stats.acceptor.registry()
    }

    /// Everything that is counted.
    pub fn counters(&self) -> CountersSnapshot {
        self.stats.snapshot()
    }

    /// Why the store does not take points or metrics; `None` while it does.
    pub fn store_problem(&self) -> Option<String> {
        self.stats.health.problem().map(|problem| problem.why)
    }

    /// What watches the background tasks, and those of others over this pipeline.
    pub fn supervisor(&self) -> &Supervisor {
        &self.supervisor
    }

    /// What senders wait for; `None` while they do not wait.
    pub fn waits_for(&self) -> Option<String> {
        self.stats.back_pressure.reason().map(str::to_owned)
    }

    /// Makes senders wait while the disk has less free than is kept for merges.
    pub fn set_disk_short(&self, is_short: bool) {
        self.stats.back_pressure.set_disk_short(is_short);
    }

    /// How long the store has taken nothing, and its message; `None` while it takes points.
    pub fn store_outage(&self) -> Option<(Duration, String)> {
        self.stats.health.outage()
    }

    /// The last rejected inputs, newest first.
    pub fn rejects(&self) -> Vec<RejectExample> {
        self.stats.acceptor.rejects()
    }

    /// The use of quotas of branches and of limits by prefix.
    pub fn quotas(&self) -> Vec<BranchUse> {
        self.stats.new_metrics.quotas_used()
    }

    /// Whether branches have quotas.
    pub fn has_quotas(&self) -> bool {
        self.stats.new_metrics.has_quotas()
    }

    /// Puts other quotas of branches into force, which takes as long as reading all names: blocks the thread.
    pub fn set_quotas(&self, rules: Vec<QuotaRule>) {
        self.stats.new_metrics.set_quotas(rules);
    }

    /// The result of replaying the journal at the start.
    pub fn restored(&self) -> Restored {
        self.restored
    }

    /// Where a driver with a connection reports whether the store can be reached.
    pub fn store_health(&self) -> &Arc<StoreHealth> {
        &self.stats.health
    }

    /// Metrics that are not in the metrics table yet.
    pub fn unregistered(&self) -> Vec<MetricId> {
        self.stats.registration.unregistered()
    }

    /// Gives ids to metrics of a shared store, as [`Registry::reserve`] does. Hidden ones that it shows again count for limits again.
    pub fn reserve<T>(&self, found: Vec<T>, name_of: impl Fn(&T) -> &str) -> Vec<(MetricId, T)> {
        self.stats.new_metrics.reserve(found, name_of)
    }

    /// Takes in metrics that others created in a shared store. Their ids must have been given by [`Ingest::reserve`],
    /// and be remembered where the registry is opened from: the journal does not name them. They keep the policy they
    /// come with until points for them come here. Returns how many were not known; the records of others may be owed, see
    /// [`Ingest::write_owed_records`].
    ///
    /// Of thousands of distinct policies the last are not taken in, nor their metrics: that is logged.
    pub fn adopt(&self, records: Vec<MetricRecord>) -> usize {
        let (added, overtaken) = self.stats.new_metrics.adopt(records);
        self.policy_changes.owe(overtaken);
        added
    }

    /// Those of some metrics of the shared tables that others keep by another policy than this process knows, and that it has no
    /// points for: their records with that policy, for [`Ingest::take_over`].
    pub fn kept_otherwise(&self, metrics: &[SharedMetric]) -> Vec<MetricRecord> {
        self.policy_changes.kept_otherwise(metrics)
    }

    /// Notes policies that other nodes had for metrics which this node knows: points may be stored under them. Nothing while points are spilled.
    /// Returns for how many of them there was anything new. [`Ingest::write_owed_records`] follows.
    pub fn learn(&self, metrics: &[SharedMetric]) -> usize {
        self.policy_changes.learn(metrics)
    }

    /// Writes the records of metrics that [`Ingest::learn`] and [`Ingest::take_over`] found otherwise than the embedded store has them, and returns
    /// when they are on its disk. What an earlier call could not write, or did not end, is written as well. Others know all of it: `local` is
    /// the embedded store alone.
    ///
    /// # Errors
    /// The embedded store cannot keep them; they are written by the next call.
    pub async fn write_owed_records(&self, local: &dyn NameStore) -> Result<(), StoreError> {
        self.policy_changes.write_owed_records(local).await
    }

    /// Whether [`Ingest::learn`] may find something new in what the tables have of a metric, or [`Ingest::kept_otherwise`] does.
    pub fn tells(&self, id: MetricId, metric: &SharedMetric) -> bool {
        self.policy_changes.tells(id, metric)
    }

    /// Whether [`Ingest::learn`] left anything out since the last call, because points were spilled or read back: the caller reads the names again.
    pub fn take_left_out(&self) -> bool {
        self.policy_changes.take_left_out()
    }

    /// The caller leaves a metric of the tables out of a read of all names. Where others changed it while this node did not run, that is left to
    /// the next read, also that of another process: see [`Ingest::all_are_read`].
    pub fn leave_out(&self, id: MetricId, metric: &SharedMetric) {
        self.policy_changes.leave_out(id, metric);
    }

    /// All names of the shared tables have been read: unless anything was left out, what others changed while this node did not run is noted,
    /// and the next process does not ask for it again.
    pub fn all_are_read(&self) {
        self.policy_changes.all_are_read();
    }

    /// Writes the records of [`Ingest::kept_otherwise`] to the embedded store, and puts their policies in force. Returns how many metrics have another
    /// policy than before.
    ///
    /// # Errors
    /// The embedded store cannot keep them; [`Ingest::write_owed_records`] writes what is in force.
    pub async fn take_over(&self, records: Vec<MetricRecord>, local: &dyn NameStore) -> Result<usize, StoreError> {
        self.policy_changes.take_over(records, local).await
    }

    /// Deletes metrics: their names, points in memory and rows. Returns how many there were. The same name sent again is a
    /// new metric.
    ///
    /// # Errors
    /// Metrics are gone from this process, and the rest of the work is retried.
    pub async fn delete(&self, metrics: &[MetricId]) -> Result<usize, DeletionError> {
        self.stats.deletion.delete(metrics, Condition::Always).await
    }

    /// Hides metrics that are gone from shared tables, unless their names are still `meant` when that is done; returns how many there were. A
    /// point for one, or [`Ingest::adopt`], shows it again. Waits for a merge of the path index.
    pub fn hide(&self, metrics: &[MetricId], meant: impl Fn(&str) -> bool) -> usize {
        self.stats.new_metrics.hide(metrics, meant)
    }

    /// Notes that another process, or this one, deleted names from the shared tables at these times, Unix seconds, which may be still to come
    /// by the calendar here: what is created from now on counts as created after them, and spilled points of an earlier metric of such a
    /// name are of before them.
    pub fn note_deletions<'a>(&self, deletions: impl Iterator<Item = (&'a str, Timestamp)>) {
        let spilled = &self.stats.deletion.spilled;
        let deletions = deletions.inspect(|(name, at)| spilled.note_later(name, *at));
        self.stats.new_metrics.note_deletions(deletions, self.stats.acceptor.time().reached());
    }

    /// Waits until no name is on its way to the metrics table, and keeps others from it for as long as the answer lasts.
    pub async fn registration_turn(&self) -> Turn {
        self.stats.registration.turn().await
    }

    /// Deletes metrics from this process that another one deleted from the shared tables at these times, Unix seconds: their
    /// names and points in memory. Points of slots that begin later are accepted again, and make new metrics. Returns how many
    /// metrics there were. Which are meant was found out within the same turn of [`Ingest::registration_turn`].
    ///
    /// # Errors
    /// As [`Ingest::delete`].
    pub async fn delete_followed(
        self: &Arc<Self>,
        metrics: Vec<(MetricId, Timestamp)>,
        logged: i64,
        turn: Turn,
    ) -> Result<usize, DeletionError> {
        let (this, following) = (self.clone(), self.following.clone().lock_owned().await);
        // A task, which ends also when the caller does: points that are accepted again are nowhere else until then.
        let deleting = tokio::spawn(async move {
            let _following = following;
            this.delete_as_others_did(&metrics, logged, turn).await
        });
        match deleting.await {
            Ok(deleted) => deleted,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime ends, and this with it.
                Err(_) => std::future::pending().await,
            },
        }
    }

    /// Waits until what others deleted, and this process is deleting, is deleted, and points of later metrics are accepted.
    pub async fn followed_deletions_end(&self) {
        drop(self.following.lock().await);
    }

    async fn delete_as_others_did(
        &self,
        metrics: &[(MetricId, Timestamp)],
        logged: i64,
        turn: Turn,
    ) -> Result<usize, DeletionError> {
        let mut later = Vec::new();
        let deleted = self.stats.deletion.delete_followed(metrics, logged, &turn, &mut later).await;
        drop(turn);
        let of_a_deletion = later.chunk_by(|one, next| one.deleted_at == next.deleted_at);
        for points in of_a_deletion.flat_map(|points| points.chunks(ACCEPTED_AGAIN)) {
            let mut batch = self.batch(Protocol::Own);
            // A deletion that is followed later, and was made before now, ends these metrics, too.
            batch.created_on = Some(points[0].deleted_at + 1);
            points.iter().for_each(|point| batch.point(point.name.as_bytes(), point.time, point.value));
            self.accept(&mut batch).await;
        }
        deleted
    }

    /// Metrics of the current deletions that are done, and all of them.
    pub fn deletion_progress(&self) -> (u64, u64) {
        self.stats.deletion.progress()
    }

    /// As [`Ingest::delete`], without the metrics that have points in memory.
    ///
    /// # Errors
    /// As there.
    pub async fn delete_idle(&self, metrics: &[MetricId]) -> Result<usize, DeletionError> {
        self.stats.deletion.delete(metrics, Condition::WithoutPoints).await
    }

    /// Puts rules in force: for new metrics at once, for those that exist as they are gone through in the background.
    /// Points from then on are kept by the new policy; stored points stay readable. Rules without a schema leave every
    /// metric that exists as it is: carbon's default would drop the coarse stages of a store without being asked to.
    pub async fn set_rules(&self, rules: Rules) {
        let must_wait = self.policy_changes.set(rules);
        let changes = self.policy_changes.clone();
        let apply = self.supervisor.run("policy changes", move || changes.clone().apply());
        if must_wait {
            // The caller need not wait for that.
            tracing::info!(
                "metrics that exist keep their retention until the clock is certain and the store has all spilled points; the \
                 blacklist and the whitelist hold for them at once"
            );
            self.tasks.lock().push(tokio::spawn(apply));
        } else {
            apply.await;
        }
    }

    /// Metrics that keep another policy than the rules in force give them, until the clock is certain and the store has all
    /// spilled points. Counted when that began.
    pub fn policies_waiting(&self) -> u64 {
        self.policy_changes.waiting()
    }

    /// Writes out everything that was accepted before this call, at once, spilled points too. On `Ok` it is durable in
    /// the store; while the store takes nothing this waits. See [`Ingest::flush_progress`] and
    /// [`Ingest::flush_patiently`].
    pub async fn flush(&self) -> io::Result<()> {
        self.stats.cycle.flush().await
    }

    /// Waits until a flush has ended since the last call ended. For one caller.
    pub async fn flush_ended(&self) {
        self.stats.cycle.ended().await;
    }

    /// As [`Ingest::flush`], for as long as the store takes points: when it has taken none for `patience`, this ends.
    /// Retries a store that is away at once.
    ///
    /// # Errors
    /// [`FlushError::Store`] has the store's message and what waits for it.
    pub async fn flush_patiently(&self, patience: Duration) -> Result<(), FlushError> {
        self.stats.cycle.flush_patiently(patience).await
    }

    /// One moment of everything that was accepted, without a flush: first `store` links what is stored, then the segments
    /// of the journal that were begun before the moment are linked into `into`, which is on the same file system. A replay
    /// of these over what is stored has all points accepted before the returned moment, and none after it, but for what its disk did
    /// not return of segments that cannot be linked.
    pub async fn snapshot<T: Send + 'static>(
        &self,
        into: PathBuf,
        store: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<(Timestamp, T, StagedJournal)> {
        self.stats.cycle.snapshot(into, store).await
    }

    /// Reads the segments of the journal again that no start could read whole, and puts their points back where nothing newer
    /// is. It happens by itself each minute. Returns how many points were put back.
    ///
    /// # Errors
    /// Their slots cannot be read, or the journal cannot be written; they stay.
    pub async fn put_back(&self) -> io::Result<u64> {
        let put_back = self.put_back.put_back().await?;
        self.put_back.derive_again().await.map(|again| put_back + again)
    }

    /// Metrics whose coarse slots are derived once more within seconds, since other nodes may have written them at the same moment.
    pub fn rechecks_soon(&self) -> usize {
        self.stats.cycle.rechecks_soon()
    }

    /// How far a flush is, for people who wait for it.
    pub fn flush_progress(&self) -> FlushProgress {
        self.stats.cycle.progress()
    }

    /// For a stop, before it waits for the receivers: none of them waits for room any more. Their points and those in
    /// their sockets are taken into the journal, beyond its limit.
    pub fn release_receivers(&self) {
        self.stats.back_pressure.release();
    }

    /// Ends ingestion: points in memory are written out, and the background tasks end. Spilled points stay in the
    /// journal, and so do points accepted later.
    pub async fn close(&self) -> io::Result<()> {
        self.end_tasks().await;
        // The jobs of a cycle that was cut off are still being written; this one waits for them.
        self.stats.cycle.run_once().await?;
        self.stats.cycle.recheck_at_end(LAST_LOOK).await;
        self.stats.journal.elsewhere(|journal| journal.sync()).await?
    }

    /// As [`Ingest::close`], for as long as the store takes points: when it has taken none for `patience`, points in
    /// memory stay in the journal, which is on the disk when this returns, and the next start replays them.
    ///
    /// # Errors
    /// [`FlushError::Store`] has the store's message and what stays; [`FlushError::JournalStuck`] says that even this is not
    /// promised.
    pub async fn close_patiently(&self, patience: Duration) -> Result<(), FlushError> {
        self.end_tasks().await;
        let written = self.stats.cycle.run_once_patiently(patience).await;
        if written.is_ok() {
            self.stats.cycle.recheck_at_end(patience.min(LAST_LOOK)).await;
        }
        let journal = &self.stats.journal;
        tokio::select! {
            synced = journal.elsewhere(|journal| journal.sync()) => {
                synced.and_then(|synced| synced).map_err(FlushError::Journal)?;
            }
            () = journal.given_up(patience) => return Err(FlushError::JournalStuck { patience }),
        }
        journal.note_synced_at_end(patience.min(NOTE_PATIENCE)).await;
        written
    }

    async fn end_tasks(&self) {
        let tasks: Vec<JoinHandle<()>> = self.tasks.lock().drain(..).collect();
        for task in &tasks {
            task.abort();
        }
        // An aborted task runs on until it next waits.
        for task in tasks {
            let _ = task.await;
        }
    }
}
