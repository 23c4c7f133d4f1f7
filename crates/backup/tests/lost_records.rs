//! Records of the log of names that are lost: what a verification says of them, also later, and a repair.

use std::{fs, path::Path, sync::Arc};

use backup::{Report, lock, repair, verify};
use host::{Host, SystemDisk};
use metric::{MetricId, Policy};
use store::{MetricRecord, NameStore as _, PolicyChange};
use store_embedded::{EmbeddedDriver, EmbeddedOptions};
use tokio::runtime::{Builder, Runtime};

const LOG: &str = "store/names/00000001.log";

fn record(id: u32, name: &str) -> MetricRecord {
    let policies = vec![PolicyChange { since: 0, policy: Policy::default() }];
    MetricRecord { id: MetricId(id), name: name.to_owned(), created_on: 5, policies }
}

struct Folder {
    data: tempfile::TempDir,
    runtime: Runtime,
}

impl Folder {
    fn new() -> Folder {
        Folder { data: tempfile::tempdir().unwrap(), runtime: Builder::new_current_thread().build().unwrap() }
    }

    fn path(&self) -> &Path {
        self.data.path()
    }

    fn open(&self) -> Arc<EmbeddedDriver> {
        Arc::new(EmbeddedDriver::open(&self.path().join("store"), EmbeddedOptions::default()).unwrap())
    }

    /// Opens the store, puts records, and deletes metrics.
    fn put(&self, records: Vec<MetricRecord>, deleted: Vec<MetricId>) {
        let driver = self.open();
        self.runtime.block_on(driver.put_metrics(records)).unwrap();
        self.runtime.block_on(driver.delete_metrics(deleted)).unwrap();
        self.runtime.block_on(driver.sync_metrics()).unwrap();
    }

    fn len(&self) -> usize {
        fs::metadata(self.path().join(LOG)).unwrap().len() as usize
    }

    fn flip(&self, at: usize, bits: u8) {
        let mut bytes = fs::read(self.path().join(LOG)).unwrap();
        bytes[at] ^= bits;
        fs::write(self.path().join(LOG), bytes).unwrap();
    }

    fn verify(&self) -> Report {
        let _lock = lock(&SystemDisk, self.path()).unwrap();
        verify(&SystemDisk, self.path()).unwrap()
    }
}

fn says(report: &Report, text: &str) -> bool {
    report.known_losses.iter().any(|loss| loss.how.contains(text))
        || report.faults().any(|(_, part)| part.how.contains(text))
}

#[test]
fn a_lost_policy_is_said_by_a_verification_with_its_metrics() {
    let folder = Folder::new();
    folder.put(vec![record(3, "a"), record(4, "b"), record(5, "c")], vec![MetricId(5)]);
    assert!(folder.verify().known_losses.is_empty());
    let text = b"average 10080*60s";
    let bytes = fs::read(folder.path().join(LOG)).unwrap();
    folder.flip(bytes.windows(text.len()).position(|part| part == text).unwrap(), 3);
    let lost = "the record of policy 0 is lost, by which 2 metrics were kept";
    for _ in 0..2 {
        let report = folder.verify();
        assert!(says(&report, lost), "{report:?}");
        // Its metrics name it also once the log was written again.
        folder.put(vec![record(6, "d")], Vec::new());
    }
    assert!(folder.verify().is_good());
}

#[test]
fn a_lost_deletion_is_said_by_a_verification_until_a_repair() {
    let folder = Folder::new();
    folder.put(vec![record(3, "a"), record(4, "b")], Vec::new());
    let from = folder.len();
    folder.put(Vec::new(), vec![MetricId(4)]);
    folder.flip(from + 14, 3);
    for _ in 0..2 {
        folder.put(vec![record(6, "c")], Vec::new());
        let report = folder.verify();
        let metrics =
            |text: &str| report.known_losses.iter().find(|loss| loss.how.contains(text)).and_then(|loss| loss.metrics);
        assert!(report.is_good(), "{report:?}");
        assert_eq!(metrics("may be back"), Some((MetricId(0), MetricId(4))), "{report:?}");
    }
    let repaired = repair(&Host::system(), folder.path(), false).unwrap();
    let after = repaired.after.expect("the report is ended");
    assert!(after.is_good() && !says(&after, "may be back"), "{after:?}");
    let again = repair(&Host::system(), folder.path(), false).unwrap();
    assert!(again.after.is_none(), "{again:?}");
}
