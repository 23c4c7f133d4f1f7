//! Carbon's retention grammar: `60s:1d,5m:30d`.

use metric::{Retention, RetentionError, Stage};

/// Why a text is not a retention, by what carbon would do.
#[derive(Debug, PartialEq)]
pub(super) enum Unreadable {
    /// Carbon would not start.
    Fatal(String),
    /// Carbon would log it and skip the section.
    Skipped(RetentionError),
}

/// Units as whisper-create takes them: any beginning of these names. A year has 365 days; there are no months.
const UNITS: [(&str, u64); 6] =
    [("seconds", 1), ("minutes", 60), ("hours", 3600), ("days", 86_400), ("weeks", 604_800), ("years", 31_536_000)];

/// Reads a list of `precision:history`. `remarks` gets a line for each history that go-carbon would read differently.
///
/// A precision is seconds or a number with a unit. A history is a *number of points*, or a duration when it has
/// a unit, from which a part of a slot is dropped.
pub(super) fn parse(text: &str, remarks: &mut Vec<String>) -> Result<Retention, Unreadable> {
    let mut stages = Vec::new();
    for definition in text.split(',') {
        let stage = stage(definition.trim(), remarks);
        stages.push(stage.map_err(|why| Unreadable::Fatal(format!("'{}': {why}", definition.trim())))?);
    }
    Retention::new(stages).map_err(Unreadable::Skipped)
}

fn stage(definition: &str, remarks: &mut Vec<String>) -> Result<Stage, String> {
    let form = || "a stage is written precision:history, such as 60s:1d".to_owned();
    let (precision_text, history_text) = definition.split_once(':').ok_or_else(form)?;
    let precision = quantity(precision_text)?;
    let history = quantity(history_text)?;
    let resolution = precision.number.checked_mul(precision.unit.unwrap_or(1));
    let resolution = resolution.and_then(|seconds| u32::try_from(seconds).ok());
    let resolution = resolution.ok_or("the precision is longer than 136 years")?;
    if resolution == 0 {
        return Err("the precision must be at least one second".to_owned());
    }
    let points = match history.unit {
        None => Some(history.number),
        Some(unit) => history.number.checked_mul(unit).map(|seconds| seconds / u64::from(resolution)),
    };
    let points = points.and_then(|points| u32::try_from(points).ok()).ok_or("the history is too long")?;
    if points == 0 {
        return Err("the history is shorter than one point".to_owned());
    }
    let stage = Stage::new(resolution, points).map_err(|error| error.to_string())?;
    if history.unit.is_none() && precision.unit.is_some() {
        remarks.push(format!(
            "'{definition}' keeps {points} points, as carbon reads it; go-carbon would read {points} seconds: write the unit to be clear"
        ));
    }
    Ok(stage)
}

/// Reads a length of time: a number of seconds, or a number with a unit. Too long a time is as long as one can be.
pub(super) fn seconds(text: &str) -> Result<u64, String> {
    let Quantity { number, unit } = quantity(text)?;
    Ok(number.saturating_mul(unit.unwrap_or(1)))
}

struct Quantity {
    number: u64,
    /// Seconds of the unit, when there is one.
    unit: Option<u64>,
}

fn quantity(text: &str) -> Result<Quantity, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err(format!("'{text}' does not begin with a number"));
    }
    let number = number.parse().map_err(|_| format!("{number} is too large"))?;
    if unit.is_empty() {
        return Ok(Quantity { number, unit: None });
    }
    match UNITS.into_iter().find(|(name, _)| name.starts_with(unit)) {
        Some((_, seconds)) => Ok(Quantity { number, unit: Some(seconds) }),
        None if unit.contains(['#', ';', ' ', '\t']) => {
            Err(format!("'{unit}' follows the number; put comments on lines of their own, and no blank before a unit"))
        }
        None if unit.starts_with('.') => Err(format!("'{text}' has a fraction; use a smaller unit")),
        None => Err(format!(
            "'{unit}' is not a unit of time; use one of s, m, h, d, w, y (m is minutes; there are no months)"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(parse(text, &mut Vec::new()).unwrap().to_string(), expected, "{text}");
    }

    #[test]
    fn carbons_forms_are_read() {
        check("60:1440", "1440*60s");
        check("60s:1d", "1440*60s");
        check("1m:7d", "10080*60s");
        check("60:7d", "10080*60s");
        check("60s:1440", "1440*60s");
        check(" 60s:1d , 5m:30d,1h:1y ", "1440*60s:8640*300s:8760*3600s");
        check("1h:1y,60s:1d", "1440*60s:8760*3600s");
        check("10s:6h\n,1m:7d", "2160*10s:10080*60s");
        check("7s:1m", "8*7s");
        check("1w:2y", "104*604800s");
    }

    #[test]
    fn whisper_creates_longer_units_are_read() {
        check("1min:7day", "10080*60s");
        check("1minutes:2weeks", "20160*60s");
    }

    #[test]
    fn a_retention_that_stops_carbon_is_an_error_with_a_reason() {
        for (text, part) in [
            ("1M:7d", "'M' is not a unit"),
            ("1.5m:7d", "fraction"),
            ("60 s:1d", "no blank"),
            ("a:b:c", "does not begin with a number"),
            ("60s:1d # a day", "lines of their own"),
            ("60s", "precision:history"),
            ("", "precision:history"),
            ("60s:1d,", "precision:history"),
            ("0s:1d", "at least one second"),
            ("60s:30s", "shorter than one point"),
            ("60s:0", "shorter than one point"),
            ("1s:200y", "too long"),
            ("1s:99999999999999999999d", "too large"),
            ("9999999999999999999y:1d", "136 years"),
            ("60s:1mo", "no months"),
        ] {
            match parse(text, &mut Vec::new()) {
                Err(Unreadable::Fatal(message)) => assert!(message.contains(part), "{text}: {message}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_list_that_whisper_rejects_skips_its_section() {
        assert!(matches!(parse("60s:1d,90s:2d", &mut Vec::new()), Err(Unreadable::Skipped(_))));
        assert!(matches!(parse("60s:1d,1h:1d", &mut Vec::new()), Err(Unreadable::Skipped(_))));
    }

    #[test]
    fn a_history_that_go_carbon_reads_differently_is_remarked() {
        let mut remarks = Vec::new();
        parse("60s:1440", &mut remarks).unwrap();
        assert!(remarks[0].contains("go-carbon would read 1440 seconds"), "{remarks:?}");
        remarks.clear();
        parse("60:1440,1h:30d", &mut remarks).unwrap();
        assert!(remarks.is_empty());
    }
}
