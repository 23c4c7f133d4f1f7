//! The time axis: which times get a label, a line or a faint line, and how a time is written.
//!
//! The table is graphite-web's (and rrdtool's before it). Times are those of clocks in the zone; where clocks
//! change within the span, graphite-web continues in the old time and this axis does not.

use jiff::{
    Timestamp, ToSpan,
    civil::DateTime,
    fmt::strtime::{BrokenDownTime, Config},
    tz::TimeZone,
};

/// A part of the clock that times are whole in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Second,
    Minute,
    Hour,
    Day,
}

use Unit::{Day, Hour, Minute, Second};

/// Times a step apart. The step is in seconds, and a whole number of `unit` except for half days.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Every {
    unit: Unit,
    seconds: i64,
}

const fn every(count: i64, unit: Unit) -> Every {
    let seconds = match unit {
        Second => 1,
        Minute => 60,
        Hour => 3600,
        Day => DAY,
    };
    Every { unit, seconds: count * seconds }
}

impl Every {
    /// Seconds from a time to the next.
    pub fn seconds(self) -> i64 {
        self.seconds
    }

    /// The smallest multiple of the step that is at least `least` steps and keeps to round times: three times ten
    /// minutes, but not seven.
    pub fn round_stride(self, least: f64) -> i64 {
        let is_round = |stride: i64| {
            let seconds = self.seconds.saturating_mul(stride);
            let larger = [60, HOUR, DAY].into_iter().find(|larger| seconds < *larger);
            match larger {
                Some(larger) => larger % seconds == 0,
                None => seconds % DAY == 0,
            }
        };
        let least = least.ceil().clamp(1.0, 1e6) as i64;
        (least..least.saturating_add(1000)).find(|stride| is_round(*stride)).unwrap_or(least)
    }
}

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;

/// How the axis is divided when a pixel is at least `seconds_per_pixel` and the span at most `longest`.
struct Row {
    seconds_per_pixel: f64,
    minor: Every,
    major: Every,
    label: Every,
    form: &'static str,
    longest: i64,
}

const fn row(
    seconds_per_pixel: f64,
    minor: Every,
    major: Every,
    label: Every,
    form: &'static str,
    longest: i64,
) -> Row {
    Row { seconds_per_pixel, minor, major, label, form, longest }
}

const HALF_WEEK: Every = Every { unit: Day, seconds: 7 * DAY / 2 };

#[rustfmt::skip]
const ROWS: [Row; 23] = [
    row(0.0,       every(5, Second),   every(1, Minute),  every(5, Second),  "%H:%M:%S",    600),
    row(0.07,      every(10, Second),  every(1, Minute),  every(10, Second), "%H:%M:%S",    1200),
    row(0.14,      every(15, Second),  every(1, Minute),  every(15, Second), "%H:%M:%S",    1800),
    row(0.27,      every(30, Second),  every(2, Minute),  every(1, Minute),  "%H:%M",       2 * HOUR),
    row(0.5,       every(1, Minute),   every(2, Minute),  every(1, Minute),  "%H:%M",       2 * HOUR),
    row(1.2,       every(1, Minute),   every(4, Minute),  every(2, Minute),  "%H:%M",       3 * HOUR),
    row(2.0,       every(1, Minute),   every(10, Minute), every(5, Minute),  "%H:%M",       6 * HOUR),
    row(5.0,       every(2, Minute),   every(10, Minute), every(10, Minute), "%H:%M",       12 * HOUR),
    row(10.0,      every(5, Minute),   every(20, Minute), every(20, Minute), "%H:%M",       DAY),
    row(30.0,      every(10, Minute),  every(1, Hour),    every(1, Hour),    "%H:%M",       2 * DAY),
    row(60.0,      every(30, Minute),  every(2, Hour),    every(2, Hour),    "%H:%M",       2 * DAY),
    row(100.0,     every(2, Hour),     every(4, Hour),    every(4, Hour),    "%a %H:%M",    6 * DAY),
    row(255.0,     every(6, Hour),     every(12, Hour),   every(12, Hour),   "%m/%d %H:%M", 10 * DAY),
    row(600.0,     every(6, Hour),     every(1, Day),     every(1, Day),     "%m/%d",       14 * DAY),
    row(1000.0,    every(12, Hour),    every(1, Day),     every(1, Day),     "%m/%d",       365 * DAY),
    row(2000.0,    every(1, Day),      every(2, Day),     every(2, Day),     "%m/%d",       365 * DAY),
    row(4000.0,    every(2, Day),      every(4, Day),     every(4, Day),     "%m/%d",       365 * DAY),
    row(8000.0,    HALF_WEEK,          every(7, Day),     every(7, Day),     "%m/%d",       365 * DAY),
    row(16_000.0,  every(7, Day),      every(14, Day),    every(14, Day),    "%m/%d",       365 * DAY),
    row(32_000.0,  every(15, Day),     every(30, Day),    every(30, Day),    "%m/%d",       365 * DAY),
    row(64_000.0,  every(30, Day),     every(60, Day),    every(60, Day),    "%m/%d %Y",    i64::MAX),
    row(100_000.0, every(60, Day),     every(120, Day),   every(120, Day),   "%m/%d %Y",    i64::MAX),
    row(120_000.0, every(120, Day),    every(240, Day),   every(240, Day),   "%m/%d %Y",    i64::MAX),
];

/// Times of one kind at most. Only spans of thousands of years come near this bound.
const MAX_TIMES: usize = 4000;

/// The axis of a span.
#[derive(Debug, Clone)]
pub(crate) struct TimeAxis {
    // Invariant: from < until.
    from: i64,
    until: i64,
    zone: TimeZone,
    form: String,
    /// Times with a label.
    pub label: Every,
    /// Times with a line.
    pub major: Every,
    /// Times with a faint line.
    pub minor: Every,
}

impl TimeAxis {
    /// An axis from `from` to `until` (Unix seconds, later than `from`) across so many pixels. `form` (strftime), where
    /// there is one, is the format of times.
    pub fn new(from: i64, until: i64, pixels: f64, zone: &TimeZone, form: Option<&str>) -> TimeAxis {
        debug_assert!(from < until, "an axis spans some time");
        let span = until.saturating_sub(from);
        let per_pixel = span as f64 / pixels.max(1.0);
        let fits = |row: &&Row| row.seconds_per_pixel <= per_pixel && row.longest >= span;
        let row = ROWS.iter().rfind(fits).unwrap_or(&ROWS[ROWS.len() - 1]);
        TimeAxis {
            from,
            until,
            zone: zone.clone(),
            form: form.unwrap_or(row.form).to_owned(),
            label: row.label,
            major: row.major,
            minor: row.minor,
        }
    }

    /// The times of the span, Unix seconds, ascending, with the reading of the clock in steps: a caller that shows
    /// fewer of them shows those with an even reading, and so keeps to round times.
    pub fn times(&self, every: Every) -> Vec<(i64, i64)> {
        let step = every.seconds.max(1);
        let local = self.from.saturating_add(self.offset(self.from));
        let of_day = local.rem_euclid(DAY);
        let aligned = match every.unit {
            Second => local - of_day % 60 % step,
            Minute => local - of_day % 60 - of_day / 60 % 60 * 60 % step,
            Hour => local - of_day % HOUR - of_day / HOUR * HOUR % step,
            Day => local - of_day,
        };
        // Steps of up to an hour go on through a change of clocks; longer ones stay at their time of day.
        let by_clock = every.seconds > HOUR;
        let mut times = Vec::new();
        for index in 0.. {
            let reading = aligned.saturating_add(step.saturating_mul(index));
            let time = if by_clock { self.instant(reading) } else { reading.saturating_sub(self.offset(self.from)) };
            if time >= self.until || times.len() >= MAX_TIMES {
                break;
            }
            if self.from <= time {
                times.push((time, reading.div_euclid(step)));
            }
        }
        times
    }

    /// The label of a time.
    pub fn text(&self, time: i64) -> String {
        let Ok(time) = Timestamp::from_second(time) else { return String::new() };
        // Lenient: an unknown conversion of strftime stays as it is, as in C.
        let config = Config::new().lenient(true);
        let zoned = time.to_zoned(self.zone.clone());
        BrokenDownTime::from(&zoned).to_string_with_config(&config, &self.form).unwrap_or_else(|_| self.form.clone())
    }

    /// Seconds east of UTC.
    fn offset(&self, time: i64) -> i64 {
        let time = Timestamp::from_second(time).unwrap_or(Timestamp::UNIX_EPOCH);
        i64::from(self.zone.to_offset(time).seconds())
    }

    /// The time when clocks show a reading, counted from 1970-01-01 00:00:00; the end of time where they never do.
    fn instant(&self, reading: i64) -> i64 {
        let epoch = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
        // The years of the calendar, -9999 to 9999.
        let shown = (-377_000_000_000..253_402_300_800).contains(&reading);
        let civil = if shown { epoch.checked_add(reading.seconds()).ok() } else { None };
        let time = civil.and_then(|civil| self.zone.to_ambiguous_timestamp(civil).compatible().ok());
        time.map_or(i64::MAX, Timestamp::as_second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(from: i64, until: i64, pixels: f64, zone: &str) -> Vec<String> {
        let axis = TimeAxis::new(from, until, pixels, &TimeZone::get(zone).unwrap(), None);
        axis.times(axis.label).into_iter().map(|(time, _)| axis.text(time)).collect()
    }

    #[test]
    fn labels_and_lines_are_those_that_graphite_web_chooses() {
        let mut compared = 0;
        for line in include_str!("../tests/axes.txt").lines() {
            let words: Vec<&str> = line.split('\t').collect();
            let ["time" | "lines", from, until, pixels, zone, recorded @ ..] = &words[..] else { continue };
            let number = |text: &str| text.parse::<i64>().expect("a recorded time");
            let zone = TimeZone::get(zone).expect("a recorded zone");
            let axis = TimeAxis::new(number(from), number(until), number(pixels) as f64, &zone, None);
            let times = |every: Every| axis.times(every).into_iter().map(|(time, _)| time);
            let mut found: Vec<String> = Vec::new();
            if words[0] == "time" {
                found.push(axis.form.clone());
                found.extend(times(axis.label).map(|time| format!("{time}={}", axis.text(time))));
            } else {
                found.extend(times(axis.major).map(|time| time.to_string()));
                found.push("/".to_owned());
                found.extend(times(axis.minor).map(|time| time.to_string()));
            }
            assert_eq!(found, recorded, "{line}");
            compared += 1;
        }
        assert!(compared > 500, "the recording was not found: {compared}");
    }

    #[test]
    fn labels_keep_their_time_of_day_when_clocks_are_changed() {
        // 2024-03-31, 01:00 UTC.
        let change = 1_711_846_800;
        let shown = labels(change - 20 * HOUR, change + 20 * HOUR, 1500.0, "Europe/Berlin");
        assert_eq!(shown[..6], ["06:00", "08:00", "10:00", "12:00", "14:00", "16:00"]);
        assert_eq!(shown[8..14], ["22:00", "00:00", "03:00", "04:00", "06:00", "08:00"]);
        let shown = labels(change - 3 * HOUR, change + 3 * HOUR, 1500.0, "Europe/Berlin");
        assert!(shown.contains(&"01:40".to_owned()) && !shown.contains(&"02:20".to_owned()), "{shown:?}");
    }

    #[test]
    fn a_form_that_strftime_does_not_know_is_shown_as_it_is() {
        let axis = TimeAxis::new(0, 600, 300.0, &TimeZone::UTC, Some("%H%Q!%é %"));
        assert!(axis.text(0).starts_with("00"), "{}", axis.text(0));
    }

    #[test]
    fn no_span_is_too_long_or_too_far_away() {
        for (from, until) in
            [(0, 1), (i64::MIN / 2, i64::MAX / 2), (-1 << 40, 1 << 40), (253_000_000_000, 260_000_000_000)]
        {
            for zone in ["UTC", "America/St_Johns"] {
                assert!(labels(from, until, 100.0, zone).len() <= MAX_TIMES);
            }
        }
    }
}
