//! Creates what a cluster lacks of a schema. Never drops or alters anything.

use store::StoreError;

use super::{
    create::create,
    definition::{Schema, Thing},
    found::{self, Found},
    mismatch,
};
use crate::{Indexes, Options, ask::Asker, session};

/// Creates every missing keyspace, table, index and row of a schema, reports each to `progress`, and waits until every
/// node has them. A second call does nothing.
///
/// # Errors
/// `Spec` where the tables have another layout: nothing is created. `Unavailable` where something cannot be created: the
/// text has the next step, and the CQL where a role with more rights must run it. `Rejected` where the servers do not
/// support the kind of index: everything else exists by then.
pub async fn apply(
    options: &Options,
    schema: &Schema,
    progress: &mut (dyn FnMut(&str) + Send),
) -> Result<(), StoreError> {
    let (data, metadata) = session::connect(options).await?;
    let found = Found::read(&data, &metadata, options).await?;
    mismatch::check(&found, &options.keyspace)?;

    let ask = |session| Asker {
        session,
        keyspace: &options.keyspace,
        consistency: options.consistency.meta_read,
        retry: options.retry(),
    };
    let usual = [found::fitting_replication(&ask(&data)).await?, found::fitting_replication(&ask(&metadata)).await?];
    // Existing tables keep their columns.
    let schema = match found.components() {
        Some(components) => schema.clone().with_components(components),
        None => schema.clone(),
    };
    let class = match schema.indexes {
        Indexes::Sasi => "SASIIndex",
        Indexes::Sai => "StorageAttachedIndex",
        Indexes::None => "",
    };
    let has_other_indexes = schema.indexes != Indexes::None && found.has_other_index_than(class);
    if has_other_indexes {
        progress(&format!("kept the {} indexes of the tables of names; created no others", found.indexes()));
    }
    let mut made = 0;
    for creation in schema.creations([&usual[0], &usual[1]]) {
        let is_other_index = has_other_indexes && matches!(creation.thing, Thing::Index(..));
        if is_other_index || found.has(&creation.thing) {
            continue;
        }
        let session = if creation.thing.is_data() { &data } else { &metadata };
        create(session, options, &creation).await?;
        made += 1;
        progress(&format!("created {}", creation.thing));
    }
    for session in [&data, &metadata] {
        let agreed = session.await_schema_agreement().await;
        agreed.map_err(|error| StoreError::Unavailable(format!("the nodes do not agree on the schema: {error}")))?;
    }
    progress(&match made {
        0 => "nothing was missing".to_owned(),
        made => format!("created {made} missing things; every node has them"),
    });
    Ok(())
}
