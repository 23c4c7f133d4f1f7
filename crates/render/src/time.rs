//! Times and intervals as Graphite reads them: `-1h`, `now`, `noon yesterday`, `20260121`, `5min`.

use std::ops::RangeInclusive;

use jiff::{
    SignedDuration, Timestamp, ToSpan,
    civil::{Date, DateTime, Weekday},
    tz::{AmbiguousOffset, TimeZone},
};

/// A time or interval that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    /// Not a time.
    #[error("'{0}' is not a time; use epoch seconds or such as -1h, now, 14:00, noon yesterday, 20260131, 01/31/26")]
    Time(String),
    /// Not an interval.
    #[error("'{0}' is not an interval; use such as 30s, 5min, 1h, -1d, 2w, 1mon, 1y")]
    Interval(String),
}

/// Python's calendar: the years 1 to 9999, Unix seconds.
pub(crate) const CALENDAR: RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// Bytes of a time or an interval, at most; and characters of a longer text that its error quotes.
const LONGEST_TEXT: usize = 1000;
const QUOTED: usize = 100;

fn beginning(text: &str) -> String {
    text.chars().take(QUOTED).chain(['…']).collect()
}

/// Reads `from`, `until` or `now` of a request: Unix seconds. `now` is the current time, Unix seconds; days
/// begin in `zone`. The grammar is the old one of `at`, as graphite-web's attime.py has it.
///
/// # Errors
/// The text is not a time, or no time of the years 1 to 9999.
pub fn parse_at_time(text: &str, now: i64, zone: &TimeZone) -> Result<i64, TimeError> {
    if text.len() > LONGEST_TEXT {
        return Err(TimeError::Time(beginning(text)));
    }
    let plain: String = text.trim().to_lowercase().chars().filter(|c| !matches!(c, '_' | ',' | ' ')).collect();
    let wrong = || TimeError::Time(text.to_owned());
    if is_digits(&plain) && !is_compact_date(&plain) {
        return plain.parse().ok().filter(|seconds| CALENDAR.contains(seconds)).ok_or_else(wrong);
    }
    let offset_at = plain.find('+').or_else(|| plain.find('-')).unwrap_or(plain.len());
    let (reference, offset) = plain.split_at(offset_at);
    let offset = if offset.is_empty() { 0 } else { parse_interval(offset).map_err(|_| wrong())? };
    let reference = reference_time(reference, now, zone).ok_or_else(wrong)?;
    let time = reference.checked_add(offset).ok_or_else(wrong)?;
    CALENDAR.contains(&time).then_some(time).ok_or_else(wrong)
}

/// Reads an interval, seconds: `[+|-](number unit)+`, one sign for all. A unit is known by its beginning: `s`,
/// `min`, `h`, `d`, `w`, `mon` (30 days), `y` (365 days); `m` alone is invalid. An empty text is 0.
///
/// # Errors
/// The text is not an interval, or one longer than Python's calendar.
pub fn parse_interval(text: &str) -> Result<i64, TimeError> {
    const LONGEST: i64 = 86_400 * 999_999_999;
    if text.len() > LONGEST_TEXT {
        return Err(TimeError::Interval(beginning(text)));
    }
    let wrong = || TimeError::Interval(text.to_owned());
    let (sign, mut rest) = match text.as_bytes().first() {
        Some(b'+') => (1, text.get(1..).unwrap_or_default()),
        Some(b'-') => (-1, text.get(1..).unwrap_or_default()),
        Some(byte) if byte.is_ascii_digit() => (1, text),
        None => return Ok(0),
        _ => return Err(wrong()),
    };
    let mut seconds: i64 = 0;
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, after) = rest.split_at(digits);
        let letters = after.len() - after.trim_start_matches(char::is_alphabetic).len();
        let (unit, after) = after.split_at(letters);
        let number: i64 = number.parse().map_err(|_| wrong())?;
        let part = number.checked_mul(unit_seconds(unit).ok_or_else(wrong)?).ok_or_else(wrong)?;
        seconds = seconds.checked_add(part).filter(|seconds| *seconds <= LONGEST).ok_or_else(wrong)?;
        rest = after;
    }
    Ok(sign * seconds)
}

fn unit_seconds(unit: &str) -> Option<i64> {
    const UNITS: [(&str, i64); 7] = [
        ("s", 1),
        ("min", 60),
        ("h", 3600),
        ("d", 86_400),
        ("w", 7 * 86_400),
        ("mon", 30 * 86_400),
        ("y", 365 * 86_400),
    ];
    UNITS.iter().find(|(prefix, _)| unit.starts_with(prefix)).map(|(_, seconds)| *seconds)
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Eight digits that could be a date are a date, not seconds of the year 1970.
fn is_compact_date(text: &str) -> bool {
    let number = |range| text.get(range).and_then(|digits: &str| digits.parse::<u32>().ok());
    text.len() == 8
        && number(0..4).is_some_and(|year| year > 1900)
        && number(4..6).is_some_and(|month| month < 13)
        && number(6..8).is_some_and(|day| day < 32)
}

fn reference_time(reference: &str, now: i64, zone: &TimeZone) -> Option<i64> {
    if reference.is_empty() || reference == "now" {
        return Some(now);
    }
    let today = zone.to_datetime(Timestamp::from_second(now).ok()?).date();
    let (hour, minute, day) = time_of_day(reference)?;
    let date = day_of(day, today)?;
    let time = DateTime::new(date.year(), date.month(), date.day(), hour, minute, 0, 0).ok()?;
    local_time(time, zone)
}

/// Hour, minute and the rest of a reference behind its time of day. Each form reads the rest that the one before left,
/// as in graphite-web: `1:00am` is one hour, `12am` is noon and `12pm` is midnight.
fn time_of_day(reference: &str) -> Option<(i8, i8, &str)> {
    let mut rest = reference;
    let (mut hour, mut minute): (i64, i64) = (0, 0);
    if let Some(colon @ 1..=2) = rest.find(':') {
        hour = number(rest.get(..colon)?)?;
        let minutes = rest.get(colon + 1..)?;
        let end = minutes.char_indices().nth(2).map_or(minutes.len(), |(at, _)| at);
        minute = number(minutes.get(..end)?)?;
        rest = minutes.get(end..)?;
        if let Some(after) = rest.strip_prefix("am") {
            rest = after;
        } else if let Some(after) = rest.strip_prefix("pm") {
            hour = (hour + 12) % 24;
            rest = after;
        }
    }
    if let Some(at @ 1..=2) = rest.find("am") {
        hour = number(rest.get(..at)?)?;
        rest = rest.get(at + 2..)?;
    }
    if let Some(at @ 1..=2) = rest.find("pm") {
        hour = (number(rest.get(..at)?)? + 12) % 24;
        rest = rest.get(at + 2..)?;
    }
    for (word, named_hour) in [("noon", 12), ("midnight", 0), ("teatime", 16)] {
        if let Some(after) = rest.strip_prefix(word) {
            (hour, minute, rest) = (named_hour, 0, after);
            break;
        }
    }
    let valid = (0..24).contains(&hour) && (0..60).contains(&minute);
    valid.then_some((hour as i8, minute as i8, rest))
}

fn number(digits: &str) -> Option<i64> {
    if is_digits(digits) { digits.parse().ok() } else { None }
}

fn day_of(day: &str, today: Date) -> Option<Date> {
    match day {
        "" | "today" => return Some(today),
        "yesterday" => return today.checked_sub(1.day()).ok(),
        "tomorrow" => return today.checked_add(1.day()).ok(),
        _ => {}
    }
    let date = |year: i64, month: i64, day: i64| {
        let year = i16::try_from(year).ok().filter(|year| *year >= 1)?;
        Date::new(year, i8::try_from(month).ok()?, i8::try_from(day).ok()?).ok()
    };
    if day.matches('/').count() == 2 {
        let mut parts = day.split('/').map(number);
        let (month, day, mut year) = (parts.next()??, parts.next()??, parts.next()??);
        if year < 1900 {
            year += 1900;
        }
        if year < 1970 {
            year += 100;
        }
        return date(year, month, day);
    }
    if day.len() == 8 && is_digits(day) {
        return date(number(day.get(..4)?)?, number(day.get(4..6)?)?, number(day.get(6..)?)?);
    }
    let name = day.get(..3)?;
    if let Some(month) = MONTHS.iter().position(|month| *month == name) {
        let tail = |count: usize| day.len().checked_sub(count).and_then(|at| number(day.get(at..)?));
        return date(i64::from(today.year()), month as i64 + 1, tail(2).or_else(|| tail(1))?);
    }
    let wanted = WEEKDAYS.iter().position(|weekday| *weekday == name)? as i8;
    let wanted = Weekday::from_sunday_zero_offset(wanted).ok()?;
    today.checked_sub(i64::from(today.weekday().since(wanted)).days()).ok()
}

/// The moment of a local time, as pytz chooses it: in the hour that happens twice the second one, in the
/// hour that never happens the offset from before it.
pub(crate) fn local_time(time: DateTime, zone: &TimeZone) -> Option<i64> {
    let offset = match zone.to_ambiguous_timestamp(time).offset() {
        AmbiguousOffset::Unambiguous { offset } => offset,
        AmbiguousOffset::Gap { before, .. } => before,
        AmbiguousOffset::Fold { after, .. } => after,
    };
    let utc = TimeZone::UTC.to_timestamp(time).ok()?;
    Some(utc.checked_sub(SignedDuration::from_secs(i64::from(offset.seconds()))).ok()?.as_second())
}
