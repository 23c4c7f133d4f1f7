//! Rows of datapoints tables on their way: written into frames and read from them without conversions.
//!
//! The driver's own conversions check the type of every cell of every row. Here a table's types are checked once,
//! when its statements are prepared ([`crate::tables`]) or a page arrives.

use scylla::{
    cluster::metadata::{ColumnType, NativeType},
    deserialize::{
        DeserializationError, TypeCheckError,
        row::{ColumnIterator, DeserializeRow},
    },
    frame::response::result::ColumnSpec,
    serialize::{
        SerializationError,
        row::{RowSerializationContext, SerializeRow},
        writers::RowWriter,
    },
};
use uuid::Uuid;

/// The columns of a written point.
pub(crate) const POINT: &[NativeType] =
    &[NativeType::Uuid, NativeType::BigInt, NativeType::SmallInt, NativeType::Double, NativeType::Int];

/// The columns of a written partial.
pub(crate) const PARTIAL: &[NativeType] = &[
    NativeType::Uuid,
    NativeType::BigInt,
    NativeType::SmallInt,
    NativeType::SmallInt,
    NativeType::Double,
    NativeType::SmallInt,
    NativeType::Int,
];

/// The values of a SELECT.
pub(crate) const SELECTED: &[NativeType] =
    &[NativeType::Uuid, NativeType::BigInt, NativeType::SmallInt, NativeType::SmallInt];

/// The values of a DELETE.
pub(crate) const DELETED: &[NativeType] =
    &[NativeType::BigInt, NativeType::Uuid, NativeType::BigInt, NativeType::SmallInt, NativeType::SmallInt];

/// A row to be written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct WrittenRow {
    pub(crate) metric: Uuid,
    pub(crate) time_start_ms: i64,
    pub(crate) offset: i16,
    /// Shard and count, in an aggregated table.
    pub(crate) partial: Option<(i16, i16)>,
    pub(crate) value: f64,
    /// Seconds.
    pub(crate) ttl: i32,
}

impl SerializeRow for WrittenRow {
    fn serialize(&self, context: &RowSerializationContext<'_>, to: &mut RowWriter) -> Result<(), SerializationError> {
        let columns = if self.partial.is_some() { PARTIAL } else { POINT };
        if context.columns().len() != columns.len() {
            return Err(SerializationError::new(OtherColumns));
        }
        put(to, self.metric.as_bytes())?;
        put(to, &self.time_start_ms.to_be_bytes())?;
        put(to, &self.offset.to_be_bytes())?;
        if let Some((shard, _)) = self.partial {
            put(to, &shard.to_be_bytes())?;
        }
        put(to, &self.value.to_be_bytes())?;
        if let Some((_, count)) = self.partial {
            put(to, &count.to_be_bytes())?;
        }
        put(to, &self.ttl.to_be_bytes())
    }

    fn is_empty(&self) -> bool {
        false
    }
}

pub(crate) fn put(to: &mut RowWriter, bytes: &[u8]) -> Result<(), SerializationError> {
    to.make_cell_writer().set_value(bytes).map(drop).map_err(SerializationError::new)
}

/// The offset of a row whose key has an empty value: no writer's, in no part of a partition.
const OUTSIDE: i16 = -1;

/// A row of a stage-0 table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PointRow {
    pub(crate) offset: i16,
    /// NaN where the cell was never written.
    pub(crate) value: f64,
    /// When it was written, microseconds, where that was asked.
    pub(crate) time: i64,
}

/// A row of an aggregated table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PartialRow {
    pub(crate) offset: i16,
    pub(crate) row: crate::merge::Row,
    /// When it was written, microseconds, where that was asked.
    pub(crate) time: i64,
}

impl<'frame, 'metadata> DeserializeRow<'frame, 'metadata> for PointRow {
    fn type_check(columns: &[ColumnSpec]) -> Result<(), TypeCheckError> {
        check_timed(columns, &[NativeType::SmallInt, NativeType::Double])
    }

    #[inline]
    fn deserialize(mut row: ColumnIterator<'frame, 'metadata>) -> Result<PointRow, DeserializationError> {
        let (offset, value) = (cell(&mut row)?.map_or(OUTSIDE, i16::from_be_bytes), double(&mut row)?);
        Ok(PointRow { offset, value, time: time(&mut row)? })
    }
}

impl<'frame, 'metadata> DeserializeRow<'frame, 'metadata> for PartialRow {
    fn type_check(columns: &[ColumnSpec]) -> Result<(), TypeCheckError> {
        check_timed(columns, &[NativeType::SmallInt, NativeType::SmallInt, NativeType::Double, NativeType::SmallInt])
    }

    #[inline]
    fn deserialize(mut row: ColumnIterator<'frame, 'metadata>) -> Result<PartialRow, DeserializationError> {
        let (offset, shard) = (cell(&mut row)?, cell(&mut row)?);
        let (offset, shard) = offset
            .zip(shard)
            .map_or((OUTSIDE, 0), |(offset, shard)| (i16::from_be_bytes(offset), i16::from_be_bytes(shard)));
        let value = double(&mut row)?;
        let count = cell(&mut row)?.map_or(0, i16::from_be_bytes).into();
        Ok(PartialRow { offset, row: crate::merge::Row { shard, value, count }, time: time(&mut row)? })
    }
}

/// Whether the columns have these types, in this order.
pub(crate) fn check(columns: &[ColumnSpec], types: &[NativeType]) -> Result<(), TypeCheckError> {
    let same = columns.len() == types.len()
        && columns.iter().zip(types).all(|(column, native)| *column.typ() == ColumnType::Native(native.clone()));
    if same { Ok(()) } else { Err(TypeCheckError::new(OtherColumns)) }
}

/// As [`check`], with or without the time of the write behind them.
fn check_timed(columns: &[ColumnSpec], types: &[NativeType]) -> Result<(), TypeCheckError> {
    match columns.split_at_checked(types.len()) {
        Some((columns, [])) => check(columns, types),
        Some((columns, time)) => check(columns, types).and_then(|()| check(time, &[NativeType::BigInt])),
        None => Err(TypeCheckError::new(OtherColumns)),
    }
}

/// The time of a write, the last column where it was asked; before all others where not.
#[inline]
pub(crate) fn time(row: &mut ColumnIterator<'_, '_>) -> Result<i64, DeserializationError> {
    match row.columns_remaining() {
        0 => Ok(i64::MIN),
        _ => Ok(cell(row)?.map_or(i64::MIN, i64::from_be_bytes)),
    }
}

#[inline]
pub(crate) fn cell<const N: usize>(row: &mut ColumnIterator<'_, '_>) -> Result<Option<[u8; N]>, DeserializationError> {
    let column = row.next().ok_or_else(|| DeserializationError::new(OtherColumns))??;
    // An empty value, which CQL allows for any type, is none, as it is for BigGraphite.
    let Some(slice) = column.slice.filter(|slice| !slice.as_slice().is_empty()) else { return Ok(None) };
    slice.as_slice().try_into().map(Some).map_err(|_| DeserializationError::new(OtherColumns))
}

#[inline]
fn double(row: &mut ColumnIterator<'_, '_>) -> Result<f64, DeserializationError> {
    Ok(cell(row)?.map_or(f64::NAN, f64::from_be_bytes))
}

/// The tables are not BigGraphite's.
#[derive(Debug, thiserror::Error)]
#[error("the columns are not those of BigGraphite's datapoints tables")]
pub(crate) struct OtherColumns;
