//! Buckets of time, a byte each: hours near the present, days for two months, weeks for almost two years before.
//!
//! The boundaries are multiples of hours, days and weeks, so that a bucket of an earlier scale is within one bucket of a later
//! scale. Later buckets have higher numbers; some numbers of days are not used.

use metric::Timestamp;

/// A bucket of time.
pub(crate) type Bucket = u8;

const HOUR: Timestamp = 3600;
const DAY: Timestamp = 24 * HOUR;
const WEEK: Timestamp = 7 * DAY;

/// The days that have hours: two before today, today and tomorrow.
const DAYS_BEFORE: Timestamp = 2;
const HOURLY_DAYS: Timestamp = 4;

/// Full weeks that have days, at least.
const DAILY_WEEKS: Timestamp = 8;

/// The weeks before these.
const WEEKS: Timestamp = 94;

/// Everything before the weeks.
pub(crate) const OLDEST: Bucket = 0;
const FIRST_WEEK: Timestamp = 1;
const FIRST_DAY: Timestamp = FIRST_WEEK + WEEKS;
const FIRST_HOUR: Timestamp = FIRST_DAY + 7 * (DAILY_WEEKS + 1);

/// Everything after tomorrow.
pub(crate) const FUTURE: Bucket = 254;

/// No time; later than all.
pub(crate) const NEVER: Bucket = 255;

const _: () = assert!(FIRST_HOUR + 24 * HOURLY_DAYS == FUTURE as Timestamp, "the buckets fill a byte");

/// The boundaries of the buckets, as of a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scale {
    /// Days since 1970.
    day: Timestamp,
}

impl Scale {
    /// The scale of the day that has a time.
    pub(crate) fn at(now: Timestamp) -> Scale {
        Scale { day: now.clamp(0, Timestamp::from(u32::MAX)) / DAY }
    }

    pub(crate) fn day(self) -> u32 {
        self.day as u32
    }

    /// The last second that has a bucket of its own: the end of tomorrow.
    pub(crate) fn latest(self) -> Timestamp {
        self.hours() + HOURLY_DAYS * DAY - 1
    }

    fn hours(self) -> Timestamp {
        (self.day - DAYS_BEFORE) * DAY
    }

    fn days(self) -> Timestamp {
        self.hours().div_euclid(WEEK) * WEEK - DAILY_WEEKS * WEEK
    }

    fn weeks(self) -> Timestamp {
        self.days() - WEEKS * WEEK
    }

    /// The bucket of a time.
    pub(crate) fn bucket(self, time: Timestamp) -> Bucket {
        let (hours, days, weeks) = (self.hours(), self.days(), self.weeks());
        let bucket = if time < weeks {
            return OLDEST;
        } else if time < days {
            FIRST_WEEK + (time - weeks) / WEEK
        } else if time < hours {
            FIRST_DAY + (time - days) / DAY
        } else {
            FIRST_HOUR + ((time - hours) / HOUR).min(24 * HOURLY_DAYS)
        };
        bucket as Bucket
    }

    /// The first second of a bucket, and the second after its last.
    pub(crate) fn span(self, bucket: Bucket) -> (Timestamp, Timestamp) {
        let number = Timestamp::from(bucket);
        let of = |begin: Timestamp, first: Timestamp, length: Timestamp| {
            let begin = begin + (number - first) * length;
            (begin, begin + length)
        };
        if bucket == OLDEST {
            (Timestamp::MIN, self.weeks())
        } else if number < FIRST_DAY {
            of(self.weeks(), FIRST_WEEK, WEEK)
        } else if number < FIRST_HOUR {
            of(self.days(), FIRST_DAY, DAY)
        } else if bucket < FUTURE {
            of(self.hours(), FIRST_HOUR, HOUR)
        } else {
            (self.hours() + HOURLY_DAYS * DAY, Timestamp::MAX)
        }
    }

    /// The bucket of another scale that has the first second of one of this.
    pub(crate) fn first_in(self, other: Scale, bucket: Bucket) -> Bucket {
        if bucket == NEVER { NEVER } else { other.bucket(self.span(bucket).0) }
    }

    /// The bucket of another scale that has the last second of one of this.
    pub(crate) fn last_in(self, other: Scale, bucket: Bucket) -> Bucket {
        if bucket == FUTURE { FUTURE } else { other.bucket(self.span(bucket).1 - 1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = 1_700_000_000;

    #[test]
    fn a_bucket_has_its_times_and_buckets_rise() {
        let scale = Scale::at(NOW);
        let mut before = OLDEST;
        for time in (NOW - 1000 * DAY..NOW + 5 * DAY).step_by(1801) {
            let bucket = scale.bucket(time);
            let (first, end) = scale.span(bucket);
            assert!(before <= bucket && first <= time && time < end, "{time}");
            before = bucket;
        }
        assert_eq!((scale.bucket(Timestamp::MIN), scale.bucket(Timestamp::MAX)), (OLDEST, FUTURE));
        let length = |time| scale.span(scale.bucket(time)).1 - scale.span(scale.bucket(time)).0;
        assert_eq!([NOW + DAY, NOW - DAY, NOW - 4 * DAY, NOW - 58 * DAY].map(length), [HOUR, HOUR, DAY, DAY]);
        assert_eq!([NOW - 80 * DAY, NOW - 700 * DAY].map(length), [WEEK, WEEK]);
    }

    #[test]
    fn a_later_scale_rounds_outwards() {
        for days in [0, 1, 2, 3, 6, 7, 30, 61, 400, 5000] {
            let (old, new) = (Scale::at(NOW), Scale::at(NOW + days * DAY));
            for time in (NOW - 900 * DAY..NOW + 4 * DAY).step_by(3599) {
                let bucket = old.bucket(time);
                let (first, last) = (old.first_in(new, bucket), old.last_in(new, bucket));
                assert!(new.span(first).0 <= time && time < new.span(last).1, "{time} after {days} days");
                assert!(last == FUTURE || last == first, "a bucket is within one of a later scale");
            }
            assert_eq!(old.first_in(new, NEVER), NEVER);
        }
    }

    #[test]
    fn an_earlier_scale_rounds_outwards_too() {
        let (old, new) = (Scale::at(NOW), Scale::at(NOW - 100 * DAY));
        for time in (NOW - 900 * DAY..NOW + 4 * DAY).step_by(3599) {
            let bucket = old.bucket(time);
            assert!(new.span(old.first_in(new, bucket)).0 <= time && time < new.span(old.last_in(new, bucket)).1);
        }
    }
}
