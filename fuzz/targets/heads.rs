//! The messages by which nodes give each other points: any bytes are read or damaged, and what is read is the same when it is
//! written and read again, also behind what a later version adds.
#![no_main]

use cluster::head_wire::{
    MAX_METRICS, Request, VERSION, read_answer, read_request, split_request, write_answer, write_request,
};
use ingest::{Head, HeadRun};
use libfuzzer_sys::fuzz_target;

/// Bytes in front of the first record, but for the id of the node.
const HEADER: usize = 10;

/// The id of the node and the count of records that a message says it has.
fn header(message: &[u8]) -> Option<(&str, usize)> {
    let length = usize::from(*message.get(5)?);
    let node = std::str::from_utf8(message.get(6..6 + length)?).ok()?;
    let count = u32::from_le_bytes(message.get(6 + length..HEADER + length)?.try_into().ok()?);
    Some((node, count as usize))
}

/// The message as the next version may write it: each record ends with more.
fn of_next_version(message: &[u8], node: &str) -> Vec<u8> {
    let (header, mut records) = message.split_at(HEADER + node.len());
    let mut next = header.to_vec();
    next[4] = VERSION + 1;
    while let Some((length, rest)) = records.split_first_chunk() {
        let length = u32::from_le_bytes(*length);
        let (record, rest) = rest.split_at(length as usize);
        next.extend_from_slice(&(length + 3).to_le_bytes());
        next.extend_from_slice(record);
        next.extend_from_slice(b"new");
        records = rest;
    }
    next
}

fn request(message: &[u8]) {
    let Ok(Request { version, node, metrics }) = read_request(message) else { return };
    assert!((1..=VERSION).contains(&version));
    assert!(metrics.len() <= MAX_METRICS);
    assert!(metrics.iter().map(|metric| 22 + metric.name.len()).sum::<usize>() <= message.len());
    assert_eq!(split_request(&metrics), (&metrics[..], &[][..]));
    let expected = Request { version: VERSION, node, metrics };
    let written = write_request(&expected.node, &expected.metrics);
    assert_eq!(read_request(&written).as_ref(), Ok(&expected));
    assert_eq!(read_request(&of_next_version(&written, &expected.node)), Ok(expected));
}

/// Everything of the heads, NaN included.
fn bits(heads: &[Head]) -> Vec<Vec<(bool, u32, u32, Vec<u64>)>> {
    let of_run = |run: &HeadRun| {
        let values = run.values.iter().map(|value| value.to_bits()).collect();
        (run.is_coarse, run.resolution, run.first_slot, values)
    };
    heads.iter().map(|head| head.iter().map(of_run).collect()).collect()
}

fn answer(message: &[u8]) {
    let Some((node, count)) = header(message) else { return };
    // As many as the message can have: who asks knows how many it asked for.
    if MAX_METRICS < count {
        return;
    }
    assert!(read_answer(message, "another", count).is_err() || node == "another");
    let Ok(heads) = read_answer(message, node, count) else { return };
    assert_eq!(heads.len(), count);
    let bytes = |head: &Head| 6 + head.iter().map(|run| 13 + 8 * run.values.len()).sum::<usize>();
    assert!(HEADER + node.len() + heads.iter().map(bytes).sum::<usize>() <= message.len());
    for run in heads.iter().flatten() {
        let end = u64::from(run.first_slot) + run.values.len().saturating_sub(1) as u64;
        assert!(run.resolution > 0 && end * u64::from(run.resolution) <= u64::from(u32::MAX));
    }
    let written = write_answer(VERSION, node, &heads).expect("it is no longer than what was read");
    for message in [written.clone(), of_next_version(&written, node)] {
        assert_eq!(bits(&read_answer(&message, node, count).expect("what was written")), bits(&heads));
    }
}

fuzz_target!(|input: &[u8]| {
    request(input);
    answer(input);
    // The same with a beginning that is right.
    for (magic, read) in [(b"PLBQ", request as fn(&[u8])), (b"PLBA", answer)] {
        read(&[&magic[..], &[VERSION], input].concat());
    }
});
