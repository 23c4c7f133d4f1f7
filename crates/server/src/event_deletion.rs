//! `/admin/delete_events`: which events a request names, and their deletion.

use std::{collections::BTreeSet, sync::Arc};

use api::ExtensionRequest;
use hyper::StatusCode;
use metric::Timestamp;
use serde_json::{Value, json};
use store::{Event, Events};

use crate::asked::Asked;

/// Events that are read and deleted at a time: 16 MiB where each is as large as it may be.
const AT_ONCE: usize = 200;

/// What a request names.
#[derive(Debug, PartialEq, Eq)]
enum Named {
    /// Events of a span of time, both ends included.
    Span(Timestamp, Timestamp),
    /// Events by their ids.
    Ids(Vec<u64>),
}

/// Answers `POST /admin/delete_events`: deletes the events of a span of time (`from` and `until`, Unix seconds, both included), or
/// those with an `id`. With `dry_run` nothing is deleted.
pub async fn delete(events: Arc<dyn Events>, request: ExtensionRequest) -> (StatusCode, Value) {
    let asked = match Asked::read(request).await {
        Ok(asked) => asked,
        Err((status, error)) => return (status, json!({"error": error})),
    };
    let named = match named(&asked) {
        Ok(named) => named,
        Err(error) => return (StatusCode::BAD_REQUEST, json!({"error": error})),
    };
    let is_dry_run = asked.flag("dry_run");
    // A task, so that a deletion ends also when the client goes away.
    match tokio::spawn(async move { deleted(&*events, named, is_dry_run).await }).await {
        Ok(Ok((found, deleted))) => {
            if 0 < deleted {
                tracing::info!(events = deleted, "deleted events that a request named");
            }
            (StatusCode::OK, json!({"events": found, "deleted": deleted, "dry_run": is_dry_run}))
        }
        Ok(Err(error)) => (StatusCode::SERVICE_UNAVAILABLE, json!({"error": error.to_string()})),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, json!({"error": error.to_string()})),
    }
}

fn named(asked: &Asked) -> Result<Named, String> {
    asked.only(&["from", "until", "id", "dry_run"])?;
    let number = |name: &str, text: &str| -> Result<i64, String> {
        text.parse().map_err(|_| format!("{name} must be a whole number, got '{text}'"))
    };
    let (from, until, ids) = (asked.all("from"), asked.all("until"), asked.all("id"));
    match (from.as_slice(), until.as_slice(), ids.is_empty()) {
        ([from], [until], true) => Ok(Named::Span(number("from", from)?, number("until", until)?)),
        ([], [], false) => {
            let id = |text: &str| text.parse().map_err(|_| format!("id must be the number of an event, got '{text}'"));
            let ids: BTreeSet<u64> = ids.into_iter().map(id).collect::<Result<_, String>>()?;
            Ok(Named::Ids(ids.into_iter().collect()))
        }
        _ => Err("name events by from and until (Unix seconds, both included), or by id, which may come several times"
            .to_owned()),
    }
}

/// How many events there were, and how many of them are deleted.
async fn deleted(events: &dyn Events, named: Named, is_dry_run: bool) -> Result<(u64, u64), store::StoreError> {
    let (mut found, mut deleted) = (0, 0);
    match named {
        Named::Span(from, until) => {
            let mut after = (from, 0);
            loop {
                let page = events.events(after, until, AT_ONCE).await?;
                let Some(Event { id, content }) = page.last() else { break };
                after = (content.when, *id);
                found += page.len() as u64;
                if !is_dry_run {
                    deleted += events.delete_events(page.iter().map(|event| event.id).collect()).await?;
                }
            }
        }
        Named::Ids(ids) => {
            for id in ids {
                found += u64::from(events.event(id).await?.is_some());
                if !is_dry_run {
                    deleted += events.delete_events(vec![id]).await?;
                }
            }
        }
    }
    Ok((found, deleted))
}

#[cfg(test)]
mod tests {
    use store::{MemoryDriver, NewEvent};

    use super::*;

    #[tokio::test]
    async fn events_of_a_span_or_with_an_id_are_deleted() {
        let events = MemoryDriver::new();
        for when in 0..500 {
            events.put_event(NewEvent { when, ..NewEvent::default() }).await.unwrap();
        }
        assert_eq!(deleted(&events, Named::Span(10, 450), true).await.unwrap(), (441, 0));
        assert_eq!(deleted(&events, Named::Span(10, 450), false).await.unwrap(), (441, 441));
        assert_eq!(deleted(&events, Named::Span(i64::MIN, i64::MAX), true).await.unwrap(), (59, 0));
        let left = events.events((0, 0), 500, 100).await.unwrap();
        assert_eq!(deleted(&events, Named::Ids(vec![left[0].id, 999_999]), false).await.unwrap(), (1, 1));
    }

    #[test]
    fn a_request_names_a_span_or_ids() {
        let check = |text: &str, expected: Result<Named, &str>| {
            let named = named(&Asked::parsed(text.as_bytes()));
            assert_eq!(
                named.as_ref().map_err(|error| &error[..expected.as_ref().err().map_or(0, |e| e.len())]),
                expected.as_ref().map_err(|error| *error),
                "{text}"
            );
        };
        check("from=1&until=-2&dry_run=1", Ok(Named::Span(1, -2)));
        check("id=1&id=7&id=1", Ok(Named::Ids(vec![1, 7])));
        check("id=-2", Err("id must be the number of an event, got '-2'"));
        check("", Err("name events by from and until"));
        check("from=1", Err("name events by from and until"));
        check("from=1&until=2&id=3", Err("name events by from and until"));
        check("from=1&until=now", Err("until must be a whole number, got 'now'"));
        check("form=1&until=2", Err("unknown parameter 'form'"));
    }
}
