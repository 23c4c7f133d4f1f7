//! The journal read back at the start: every name, and as many points as there is memory for. Further segments are left
//! to be read back as spilled points.

use std::collections::BTreeMap;

use store::{Identity, JournalMark};

use crate::{
    known_changes::KnownChanges,
    lost_policies,
    options::IngestError,
    recovered::Recovered,
    replay::{Replay, ReplayParts},
    wal::{self, Folder, Newest, PlanError, Planned},
};

/// Reads the segments, oldest first, into the memtable until that is full, and metrics that the registry does not have
/// into the registry. `known` is what the store and the file of the newest segment say. Returns what was found and what is left to be
/// done. Every segment is on the disk then.
pub(crate) fn recover(
    parts: ReplayParts<'_>,
    known: (Option<JournalMark>, Option<Newest>),
) -> Result<Recovered, IngestError> {
    let ReplayParts { folder, damage, identity, names, registry, rules, policies, patience, .. } = &parts;
    let is_unreadable = |planned: &Result<_, IngestError>| matches!(planned, Err(IngestError::UnreadableJournal { source, .. }) if wal::may_pass(source));
    let (planned, misnamed) = patience.read(|| plan(folder, identity, known.1), is_unreadable)?;
    let ids_given = planned.iter().chain(&misnamed).filter_map(|planned| Some(planned.header.as_ref()?.next_id));
    let ids_opened = identity.chain.iter().map(|opening| opening.first_id);
    if let Some(highest) = ids_given.chain(ids_opened).max() {
        registry.never_give_below(highest);
    }
    let mut segments: BTreeMap<u64, u64> =
        planned.iter().map(|planned| (planned.segment.number, planned.segment.bytes)).collect();
    let noted = patience.read(|| damage.noted(), Result::is_err);
    let (planned, left_alone) = wal::leave_out_stored(folder, damage, (planned, &misnamed), known, identity, noted);
    // Behind the notes of those that are nowhere else: after a kill between, nothing would know them.
    for one in &misnamed {
        damage.move_misnamed(&one.segment, one.header.as_ref().map_or(0, |header| header.segment));
    }
    segments.retain(|number, _| !left_alone.contains(number));
    let kept = damage.report_strays(folder).and_then(|()| damage.move_renamed(folder));
    kept.map_err(|source| IngestError::Journal { dir: folder.dir().to_owned(), source })?;
    lost_policies::find(*names, (folder, patience), &planned, registry, rules);
    policies.refresh();
    let known_changes = KnownChanges::find((folder, patience), &planned, registry, policies);
    let recovered = Replay::new(parts, &planned, known_changes).run()?;
    Ok(Recovered { segments, ..recovered })
}

/// The segments to read, and those that have names of others. Refuses those of a later program and those of another store.
fn plan(folder: &Folder, ours: &Identity, newest: Option<Newest>) -> Result<(Vec<Planned>, Vec<Planned>), IngestError> {
    let dir = || folder.dir().to_owned();
    let (planned, misnamed) = folder.plan(newest).map_err(|error| match error {
        PlanError::Disk(source) => IngestError::Journal { dir: dir(), source },
        PlanError::Unreadable { segment, source } => IngestError::UnreadableJournal { file: segment.path, source },
        PlanError::Newer { segment, version } => IngestError::NewerJournal { file: segment.path, version },
    })?;
    let stores = planned.iter().filter_map(|planned| Some(planned.header.as_ref()?.identity.store));
    match stores.into_iter().find(|&theirs| theirs != 0 && ours.store != 0 && theirs != ours.store) {
        Some(theirs) => Err(IngestError::OtherStore { dir: dir(), theirs, ours: ours.store }),
        None => Ok((planned, misnamed)),
    }
}
