//! Events as clients submit them: JSON, checked.

use metric::Timestamp;
use serde_json::Value;
use store::NewEvent;

/// Bytes of `what`, and of all tags, at most. Beyond: 400.
const MAX_TEXT_BYTES: usize = 4096;

/// Bytes of `data`, at most. Beyond: 400.
const MAX_DATA_BYTES: usize = 64 << 10;

/// Bytes of a body, at most: these texts with all of their letters escaped. Its tree of values may take a hundred times as
/// much. Beyond: 400.
const MAX_BODY_BYTES: usize = 256 << 10;

/// The years 1 to 9999, Unix seconds, for which a date has a text.
const CALENDAR: std::ops::Range<Timestamp> = -62_135_596_800..253_402_300_800;

/// Seconds that an event may be ahead: a leap year. One of a far time to come would stay for ever.
const AHEAD: Timestamp = 366 * 86_400;

/// Reads an event from JSON.
pub(super) fn parse(body: &[u8], now: Timestamp) -> Result<NewEvent, String> {
    if MAX_BODY_BYTES < body.len() {
        return Err(format!("the body has {} bytes; the limit of an event is {MAX_BODY_BYTES}", body.len()));
    }
    let json: Value = serde_json::from_slice(body).map_err(|error| format!("the body is not JSON: {error}"))?;
    let Value::Object(mut json) = json else {
        return Err(r#"an event is a JSON object such as {"what": "deployed", "tags": ["web"]}"#.to_owned());
    };
    let mut text = |name: &str, most: usize| match json.remove(name).unwrap_or(Value::Null) {
        Value::Null => Ok(None),
        Value::Number(number) => Ok(Some(number.to_string())),
        Value::String(text) if text.len() <= most => Ok(Some(text)),
        Value::String(text) => Err(format!("\"{name}\" has {} bytes; the limit is {most}", text.len())),
        other => Err(format!("\"{name}\" must be a text, got {}", kind(&other))),
    };
    let what = text("what", MAX_TEXT_BYTES)?.ok_or("\"what\" is missing: it says what happened")?;
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
        return Err(format!("\"tags\" has {} bytes; the limit is {MAX_TEXT_BYTES}", tags.len()));
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
    if now.saturating_add(AHEAD) < when {
        return Err(format!("\"when\" is {when}, more than a year ahead; it must be Unix seconds, not milliseconds"));
    }
    Ok(NewEvent { when, what, tags, data })
}

/// The kind of a value, for messages.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_for_an_invalid_event_says_what_is_valid() {
        let check = |body: &str, words: &str| {
            let error = parse(body.as_bytes(), 0).unwrap_err();
            assert!(error.contains(words), "{body}: {error}");
        };
        check("", "not JSON");
        check(&"1".repeat(262_145), "the body has 262145 bytes; the limit of an event is 262144");
        check("[]", "an event is a JSON object such as");
        check("{}", "\"what\" is missing");
        check(r#"{"what": {}}"#, "\"what\" must be a text, got an object");
        check(r#"{"what": "x", "tags": [1]}"#, "each of \"tags\" must be a text, got a number");
        check(r#"{"what": "x", "when": "now"}"#, "\"when\" must be Unix seconds, got a text");
        check(r#"{"what": "x", "when": 1e300}"#, "the years 1 to 9999");
        check(r#"{"what": "x", "when": -1e12}"#, "the years 1 to 9999");
        check(r#"{"what": "x", "when": 31622401}"#, "\"when\" is 31622401, more than a year ahead");
        assert_eq!(parse(br#"{"what": "x", "when": 31622400}"#, 0).unwrap().when, 31_622_400);
        check(&format!(r#"{{"what": "{}"}}"#, "x".repeat(4097)), "\"what\" has 4097 bytes; the limit is 4096");
        check(&format!(r#"{{"what": "", "data": "{}"}}"#, "x".repeat(65_537)), "\"data\" has 65537 bytes");
        check(&format!(r#"{{"what": "", "tags": "{}"}}"#, "x".repeat(4097)), "\"tags\" has 4097 bytes");
        check(&"[".repeat(100_000), "not JSON");
    }

    #[test]
    fn an_event_without_a_time_gets_the_current_one() {
        let event = parse(br#"{"what": 5, "data": null}"#, 77).unwrap();
        assert_eq!(event, NewEvent { when: 77, what: "5".to_owned(), ..NewEvent::default() });
    }
}
