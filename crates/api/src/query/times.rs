//! Times in a request: `tz`, `now`, `from`, `until`.

use jiff::tz::TimeZone;
use metric::Timestamp;
use render::time::parse_at_time;

use super::backend::Backend;
use crate::{
    encode::python,
    http::{Parameters, Rejection},
};

/// The zone of a request, or the server's. An unknown zone is ignored, as in graphite-web.
pub(crate) fn zone(backend: &Backend, parameters: &Parameters) -> TimeZone {
    let named = parameters.last("tz").and_then(|name| TimeZone::get(name).ok());
    named.unwrap_or_else(|| backend.time_zone.clone())
}

/// The time span of a render and its current time, Unix seconds. `from` is before `until`.
#[derive(Debug, Clone)]
pub(crate) struct Times {
    pub now: Timestamp,
    pub from: Timestamp,
    pub until: Timestamp,
}

impl Times {
    /// Reads the times of a render. The default is the last day; reversed times are swapped.
    pub fn read(backend: &Backend, parameters: &Parameters, zone: &TimeZone) -> Result<Times, Rejection> {
        let clock = backend.now();
        let parse = |name: &str, now: Timestamp| {
            let parsed = parameters.last(name).map(|text| parse_at_time(text, now, zone)).transpose();
            parsed.map_err(|error| Rejection::parameters(format!("{name}: {error}")))
        };
        let now = parse("now", clock)?.unwrap_or(clock);
        let until = parse("until", now)?.unwrap_or(now);
        let from = parse("from", now)?.unwrap_or(now - 86_400);
        if from == until {
            return Err(Rejection::parameters("Invalid empty time range"));
        }
        Ok(Times { now, from: from.min(until), until: from.max(until) })
    }
}

/// Checks the times of a find, which have no effect, and returns the current time.
pub(crate) fn find_times(backend: &Backend, parameters: &Parameters) -> Result<Timestamp, Rejection> {
    let zone = zone(backend, parameters);
    let clock = backend.now();
    let parse = |name: &str, now: Timestamp| {
        // Grafana sends -1 for an absent time.
        let text = parameters.last(name).filter(|text| name == "now" || *text != "-1");
        let parsed = text.map(|text| (text, parse_at_time(text, now, &zone)));
        match parsed {
            None => Ok(now),
            Some((_, Ok(time))) => Ok(time),
            Some((text, Err(error))) => {
                let text = python::repr(text);
                Err(Rejection::parameters(format!("Invalid value {text} for param {name}: {error}")))
            }
        }
    };
    let now = parse("now", clock)?;
    parse("from", now)?;
    parse("until", now)?;
    Ok(clock)
}

/// The time span of a list of events, Unix seconds, both ends included: by default from 1970 until now. A span that ends
/// before it begins is empty.
pub(crate) fn event_span(backend: &Backend, parameters: &Parameters) -> Result<(Timestamp, Timestamp), Rejection> {
    let (zone, now) = (zone(backend, parameters), backend.now());
    let parse = |name: &str, default: Timestamp| {
        let parsed = parameters.last(name).map(|text| parse_at_time(text, now, &zone)).transpose();
        parsed.map(|time| time.unwrap_or(default)).map_err(|error| Rejection::parameters(format!("{name}: {error}")))
    };
    Ok((parse("from", 0)?, parse("until", now)?))
}
