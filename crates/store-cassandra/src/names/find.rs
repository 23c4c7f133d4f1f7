//! Globs answered by the tables: concurrent statements, their rows counted and filtered.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering},
};

use futures::{StreamExt, TryStreamExt, stream};
use globs::{GlobError, Matcher};
use metric::is_tagged;
use scylla::{response::PagingState, statement::prepared::PreparedStatement};
use store::{SharedNode, StoreError};

use super::{
    plan::{Query, plan},
    tables::Names,
};
use crate::failure::unavailable;

/// Concurrent statements of one glob: BigGraphite's number, for the same servers.
const AT_ONCE: usize = 4;

/// Rows of a page.
const PAGE_ROWS: i32 = 5000;

/// Different statements kept prepared. When there are more, all are forgotten.
const KEPT_STATEMENTS: usize = 512;

const TABLES: [&str; 2] = ["metrics", "directories"];

impl Names {
    /// The matches of a glob, sorted by path. `limit` is how many rows may be read of each table.
    pub(crate) async fn find(&self, pattern: &str, limit: usize) -> Result<Vec<SharedNode>, StoreError> {
        let rejected = |error: GlobError| StoreError::Rejected(error.to_string());
        let Some(mut matcher) = Matcher::new(pattern).map_err(rejected)? else { return Ok(Vec::new()) };
        let parts = globs::parts(pattern).map_err(rejected)?;
        let opened = self.tables().await?.opened;
        let limit = limit.min(self.options.glob_rows);
        let queries = plan(&parts, opened.components, opened.indexes, self.options.glob_queries);

        let rows = [AtomicUsize::new(0), AtomicUsize::new(0)];
        let (queries, rows) = (&queries, &rows);
        let asked = (0..2 * queries.len()).map(|at| async move {
            let (query, table) = (&queries[at / 2], at % 2);
            Ok::<_, StoreError>((table, self.names(query, TABLES[table], pattern, limit, &rows[table]).await?))
        });
        let mut answers = stream::iter(asked).buffer_unordered(AT_ONCE.min(self.in_flight));
        let mut found: BTreeMap<String, [bool; 2]> = BTreeMap::new();
        while let Some((table, names)) = answers.try_next().await? {
            for name in names {
                // Tagged metrics are found by their tags.
                if !is_tagged(&name) && matcher.matches(&name).map_err(rejected)? {
                    found.entry(name).or_default()[table] = true;
                }
            }
        }
        Ok(found.into_iter().map(|(path, [is_leaf, is_branch])| SharedNode { path, is_leaf, is_branch }).collect())
    }

    /// The names that one statement finds.
    async fn names(
        &self,
        query: &Query,
        table: &str,
        pattern: &str,
        limit: usize,
        rows: &AtomicUsize,
    ) -> Result<Vec<String>, StoreError> {
        const WHAT: &str = "searching the tables of names";
        let damaged = |how: String| StoreError::Damaged { what: format!("an answer of table {table}"), how };
        // One more than the limit, to detect too many.
        let statement = self
            .glob_statement(&query.cql(&self.keyspace, table, limit.saturating_add(1).min(i32::MAX as usize)))
            .await?;
        let mut names = Vec::new();
        let mut state = PagingState::start();
        loop {
            let asked = {
                let _permit = self.permits.acquire().await.expect("it is never closed");
                self.retry.run(|| self.session.execute_single_page(&statement, &query.values, state.clone())).await
            };
            let (page, paging) = asked.map_err(|error| unavailable(WHAT, &self.keyspace, &error))?;
            let page = page.into_rows_result().map_err(|error| damaged(error.to_string()))?;
            let before = names.len();
            for row in page.rows::<(&str,)>().map_err(|error| damaged(error.to_string()))? {
                names.push(row.map_err(|error| damaged(error.to_string()))?.0.to_owned());
            }
            let new = names.len() - before;
            if rows.fetch_add(new, Ordering::Relaxed) + new > limit {
                return Err(too_many(query, table, pattern, limit));
            }
            match paging.into_paging_control_flow() {
                std::ops::ControlFlow::Break(()) => return Ok(names),
                std::ops::ControlFlow::Continue(next) => state = next,
            }
        }
    }

    async fn glob_statement(&self, cql: &str) -> Result<PreparedStatement, StoreError> {
        if let Some(statement) = self.globs.read().get(cql) {
            return Ok(statement.clone());
        }
        let mut statement = self.prepare(cql).await?;
        statement.set_consistency(self.consistency.meta_read);
        statement.set_page_size(PAGE_ROWS);
        statement.set_use_cached_result_metadata(true);
        let mut known = self.globs.write();
        if known.len() == KEPT_STATEMENTS {
            known.clear();
        }
        known.insert(cql.to_owned(), statement.clone());
        Ok(statement)
    }
}

fn too_many(query: &Query, table: &str, pattern: &str, limit: usize) -> StoreError {
    StoreError::Rejected(match query.is_everything() {
        true => format!(
            "'{pattern}' needs all names, and table {table} has more than {limit} (glob_rows): the tables have no index that \
             answers it; set globs = \"local\", begin the pattern with literal text, or raise glob_rows"
        ),
        false => format!(
            "'{pattern}' needs more than {limit} rows of table {table} (glob_rows); make it narrower, or raise glob_rows"
        ),
    })
}
