//! When a metric without points is deleted, as a setting.

use std::time::Duration;

use super::kinds::{Kind, must_be};

/// How long a metric may be without points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdleAfter {
    /// As long as it keeps points.
    Retention,
    /// This long, if that is shorter.
    Time(Duration),
    Never,
}

impl Kind for IdleAfter {
    const TAKES: &'static str = "a time such as \"30d\", \"retention\" or \"never\"";

    fn read(text: &str) -> Result<IdleAfter, String> {
        match text {
            "retention" => Ok(IdleAfter::Retention),
            "never" => Ok(IdleAfter::Never),
            // Zero would delete every metric whose points were just stored.
            time => match Duration::read(time) {
                Ok(time) if Duration::ZERO < time => Ok(IdleAfter::Time(time)),
                _ => Err(must_be::<IdleAfter>(text)),
            },
        }
    }

    fn write(&self) -> String {
        match self {
            IdleAfter::Retention => "retention".to_owned(),
            IdleAfter::Time(time) => time.write(),
            IdleAfter::Never => "never".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_read_as_it_is_written() {
        for text in ["retention", "never", "30d"] {
            assert_eq!(IdleAfter::read(text).unwrap().write(), text);
        }
        for text in ["", "0s", "off", "-1d"] {
            assert!(IdleAfter::read(text).is_err(), "{text}");
        }
    }
}
