//! What a start says of windows and files that are not as the manifest has them.

use std::path::Path;

use metric::{Stage, Timestamp};
use store::{Damage, StoreError};

use crate::{
    cache::{Shared, UNLISTED},
    commits::MANIFEST,
    lost::LostPart,
    manifest::ManifestFile,
    row_file::{MISSING, RowFile},
    window::Window,
    window_key::{WindowKey, folder, window_slots},
};

/// The consequence of a file or folder that cannot be read, for operators.
pub(crate) const UNTIL_READ: &str =
    "its rows are missing from answers, or older ones are in their place, until it can be read; retrying";

/// The end of what later starts say of a file that one did not find.
pub(crate) const UNTIL_BACK: &str = "; points are missing or are older than what was stored, until the file is put back, which is \
                                     noticed within a minute, or until the window expires";

/// What is known of a manifest that a start made again at this time.
pub(crate) fn remade_text(at: Timestamp) -> String {
    format!(
        "a start at {} made it again of the files that were there; whether files of rows were missing is not known; a repair ends this report",
        host::utc(at)
    )
}

/// Reports of the store in `dir`.
pub(super) struct Reports<'a> {
    pub(super) shared: &'a Shared,
    pub(super) dir: &'a Path,
}

impl Reports<'_> {
    pub(super) fn no_manifest(&self) {
        self.shared.report(Damage {
            what: "manifest",
            file: self.shared.shown(&self.dir.join(MANIFEST)),
            how: "it was not used; whether files of rows are missing is not known".to_owned(),
            ..Damage::default()
        });
    }

    /// An earlier start made the manifest.
    pub(super) fn remade(&self, at: Timestamp) {
        self.shared.report(Damage {
            what: "manifest",
            file: self.shared.shown(&self.dir.join(MANIFEST)),
            how: remade_text(at),
            ..Damage::default()
        });
    }

    pub(super) fn unlisted(&self, window: &Window, known: &[ManifestFile], error: &StoreError) {
        self.shared.report(Damage {
            what: "folder",
            file: self.shared.shown(&window.dir),
            how: format!("{error}; {UNTIL_READ}"),
            bytes: known.iter().map(|file| file.bytes).sum(),
            span: Some(span(window.key)),
            ..Damage::default()
        });
    }

    pub(super) fn missing(&self, file: &ManifestFile) {
        self.shared.report(Damage {
            what: "file of rows",
            file: self.shared.shown(&self.dir.join(file.path())),
            how: MISSING.to_owned(),
            bytes: file.bytes,
            metrics: file.known_metrics(),
            span: Some(span(file.window)),
            ..Damage::default()
        });
    }

    /// A file that an earlier start reported as missing.
    pub(super) fn still_missing(&self, file: &ManifestFile) {
        let why = match file.is_gone {
            false => "the file of rows is missing, found before",
            true => "the backup that this folder was restored from lacks the file of rows: what it had is lost",
        };
        self.shared.report(Damage {
            what: "rows that were lost",
            file: self.shared.shown(&self.dir.join(file.path())),
            how: format!("{why}{UNTIL_BACK}"),
            bytes: file.bytes,
            metrics: file.known_metrics(),
            span: Some(span(file.window)),
            ..Damage::default()
        });
    }

    /// Damage that was found before this start and is not mended.
    pub(super) fn lost(&self, window: WindowKey, part: &LostPart) {
        let (first, last) = part.groups;
        let of =
            part.metrics.map_or("any metric".to_owned(), |(lowest, highest)| format!("metrics {lowest} to {highest}"));
        self.shared.report(Damage {
            what: "rows that were lost",
            file: self.shared.shown(&self.dir.join(folder(window))),
            how: format!(
                "rows {first} to {last} of {of}, found before; points are missing or are older than what was stored, until the window \
                 expires"
            ),
            metrics: part.metrics,
            span: Some(part.span(window.0.stage)),
            ..Damage::default()
        });
    }

    /// Keeps a file whose flushes are in another one, in a window that has lost rows or where it is not known which files were missing:
    /// it may be the one that was lost, and came back after its neighbours were merged.
    pub(super) fn put_aside_returned(&self, file: &RowFile) {
        let how = "its flushes are within those of a merged file, and this window has lost rows, or the manifest was made again: it may be \
                   the file that was missing, put back after the merge, which does not have its rows then; it is not used: restore a \
                   backup from before into another folder if they matter";
        let moved_to = self.shared.damaged_folder.move_in(file.path(), how);
        if let Err(error) = &moved_to {
            tracing::warn!(%error, file = %file.path().display(), "cannot move a file of rows to damaged; the next start tries again");
        }
        self.shared.report(Damage {
            what: "file of rows",
            file: self.shared.shown(file.path()),
            how: how.to_owned(),
            bytes: file.len(),
            moved_to: moved_to.ok(),
            metrics: Some(file.summary().metrics),
            span: Some(span((file.header().table, file.header().window))),
            ..Damage::default()
        });
    }

    pub(super) fn stray(&self, file: &RowFile) {
        self.shared.report(Damage {
            what: "file of rows",
            file: self.shared.shown(file.path()),
            how: UNLISTED.to_owned(),
            bytes: file.len(),
            metrics: Some(file.summary().metrics),
            span: Some(span((file.header().table, file.header().window))),
            ..Damage::default()
        });
    }
}

/// The points that a window may have, Unix seconds.
pub(super) fn span((table, number): WindowKey) -> (i64, i64) {
    let stage: Stage = table.stage;
    let seconds = i64::from(window_slots(stage)) * i64::from(stage.resolution());
    (i64::from(number) * seconds, (i64::from(number) + 1) * seconds)
}
