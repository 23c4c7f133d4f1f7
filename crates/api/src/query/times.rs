//! Times in a request: `tz`, `now`, `from`, `until`.

use jiff::tz::TimeZone;
use metadata::SeenSpan;
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

/// The times of a question for names: of a find, an expand, or a question for tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NamesTimes {
    /// The server's current time, Unix seconds.
    pub now: Timestamp,
    /// Only metrics with points at this time or later are asked for, Unix seconds.
    pub from: Option<Timestamp>,
    /// Only metrics with points at this time or before are asked for, Unix seconds. Not before `from`.
    pub until: Option<Timestamp>,
}

impl NamesTimes {
    /// Reads the times. A time that a client [does not have](given) bounds nothing; reversed times are swapped.
    pub fn read(backend: &Backend, parameters: &Parameters) -> Result<NamesTimes, Rejection> {
        let zone = zone(backend, parameters);
        let clock = backend.now();
        let parse = |name: &str, now: Timestamp| {
            let text = given(parameters, name);
            let time = text.map(|text| parse_at_time(text, now, &zone).map_err(|error| (text, error))).transpose();
            time.map_err(|(text, error)| {
                let text = python::repr(text);
                Rejection::parameters(format!("Invalid value {text} for param {name}: {error}"))
            })
        };
        let now = parse("now", clock)?.unwrap_or(clock);
        let (from, until) = (parse("from", now)?, parse("until", now)?.filter(|until| *until != 0));
        Ok(NamesTimes { now: clock, from, until }.in_order())
    }

    /// With the times of a message, where it has them.
    pub fn with(self, from: Option<Timestamp>, until: Option<Timestamp>) -> NamesTimes {
        let (from, until) = (from.or(self.from), until.or(self.until));
        NamesTimes { from, until, ..self }.in_order()
    }

    fn in_order(self) -> NamesTimes {
        match (self.from, self.until) {
            (Some(from), Some(until)) => {
                NamesTimes { from: Some(from.min(until)), until: Some(from.max(until)), ..self }
            }
            _ => self,
        }
    }

    /// The span that metrics must have points in.
    pub fn span(&self) -> SeenSpan {
        SeenSpan { from: self.from, until: self.until }
    }
}

/// The text of a time that a client gives. Clients that have no time send nothing, an empty text, -1, or the word of
/// their language for nothing: Grafana's pages `undefined`.
fn given<'a>(parameters: &'a Parameters, name: &str) -> Option<&'a str> {
    const NOTHING: [&str; 6] = ["", "-1", "undefined", "null", "NaN", "None"];
    parameters.last(name).filter(|text| !NOTHING.contains(&text.trim()))
}

/// The time span of a list of events, Unix seconds, both ends included: by default from 1970 until now. A span that ends
/// before it begins is empty.
pub(crate) fn event_span(backend: &Backend, parameters: &Parameters) -> Result<(Timestamp, Timestamp), Rejection> {
    let (zone, now) = (zone(backend, parameters), backend.now());
    let parse = |name: &str, default: Timestamp| {
        let parsed = given(parameters, name).map(|text| parse_at_time(text, now, &zone)).transpose();
        parsed.map(|time| time.unwrap_or(default)).map_err(|error| Rejection::parameters(format!("{name}: {error}")))
    };
    Ok((parse("from", 0)?, parse("until", now)?))
}
