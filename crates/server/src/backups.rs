//! `POST /admin/backup`: a backup of this node while it runs, and the slow scrub of its files of rows.
//!
//! The caller of a backup proves that it may write to the folder: it made a file there, and names it.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use api::ExtensionRequest;
use backup::{Checked, DamagedPart, FileScrub, Made, Piece};
use host::{Clock, Disk, utc};
use hyper::StatusCode;
use metadata::Registry;
use serde_json::{Value, json};
use store::{Damage, DamageLog};
use store_embedded::EmbeddedDriver;

use crate::{asked::Asked, metric_names::metric_names};

/// How the name of a proof begins.
pub const PROOF: &str = ".plumbago-";

/// How a finding of a backup begins, which the next backup ends where it does not find it.
const FOUND_BY_BACKUP: &str = "found by a backup: ";

/// The backups since the start.
#[derive(Default)]
pub struct BackupCounters {
    pub made: AtomicU64,
    pub failed: AtomicU64,
    /// The moment of the last one that was made, Unix seconds; 0 for none.
    pub last: AtomicU64,
}

/// Makes backups, one at a time.
pub struct Backups {
    pub node: backup::Node,
    pub counters: Arc<BackupCounters>,
    /// Where damage of the data folder is reported that a backup finds.
    pub damage: DamageLog,
    pub turn: tokio::sync::Mutex<()>,
}

impl Backups {
    /// Makes a backup as the form of a request says: `dir`, and `proof`, the name of a file there.
    async fn make(&self, asked: &Asked) -> Result<Value, String> {
        let _turn = self.turn.try_lock().map_err(|_| "another backup is being made; wait for its end".to_owned())?;
        let field = |name: &str| asked.all(name).first().map(|value| (*value).to_owned());
        let dir = PathBuf::from(field("dir").ok_or("dir must be a folder on this machine")?);
        let proof = field("proof").unwrap_or_default();
        self.prove(&dir, &proof)?;
        self.remove_old_proofs(&dir, &proof);
        let made = self.node.back_up(dir.clone()).await.map_err(|error| {
            self.counters.failed.fetch_add(1, Relaxed);
            tracing::error!(%error, folder = %dir.display(), "a backup failed; earlier backups are as they were");
            error.to_string()
        })?;
        self.counters.made.fetch_add(1, Relaxed);
        self.counters.last.store(made.manifest.moment.max(0) as u64, Relaxed);
        let Made { path, manifest, linked, copied_bytes, damaged, damaged_before } = made;
        let place = |(file, part): (&Checked, &DamagedPart)| {
            let names = part.metrics.map(|(first, last)| metric_names(self.node.ingest.registry(), first, last));
            json!({
                "file": file.path.display().to_string(), "what": part.what, "bytes": part.bytes, "why": part.how,
                "metrics": names, "span": part.span.map(|(from, until)| [from, until]),
            })
        };
        let damage: Vec<Value> = places(&damaged).map(place).collect();
        if !damage.is_empty() {
            tracing::error!(backup = %path.display(), places = damage.len(),
                "files of the data folder are damaged, and so is the backup; see Damage in docs/operating.md");
        }
        let is_found = |found: &Damage| places(&damaged).any(|(file, _)| file.path.display().to_string() == found.file);
        self.damage.mend(|found| found.how.starts_with(FOUND_BY_BACKUP) && !is_found(found));
        let known = self.damage.examples();
        for (file, part) in places(&damaged) {
            let path = file.path.display().to_string();
            // The server has met it, and ends the finding where it is over.
            if known.iter().any(|found| found.file.ends_with(&path)) {
                continue;
            }
            self.damage.report(Damage {
                found_at: self.node.clock.now(),
                what: part.what,
                file: path,
                how: format!("{FOUND_BY_BACKUP}{}", part.how),
                bytes: part.bytes,
                metrics: part.metrics,
                span: part.span,
                ..Damage::default()
            });
        }
        let place_before = |(file, part): (&Checked, &DamagedPart)| {
            tracing::error!(file = %file.path.display(), why = part.how,
                "an earlier backup is damaged; the new one does not use this file. Look at the disk of the backups");
            json!({"file": file.path.display().to_string(), "bytes": part.bytes, "why": part.how})
        };
        let damage_before: Vec<Value> = places(&damaged_before).map(place_before).collect();
        tracing::info!(backup = %path.display(), files = manifest.files.len(), linked, copied_bytes, "made a backup");
        Ok(json!({
            "backup": path.display().to_string(),
            "moment": manifest.moment,
            "files": manifest.files.len(),
            "bytes": manifest.files.iter().map(|file| file.bytes).sum::<u64>(),
            "linked_files": linked,
            "copied_bytes": copied_bytes,
            "damage": damage,
            "damage_before": damage_before,
            "lacking": manifest.lacking,
        }))
    }

    /// Calls that were interrupted left their proofs. This one has the turn.
    fn remove_old_proofs(&self, dir: &Path, proof: &str) {
        let disk = &self.node.disk;
        for entry in disk.read_dir(dir).unwrap_or_default() {
            let name = entry.name.to_string_lossy();
            if name.starts_with(PROOF) && name != proof && !entry.is_dir && entry.len == 0 {
                let _ = disk.remove_file(&entry.path);
            }
        }
    }

    /// A caller that cannot write to a folder does not make this program write there.
    fn prove(&self, dir: &Path, proof: &str) -> Result<(), String> {
        if !dir.is_absolute() || !proof.starts_with(PROOF) || proof.contains('/') {
            let text =
                "proof must name a file .plumbago-… that the caller made in dir; use plumbago backup on this machine";
            return Err(text.to_owned());
        }
        // What may not be listed seems to have every file.
        if let Err(error) = self.node.disk.read_dir(dir)
            && error.kind() == io::ErrorKind::PermissionDenied
        {
            return Err(format!(
                "the server may not read the folder {}: the user that the server runs as must be able to read and write there; run \
                 plumbago backup as that user, or give the folder to it",
                dir.display()
            ));
        }
        if !self.node.disk.exists(&dir.join(proof)) {
            return Err(format!(
                "the server does not find the folder {}; it must be on the server's machine (in its container), and the user \
                 that the server runs as must be able to read and write there",
                dir.display()
            ));
        }
        Ok(())
    }
}

/// Each damaged place with its file.
fn places(files: &[Checked]) -> impl Iterator<Item = (&Checked, &DamagedPart)> {
    files.iter().flat_map(|file| file.faults.iter().map(move |part| (file, part)))
}

/// Answers `POST /admin/backup`.
pub async fn answer(backups: Arc<Backups>, request: ExtensionRequest) -> (StatusCode, Value) {
    let asked = match Asked::read(request).await {
        Ok(asked) => asked,
        Err((status, error)) => return (status, json!({"error": error})),
    };
    if let Err(error) = asked.only(&["dir", "proof"]) {
        return (StatusCode::BAD_REQUEST, json!({"error": error}));
    }
    // A task, so that it also ends when the client goes away.
    match tokio::spawn(async move { backups.make(&asked).await }).await {
        Ok(Ok(made)) => (StatusCode::OK, made),
        Ok(Err(error)) => (StatusCode::BAD_REQUEST, json!({"error": error})),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, json!({"error": error.to_string()})),
    }
}

/// What the scrub has read since the start.
#[derive(Default)]
pub struct ScrubCounters {
    pub bytes: AtomicU64,
    pub faults: AtomicU64,
    pub rounds: AtomicU64,
}

/// Reads every file of rows, slowly and again and again, and reports what cannot be read.
#[derive(Clone)]
pub struct Scrub {
    pub embedded: Arc<EmbeddedDriver>,
    pub registry: Arc<Registry>,
    pub disk: Arc<dyn Disk>,
    pub clock: Arc<dyn Clock>,
    pub damage: DamageLog,
    pub data: PathBuf,
    pub bytes_per_second: u64,
    pub counters: Arc<ScrubCounters>,
}

/// The shortest time between the beginnings of two rounds.
const ROUND: Duration = Duration::from_secs(3600);

/// The time from the start to the first round, which the start itself has for the disk.
const FIRST: Duration = Duration::from_secs(300);

impl Scrub {
    pub async fn run(self) {
        let mut before = FIRST;
        loop {
            tokio::time::sleep(std::mem::replace(&mut before, ROUND)).await;
            for file in self.embedded.files() {
                self.file(&Path::new("store").join(file.path)).await;
            }
            self.counters.rounds.fetch_add(1, Relaxed);
        }
    }

    async fn file(&self, path: &Path) {
        let (disk, clock, log) = (self.disk.clone(), self.clock.clone(), self.damage.clone());
        let mut file = FileScrub::new(disk, clock, log, &self.data, path, self.bytes_per_second);
        loop {
            let read = tokio::task::spawn_blocking(move || {
                let piece = file.next_piece();
                (file, piece)
            });
            let Ok((read, Some(piece))) = read.await else { return };
            file = read;
            let Piece { bytes, damage, faults, rest } = piece;
            self.counters.bytes.fetch_add(bytes, Relaxed);
            self.counters.faults.fetch_add(faults, Relaxed);
            damage.iter().for_each(|found| self.log(found));
            tokio::time::sleep(rest).await;
        }
    }

    fn log(&self, found: &Damage) {
        let Damage { what, file, how, metrics, span, .. } = found;
        let (names, more) = match *metrics {
            Some((first, last)) => {
                let names = metric_names(&self.registry, first, last);
                let more = (last.0.saturating_sub(first.0) as usize + 1).saturating_sub(names.len());
                (names.join(", "), more)
            }
            None => ("not known".to_owned(), 0),
        };
        let span = span.map(|(from, until)| format!("{} to {}", utc(from), utc(until)));
        tracing::error!(
            what,
            file,
            how,
            metrics = names,
            further_metrics_at_most = more,
            points = span.unwrap_or_else(|| "not known".to_owned()),
            "the scrub of the store found damage; everything else is served. See Damage in docs/operating.md"
        );
    }
}
