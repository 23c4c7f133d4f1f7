//! Reads of points: only the requested partitions and offsets, all of a call concurrently,
//! decoded from the frames into dense columns.

use std::{ops::ControlFlow, sync::Arc};

use futures::{StreamExt, stream};
use metric::Table;
use scylla::response::{PagingState, query_result::QueryRowsResult};
use store::{Cells, Fetch, StoreError};
use uuid::Uuid;

use crate::{
    failure::{Classify, Failure},
    merge::{Row, merge},
    points::Points,
    rows::{self, Part},
    tables::Statements,
    wire::{PartialRow, PointRow},
};

/// One partition of one fetch.
struct Wanted {
    fetch: usize,
    statements: Arc<Statements>,
    metric: Uuid,
    part: Part,
}

impl Points {
    /// The cells of each fetch, in their order. Dropping the future cancels every statement of the call.
    pub(crate) async fn fetch(&self, fetches: &[Fetch]) -> Result<Vec<Cells>, StoreError> {
        let mut cells = vec![Cells::default(); fetches.len()];
        self.read(fetches, |fetch, part, pages| {
            let (wanted, cells) = (&fetches[fetch], &mut cells[fetch]);
            match wanted.table.aggregated {
                false => points(wanted, part, pages, cells),
                true => partials(pages, |offset, rows| {
                    let merged = merge(wanted.aggregation, rows);
                    if let Some(at) = index(wanted, part, offset).filter(|_| merged.count > 0) {
                        allocate(wanted, cells);
                        cells.values[at] = merged.value;
                        cells.counts[at] = merged.count;
                    }
                }),
            }
        })
        .await?;
        Ok(cells)
    }

    /// Reads the requested partitions and passes on their pages as they arrive, with the index of the fetch.
    pub(crate) async fn read(
        &self,
        fetches: &[Fetch],
        mut each: impl FnMut(usize, Part, &[QueryRowsResult]) -> Result<(), Undecodable>,
    ) -> Result<(), StoreError> {
        let mut tables: Vec<(Table, Option<Arc<Statements>>)> = Vec::new();
        let mut plan = Vec::with_capacity(fetches.len());
        for (index, fetch) in fetches.iter().enumerate() {
            let known = tables.iter().position(|(known, _)| *known == fetch.table);
            let table = match known {
                Some(table) => table,
                None => {
                    tables.push((fetch.table, self.tables.existing(fetch.table).await?));
                    tables.len() - 1
                }
            };
            // A missing table has no rows.
            let Some(statements) = &tables[table].1 else { continue };
            let metric = rows::metric_id(&fetch.name);
            let parts = rows::parts(fetch.table.stage, fetch.first_slot, fetch.end_slot);
            plan.extend(parts.map(|part| Wanted { fetch: index, statements: statements.clone(), metric, part }));
        }
        let ask = |wanted: Wanted| async move {
            let _permit = self.reads.acquire().await.expect("it is never closed");
            let pages = self.pages(&wanted).await?;
            Ok::<_, StoreError>((wanted, pages))
        };
        let mut answers = stream::iter(plan).map(ask).buffer_unordered(self.in_flight);
        while let Some(answer) = answers.next().await {
            let (wanted, pages) = answer?;
            each(wanted.fetch, wanted.part, &pages).map_err(|error| StoreError::Damaged {
                what: format!("a row of {}", fetches[wanted.fetch].table),
                how: error.to_string(),
            })?;
        }
        Ok(())
    }

    async fn pages(&self, wanted: &Wanted) -> Result<Vec<QueryRowsResult>, StoreError> {
        let statements = &wanted.statements;
        let Part { time_start_ms, from, until, .. } = wanted.part;
        let key = (wanted.metric, time_start_ms, from, until);
        let mut pages = Vec::with_capacity(1);
        let mut state = PagingState::start();
        loop {
            let ask = || self.session.execute_single_page(&statements.select, key, state.clone());
            let (page, more) = match self.retry.run(ask).await {
                Ok(answer) => answer,
                Err(error) if error.failure() == Failure::NoTable => {
                    // Dropped meanwhile, and its rows with it.
                    self.tables.forget(statements.table);
                    return Ok(Vec::new());
                }
                Err(error) => return Err(self.failed("reading from", statements.table, &error)),
            };
            pages.push(page.into_rows_result().map_err(|error| StoreError::Damaged {
                what: format!("the answer to a SELECT from {}", statements.table),
                how: error.to_string(),
            })?);
            match more.into_paging_control_flow() {
                ControlFlow::Break(()) => return Ok(pages),
                ControlFlow::Continue(next) => state = next,
            }
        }
    }
}

/// Why a page could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Undecodable {
    #[error(transparent)]
    Columns(#[from] scylla::response::query_result::RowsError),
    #[error(transparent)]
    Row(#[from] scylla::deserialize::DeserializationError),
}

/// Passes on the rows of each slot of an aggregated partition, in the order of their shards.
pub(crate) fn partials(pages: &[QueryRowsResult], mut each: impl FnMut(i16, &[Row])) -> Result<(), Undecodable> {
    let mut slot: Vec<Row> = Vec::new();
    let mut offset = 0;
    for page in pages {
        for partial in page.rows::<PartialRow>()? {
            let partial = partial?;
            // The rows of a slot are consecutive, also across pages.
            if partial.offset != offset && !slot.is_empty() {
                each(offset, &slot);
                slot.clear();
            }
            offset = partial.offset;
            slot.push(partial.row);
        }
    }
    if !slot.is_empty() {
        each(offset, &slot);
    }
    Ok(())
}

/// Puts the points of a stage-0 partition where they belong.
fn points(fetch: &Fetch, part: Part, pages: &[QueryRowsResult], cells: &mut Cells) -> Result<(), Undecodable> {
    for page in pages {
        if page.rows_num() > 0 {
            allocate(fetch, cells);
        }
        // The place of this partition's slots in the column; other slots are left out.
        let from = (part.first_slot - fetch.first_slot) as usize;
        let slots = (part.until - part.from) as usize;
        let Some(column) = cells.values.get_mut(from..from + slots) else { continue };
        for point in page.rows::<PointRow>()? {
            let point = point?;
            if let Some(value) = column.get_mut((i32::from(point.offset) - i32::from(part.from)) as usize) {
                *value = point.value;
            }
        }
    }
    Ok(())
}

/// Which cell of a fetch an offset of one of its partitions is.
pub(crate) fn index(fetch: &Fetch, part: Part, offset: i16) -> Option<usize> {
    let inside = part.from <= offset && offset < part.until;
    inside.then(|| (part.first_slot - fetch.first_slot) as usize + (offset - part.from) as usize)
}

fn allocate(fetch: &Fetch, cells: &mut Cells) {
    if cells.values.is_empty() {
        let slots = fetch.end_slot.saturating_sub(fetch.first_slot) as usize;
        cells.values.resize(slots, f64::NAN);
        cells.counts.resize(if fetch.table.aggregated { slots } else { 0 }, 0);
    }
}
