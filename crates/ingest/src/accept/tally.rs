//! The points of one sender that gets an answer (a body by HTTP POST), counted.

use carbon::RejectReason;

/// Examples of rejected input that a tally keeps.
const EXAMPLES: usize = 5;

/// Accepted points and rejected inputs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tally {
    /// Points accepted.
    pub points: u64,
    /// Rejected points, lines and frames, by reason; in the order of [`RejectReason::ALL`].
    pub rejected: [u64; RejectReason::ALL.len()],
    /// The first rejected inputs.
    pub examples: Vec<(RejectReason, Vec<u8>)>,
}

impl Tally {
    /// Rejected inputs, all reasons together.
    pub fn rejected(&self) -> u64 {
        self.rejected.iter().sum()
    }

    /// The reasons that occurred, with their counts.
    pub fn reasons(&self) -> impl Iterator<Item = (RejectReason, u64)> {
        RejectReason::ALL.into_iter().zip(self.rejected).filter(|&(_, count)| 0 < count)
    }

    pub(super) fn count(&mut self, reason: RejectReason, count: u32) {
        self.rejected[reason as usize] += u64::from(count);
    }

    pub(super) fn keep(&mut self, reason: RejectReason, sample: &[u8]) {
        if self.examples.len() < EXAMPLES {
            self.examples.push((reason, sample.to_vec()));
        }
    }
}
