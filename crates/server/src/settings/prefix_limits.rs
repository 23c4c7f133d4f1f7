//! Limits on metrics by the beginning of their names, as a setting.

use ingest::PrefixLimit;

use super::kinds::{Kind, Optional, must_be};

/// `dev.=100000/1000, lab.=5000/100`: prefix, metrics, new metrics a minute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrefixLimits(pub Vec<PrefixLimit>);

impl Kind for PrefixLimits {
    const TAKES: &'static str = "PREFIX=METRICS/NEW_PER_MINUTE, separated by commas";

    fn read(text: &str) -> Result<PrefixLimits, String> {
        let limits: Result<Vec<PrefixLimit>, ()> = text.split(',').map(str::parse).collect();
        limits.map(PrefixLimits).map_err(|()| must_be::<PrefixLimits>(text))
    }

    fn write(&self) -> String {
        let limit = |limit: &PrefixLimit| format!("{}={}/{}", limit.prefix, limit.metrics, limit.creations_per_minute);
        self.0.iter().map(limit).collect::<Vec<_>>().join(", ")
    }
}

impl Optional for PrefixLimits {
    const TAKES_OR_OFF: &'static str = "PREFIX=METRICS/NEW_PER_MINUTE, separated by commas, or \"off\"";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_they_are_written() {
        let limits = PrefixLimits::read(" dev.=100000/1000,a=b.=5/1").unwrap();
        assert_eq!(limits.write(), "dev.=100000/1000, a=b.=5/1");
        assert_eq!(PrefixLimits::read(&limits.write()), Ok(limits));
        for text in ["", "dev.", "dev.=1", "=1/1", "dev.=x/1", "dev.=1/1,"] {
            assert!(PrefixLimits::read(text).is_err(), "{text}");
        }
    }
}
