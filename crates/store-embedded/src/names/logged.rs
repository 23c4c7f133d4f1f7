//! What is in the names log: which ids it has, which of their records is the last, and what a rewrite keeps.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{DefaultHasher, Hasher},
    io,
    path::Path,
};

use metric::{MetricId, Policy};
use parking_lot::RwLock;
use store::{Incarnation, LostPolicy, StoreError};

use super::{
    losses::Losses,
    lost_ends::{leave_out_back, lost_end_of},
    record::{
        DELETED, LOST, LOST_END, METRIC, MISSING, MOST_RUNS, OPENING, POLICY, SEEN, decode_deleted, decode_opening,
        decode_policy, decode_runs, decode_seen, encode_opening, encode_policy, encode_runs, encode_seen, id_of,
        name_of, policies_of,
    },
};
use crate::{
    id_set::IdSet,
    record_log::{CopiedLog, LogEnd, LogFiles, LogFolder, LostEnd, Place, RecordLog, Records, encode_end, rotted},
};

/// A smaller log is not rewritten for what is obsolete in it.
const SMALL_BYTES: u64 = 1 << 20;

/// Bytes of a deleted metric's record, about.
const DELETED_BYTES: u64 = 80;

/// Openings that a rewrite keeps.
const MOST_OPENINGS: usize = 512;

/// Names that a report gives as examples.
const MOST_NAMES: usize = 10;

/// The log, and what of it is in memory.
#[derive(Debug)]
pub(super) struct Logged {
    log: RecordLog,
    /// Ids that have a record and are not deleted.
    known: IdSet,
    /// The last record of each id that has several.
    last: HashMap<MetricId, Place>,
    pub(super) policies: HashMap<u16, Policy>,
    /// Whether a metric names the policy, by its number.
    pub(super) used_policies: Vec<bool>,
    /// Those whose records are lost.
    pub(super) lost_policies: Vec<LostPolicy>,
    pub(super) openings: Vec<Incarnation>,
    /// Records that come before all others, because writing them failed: of openings, and of what is missing.
    owed: Records,
    /// Runs of ids whose records were missing when a start looked: first and how many.
    missing: Vec<(MetricId, u32)>,
    /// Ends of the log that were lost and are not back.
    lost_ends: Vec<LogEnd>,
    /// From and until of the places in which an end of the log is noted to be missing.
    cuts: Vec<Cut>,
    /// What damage has cost, as far as that is known.
    pub(super) losses: Losses,
    /// What this opening has found, until it is settled.
    new_losses: Losses,
    pub(super) next: MetricId,
    /// Bytes of records that are obsolete, about.
    stale: u64,
    /// Bytes of the log below which a rewrite waits, after one that failed.
    rewrite_from: u64,
}

impl Logged {
    /// Reads the log; deleted ids go to `deleted`.
    pub(super) fn open(folder: LogFolder, deleted: &mut IdSet) -> Result<Logged, StoreError> {
        let mut read = Read::default();
        let log = RecordLog::open(folder, |place, kind, payload| read.take(place, kind, payload, deleted))?;
        let Read { known, last, policies, used_policies, openings, mut losses, next, stale, .. } = read;
        let Read { mut missing, mut lost_ends, cuts, .. } = read;
        losses.settle(&known, deleted);
        let next = MetricId(next);
        leave_out_back(&mut missing, &mut lost_ends, |lost| log.is_back(lost));
        let lost_ends =
            lost_ends.iter().filter(|(lost, _)| log.would_be_read(lost)).map(|(lost, _)| lost.end).collect();
        Ok(Logged {
            log,
            known,
            last,
            policies,
            used_policies,
            lost_policies: Vec::new(),
            openings,
            owed: Records::default(),
            missing,
            lost_ends,
            cuts,
            losses,
            new_losses: Losses::default(),
            next,
            stale,
            rewrite_from: 0,
        })
    }

    /// Finds what the damage costs that this opening has met. Reads the log again only where it has met some.
    pub(super) fn find_losses(&mut self, deleted: &IdSet) {
        if !self.has_damage() && self.log.last_lost(DELETED).is_none() {
            return;
        }
        let mut found = Losses::default();
        self.unnamed(deleted).for_each(|id| _ = found.nameless.insert(id));
        if let Some(lost) = self.log.last_lost(DELETED)
            && let Err(error) = self.find_lost_deletions(lost, &mut found)
        {
            tracing::warn!(%error, "cannot read all names to see whether deletions of metrics are lost");
        }
        self.new_losses = found;
    }

    /// Finds the metrics whose deletions may have been in a record in front of a place: those that are named in front of it. Where one
    /// of them shares its name with a later one it was deleted, because a name has one metric at a time.
    fn find_lost_deletions(&self, lost: (u64, u64), found: &mut Losses) -> io::Result<()> {
        let (mut hashes, mut before) = (Vec::new(), IdSet::default());
        self.scan_places(|place, id, payload| {
            if let Some(name) = name_of(payload) {
                hashes.push((hash(name), id));
            }
            if place.is_before(lost) {
                before.insert(id);
                found.deleted_below = found.deleted_below.max(id.0.saturating_add(1));
            }
        })?;
        hashes.sort_unstable();
        let mut same = IdSet::default();
        for group in hashes.chunk_by(|a, b| a.0 == b.0).filter(|group| 1 < group.len()) {
            group.iter().for_each(|(_, id)| _ = same.insert(*id));
        }
        if same.highest().is_none() {
            return Ok(());
        }
        let mut named: BTreeMap<String, Vec<MetricId>> = BTreeMap::new();
        self.scan(|id, payload| {
            if let Some(name) = name_of(payload).filter(|_| same.contains(id)) {
                named.entry(name.to_owned()).or_default().push(id);
            }
        })?;
        for mut ids in named.into_values() {
            ids.sort_unstable();
            ids.pop();
            ids.into_iter().filter(|id| before.contains(*id)).for_each(|id| _ = found.succeeded.insert(id));
        }
        Ok(())
    }

    /// Reports what damage has cost, also before this opening, and notes durably what this opening has found. After an error the next
    /// write notes it first. Where it `is_noted` that the end of the log is missing, that stands for deletions in damage there.
    pub(super) fn settle_losses(&mut self, is_noted: bool) -> Result<(), StoreError> {
        let is_cut = |lost| self.log.is_at_end(lost) || self.cuts.iter().any(|(from, to)| *from <= lost && lost < *to);
        if is_noted && self.log.last_lost(DELETED).is_some_and(is_cut) {
            self.new_losses.deleted_below = 0;
        }
        // A log that waits is not written again, and has what earlier starts noted of its damage.
        let new = std::mem::take(&mut self.new_losses).without(&self.losses);
        self.losses.extend(&new);
        self.report_losses(new.is_none());
        let records = new.records();
        if records.bytes() == 0 { Ok(()) } else { self.write_or_owe(records) }
    }

    fn report_losses(&self, is_found_before: bool) {
        let mut names = Vec::new();
        if self.losses.succeeded.highest().is_some() {
            // What cannot be read now is not an example.
            let _ = self.scan(|id, payload| {
                if names.len() < MOST_NAMES && self.losses.succeeded.contains(id) {
                    names.extend(name_of(payload).map(str::to_owned));
                }
            });
        }
        let folder = self.folder();
        for (what, how, metrics) in self.losses.texts(&names) {
            let since = if is_found_before { "; found before; plumbago repair ends this report" } else { "" };
            folder.reporter.names_lost(what, &folder.dir, metrics, &format!("{how}{since}"));
        }
    }

    /// Ends what is noted of losses; the next rewrite leaves it out.
    pub(super) fn forget_losses(&mut self) -> Losses {
        self.new_losses = Losses::default();
        std::mem::take(&mut self.losses)
    }

    /// Whether records of the log were lost. What cannot be read may be read by the next start.
    pub(super) fn has_damage(&self) -> bool {
        self.log.has_damage()
    }

    /// Ids that were given and have neither a name nor a deletion. Openings leave out ids, too.
    fn unnamed(&self, deleted: &IdSet) -> impl Iterator<Item = MetricId> {
        (0..self.next.0).map(MetricId).filter(|id| !self.known.contains(*id) && !deleted.contains(*id))
    }

    /// Finds and reports the policies whose records are lost, where metrics have them. Reads the log again only where one is.
    pub(super) fn find_lost_policies(&mut self, folder: &LogFolder) {
        let is_lost = |number: &u16| self.used_policies[usize::from(*number)] && !self.policies.contains_key(number);
        let lost = (0..self.used_policies.len()).map(|number| number as u16).filter(is_lost);
        let mut lost: Vec<LostPolicy> = lost.map(|number| LostPolicy { number, metrics: Vec::new() }).collect();
        if lost.is_empty() {
            return;
        }
        let scanned = self.scan(|id, payload| {
            for (since, number) in policies_of(payload) {
                if let Ok(place) = lost.binary_search_by_key(&number, |lost| lost.number) {
                    lost[place].metrics.push((id, since));
                }
            }
        });
        if let Err(error) = scanned {
            tracing::warn!(%error, "cannot read which metrics have a policy whose record is lost");
        }
        // Records that were replaced since may name more.
        lost.retain(|lost| !lost.metrics.is_empty());
        for LostPolicy { number, metrics } in &lost {
            let how = format!(
                "the record of policy {number} is lost, by which {} metrics were kept: unless another line says what it was, these \
                 have the default policy until the rules give them another, and points of theirs may be lost or in wrong slots",
                metrics.len()
            );
            folder.reporter.policy_lost(&folder.dir, metrics.iter().map(|(metric, _)| *metric), &how);
        }
        self.lost_policies = lost;
    }

    /// Calls `each` with the last record of every id.
    ///
    /// # Errors
    /// Some bytes cannot be read now, after `each` had the records of the others.
    pub(super) fn scan(&self, mut each: impl FnMut(MetricId, &[u8])) -> io::Result<()> {
        self.scan_places(|_, id, payload| each(id, payload))
    }

    /// As [`Logged::scan`], with the places of the records.
    fn scan_places(&self, mut each: impl FnMut(Place, MetricId, &[u8])) -> io::Result<()> {
        self.log.files().scan(|place, kind, payload| {
            if kind == METRIC
                && let Some(id) = id_of(payload)
                && self.known.contains(id)
                && self.last.get(&id).is_none_or(|last| *last == place)
            {
                each(place, id, payload);
            }
        })
    }

    /// The ids that have a record and are not deleted.
    pub(super) fn known(&self) -> &IdSet {
        &self.known
    }

    /// The highest id that has a record and is not deleted.
    pub(super) fn highest(&self) -> Option<MetricId> {
        self.known.highest()
    }

    /// Writes the records of an opening. After an error the next write records it first.
    pub(super) fn begin(&mut self, opening: Incarnation, mut records: Records) -> Result<(), StoreError> {
        records.push(OPENING, &encode_opening(&opening));
        self.openings.push(opening);
        self.write_or_owe(records)
    }

    /// Notes durably that the end of the log is missing, and the ids from `first` up to `next` with it. After an error the next write
    /// notes it first.
    pub(super) fn note_missing(
        &mut self,
        (first, next): (MetricId, MetricId),
        end: Option<LogEnd>,
    ) -> Result<(), StoreError> {
        let ids = (first, next.0.saturating_sub(first.0));
        let is_noted = match &end {
            Some(end) => self.lost_ends.contains(end),
            None => self.missing.contains(&ids),
        };
        if is_noted {
            return Ok(());
        }
        let end = end.unwrap_or_else(|| self.log.unknown_end());
        // A run of none stands for the end: its deletions are missing also once all ids have names again.
        let mut runs = vec![ids, (first.max(next), 0)];
        runs.dedup();
        let mut records = Records::default();
        records.push(MISSING, &encode_runs(&runs));
        records.push(LOST_END, &[&encode_end(end)[..], &encode_runs(&runs)].concat());
        self.missing.extend(runs);
        self.lost_ends.push(end);
        self.write_or_owe(records)
    }

    /// Ends what is noted of a missing end; the next rewrite leaves it out.
    pub(super) fn forget_missing(&mut self) {
        self.missing.clear();
        self.lost_ends.clear();
    }

    /// The runs of ids whose records were missing and still are, first and how many; a run of none stands for the end of the log.
    pub(super) fn still_missing(&self, deleted: &IdSet) -> Vec<(MetricId, u32)> {
        let lacks = |id: u32| !self.known.contains(MetricId(id)) && !deleted.contains(MetricId(id));
        let is_missing =
            |(first, count): &&(MetricId, u32)| *count == 0 || (first.0..first.0.saturating_add(*count)).any(lacks);
        self.missing.iter().filter(is_missing).copied().collect()
    }

    fn write_or_owe(&mut self, records: Records) -> Result<(), StoreError> {
        self.write(records.iter()).inspect_err(|_| self.owed.append(&records))
    }

    /// Makes the first file of a log that has none.
    pub(super) fn make_file(&mut self) -> Result<(), StoreError> {
        self.log.make_file()
    }

    /// Whether the log has what was on the disk once.
    pub(super) fn reaches(&self, end: LogEnd) -> Option<bool> {
        self.log.reaches(end)
    }

    /// Writes records, durably.
    pub(super) fn write<'r>(
        &mut self,
        records: impl Iterator<Item = (u8, &'r [u8])> + Clone,
    ) -> Result<(), StoreError> {
        let Logged { log, known, last, stale, owed, .. } = self;
        if 0 < owed.bytes() {
            log.write(owed.iter(), |_, _, _| {})?;
            *owed = Records::default();
        }
        log.write(records, |place, kind, payload| match kind {
            METRIC => {
                if let Some(id) = id_of(payload)
                    && !known.insert(id)
                {
                    *stale += place.bytes();
                    last.insert(id, place);
                }
            }
            DELETED => {
                for id in decode_deleted(payload) {
                    if known.remove(id) {
                        last.remove(&id);
                        *stale += DELETED_BYTES;
                    }
                }
            }
            _ => {}
        })
    }

    /// Writes the log again without what is obsolete or damaged, where that is worth it. Records are durable already,
    /// so that an error is only logged.
    pub(super) fn rewrite_if_stale(&mut self, deleted: &RwLock<IdSet>) {
        let bytes = self.log.files().bytes();
        let is_stale = SMALL_BYTES < bytes && bytes < 2 * self.stale;
        if bytes < self.rewrite_from || !is_stale && !self.log.wants_rewrite() {
            return;
        }
        // What is missing may be put back, and a file that is replaced is not read any more.
        if self.log.is_incomplete() || !self.lost_ends.is_empty() {
            return;
        }
        match self.rewrite(&deleted.read().runs()) {
            Ok(()) => (self.stale, self.rewrite_from) = (0, 0),
            Err(error) => {
                tracing::warn!(%error, "cannot rewrite the log of names; it stays larger than it needs to be");
                self.rewrite_from = bytes + bytes / 10 + SMALL_BYTES / 16;
            }
        }
    }

    /// Writes the log again without what is obsolete or damaged.
    pub(super) fn rewrite(&mut self, deleted: &[(MetricId, u32)]) -> Result<(), StoreError> {
        let first_opening = self.openings.len().saturating_sub(MOST_OPENINGS);
        let (files, had_unread) = (self.log.files(), self.log.has_unread());
        self.log.rewrite(|draft| {
            draft.put(SEEN, &encode_seen(self.next))?;
            for opening in &self.openings[first_opening..] {
                draft.put(OPENING, &encode_opening(opening))?;
            }
            for (id, policy) in &self.policies {
                draft.put(POLICY, &encode_policy(*id, policy))?;
            }
            for runs in self.missing.chunks(MOST_RUNS) {
                draft.put(MISSING, &encode_runs(runs))?;
            }
            for (kind, payload) in self.losses.records().iter() {
                draft.put(kind, payload)?;
            }
            for runs in deleted.chunks(MOST_RUNS) {
                draft.put(DELETED, &encode_runs(runs))?;
            }
            // A record that could not be read when the log was opened may be one of an id that was written again since: not all
            // of an id are counted.
            let (mut put, mut found) = (Ok(()), IdSet::default());
            let scanned = files.scan(|place, kind, payload| {
                if kind == METRIC
                    && let Some(id) = id_of(payload)
                    && self.known.contains(id)
                    && self.last.get(&id).is_none_or(|last| *last == place)
                    && put.is_ok()
                {
                    put = draft.put(kind, payload).map(|_| ());
                    found.insert(id);
                }
            });
            // What could be read when the log was opened is not given up for a read that fails now, or for damage since.
            put?;
            if !had_unread {
                scanned?;
            }
            if self.known.iter().all(|id| found.contains(id)) { Ok(()) } else { Err(rotted()) }
        })?;
        (self.last, self.owed) = (HashMap::new(), Records::default());
        Ok(())
    }

    /// Whether a part of the log cannot be read now.
    pub(super) fn has_unread(&self) -> bool {
        self.log.has_unread()
    }

    pub(super) fn files(&self) -> LogFiles {
        self.log.files()
    }

    pub(super) fn folder(&self) -> &LogFolder {
        self.log.folder()
    }

    pub(super) fn copy_into(&self, into: &Path) -> Result<Vec<CopiedLog>, StoreError> {
        self.log.copy_into(into)
    }
}

/// From the end of the record in front of a note that an end is missing, up to the note: files and offsets.
type Cut = ((u64, u64), (u64, u64));

/// What reading the log has found.
#[derive(Default)]
struct Read {
    known: IdSet,
    last: HashMap<MetricId, Place>,
    policies: HashMap<u16, Policy>,
    used_policies: Vec<bool>,
    openings: Vec<Incarnation>,
    missing: Vec<(MetricId, u32)>,
    lost_ends: Vec<(LostEnd, Vec<(MetricId, u32)>)>,
    cuts: Vec<Cut>,
    /// Where the last record ended.
    end: (u64, u64),
    losses: Losses,
    next: u32,
    stale: u64,
}

fn hash(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(name.as_bytes());
    hasher.finish()
}

impl Read {
    fn take(&mut self, place: Place, kind: u8, payload: &[u8], deleted: &mut IdSet) {
        match kind {
            METRIC => {
                let Some(id) = id_of(payload) else { return };
                self.saw(id);
                for (_, policy) in policies_of(payload) {
                    let end = usize::from(policy) + 1;
                    if self.used_policies.len() < end {
                        self.used_policies.resize(end, false);
                    }
                    self.used_policies[end - 1] = true;
                }
                if deleted.contains(id) {
                    self.stale += place.bytes();
                } else if !self.known.insert(id) {
                    self.stale += place.bytes();
                    self.last.insert(id, place);
                }
            }
            DELETED => {
                for id in decode_deleted(payload) {
                    self.saw(id);
                    deleted.insert(id);
                    if self.known.remove(id) {
                        self.last.remove(&id);
                        self.stale += DELETED_BYTES;
                    }
                }
            }
            POLICY => self.policies.extend(decode_policy(payload)),
            OPENING => {
                let opening = decode_opening(payload);
                let is_new = |opening: &Incarnation| self.openings.iter().all(|known| known.id != opening.id);
                self.openings.extend(opening.filter(is_new));
            }
            MISSING => {
                if decode_runs(payload).any(|(_, count)| count == 0) {
                    self.cuts.push((self.end, place.start()));
                }
                for run in decode_runs(payload) {
                    if !self.missing.contains(&run) {
                        self.missing.push(run);
                    }
                }
            }
            LOST_END => self.lost_ends.extend(lost_end_of(place.start().0, kind, payload)),
            LOST => self.losses.take(payload),
            SEEN => self.next = self.next.max(decode_seen(payload).map_or(0, |next| next.0)),
            _ => {}
        }
        self.end = place.end();
    }

    fn saw(&mut self, id: MetricId) {
        self.next = self.next.max(id.0.saturating_add(1));
    }
}
