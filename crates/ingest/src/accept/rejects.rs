//! The last rejected inputs, kept for an operator to look at.

use std::{collections::VecDeque, sync::Arc};

use carbon::RejectReason;
use metric::Timestamp;
use parking_lot::Mutex;

use crate::protocol::Protocol;

/// Examples kept; the oldest makes room for a new one.
const KEPT: usize = 200;

/// Bytes kept of each.
pub(super) const SAMPLE_BYTES: usize = 256;

/// A rejected input.
#[derive(Debug, Clone, PartialEq)]
pub struct RejectExample {
    /// When, Unix seconds.
    pub time: Timestamp,
    /// The protocol of its sender.
    pub protocol: Protocol,
    /// Why it was rejected.
    pub reason: RejectReason,
    /// The limit that was met and its value, where a limit was the reason.
    pub limit: Option<Arc<str>>,
    /// The beginning of what was sent.
    pub sample: Vec<u8>,
}

/// The last rejected inputs.
#[derive(Debug, Default)]
pub(super) struct Rejects {
    last: Mutex<VecDeque<RejectExample>>,
}

impl Rejects {
    pub(super) fn keep(&self, examples: impl Iterator<Item = RejectExample>) {
        let mut last = self.last.lock();
        for example in examples {
            if last.len() == KEPT {
                last.pop_front();
            }
            last.push_back(example);
        }
    }

    /// Newest first.
    pub(super) fn last(&self) -> Vec<RejectExample> {
        self.last.lock().iter().rev().cloned().collect()
    }
}
