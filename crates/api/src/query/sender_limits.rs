//! The limits of each credential on queries at once, their memory and events a minute, and how much of them is used.

use std::{collections::HashMap, time::Duration};

use metric::Timestamp;
use parking_lot::Mutex;

use super::viewer::Viewer;
use crate::http::{MemoryBudget, Rejection};

/// Credentials whose memory is remembered: more than a file of tokens has.
const MAX_BUDGETS: usize = 20_000;

/// What credentials with limits use. Those without a limit are not in it.
#[derive(Default)]
pub(crate) struct SenderUse {
    queries: Mutex<HashMap<String, usize>>,
    /// Limit and budget.
    memory: Mutex<HashMap<String, (usize, MemoryBudget)>>,
    events: Mutex<Events>,
}

/// Events of the current minute.
#[derive(Debug, Default)]
struct Events {
    minute: Timestamp,
    all: usize,
    by_name: HashMap<String, usize>,
}

/// A query under way, until it is dropped.
pub(crate) struct SenderQuery<'a> {
    used: &'a SenderUse,
    // Empty for a credential without a limit.
    name: &'a str,
}

impl SenderUse {
    /// Counts a query of this sender, unless there are as many as it may have.
    pub(crate) fn begin_query<'a>(&'a self, viewer: &'a Viewer) -> Result<SenderQuery<'a>, Rejection> {
        let Some(limit) = viewer.limits.queries else { return Ok(SenderQuery { used: self, name: "" }) };
        let mut queries = self.queries.lock();
        let running = queries.entry(viewer.name.clone()).or_default();
        if limit <= *running {
            return Err(Rejection::TooManyQueries { name: viewer.name.clone(), limit });
        }
        *running += 1;
        Ok(SenderQuery { used: self, name: &viewer.name })
    }

    /// The memory for queries of this sender; `None` without a limit. A query waits for more at most for `wait`.
    pub(crate) fn memory(&self, viewer: &Viewer, wait: Duration) -> Option<MemoryBudget> {
        let limit = viewer.limits.query_memory?;
        let mut budgets = self.memory.lock();
        if MAX_BUDGETS <= budgets.len() {
            budgets.clear();
        }
        let (known, budget) = budgets.entry(viewer.name.clone()).or_insert_with(|| (limit, own_memory(limit, wait)));
        if *known != limit {
            // Running queries keep what they have of the earlier one.
            (*known, *budget) = (limit, own_memory(limit, wait));
        }
        Some(budget.clone())
    }

    /// Counts an event, unless all or this sender have had theirs in this minute; the error is the limit and its setting.
    pub(crate) fn count_event(
        &self,
        viewer: &Viewer,
        most: usize,
        now: Timestamp,
    ) -> Result<(), (usize, &'static str)> {
        let (minute, mut events) = (now.div_euclid(60), self.events.lock());
        if events.minute != minute {
            *events = Events { minute, ..Events::default() };
        }
        if most <= events.all {
            return Err((most, "limits.events_per_minute"));
        }
        if let Some(limit) = viewer.limits.events_per_minute {
            let own = events.by_name.entry(viewer.name.clone()).or_default();
            if limit <= *own {
                return Err((limit, "events_per_minute of the token"));
            }
            *own += 1;
        }
        events.all += 1;
        Ok(())
    }
}

fn own_memory(bytes: usize, wait: Duration) -> MemoryBudget {
    MemoryBudget::of_one(bytes, wait, "the bytes of memory that the query needs are", "query_memory of the token")
}

impl Drop for SenderQuery<'_> {
    fn drop(&mut self) {
        if self.name.is_empty() {
            return;
        }
        let mut queries = self.used.queries.lock();
        if let Some(running) = queries.get_mut(self.name) {
            *running -= 1;
            if *running == 0 {
                queries.remove(self.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{Client, SenderLimits};

    fn viewer(name: &str, queries: Option<usize>, events_per_minute: Option<usize>) -> Viewer {
        let limits = SenderLimits { queries, events_per_minute, ..SenderLimits::default() };
        Viewer { name: name.to_owned(), limits, ..Viewer::everyone() }
    }

    #[test]
    fn a_credential_has_so_many_queries_at_once() {
        let used = SenderUse::default();
        let (a, b, free) = (viewer("a", Some(2), None), viewer("b", Some(1), None), viewer("free", None, None));
        let first = used.begin_query(&a).ok().unwrap();
        let _second = used.begin_query(&a).ok().unwrap();
        assert!(used.begin_query(&a).is_err());
        let _others = [&b, &free, &free].map(|viewer| used.begin_query(viewer).ok().unwrap());
        drop(first);
        drop(used.begin_query(&a).ok().unwrap());
        drop(used.begin_query(&a).ok().unwrap());
        drop(_second);
        assert_eq!(used.queries.lock().len(), 1, "b alone");
    }

    #[test]
    fn a_credential_has_a_share_of_the_memory_of_queries() {
        const MIB: usize = 1 << 20;
        let run = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        run.block_on(async {
            let (used, wait) = (SenderUse::default(), Duration::from_millis(20));
            let of = |name: &str, query_memory| {
                let limits = SenderLimits { query_memory, ..SenderLimits::default() };
                let viewer = Viewer { name: name.to_owned(), limits, ..Viewer::everyone() };
                used.memory(&viewer, wait).map(|budget| budget.share(&Client::Named(viewer.name)))
            };
            let (mut first, mut second) = (of("a", Some(8 * MIB)).unwrap(), of("a", Some(8 * MIB)).unwrap());
            let mut other = of("b", Some(8 * MIB)).unwrap();
            first.raise(5 * MIB).await.unwrap();
            let refused = second.raise(5 * MIB).await.unwrap_err();
            assert_eq!(refused.limit(), Some("query_memory of the token"));
            other.raise(5 * MIB).await.unwrap();
            let too_much = other.raise(9 * MIB).await.unwrap_err();
            assert!(matches!(too_much, Rejection::TooMuch { setting: "query_memory of the token", .. }));
            drop(first);
            second.raise(5 * MIB).await.unwrap();
            assert!(of("a", None).is_none());
            of("a", Some(16 * MIB)).unwrap().raise(12 * MIB).await.unwrap();
        });
    }

    #[test]
    fn events_have_a_number_a_minute_in_all_and_by_credential() {
        let used = SenderUse::default();
        let (a, free) = (viewer("a", None, Some(2)), viewer("", None, None));
        let count = |viewer: &Viewer, now| used.count_event(viewer, 4, now);
        assert_eq!([count(&a, 0), count(&a, 59)], [Ok(()), Ok(())]);
        assert_eq!(count(&a, 59), Err((2, "events_per_minute of the token")));
        assert_eq!([count(&free, 59), count(&free, 59)], [Ok(()), Ok(())]);
        assert_eq!(count(&free, 59), Err((4, "limits.events_per_minute")));
        assert_eq!(count(&a, 60), Ok(()));
    }
}
