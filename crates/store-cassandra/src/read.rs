//! Reads of points: only the requested partitions and offsets, all of a call concurrently, decoded from the frames. A stage's
//! rows and its packed runs are read together; [`crate::fill`] puts them into dense columns.

use std::{ops::ControlFlow, sync::Arc};

use codec::Codec;
use futures::{StreamExt, future::try_join, stream};
use metric::Table;
use scylla::{
    deserialize::{result::TypedRowIterator, row::DeserializeRow},
    response::{PagingState, query_result::QueryRowsResult},
    statement::prepared::PreparedStatement,
};
use store::{Cells, Fetch, StoreError};
use uuid::Uuid;

use crate::{
    failure::{Classify, Failure},
    fill::{Stored, fill},
    packed_tables::PackedStatements,
    packed_wire::PackedCell,
    points::Points,
    rows::{self, Part},
    run_key,
    tables::Statements,
    undecodable::Undecodable,
    wire::{PartialRow, PointRow},
};

/// The tables of a stage, as far as they exist.
#[derive(Clone)]
struct StageTables {
    rows: Option<Arc<Statements>>,
    packed: Option<Arc<PackedStatements>>,
}

/// One partition of one fetch.
struct Wanted {
    fetch: usize,
    tables: StageTables,
    metric: Uuid,
    part: Part,
}

/// What is stored of a partition.
pub(crate) struct Answer {
    metric: Uuid,
    /// Of BigGraphite's table. They have the times of their writes where the stage has a packed table too.
    rows: Vec<QueryRowsResult>,
    packed: Vec<QueryRowsResult>,
}

impl Stored for Answer {
    fn metric(&self) -> Uuid {
        self.metric
    }

    fn has_rows(&self) -> bool {
        self.rows.iter().any(|page| page.rows_num() > 0)
    }

    fn has_runs(&self) -> bool {
        !self.packed.is_empty()
    }

    fn points(&self) -> impl Iterator<Item = Result<PointRow, Undecodable>> {
        rows_of(&self.rows)
    }

    fn partials(&self) -> impl Iterator<Item = Result<PartialRow, Undecodable>> {
        rows_of(&self.rows)
    }

    fn runs(&self) -> impl Iterator<Item = Result<PackedCell<'_>, Undecodable>> {
        rows_of(&self.packed)
    }
}

/// The rows of an answer's pages, one page after the other.
fn rows_of<'a, R: DeserializeRow<'a, 'a>>(
    pages: &'a [QueryRowsResult],
) -> impl Iterator<Item = Result<R, Undecodable>> {
    let (mut pages, mut page) = (pages.iter(), None::<TypedRowIterator<'a, 'a, R>>);
    std::iter::from_fn(move || {
        loop {
            if let Some(row) = page.as_mut().and_then(Iterator::next) {
                return Some(row.map_err(Undecodable::from));
            }
            match pages.next()?.rows() {
                Ok(rows) => page = Some(rows),
                Err(error) => return Some(Err(error.into())),
            }
        }
    })
}

impl Points {
    /// The cells of each fetch, in their order. Dropping the future cancels every statement of the call.
    pub(crate) async fn fetch(&self, fetches: &[Fetch]) -> Result<Vec<Cells>, StoreError> {
        let mut cells = vec![Cells::default(); fetches.len()];
        let mut codec = Codec::new();
        self.read(fetches, |fetch, part, answer| {
            let damage = fill(&fetches[fetch], part, answer, &mut codec, &mut cells[fetch])?;
            self.damaged.note(&fetches[fetch], (answer.metric, part), damage);
            Ok(())
        })
        .await?;
        Ok(cells)
    }

    /// Reads the requested partitions and passes on their answers as they arrive, with the index of the fetch.
    pub(crate) async fn read(
        &self,
        fetches: &[Fetch],
        mut each: impl FnMut(usize, Part, &Answer) -> Result<(), Undecodable>,
    ) -> Result<(), StoreError> {
        let mut tables: Vec<(Table, StageTables)> = Vec::new();
        let mut plan = Vec::with_capacity(fetches.len());
        for (index, fetch) in fetches.iter().enumerate() {
            let known = tables.iter().position(|(known, _)| *known == fetch.table);
            let table = match known {
                Some(table) => table,
                None => {
                    tables.push((fetch.table, self.stage_tables(fetch.table).await?));
                    tables.len() - 1
                }
            };
            // A missing table has no rows.
            let tables = &tables[table].1;
            if tables.rows.is_none() && tables.packed.is_none() {
                continue;
            }
            let metric = rows::metric_id(&fetch.name);
            let parts = rows::parts(fetch.table.stage, fetch.first_slot, fetch.end_slot);
            plan.extend(parts.map(|part| Wanted { fetch: index, tables: tables.clone(), metric, part }));
        }
        let ask = |wanted: Wanted| async move {
            let answer = self.ask(fetches[wanted.fetch].table, &wanted).await?;
            Ok::<_, StoreError>((wanted, answer))
        };
        let mut answers = stream::iter(plan).map(ask).buffer_unordered(self.in_flight);
        while let Some(answer) = answers.next().await {
            let (wanted, answer) = answer?;
            each(wanted.fetch, wanted.part, &answer).map_err(|error| StoreError::Damaged {
                what: format!("a row of {}", fetches[wanted.fetch].table),
                how: error.to_string(),
            })?;
        }
        Ok(())
    }

    async fn stage_tables(&self, table: Table) -> Result<StageTables, StoreError> {
        // First the packed ones: a node that moves from rows to packed writes to both, and in this order none of its writes
        // is missed.
        let packed = self.packed.existing(table.stage).await?;
        Ok(StageTables { rows: self.existing_rows(table).await?, packed })
    }

    /// The rows and the runs of a partition, asked at once.
    async fn ask(&self, table: Table, wanted: &Wanted) -> Result<Answer, StoreError> {
        let Part { time_start_ms, from, until, .. } = wanted.part;
        let rows = async {
            let Some(statements) = &wanted.tables.rows else { return Ok::<_, StoreError>(Vec::new()) };
            let key = (wanted.metric, time_start_ms, from, until);
            let name = statements.table.to_string();
            let timed = match &wanted.tables.packed {
                Some(_) => self.tables.timed_select(statements).await?,
                None => Some(&statements.select),
            };
            let pages = match timed {
                Some(select) => self.pages(select, key, &name).await?,
                None => None,
            };
            if pages.is_none() {
                // Dropped meanwhile, and its rows with it.
                self.tables.forget(statements.table);
            }
            Ok(pages.unwrap_or_default())
        };
        let packed = async {
            let Some(statements) = &wanted.tables.packed else { return Ok::<_, StoreError>(Vec::new()) };
            let (from, until) = run_key::key_offsets(table.aggregated, wanted.part);
            let key = (wanted.metric, time_start_ms, from, until);
            let pages = self.pages(&statements.select, key, &statements.name).await?;
            if pages.is_none() {
                self.packed.forget(statements.stage);
            }
            let pages = pages.unwrap_or_default();
            Ok(if pages.iter().all(|page| page.rows_num() == 0) { Vec::new() } else { pages })
        };
        let (rows, packed) = try_join(rows, packed).await?;
        Ok(Answer { metric: wanted.metric, rows, packed })
    }

    /// The pages of an answer; `None` where the table is gone.
    async fn pages(
        &self,
        select: &PreparedStatement,
        key: (Uuid, i64, i16, i16),
        table: &str,
    ) -> Result<Option<Vec<QueryRowsResult>>, StoreError> {
        let _permit = self.reads.acquire().await.expect("it is never closed");
        let mut pages = Vec::with_capacity(1);
        let mut state = PagingState::start();
        loop {
            let ask = || self.session.execute_single_page(select, key, state.clone());
            let (page, more) = match self.retry.run(ask).await {
                Ok(answer) => answer,
                Err(error) if error.failure() == Failure::NoTable => return Ok(None),
                Err(error) => return Err(self.failed("reading from", table, &error)),
            };
            pages.push(page.into_rows_result().map_err(|error| StoreError::Damaged {
                what: format!("the answer to a SELECT from {table}"),
                how: error.to_string(),
            })?);
            match more.into_paging_control_flow() {
                ControlFlow::Break(()) => return Ok(Some(pages)),
                ControlFlow::Continue(next) => state = next,
            }
        }
    }
}
