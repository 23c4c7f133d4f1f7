//! Points of a kept file that are not put back, in its name: so each start can say how many they are, and their times,
//! without a read of the file.
//!
//! ```text
//! ~75-older                                    75 points whose slots have a value that may be older
//! ~12-expired-1800000000-1800000059            12 points of these times whose slots had expired
//! ~9-refused                                   9 points of names that the blacklist or a limit of names refuses now
//! ~50-undecided                                50 points of metrics that may have been deleted since
//! ~75-older-12-expired-1800000000-1800000059   several
//! ```

use host::utc;
use metric::Timestamp;

const OLDER: &str = "older";
const EXPIRED: &str = "expired";
const REFUSED: &str = "refused";
const UNDECIDED: &str = "undecided";

/// How many such points a file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct NotPutBack {
    /// Points whose slots have another value, which may be older.
    pub(crate) older: u64,
    /// Points of names that no metric has, and that the blacklist or a limit of names refused.
    pub(crate) refused: u64,
    /// Points whose metrics may have been deleted since, or not: that is not known.
    pub(crate) undecided: u64,
    /// Points whose slots had expired, and over which coarser slots are kept.
    expired: u64,
    /// The first and the last time of these.
    times: Option<(Timestamp, Timestamp)>,
}

impl NotPutBack {
    /// Adds a point whose slot has expired.
    pub(crate) fn add_expired(&mut self, time: Timestamp) {
        let (first, last) = self.times.unwrap_or((time, time));
        (self.expired, self.times) = (self.expired + 1, Some((first.min(time), last.max(time))));
    }

    pub(crate) fn add(&mut self, other: NotPutBack) {
        let times = match (self.times, other.times) {
            (Some((first, last)), Some((from, to))) => Some((first.min(from), last.max(to))),
            (times, others) => times.or(others),
        };
        *self = NotPutBack {
            older: self.older + other.older,
            refused: self.refused + other.refused,
            undecided: self.undecided + other.undecided,
            expired: self.expired + other.expired,
            times,
        };
    }

    pub(crate) fn expired(&self) -> u64 {
        self.expired
    }

    /// What is added to the name of the file. `None` where all points are put back.
    pub(super) fn ending(&self) -> Option<String> {
        let older = (0 < self.older).then(|| format!("{}-{OLDER}", self.older));
        let refused = (0 < self.refused).then(|| format!("{}-{REFUSED}", self.refused));
        let expired = self.times.map(|(first, last)| format!("{}-{EXPIRED}-{first}-{last}", self.expired));
        let undecided = (0 < self.undecided).then(|| format!("{}-{UNDECIDED}", self.undecided));
        let all: Vec<String> = older.into_iter().chain(refused).chain(undecided).chain(expired).collect();
        (!all.is_empty()).then(|| format!("~{}", all.join("-")))
    }

    /// What the name of a file says.
    pub(super) fn of(name: &str) -> Option<NotPutBack> {
        name.split('~').skip(1).find_map(NotPutBack::parse)
    }

    fn parse(ending: &str) -> Option<NotPutBack> {
        let mut parts = ending.split('-').peekable();
        let mut all = NotPutBack::default();
        while parts.peek().is_some() {
            let count = parts.next()?.parse().ok()?;
            match parts.next()? {
                OLDER => all.older = count,
                REFUSED => all.refused = count,
                UNDECIDED => all.undecided = count,
                EXPIRED => {
                    all.expired = count;
                    all.times = Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?));
                }
                _ => return None,
            }
        }
        Some(all)
    }

    /// What a file of the journal lacks in answers.
    pub(super) fn of_segment(&self) -> String {
        let older = (0 < self.older).then(|| {
            format!(
                "{} points of it are not put back: their slots have other values, and what came later is not known any \
                 more; a slot may have an older value than the point",
                self.older
            )
        });
        let refused = (0 < self.refused).then(|| {
            format!(
                "{} points of it are not put back: the blacklist or a limit of names refuses theirs; to try again, allow the names, \
                 have the name of the file end in ~whole in place of what is behind the ~, and start",
                self.refused
            )
        });
        let expired = self.times.map(|(first, last)| {
            format!(
                "{} points of it, from {} to {}, are not put back: their slots had expired when it could be read, or a changed retention has no stage for them; \
                 coarser slots over these points lack them, unless they were stored before",
                self.expired,
                utc(first),
                utc(last)
            )
        });
        let undecided = (0 < self.undecided).then(|| {
            format!(
                "{} points of it are not put back: it is not known whether their metrics were deleted since, because the list of \
                 deletions next to the journal is damaged or began later, or because another segment is missing that may name \
                 them; once that is back, have the name of the file end in ~whole in place of what is behind the ~, and start; or \
                 in ~named to put them back under the names in it, also those that were deleted",
                self.undecided
            )
        });
        let all: Vec<String> = older.into_iter().chain(refused).chain(undecided).chain(expired).collect();
        format!("{}; the other points are put back; remove the file to end this report", all.join("; "))
    }

    /// What coarse slots lack of late points.
    pub(super) fn of_late_points(&self) -> String {
        let (first, last) = self.times.unwrap_or_default();
        format!(
            "{} points, from {} to {}, expired before the stored rows around them could be read: coarser slots over these \
             points may lack them; remove the file to end this report",
            self.expired,
            utc(first),
            utc(last)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_file_says_what_is_not_put_back() {
        let older = NotPutBack { older: 75, ..NotPutBack::default() };
        let mut both = older;
        [1_800_000_007, 1_800_000_000, 1_800_000_059].into_iter().for_each(|time| both.add_expired(time));
        let expired = NotPutBack { older: 0, ..both };
        for (what, ending) in [
            (older, "~75-older"),
            (expired, "~3-expired-1800000000-1800000059"),
            (both, "~75-older-3-expired-1800000000-1800000059"),
            (NotPutBack { refused: 9, ..NotPutBack::default() }, "~9-refused"),
            (NotPutBack { undecided: 50, ..older }, "~75-older-50-undecided"),
            (NotPutBack { refused: 9, ..both }, "~75-older-9-refused-3-expired-1800000000-1800000059"),
        ] {
            assert_eq!(what.ending().as_deref(), Some(ending));
            for name in ["journal_00000002.journal", "journal_late-5-0.points"] {
                // A name that was taken gets a number.
                for copy in ["", "~1"] {
                    assert_eq!(NotPutBack::of(&format!("{name}{ending}{copy}")), Some(what));
                }
            }
        }
        assert_eq!(NotPutBack::default().ending(), None);
        let mut sum = older;
        sum.add(expired);
        assert_eq!(sum, both);
        for name in ["journal_00000002.journal~whole", "journal_00000002.journal~1", "a~5-older-x", "a~5-expired-1"] {
            assert_eq!(NotPutBack::of(name), None, "{name}");
        }
    }
}
