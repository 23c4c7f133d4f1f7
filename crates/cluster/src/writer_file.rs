//! The writer id of this node, kept in its data folder.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use host::{Disk, replace_file};
use store::StoreError;
use store_cassandra::{Identity, InvalidIdentity, Location};

/// Why a node over Cassandra cannot start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The store: tables of another layout, or a writer id that a live node has.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The data folder or a file in it cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file with the writer id is damaged.
    #[error(
        "{} holds the id under which this node writes, and is damaged. Restore a copy, or delete it: the node then gets a \
         new id, and aggregates in progress are summed from the rows of both", path.display()
    )]
    WriterFile {
        /// The file.
        path: PathBuf,
        /// The error in its content.
        source: InvalidIdentity,
    },
}

/// `data/writer`.
#[derive(Debug)]
pub(crate) struct WriterFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    location: Location,
}

impl WriterFile {
    /// In a data folder, which must exist, on the machine `host_name`.
    pub(crate) fn open(disk: Arc<dyn Disk>, data: &Path, host_name: String) -> Result<WriterFile, OpenError> {
        let data = disk.canonicalize(data).map_err(|source| OpenError::Unreadable { path: data.to_owned(), source })?;
        let location = Location { host: host_name, data_directory: data.display().to_string() };
        Ok(WriterFile { disk, path: data.join("writer"), location })
    }

    /// The identity that this folder's rows carry, or `None` before the first claim.
    pub(crate) fn read(&self) -> Result<Option<Identity>, OpenError> {
        match self.disk.read_to_string(&self.path) {
            Ok(text) => {
                text.parse().map(Some).map_err(|source| OpenError::WriterFile { path: self.path.clone(), source })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(OpenError::Unreadable { path: self.path.clone(), source }),
        }
    }

    /// Keeps the identity, durably. Must return before the first row is written under it.
    pub(crate) fn keep(&self, identity: &Identity) -> Result<(), StoreError> {
        replace_file(&*self.disk, &self.path, identity.to_string().as_bytes()).map_err(|source| StoreError::Io {
            what: format!("keeping the writer id in {}", self.path.display()),
            source,
        })
    }

    /// Where this node runs.
    pub(crate) fn location(&self) -> &Location {
        &self.location
    }
}

#[cfg(test)]
mod tests {
    use host::Host;

    use super::*;

    #[test]
    fn an_identity_is_kept_and_an_invalid_file_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let file = WriterFile::open(Host::system().disk, dir.path(), "h".to_owned()).unwrap();
        assert_eq!(file.read().unwrap(), None);
        let identity = "writer 16383\nnode 00000000-0000-0000-0000-000000000007\n".parse().unwrap();
        file.keep(&identity).unwrap();
        assert_eq!(file.read().unwrap(), Some(identity));
        std::fs::write(dir.path().join("writer"), "16384").unwrap();
        let error = file.read().unwrap_err();
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.contains("'writer NUMBER', from 0 to 16383"), "{source}");
    }
}
