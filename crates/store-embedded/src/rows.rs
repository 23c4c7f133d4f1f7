//! Rows of points: a metric's slots of one group, read and written through the codec.

use codec::Codec;
use metric::{MetricId, Slot};
use store::StoreError;

use crate::tree::Tree;

/// Slots of one row. A partition of the logical table has two: long enough for a good ratio, short enough that a
/// query for an hour does not decode two days.
pub(crate) const GROUP_SLOTS: u32 = 1000;

/// Segments a row may have before it is rewritten as one. Appending a segment costs nothing but its bytes;
/// each one costs a reader a little.
const MOST_SEGMENTS: usize = 8;

/// The key of a row: `group u32 │ metric u32`, big-endian. Time comes first: rows of a group that is past lie apart
/// from those still written, and are never merged again; and neighbours differ in a byte or two of their keys.
pub(crate) fn key(metric: MetricId, group: u32) -> [u8; 8] {
    (u64::from(group) << 32 | u64::from(metric.0)).to_be_bytes()
}

/// What one thread needs to read and write rows.
#[derive(Default)]
pub(crate) struct Rows {
    codec: Codec,
    row: Vec<u8>,
    values: Vec<f64>,
    counts: Vec<u32>,
}

impl Rows {
    /// Lays values over the row of a group, from `offset` on.
    pub(crate) fn write(
        &mut self,
        tree: &Tree,
        metric: MetricId,
        group: u32,
        offset: usize,
        values: &[f64],
        counts: &[u32],
    ) -> Result<(), StoreError> {
        if values.iter().all(|value| value.is_nan()) {
            return Ok(());
        }
        let key = key(metric, group);
        self.row.clear();
        if let Some(stored) = tree.get(&key)? {
            let segments = codec::segments(&stored).count();
            let fills_the_group = offset + values.len() == GROUP_SLOTS as usize;
            if segments + 1 > MOST_SEGMENTS || fills_the_group {
                return self.rewrite(tree, &key, &stored, offset, values, counts);
            }
            self.row.extend_from_slice(&stored);
        }
        self.codec.encode(offset, values, counts, &mut self.row);
        tree.insert(&key, &self.row);
        Ok(())
    }

    /// Writes the row as one segment.
    fn rewrite(
        &mut self,
        tree: &Tree,
        key: &[u8; 8],
        stored: &[u8],
        offset: usize,
        values: &[f64],
        counts: &[u32],
    ) -> Result<(), StoreError> {
        let slots = GROUP_SLOTS as usize;
        self.values.clear();
        self.values.resize(slots, f64::NAN);
        self.counts.clear();
        self.counts.resize(if counts.is_empty() { 0 } else { slots }, 0);
        self.codec
            .decode(stored, 0..slots, &mut self.values, &mut self.counts)
            .map_err(|damaged| damage(tree, key, &damaged))?;
        for (i, &value) in values.iter().enumerate().filter(|(_, value)| !value.is_nan()) {
            self.values[offset + i] = value;
            if let Some(&count) = counts.get(i) {
                self.counts[offset + i] = count;
            }
        }
        self.codec.encode(0, &self.values, &self.counts, &mut self.row);
        tree.insert(key, &self.row);
        Ok(())
    }

    /// Reads the slots from `first` on into `values` (and `counts`, where the table has them) as far as they lie in
    /// the group. What is not stored is left as it is. Returns whether anything was there.
    pub(crate) fn read(
        &mut self,
        tree: &Tree,
        metric: MetricId,
        group: u32,
        first: Slot,
        values: &mut [f64],
        counts: &mut [u32],
    ) -> Result<bool, StoreError> {
        let key = key(metric, group);
        let Some(stored) = tree.get(&key)? else { return Ok(false) };
        let offset = (first - group * GROUP_SLOTS) as usize;
        let slots = offset..offset + values.len();
        self.codec.decode(&stored, slots, values, counts).map_err(|damaged| damage(tree, &key, &damaged))
    }
}

fn damage(tree: &Tree, key: &[u8; 8], damaged: &codec::Damaged) -> StoreError {
    let (group, metric) = key.split_at(4);
    let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().expect("half a key"));
    StoreError::Damaged {
        what: format!("row {} of metric {} in {}", number(group), number(metric), tree.path().display()),
        how: damaged.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of the block of `schema/embedded.md` that begins with a fence of this name.
    fn block(name: &str) -> String {
        let page = include_str!("../../../schema/embedded.md");
        let (_, block) = page.split_once(&format!("```{name}\n")).expect("the block is there");
        block.split_once("```").expect("the block ends").0.to_owned()
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn the_page_shows_the_bytes_that_are_written() {
        let mut row = Vec::new();
        Codec::new().encode(777, &[12.34, 12.40, f64::NAN, 12.29], &[], &mut row);
        let mut counted = Vec::new();
        Codec::new().encode(0, &[720.0, 730.5], &[60, 59], &mut counted);
        let shown = |first: u32, row: &[u8]| {
            let key = hex(&key(MetricId(7), first / GROUP_SLOTS));
            format!("key    {} {}\nvalue  {}\n", &key[..8], &key[8..], hex(row))
        };
        let without_remarks = |block: String| -> String {
            block
                .lines()
                .map(|line| line.split("   #").next().unwrap_or_default().trim_end().to_owned() + "\n")
                .collect()
        };
        assert_eq!(without_remarks(block("row")), shown(28_333_777, &row));
        assert_eq!(without_remarks(block("counted")), shown(472_000, &counted));
    }

    #[test]
    fn the_page_shows_the_spec_that_is_written() {
        let opening = store::Incarnation { id: 0x83ab_0f15_77c2_9d04, first_id: MetricId(0) };
        let identity = store::Identity { store: 0x5f0c_e2d1_94a7_3b68_5f0c_e2d1_94a7_3b68, chain: vec![opening] };
        assert_eq!(block("spec"), crate::spec::text_of(&identity));
    }
}
