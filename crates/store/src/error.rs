//! Why a store could not do what it was asked, and what its calls return.

use std::{future::Future, pin::Pin};

/// What a driver's asynchronous calls return.
pub type DriverFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Why a store could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk or the network failed. Retrying may help.
    #[error("{what}: {source}")]
    Io {
        /// What was being done, and to what.
        what: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The stored bytes contradict themselves. Retrying does not help.
    #[error("{what} is damaged: {how}")]
    Damaged {
        /// Which table, row or file.
        what: String,
        /// What was found and what was expected.
        how: String,
    },
    /// A program with another layout wrote the store.
    #[error("the store says {found}, this program expects {expected}")]
    Spec {
        /// What the spec table holds.
        found: String,
        /// What it should hold.
        expected: String,
    },
    /// The request has no answer within the caller's bounds, or none at all. Retrying does not help; the text is for
    /// the user who asked.
    #[error("{0}")]
    Rejected(String),
    /// There is as much as the operator allows; the text says of what, and names the setting.
    #[error("{0}")]
    Full(String),
    /// The store cannot be reached now. Retrying helps once it can.
    #[error("{0}")]
    Unavailable(String),
}
