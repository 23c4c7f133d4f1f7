//! Times of a request: `from` and `until` in at's grammar, and intervals, in zones with and without odd hours.
#![no_main]

use jiff::tz::TimeZone;
use libfuzzer_sys::fuzz_target;
use render::time::{parse_at_time, parse_interval};

fuzz_target!(|text: &str| {
    let now = 1_700_000_000;
    for zone in ["UTC", "America/St_Johns", "Australia/Lord_Howe"] {
        let zone = TimeZone::get(zone).expect("a zone that is there");
        // The beginning of the calendar, now, and when clocks go back in Newfoundland.
        for now in [-62_135_596_800, now, 1_699_162_200] {
            if let Err(error) = parse_at_time(text, now, &zone) {
                assert!(!error.to_string().is_empty());
            }
        }
    }
    if let Err(error) = parse_interval(text) {
        assert!(!error.to_string().is_empty());
    }
});
