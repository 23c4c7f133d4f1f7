//! Processor time of a server and of its stores, and the moment up to which it counts.

use std::time::Duration;

use crate::{outcome::CountedUntil, report, rest::Rest};

/// One value of the server, and one of all its stores.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Both<T> {
    pub(crate) server: T,
    pub(crate) stores: T,
}

/// Processor time, and up to when it was counted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Counted {
    pub(crate) cpu: Duration,
    pub(crate) until: CountedUntil,
}

impl Both<Option<Rest>> {
    /// Counts until each was idle. For one that never was idle, counts until everything was stored, `stored` being the time
    /// used by then; or else until the wait was over.
    pub(crate) fn counted(self, stored: Option<Both<Option<Duration>>>) -> Both<Option<Counted>> {
        let count = |rest: Option<Rest>, stored: Option<Duration>| {
            let rest = rest?;
            Some(match (rest.after, stored) {
                (Some(_), _) => Counted { cpu: rest.cpu, until: CountedUntil::Idle },
                (None, Some(cpu)) => Counted { cpu, until: CountedUntil::Stored },
                (None, None) => Counted { cpu: rest.cpu, until: CountedUntil::Timeout },
            })
        };
        Both {
            server: count(self.server, stored.and_then(|stored| stored.server)),
            stores: count(self.stores, stored.and_then(|stored| stored.stores)),
        }
    }
}

impl Both<Option<Counted>> {
    pub(crate) fn cpu(self) -> Both<Option<Duration>> {
        Both { server: self.server.map(|counted| counted.cpu), stores: self.stores.map(|counted| counted.cpu) }
    }

    /// Seconds of processor time since then.
    pub(crate) fn since(self, before: Both<Option<Duration>>) -> Both<Option<f64>> {
        let spent = |counted: Option<Counted>, before: Option<Duration>| {
            Some(counted?.cpu.saturating_sub(before?).as_secs_f64())
        };
        Both { server: spent(self.server, before.server), stores: spent(self.stores, before.stores) }
    }
}

/// The note about a server or store that was not idle before the clock started.
pub(crate) fn busy_before(who: &str, rest: Option<Rest>) -> Option<String> {
    let rest = rest.filter(|rest| rest.after.is_none())?;
    let share = report::number(rest.share * 100.0);
    Some(format!(
        "{who} used {share} % of a processor before the points were sent: its processor time holds that work, too"
    ))
}

/// The note about a server or store that was not idle afterwards: up to when its time counts.
pub(crate) fn busy_after(who: &str, rest: Option<Rest>, counted: Option<Counted>, waited: Duration) -> Option<String> {
    let share = report::number(rest?.share * 100.0);
    let waited = waited.as_secs();
    match counted?.until {
        CountedUntil::Idle => None,
        CountedUntil::Stored => Some(format!(
            "{who} was not idle within {waited} s after all points were stored, and still used {share} % of a processor: \
             its processor time counts until they were stored"
        )),
        CountedUntil::Timeout => Some(format!(
            "{who} was not idle within {waited} s, and still used {share} % of a processor: its processor time counts until \
             then, and holds whatever else it did"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rest(after: Option<u64>, cpu: u64) -> Option<Rest> {
        Some(Rest { after: after.map(Duration::from_secs), cpu: Duration::from_secs(cpu), share: 0.25 })
    }

    #[test]
    fn time_counts_until_idle_or_else_until_stored_or_else_until_the_wait_was_over() {
        let rest = Both { server: rest(None, 30), stores: rest(Some(1), 9) };
        let seconds = Duration::from_secs;
        let used = Both { server: Some(seconds(20)), stores: Some(seconds(8)) };
        let before = Both { server: Some(seconds(10)), stores: Some(seconds(5)) };
        let counted = rest.counted(Some(used));
        assert_eq!(counted.server, Some(Counted { cpu: seconds(20), until: CountedUntil::Stored }));
        assert_eq!(counted.stores, Some(Counted { cpu: seconds(9), until: CountedUntil::Idle }));
        let spent = counted.since(before);
        assert_eq!((spent.server, spent.stores), (Some(10.0), Some(4.0)));
        let counted = rest.counted(None);
        assert_eq!(counted.server, Some(Counted { cpu: seconds(30), until: CountedUntil::Timeout }));
        assert_eq!(Both { server: None, stores: None }.counted(Some(used)).server, None);
    }

    #[test]
    fn a_note_names_a_server_that_is_never_idle_and_the_moment_it_counts_to() {
        let stored = busy_after(
            "the server",
            rest(None, 1),
            Some(Counted { cpu: Duration::ZERO, until: CountedUntil::Stored }),
            Duration::from_secs(30),
        );
        let expected = "the server was not idle within 30 s after all points were stored, and still used 25.0 % of a \
                        processor: its processor time counts until they were stored";
        assert_eq!(stored.as_deref(), Some(expected));
        let idle = Some(Counted { cpu: Duration::ZERO, until: CountedUntil::Idle });
        assert_eq!(busy_after("the server", rest(Some(1), 1), idle, Duration::ZERO), None);
        assert_eq!(busy_before("the store", rest(Some(1), 1)), None);
        assert!(busy_before("the store", rest(None, 1)).is_some_and(|note| note.contains("the store used 25.0 %")));
    }
}
