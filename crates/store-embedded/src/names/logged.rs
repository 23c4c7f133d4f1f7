//! What is in the names log: which ids it has, which of their records is the last, and what a rewrite keeps.

use std::{collections::HashMap, io, path::Path};

use metric::{MetricId, Policy};
use parking_lot::RwLock;
use store::{Incarnation, LostPolicy, StoreError};

use super::record::{
    DELETED, METRIC, MISSING, MOST_RUNS, OPENING, POLICY, SEEN, decode_deleted, decode_opening, decode_policy,
    decode_runs, decode_seen, encode_opening, encode_policy, encode_runs, encode_seen, id_of, policies_of,
};
use crate::{
    id_set::{IdSet, runs},
    record_log::{CopiedLog, LogEnd, LogFiles, LogFolder, Place, RecordLog, Records, rotted},
};

/// A smaller log is not rewritten for what is obsolete in it.
const SMALL_BYTES: u64 = 1 << 20;

/// Bytes of a deleted metric's record, about.
const DELETED_BYTES: u64 = 80;

/// Openings that a rewrite keeps.
const MOST_OPENINGS: usize = 512;

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
    pub(super) missing: Vec<(MetricId, u32)>,
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
        let Read { known, last, policies, used_policies, openings, missing, next, stale } = read;
        let next = MetricId(next);
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
            next,
            stale,
            rewrite_from: 0,
        })
    }

    /// Whether records of the log were lost. What cannot be read may be read by the next start.
    pub(super) fn has_damage(&self) -> bool {
        self.log.has_damage()
    }

    /// Ids that were given and have neither a name nor a deletion, as runs. Openings leave out ids, too.
    pub(super) fn unnamed(&self, deleted: &IdSet) -> Vec<(MetricId, u32)> {
        let is_unnamed = |id: &MetricId| !self.known.contains(*id) && !deleted.contains(*id);
        runs((0..self.next.0).map(MetricId).filter(is_unnamed))
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
        self.log.files().scan(|place, kind, payload| {
            if kind == METRIC
                && let Some(id) = id_of(payload)
                && self.known.contains(id)
                && self.last.get(&id).is_none_or(|last| *last == place)
            {
                each(id, payload);
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

    /// Notes durably which ids are missing. After an error the next write notes it first.
    pub(super) fn note_missing(&mut self, run: (MetricId, u32)) -> Result<(), StoreError> {
        if self.missing.contains(&run) {
            return Ok(());
        }
        self.missing.push(run);
        let mut records = Records::default();
        records.push(MISSING, &encode_runs(&[run]));
        self.write_or_owe(records)
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

/// What reading the log has found.
#[derive(Default)]
struct Read {
    known: IdSet,
    last: HashMap<MetricId, Place>,
    policies: HashMap<u16, Policy>,
    used_policies: Vec<bool>,
    openings: Vec<Incarnation>,
    missing: Vec<(MetricId, u32)>,
    next: u32,
    stale: u64,
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
                for run in decode_runs(payload) {
                    if !self.missing.contains(&run) {
                        self.missing.push(run);
                    }
                }
            }
            SEEN => self.next = self.next.max(decode_seen(payload).map_or(0, |next| next.0)),
            _ => {}
        }
    }

    fn saw(&mut self, id: MetricId) {
        self.next = self.next.max(id.0.saturating_add(1));
    }
}
