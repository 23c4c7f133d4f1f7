//! Connections to a cluster, and why there are none.

use std::sync::Arc;

use scylla::client::{session::Session, session_builder::SessionBuilder};
use store::StoreError;

use crate::ClusterOptions;

/// Connects.
///
/// # Errors
/// `Unavailable` when no contact point answers, refuses the user, or its certificate is not believed; the
/// text says which, and what would do.
pub(crate) async fn connect(options: &ClusterOptions) -> Result<Arc<Session>, StoreError> {
    let mut builder = SessionBuilder::new()
        .known_nodes(&options.contact_points)
        .connection_timeout(options.connect_timeout)
        .fetch_schema_metadata(false);
    if let Some(credentials) = &options.credentials {
        builder = builder.user(&credentials.user, &credentials.password);
    }
    let session = builder.build().await.map_err(|error| StoreError::Unavailable(error.to_string()))?;
    Ok(Arc::new(session))
}
