//! Points on their way into the journal, and points that it has.

use host::Now;

use super::record::ResolvedPoint;

/// Points to append as one record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Accepted<'a> {
    pub(crate) points: &'a [ResolvedPoint],
    /// The time by which points are too old or too far ahead.
    pub(crate) at: Now,
}

/// Points that are in the journal: memory takes no others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Journalled<'a>(Accepted<'a>);

impl<'a> Journalled<'a> {
    /// Points that were read from a record of the journal.
    pub(crate) fn read_back(points: &'a [ResolvedPoint], at: Now) -> Journalled<'a> {
        Journalled(Accepted { points, at })
    }

    /// Points of a record that was appended.
    pub(super) fn appended(accepted: Accepted<'a>) -> Journalled<'a> {
        Journalled(accepted)
    }

    pub(crate) fn points(&self) -> &'a [ResolvedPoint] {
        self.0.points
    }

    /// The time by which points are too old or too far ahead.
    pub(crate) fn accepted_at(&self) -> Now {
        self.0.at
    }
}
