//! The manifest of the files of rows: any text is read or damaged, also with a checksum that is right.
#![no_main]

use std::path::Path;

use host::{Disk, Open, SimulatedDisk};
use libfuzzer_sys::fuzz_target;
use store_embedded::{lost_rows, read_journal_mark, read_manifest};

/// Whether it can be read.
fn read(bytes: &[u8]) -> bool {
    let (disk, store) = (SimulatedDisk::new(), Path::new("/data/store"));
    disk.create_dir_all(store).expect("the disk takes it");
    disk.open(&store.join("manifest"), Open::Create).and_then(|file| file.write_shared(bytes)).expect("the disk takes it");
    let files = read_manifest(&disk, store);
    let (lost, mark) = (lost_rows(&disk, store), read_journal_mark(&disk, store));
    for rows in &lost {
        assert!(rows.metrics.is_none_or(|(lowest, highest)| lowest <= highest), "{rows:?}");
    }
    assert!(files.is_ok() || lost.is_empty() && mark.is_none());
    files.is_ok()
}

fuzz_target!(|input: &[u8]| {
    read(input);
    let mut text = input.to_vec();
    if text.last() != Some(&b'\n') {
        text.push(b'\n');
    }
    let crc = crc32fast::hash(&text);
    text.extend_from_slice(format!("end {crc:08x}\n").as_bytes());
    read(&text);
});
