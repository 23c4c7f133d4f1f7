//! Events over HTTP: telling them, listing them by time and tag, and one by its id.

use std::sync::Arc;

use hyper::{Method, Response, StatusCode, header};
use metric::Timestamp;
use serde_json::Value;
use store::{Event, NewEvent};

use crate::{
    Api, Body, Refusal,
    api::{Query, Reply},
    json::JsonStyle,
    pieces::{Coding, respond_text},
    times,
    write::{int, json_string},
};

/// Bytes of what happened, and of its tags, at most. Beyond: 400.
const MAX_TEXT_BYTES: usize = 4096;

/// Bytes of what else is told, at most. Beyond: 400.
const MAX_DATA_BYTES: usize = 64 << 10;

/// Events read at a time.
const PAGE: usize = 1000;

/// The years 1 to 9999, Unix seconds: what a date can be written for.
const CALENDAR: std::ops::Range<Timestamp> = -62_135_596_800..253_402_300_800;

/// `/events`: POST tells one; GET lists them, as `/events/get_data` does.
pub(crate) async fn events(api: &Arc<Api>, query: &Query) -> Result<Reply, Refusal> {
    if query.method != Method::POST {
        return get_data(api, query).await;
    }
    let event = match told(&query.body, (api.clock)()) {
        Ok(event) => event,
        Err(message) => return Ok(error(StatusCode::BAD_REQUEST, &message)),
    };
    api.events.put_event(event).await?;
    Ok(Response::new(Body::empty()).into())
}

/// Reads an event from JSON.
fn told(body: &[u8], now: Timestamp) -> Result<NewEvent, String> {
    let json: Value = serde_json::from_slice(body).map_err(|error| format!("the body is not JSON: {error}"))?;
    let Value::Object(mut json) = json else {
        return Err(r#"an event is a JSON object such as {"what": "deployed", "tags": ["web"]}"#.to_owned());
    };
    let mut text = |name: &str, most: usize| match json.remove(name).unwrap_or(Value::Null) {
        Value::Null => Ok(None),
        Value::Number(number) => Ok(Some(number.to_string())),
        Value::String(text) if text.len() <= most => Ok(Some(text)),
        Value::String(text) => Err(format!("\"{name}\" has {} bytes; at most {most} are kept", text.len())),
        other => Err(format!("\"{name}\" must be a text, got {}", kind(&other))),
    };
    let what = text("what", MAX_TEXT_BYTES)?.ok_or("\"what\" is missing: say what happened")?;
    let data = text("data", MAX_DATA_BYTES)?.unwrap_or_default();
    let tags = match json.remove("tags").unwrap_or(Value::Null) {
        Value::Null => String::new(),
        Value::String(tags) => tags,
        Value::Array(tags) => {
            let tags = tags.into_iter().map(|tag| match tag {
                Value::String(tag) => Ok(tag),
                other => Err(format!("each of \"tags\" must be a text, got {}", kind(&other))),
            });
            tags.collect::<Result<Vec<String>, String>>()?.join(" ")
        }
        _ => return Err("\"tags\" must be an array or space-separated string".to_owned()),
    };
    if tags.len() > MAX_TEXT_BYTES {
        return Err(format!("\"tags\" have {} bytes; at most {MAX_TEXT_BYTES} are kept", tags.len()));
    }
    let when = match json.remove("when") {
        None => now,
        Some(Value::Number(when)) => {
            when.as_i64().or(when.as_f64().map(|when| when.floor() as i64)).unwrap_or(i64::MAX)
        }
        Some(other) => return Err(format!("\"when\" must be Unix seconds, got {}", kind(&other))),
    };
    if !CALENDAR.contains(&when) {
        return Err("\"when\" must be Unix seconds of the years 1 to 9999".to_owned());
    }
    Ok(NewEvent { when, what, tags, data })
}

/// What a value is, for messages.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// `/events/get_data`: events of a span, both ends in it, by time.
pub(crate) async fn get_data(api: &Arc<Api>, query: &Query) -> Result<Reply, Refusal> {
    let params = &query.params;
    let (from, until) = match times::event_span(api, params) {
        Ok(span) => span,
        Err(refusal) => return Ok(error(StatusCode::BAD_REQUEST, &refusal.to_string())),
    };
    let wanted = params.last("tags").map(|tags| Wanted::new(tags.split(' '), SetOf::named(params.last("set"))));
    let style = JsonStyle { ascii: true, pretty: false, callback: params.last("jsonp").map(str::to_owned) };
    let permit = api.turn().await?;
    let mut out = Vec::new();
    style.open(&mut out);
    out.push(b'[');
    let begin = out.len();
    let limit = api.limits.response_bytes;
    each_event(api, from, until, |event| {
        if wanted.as_ref().is_none_or(|wanted| wanted.takes(&event.told.tags)) {
            if out.len() > begin {
                out.extend_from_slice(b", ");
            }
            write_event(event, &mut out);
        }
        if out.len() <= limit {
            return Ok(());
        }
        let (what, setting) = ("the bytes of the events come to", "query.max_response_bytes");
        Err(Refusal::TooMuch { what, given: format!("more than {limit}"), limit, setting })
    })
    .await?;
    out.push(b']');
    style.close(&mut out);
    let content_type = if style.callback.is_some() { "text/javascript" } else { "application/json" };
    let builder = Response::builder().header(header::CONTENT_TYPE, content_type);
    let coding = Coding::of(&query.headers);
    let response = tokio::task::spawn_blocking(move || respond_text(builder, out, coding, permit));
    Ok(response.await.map_err(|_| Refusal::Broken)?.into())
}

/// Hands on the events of a span, both ends in it, by time.
pub(crate) async fn each_event(
    api: &Api,
    from: Timestamp,
    until: Timestamp,
    mut each: impl FnMut(&Event) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let mut after = (from, 0);
    loop {
        let page = api.events.events(after, until, PAGE).await?;
        page.iter().try_for_each(&mut each)?;
        match page.last() {
            Some(last) if page.len() == PAGE => after = (last.told.when, last.id),
            _ => return Ok(()),
        }
    }
}

/// Which events are meant where several tags are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SetOf {
    /// Those with every tag.
    All,
    /// Those with every tag, each shown by itself: not where a comma joins it to another.
    AllShown,
    /// Those with any.
    Any,
}

impl SetOf {
    fn named(set: Option<&str>) -> SetOf {
        match set {
            Some("union") => SetOf::Any,
            Some("intersection") => SetOf::AllShown,
            _ => SetOf::All,
        }
    }
}

/// The tags that an event is asked to have.
pub(crate) struct Wanted {
    tags: Vec<String>,
    set: SetOf,
}

impl Wanted {
    /// Empty tags are none.
    pub fn new<'a>(tags: impl Iterator<Item = &'a str>, set: SetOf) -> Wanted {
        Wanted { tags: tags.filter(|tag| !tag.is_empty()).map(str::to_owned).collect(), set }
    }

    /// Whether an event with these tags is meant. Without a tag to look for there is none, as in graphite-web.
    pub fn takes(&self, tags: &str) -> bool {
        let stored = tags_in(tags);
        let is_stored = |wanted: &String| stored.iter().any(|tag| tag == wanted);
        let is_shown = |wanted: &String| tags.split_whitespace().any(|tag| tag == wanted);
        match self.set {
            _ if self.tags.is_empty() => false,
            SetOf::All => self.tags.iter().all(is_stored),
            SetOf::AllShown => self.tags.iter().all(|tag| is_stored(tag) && is_shown(tag)),
            SetOf::Any => self.tags.iter().any(is_stored),
        }
    }
}

/// The tags in a text, as django-tagging reads them: what stands between quotes is one; the rest is parted by commas
/// where there is one outside of quotes, and by blanks otherwise.
fn tags_in(text: &str) -> Vec<&str> {
    let (mut quoted, mut loose) = (Vec::new(), Vec::new());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('"') {
        loose.push(before);
        match after.split_once('"') {
            Some((inside, after)) => {
                quoted.push(inside);
                rest = after;
            }
            // A quote that is not closed is none.
            None => rest = after,
        }
    }
    loose.push(rest);
    let comma = loose.iter().any(|text| text.contains(','));
    let parted = loose.iter().flat_map(|text| text.split(if comma { ',' } else { ' ' }));
    quoted.into_iter().chain(parted).map(str::trim).filter(|tag| !tag.is_empty()).collect()
}

fn write_tags(tags: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b", \"tags\": [");
    for (place, tag) in tags.split_whitespace().enumerate() {
        out.extend_from_slice(if place > 0 { b", " } else { b"" });
        json_string(out, tag, true);
    }
    out.push(b']');
}

/// An event as it is listed.
fn write_event(Event { id, told }: &Event, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"when\": ");
    int(out, told.when);
    out.extend_from_slice(b", \"what\": ");
    json_string(out, &told.what, true);
    out.extend_from_slice(b", \"data\": ");
    json_string(out, &told.data, true);
    write_tags(&told.tags, out);
    out.extend_from_slice(b", \"id\": ");
    int(out, *id as i64);
    out.push(b'}');
}

/// `/events/ID`.
pub(crate) async fn one(api: &Arc<Api>, query: &Query) -> Result<Reply, Refusal> {
    let id = query.path.strip_prefix("/events/").unwrap_or_default();
    let id: u64 = match id.parse() {
        Ok(id) => id,
        Err(_) => return Err(Refusal::NoSuchPath(query.path.clone())),
    };
    let Some(Event { id, told }) = api.events.event(id).await? else {
        return Ok(error(StatusCode::NOT_FOUND, "Event matching query does not exist"));
    };
    let mut out = b"{\"id\": ".to_vec();
    int(&mut out, id as i64);
    let when = jiff::Timestamp::from_second(told.when).unwrap_or_default();
    out.extend_from_slice(b", \"when\": ");
    json_string(&mut out, &when.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(), true);
    out.extend_from_slice(b", \"what\": ");
    json_string(&mut out, &told.what, true);
    out.extend_from_slice(b", \"data\": ");
    json_string(&mut out, &told.data, true);
    write_tags(&told.tags, &mut out);
    out.push(b'}');
    Ok(json(StatusCode::OK, out))
}

fn error(status: StatusCode, message: &str) -> Reply {
    let mut text = b"{\"error\": ".to_vec();
    json_string(&mut text, message, true);
    text.push(b'}');
    json(status, text)
}

fn json(status: StatusCode, text: Vec<u8>) -> Reply {
    let response = Response::builder().status(status).header(header::CONTENT_TYPE, "application/json");
    response.body(Body::from(text)).expect("the parts of an answer are ours").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_read_as_django_tagging_reads_them() {
        let check = |text: &str, expected: &[&str]| assert_eq!(tags_in(text), expected, "{text}");
        check("", &[]);
        check("  b   a ", &["b", "a"]);
        check("a b, c", &["a b", "c"]);
        check("one \"two three\"", &["two three", "one"]);
        check("four \"five, six\", seven", &["five, six", "four", "seven"]);
        check("a \"b c", &["a", "b", "c"]);
    }

    #[test]
    fn what_cannot_be_an_event_is_refused_with_what_would_do() {
        let check = |body: &str, words: &str| {
            let error = told(body.as_bytes(), 0).unwrap_err();
            assert!(error.contains(words), "{body}: {error}");
        };
        check("", "not JSON");
        check("[]", "an event is a JSON object such as");
        check("{}", "\"what\" is missing");
        check(r#"{"what": {}}"#, "\"what\" must be a text, got an object");
        check(r#"{"what": "x", "tags": [1]}"#, "each of \"tags\" must be a text, got a number");
        check(r#"{"what": "x", "when": "now"}"#, "\"when\" must be Unix seconds, got a text");
        check(r#"{"what": "x", "when": 1e300}"#, "the years 1 to 9999");
        check(r#"{"what": "x", "when": -1e12}"#, "the years 1 to 9999");
        check(&format!(r#"{{"what": "{}"}}"#, "x".repeat(4097)), "\"what\" has 4097 bytes; at most 4096");
        check(&format!(r#"{{"what": "", "data": "{}"}}"#, "x".repeat(65_537)), "\"data\" has 65537 bytes");
        check(&format!(r#"{{"what": "", "tags": "{}"}}"#, "x".repeat(4097)), "\"tags\" have 4097 bytes");
        check(&"[".repeat(100_000), "not JSON");
    }

    #[test]
    fn an_event_without_a_time_is_now() {
        let event = told(br#"{"what": 5, "data": null}"#, 77).unwrap();
        assert_eq!(event, NewEvent { when: 77, what: "5".to_owned(), ..NewEvent::default() });
    }
}
