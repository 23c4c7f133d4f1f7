//! The data folder: the embedded store, and the names that a clean stop saves for a quick start.

use std::{io, path::Path, sync::Arc, time::Duration};

use anyhow::{Context, bail};
use host::{Disk, Host, JudgingTime};
use metadata::{Registry, SAVED, SameName, open_names};
use store::{Damage, DamageLog, NameStore};
use store_embedded::{EmbeddedDriver, EmbeddedOptions, EventLimits};

use crate::settings::Settings;

/// How long a start tries again to read what the disk does not return: what passes, passes sooner.
pub const READ_PATIENCE: Duration = Duration::from_secs(60);

/// Creates the folder if it is missing, and opens its store. One process at a time can.
pub fn open_store(settings: &Settings, host: &Host, damage: &DamageLog) -> anyhow::Result<Arc<EmbeddedDriver>> {
    let data = &settings.data.dir;
    make_folder(&*host.disk, data).with_context(|| {
        format!("cannot create the data folder {}; name a writable one with --data", data.display())
    })?;
    host.disk.hold(data).with_context(|| format!("cannot open the data folder {}", data.display()))?;
    if let Err(error) = host.disk.make_private(data) {
        tracing::warn!(%error, data = %data.display(),
            "cannot take the rights of others on the data folder; other users of this machine may read points in it");
    }
    let reserve_bytes = settings.data.reserve.bytes(|| host.disk.capacity(data).unwrap_or(u64::MAX));
    let is_new = !has_store(&*host.disk, data);
    refuse_emptied(&*host.disk, data)?;
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
    let driver = EmbeddedDriver::open(&data.join("store"), options).map_err(backup::with_next_step)?;
    // Also if the folder is emptied while it stays where it is.
    host.disk.hold(&data.join("store")).with_context(|| format!("cannot open {}", data.join("store").display()))?;
    backup::remove_stage(&*host.disk, data);
    Ok(Arc::new(driver))
}

/// Makes a folder and those above it that are missing, and puts their names on the disk: a power cut must not take it with
/// everything in it.
pub fn make_folder(disk: &dyn Disk, folder: &Path) -> io::Result<()> {
    let is_missing = |above: &&Path| !above.as_os_str().is_empty() && !disk.exists(above);
    let missing: Vec<&Path> = folder.ancestors().take_while(is_missing).collect();
    disk.create_dir_all(folder)?;
    for made in missing.into_iter().rev() {
        let above = made.parent().unwrap_or(Path::new("."));
        match disk.sync_dir(above) {
            // A folder that others own may be written to and not read.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                tracing::warn!(%error, folder = %above.display(), "cannot sync the folder above a new one; a power cut soon may take the new one");
            }
            synced => synced?,
        }
    }
    Ok(())
}

/// Refuses a folder that was in use and has no store: its disk is not mounted, or it was moved away. Points
/// of a new, empty store there would be hidden or overwritten when they are back.
fn refuse_emptied(disk: &dyn Disk, data: &Path) -> anyhow::Result<()> {
    let Some(left) = [SAVED, "clock"].into_iter().find(|name| disk.exists(&data.join(name))) else { return Ok(()) };
    let has = |part: &str| !is_empty(disk, &data.join(part));
    if has("store") {
        return Ok(());
    }
    if has("journal") {
        bail!(
            "the data folder {} was in use ({left} and journal are there), and its folder store is gone or empty; nothing was changed: mount its \
             disk, put it back, or restore a backup into another folder; to begin with an empty store, move journal away too, and remove the \
             files {SAVED} and clock",
            data.display()
        );
    }
    bail!(
        "the data folder {} was in use ({left} is there), and its folders store and journal are gone or empty; nothing was changed: mount their \
         disks, put them back, or restore a backup into another folder; to begin with an empty store, remove the files {SAVED} and \
         clock",
        data.display()
    )
}

/// Whether a folder is missing or has no file of the program, as where its disk is not mounted.
fn is_empty(disk: &dyn Disk, folder: &Path) -> bool {
    match disk.read_dir(folder) {
        Ok(entries) => entries.iter().all(|entry| entry.name == "lost+found" || entry.name == "lock"),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
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
pub fn open_time(settings: &Settings, host: &Host, damage: &DamageLog) -> anyhow::Result<Arc<JudgingTime>> {
    let time = JudgingTime::open(host, &settings.data.dir).context("cannot use the file clock of the data folder")?;
    if let Some(moved_to) = time.moved_aside() {
        damage.report(Damage {
            found_at: host.clock.now(),
            what: "clock",
            file: "clock".to_owned(),
            how: "it is not a mark of how far the time had come: the clock was compared with the last write to the journal".to_owned(),
            moved_to: Some(moved_to.to_owned()),
            ..Damage::default()
        });
    }
    Ok(Arc::new(time))
}

/// The names, as [`open_names`] has them; names of several ids are reported.
pub async fn open_registry(
    data: &Path,
    names: &dyn NameStore,
    host: &Host,
    damage: &DamageLog,
) -> anyhow::Result<Registry> {
    let (registry, same) = open_names(data, names, &host.disk).await?;
    report_same_names(&same, damage, host);
    Ok(registry)
}

/// Reports names of several ids.
fn report_same_names(same: &[SameName], damage: &DamageLog, host: &Host) {
    let others = same.iter().flat_map(|same| &same.others);
    let (Some(example), Some(first), Some(last)) = (same.first(), others.clone().min(), others.max()) else { return };
    let how = backup::how_same_names(same.len(), &example.name, example.taken, &example.others);
    tracing::error!(names = same.len(), how, "names have several ids");
    damage.report(Damage {
        found_at: host.clock.now(),
        what: "names",
        file: "store/names".to_owned(),
        how,
        metrics: Some((*first, *last)),
        ..Damage::default()
    });
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use host::{Open, SeededRandom, SimulatedDisk};

    use super::*;

    #[test]
    fn a_folder_that_is_made_outlives_a_power_cut_with_those_above_it() {
        let (disk, folder) = (SimulatedDisk::new(), Path::new("/var/lib/plumbago/data"));
        make_folder(&disk, folder).unwrap();
        for seed in 0..20 {
            assert!(disk.crash(&SeededRandom::new(seed)).exists(folder), "{seed}");
        }
        make_folder(&disk, folder).unwrap();
    }

    #[test]
    fn a_folder_that_was_in_use_is_not_taken_for_a_new_one() {
        let (disk, data) = (SimulatedDisk::new(), Path::new("/data"));
        make_folder(&disk, data).unwrap();
        refuse_emptied(&disk, data).unwrap();
        for left in ["clock", "names"] {
            let path = data.join(left);
            disk.open(&path, Open::Create).unwrap().write_all(b"text").unwrap();
            let error = refuse_emptied(&disk, data).unwrap_err().to_string();
            assert!(error.contains("are gone or empty") && error.contains("/data") && error.contains(left), "{error}");
            for mounted in ["store", "journal"] {
                disk.create_dir_all(&data.join(mounted)).unwrap();
                refuse_emptied(&disk, data).expect_err("an empty folder, as of a disk that is not mounted");
                let file = data.join(mounted).join("file");
                disk.open(&file, Open::Create).unwrap();
                let refused = refuse_emptied(&disk, data).map_err(|error| error.to_string());
                assert_eq!(refused.is_ok(), mounted == "store", "{refused:?}");
                disk.remove_file(&file).unwrap();
            }
            disk.remove_file(&path).unwrap();
        }
        refuse_emptied(&disk, data).unwrap();
    }
}
