//! Reads of points: only the requested partitions and offsets, all of a call concurrently,
//! decoded from the frames into dense columns. A stage's rows and its packed runs are read together.

use std::{ops::ControlFlow, sync::Arc};

use codec::Codec;
use futures::{StreamExt, future::try_join, stream};
use metric::Table;
use scylla::{
    response::{PagingState, query_result::QueryRowsResult},
    statement::prepared::PreparedStatement,
};
use store::{Cells, Fetch, StoreError};
use uuid::Uuid;

use crate::{
    damaged_runs::DamagedRun,
    failure::{Classify, Failure},
    merge::{Row, merge},
    packed_tables::PackedStatements,
    points::Points,
    rows::{self, Part},
    run_key,
    tables::Statements,
    undecodable::Undecodable,
    unpack::{self, Hidden},
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
    pub(crate) rows: Vec<QueryRowsResult>,
    pub(crate) packed: Vec<QueryRowsResult>,
}

impl Answer {
    fn has_rows(&self) -> bool {
        self.rows.iter().any(|page| page.rows_num() > 0)
    }

    /// Passes on the rows of each slot of an aggregated partition, in the order of their shards, and the shards whose rows are
    /// damaged.
    pub(crate) fn partials(
        &self,
        table: Table,
        part: Part,
        mut each: impl FnMut(i16, &[Row], &[i16]),
    ) -> Result<(), Undecodable> {
        if self.packed.is_empty() {
            return partials(&self.rows, |offset, rows| each(offset, rows, &[]));
        }
        let (runs, _) = unpack::open_runs((table, self.metric, part), &self.packed)?;
        unpack::partials(&mut Codec::new(), &runs, part, &self.rows, each)
    }
}

impl Points {
    /// The cells of each fetch, in their order. Dropping the future cancels every statement of the call.
    pub(crate) async fn fetch(&self, fetches: &[Fetch]) -> Result<Vec<Cells>, StoreError> {
        let mut cells = vec![Cells::default(); fetches.len()];
        let mut codec = Codec::new();
        self.read(fetches, |fetch, part, answer| {
            let (wanted, cells) = (&fetches[fetch], &mut cells[fetch]);
            if !answer.packed.is_empty() {
                let damage = packed(wanted, part, answer, &mut codec, cells)?;
                self.damaged.report(wanted, damage);
                return Ok(());
            }
            match wanted.table.aggregated {
                false => points(wanted, part, &answer.rows, cells),
                true => partials(&answer.rows, |offset, rows| partial(wanted, part, offset, rows, cells)),
            }
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

/// Puts the partial of a slot where it belongs.
pub(crate) fn partial(wanted: &Fetch, part: Part, offset: i16, rows: &[Row], cells: &mut Cells) {
    let merged = merge(wanted.aggregation, rows);
    if let Some(at) = index(wanted, part, offset).filter(|_| merged.count > 0) {
        allocate(wanted, cells);
        cells.values[at] = merged.value;
        cells.counts[at] = merged.count;
    }
}

/// Puts the runs of a partition, and its rows, where they belong. Returns the runs that cannot be read.
fn packed(
    wanted: &Fetch,
    part: Part,
    answer: &Answer,
    codec: &mut Codec,
    cells: &mut Cells,
) -> Result<Vec<DamagedRun>, Undecodable> {
    let (runs, damage) = unpack::open_runs((wanted.table, answer.metric, part), &answer.packed)?;
    let is_alone = !answer.has_rows() && runs.iter().all(|run| run.shard == runs[0].shard);
    if wanted.table.aggregated && !is_alone {
        unpack::partials(codec, &runs, part, &answer.rows, |offset, rows, damaged| {
            match index(wanted, part, offset).filter(|_| !damaged.is_empty()) {
                // The rows of other shards are not all that was stored.
                Some(at) => cells.note_damage_at(at as u32..at as u32 + 1),
                None => partial(wanted, part, offset, rows, cells),
            }
        })?;
        return Ok(damage);
    }
    let was_empty = cells.values.is_empty();
    allocate(wanted, cells);
    let from = (part.first_slot - wanted.first_slot) as usize;
    let slots = from..from + (part.until - part.from) as usize;
    let values = &mut cells.values[slots.clone()];
    let mut hidden = Hidden::default();
    let (any, hidden) = if wanted.table.aggregated {
        let counts = &mut cells.counts[slots];
        unpack::lay(codec, &runs, part, values, counts, &mut hidden)?;
        let hidden = hidden.ranges(values);
        // What counts nothing was taken away.
        values.iter_mut().zip(&*counts).filter(|(_, count)| **count == 0).for_each(|(value, _)| *value = f64::NAN);
        (values.iter().any(|value| !value.is_nan()), hidden)
    } else if answer.has_rows() {
        let mut times = vec![i64::MIN; values.len()];
        for page in &answer.rows {
            for point in page.rows::<PointRow>()? {
                let point = point?;
                let at = (i32::from(point.offset) - i32::from(part.from)) as usize;
                if let (Some(value), Some(time)) = (values.get_mut(at), times.get_mut(at)) {
                    (*value, *time) = (point.value, point.time);
                }
            }
        }
        unpack::lay_over_rows(codec, &runs, part, values, &mut times, &mut hidden)?;
        (true, hidden.ranges(values))
    } else {
        let any = unpack::lay(codec, &runs, part, values, &mut [], &mut hidden)?;
        (any, hidden.ranges(values))
    };
    if was_empty && !any {
        (cells.values, cells.counts) = (Vec::new(), Vec::new());
    }
    let from = from as u32;
    hidden.into_iter().for_each(|places| cells.note_damage_at(from + places.start..from + places.end));
    Ok(damage)
}

/// The same where there are rows alone.
fn partials(pages: &[QueryRowsResult], mut each: impl FnMut(i16, &[Row])) -> Result<(), Undecodable> {
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

pub(crate) fn allocate(fetch: &Fetch, cells: &mut Cells) {
    if cells.values.is_empty() {
        let slots = fetch.end_slot.saturating_sub(fetch.first_slot) as usize;
        cells.values.resize(slots, f64::NAN);
        cells.counts.resize(if fetch.table.aggregated { slots } else { 0 }, 0);
    }
}
