//! The limits of each credential on queries at once and on events a minute, and how much of them is used.

use std::collections::HashMap;

use metric::Timestamp;
use parking_lot::Mutex;

use super::viewer::Viewer;
use crate::http::Rejection;

/// What credentials with limits use. Those without a limit are not in it.
#[derive(Debug, Default)]
pub(crate) struct SenderUse {
    queries: Mutex<HashMap<String, usize>>,
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
    use crate::http::SenderLimits;

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
