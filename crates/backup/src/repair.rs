//! A data folder that is not in use, written again without what is damaged in it.
//!
//! The folder is locked from the beginning to the end.
//!
//! 1. Files whose last sync failed are written again. Then everything is read, as by verifying: what cannot be read is not kept.
//! 2. Damaged bytes of the journal are cut out, and the segments behind them say how long it is now. A damaged clock, damaged saved names and a damaged number of the newest segment go to `damaged/`.
//! 3. The store is repaired, and everything is read again.
//! 4. In a copy of a backup, `backup.json` is written again: it has the checksums of what is there.
//!
//! All damaged bytes are in `damaged/` afterwards.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::ErrorKind,
    path::{Path, PathBuf},
};

use host::{DamagedFolder, Disk, Host, replace_file, retried};
use ingest::wal::{
    LIST, check_chain, kept_losses, name_of_missing, note_cut, note_lengths, note_missing, noted_segments,
    notes_of_missing, read_contents, repaired_list, without_damage,
};
use metric::MetricId;
use store::DamageLog;
use store_embedded::{EmbeddedOptions, has_noted_losses, lost_rows, read_journal_mark, remade_manifest};

use crate::{
    error::{BackupError, with_next_step},
    files::{below, hash},
    manifest::{BackupFile, FILE, Manifest, refuse_unfinished},
    may_start::{refuse_forbidden, refuse_newer, refuse_other_kinds},
    misnamed::put_right,
    verify::{
        CUT_SEGMENT, Checked, EMPTIED, FOREIGN_SEGMENT, Report, SEGMENT, STALE_SEGMENT, STRAY, UNLIKE,
        compare_with_backup, identity_for_journal, is_part, lock, lock_to_read, refuse_folders, refuse_layout_1,
        verify,
    },
};

/// When metrics have points, in the data folder.
const SEEN: &str = "seen";

/// What a repair has found and done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repaired {
    /// What could not be read before.
    pub before: Report,
    /// The same afterwards. `None` if nothing was to be repaired, or only a report was asked for.
    pub after: Option<Report>,
    /// The names that the log of names has.
    pub names: BTreeMap<MetricId, String>,
    /// Files of rows that a start did not find and that are not back: what they had is lost.
    pub given_up: Vec<PathBuf>,
    /// Deletions that may be lost with a damaged record of names, in words: what they deleted may be back. A start says it only where it meets the
    /// record before a repair does.
    pub deletions: Vec<String>,
    /// Files of rows that the disk does not return whole, which a repair leaves as they are, and what it says.
    pub unread: Vec<(PathBuf, String)>,
}

impl Repaired {
    /// Whether a file stays as it is because the disk does not return all of it.
    pub fn is_left(&self, path: &Path) -> bool {
        self.unread.iter().any(|(left, _)| left == path)
    }

    /// Whether damage is left in other files than these.
    pub fn is_bad_still(&self) -> bool {
        self.after.as_ref().is_some_and(|after| after.faults().any(|(file, _)| !self.is_left(&file.path)))
    }
}

/// Repairs a data folder, or with `dry_run` only says what would not be kept.
///
/// # Errors
/// Another process uses the folder, the disk fails, or part of the folder is of a later program.
pub fn repair(host: &Host, data: &Path, dry_run: bool) -> Result<Repaired, BackupError> {
    let disk = &*host.disk;
    refuse_unfinished(disk, data)?;
    let store = data.join("store");
    let in_use = if dry_run { lock_to_read(disk, data)? } else { lock(disk, data)? };
    // A folder that is refused stays as it is: no note is made here.
    refuse_other_kinds(disk, data)?;
    refuse_forbidden(disk, data)?;
    refuse_newer(disk, data)?;
    refuse_layout_1(disk, data)?;
    refuse_folders(disk, data)?;
    let backup = disk.exists(&data.join(FILE)).then(|| Manifest::read(disk, data)).transpose()?;
    if !dry_run && disk.exists(&data.join(host::NOTE_OF_SYNCS)) {
        store_embedded::settle_syncs(disk, data).map_err(with_next_step)?;
    }
    let mut before = verify(disk, data)?;
    if let Some(manifest) = &backup {
        compare_with_backup(disk, data, manifest, &mut before);
        for file in before.files.iter_mut().filter(|file| file.faults.iter().any(|fault| fault.what != UNLIKE)) {
            // What it has of damage is known better.
            file.faults.retain(|fault| fault.what != UNLIKE);
        }
    }
    let is_named = before.faults().any(|(_, fault)| fault.metrics.is_some());
    let names = if is_named { store_embedded::names_of(disk, &store) } else { BTreeMap::new() };
    let given_up: Vec<PathBuf> = lost_rows(disk, &store)
        .into_iter()
        .filter(|lost| lost.is_file)
        .map(|lost| Path::new("store").join(lost.path))
        .collect();
    // A repair ends these reports, also where every byte can be read.
    let has_reports = !given_up.is_empty() || has_noted_losses(disk, &store) || remade_manifest(disk, &store).is_some();
    if dry_run || before.is_good() && !has_reports {
        let unread = unread_rows(disk, data, &before);
        return Ok(Repaired { before, after: None, names, given_up, deletions: Vec::new(), unread });
    }
    let damaged = DamagedFolder::new(host, data);
    let (journal, identity, mark) =
        (data.join("journal"), identity_for_journal(disk, data), read_journal_mark(disk, &store));
    let compare = || {
        let compared = identity.as_ref().map(|identity| check_chain(disk, &journal, mark, identity)).transpose();
        compared.map_err(BackupError::io("reading", &journal)).map(Option::unwrap_or_default)
    };
    let compared = compare()?;
    let found = match compared.misnamed.is_empty() {
        true => before.clone(),
        false => {
            let right = put_right(disk, &damaged, &journal, &compared);
            right.map_err(BackupError::io("repairing", &journal))?;
            verify(disk, data)?
        }
    };
    // Several in a row are one note, as a start writes it. Other files may have their names.
    let noted = noted_segments(disk, damaged.path()).map_err(BackupError::io("listing", damaged.path()))?;
    let is_noted = |number: u64| noted.iter().any(|noted| noted.contains(&number));
    let missing = compare()?;
    for (mut first, mut last) in missing.missing.iter().copied() {
        while first <= last && is_noted(last) {
            last -= 1;
        }
        while first <= last && is_noted(first) {
            first += 1;
        }
        if last < first {
            continue;
        }
        let note = journal.join(name_of_missing(first, last));
        let bytes = missing.missing_bytes.get(&last).copied().unwrap_or(0);
        let noted = damaged.keep_note_of(&note, bytes, "the segment of the journal is missing, found by a repair");
        noted.map_err(BackupError::io("repairing", &journal))?;
    }
    let number = |path: &Path| path.file_stem().and_then(|stem| stem.to_str()?.parse::<u64>().ok());
    let known_bytes =
        |path: &Path| number(path).and_then(|number| missing.missing_bytes.get(&number).copied()).unwrap_or(0);
    let mut rewritten = BTreeSet::new();
    for file in found.files.iter().filter(|file| !file.faults.is_empty()) {
        let path = data.join(&file.path);
        let text = file.path.to_string_lossy();
        let done = match &*text {
            _ if file.faults.iter().all(|fault| fault.what == UNLIKE) => Ok(()),
            _ if file.faults.iter().any(|fault| fault.what == STRAY) => {
                damaged.move_in(&path, "no file of the store has such a number; put aside by a repair").map(drop)
            }
            "clock" | "names" | "segments" => damaged.move_in(&path, "it is damaged; put aside by a repair").map(drop),
            _ if file.faults.iter().any(|fault| fault.what == STALE_SEGMENT) => {
                damaged.move_in(&path, "the store has its points already; put aside by a repair").map(drop)
            }
            _ if file.faults.iter().any(|fault| fault.what == SEGMENT && fault.how == EMPTIED) => damaged
                .keep_note_of(&path, known_bytes(&path), EMPTIED)
                .and_then(|_| damaged.move_in(&path, "it has lost its contents; put aside by a repair"))
                .map(drop),
            // The rest of the journal is as good as before.
            _ if file.faults.iter().any(|fault| [SEGMENT, FOREIGN_SEGMENT].contains(&fault.what)) => Ok(()),
            _ if text.starts_with("journal/") => {
                rewritten.extend(number(&path));
                let ends = file.faults.iter().filter(|fault| fault.what == CUT_SEGMENT);
                let noted = ends.map(|end| {
                    let synced = end.offset + end.bytes;
                    note_cut(&damaged, &path, end.offset, (synced, synced)).map(drop)
                });
                noted.collect::<std::io::Result<()>>().and_then(|()| cut(host, &damaged, &path))
            }
            _ => Ok(()),
        };
        done.map_err(BackupError::io("repairing", &path))?;
    }
    if let Some(identity) = identity {
        // Only what is known: a start says the rest.
        note_lengths(&host.disk, &journal, &rewritten).map_err(BackupError::io("repairing", &journal))?;
        let noted = note_missing(&host.disk, &journal, mark, &identity);
        noted.map_err(BackupError::io("repairing", &journal))?;
    }
    let log = DamageLog::new();
    let options = EmbeddedOptions {
        data: Some(data.to_owned()),
        host: host.clone(),
        damage: log.clone(),
        ..EmbeddedOptions::default()
    };
    let unread = store_embedded::repair(&store, &options, &in_use).map_err(with_next_step)?;
    let lost = log.examples().into_iter().filter(|damage| damage.what == "deletions");
    let deletions: Vec<String> = lost.map(|damage| damage.how).collect();
    if !deletions.is_empty() && disk.exists(&data.join(SEEN)) {
        // It knows nothing of points that are back; a start reads the rows without it.
        disk.remove_file(&data.join(SEEN)).map_err(BackupError::io("removing", &data.join(SEEN)))?;
    }
    let unread: Vec<_> = unread.into_iter().map(|file| (Path::new("store").join(file.path), file.how)).collect();
    if let Some(manifest) = backup {
        seal(disk, data, manifest, &unread).map_err(BackupError::io("writing", &data.join(FILE)))?;
    }
    let mut after = verify(disk, data)?;
    // Those of another timeline stay, as `before` says.
    after.files.iter_mut().for_each(|file| file.faults.retain(|fault| fault.what != SEGMENT));
    Ok(Repaired { before, after: Some(after), names, given_up, deletions, unread })
}

/// The damaged files of rows that the disk does not return whole.
fn unread_rows(disk: &dyn Disk, data: &Path, report: &Report) -> Vec<(PathBuf, String)> {
    let is_of_rows = |file: &&Checked| file.path.starts_with("store") && file.path.extension() == Some("rows".as_ref());
    let damaged = report.files.iter().filter(|file| !file.faults.is_empty()).filter(is_of_rows);
    let unread = damaged.filter_map(|file| {
        let error = retried(|| hash(disk, &data.join(&file.path))).err()?;
        // The disk has nothing to do with these: a repair fails at the one, and the other is missing.
        let is_unread = ![ErrorKind::PermissionDenied, ErrorKind::NotFound].contains(&error.kind());
        is_unread.then(|| (file.path.clone(), error.to_string()))
    });
    unread.collect()
}

/// Writes `backup.json` again with the checksums of what is there. Of the files of rows that the disk does not return whole (`unread`)
/// it keeps what it said: a copy of such a file, put in its place, is compared with that.
fn seal(disk: &dyn Disk, backup: &Path, manifest: Manifest, unread: &[(PathBuf, String)]) -> std::io::Result<()> {
    let mut files = Vec::new();
    let damaged = backup.join("damaged");
    // What starts report of the journal goes to a restored folder.
    let kept = kept_losses(disk, &damaged)?.into_iter().map(|(name, _)| name);
    let notes = notes_of_missing(disk, &damaged)?.into_iter().chain(kept).map(|name| Path::new("damaged").join(name));
    // A repair that failed may have left a draft.
    let is_draft = |path: &Path| path.extension().is_some_and(|end| end == "new");
    let is_meant = |path: &PathBuf| is_part(path) && path != Path::new(FILE) && !is_draft(path);
    let parts = below(disk, backup)?.into_iter().filter(is_meant);
    for path in parts.chain(notes) {
        let (bytes, sha256) = match hash(disk, &backup.join(&path)) {
            Err(_) if unread.iter().any(|(unread, _)| *unread == path) => {
                files.extend(manifest.files.iter().find(|file| Path::new(&file.path) == path).cloned());
                continue;
            }
            hashed => hashed?,
        };
        let path = path.to_string_lossy().into_owned();
        let same = manifest.files.iter().find(|file| (&file.path, &file.sha256) == (&path, &sha256));
        files.push(BackupFile { path, bytes, sha256, index_crc: same.and_then(|file| file.index_crc) });
    }
    let mut lacking = manifest.lacking;
    lacking.retain(|path| files.iter().all(|file| file.path != *path));
    replace_file(disk, &backup.join(FILE), Manifest { files, lacking, ..manifest }.text().as_bytes())
}

/// Cuts the damaged bytes out of a segment of the journal, or of the list of deletions next to it, and keeps them.
fn cut(host: &Host, damaged: &DamagedFolder, path: &Path) -> std::io::Result<()> {
    let bytes = read_contents(&*host.disk, path)?;
    let (kept, cut) = without_damage(&bytes);
    for part in cut {
        damaged.keep_bytes(
            path,
            part.start as u64,
            &bytes[part],
            "not a record of the journal; cut out by a repair",
        )?;
    }
    let kept = if path.file_name() == Some(LIST.as_ref()) { repaired_list(&bytes, kept) } else { kept };
    replace_file(&*host.disk, path, &kept)
}
