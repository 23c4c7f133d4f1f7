//! Deleting names for every program that writes the tables. Directories stay, as with BigGraphite: its clean deletes empty ones.

use futures::{StreamExt, TryStreamExt, stream};
use scylla::{
    client::session::Session,
    statement::{
        Consistency,
        batch::{Batch, BatchType},
    },
};
use store::StoreError;

use super::tables::Names;
use crate::{failure::unavailable, schema::quoted};

impl Names {
    /// Deletes both rows of each name, together. A majority must know of it, as for [`Names::deleted`].
    pub(crate) async fn delete(&self, names: &[String]) -> Result<(), StoreError> {
        self.tables().await?;
        let keyspace = quoted(&self.keyspace);
        let mut batch = Batch::new(BatchType::Unlogged);
        for table in ["metrics", "metrics_metadata"] {
            let statement = self.prepare(&format!("DELETE FROM {keyspace}.{table} WHERE name = ?")).await?;
            batch.append_statement(statement);
        }
        batch.set_consistency(Consistency::LocalQuorum);
        batch.set_is_idempotent(true);
        let (batch, session): (&Batch, &Session) = (&batch, &self.session);
        // By their places: of closures over references the compiler cannot tell that they may be sent.
        let deletes = (0..names.len()).map(|at| async move {
            let values = ((&names[at],), (&names[at],));
            let _permit = self.permits.acquire().await.expect("it is never closed");
            let deleted = self.retry.run(|| session.batch(batch, &values)).await;
            deleted.map(drop).map_err(|error| unavailable("deleting a metric", &self.keyspace, &error))
        });
        stream::iter(deletes).buffer_unordered(self.in_flight).try_collect::<()>().await
    }
}
