//! The points of one connection between two calls of `accept`.

use std::sync::Arc;

use carbon::{RejectReason, Sink};
use metadata::Registry;
use metric::Timestamp;

use crate::{
    Protocol,
    journal::{NumberedPoint, RecordWriter},
    rejects::SAMPLE_BYTES,
};

/// A batch is worth accepting from this many points on: the locks, the append and the `write(2)` are paid
/// once for all of them. It may hold more; a receiver should not let it hold many times more.
pub const BATCH_POINTS: usize = 1024;

/// Examples of refused input that one batch carries; the counters still count the rest.
const EXAMPLES: usize = 16;

/// A point as it was sent. Its name is in the batch's text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    pub(crate) hash: u64,
    pub(crate) value: f64,
    pub(crate) name_start: u32,
    pub(crate) name_len: u16,
    pub(crate) time: u32,
}

/// Collects what decoders find, until [`crate::Ingest::accept`] takes it. Kept by a connection for all its
/// life, so that its memory is allocated once.
pub struct Batch {
    pub(crate) protocol: Protocol,
    registry: Arc<Registry>,
    pub(crate) text: Vec<u8>,
    pub(crate) sent: Vec<Sent>,
    pub(crate) refused: [u32; RejectReason::ALL.len()],
    pub(crate) examples: Vec<(RejectReason, Vec<u8>)>,
    // What accept makes of the points, here so that a second try after a full disk goes on where it was.
    pub(crate) numbered: Vec<NumberedPoint>,
    pub(crate) record: RecordWriter,
}

impl Batch {
    pub(crate) fn new(protocol: Protocol, registry: Arc<Registry>) -> Batch {
        Batch {
            protocol,
            registry,
            text: Vec::new(),
            sent: Vec::new(),
            refused: [0; RejectReason::ALL.len()],
            examples: Vec::new(),
            numbered: Vec::new(),
            record: RecordWriter::default(),
        }
    }

    /// Points waiting to be accepted.
    pub fn len(&self) -> usize {
        self.sent.len()
    }

    /// Whether no point waits.
    pub fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// How many inputs were refused since the last accept, all reasons together.
    pub fn refused(&self) -> u64 {
        self.refused.iter().map(|&count| u64::from(count)).sum()
    }

    pub(crate) fn name(&self, sent: &Sent) -> &[u8] {
        let start = sent.name_start as usize;
        &self.text[start..start + usize::from(sent.name_len)]
    }

    pub(crate) fn refuse(&mut self, reason: RejectReason, sample: &[u8]) {
        self.refused[reason as usize] += 1;
        if self.examples.len() < EXAMPLES {
            self.examples.push((reason, sample[..sample.len().min(SAMPLE_BYTES)].to_vec()));
        }
    }

    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.sent.clear();
        self.numbered.clear();
    }
}

impl Sink for Batch {
    #[inline]
    fn point(&mut self, name: &[u8], time: Timestamp, value: f64) {
        let Ok(seconds) = u32::try_from(time) else {
            return self.refuse(if time < 0 { RejectReason::TooOld } else { RejectReason::TooFarAhead }, name);
        };
        let Ok(name_len) = u16::try_from(name.len()) else {
            return self.refuse(RejectReason::NameTooLong, name);
        };
        let hash = self.registry.hash(name);
        let name_start = self.text.len() as u32;
        self.text.extend_from_slice(name);
        self.sent.push(Sent { hash, value, name_start, name_len, time: seconds });
    }

    fn reject(&mut self, reason: RejectReason, sample: &[u8]) {
        self.refuse(reason, sample);
    }
}
