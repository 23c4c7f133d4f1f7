//! `/events`, `/events/get_data` and `/events/ID`.

use std::sync::Arc;

use bytes::Bytes;
use hyper::{Method, Response, StatusCode};
use metric::Timestamp;
use store::{Event, NewEvent, StoreError};
use tokio::sync::Semaphore;

use super::{
    scan::Pages,
    submitted::parse,
    tags::{SetOf, TagFilter},
};
use crate::{
    encode::{
        json::{JsonStyle, error_object, json_string},
        python::write_int,
    },
    http::{Body, Rejection, head, respond_text},
    query::{Backend, Kind, Query, Reply, Work, blocking, event_span},
};

/// `/events`: POST submits an event; GET lists events, as `/events/get_data` does.
pub(crate) async fn events(backend: &Arc<Backend>, query: &Query) -> Result<Reply, Rejection> {
    if query.method != Method::POST {
        return get_data(backend, query).await;
    }
    if let Err((limit, setting)) =
        backend.senders.count_event(&query.viewer, backend.limits.events_per_minute, backend.now())
    {
        let message =
            format!("{limit} events were stored in this minute, as many as {setting} allows; try again later");
        return Ok(error(StatusCode::TOO_MANY_REQUESTS, &message));
    }
    let event = match parsed(query.body.clone(), backend.now()).await? {
        Ok(event) => event,
        Err(message) => return Ok(error(StatusCode::BAD_REQUEST, &message)),
    };
    if let Some(keep) = backend.limits.events_keep
        && event.when < backend.now().saturating_sub_unsigned(keep.as_secs())
    {
        let message = format!("the event is from {}, older than limits.events_keep; it would be deleted", event.when);
        return Ok(error(StatusCode::BAD_REQUEST, &message));
    }
    match backend.events.put_event(event).await {
        Err(StoreError::Full(full)) => {
            let message = format!("{full}; the event is not stored. limits.events_keep deletes old ones");
            Ok(error(StatusCode::INSUFFICIENT_STORAGE, &message))
        }
        stored => {
            stored?;
            Ok(Response::new(Body::empty()).into())
        }
    }
}

/// Bodies up to this size are read at once.
const SHORT_BYTES: usize = 16 << 10;

/// Longer ones are read by this many threads.
static LONG: Semaphore = Semaphore::const_new(2);

/// Reads an event, on a thread that may take its time if it is long.
async fn parsed(body: Bytes, now: Timestamp) -> Result<Result<NewEvent, String>, Rejection> {
    if body.len() <= SHORT_BYTES {
        return Ok(parse(&body, now));
    }
    let _one = LONG.acquire().await.map_err(|_| Rejection::Broken)?;
    blocking(move || Ok(parse(&body, now))).await
}

/// `/events/get_data`: the events of a time span, both ends included, in the order of time.
pub(crate) async fn get_data(backend: &Arc<Backend>, query: &Query) -> Result<Reply, Rejection> {
    let parameters = &query.parameters;
    let (from, until) = match event_span(backend, parameters) {
        Ok(span) => span,
        Err(rejection) => return Ok(error(StatusCode::BAD_REQUEST, &rejection.to_string())),
    };
    let set = SetOf::named(parameters.last("set"));
    let filter = match parameters.last("tags").map(|tags| TagFilter::new(tags.split(' '), set)).transpose() {
        Ok(filter) => filter,
        Err(message) => return Ok(error(StatusCode::BAD_REQUEST, &message)),
    };
    let style = JsonStyle { ascii: true, pretty: false, callback: query.callback() };
    let (work, _cancel) = Work::begin(backend, query, Kind::Whole).await?;
    let mut out = Vec::new();
    style.open(&mut out);
    out.push(b'[');
    let begin = out.len();
    let limit = backend.limits.response_bytes;
    let mut taken = 0;
    let mut pages = Pages::new(backend, from, until);
    while pages
        .next(|event| {
            if filter.as_ref().is_none_or(|filter| filter.matches(&event.content.tags)) {
                if out.len() > begin {
                    out.extend_from_slice(b", ");
                }
                write_event(event, &mut out);
            }
            if out.len() <= limit {
                Ok(())
            } else {
                Err(Rejection::response_too_large(format!("more than {limit}"), limit))
            }
        })
        .await?
    {
        let (grown, work) = (out.capacity() - taken, work.clone());
        taken = out.capacity();
        if 0 < grown {
            blocking(move || work.take(grown)).await?;
        }
    }
    out.push(b']');
    style.close(&mut out);
    let (head, coding) = (head(style.content_type()), query.coding());
    let response = blocking(move || {
        let share = work.answer(out.capacity())?;
        Ok(respond_text(head, out, coding, share))
    });
    Ok(response.await?.into())
}

/// `/events/ID`.
pub(crate) async fn one(backend: &Arc<Backend>, query: &Query) -> Result<Reply, Rejection> {
    let id = query.path.strip_prefix("/events/").unwrap_or_default();
    let id: u64 = match id.parse() {
        Ok(id) => id,
        Err(_) => return Err(Rejection::NoSuchPath(query.path.clone())),
    };
    let Some(Event { id, content }) = backend.events.event(id).await? else {
        return Ok(error(StatusCode::NOT_FOUND, "Event matching query does not exist"));
    };
    let mut out = b"{\"id\": ".to_vec();
    write_int(&mut out, id as i64);
    let when = jiff::Timestamp::from_second(content.when).unwrap_or_default();
    out.extend_from_slice(b", \"when\": ");
    json_string(&mut out, &when.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(), true);
    out.extend_from_slice(b", \"what\": ");
    json_string(&mut out, &content.what, true);
    out.extend_from_slice(b", \"data\": ");
    json_string(&mut out, &content.data, true);
    write_tags(&content.tags, &mut out);
    out.push(b'}');
    Ok(Reply::json(StatusCode::OK, out))
}

fn write_tags(tags: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b", \"tags\": [");
    for (index, tag) in tags.split_whitespace().enumerate() {
        out.extend_from_slice(if index > 0 { b", " } else { b"" });
        json_string(out, tag, true);
    }
    out.push(b']');
}

/// Writes an event of a list.
fn write_event(Event { id, content }: &Event, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"when\": ");
    write_int(out, content.when);
    out.extend_from_slice(b", \"what\": ");
    json_string(out, &content.what, true);
    out.extend_from_slice(b", \"data\": ");
    json_string(out, &content.data, true);
    write_tags(&content.tags, out);
    out.extend_from_slice(b", \"id\": ");
    write_int(out, *id as i64);
    out.push(b'}');
}

fn error(status: StatusCode, message: &str) -> Reply {
    Reply::json(status, error_object(message))
}
