//! What is in the folder of a store: points, metrics and events.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use host::Trash;
use metric::MetricId;
use store::{Identity, StoreError, Usage};

use crate::{
    cache,
    damage::Reporter,
    events::EventsLog,
    folder::{self, FolderLock, io_error},
    layout1::{Layout1, NewTables},
    manifest::ManifestFile,
    merges::MergeWith,
    names::Names,
    opening::{ReadManifest, refuse_repair},
    options::EmbeddedOptions,
    owner::Owner,
    patience::Patience,
    points::Points,
    record_log::{CopiedLog, LogFolder, WhenUnread},
    row_file,
    spec::{self, Spec},
    status::metrics_below,
    timeline,
};

/// How long an opening waits for a log that the manifest knows and that is not there, or shorter, and does not grow.
const ABSENT_PATIENCE: Duration = Duration::from_secs(5);

/// The tables of a store.
pub(crate) struct Tables {
    dir: PathBuf,
    pub(crate) options: EmbeddedOptions,
    pub(crate) spec: Spec,
    pub(crate) names: Names,
    pub(crate) events: EventsLog,
    pub(crate) points: Points,
    /// Held until the last call has ended, also one whose caller is gone. `None` where the caller holds it.
    _lock: Option<FolderLock>,
}

impl Tables {
    /// Locks the folder, converts it if it is of an older layout, and opens what is in it.
    pub(crate) fn open(dir: &Path, options: EmbeddedOptions) -> Result<Tables, StoreError> {
        let lock = folder::open(&*options.host.disk, dir)?;
        folder::settle_syncs(&*options.host.disk, options.data.as_deref().unwrap_or(dir))?;
        Tables::open_locked(dir, options, Some(lock))
    }

    /// As [`Tables::open`], of a folder that is locked.
    pub(crate) fn open_locked(
        dir: &Path,
        options: EmbeddedOptions,
        lock: Option<FolderLock>,
    ) -> Result<Tables, StoreError> {
        let host = &options.host;
        let data = options.data.as_deref().unwrap_or(dir);
        let trash = Arc::new(Trash::open(host, data));
        let reporter = Reporter::new(host, &options.damage, data);
        let open = |dir: &Path, identity: &Identity, owner: &Owner| {
            open_in(dir, identity.clone(), owner, &options, &trash, &reporter)
        };
        let convert = |dir: &Path, identity: &Identity| open(dir, identity, &spec::owner_of(&host.disk, dir));
        Layout1::new((host, dir), &reporter, &trash, options.read_patience).convert(convert)?;
        let spec = Spec::open(host, dir, &reporter)?;
        let NewTables { names, events, points } = open(dir, &spec.identity(), spec.owner())?;
        spec.restore_chain(points.openings());
        let was_used = points.highest_metric().is_some() || !spec.identity().chain.is_empty();
        if was_used && names.disk_bytes() == 0 {
            let how = "the log of names is missing; rows without a name stay, and their ids are not given again";
            reporter.missing("names record", &dir.join("names"), how);
        }
        let (of_names, of_events) = (note_missing_names(&names, &points), note_missing_events(&events, &points));
        let _ = names.settle_losses().inspect_err(cannot_note);
        points.follow_logs(of_names.then(|| names.files()), of_events.then(|| events.files()));
        // The report of ids says it, too.
        let missing = names.missing();
        if !missing.is_empty() && missing.iter().all(|(_, count)| *count == 0) {
            reporter.log_cut("names record", &dir.join("names"), NAMES_CUT);
        }
        if events.is_cut() {
            reporter.log_cut("event", &dir.join("events"), EVENTS_CUT);
        }
        for (first, count) in missing.into_iter().filter(|(_, count)| 0 < *count) {
            let last = MetricId(first.0.saturating_add(count.saturating_sub(1)));
            reporter.missing_names(&dir.join("names"), first, last);
        }
        if let Err(error) = spec.raise() {
            // Reads need no room. Every sync tries again.
            tracing::error!(%error, "cannot note the row codec of this version in the store; stored points are served, and new ones stay in the journal until it can be written");
        }
        Ok(Tables { dir: dir.to_owned(), options, spec, names, events, points, _lock: lock })
    }

    /// Above every id that the store has seen.
    pub(crate) fn next_id(&self) -> MetricId {
        let above_rows = self.points.highest_metric().map_or(MetricId(0), |id| MetricId(id.0.saturating_add(1)));
        above_rows.max(self.names.next_id()).max(self.spec.identity().first_id())
    }

    /// Records an opening. The log of names has it too, so that the chain outlives a damaged spec, or has it instead where
    /// the spec cannot be written now.
    pub(crate) fn begin(&self, first_id: MetricId) -> Identity {
        // First: a start that ends behind the spec alone would leave a store that was used and lacks its names.
        let _ = self.names.make_file();
        let identity = self.spec.begin(first_id);
        self.points.set_identity(identity.clone());
        // Also where no file could be made: a log whose names are of an opening that it lacks counts as that of another timeline.
        if let Some(opening) = identity.chain.last()
            && let Err(error) = self.names.begin(*opening)
        {
            tracing::warn!(%error, "cannot note the opening in the log of names; the next write of names does");
        }
        identity
    }

    /// Looks whether another process began meanwhile. From then on nothing is written to the data folder, also by others of this
    /// process.
    pub(crate) fn check_owner(&self) {
        if self.spec.owner().lost().is_none() && self.spec.owner().check().is_err() {
            let data = self.options.data.as_deref().unwrap_or(&self.dir);
            self.options.host.disk.refuse_writes(data, self.spec.owner().lost().unwrap_or_default());
        }
    }

    /// Whether the files of the log of names are where they were.
    pub(crate) fn check_names_place(&self) -> Result<(), StoreError> {
        self.names.log_files().check_places(&self.dir.join("names"))
    }

    /// Whether events are taken, as far as that is known: the files of their log are where they were, and the disk took the last one.
    pub(crate) fn check_events(&self) -> Result<(), StoreError> {
        self.events.log_files().check_places(&self.dir.join("events"))?;
        self.events.problem().map_or(Ok(()), |problem| Err(StoreError::Unavailable(problem)))
    }

    /// Writes everything to files.
    pub(crate) fn flush(&self) -> Result<(), StoreError> {
        self.names.sync()?;
        self.flush_points()
    }

    /// Writes points to files.
    pub(crate) fn flush_points(&self) -> Result<(), StoreError> {
        self.spec.raise()?;
        self.spec.owner().check()?;
        self.points.flush()
    }

    /// Writes both logs again without what is damaged, and everything else to files.
    pub(crate) fn write_again(&self) -> Result<(), StoreError> {
        // Ids whose names are lost stay given.
        self.names.note_given(self.next_id());
        // Who repairs has read that their names are lost.
        self.names.forget_missing();
        self.events.forget_cut();
        self.flush()?;
        self.names.rewrite()?;
        self.events.write_again()?;
        // Last: a repair that fails before lists them when it is run again.
        self.points.give_up_missing();
        self.flush_points()
    }

    /// Copies the logs and the spec into a folder, durably. Returns the files of the logs.
    pub(crate) fn copy_logs(&self, into: &Path) -> Result<Vec<CopiedLog>, StoreError> {
        let disk = &*self.options.host.disk;
        let folder = |name: &str| -> Result<PathBuf, StoreError> {
            let dir = into.join(name);
            disk.create_dir_all(&dir).map_err(io_error(format!("making the folder {}", dir.display())))?;
            Ok(dir)
        };
        let mut files = self.names.copy_into(&folder("names")?)?;
        files.extend(self.events.copy_into(&folder("events")?)?);
        let spec = into.join("spec");
        let written = host::replace_file(disk, &spec, spec::text_of(&self.spec.identity()).as_bytes());
        written.map_err(io_error(format!("writing {}", spec.display())))?;
        Ok(files)
    }

    /// Calls `merge` with what merges of points work with.
    pub(crate) fn with_merging<T>(&self, is_stopped: &dyn Fn() -> bool, merge: impl FnOnce(&MergeWith<'_>) -> T) -> T {
        let is_raised = self.spec.raise().is_ok() && self.spec.owner().lost().is_none();
        let is_stopped = &|| !is_raised || is_stopped();
        merge(&MergeWith {
            points: &self.points,
            reserve_bytes: self.options.reserve_bytes,
            is_deleted: &|metric| self.names.is_deleted(metric),
            is_stopped,
        })
    }

    /// The size of the store.
    pub(crate) fn usage(&self) -> Usage {
        let points = self.points.usage();
        Usage {
            disk_bytes: points.disk_bytes + self.names.disk_bytes() + self.events.disk_bytes(),
            memory_bytes: points.memory_bytes + self.names.unsynced_bytes(),
            tables: points.tables,
        }
    }
}

/// What a log of names that has lost its end costs, for operators.
pub(crate) const NAMES_CUT: &str = "the end of the log was lost, or an older log is in its place: metrics that were deleted since may be \
                                    back, and names and rules since are missing";

/// As [`NAMES_CUT`], of events.
pub(crate) const EVENTS_CUT: &str =
    "the end of the log was lost, or an older log is in its place: events since are missing";

/// Notes that the log of names has lost its end, or is an older copy: names are on the disk before rows are, and the manifest says
/// how far. Later starts find the note, for the log continues behind it. Returns whether nothing is left to note.
fn note_missing_names(names: &Names, points: &Points) -> bool {
    let next = points.highest_metric().map_or(MetricId(0), |highest| MetricId(highest.0.saturating_add(1)));
    let end = points.log_ends().names;
    let is_short = match end.map(|end| names.reaches(end)) {
        Some(None) => return false,
        reaches => reaches.flatten() == Some(false),
    };
    if next <= names.next_id() && !is_short {
        return true;
    }
    // What a later start may read is not missing.
    if names.has_unread() {
        return false;
    }
    let noted = names.note_missing(next, end.filter(|_| is_short));
    noted.inspect_err(cannot_note).is_ok()
}

/// As [`note_missing_names`], of events.
fn note_missing_events(events: &EventsLog, points: &Points) -> bool {
    match points.log_ends().events.map(|end| events.reaches(end)) {
        Some(None) => false,
        Some(Some(false)) => {
            let noted = points.log_ends().events.map_or(Ok(()), |end| events.note_cut(end));
            noted.inspect_err(cannot_note).is_ok()
        }
        Some(Some(true)) | None => true,
    }
}

fn cannot_note(error: &StoreError) {
    tracing::warn!(%error, "cannot note what a log has lost; its next write does");
}

/// Opens the tables of a folder.
fn open_in(
    dir: &Path,
    mut identity: Identity,
    owner: &Owner,
    options: &EmbeddedOptions,
    trash: &Arc<Trash>,
    reporter: &Reporter,
) -> Result<NewTables, StoreError> {
    let host = &options.host;
    let manifest = read_manifest(dir, options)?;
    let ours = manifest.as_ref().and_then(|read| read.of_store(identity.store));
    let ends = ours.map(|manifest| manifest.ends).unwrap_or_default();
    let folder = |name: &str, table: [u8; 4], what, known| LogFolder {
        host: host.clone(),
        dir: dir.join(name),
        table,
        what,
        store: identity.store,
        owner: owner.clone(),
        reporter: reporter.clone(),
        when_unread: WhenUnread::Refuse,
        known,
        needs_known: false,
    };
    let of_names = folder("names", *b"name", "names record", ends.names);
    let names = match options.leaves_out_unread_names {
        true => Names::open(LogFolder { when_unread: WhenUnread::GoOnWithTheRest, ..of_names })?,
        false => open_log(&of_names, options.read_patience, Names::open)?,
    };
    let of_spec = identity.chain.len();
    identity.chain = timeline::with_names(identity.chain, &names.openings());
    let mut is_unsure = timeline::is_unsure(of_spec, &identity.chain, names.is_whole());
    let stored = || match &manifest {
        Some(read) => read.parsed.as_ref().map_or(MetricId::NONE, metrics_below),
        None => MetricId(0),
    };
    timeline::refuse_other_names(&identity, &names, stored)?;
    let vouching = ours.filter(|_| !is_unsure);
    let later = vouching.map(|manifest| timeline::of_later(&identity.chain, manifest)).unwrap_or_default();
    // A spec that was made again has no openings: those of the log of names came before, unless it gave ids that these gave, too.
    let is_before = |file: &&ManifestFile| {
        let wrote = row_file::written_by(&*host.disk, &dir.join(file.path()));
        wrote.is_none_or(|(opening, _)| names.highest_given().is_none_or(|highest| highest < opening.first_id))
    };
    if !later.is_empty() {
        if 0 < of_spec || !later.values().copied().all(|file| is_before(&file)) {
            return Err(timeline::refuse_earlier(&dir.join("spec"), &later));
        }
        is_unsure = true;
    }
    let of_events = folder("events", *b"evnt", "event", ends.events);
    let events = |folder: LogFolder| EventsLog::open(folder, options.events);
    let events = match open_log(&of_events, options.read_patience, events) {
        Err(StoreError::Io { .. }) => events(LogFolder { when_unread: WhenUnread::GoOn, ..of_events })?,
        opened => opened?,
    };
    let data = options.data.as_deref().unwrap_or(dir);
    let shared = cache::Shared::new(host, data, options.damage.clone(), trash.clone(), options.cache_bytes);
    let points = Points::open(dir, Arc::new(shared), (identity, owner.clone()), is_unsure, manifest)?;
    Ok(NewTables { names, events, points })
}

/// Opens a log, patiently. One that is not there, or shorter than the manifest knows it, is not waited for as long as one that cannot be
/// read, unless it grows: it may have been removed, or a power cut has taken its end.
fn open_log<T>(
    folder: &LogFolder,
    patience: Duration,
    open: impl Fn(LogFolder) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let clock = &folder.host.clock;
    let patience = Patience::new(clock, patience);
    let open_known = || open(LogFolder { needs_known: true, ..folder.clone() });
    match open_known() {
        Err(StoreError::Io { .. }) => {}
        opened => return opened,
    }
    let mut len = folder.known_len().ok();
    loop {
        let for_absent = Patience::new(clock, patience.left().min(ABSENT_PATIENCE));
        match for_absent.retry(open_known) {
            Err(StoreError::Io { .. }) => {}
            opened => return opened,
        }
        // Where it does not say, it may have grown.
        let now = folder.known_len().ok();
        let stands_still = now.zip(len).is_some_and(|(now, len)| now <= len);
        if stands_still || patience.left().is_zero() {
            return patience.retry(|| open(folder.clone()));
        }
        len = now.or(len);
    }
}

/// Reads the manifest once, and patiently. Where it stays unreadable, a start makes it again of the files, without what only it knows;
/// a repair is refused, because it would not know what earlier damage has cost.
fn read_manifest(dir: &Path, options: &EmbeddedOptions) -> Result<Option<ReadManifest>, StoreError> {
    let host = &options.host;
    let patience = Patience::new(&host.clock, options.read_patience);
    match patience.retry(|| ReadManifest::read(&*host.disk, dir)) {
        Err(error) if options.needs_manifest => Err(refuse_repair(error)),
        Err(error @ StoreError::Io { .. }) => Ok(Some(ReadManifest::unread(&error))),
        read => read,
    }
}
