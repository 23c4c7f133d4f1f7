//! The logs of names and events: any file is read without harm, and damage loses no record but its own.
#![no_main]

use std::path::Path;

use host::{Disk, Open, SimulatedDisk};
use libfuzzer_sys::fuzz_target;
use store_embedded::{IdSet, LogReport, check_log, log_file, lost_names, names_of, without_name};

const STORE: u128 = 7;

/// A file of the log of names, read by everything that reads one.
fn read(bytes: &[u8]) -> Option<LogReport> {
    let (disk, store) = (SimulatedDisk::new(), Path::new("/data/store"));
    let path = store.join("names/00000001.log");
    disk.create_dir_all(path.parent().expect("a folder")).expect("the disk takes it");
    disk.open(&path, Open::Create).and_then(|file| file.write_shared(bytes)).expect("the disk takes it");
    let mut known = IdSet::default();
    names_of(&disk, store).into_keys().for_each(|metric| _ = known.insert(metric));
    let unnamed = without_name(&disk, store, &known);
    assert!(unnamed.is_none_or(|unnamed| unnamed.iter().next().is_none()));
    lost_names(&disk, store);
    check_log(&disk, &path, "names record", Some(STORE)).ok()
}

/// Bytes of a file without a record.
fn header() -> usize {
    log_file(STORE, 1, std::iter::empty()).len()
}

/// A payload that a program can have written: deletions (kind 3) are of metrics that it had, and not of billions.
fn bounded(place: usize, payload: &[u8]) -> Vec<u8> {
    let mut payload = payload.to_vec();
    if place % 7 == 3 {
        payload.chunks_exact_mut(8).for_each(|run| run[6..].fill(0));
    }
    payload
}

fuzz_target!(|input: &[u8]| {
    if let Some(report) = read(input) {
        let damaged: u64 = report.damaged.iter().map(|part| part.bytes).sum();
        assert!(damaged + report.cut_off <= input.len() as u64, "{report:?}");
    }

    // The input as payloads of every kind.
    let payloads = input.split(|&byte| byte == b'\n').enumerate();
    let payloads: Vec<(u8, Vec<u8>)> = payloads.map(|(i, payload)| ((i % 7) as u8, bounded(i, payload))).collect();
    let payloads: Vec<(u8, &[u8])> = payloads.iter().map(|(kind, payload)| (*kind, &payload[..])).collect();
    let report = read(&log_file(STORE, 1, payloads.iter().copied())).expect("a whole file");
    assert_eq!((report.records, report.damaged.len(), report.cut_off), (payloads.len() as u64, 0, 0));

    // The input over the middle one of three records: the others are read, unless the input covers them too.
    let metric = |id: u32| [&id.to_le_bytes()[..], &[0; 5], b"a.b"].concat();
    let records: Vec<Vec<u8>> = (1..=3).map(metric).collect();
    let mut bytes = log_file(STORE, 1, records.iter().map(|record| (2, &record[..])));
    let each = (bytes.len() - header()) / 3;
    let middle = header() + each;
    let changed = input.len().min(each);
    bytes[middle..middle + changed].copy_from_slice(&input[..changed]);
    let report = read(&bytes).expect("a header");
    assert!(2 <= report.records, "{report:?}");
});
