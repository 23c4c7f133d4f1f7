//! A segment without what is damaged in it.

use std::ops::Range;

use super::record::{MAGIC, records};

/// The whole records of a segment as a segment, and which bytes of the old one are not in it.
pub fn without_damage(bytes: &[u8]) -> (Vec<u8>, Vec<Range<usize>>) {
    let mut at = if bytes.starts_with(MAGIC) { MAGIC.len() } else { 0 };
    let (mut kept, mut cut) = (MAGIC.to_vec(), Vec::new());
    let (mut found, mut damaged) = (records(bytes), 0);
    while let Some((length, _)) = found.next() {
        let skipped = (found.replayed.damaged_bytes - damaged) as usize;
        damaged = found.replayed.damaged_bytes;
        if 0 < skipped {
            cut.push(at..at + skipped);
        }
        at += skipped;
        kept.extend_from_slice(&bytes[at..at + length]);
        at += length;
    }
    if at < bytes.len() {
        cut.push(at..bytes.len());
    }
    (kept, cut)
}

#[cfg(test)]
mod tests {
    use host::Now;
    use metric::MetricId;

    use super::{super::record::RecordWriter, *};
    use crate::wal::{ResolvedPoint, replay};

    #[test]
    fn a_flipped_bit_costs_the_bytes_of_its_record_and_nothing_else() {
        let mut writer = RecordWriter::default();
        let (mut bytes, mut ends) = (MAGIC.to_vec(), vec![MAGIC.len()]);
        for metric in 0..3 {
            let point = ResolvedPoint { metric: MetricId(metric), time: 60, value: 1.0 };
            bytes.extend_from_slice(writer.points(Now::at(60), &[point]));
            ends.push(bytes.len());
        }
        assert_eq!(without_damage(&bytes), (bytes.clone(), vec![]));
        for place in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[place] ^= 4;
            let (kept, cut) = without_damage(&flipped);
            let damaged: usize = cut.iter().map(Range::len).sum();
            assert_eq!(damaged, if place < MAGIC.len() { MAGIC.len() } else { ends[1] - ends[0] }, "byte {place}");
            assert!(cut.iter().any(|cut| cut.contains(&place)), "byte {place}");
            let records = if place < MAGIC.len() { 3 } else { 2 };
            let read = replay(&kept, |_| ());
            assert_eq!((read.records, read.damaged_bytes), (records, 0), "byte {place}");
        }
    }
}
