//! Rows of one window that are in memory and in no file yet.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use metric::Slot;

use crate::{row_key::RowKey, rows::Recoder};

/// Segments that a row may have before it is coded again as one. A segment costs a reader a little, and more bytes.
const MOST_SEGMENTS: u8 = 16;

/// Bytes of memory of a row besides its segments: its entry in a table that is three fifths full, and what the allocator adds
/// to its bytes.
const OVERHEAD: u64 = 104;

#[derive(Debug, Clone)]
struct Row {
    bytes: Vec<u8>,
    /// At least one for each segment; one that is laid over the row of a failed flush counts as one.
    segments: u8,
}

/// Rows by their keys.
#[derive(Debug, Clone, Default)]
pub(crate) struct Buffer {
    rows: HashMap<RowKey, Row, FixedState>,
    bytes: u64,
    newest: Option<Slot>,
}

impl Buffer {
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Bytes of memory, about.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The newest slot that any row has.
    pub(crate) fn newest(&self) -> Option<Slot> {
        self.newest
    }

    /// Notes the last slot of rows that are appended.
    pub(crate) fn note_newest(&mut self, slot: Slot) {
        self.newest = self.newest.max(Some(slot));
    }

    /// Appends a segment to a row.
    pub(crate) fn append(&mut self, key: RowKey, segment: &[u8], is_aggregated: bool, recoder: &mut Recoder) {
        let row = self.rows.entry(key).or_insert_with(|| {
            self.bytes += OVERHEAD;
            Row { bytes: Vec::new(), segments: 0 }
        });
        let before = row.bytes.len() as u64;
        if row.segments < MOST_SEGMENTS {
            row.bytes.extend_from_slice(segment);
            row.segments += 1;
        } else {
            let mut one = Vec::with_capacity(row.bytes.len());
            recoder
                .recode([&row.bytes[..], segment], is_aggregated, &mut one)
                .expect("segments that this process coded can be decoded");
            *row = Row { bytes: one, segments: 1 };
        }
        self.bytes = self.bytes + row.bytes.len() as u64 - before;
    }

    /// The segments of a row.
    pub(crate) fn get(&self, key: RowKey) -> Option<&[u8]> {
        self.rows.get(&key).map(|row| &row.bytes[..])
    }

    /// All rows in the order of their keys, each as one segment.
    pub(crate) fn for_each_sorted<E>(
        &self,
        is_aggregated: bool,
        mut each: impl FnMut(RowKey, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rows: Vec<(RowKey, &Row)> = self.rows.iter().map(|(&key, row)| (key, row)).collect();
        rows.sort_unstable_by_key(|(key, _)| *key);
        let (mut recoder, mut one) = (Recoder::default(), Vec::new());
        for (key, row) in rows {
            if row.segments == 1 {
                each(key, &row.bytes)?;
                continue;
            }
            one.clear();
            recoder
                .recode([&row.bytes[..]], is_aggregated, &mut one)
                .expect("segments that this process coded can be decoded");
            each(key, &one)?;
        }
        Ok(())
    }

    /// Lays newer rows over these.
    pub(crate) fn lay_over(&mut self, newer: Buffer, is_aggregated: bool) {
        let mut recoder = Recoder::default();
        self.newest = self.newest.max(newer.newest);
        for (key, row) in newer.rows {
            if row.segments == 1 {
                self.append(key, &row.bytes, is_aggregated, &mut recoder);
                continue;
            }
            let mut one = Vec::new();
            recoder
                .recode([&row.bytes[..]], is_aggregated, &mut one)
                .expect("segments that this process coded can be decoded");
            self.append(key, &one, is_aggregated, &mut recoder);
        }
    }
}

#[cfg(test)]
mod tests {
    use metric::MetricId;

    use super::*;

    const KEY: RowKey = RowKey { group: 1, metric: MetricId(2) };

    fn slots(row: &[u8]) -> Vec<f64> {
        let mut values = vec![f64::NAN; 40];
        Recoder::default().read(row, 0..40, &mut values, &mut []).unwrap();
        values
    }

    fn buffer(writes: &[(usize, f64)]) -> Buffer {
        let (mut buffer, mut recoder) = (Buffer::default(), Recoder::default());
        for &(slot, value) in writes {
            let mut segment = Vec::new();
            recoder.append(slot, &[value], &[], &mut segment);
            buffer.append(KEY, &segment, false, &mut recoder);
        }
        buffer
    }

    #[test]
    fn many_segments_become_one_and_the_last_write_wins() {
        let writes: Vec<(usize, f64)> = (0..80).map(|i| (i % 40, i as f64)).collect();
        let buffer = buffer(&writes);
        assert!(codec::segments(buffer.get(KEY).unwrap()).count() <= usize::from(MOST_SEGMENTS));
        let wanted: Vec<f64> = (40..80).map(f64::from).collect();
        assert_eq!(slots(buffer.get(KEY).unwrap()), wanted);
        buffer
            .for_each_sorted(false, |_, row| {
                assert_eq!((codec::segments(row).count(), slots(row)), (1, wanted.clone()));
                Ok::<(), ()>(())
            })
            .unwrap();
    }

    #[test]
    fn rows_of_a_failed_flush_are_below_newer_ones() {
        let mut older = buffer(&[(0, 1.0), (1, 2.0)]);
        older.lay_over(buffer(&[(1, 20.0), (2, 30.0), (2, 31.0)]), false);
        assert_eq!(slots(older.get(KEY).unwrap())[..3], [1.0, 20.0, 31.0]);
        assert!(OVERHEAD < older.bytes() && older.bytes() < OVERHEAD + 60);
    }
}
