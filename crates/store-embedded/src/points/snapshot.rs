//! One moment of the files of rows in another folder, for a backup.

use std::{collections::BTreeSet, io, path::Path};

use host::link_or_copy;
use store::StoreError;

use super::Points;
use crate::{commits::MANIFEST, folder::io_error, manifest::Manifest};

impl Points {
    /// Links the files that are in use into the folder `into`, and writes a manifest of them, which it returns. They are one moment of
    /// the store: merges, expiry and flushes wait meanwhile. Files that cannot be linked are copied after that. Everything is
    /// on the disk afterwards.
    pub(crate) fn snapshot(&self, into: &Path) -> Result<Manifest, StoreError> {
        let failed = || io_error(format!("linking the files of rows into {}", into.display()));
        let flushing = self.flushing.lock();
        let mut commits = self.commits.lock();
        let disk = &*self.shared.disk;
        let windows = self.windows();
        // A merged file is removed with its last reader.
        let in_use: Vec<_> = windows.iter().map(|window| window.files()).collect();
        let manifest = commits.manifest(&windows);
        let mut not_linked = Vec::new();
        let mut link = || {
            let mut folders = BTreeSet::from([into.to_owned()]);
            disk.create_dir_all(into)?;
            for file in &manifest.files {
                let to = into.join(file.path());
                for above in to.ancestors().skip(1).take(2) {
                    if folders.insert(above.to_owned()) {
                        disk.create_dir_all(above)?;
                    }
                }
                match disk.hard_link(&self.dir.join(file.path()), &to) {
                    // The snapshot has its line in the manifest, so that the loss is found there as it is here.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) if host::is_link_refused(&error) => not_linked.push(file.path()),
                    linked => linked?,
                }
            }
            host::replace_file(disk, &into.join(MANIFEST), manifest.encode().as_bytes())?;
            Ok(folders)
        };
        let folders = link().map_err(failed())?;
        drop((commits, flushing));
        if !not_linked.is_empty() {
            tracing::warn!(
                files = not_linked.len(),
                into = %into.display(),
                "files of rows cannot be linked, as on another file system than the rest of the data folder; a backup copies them, which takes \
                 time, and their room in the data folder until it ends; keep the data folder on one file system"
            );
        }
        for path in &not_linked {
            let from = self.dir.join(path);
            let copy = || link_or_copy(disk, &from, &into.join(path));
            // A read that fails for a moment costs nothing.
            let copied = copy().or_else(|not| if not.is_unread { copy() } else { Err(not) });
            match copied {
                // The backup reports it as missing.
                Err(not) if not.error.kind() == io::ErrorKind::NotFound => {}
                Err(not) if not.is_unread => {
                    tracing::warn!(error = %not.error, file = %from.display(), "a file of rows cannot be read for a backup, which goes on without it");
                }
                copied => _ = copied.map_err(io::Error::from).map_err(failed())?,
            }
        }
        drop(in_use);
        folders.iter().try_for_each(|folder| disk.sync_dir(folder)).map_err(failed())?;
        Ok(manifest)
    }
}
