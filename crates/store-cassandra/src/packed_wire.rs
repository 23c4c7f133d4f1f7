//! Rows of packed tables on their way: written into frames and read from them without copies.

use scylla::{
    cluster::metadata::NativeType,
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

use crate::wire::{OtherColumns, cell, check, put};

/// The columns of a written run.
pub(crate) const RUN: &[NativeType] = &[
    NativeType::Uuid,
    NativeType::BigInt,
    NativeType::SmallInt,
    NativeType::SmallInt,
    NativeType::SmallInt,
    NativeType::Blob,
    NativeType::Blob,
    NativeType::Int,
    NativeType::BigInt,
];

/// The columns of a run as it is read.
const SELECTED: &[NativeType] = &[
    NativeType::SmallInt,
    NativeType::SmallInt,
    NativeType::SmallInt,
    NativeType::Blob,
    NativeType::Blob,
    NativeType::BigInt,
];

/// A run to be written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PackedRow {
    pub(crate) metric: Uuid,
    pub(crate) time_start_ms: i64,
    /// As in the table; see [`crate::run_key::key_offset`].
    pub(crate) offset: i16,
    pub(crate) shard: i16,
    /// Values of the run.
    pub(crate) count: i16,
    /// See [`crate::run_key::holes`].
    pub(crate) holes: Vec<u8>,
    /// The sealed run.
    pub(crate) points: Vec<u8>,
    /// Seconds.
    pub(crate) ttl: i32,
    /// Of the write, microseconds.
    pub(crate) timestamp: i64,
}

impl PackedRow {
    pub(crate) fn partition(&self) -> (Uuid, i64) {
        (self.metric, self.time_start_ms)
    }
}

impl SerializeRow for PackedRow {
    fn serialize(&self, context: &RowSerializationContext<'_>, to: &mut RowWriter) -> Result<(), SerializationError> {
        if context.columns().len() != RUN.len() {
            return Err(SerializationError::new(OtherColumns));
        }
        put(to, self.metric.as_bytes())?;
        put(to, &self.time_start_ms.to_be_bytes())?;
        put(to, &self.offset.to_be_bytes())?;
        put(to, &self.shard.to_be_bytes())?;
        put(to, &self.count.to_be_bytes())?;
        put(to, &self.holes)?;
        put(to, &self.points)?;
        put(to, &self.ttl.to_be_bytes())?;
        put(to, &self.timestamp.to_be_bytes())
    }

    fn is_empty(&self) -> bool {
        false
    }
}

/// A run as it was read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PackedCell<'frame> {
    /// As in the table.
    pub(crate) offset: i16,
    pub(crate) shard: i16,
    pub(crate) count: i16,
    pub(crate) holes: &'frame [u8],
    pub(crate) points: &'frame [u8],
    /// When it was written, microseconds.
    pub(crate) time: i64,
}

impl<'frame, 'metadata> DeserializeRow<'frame, 'metadata> for PackedCell<'frame> {
    fn type_check(columns: &[ColumnSpec]) -> Result<(), TypeCheckError> {
        check(columns, SELECTED)
    }

    #[inline]
    fn deserialize(mut row: ColumnIterator<'frame, 'metadata>) -> Result<PackedCell<'frame>, DeserializationError> {
        let (offset, shard, count) = (cell(&mut row)?, cell(&mut row)?, cell(&mut row)?);
        let holes = blob(&mut row)?;
        // A row without its cell is one that another program wrote: no run opens.
        let points = blob(&mut row)?;
        let time = crate::wire::time(&mut row)?;
        let (Some(offset), Some(shard), Some(count)) = (offset, shard, count) else {
            // No run has a key with an empty value: none opens there, and it names no slot.
            return Ok(PackedCell { offset: 0, shard: 0, count: 0, holes: &[], points: &[], time });
        };
        let [offset, shard, count] = [offset, shard, count].map(i16::from_be_bytes);
        Ok(PackedCell { offset, shard, count, holes, points, time })
    }
}

#[inline]
fn blob<'frame>(row: &mut ColumnIterator<'frame, '_>) -> Result<&'frame [u8], DeserializationError> {
    let column = row.next().ok_or_else(|| DeserializationError::new(OtherColumns))??;
    Ok(column.slice.map_or(&[][..], |slice| slice.as_slice()))
}
