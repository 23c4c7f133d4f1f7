//! The start: makes the owners from the bottom up, recovers the journal, and spawns their tasks.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize},
    },
    time::Duration,
};

use carbon::Rules;
use host::{Clock, DamagedFolder, JudgingTime};
use metadata::{Registry, SEEN, given_as_saved};
use parking_lot::Mutex;
use store::{Identity, Store, StoreError};

use crate::{
    accept::{Acceptor, AcceptorParts, AppendQueue, AppendQueueParts, NameLimits, NewMetrics, Resolver, Sync},
    active_rules::ActiveRules,
    back_pressure::{BackPressure, Held},
    call_health::{CallHealth, Outage},
    deletion::{Deletion, DeletionCounters},
    flush::{
        Aside, CycleParts, FlushCycle, LateFiles, ReadBack, ReadBackParts, ReadFrom, RecheckFile, RowWriter,
        RowWriterParts,
    },
    ingest::Ingest,
    memtable::Memtable,
    options::{IngestError, IngestOptions},
    outage_log::OutageLog,
    owed_records::OwedRecords,
    policy_changes::PolicyChanges,
    policy_table::Policies,
    put_back::{PutBack, PutBackParts},
    read::Reader,
    read_patience::ReadPatience,
    recovered::{self, Recovered},
    recovery,
    registration::Registration,
    replay::ReplayParts,
    seen_times::SeenTimes,
    spill::Spill,
    spilled_deletions::SpilledDeletions,
    stats::Stats,
    store_health::StoreHealth,
    supervisor::Supervisor,
    wal::{
        Folder, Journal, JournalDamage, JournalOptions, JournalSize, KeptDeletions, Newest, NewestFile, WriterIdentity,
    },
};

/// Interval of fsyncs in the background, where each batch also waits for its own.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

impl Ingest {
    /// Opens the journal, replays it, and begins to sync and flush. The registry must already hold what the
    /// metrics table holds.
    pub async fn open(
        options: IngestOptions,
        store: impl Into<Store>,
        registry: Arc<Registry>,
        rules: Rules,
    ) -> Result<Arc<Ingest>, IngestError> {
        let memory = Memory::new(&options, store.into(), registry);
        let deletions = Arc::new(KeptDeletions::new(options.host.disk.clone(), &options.journal_dir));
        let damage = options.damaged().noting(deletions.clone());
        damage.go_on_noting(&Folder::new(options.host.disk.clone(), &options.journal_dir));
        let newest = options.newest(&damage);
        let mut recovered = memory.recover((&options, newest), &rules, &damage)?;
        damage.report_kept();
        damage.report_late_files(&Folder::new(options.host.disk.clone(), &options.journal_dir));
        damage.set_parked(0 < recovered.restored.parked_points);
        memory.note_deleted(&recovered, &deletions);
        let before = memory.store.names.identity();
        let identity = memory.begin().await?;
        let read = std::mem::take(&mut recovered.segments);
        let lowest = read.keys().next().copied();
        let journal = memory.open_journal((&options, newest), identity.clone(), &damage, read)?;
        memory.note_first_mark(&journal, lowest).await;
        recovered::count(&recovered.restored, &journal);
        let from = recovered.reading(identity.clone());
        let Memory { store, memtable, registry, time, .. } = &memory;
        let seen = SeenTimes::begin(&options, store, memtable, registry, time, (&before, &identity)).map(Arc::new);
        if seen.is_some() {
            let changed: Vec<_> = std::mem::take(&mut recovered.changed).into_iter().collect();
            registry.widen_seen(&changed, time.reached());
        }
        let owners = Owners::new(memory, journal, rules, (&options, &damage), &mut recovered);
        owners.name_given_ids(&recovered, &options).await?;
        let jobs = std::mem::take(&mut recovered.jobs);
        let kept = Kept { identity, damage, deletions, seen };
        let ingest = owners.start(&options, recovered, from, kept);
        if !jobs.is_empty() {
            let Stats { writer, journal, memtable, .. } = &ingest.stats;
            let (jobs, writer) = (Arc::new(Mutex::new(VecDeque::from(jobs))), writer.clone());
            let (journal, memtable) = (journal.clone(), memtable.clone());
            // They can be read, and points are accepted meanwhile.
            tokio::spawn(ingest.supervisor().run("recovered points", move || {
                recovered::write_jobs(jobs.clone(), writer.clone(), journal.clone(), memtable.clone())
            }));
        }
        Ok(ingest)
    }
}

/// The owners that a recovery fills from the journal.
struct Memory {
    clock: Arc<dyn Clock>,
    time: Arc<JudgingTime>,
    store: Store,
    registry: Arc<Registry>,
    policies: Arc<Policies>,
    journal_size: Arc<JournalSize>,
    back_pressure: Arc<BackPressure>,
    memtable: Arc<Memtable>,
}

impl Memory {
    fn new(options: &IngestOptions, store: Store, registry: Arc<Registry>) -> Memory {
        let clock = options.host.clock.clone();
        let time = options.time.clone().unwrap_or_else(|| Arc::new(JudgingTime::of(clock.clone())));
        let journal_size = Arc::new(JournalSize::default());
        let back_pressure = Arc::new(BackPressure::new(
            options.memory_limit_bytes,
            options.journal_limit_bytes,
            journal_size.clone(),
            clock.clone(),
        ));
        let is_alone = store.shared.is_none();
        let policies = Arc::new(Policies::new(registry.clone(), is_alone));
        let memtable = Memtable::new(registry.clone(), policies.clone(), back_pressure.clone(), is_alone);
        Memory { clock, time, store, registry, policies, journal_size, back_pressure, memtable: Arc::new(memtable) }
    }

    /// Reads the existing segments.
    fn recover(
        &self,
        (options, newest): (&IngestOptions, Option<Newest>),
        rules: &Rules,
        damage: &JournalDamage,
    ) -> Result<Recovered, IngestError> {
        self.registry.never_give_below(self.store.names.next_id());
        if let Some(data) = &options.data_dir {
            let store = self.store.names.identity().store;
            self.registry.never_give_below(given_as_saved(&*options.host.disk, &data.join(SEEN), store));
        }
        let parts = ReplayParts {
            clock: self.clock.clone(),
            folder: &Folder::new(options.host.disk.clone(), &options.journal_dir),
            damage,
            identity: self.store.names.identity(),
            names: &*self.store.names,
            registry: &self.registry,
            rules,
            policies: &self.policies,
            memtable: &self.memtable,
            memory_limit: options.memory_limit_bytes,
            patience: ReadPatience::new(self.clock.clone(), options.read_patience),
        };
        recovery::recover(parts, (self.store.names.journal_mark(), newest))
    }

    /// Notes what the journal deletes, where segments are kept, or will be read, whose points must not bring it back.
    fn note_deleted(&self, recovered: &Recovered, deletions: &KeptDeletions) {
        if deletions.is_asking() && !recovered.deleted.is_empty() {
            deletions.note_deleted(recovered.deleted.iter().map(|&metric| (metric, "")), self.clock.now());
        }
    }

    /// Begins an opening of the store. It distinguishes the ids from here on from those of a copy that goes on elsewhere.
    async fn begin(&self) -> Result<Identity, IngestError> {
        let end = self.registry.read().end();
        let identity = self.store.names.begin(end).await?;
        if let Some(opening) = identity.chain.last() {
            self.registry.never_give_below(opening.first_id);
        }
        Ok(identity)
    }

    /// Opens the journal behind the existing segments.
    fn open_journal(
        &self,
        (options, newest): (&IngestOptions, Option<Newest>),
        identity: Identity,
        damage: &JournalDamage,
        read: BTreeMap<u64, u64>,
    ) -> Result<Arc<Journal>, IngestError> {
        let registry = self.registry.clone();
        let next_id = Box::new(move || registry.read().end());
        let names = self.store.names.clone();
        let put_opening = Box::new(move || {
            names.put_opening().map_err(|error| match error {
                StoreError::Io { what, source } => io::Error::new(source.kind(), format!("{what}: {source}")),
                error => io::Error::other(error),
            })
        });
        let journal = JournalOptions {
            identity: WriterIdentity { identity, next_id, put_opening },
            memory_limit: options.memory_limit_bytes,
            mark: self.store.names.journal_mark(),
            newest: (options.newest_file(), newest),
            read,
            size: self.journal_size.clone(),
            damage: damage.clone(),
        };
        let journal = Journal::open(options.host.clone(), &options.journal_dir, journal);
        journal.map(Arc::new).map_err(|source| IngestError::Journal { dir: options.journal_dir.clone(), source })
    }
}

impl Memory {
    /// Notes which segment is the first that the store may lack, where the store has no mark yet: until then a segment that is
    /// missing before all others is like one that was stored and removed. `lowest` is the lowest that was read.
    async fn note_first_mark(&self, journal: &Journal, lowest: Option<u64>) {
        // Without a segment of this opening nothing may say that there is one.
        if self.store.names.journal_mark().is_some() || journal.is_failing() {
            return;
        }
        let (current, _) = journal.current();
        let mark = journal.mark(lowest.unwrap_or(current), current);
        if let Err(error) = self.store.names.set_journal_mark(mark).await {
            tracing::warn!(%error, "cannot note the first segment of the journal in the store; the first flush does");
        }
    }
}

impl IngestOptions {
    fn newest_file(&self) -> NewestFile {
        NewestFile::new(self.host.disk.clone(), self.data_dir.as_deref())
    }

    /// The newest segment that may have a record, as the file next to the journal says. Read again for a while where that
    /// fails; after that, it counts as none, which is reported: the manifest and the segments say nearly the same.
    fn newest(&self, damage: &JournalDamage) -> Option<Newest> {
        let (file, patience) = (self.newest_file(), ReadPatience::new(self.host.clock.clone(), self.read_patience));
        let read = patience.read(|| file.read(damage), Result::is_err);
        read.unwrap_or_else(|error| {
            file.report_unread(damage, &error);
            None
        })
    }

    /// Where bytes of the journal go that cannot be used.
    fn damaged(&self) -> JournalDamage {
        let data = self.data_dir.as_deref().unwrap_or(&self.journal_dir);
        JournalDamage::new(DamagedFolder::new(&self.host, data), self.host.clock.clone(), self.damage.clone())
    }
}

/// What is kept of the journal, and what tells whose points it has.
struct Kept {
    identity: Identity,
    damage: JournalDamage,
    deletions: Arc<KeptDeletions>,
    /// When metrics have points, where it is known.
    seen: Option<Arc<SeenTimes>>,
}

/// The owners between the memtable and those that points come and go by.
struct Owners {
    memory: Memory,
    journal: Arc<Journal>,
    health: Arc<StoreHealth>,
    spill: Arc<Spill>,
    rules: Arc<ActiveRules>,
    registration: Arc<Registration>,
    writer: Arc<RowWriter>,
}

impl Owners {
    fn new(
        memory: Memory,
        journal: Arc<Journal>,
        rules: Rules,
        (options, damage): (&IngestOptions, &JournalDamage),
        recovered: &mut Recovered,
    ) -> Owners {
        let Memory { clock, time, store, registry, policies, back_pressure, memtable, .. } = &memory;
        let health = Arc::new(StoreHealth::new(clock.clone()));
        let reading = CallHealth::new(Outage::new(clock.clone()));
        let spill = Arc::new(Spill::new(journal.clone(), back_pressure.clone(), health.clone(), reading));
        spill.resume(&recovered.left);
        memtable.count_recovered(recovered.jobs.iter().map(|job| Held::from(&job.points)).sum());
        if !recovered.jobs.is_empty() {
            memtable.set_jobs_aside();
        }
        let rules = Arc::new(ActiveRules::new(rules, registry.clone(), journal.clone(), policies.clone()));
        let registration =
            Arc::new(Registration::new(store.names.clone(), registry.clone(), health.clone(), journal.clone()));
        registration.add(std::mem::take(&mut recovered.unregistered));
        registration.add_deleted(recovered.deleted.drain());
        let writer = RowWriter::new(RowWriterParts {
            store: store.clone(),
            registry: registry.clone(),
            memtable: memtable.clone(),
            back_pressure: back_pressure.clone(),
            spill: spill.clone(),
            health: health.clone(),
            clock: clock.clone(),
            time: time.clone(),
            late_files: LateFiles::new(options.host.clone(), time.clone(), options.journal_dir.clone(), damage.clone()),
            aside: Aside::new(options.host.clone(), time.clone(), &options.journal_dir, options.damage.clone()),
            recheck_file: RecheckFile::new(options.host.disk.clone(), options.data_dir.as_deref()),
            // Others have stored it within one interval, and this process has then flushed once more within another.
            flush_after: options.flush_after,
            behind_for: options.flush_after.saturating_mul(2),
            opened: clock.instant(),
        });
        Owners { journal, health, spill, rules, registration, writer, memory }
    }

    /// Before the first point and the first row with an id that this start gave.
    async fn name_given_ids(&self, recovered: &Recovered, options: &IngestOptions) -> Result<(), IngestError> {
        let Memory { registry, clock, .. } = &self.memory;
        let named = recovered::name_given_ids(&recovered.given_ids, registry, &self.journal, clock.now()).await;
        named.map_err(|error| {
            let why = format!(
                "{error}; the journal names metrics that this store does not know, as with an older copy of it, and these names must be \
                 written before anything else; nothing is lost: if the disk is full, make room (trash/ and damaged/ in the data \
                 folder), and start again"
            );
            let source = io::Error::new(error.kind(), why);
            IngestError::Journal { dir: options.journal_dir.clone(), source }
        })
    }

    fn acceptor(&self, sync: Sync, limits: NameLimits) -> (Acceptor, Arc<NewMetrics>) {
        let Memory { registry, back_pressure, memtable, clock, time, .. } = &self.memory;
        let new_metrics = Arc::new(NewMetrics::new(
            registry.clone(),
            self.rules.clone(),
            self.journal.clone(),
            memtable.clone(),
            self.registration.clone(),
            limits,
        ));
        let queue = AppendQueue::new(AppendQueueParts {
            journal: self.journal.clone(),
            memtable: memtable.clone(),
            back_pressure: back_pressure.clone(),
            spill: self.spill.clone(),
        });
        let acceptor = Acceptor::new(AcceptorParts {
            queue: Arc::new(queue),
            quotas: new_metrics.quotas().clone(),
            resolver: Resolver::new(registry.clone(), self.rules.clone(), new_metrics.clone()),
            journal: self.journal.clone(),
            back_pressure: back_pressure.clone(),
            spill: self.spill.clone(),
            clock: clock.clone(),
            time: time.clone(),
            sync,
        });
        (acceptor, new_metrics)
    }

    fn policy_changes(&self) -> PolicyChanges {
        let Memory { registry, back_pressure, memtable, time, .. } = &self.memory;
        time.begins_now();
        PolicyChanges {
            rules: self.rules.clone(),
            registry: registry.clone(),
            journal: self.journal.clone(),
            memtable: memtable.clone(),
            back_pressure: back_pressure.clone(),
            registration: self.registration.clone(),
            writer: self.writer.clone(),
            owed: OwedRecords::default(),
            time: time.clone(),
            are_others_left_out: AtomicBool::new(false),
            are_absences_left: AtomicBool::new(false),
            given: AtomicU64::new(0),
            waiting: Mutex::default(),
            listed_newcomers: AtomicUsize::new(0),
        }
    }

    fn cycle(&self, policy_changes: Arc<PolicyChanges>, seen: Option<Arc<SeenTimes>>) -> FlushCycle {
        let Memory { back_pressure, memtable, clock, .. } = &self.memory;
        FlushCycle::new(CycleParts {
            journal: self.journal.clone(),
            memtable: memtable.clone(),
            back_pressure: back_pressure.clone(),
            spill: self.spill.clone(),
            registration: self.registration.clone(),
            policy_changes,
            writer: self.writer.clone(),
            health: self.health.clone(),
            clock: clock.clone(),
            seen,
        })
    }

    fn read_back(
        &self,
        from: ReadFrom,
        damage: JournalDamage,
        (acceptor, deletions): (Arc<Acceptor>, Arc<SpilledDeletions>),
    ) -> ReadBack {
        let Memory { registry, policies, back_pressure, memtable, clock, .. } = &self.memory;
        let parts = ReadBackParts {
            clock: clock.clone(),
            registry: registry.clone(),
            policies: policies.clone(),
            journal: self.journal.clone(),
            memtable: memtable.clone(),
            back_pressure: back_pressure.clone(),
            spill: self.spill.clone(),
            writer: self.writer.clone(),
            registration: self.registration.clone(),
            damage,
            acceptor,
            deletions,
        };
        ReadBack::new(parts, from)
    }

    fn put_back(&self, kept: Kept, acceptor: Arc<Acceptor>) -> PutBack {
        let Memory { store, registry, back_pressure, memtable, .. } = &self.memory;
        let Kept { identity, damage, deletions, .. } = kept;
        PutBack::new(PutBackParts {
            identity,
            damage,
            deletions,
            registry: registry.clone(),
            rules: self.rules.clone(),
            store: store.points.clone(),
            names: store.names.clone(),
            is_alone: store.shared.is_none(),
            journal: self.journal.clone(),
            memtable: memtable.clone(),
            back_pressure: back_pressure.clone(),
            writer: self.writer.clone(),
            acceptor,
        })
    }

    /// Makes the owners that points come and go by, and spawns every task.
    fn start(self, options: &IngestOptions, recovered: Recovered, from: ReadFrom, kept: Kept) -> Arc<Ingest> {
        let (acceptor, new_metrics) = self.acceptor(options.sync, options.name_limits.clone());
        let policy_changes = Arc::new(self.policy_changes());
        let cycle = Arc::new(self.cycle(policy_changes.clone(), kept.seen.clone()));
        let (acceptor, spilled) = (Arc::new(acceptor), Arc::<SpilledDeletions>::default());
        let read_back = Arc::new(self.read_back(from, kept.damage.clone(), (acceptor.clone(), spilled.clone())));
        let deletions = kept.deletions.clone();
        let put_back = Arc::new(self.put_back(kept, acceptor.clone()));
        let Owners { memory, journal, health, spill, registration, writer, .. } = self;
        let Memory { clock, time, store, registry, journal_size, back_pressure, memtable, .. } = memory;
        let shared = store.shared;
        let reader = Arc::new(Reader::new(
            store.points,
            registry.clone(),
            memtable.clone(),
            health.clone(),
            clock.clone(),
            time,
        ));
        let outage_log = OutageLog {
            health: health.clone(),
            back_pressure: back_pressure.clone(),
            spill: spill.clone(),
            cycle: cycle.clone(),
            journal: journal_size,
            clock: clock.clone(),
        };
        let sync_interval = match options.sync {
            Sync::Every(interval) => interval,
            Sync::Always => SYNC_INTERVAL,
        };
        let supervisor = Supervisor::new(clock.clone());
        let (syncing, noting, flush_after) = (journal.clone(), journal.clone(), options.flush_after);
        let (registering, flushing, changing) = (registration.clone(), cycle.clone(), policy_changes.clone());
        let (outage_log, putting_back) = (Arc::new(outage_log), put_back.clone());
        let tasks = vec![
            tokio::spawn(supervisor.run("journal sync", move || syncing.clone().sync_every(sync_interval))),
            tokio::spawn(supervisor.run("journal notes", move || noting.clone().note_synced_every())),
            tokio::spawn(supervisor.run("registration", move || registering.clone().run())),
            tokio::spawn(supervisor.run("flush cycle", move || flushing.clone().run(flush_after))),
            tokio::spawn(supervisor.run("read back", move || read_back.clone().run())),
            tokio::spawn(supervisor.run("put back", move || putting_back.clone().run())),
            tokio::spawn(supervisor.run("outage log", move || outage_log.clone().run())),
            tokio::spawn(supervisor.run("policy changes", move || changing.clone().apply())),
        ];
        let deletion = Deletion {
            kept: deletions,
            spill: spill.clone(),
            spilled,
            registry: registry.clone(),
            journal: journal.clone(),
            memtable: memtable.clone(),
            registration: registration.clone(),
            clock: clock.clone(),
            shared,
            new_metrics: new_metrics.clone(),
            counters: DeletionCounters::default(),
        };
        let stats = Stats {
            acceptor,
            new_metrics,
            back_pressure,
            spill,
            journal,
            memtable,
            health,
            registration,
            deletion,
            cycle,
            writer,
            reader,
        };
        Arc::new(Ingest::new(stats, policy_changes, put_back, recovered.restored, supervisor, tasks))
    }
}
