//! Decoded points on their way to the acceptor, and the memory of a sender: its buffer, its decoder, its batch.

use super::budget::{BudgetShare, OutOfMemory};
use crate::Batch;

/// Bytes of a batch, at most. A frame of more points is accepted in pieces.
const BATCH_BYTES: usize = 1 << 20;

/// Memory that a decoder gets at first, if the budget has it.
const FIRST_LOAN: usize = 64 << 10;

/// A decoder with memory of its own.
pub(super) trait OwnMemory {
    /// Bytes that it has.
    fn memory_bytes(&self) -> usize {
        0
    }

    /// Frees what it has. A frame that it could not finish for lack of memory is begun again.
    fn release_memory(&mut self) {}

    /// Rejects the frame for which it has no memory when it meets it next.
    fn refuse_frame(&mut self) {}
}

/// The batch of a sender, and its share of the budget. The share has the sender's buffer too: `held` bytes.
pub(super) struct Intake {
    pub(super) batch: Batch,
    pub(super) share: BudgetShare,
    /// Bytes that the decoder may have.
    lent: usize,
}

impl Intake {
    pub(super) fn new(batch: Batch, share: BudgetShare) -> Intake {
        Intake { batch, share, lent: 0 }
    }

    /// Tells the batch what it may have, and returns what the decoder may have.
    pub(super) fn allow(&mut self, held: usize) -> usize {
        self.batch.allow(self.share.bytes().saturating_sub(held + self.lent));
        self.lent
    }

    /// Bytes of all but the buffer.
    pub(super) fn memory_bytes(&self) -> usize {
        self.batch.memory_bytes() + self.lent
    }

    /// Gives a full batch more memory if it may have more.
    pub(super) fn try_give_room(&mut self, held: usize) -> bool {
        let wanted = self.wanted();
        wanted <= BATCH_BYTES && self.share.try_raise(held + self.lent + wanted)
    }

    /// Gives an empty batch, which has no room for a single point, more memory.
    pub(super) async fn give_room(&mut self, held: usize) -> Result<(), OutOfMemory> {
        let wanted = self.wanted();
        self.share.raise(held + self.lent + wanted).await
    }

    fn wanted(&self) -> usize {
        self.batch.wanted().unwrap_or_else(|| self.batch.memory_bytes())
    }

    /// Lends the decoder this many bytes for a frame, or has it refuse the frame when the budget can never hold them.
    pub(super) async fn lend(
        &mut self,
        decoder: &mut impl OwnMemory,
        held: usize,
        bytes: usize,
    ) -> Result<(), OutOfMemory> {
        let others = held + self.batch.memory_bytes();
        if !self.share.can_hold(others, bytes) {
            decoder.refuse_frame();
            return Ok(());
        }
        // More than it asks for: for each further loan it begins the frame again.
        for loan in [bytes.max(2 * self.lent).max(FIRST_LOAN), bytes] {
            if self.share.try_raise_for_decoder(others, loan) {
                self.lent = loan;
                return Ok(());
            }
        }
        // It holds nothing while it waits, so that two such frames do not wait for each other.
        decoder.release_memory();
        self.lent = 0;
        self.share.lower(others);
        self.share.raise_for_decoder(others, bytes).await?;
        self.lent = bytes;
        Ok(())
    }

    /// Gives back what the buffer, the decoder and the batch do not have after a message.
    pub(super) fn fit(&mut self, held: usize, decoder: &impl OwnMemory) {
        self.lent = decoder.memory_bytes();
        self.share.end_large();
        if BATCH_BYTES < self.batch.memory_bytes() {
            self.batch.release_memory();
        }
        self.share.lower(held + self.memory_bytes());
    }

    /// Frees everything but the buffer.
    pub(super) fn release(&mut self, held: usize, decoder: &mut impl OwnMemory) {
        decoder.release_memory();
        self.batch.release_memory();
        self.fit(held, decoder);
    }
}
