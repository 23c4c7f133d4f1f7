//! Backups of a node, with the model of each.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use host::{Disk, SimulatedDisk};

use crate::{Machine, Model, machine::Life};

/// Where backups go.
pub(crate) const FOLDER: &str = "/backups";

/// What each backup has, by its path.
#[derive(Debug, Default)]
pub(crate) struct Backups {
    models: BTreeMap<PathBuf, Moment>,
    /// The last backup that a node called made.
    made: Option<PathBuf>,
    /// What the last attempt was of: a backup is complete at one moment, and the process may die before it says so.
    attempted: Option<Moment>,
}

/// What a backup has.
#[derive(Debug)]
struct Moment {
    model: Model,
    /// Whether pages could not be read when it was made, perhaps.
    was_bad: bool,
}

impl Backups {
    /// Makes the next backup. A fault may cost it, and so may pages that cannot be read.
    pub(crate) fn make(
        &mut self,
        life: &Life,
        disk: &SimulatedDisk,
        (model, is_bad): (&Model, bool),
    ) -> Result<(), String> {
        let folder = Path::new(FOLDER);
        self.find(disk);
        self.attempted = Some(Moment { model: model.backed_up(), was_bad: is_bad });
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
            Some(Ok(made)) => {
                self.made = Some(made.path.clone());
                self.find(disk);
                let moment = self.models.get_mut(&made.path).ok_or("a backup that was made is not found")?;
                if !made.damaged.is_empty() {
                    // It says what it lacks.
                    moment.model.forget();
                }
                return Ok(());
            }
            Some(Err(error)) if disk.faults().len() == faults && !is_bad => {
                return Err(format!("a backup fails: {error}"));
            }
            _ => {}
        }
        // The process may have died behind its last step.
        if let Some(moment) = self.attempted.as_mut().filter(|moment| moment.was_bad) {
            moment.model.forget();
        }
        self.find(disk);
        Ok(())
    }

    /// Learns of a backup that the last attempt completed.
    fn find(&mut self, disk: &SimulatedDisk) -> Option<PathBuf> {
        // The one call that fails may be one of this look.
        let newest = backup::find(disk, Path::new(FOLDER)).or_else(|_| backup::find(disk, Path::new(FOLDER))).ok()?;
        if !self.models.contains_key(&newest)
            && let Some(moment) = self.attempted.take()
        {
            self.models.insert(newest.clone(), moment);
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

    /// Moves the data folder away, and restores a backup in its place. Returns whether points may wait in it to be put back.
    pub(crate) fn restore(&self, machine: &Machine, backup: &Path, model: &mut Model) -> Result<bool, String> {
        let (disk, data) = (&machine.disk, &*machine.data);
        if disk.exists(data) {
            let removed = disk.remove_dir_all(data).and_then(|()| disk.sync_dir(Path::new("/")));
            removed.map_err(|error| format!("removing the data folder: {error}"))?;
        }
        backup::restore(disk, backup, data).map_err(|error| format!("a restore fails: {error}"))?;
        let moment = self.models.get(backup).ok_or_else(|| format!("no node made {}", backup.display()))?;
        model.restore(&moment.model);
        Ok(moment.was_bad)
    }
}
