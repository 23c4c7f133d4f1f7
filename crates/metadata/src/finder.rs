//! Answers globs: the registry's path index, or a store that knows more names.

use crate::{
    found::Found,
    limits::{FindError, FindLimits},
    registry::Registry,
};

/// Answers globs. The registry is one; another asks a store that knows more names.
///
/// A call may wait for a network: call from a thread that may block.
pub trait Finder: Send + Sync + 'static {
    /// The nodes that a pattern names, as [`Registry::find`](Registry::find) has them.
    ///
    /// # Errors
    /// As there; [`FindError::Elsewhere`] when the store of the names cannot answer.
    fn find(&self, pattern: &str, limits: &FindLimits) -> Result<Found, FindError>;

    /// The metrics that a pattern names, as [`Registry::leaves`](Registry::leaves) has them.
    ///
    /// # Errors
    /// As for [`Finder::find`].
    fn leaves(&self, pattern: &str, limits: &FindLimits) -> Result<Found, FindError>;

    /// Whether the registry has every name, for answers that list or look through all of them.
    ///
    /// # Errors
    /// [`FindError::Elsewhere`] where it has not read them yet.
    fn has_all(&self) -> Result<(), FindError> {
        Ok(())
    }
}

impl Finder for Registry {
    fn find(&self, pattern: &str, limits: &FindLimits) -> Result<Found, FindError> {
        Registry::find(self, pattern, limits)
    }

    fn leaves(&self, pattern: &str, limits: &FindLimits) -> Result<Found, FindError> {
        Registry::leaves(self, pattern, limits)
    }
}
