//! Times as `2026-01-31 14:00:00` in a zone, fast enough for millions of them.

use jiff::tz::TimeZone;

use super::python::write_int;

/// Writes times in a zone. It looks the offset up once for each period between two clock changes.
pub(crate) struct LocalClock<'a> {
    zone: &'a TimeZone,
    // Seconds east of UTC, valid for `since <= time && time < before`.
    offset: i64,
    since: i64,
    before: i64,
}

impl LocalClock<'_> {
    /// A clock in a zone.
    pub fn new(zone: &TimeZone) -> LocalClock<'_> {
        LocalClock { zone, offset: 0, since: 0, before: 0 }
    }

    /// Appends a time, Unix seconds.
    pub fn write(&mut self, time: i64, out: &mut Vec<u8>) {
        if !(self.since <= time && time < self.before) {
            self.look_up(time);
        }
        let local = time.saturating_add(self.offset);
        let (day, second) = (local.div_euclid(86_400), local.rem_euclid(86_400));
        let (year, month, day) = civil(day);
        let two = |out: &mut Vec<u8>, value: i64| {
            out.extend_from_slice(&[b'0' + (value / 10) as u8, b'0' + (value % 10) as u8])
        };
        if year < 1000 {
            out.extend_from_slice(format!("{year:04}").as_bytes());
        } else {
            write_int(out, year);
        }
        for (mark, value) in
            [(b'-', month), (b'-', day), (b' ', second / 3600), (b':', second / 60 % 60), (b':', second % 60)]
        {
            out.push(mark);
            two(out, value);
        }
    }

    fn look_up(&mut self, time: i64) {
        // A store has no times outside the years -9999 to 9999; they appear in UTC.
        let Ok(instant) = jiff::Timestamp::from_second(time) else {
            (self.offset, self.since, self.before) = (0, time, time.saturating_add(1));
            return;
        };
        self.offset = i64::from(self.zone.to_offset(instant).seconds());
        self.since = self.zone.preceding(instant).next().map_or(i64::MIN, |change| change.timestamp().as_second());
        // A clock change at this very time begins a period.
        if self.since < time {
            let before = instant.checked_sub(jiff::SignedDuration::from_secs(1)).unwrap_or(jiff::Timestamp::MIN);
            let at = self.zone.following(before).next();
            if at.is_some_and(|change| change.timestamp().as_second() == time) {
                self.since = time;
            }
        }
        self.before = self.zone.following(instant).next().map_or(i64::MAX, |change| change.timestamp().as_second());
    }
}

/// Year, month and day of a day counted from 1970, with the usual arithmetic over eras of 400 years.
fn civil(day: i64) -> (i64, i64, i64) {
    let shifted = day + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn day_numbers_become_dates() {
        for (day, date) in [(0, (1970, 1, 1)), (-1, (1969, 12, 31)), (19_782, (2024, 2, 29)), (19_783, (2024, 3, 1))] {
            assert_eq!(civil(day), date);
        }
    }

    #[test]
    fn times_follow_the_clock_changes_of_the_zone() {
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        let mut clock = LocalClock::new(&zone);
        // Clocks went forward at 01:00 UTC on 2024-03-31 and back at 01:00 UTC on 2024-10-27.
        for (time, text) in [
            (1_711_846_799, "2024-03-31 01:59:59"),
            (1_711_846_800, "2024-03-31 03:00:00"),
            (1_711_846_801, "2024-03-31 03:00:01"),
            (1_729_990_799, "2024-10-27 02:59:59"),
            (1_729_990_800, "2024-10-27 02:00:00"),
            (1_711_846_799, "2024-03-31 01:59:59"),
        ] {
            let mut out = Vec::new();
            clock.write(time, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), text);
            let mut out = Vec::new();
            LocalClock::new(&zone).write(time, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }
}
