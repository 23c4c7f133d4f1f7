//! The times in a request: `tz`, `now`, `from`, `until`.

use jiff::tz::TimeZone;
use metric::Timestamp;
use render::time::parse_at_time;

use crate::{Api, Refusal, params::Params, python};

/// The zone a request names, else ours. A name that no zone has is passed over, as in graphite-web.
pub(crate) fn zone(api: &Api, params: &Params) -> TimeZone {
    let named = params.last("tz").and_then(|name| TimeZone::get(name).ok());
    named.unwrap_or_else(|| api.time_zone.clone())
}

/// The span of a render and the time it takes for now, Unix seconds. `from` is before `until`.
#[derive(Clone)]
pub(crate) struct Times {
    pub now: Timestamp,
    pub from: Timestamp,
    pub until: Timestamp,
}

impl Times {
    /// Reads the times of a render: the last day when nothing is said, swapped when they come the wrong way
    /// round.
    pub fn read(api: &Api, params: &Params, zone: &TimeZone) -> Result<Times, Refusal> {
        let clock = (api.clock)();
        let parse = |name: &str, now: Timestamp| {
            let parsed = params.last(name).map(|text| parse_at_time(text, now, zone)).transpose();
            parsed.map_err(|error| Refusal::parameters(format!("{name}: {error}")))
        };
        let now = parse("now", clock)?.unwrap_or(clock);
        let until = parse("until", now)?.unwrap_or(now);
        let from = parse("from", now)?.unwrap_or(now - 86_400);
        if from == until {
            return Err(Refusal::parameters("Invalid empty time range"));
        }
        Ok(Times { now, from: from.min(until), until: from.max(until) })
    }
}

/// Checks the times of a find, which hide nothing here, and returns the current time.
pub(crate) fn check_find(api: &Api, params: &Params) -> Result<Timestamp, Refusal> {
    let zone = zone(api, params);
    let clock = (api.clock)();
    let parse = |name: &str, now: Timestamp| {
        // Grafana's own way to say that there is none.
        let text = params.last(name).filter(|text| name == "now" || *text != "-1");
        let parsed = text.map(|text| (text, parse_at_time(text, now, &zone)));
        match parsed {
            None => Ok(now),
            Some((_, Ok(time))) => Ok(time),
            Some((text, Err(error))) => {
                let text = python::quoted(text);
                Err(Refusal::parameters(format!("Invalid value {text} for param {name}: {error}")))
            }
        }
    };
    let now = parse("now", clock)?;
    parse("from", now)?;
    parse("until", now)?;
    Ok(clock)
}

/// The span of a list of events, Unix seconds, both ends in it: until now from the beginning when nothing is said. It is
/// empty when it ends before it begins.
pub(crate) fn event_span(api: &Api, params: &Params) -> Result<(Timestamp, Timestamp), Refusal> {
    let (zone, now) = (zone(api, params), (api.clock)());
    let parse = |name: &str, default: Timestamp| {
        let parsed = params.last(name).map(|text| parse_at_time(text, now, &zone)).transpose();
        parsed.map(|time| time.unwrap_or(default)).map_err(|error| Refusal::parameters(format!("{name}: {error}")))
    };
    Ok((parse("from", 0)?, parse("until", now)?))
}
