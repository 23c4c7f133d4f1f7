//! A segment without what is damaged in it.

use std::ops::Range;

use super::{
    reader::{Start, records, start},
    record::MAGIC_BYTES,
};

/// The whole records of a segment as a segment, and which bytes of the old one are not in it. A segment of a later version
/// stays as it is.
pub fn without_damage(bytes: &[u8]) -> (Vec<u8>, Vec<Range<usize>>) {
    let magic = match start(bytes) {
        Start::Old => b"PLBGJNL1",
        Start::Known(_) | Start::Damaged => b"PLBGJNL2",
        Start::Newer(_) => return (bytes.to_vec(), Vec::new()),
    };
    let (mut kept, mut found) = (magic.to_vec(), records(bytes));
    for (place, _) in found.by_ref() {
        kept.extend_from_slice(&bytes[place]);
    }
    let mut cut = found.damage;
    if !bytes.starts_with(magic) && cut.first().is_none_or(|first| 0 < first.start) {
        cut.insert(0, 0..MAGIC_BYTES.min(bytes.len()));
    }
    (kept, cut)
}

#[cfg(test)]
mod tests {
    use host::Now;
    use metric::MetricId;

    use super::{super::record::RecordWriter, *};

    const MAGIC: &[u8; 8] = b"PLBGJNL1";
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
