//! Why there is no connection.

use store::StoreError;

/// Why there is no connection. The text says the next step; it never contains the password.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{text}")]
pub struct ConnectError {
    pub(crate) text: String,
    pub(crate) is_transient: bool,
}

impl ConnectError {
    pub(crate) fn permanent(text: String) -> ConnectError {
        ConnectError { text, is_transient: false }
    }

    /// Whether a retry may help (no node answers yet), or the operator must change something (a password, a certificate).
    pub fn is_transient(&self) -> bool {
        self.is_transient
    }
}

impl From<ConnectError> for StoreError {
    fn from(error: ConnectError) -> StoreError {
        StoreError::Unavailable(error.text)
    }
}
