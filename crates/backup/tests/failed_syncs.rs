//! Files whose last sync failed: a verification lists them, and changes nothing.

use std::{collections::BTreeSet, fs};

use backup::{lock, repair, verify};
use host::{Host, NOTE_OF_SYNCS, NotedFiles, NotedSyncs, SystemDisk};
use store_embedded::{EmbeddedDriver, EmbeddedOptions};

#[test]
fn a_verification_lists_what_the_next_start_writes_again() {
    let data = tempfile::tempdir().unwrap();
    let data = data.path();
    EmbeddedDriver::open(&data.join("store"), EmbeddedOptions::default()).unwrap();
    let listed = || {
        let _lock = lock(&SystemDisk, data).unwrap();
        let report = verify(&SystemDisk, data).unwrap();
        assert!(report.is_good(), "every byte can be read: {report:?}");
        report.written_again
    };
    assert_eq!(listed(), NotedFiles::default());
    let note = data.join(NOTE_OF_SYNCS);
    fs::write(&note, "store/spec\nstore/gone\n\n\n").unwrap();
    let noted = NotedFiles::Some(BTreeSet::from(["store/spec".into()]));
    assert_eq!(listed(), noted, "a file that is gone is not written again");
    let host = Host { disk: std::sync::Arc::new(NotedSyncs::new(Host::system().disk)), ..Host::system() };
    assert_eq!(repair(&host, data, true).unwrap().before.written_again, noted, "a dry run changes nothing");
    assert_eq!(listed(), noted);
    fs::write(&note, "/\n").unwrap();
    assert_eq!(listed(), NotedFiles::All);
    repair(&host, data, false).unwrap();
    assert_eq!(listed(), NotedFiles::default(), "a repair writes them again");
}
