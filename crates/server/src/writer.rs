//! What a node keeps of its writer id beside its data, and where it is.

use std::path::{Path, PathBuf};

use anyhow::Context;
use store::StoreError;
use store_cassandra::{Identity, Place};

/// `data/writer`.
pub struct WriterFile {
    path: PathBuf,
    data: PathBuf,
}

impl WriterFile {
    /// In a data folder, which is there.
    pub fn of(data: &Path) -> anyhow::Result<WriterFile> {
        let data = data.canonicalize().with_context(|| format!("the data folder {} cannot be read", data.display()))?;
        Ok(WriterFile { path: data.join("writer"), data })
    }

    /// The identity this folder's rows bear, or `None` before there are any.
    pub fn read(&self) -> anyhow::Result<Option<Identity>> {
        let text = match std::fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", self.path.display())),
        };
        let identity = text.parse().with_context(|| {
            format!(
                "{} says under which id this node writes, and cannot be read. Put back a copy, or delete it: the node then \
                 gets a new id, and aggregates that are under way are added up from the rows of both",
                self.path.display()
            )
        })?;
        Ok(Some(identity))
    }

    /// Keeps the identity, durably, before anything is written under it.
    pub fn keep(&self, identity: &Identity) -> Result<(), StoreError> {
        let draft = self.path.with_extension("draft");
        let written = std::fs::write(&draft, identity.to_string()).and_then(|()| {
            std::fs::File::open(&draft)?.sync_all()?;
            std::fs::rename(&draft, &self.path)?;
            std::fs::File::open(&self.data)?.sync_all()
        });
        let what = || format!("keeping the writer id in {}", self.path.display());
        written.map_err(|source| StoreError::Io { what: what(), source })
    }

    /// Where this node is.
    pub fn place(&self) -> Place {
        Place { host: crate::process::host(), data_directory: self.data.display().to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_kept_and_nonsense_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = WriterFile::of(dir.path()).unwrap();
        assert_eq!(file.read().unwrap(), None);
        let identity = "writer 16383\nnode 00000000-0000-0000-0000-000000000007\n".parse().unwrap();
        file.keep(&identity).unwrap();
        assert_eq!(file.read().unwrap(), Some(identity));
        std::fs::write(dir.path().join("writer"), "16384").unwrap();
        assert!(format!("{:#}", file.read().unwrap_err()).contains("'writer NUMBER', of 0 to 16383"));
    }
}
