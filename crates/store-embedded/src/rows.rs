//! Rows of points: a metric's slots of one group, coded and decoded.

use codec::{Codec, Damaged, Segment, segments};

use crate::row_key::GROUP_SLOTS;

/// Codes rows again. Has the buffers that one thread needs.
#[derive(Debug, Default)]
pub(crate) struct Recoder {
    codec: Codec,
    values: Vec<f64>,
    counts: Vec<u32>,
    /// The rows of a join, one behind the other, and their segments.
    joined: Vec<u8>,
    segments: Vec<Segment>,
}

impl Recoder {
    /// Appends one segment to a row.
    pub(crate) fn append(&mut self, offset: usize, values: &[f64], counts: &[u32], row: &mut Vec<u8>) {
        self.codec.encode(offset, values, counts, row);
    }

    /// Decodes slots of a row over what is there. Returns whether the row has any of them.
    pub(crate) fn read(
        &mut self,
        row: &[u8],
        slots: std::ops::Range<usize>,
        values: &mut [f64],
        counts: &mut [u32],
    ) -> Result<bool, Damaged> {
        self.codec.decode(row, slots, values, counts)
    }

    /// Appends one segment with the slots of all rows to `out`; of two with the same slot, the later row wins.
    pub(crate) fn recode<'a>(
        &mut self,
        rows: impl IntoIterator<Item = &'a [u8]>,
        is_aggregated: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), Damaged> {
        self.recode_slots(rows, 0..GROUP_SLOTS as usize, is_aggregated, out)
    }

    /// Appends the segments of all rows to `out`. `kept` says how many of them stay as they are, first to last; the
    /// others, if there are any, become one.
    pub(crate) fn join<'a>(
        &mut self,
        rows: impl IntoIterator<Item = &'a [u8]>,
        is_aggregated: bool,
        kept: impl FnOnce(&[Segment]) -> usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Damaged> {
        let mut joined = std::mem::take(&mut self.joined);
        joined.clear();
        rows.into_iter().for_each(|row| joined.extend_from_slice(row));
        self.segments.clear();
        let mut answer = Ok(());
        for segment in segments(&joined) {
            match segment {
                Ok(segment) => self.segments.push(segment),
                Err(damaged) => answer = Err(damaged),
            }
        }
        if answer.is_ok() {
            let tail = &self.segments[kept(&self.segments)..];
            let start = tail.first().map_or(joined.len(), |segment| segment.bytes.start);
            out.extend_from_slice(&joined[..start]);
            let first = tail.iter().map(|segment| segment.slots.start).min();
            let end = tail.iter().map(|segment| segment.slots.end).max();
            if let (Some(first), Some(end)) = (first, end) {
                answer = self.recode_slots([&joined[start..]], first..end, is_aggregated, out);
            }
        }
        self.joined = joined;
        answer
    }

    fn recode_slots<'a>(
        &mut self,
        rows: impl IntoIterator<Item = &'a [u8]>,
        slots: std::ops::Range<usize>,
        is_aggregated: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), Damaged> {
        self.values.clear();
        self.values.resize(slots.len(), f64::NAN);
        self.counts.clear();
        self.counts.resize(if is_aggregated { slots.len() } else { 0 }, 0);
        for row in rows {
            self.codec.decode(row, slots.clone(), &mut self.values, &mut self.counts)?;
        }
        self.codec.encode(slots.start, &self.values, &self.counts, out);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use metric::MetricId;

    use super::*;
    use crate::row_key::RowKey;

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
            let key = hex(&RowKey { group: first / GROUP_SLOTS, metric: MetricId(7) }.to_bytes());
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
        let mut near = Vec::new();
        Codec::new().encode(0, &[0.1 + 0.2, 1.1 + 2.2, 0.7 + 0.1], &[], &mut near);
        assert_eq!(without_remarks(block("near")), shown(0, &near));
    }

    #[test]
    fn the_page_shows_the_spec_that_is_written() {
        let opening = store::Incarnation { id: 0x83ab_0f15_77c2_9d04, first_id: MetricId(0) };
        let identity = store::Identity { store: 0x5f0c_e2d1_94a7_3b68_5f0c_e2d1_94a7_3b68, chain: vec![opening] };
        assert_eq!(block("spec"), crate::spec::text_of(&identity));
    }

    #[test]
    fn joined_rows_keep_their_first_segments_and_all_slots() {
        let mut recoder = Recoder::default();
        let rows: Vec<Vec<u8>> = (0..4)
            .map(|i| {
                let (mut row, from) = (Vec::new(), 10.0 * f64::from(i));
                recoder.append(10 * i as usize, &[from, f64::NAN, from + 2.5], &[1, 0, 3], &mut row);
                row
            })
            .collect();
        let mut all = Vec::new();
        recoder.recode(rows.iter().map(Vec::as_slice), true, &mut all).unwrap();
        for kept in 0..=4 {
            let mut row = Vec::new();
            recoder.join(rows.iter().map(Vec::as_slice), true, |_| kept, &mut row).unwrap();
            assert_eq!(codec::segments(&row).count(), 4.min(kept + 1));
            assert!(row.starts_with(&rows[..kept].concat()));
            let mut one = Vec::new();
            recoder.recode([&row[..]], true, &mut one).unwrap();
            assert_eq!(one, all);
        }
        assert!(recoder.join([&[0xff_u8; 3][..]], true, |_| 0, &mut Vec::new()).is_err());
    }

    #[test]
    fn recoded_rows_are_one_segment_where_the_later_row_wins() {
        let mut recoder = Recoder::default();
        let (mut older, mut newer) = (Vec::new(), Vec::new());
        recoder.append(10, &[1.0, 2.0, 3.0], &[4, 5, 6], &mut older);
        recoder.append(11, &[20.0, f64::NAN, 40.0], &[50, 0, 70], &mut newer);
        let mut row = Vec::new();
        recoder.recode([&older[..], &newer[..]], true, &mut row).unwrap();
        assert_eq!(codec::segments(&row).count(), 1);
        let (mut values, mut counts) = ([0.0; 4], [0; 4]);
        recoder.read(&row, 10..14, &mut values, &mut counts).unwrap();
        assert_eq!((values, counts), ([1.0, 20.0, 3.0, 40.0], [4, 50, 6, 70]));
    }
}
