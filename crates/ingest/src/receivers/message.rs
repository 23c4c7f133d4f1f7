//! One pickle or protobuf message: the body of a frame, or of an HTTP request.

use carbon::{Progress, RejectReason, Sink, pickle, protobuf};
use metric::Timestamp;

use super::intake::OwnMemory;
use crate::Batch;

/// The encoding of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameFormat {
    /// Python pickles.
    Pickle,
    /// `carbon.Payload` messages.
    Protobuf,
}

/// Decodes messages of one format.
pub(super) struct MessageDecoder {
    format: FrameFormat,
    pickles: pickle::Decoder,
    payloads: protobuf::Decoder,
    /// The message that is decoded next needs more memory than there can ever be.
    is_refused: bool,
}

impl MessageDecoder {
    pub(super) fn new(format: FrameFormat) -> MessageDecoder {
        let (pickles, payloads) = (pickle::Decoder::new(), protobuf::Decoder::new());
        MessageDecoder { format, pickles, payloads, is_refused: false }
    }

    /// Decodes one message, while the batch has room, within so many bytes of memory.
    pub(super) fn decode(&mut self, message: &[u8], now: Timestamp, batch: &mut Batch, allowed: usize) -> Progress {
        if std::mem::take(&mut self.is_refused) {
            batch.reject(RejectReason::FrameNeedsMemory, message);
            self.release_memory();
            return Progress::Done;
        }
        match self.format {
            FrameFormat::Pickle => self.pickles.decode_within(message, now, batch, allowed),
            FrameFormat::Protobuf => self.payloads.decode(message, batch),
        }
    }
}

impl OwnMemory for MessageDecoder {
    fn memory_bytes(&self) -> usize {
        self.pickles.memory_bytes()
    }

    fn release_memory(&mut self) {
        self.pickles.release_memory();
    }

    fn refuse_frame(&mut self) {
        self.is_refused = true;
    }
}
