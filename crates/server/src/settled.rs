//! Files that people write while the program runs: read when they no longer change.

use std::{path::Path, sync::Arc, time::Duration};

use host::Disk;

/// How long a changed file must stay as it is.
const BETWEEN_READS: Duration = Duration::from_millis(200);

/// How often a file that goes on changing is read before it is left for now.
const READS: usize = 50;

/// Reads, and again while what is read changes, if it differs from `current`: what an editor or a full disk left half written may
/// be valid, and allow more than the whole.
pub async fn read_settled<T: PartialEq, F: Future<Output = anyhow::Result<T>>>(
    current: Option<&T>,
    read: impl Fn() -> F,
) -> anyhow::Result<T> {
    let mut before = read().await?;
    for _ in 0..READS {
        if current == Some(&before) {
            return Ok(before);
        }
        tokio::time::sleep(BETWEEN_READS).await;
        let again = read().await?;
        if again == before {
            return Ok(again);
        }
        before = again;
    }
    anyhow::bail!("it changed {READS} times while it was read; it is read again later")
}

/// Reads a file of text when it no longer changes. A file that has become empty is an error.
pub async fn read(disk: &Arc<dyn Disk>, path: &Path, current: Option<&str>) -> Result<String, String> {
    let current = current.map(str::to_owned);
    let read = || async { once(disk, path).await.map_err(anyhow::Error::msg) };
    let text = read_settled(current.as_ref(), read).await.map_err(|error| error.to_string())?;
    let has_contents = |text: &String| !text.trim().is_empty();
    match current.as_ref().is_some_and(has_contents) && !has_contents(&text) {
        true => {
            Err("it had contents and has none; put them back, or leave a comment where nothing is meant".to_owned())
        }
        false => Ok(text),
    }
}

async fn once(disk: &Arc<dyn Disk>, path: &Path) -> Result<String, String> {
    let (disk, path) = (disk.clone(), path.to_owned());
    match tokio::task::spawn_blocking(move || disk.read_to_string(&path)).await {
        Ok(read) => read.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use host::{Call, FailingDisk, SystemDisk};

    use super::*;

    #[tokio::test]
    async fn a_file_counts_when_it_rests_and_not_when_it_was_emptied() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens.toml");
        std::fs::write(&path, "[a]\n").unwrap();
        let (to, reads) = (path.clone(), AtomicUsize::new(0));
        let disk: Arc<dyn Disk> = Arc::new(FailingDisk::new(Arc::new(SystemDisk), move |call, _| {
            if call == Call::Read && reads.fetch_add(1, Relaxed) == 1 {
                std::fs::write(&to, "[a]\nprefixes = [\"a.\"]\n").unwrap();
            }
            None
        }));
        assert_eq!(read(&disk, &path, Some("old")).await.unwrap(), "[a]\nprefixes = [\"a.\"]\n");
        std::fs::write(&path, "").unwrap();
        assert!(read(&disk, &path, Some("[a]\n")).await.unwrap_err().starts_with("it had contents and has none"));
        assert_eq!(read(&disk, &path, Some("")).await.unwrap(), "");
        std::fs::write(&path, "# none\n").unwrap();
        assert_eq!(read(&disk, &path, Some("[a]\n")).await.unwrap(), "# none\n");
    }
}
