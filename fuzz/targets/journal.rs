//! The journal: any segment is read without harm, and damage loses no record but its own.
#![no_main]

use host::Now;
use ingest::wal::{Record, RecordWriter, ResolvedPoint, replay};
use libfuzzer_sys::fuzz_target;
use metric::MetricId;

/// The points of every record, for comparing.
fn read(bytes: &[u8]) -> (u64, u64, Vec<Vec<(u32, u32, u64)>>) {
    let mut all = Vec::new();
    let replayed = replay(bytes, |record| {
        if let Record::Points { points, .. } = record {
            all.push(points.map(|point| (point.metric.0, point.time, point.value.to_bits())).collect());
        }
    });
    (replayed.records, replayed.damaged_bytes, all)
}

/// A record with a correct checksum around any payload: length, crc over kind and payload, kind, payload.
fn record(kind: u8, payload: &[u8]) -> Vec<u8> {
    let checked = [&[kind], payload].concat();
    let length = (payload.len() as u32).to_le_bytes();
    [&length[..], &crc32fast::hash(&checked).to_le_bytes(), &checked].concat()
}

fuzz_target!(|input: &[u8]| {
    let (records, damaged, _) = read(input);
    assert!(records * 9 + damaged <= input.len() as u64);

    // The input as payloads of every kind.
    let segment: Vec<u8> = input
        .split(|&byte| byte == b'\n')
        .enumerate()
        .flat_map(|(i, payload)| record(1 + (i % 5) as u8, payload))
        .collect();
    read(&segment);

    // The input as damage between two good records: both are read.
    let point = |metric| ResolvedPoint { metric: MetricId(metric), time: 1_700_000_000, value: 1.5 };
    let (first, last) = (
        RecordWriter::default().points(Now::at(1), &[point(1)]).to_vec(),
        RecordWriter::default().points(Now::at(2), &[point(2)]).to_vec(),
    );
    let (_, _, between) = read(&[&first[..], input, &last].concat());
    let expected = |metric: u32| vec![(metric, 1_700_000_000, 1.5f64.to_bits())];
    assert_eq!(between.first(), Some(&expected(1)));
    assert!(between.last() == Some(&expected(2)) || swallows(input, last.len()));
});

/// Whether a record with a correct checksum in `input` extends into the `after` bytes behind it: it is then not
/// different from one of ours. Never seen, because such checksums are rare.
fn swallows(input: &[u8], after: usize) -> bool {
    (0..input.len()).any(|at| {
        let length = input.get(at..at + 4).and_then(|length| length.try_into().ok()).map(u32::from_le_bytes);
        length.is_some_and(|length| {
            let end = at + 9 + length as usize;
            input.len() < end && end <= input.len() + after
        })
    })
}
