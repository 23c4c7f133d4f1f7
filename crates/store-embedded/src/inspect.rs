//! The files of a store besides its rows, read without opening it.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    io,
    path::{Path, PathBuf},
};

use host::{Disk, read_file_checked};
use metric::{MetricId, Timestamp};
use store::Identity;

use crate::{
    events,
    id_set::IdSet,
    layout1,
    lost::{self, LostPart},
    manifest::{Manifest, not_its_place, table_of},
    names::{self, Losses},
    newer::{list, read_to},
    opening,
    record_log::{self, LogEnd},
    row_file::{self, Flushes, Header},
    spec,
    status::{self, StoredFile},
    survey::other_store,
    tables::{EVENTS_CUT, NAMES_CUT},
    timeline, window_key,
};

pub use crate::record_log::LogReport;

/// Names that a loss gives as examples.
const MOST_NAMES: usize = 10;

/// The store that a spec names.
///
/// # Errors
/// The reason in words, when the spec cannot be read.
pub fn check_spec(disk: &dyn Disk, store: &Path) -> Result<u128, String> {
    let bytes =
        read_file_checked(disk, &store.join("spec"), spec::LONGEST, |_| true).map_err(|error| error.to_string())?;
    spec::store_of(&bytes).ok_or_else(|| "its checksum is wrong, or another program wrote it".to_owned())
}

/// The manifest, where it can be read and is not of another store: a start uses no such one.
fn own_manifest(disk: &dyn Disk, store: &Path) -> Option<Manifest> {
    let manifest = status::manifest_of(disk, store)?;
    let Ok(named) = check_spec(disk, store) else { return Some(manifest) };
    let is_own = manifest.store == named || other_store(disk, store, named) == Some(manifest.store);
    is_own.then_some(manifest)
}

/// Whether a folder is of layout 1, which opening it converts.
pub fn is_layout_1(disk: &dyn Disk, store: &Path) -> bool {
    let text = read_file_checked(disk, &store.join("spec"), spec::LONGEST, |_| true);
    text.is_ok_and(|text| text.starts_with(layout1::first_lines().as_bytes()))
}

/// Runs of the ids that rows were stored for and whose records the log of names has lost, first and last: those behind its end,
/// and those that a start found missing and noted.
pub fn lost_names(disk: &dyn Disk, store: &Path) -> Vec<(MetricId, MetricId)> {
    let manifest = own_manifest(disk, store);
    let Some(manifest) = manifest else { return Vec::new() };
    let of_files = manifest.files.iter().map(|file| file.metrics.1.0.saturating_add(1)).max();
    let stored = manifest.metrics_below.max(of_files.unwrap_or(0));
    let (mut noted, mut known) = (0, IdSet::default());
    let mut missing = noted_missing(disk, store, manifest.store, |kind, payload| {
        noted = noted.max(names::next_of(kind, payload).0);
        names::ids_of(kind, payload, |metric| _ = known.insert(metric));
    });
    // A log that was away may be back.
    missing.retain(|(first, count)| {
        (first.0..first.0.saturating_add(*count)).any(|metric| !known.contains(MetricId(metric)))
    });
    let last = |first: MetricId, count: u32| MetricId(first.0.saturating_add(count.saturating_sub(1)));
    let mut lost: Vec<_> = missing.into_iter().map(|(first, count)| (first, last(first, count))).collect();
    lost.extend((noted < stored).then(|| (MetricId(noted), MetricId(stored - 1))));
    lost
}

/// Calls `each` with every record of a log, and the number of its file. Returns where the records of each file end.
fn read_log(disk: &dyn Disk, dir: &Path, store: u128, mut each: impl FnMut(u64, u8, &[u8])) -> BTreeMap<u64, u64> {
    let mut ends_at = BTreeMap::new();
    for entry in disk.read_dir(dir).unwrap_or_default() {
        let Some(number) = record_log::number_of(&entry.path) else { continue };
        let read = record_log::check_file(disk, &entry.path, "record", Some(store), |kind, payload| {
            each(number, kind, payload);
        });
        // One that cannot be read has nothing.
        ends_at.extend(read.ok().map(|report| (number, report.ends_at)));
    }
    ends_at
}

/// The runs of ids that the log of names notes as missing, a run of none for its end, without those of files that are back. Calls
/// `each` with every record.
fn noted_missing(disk: &dyn Disk, store: &Path, id: u128, mut each: impl FnMut(u8, &[u8])) -> Vec<(MetricId, u32)> {
    let (mut missing, mut lost_ends) = (Vec::new(), Vec::new());
    let ends_at = read_log(disk, &store.join("names"), id, |file, kind, payload| {
        each(kind, payload);
        missing.extend(names::missing_of(kind, payload));
        lost_ends.extend(names::lost_ends::lost_end_of(file, kind, payload));
    });
    names::lost_ends::leave_out_back(&mut missing, &mut lost_ends, |lost| {
        lost.is_back(|file| ends_at.get(&file).copied())
    });
    missing
}

/// The logs of names and events that have lost their ends, and what that costs: those that are shorter than the manifest says that
/// they were, and those in which a start noted it.
pub fn cut_logs(disk: &dyn Disk, store: &Path) -> Vec<(&'static str, String)> {
    let Ok(id) = check_spec(disk, store) else { return Vec::new() };
    let manifest = status::manifest_of(disk, store);
    let ends = manifest.filter(|manifest| manifest.store == id).map(|manifest| manifest.ends).unwrap_or_default();
    let is_noted_of_names = || noted_missing(disk, store, id, |_, _| ()).iter().any(|(_, count)| *count == 0);
    let is_noted_of_events = || {
        let mut notes = Vec::new();
        let ends_at = read_log(disk, &store.join("events"), id, |file, kind, payload| {
            notes.extend(events::cut_of(file, kind, payload));
        });
        notes.iter().any(|note| note.is_none_or(|lost| !lost.is_back(|file| ends_at.get(&file).copied())))
    };
    let is_short = |folder: &str, end: Option<LogEnd>| {
        end.is_some_and(|end| !record_log::reaches(disk, &store.join(folder), id, end))
    };
    let mut cut = Vec::new();
    // What is said of lost names says it, too.
    if (is_short("names", ends.names) || is_noted_of_names()) && lost_names(disk, store).is_empty() {
        cut.push(("names", NAMES_CUT.to_owned()));
    }
    if is_short("events", ends.events) || is_noted_of_events() {
        cut.push(("events", EVENTS_CUT.to_owned()));
    }
    cut
}

/// Rows that earlier damage cost, as the manifest remembers them until they expire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostRows {
    /// The folder of their window, or the file that a start did not find, in the folder of the store.
    pub path: PathBuf,
    /// Whether that file would bring them back.
    pub is_file: bool,
    /// First and last of the metrics that may be touched; none where they may be any.
    pub metrics: Option<(MetricId, MetricId)>,
    /// From and until of the points that may be lost, Unix seconds.
    pub span: (Timestamp, Timestamp),
}

/// The rows that a manifest says are lost, also with files that are missing still; none where it cannot be read.
pub fn lost_rows(disk: &dyn Disk, store: &Path) -> Vec<LostRows> {
    let manifest = own_manifest(disk, store);
    let Some(manifest) = manifest else { return Vec::new() };
    let missing = manifest.missing.iter().filter(|file| !disk.exists(&store.join(file.path())));
    let missing = missing.map(|file| LostRows {
        path: file.path(),
        is_file: true,
        metrics: file.known_metrics(),
        span: file.span(),
    });
    let lost = manifest.lost.chunk_by(|(one, _), (other, _)| one == other).flat_map(|of_window| {
        let window = of_window[0].0;
        let part = move |part: LostPart| LostRows {
            path: window_key::folder(window),
            is_file: false,
            metrics: part.metrics,
            span: part.span(window.0.stage),
        };
        lost::parts(&of_window.iter().map(|(_, lost)| *lost).collect::<Vec<_>>()).into_iter().map(part)
    });
    lost.chain(missing).collect()
}

/// What is known of a manifest that a start made again of the files that were there, until a repair.
pub fn remade_manifest(disk: &dyn Disk, store: &Path) -> Option<String> {
    own_manifest(disk, store)?.remade.map(opening::remade_text)
}

/// What damage has cost the log of names, as starts have noted it until a repair.
fn noted_losses(disk: &dyn Disk, store: &Path) -> Losses {
    let (mut losses, mut known, mut deleted) = (Losses::default(), IdSet::default(), IdSet::default());
    each_name_record(disk, store, |kind, payload| {
        names::take_losses(kind, payload, &mut losses);
        let ids = if names::is_metric(kind) { &mut known } else { &mut deleted };
        names::ids_of(kind, payload, |metric| _ = ids.insert(metric));
    });
    losses.settle(&known, &deleted);
    losses
}

/// Whether a start has noted what damage has cost the log of names, and still says it.
pub fn has_noted_losses(disk: &dyn Disk, store: &Path) -> bool {
    !noted_losses(disk, store).is_none()
}

/// Deletions that damage has cost the log of names, as starts have noted them until a repair: each in words, and the first and last of
/// the metrics.
pub fn lost_deletions(disk: &dyn Disk, store: &Path) -> Vec<(String, (MetricId, MetricId))> {
    let losses = noted_losses(disk, store).of_deletions();
    let named = if losses.is_none() { BTreeMap::new() } else { names_of(disk, store) };
    let examples = losses.succeeded().iter().filter_map(|id| named.get(&id).cloned()).take(MOST_NAMES);
    let texts = losses.texts(&examples.collect::<Vec<_>>());
    texts.into_iter().map(|(_, how, metrics)| (how, metrics)).collect()
}

/// Policies that metrics of the log of names have and whose records are lost: each in words, and the first and last of its metrics.
pub fn lost_policies(disk: &dyn Disk, store: &Path) -> Vec<(String, (MetricId, MetricId))> {
    let (mut known, mut used) = (BTreeSet::new(), BTreeSet::new());
    each_name_record(disk, store, |kind, payload| {
        known.extend(names::policy_of(kind, payload));
        names::policies_of(kind, payload, |number| _ = used.insert(number));
    });
    let mut lost: BTreeMap<u16, IdSet> = used.difference(&known).map(|&number| (number, IdSet::default())).collect();
    if lost.is_empty() {
        return Vec::new();
    }
    each_name_record(disk, store, |kind, payload| {
        // The last record of a metric counts.
        names::ids_of(kind, payload, |metric| lost.values_mut().for_each(|metrics| _ = metrics.remove(metric)));
        names::policies_of(kind, payload, |number| {
            if let Some(metrics) = lost.get_mut(&number) {
                names::ids_of(kind, payload, |metric| _ = metrics.insert(metric));
            }
        });
    });
    let in_words = |(number, metrics): (u16, IdSet)| {
        let ends = metrics.iter().next().zip(metrics.highest())?;
        let how = format!(
            "the record of policy {number} is lost, by which {} metrics were kept; a start looks for it in the saved names, the journal \
             and the rules",
            metrics.iter().count()
        );
        Some((how, ends))
    };
    lost.into_iter().filter_map(in_words).collect()
}

/// Calls `each` with every record of the log of names that can be read, in order.
fn each_name_record(disk: &dyn Disk, store: &Path, mut each: impl FnMut(u8, &[u8])) {
    let id = check_spec(disk, store).ok();
    for path in list(disk, &store.join("names")).unwrap_or_default() {
        // One that cannot be read has none.
        let _ = record_log::check_file(disk, &path, "names record", id, &mut each);
    }
}

/// Those of the metrics that the log of names neither names nor says are deleted. Rows are written only for metrics whose
/// names are on the disk, so damage cost the names of those that have rows.
/// `None` where a file of the log cannot be read.
pub fn without_name(disk: &dyn Disk, store: &Path, metrics: &IdSet) -> Option<IdSet> {
    let id = check_spec(disk, store).ok();
    let mut left = metrics.clone();
    for entry in disk.read_dir(&store.join("names")).unwrap_or_default() {
        if entry.path.extension().is_none_or(|end| end != "log") {
            continue;
        }
        let read = record_log::check_file(disk, &entry.path, "names record", id, |kind, payload| {
            names::ids_of(kind, payload, |metric| _ = left.remove(metric));
        });
        read.ok()?;
    }
    Some(left)
}

/// Files of `names/` or `events/` that others name and that are not there, with the bytes that they had. `store` is that of
/// the spec.
///
/// # Errors
/// Whatever the disk says to a list of the folder.
pub fn missing_logs(disk: &dyn Disk, dir: &Path, store: Option<u128>) -> io::Result<Vec<(PathBuf, u64)>> {
    record_log::missing_files(disk, dir, store)
}

/// The store that a spec names, and its openings; `None` where it cannot be read.
pub fn identity_of(disk: &dyn Disk, store: &Path) -> Option<Identity> {
    spec::identity_of(&read_to(disk, &store.join("spec"), spec::LONGEST)?)
}

/// As [`identity_of`], with the openings that the log of names has behind the last of the spec, which may be one of an earlier time: as a
/// start takes it.
pub fn identity_at_start(disk: &dyn Disk, store: &Path) -> Option<Identity> {
    let Identity { store: id, chain } = identity_of(disk, store)?;
    let mut openings = Vec::new();
    each_name_record(disk, store, |kind, payload| openings.extend(names::opening_of(kind, payload)));
    Some(Identity { store: id, chain: timeline::with_names(chain, &openings) })
}

/// Reads all of a file of `names/` or `events/`.
///
/// # Errors
/// The reason in words, when the file cannot be read as one of a log at all.
pub fn check_log(disk: &dyn Disk, path: &Path, what: &'static str, store: Option<u128>) -> Result<LogReport, String> {
    record_log::check_file(disk, path, what, store, |_, _| ())
}

/// The bytes of a file of `names/` or `events/` with records of these kinds and payloads, for tests of those who read it.
pub fn log_file<'r>(store: u128, number: u64, records: impl Iterator<Item = (u8, &'r [u8])>) -> Vec<u8> {
    record_log::file_bytes(store, number, records)
}

/// The names that the log of names has for metrics, deleted ones included. What cannot be read is left out.
pub fn names_of(disk: &dyn Disk, store: &Path) -> BTreeMap<MetricId, String> {
    let id = check_spec(disk, store).ok();
    let mut known = BTreeMap::new();
    for entry in disk.read_dir(&store.join("names")).unwrap_or_default() {
        let read = record_log::check_file(disk, &entry.path, "names record", id, |kind, payload| {
            known.extend(names::name_of(kind, payload));
        });
        if let Err(how) = read {
            tracing::debug!(how, file = %entry.path.display(), "a file of names cannot be read");
        }
    }
    known
}

/// Names of several ids that are not deleted, with these ids, rising. What cannot be read is left out.
pub fn same_names(disk: &dyn Disk, store: &Path) -> Vec<(String, Vec<MetricId>)> {
    let (mut named, mut deleted, mut losses) = (BTreeMap::new(), IdSet::default(), Losses::default());
    each_name_record(disk, store, |kind, payload| {
        names::take_losses(kind, payload, &mut losses);
        match names::name_of(kind, payload) {
            Some((metric, name)) => _ = named.insert(metric, name),
            None => names::ids_of(kind, payload, |metric| _ = deleted.insert(metric)),
        }
    });
    deleted.extend(losses.succeeded());
    let mut ids: BTreeMap<String, Vec<MetricId>> = BTreeMap::new();
    for (metric, name) in named.into_iter().filter(|(metric, _)| !deleted.contains(*metric)) {
        ids.entry(name).or_default().push(metric);
    }
    ids.into_iter().filter(|(_, ids)| 1 < ids.len()).collect()
}

/// Files of rows that the manifest does not have, and that neither a flush nor a merge left which a crash ended. A start reports them
/// and uses them.
///
/// # Errors
/// Whatever the disk says to a list of a folder.
pub fn unlisted_rows(disk: &dyn Disk, store: &Path) -> io::Result<Vec<(PathBuf, String)>> {
    let (Some(manifest), Some(Identity { chain, store: ours, .. })) =
        (status::manifest_of(disk, store), identity_of(disk, store))
    else {
        return Ok(Vec::new());
    };
    // A start uses no manifest of another store.
    if manifest.store != ours {
        return Ok(Vec::new());
    }
    let mut unlisted = Vec::new();
    for of_table in list(disk, store)? {
        let Some(table) = of_table.file_name().and_then(|name| table_of(name.to_str()?)) else { continue };
        for of_window in list(disk, &of_table)? {
            let number = of_window.file_name().and_then(|name| name.to_str()?.parse().ok());
            let Some(window) = number.map(|number| (table, number)).filter(|key| !manifest.expired.contains(key))
            else {
                continue;
            };
            let listed = || manifest.files.iter().chain(&manifest.missing).filter(|file| file.window == window);
            let flushes_of = |path: &PathBuf| Flushes::of_file_name(path.file_name()?.to_str()?);
            let there: Vec<(PathBuf, Flushes)> =
                list(disk, &of_window)?.into_iter().filter_map(|path| flushes_of(&path).map(|of| (path, of))).collect();
            let is_left = |of: Flushes| there.iter().any(|(_, other)| *other != of && other.contains(of));
            let is_of_last = |path: &Path| {
                let wrote = row_file::written_by(disk, path).map(|(opening, _)| opening.id);
                // Another opening than ours is found elsewhere.
                wrote.is_none_or(|wrote| {
                    chain.last().is_some_and(|last| last.id == wrote) || chain.iter().all(|known| known.id != wrote)
                })
            };
            let is_new = |path: &Path, of: Flushes| manifest.next_flush <= of.last && is_of_last(path);
            let is_unlisted = |(path, of): &&(PathBuf, Flushes)| {
                !listed().any(|file| of.contains(file.flushes)) && !is_left(*of) && !is_new(path, *of)
            };
            let how = |(path, flushes): &(PathBuf, Flushes)| {
                let place = Header { store: ours, table, window: window.1, flushes: *flushes };
                let how = row_file::header_of(disk, path).filter(|header| *header != place);
                let how = how.map(|header| format!("{}; a start puts it aside", not_its_place(&header, ours)));
                (path.clone(), how.unwrap_or_else(|| "the manifest does not have it; a start uses its rows".to_owned()))
            };
            unlisted.extend(there.iter().filter(is_unlisted).map(how));
        }
    }
    Ok(unlisted)
}

/// Files of rows that the manifest has and that are not there, nor a merged file that has their rows.
///
/// # Errors
/// Why the manifest cannot be read, in words.
pub fn missing_rows(disk: &dyn Disk, store: &Path) -> Result<Vec<StoredFile>, String> {
    let mut missing = status::read_manifest(disk, store)?;
    missing.retain(|file| {
        let path = store.join(&file.path);
        if disk.exists(&path) {
            return false;
        }
        let flushes = |path: &Path| Flushes::of_file_name(path.file_name()?.to_str()?);
        let has_rows = |other: &PathBuf| flushes(other).zip(flushes(&path)).is_some_and(|(of, ours)| of.contains(ours));
        let there = path.parent().and_then(|dir| list(disk, dir).ok()).unwrap_or_default();
        !there.iter().any(has_rows)
    });
    Ok(missing)
}

/// The openings that wrote the files of the manifest.
fn openings_of_manifest(disk: &dyn Disk, store: &Path) -> HashSet<u64> {
    let bytes = opening::read_manifest(disk, store).ok().flatten().unwrap_or_default();
    let files = Manifest::parse(&bytes).map_or_else(|_| Vec::new(), |manifest| manifest.files);
    files.iter().map(|file| file.opening).collect()
}

/// Files that belong to another timeline of the store, as from before a restore, and how that is known: files of rows, and the
/// log of names. Nothing where the spec cannot be read.
///
/// # Errors
/// Whatever the disk says to a list of a folder.
pub fn of_other_timeline(disk: &dyn Disk, store: &Path) -> io::Result<Vec<(PathBuf, String)>> {
    let Some(mut identity) = identity_of(disk, store) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    let names = store.join("names");
    let (mut openings, mut highest, mut is_whole) = (Vec::new(), None, true);
    for path in list(disk, &names)? {
        let read = record_log::check_file(disk, &path, "names record", Some(identity.store), |kind, payload| {
            openings.extend(names::opening_of(kind, payload));
            names::ids_of(kind, payload, |metric| highest = highest.max(Some(metric)));
        });
        is_whole &= read.is_ok_and(|report| report.damaged.is_empty());
    }
    let of_spec = identity.chain.len();
    identity.chain = timeline::with_names(identity.chain, &openings);
    let is_unsure = timeline::is_unsure(of_spec, &identity.chain, is_whole);
    let manifest = status::manifest_of(disk, store).filter(|manifest| manifest.store == identity.store && !is_unsure);
    let later = manifest.as_ref().map(|manifest| timeline::of_later(&identity.chain, manifest)).unwrap_or_default();
    if 0 < of_spec && !later.is_empty() {
        // The files next to it are right, and a start says so.
        let spec = store.join("spec");
        let how = format!("a start is refused: {}", timeline::refuse_earlier(&spec, &later));
        return Ok(vec![(spec, how)]);
    }
    let vouched = match is_unsure {
        true => openings_of_manifest(disk, store),
        false => HashSet::new(),
    };
    let in_use = identity.first_id().max(status::stored_below(disk, store));
    let refused = timeline::fault_of_names(&identity, &openings, is_whole, highest, in_use);
    found.extend(refused.map(|how| (names, how)));
    for of_table in list(disk, store)? {
        if of_table.file_name().and_then(|name| name.to_str()).is_none_or(|name| table_of(name).is_none()) {
            continue;
        }
        for of_window in list(disk, &of_table)? {
            for path in
                list(disk, &of_window)?.into_iter().filter(|path| path.extension().is_some_and(|is| is == "rows"))
            {
                let fault = row_file::written_by(disk, &path)
                    .filter(|(opening, _)| !vouched.contains(&opening.id))
                    .and_then(|(opening, highest)| timeline::fault_of_rows(&identity.chain, Some(opening), highest));
                found.extend(fault.map(|how| (path, how)));
            }
        }
    }
    Ok(found)
}
