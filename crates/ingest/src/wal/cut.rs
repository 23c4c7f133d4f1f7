//! A segment without what is damaged in it.

use std::ops::Range;

use super::{
    header::SegmentHeader,
    reader::{Start, records, start},
    record::{MAGIC_BYTES, Record, segment_start},
};

/// The whole records of a segment as a segment, and which bytes of the old one are not in it. Both copies of a header that
/// can be read are there; it no longer says that records of other segments are repeated, whose places have changed: reading
/// them twice changes nothing. A segment of a later version stays as it is.
pub fn without_damage(bytes: &[u8]) -> (Vec<u8>, Vec<Range<usize>>) {
    let (header, magic) = match start(bytes) {
        Start::Old => (None, b"PLBGJNL1"),
        Start::Known(header) => (Some(header), b"PLBGJNL2"),
        Start::Damaged => (None, b"PLBGJNL2"),
        Start::Newer(_) => return (bytes.to_vec(), Vec::new()),
    };
    let mut kept = match &header {
        Some(header) => segment_start(&SegmentHeader { repeats: None, ..(**header).clone() }),
        None => magic.to_vec(),
    };
    let mut found = records(bytes);
    for (place, record) in found.by_ref() {
        if header.is_none() || !matches!(record, Record::Segment { .. }) {
            kept.extend_from_slice(&bytes[place]);
        }
    }
    let mut cut = found.damage;
    if !bytes.starts_with(magic) && cut.first().is_none_or(|first| 0 < first.start) {
        cut.insert(0, 0..MAGIC_BYTES.min(bytes.len()));
    }
    if cut.is_empty() { (bytes.to_vec(), cut) } else { (kept, cut) }
}

#[cfg(test)]
mod tests {
    use host::Now;
    use metric::MetricId;
    use store::{Identity, Incarnation};

    use super::{
        super::{header::Repeats, record::RecordWriter},
        *,
    };

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

    #[test]
    fn a_segment_keeps_its_header_and_both_copies_of_it() {
        let chain = vec![Incarnation { id: 3, first_id: MetricId(2) }];
        let identity = Identity { store: 7, chain };
        let repeats = Some(Repeats { segment: 4, offset: 100, bytes: 42 });
        let header = SegmentHeader {
            identity,
            segment: 5,
            next_id: MetricId(9),
            previous: Some(4),
            previous_bytes: 1234,
            previous_whole: Some(1200),
            previous_length: Some(1300),
            repeats,
        };
        let mut bytes = segment_start(&header);
        let behind_header = bytes.len();
        let mut writer = RecordWriter::default();
        for metric in 0..3 {
            let point = ResolvedPoint { metric: MetricId(metric), time: 60, value: 1.0 };
            bytes.extend_from_slice(writer.points(Now::at(60), &[point]));
        }
        assert_eq!(without_damage(&bytes), (bytes.clone(), vec![]));
        for place in MAGIC_BYTES..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[place] ^= 4;
            let (kept, cut) = without_damage(&flipped);
            assert!(cut.iter().any(|cut| cut.contains(&place)), "byte {place}");
            let expected = SegmentHeader { repeats: None, ..header.clone() };
            assert_eq!(start(&kept), Start::Known(Box::new(expected)), "byte {place}");
            assert_eq!(kept[..behind_header].len(), segment_start(&header).len());
            let (mut headers, mut points) = (0, 0);
            let read = replay(&kept, |record| match record {
                Record::Segment { .. } => headers += 1,
                _ => points += 1,
            });
            let whole = if place < behind_header { 3 } else { 2 };
            assert_eq!((headers, points, read.damaged_bytes), (2, whole, 0), "byte {place}");
        }
    }
}
