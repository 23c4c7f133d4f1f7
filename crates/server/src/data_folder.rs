//! The data folder: the embedded store, and the names that a clean stop saves for a quick start.

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::Context;
use host::{Disk, Host, JudgingTime};
use metadata::Registry;
use store::{DamageLog, NameStore};
use store_embedded::{EmbeddedDriver, EmbeddedOptions, EventLimits};

use crate::settings::Settings;

/// The saved names. Present only between a clean stop and the next start.
const SAVED: &str = "names";

/// How long a start tries again to read what the disk does not return: what passes, passes sooner.
pub const READ_PATIENCE: Duration = Duration::from_secs(60);

/// Creates the folder if it is missing, and opens its store. One process at a time can.
pub fn open_store(settings: &Settings, host: &Host, damage: &DamageLog) -> anyhow::Result<Arc<EmbeddedDriver>> {
    let data = &settings.data.dir;
    host.disk.create_dir_all(data).with_context(|| {
        format!("cannot create the data folder {}; name a writable one with --data", data.display())
    })?;
    host.disk.hold(data).with_context(|| format!("cannot open the data folder {}", data.display()))?;
    if let Err(error) = host.disk.make_private(data) {
        tracing::warn!(%error, data = %data.display(),
            "cannot take the rights of others on the data folder; other users of this machine may read points in it");
    }
    let reserve_bytes = settings.data.reserve.bytes(|| host.disk.capacity(data).unwrap_or(u64::MAX));
    let is_new = !has_store(&*host.disk, data);
    // Before anything is changed: opening the store completes what a crash left.
    backup::may_start(&*host.disk, data)?;
    let options = EmbeddedOptions {
        cache_bytes: settings.data.cache.0,
        reserve_bytes,
        events: EventLimits { events: settings.limits.events as u64, bytes: settings.limits.events_bytes.0 },
        host: host.clone(),
        damage: damage.clone(),
        read_patience: READ_PATIENCE,
        data: Some(data.clone()),
        ..EmbeddedOptions::default()
    };
    if is_new {
        report_new(&*host.disk, data);
    }
    let driver = EmbeddedDriver::open(&data.join("store"), options)?;
    // Also if the folder is emptied while it stays where it is.
    host.disk.hold(&data.join("store")).with_context(|| format!("cannot open {}", data.join("store").display()))?;
    backup::remove_stage(&*host.disk, data);
    Ok(Arc::new(driver))
}

fn has_store(disk: &dyn Disk, data: &Path) -> bool {
    disk.exists(&data.join("store")) || disk.exists(&data.join("journal"))
}

/// Says that a folder has no store yet: a disk may not be mounted, or a path may be wrong by a level.
fn report_new(disk: &dyn Disk, data: &Path) {
    let place = disk.canonicalize(data).unwrap_or_else(|_| data.to_owned());
    let found = disk.read_dir(data).unwrap_or_default();
    tracing::info!(data = %place.display(), other_files = found.len(),
        "the data folder has no store; making a new, empty one there. If points should be there, stop the program: the disk is \
         not mounted, or data.dir names another folder");
    let below = found.iter().filter(|entry| entry.is_dir).map(|entry| entry.path.clone());
    let near = place.parent().into_iter().map(Path::to_owned).chain(below).find(|near| is_data_folder(disk, near));
    if let Some(near) = near {
        tracing::warn!(data = %place.display(), other = %near.display(),
            "the new data folder is next above or below another data folder; data.dir may name the wrong one");
    }
}

fn is_data_folder(disk: &dyn Disk, folder: &Path) -> bool {
    disk.exists(&folder.join("store/spec"))
}

/// The judging time, from the mark in the folder.
pub fn open_time(settings: &Settings, host: &Host) -> anyhow::Result<Arc<JudgingTime>> {
    let time = JudgingTime::open(host, &settings.data.dir).context("cannot use the file clock of the data folder")?;
    Ok(Arc::new(time))
}

/// The names: from the saved file if it is valid, otherwise from the metrics table.
pub async fn open_registry(data: &Path, names: &dyn NameStore, disk: &dyn Disk) -> anyhow::Result<Registry> {
    let saved = data.join(SAVED);
    if disk.exists(&saved) {
        let opened = Registry::open(disk, &saved);
        // The file misses metrics that are created from now on: after a crash their ids would be given out again. So the
        // file must be gone before the first of them, also if the machine fails.
        let gone = disk.remove_file(&saved).and_then(|()| disk.sync_dir(data));
        gone.with_context(|| format!("cannot remove {}", saved.display()))?;
        match opened {
            Ok(registry) => return Ok(registry),
            Err(error) => {
                tracing::warn!(%error, file = %saved.display(), "cannot use the saved names; reading them from the store");
            }
        }
    }
    let registry = Registry::new();
    names.scan_metrics(&mut |records| _ = registry.restore(records)).await?;
    Ok(registry)
}

/// Saves the names at a clean stop.
pub fn save_registry(data: &Path, registry: &Registry, disk: &dyn Disk) -> anyhow::Result<()> {
    registry.save(disk, &data.join(SAVED)).context("cannot save the names; the next start reads them from the store")
}
