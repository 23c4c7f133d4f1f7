//! Moments in texts for operators.

/// A moment, Unix seconds, as RFC 3339 in UTC: `2026-11-22T09:15:00Z`. One outside of the years that it can write stays a
/// number.
pub fn utc(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map_or_else(|_| seconds.to_string(), |moment| moment.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_date_and_a_time_in_utc() {
        assert_eq!(utc(1_795_338_900), "2026-11-22T09:15:00Z");
        assert_eq!(utc(i64::MAX), i64::MAX.to_string());
    }
}
