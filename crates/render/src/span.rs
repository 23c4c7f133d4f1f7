//! Spans of time.

use crate::time::CALENDAR;

/// A span of time, Unix seconds. Points in `(from, until]` are fetched, as from whisper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// Exclusive.
    pub from: i64,
    /// Inclusive.
    pub until: i64,
}

impl Span {
    /// Any time.
    pub(crate) const ALL: Span = Span { from: i64::MIN, until: i64::MAX };

    /// The span with its ends moved by so many seconds; `None` beyond the years 1 to 9999, where Python's calendar
    /// ends and arithmetic on times need not be careful yet.
    pub(crate) fn moved(self, from_by: i64, until_by: i64) -> Option<Span> {
        let moved = |time: i64, by: i64| time.checked_add(by).filter(|time| CALENDAR.contains(time));
        Some(Span { from: moved(self.from, from_by)?, until: moved(self.until, until_by)? })
    }
}
