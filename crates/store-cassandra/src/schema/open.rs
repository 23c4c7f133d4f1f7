//! The tables of names as a node finds them when it starts.

use scylla::client::session::Session;
use store::StoreError;

use super::{
    cql::metadata_keyspace,
    create::create,
    definition::{Schema, Thing, USUAL_REPLICATION},
    found::{Found, FoundIndexes},
    mismatch,
};
use crate::Options;

/// The tables that a node works with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Opened {
    /// Columns for components, in both tables of names.
    pub(crate) components: usize,
    /// Their indexes.
    pub(crate) indexes: FoundIndexes,
}

/// Checks the tables before the first write, and adds `spec`, `writers`, `nodes` and `changes` to the keyspace of another
/// program or of an earlier version. Where the last two cannot be added, that is logged, and nodes learn of each other's names
/// by reading all of them.
///
/// # Errors
/// `Spec` where the tables have another layout; `Unavailable` where a keyspace or table is missing, or cannot be added.
pub(crate) async fn open(data: &Session, metadata: &Session, options: &Options) -> Result<Opened, StoreError> {
    let found = Found::read(data, metadata, options).await?;
    let metadata_name = metadata_keyspace(&options.keyspace);
    for (name, keyspace) in [(&options.keyspace, &found.data), (&metadata_name, &found.metadata)] {
        if keyspace.is_none() {
            return Err(StoreError::Unavailable(format!(
                "Cassandra has no keyspace '{name}'; create it with 'plumbago schema apply', or name another one"
            )));
        }
    }
    mismatch::check(&found, &options.keyspace)?;
    let schema = Schema::new(options, &[]);
    for table in ["metrics", "directories", "metrics_metadata"] {
        if !found.has(&Thing::MetadataTable(table)) {
            return Err(StoreError::Unavailable(format!(
                "keyspace '{metadata_name}' has no table {table}; create it with 'plumbago schema apply'"
            )));
        }
    }
    let components = found.components().unwrap_or_default();
    for creation in schema.with_components(components).creations([USUAL_REPLICATION; 2]) {
        let is_ours = matches!(creation.thing, Thing::MetadataTable("spec" | "writers") | Thing::Spec(..));
        if is_ours && !found.has(&creation.thing) {
            create(metadata, options, &creation).await?;
            tracing::info!(what = %creation.thing, keyspace = metadata_name, "added a missing table to the keyspace of another program");
        }
        let is_of_nodes = matches!(creation.thing, Thing::MetadataTable("nodes" | "changes"));
        if is_of_nodes && !found.has(&creation.thing) {
            match create(metadata, options, &creation).await {
                Ok(()) => {
                    tracing::info!(what = %creation.thing, keyspace = metadata_name, "added a missing table");
                }
                Err(error) => tracing::warn!(
                    %error,
                    "cannot add a table by which nodes tell each other about new names; they read all names instead, every \
                     cassandra.reconcile_every. Create it with 'plumbago schema apply' and restart this node"
                ),
            }
        }
    }
    Ok(Opened { components, indexes: found.indexes() })
}
