//! The names at a start, and at a clean stop.
//!
//! A clean stop saves the registry, so that the next start does not read the whole metrics table. The saved file stands for
//! the table only while the table is in the state that it had at the save ([`NamesMark`]): after a restore, or where a log
//! was put back, the table counts. Where both are of one opening and the table lacks something, it lost that since the
//! stop, and what the file still names is written to it again. So it is with policies that the table has lost, and with the deletion
//! of a metric whose name a lost one has.

use std::{path::Path, sync::Arc};

use host::Disk;
use metric::MetricId;
use store::{LostPolicy, NameStore, NamesMark, PolicyChange, StoreError};

use crate::{
    registry::Registry,
    same_names::SameName,
    saved::{OpenError, SavedNames},
    saved_tags::{SAVED_TAGS, SavedTags, remove},
};

/// The file in the data folder. Present only between a clean stop and the next start.
pub const SAVED: &str = "names";

/// Metrics that are written again together.
const BATCH: usize = 4096;

/// The names, from the saved file in the folder `data` if it is a copy of the metrics table as that is now, otherwise from
/// the table.
///
/// Returns the names that have several ids in the table, too.
///
/// # Errors
/// The table cannot be read, or the saved file not be removed.
pub async fn open_names(
    data: &Path,
    names: &dyn NameStore,
    disk: &Arc<dyn Disk>,
) -> Result<(Registry, Vec<SameName>), StoreError> {
    let path = data.join(SAVED);
    if disk.exists(&path) {
        let tags = SavedTags::begin(disk, data.join(SAVED_TAGS));
        let saved = copy_of_table(Registry::open(&**disk, &path), names, &path);
        let mut is_done = true;
        let copy = match saved {
            Some((saved, true)) => Some(saved),
            Some((SavedNames { registry, .. }, false)) => {
                is_done = write_again(&registry, names).await?;
                None
            }
            None => None,
        };
        // Metrics that are created from now on are not in it.
        if is_done {
            let removed = disk.remove_file(&path).and_then(|()| disk.sync_dir(data));
            removed.map_err(|source| StoreError::Io { what: format!("removing {}", path.display()), source })?;
        }
        if let Some(saved) = copy {
            return Ok((saved.expecting(tags), Vec::new()));
        }
    }
    // It belongs to saved names.
    if let Err(error) = remove(&**disk, &data.join(SAVED_TAGS)) {
        tracing::warn!(%error, "cannot remove the saved tag index; it takes room on the disk");
    }
    Registry::of_table(names).await
}

/// The saved names if they are of this store and its newest opening, and whether they stand for the table.
fn copy_of_table(
    saved: Result<SavedNames, OpenError>,
    names: &dyn NameStore,
    path: &Path,
) -> Option<(SavedNames, bool)> {
    let saved = match saved {
        Ok(saved) => saved,
        Err(error) => {
            tracing::warn!(%error, file = %path.display(), "cannot use the saved names; reading them from the store");
            return None;
        }
    };
    let mark = saved.mark;
    if mark.is_some() && mark == names.names_mark() {
        return Some((saved, true));
    }
    let identity = names.identity();
    let newest = identity.chain.last().map_or(0, |opening| opening.id);
    match mark {
        Some(NamesMark { store, opening, .. }) if (store, opening) == (identity.store, newest) => Some((saved, false)),
        Some(_) => {
            tracing::warn!(file = %path.display(),
                "the saved names are of another store, or of another time of this one; reading the names from the store");
            None
        }
        // A program of before, or a store without marks.
        None => None,
    }
}

/// Writes what the table has lost of the saved names since they were saved. Returns whether all is on the disk.
async fn write_again(saved: &Registry, names: &dyn NameStore) -> Result<bool, StoreError> {
    find_policies(saved, names);
    let (table, _) = Registry::of_table(names).await?;
    let (mut lost, mut from) = (Vec::new(), 0);
    let end = saved.read().end();
    while from < end.0 {
        let ids: Vec<MetricId> = (from..end.0.min(from + BATCH as u32)).map(MetricId).collect();
        from += BATCH as u32;
        lost.extend(saved.records(&ids).into_iter().filter(|record| table.records(&[record.id]).is_empty()));
    }
    let count = lost.len();
    // A name has one metric at a time: the earlier one was deleted before the lost one began, and its deletion is lost as well.
    let deleted: Vec<MetricId> = lost
        .iter()
        .filter_map(|record| table.read().find(table.hash(record.name.as_bytes()), record.name.as_bytes()))
        .filter(|&earlier| saved.records(&[earlier]).is_empty())
        .collect();
    let result = async {
        names.delete_metrics(deleted).await?;
        for records in lost.chunks(BATCH) {
            names.put_metrics(records.to_vec()).await?;
        }
        names.sync_metrics().await
    };
    match result.await {
        Ok(()) if count == 0 => {
            tracing::info!(
                "the saved names are not those of the log of names as it is now; reading them from the store"
            );
            Ok(true)
        }
        Ok(()) => {
            tracing::warn!(metrics = count, "the store has lost names since the last stop; the saved names had them");
            Ok(true)
        }
        Err(error) => {
            tracing::warn!(%error, metrics = count,
                "the store has lost names since the last stop, and those that the saved names have cannot be written to it now");
            Ok(false)
        }
    }
}

/// Takes policies that the table has lost from the saved names of metrics that had them.
fn find_policies(saved: &Registry, names: &dyn NameStore) {
    for LostPolicy { number, metrics } in names.lost_policies() {
        let policy = metrics.iter().find_map(|&(metric, since)| {
            let record = saved.records(&[metric]).pop()?;
            record.policies.into_iter().find(|change| change.since == since)
        });
        if let Some(PolicyChange { policy, .. }) = policy {
            names.set_lost_policy(number, &policy, "the names that the last stop saved have it");
        }
    }
}
