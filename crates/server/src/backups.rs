//! `POST /admin/backup`: a backup of this node while it runs, and the slow scrub of its files of rows.
//!
//! 1. The caller proves that it may write to the folder: it made a file there, and names it.
//! 2. One moment is staged as links in `data/.backup`, while trims of the journal and writes of names wait.
//! 3. The files go from there to the folder: links on the same file system, copies on another.

use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use api::ExtensionRequest;
use backup::Made;
use host::{Clock, Disk};
use hyper::StatusCode;
use ingest::Ingest;
use serde_json::{Value, json};
use store::{DamageLog, NameStore as _};
use store_embedded::EmbeddedDriver;

use crate::deletion::Asked;

/// Where one moment is staged, in the data folder.
const STAGE: &str = ".backup";

/// Files of the data folder besides store and journal, where they are there.
const OTHERS: [&str; 4] = ["clock", "writer", "write-clock", "names-read"];

/// Makes backups, one at a time.
pub struct Backups {
    pub ingest: Arc<Ingest>,
    pub embedded: Arc<EmbeddedDriver>,
    pub disk: Arc<dyn Disk>,
    pub data: PathBuf,
    pub turn: tokio::sync::Mutex<()>,
}

impl Backups {
    /// Makes a backup as the form of a request says: `dir`, and `proof`, the name of a file there.
    async fn make(&self, asked: &Asked) -> Result<Value, String> {
        let _turn = self.turn.try_lock().map_err(|_| "another backup is being made; wait for its end".to_owned())?;
        let field = |name: &str| asked.all(name).first().map(|value| (*value).to_owned());
        let dir = PathBuf::from(field("dir").ok_or("dir must be a folder on this machine")?);
        self.prove(&dir, &field("proof").unwrap_or_default())?;
        let made = self.make_in(dir).await.map_err(|error| format!("{error:#}"))?;
        let Made { path, manifest, linked, copied_bytes } = made;
        tracing::info!(backup = %path.display(), files = manifest.files.len(), linked, copied_bytes, "made a backup");
        Ok(json!({
            "backup": path.display().to_string(),
            "moment": manifest.moment,
            "files": manifest.files.len(),
            "bytes": manifest.files.iter().map(|file| file.bytes).sum::<u64>(),
            "linked_files": linked,
            "copied_bytes": copied_bytes,
        }))
    }

    /// A caller that cannot write to a folder does not make this program write there.
    fn prove(&self, dir: &Path, proof: &str) -> Result<(), String> {
        let is_name = proof.starts_with(".plumbago-") && !proof.contains('/');
        if !dir.is_absolute() || !is_name || !self.disk.exists(&dir.join(proof)) {
            return Err(
                "proof must name a file .plumbago-… that the caller made in dir; use plumbago backup on this machine"
                    .to_owned(),
            );
        }
        Ok(())
    }

    async fn make_in(&self, dir: PathBuf) -> anyhow::Result<Made> {
        let stage = self.data.join(STAGE);
        let (disk, data) = (self.disk.clone(), self.data.clone());
        let (embedded, store) = (self.embedded.clone(), stage.join("store"));
        let begin = {
            let (disk, stage) = (disk.clone(), stage.clone());
            move || {
                if disk.exists(&stage) {
                    disk.remove_dir_all(&stage)?;
                }
                let rows = embedded.snapshot_all(&store).map_err(io::Error::other)?;
                for name in OTHERS.iter().filter(|name| disk.exists(&data.join(name))) {
                    host::replace_file(&*disk, &stage.join(name), &disk.read(&data.join(name))?)?;
                }
                let crc =
                    |file: &store_embedded::StoredFile| (format!("store/{}", file.path.display()), file.index_crc);
                Ok(rows.iter().map(crc).collect::<HashMap<String, u32>>())
            }
        };
        let (moment, rows) = self.ingest.snapshot(stage.join("journal"), begin).await?;
        let id = self.embedded.identity().store;
        let make = move || {
            let made = backup::make(&*disk, &stage, &dir, moment, id, &rows);
            // Links alone: the data folder has the files, too.
            let removed = disk.remove_dir_all(&stage);
            if let Err(error) = removed {
                tracing::warn!(%error, folder = %stage.display(), "cannot remove the folder that a backup was staged in; the next backup does");
            }
            made
        };
        Ok(tokio::task::spawn_blocking(make).await??)
    }
}

/// Answers `POST /admin/backup`.
pub async fn answer(backups: Arc<Backups>, request: ExtensionRequest) -> (StatusCode, Value) {
    let asked = match Asked::read(request).await {
        Ok(asked) => asked,
        Err((status, error)) => return (status, json!({"error": error})),
    };
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
                let (this, path) = (self.clone(), Path::new("store").join(file.path));
                let read = tokio::task::spawn_blocking(move || this.read(&path)).await;
                let Ok(rest) = read else { return };
                tokio::time::sleep(rest).await;
            }
            self.counters.rounds.fetch_add(1, Relaxed);
        }
    }

    fn read(&self, path: &Path) -> Duration {
        let Scrub { disk, clock, damage, data, bytes_per_second, counters, .. } = self;
        let read = backup::scrub_file(&**disk, &**clock, damage, data, path, *bytes_per_second);
        counters.bytes.fetch_add(read.bytes, Relaxed);
        counters.faults.fetch_add(read.faults, Relaxed);
        read.rest
    }
}
