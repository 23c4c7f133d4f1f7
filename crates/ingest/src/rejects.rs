//! The last inputs that were refused, kept to look at.

use std::collections::VecDeque;

use carbon::RejectReason;
use metric::Timestamp;
use parking_lot::Mutex;

use crate::Protocol;

/// Examples kept; an older one makes room.
const KEPT: usize = 200;

/// Bytes kept of each.
pub(crate) const SAMPLE_BYTES: usize = 256;

/// Something that was refused.
#[derive(Debug, Clone, PartialEq)]
pub struct RejectExample {
    /// When, Unix seconds.
    pub time: Timestamp,
    /// How it came.
    pub protocol: Protocol,
    /// Why it was refused.
    pub reason: RejectReason,
    /// The beginning of what was sent.
    pub sample: Vec<u8>,
}

#[derive(Debug, Default)]
pub(crate) struct Rejects {
    last: Mutex<VecDeque<RejectExample>>,
}

impl Rejects {
    pub(crate) fn keep(&self, examples: impl Iterator<Item = RejectExample>) {
        let mut last = self.last.lock();
        for example in examples {
            if last.len() == KEPT {
                last.pop_front();
            }
            last.push_back(example);
        }
    }

    /// Newest first.
    pub(crate) fn last(&self) -> Vec<RejectExample> {
        self.last.lock().iter().rev().cloned().collect()
    }
}
