//! Backups of a node, with the model of each.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use host::{Disk, SimulatedDisk};

use crate::{Machine, Model, machine::Life};

/// Where backups go.
const FOLDER: &str = "/backups";

/// What each backup has, by its path.
#[derive(Debug, Default)]
pub(crate) struct Backups {
    models: BTreeMap<PathBuf, Model>,
    /// The last backup that a node called made.
    made: Option<PathBuf>,
    /// What the last attempt was of: a backup is complete at one moment, and the process may die before it says so.
    attempted: Option<Model>,
}

impl Backups {
    /// Makes the next backup. A fault may cost it.
    pub(crate) fn make(&mut self, life: &Life, disk: &SimulatedDisk, model: &Model) -> Result<(), String> {
        let folder = Path::new(FOLDER);
        self.find(disk);
        self.attempted = Some(model.backed_up());
        let faults = disk.faults().len();
        if !disk.exists(folder) {
            // The operator makes it.
            let made = disk.create_dir_all(folder).and_then(|()| disk.sync_dir(Path::new("/")));
            if made.is_err() {
                return Ok(());
            }
        }
        let made = life.run("a backup", life.node.back_up(Arc::new(disk.clone()), folder.to_owned()));
        match made {
            Some(Ok(path)) => self.made = Some(path),
            Some(Err(error)) if disk.faults().len() == faults => return Err(format!("a backup fails: {error}")),
            _ => {}
        }
        self.find(disk);
        Ok(())
    }

    /// Learns of a backup that the last attempt completed.
    fn find(&mut self, disk: &SimulatedDisk) -> Option<PathBuf> {
        let newest = backup::find(disk, Path::new(FOLDER)).ok()?;
        if !self.models.contains_key(&newest)
            && let Some(model) = self.attempted.take()
        {
            self.models.insert(newest.clone(), model);
        }
        Some(newest)
    }

    /// The newest backup. One that a node called made is there.
    pub(crate) fn newest(&mut self, disk: &SimulatedDisk) -> Result<Option<PathBuf>, String> {
        let newest = self.find(disk);
        if newest < self.made {
            return Err(format!("the newest backup is {newest:?}, and {:?} was made", self.made));
        }
        Ok(newest)
    }

    /// Moves the data folder away, and restores a backup in its place.
    pub(crate) fn restore(&self, machine: &Machine, backup: &Path, model: &mut Model) -> Result<(), String> {
        let (disk, data) = (&machine.disk, &*machine.data);
        let removed = disk.remove_dir_all(data).and_then(|()| disk.sync_dir(Path::new("/")));
        removed.map_err(|error| format!("removing the data folder: {error}"))?;
        backup::restore(disk, backup, data).map_err(|error| format!("a restore fails: {error}"))?;
        model.restore(self.models.get(backup).ok_or_else(|| format!("no node made {}", backup.display()))?);
        Ok(())
    }
}
