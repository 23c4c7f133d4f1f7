//! Queries with a small answer: retried within a time limit, and read at once.

use scylla::{
    client::session::Session,
    deserialize::row::DeserializeRow,
    response::query_result::QueryResult,
    serialize::row::SerializeRow,
    statement::{Consistency, unprepared::Statement},
};
use store::StoreError;

use crate::{failure::unavailable, retry::Retry};

/// What queries share.
pub(crate) struct Asker<'a> {
    pub(crate) session: &'a Session,
    /// Named in errors.
    pub(crate) keyspace: &'a str,
    pub(crate) consistency: Consistency,
    pub(crate) retry: Retry,
}

impl Asker<'_> {
    /// Runs an idempotent query. `what` names the operation, for the error.
    pub(crate) async fn rows<R>(&self, what: &str, cql: &str, values: impl SerializeRow) -> Result<Vec<R>, StoreError>
    where
        R: for<'frame, 'metadata> DeserializeRow<'frame, 'metadata>,
    {
        let mut statement = Statement::new(cql);
        statement.set_consistency(self.consistency);
        statement.set_is_idempotent(true);
        let asked = self.retry.run(|| self.session.query_unpaged(statement.clone(), &values)).await;
        let answer = asked.map_err(|error| unavailable(what, self.keyspace, &error))?;
        read(what, answer)
    }
}

/// The rows of an answer that can be read, and why one cannot, if there is any: other programs may write the table, and an empty value,
/// which any type may have, is none of most.
pub(crate) fn read_valid<R>(what: &str, answer: QueryResult) -> Result<(Vec<R>, Option<String>), StoreError>
where
    R: for<'frame, 'metadata> DeserializeRow<'frame, 'metadata>,
{
    let damaged = |how: String| StoreError::Damaged { what: what.to_owned(), how };
    let answer = answer.into_rows_result().map_err(|error| damaged(error.to_string()))?;
    let mut valid = Vec::with_capacity(answer.rows_num());
    let mut why = None;
    for row in answer.rows::<R>().map_err(|error| damaged(error.to_string()))? {
        match row {
            Ok(row) => valid.push(row),
            Err(error) => why = Some(error.to_string()),
        }
    }
    Ok((valid, why))
}

/// The rows of an answer.
pub(crate) fn read<R>(what: &str, answer: QueryResult) -> Result<Vec<R>, StoreError>
where
    R: for<'frame, 'metadata> DeserializeRow<'frame, 'metadata>,
{
    let damaged = |how: String| StoreError::Damaged { what: what.to_owned(), how };
    let answer = answer.into_rows_result().map_err(|error| damaged(error.to_string()))?;
    let rows = answer.rows::<R>().map_err(|error| damaged(error.to_string()))?;
    rows.collect::<Result<Vec<R>, _>>().map_err(|error| damaged(error.to_string()))
}
