//! The driver: what `store` asks for, handed to the files that do it.

use std::sync::Arc;

use scylla::client::session::Session;
use store::StoreError;

use crate::{Options, session};

/// Points and names in Cassandra.
pub struct CassandraDriver {
    /// The cluster of the points.
    pub(crate) data: Arc<Session>,
    /// The cluster of the names; the same session where it is the same cluster.
    pub(crate) meta: Arc<Session>,
    pub(crate) options: Options,
}

impl CassandraDriver {
    /// Connects to the cluster or clusters.
    ///
    /// # Errors
    /// No contact point answers, or refuses us.
    pub async fn connect(options: Options) -> Result<CassandraDriver, StoreError> {
        let data = session::connect(&options.data).await?;
        let meta = match &options.metadata {
            Some(cluster) => session::connect(cluster).await?,
            None => data.clone(),
        };
        Ok(CassandraDriver { data, meta, options })
    }
}
