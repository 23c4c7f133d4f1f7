//! go-carbon's `storage-quotas.conf`: limits on what is below the branches that a pattern matches.

use super::{
    branch_pattern::BranchPattern,
    error::{ConfigError, Findings, Place, Warning},
    ini::{self, Section, Value},
};

const QUOTAS_FILE: &str = "storage-quotas.conf";

const KEYS: [&str; 5] = ["metrics", "namespaces", "throughput", "dropping-policy", "stat-metric-prefix"];

/// Keys of go-carbon without effect here: sizes of whisper's files.
const OTHERS_KEYS: [&str; 3] = ["logical-size", "physical-size", "data-points"];

/// What becomes of points beyond a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dropping {
    /// New metrics beyond `metrics` or `namespaces`, and points beyond `throughput`, are rejected.
    #[default]
    New,
    /// All is counted and accepted.
    Nothing,
    /// As `New`; and all points of the branch, for the rest of a minute in which new metrics were rejected, and while it has
    /// more metrics or directories than its quota.
    All,
}

/// A section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaRule {
    /// Where.
    pub place: Place,
    /// The branches.
    pub pattern: BranchPattern,
    /// Metrics below each branch.
    pub metrics: Option<u64>,
    /// Directories below each branch, at any depth.
    pub namespaces: Option<u64>,
    /// Points a minute below each branch.
    pub points_per_minute: Option<u64>,
    /// `dropping-policy`.
    pub dropping: Dropping,
}

/// Reads the file. Returns its sections in order and warnings about likely mistakes, or all errors.
///
/// # Errors
/// A number or a policy is invalid, or a pattern is not supported.
pub fn read_quotas(text: &str) -> Result<(Vec<QuotaRule>, Vec<Warning>), Vec<ConfigError>> {
    let mut findings = Findings::default();
    let sections = ini::parse(QUOTAS_FILE, text, &mut findings);
    let rules = sections.iter().filter_map(|section| rule(section, &mut findings)).collect();
    findings.sort();
    if findings.errors.is_empty() { Ok((rules, findings.warnings)) } else { Err(findings.errors) }
}

fn rule(section: &Section, findings: &mut Findings) -> Option<QuotaRule> {
    for (key, value) in &section.options {
        if OTHERS_KEYS.contains(&key.as_str()) {
            findings.warning(
                &value.place,
                format!(
                    "'{key}' has no effect: points are not in files of a size by metric; {} have",
                    KEYS[..4].join(", ")
                ),
            );
        } else if !KEYS.contains(&key.as_str()) {
            findings.warning(&value.place, format!("unknown key '{key}'; the keys are {}", KEYS.join(", ")));
        }
    }
    let pattern = BranchPattern::read(section.name.trim());
    let pattern = pattern.map_err(|error| findings.error(&section.place, error)).ok()?;
    let dropping = match section.options.get("dropping-policy") {
        None => Dropping::New,
        Some(value) => match value.text.as_str() {
            "" | "new" => Dropping::New,
            "none" => Dropping::Nothing,
            "all" => Dropping::All,
            other => {
                findings.error(&value.place, format!("dropping-policy is '{other}'; it must be new, all or none"));
                return None;
            }
        },
    };
    let metrics = number(section.options.get("metrics"), findings)?;
    let namespaces = number(section.options.get("namespaces"), findings)?;
    let points_per_minute = number(section.options.get("throughput"), findings)?;
    Some(QuotaRule { place: section.place.clone(), pattern, metrics, namespaces, points_per_minute, dropping })
}

/// `3,000,000`; `max` and an empty value mean any number. `None` after an error.
fn number(value: Option<&Value>, findings: &mut Findings) -> Option<Option<u64>> {
    let Some(value) = value else { return Some(None) };
    match value.text.as_str() {
        "" | "max" | "maximum" => Some(None),
        text => match text.replace(',', "").parse() {
            Ok(number) => Some(Some(number)),
            Err(_) => {
                findings.error(&value.place, format!("'{text}' must be a whole number such as 3,000,000, or max"));
                None
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_carbons_example_is_read() {
        let text = "# namespaces\n[*]\nmetrics       =       3,000,000\nlogical-size  = 250,000,000,000\n\
            data-points   =             max\nthroughput    =             max\nstat-metric-prefix = \"level1.\"\n\
            [sys.app.*]\nmetrics = 5\nthroughput = 600,000\ndropping-policy = none\n\
            [/]\nnamespaces = 20\nmetrics = 10,000,000\ndropping-policy = new\n";
        let (rules, warnings) = read_quotas(text).unwrap();
        let of = |rule: &QuotaRule| (rule.pattern.to_string(), rule.metrics, rule.points_per_minute, rule.dropping);
        assert_eq!(
            rules.iter().map(of).collect::<Vec<_>>(),
            [
                ("*".to_owned(), Some(3_000_000), None, Dropping::New),
                ("sys.app.*".to_owned(), Some(5), Some(600_000), Dropping::Nothing),
                ("/".to_owned(), Some(10_000_000), None, Dropping::New),
            ]
        );
        assert_eq!(rules[2].namespaces, Some(20));
        assert_eq!(warnings.len(), 2);
        assert!(warnings[0].to_string().contains("'logical-size' has no effect"), "{}", warnings[0]);
    }

    #[test]
    fn what_is_not_understood_is_an_error_with_its_line() {
        let check = |text: &str, words: &str| {
            let error = read_quotas(text).unwrap_err().remove(0);
            assert!(error.message.contains(words) && 0 < error.place.line, "{text}: {error}");
        };
        check("[a]\nmetrics = many", "'many' must be a whole number");
        check("[a]\nthroughput = -1", "must be a whole number");
        check("[a]\ndropping-policy = some", "must be new, all or none");
        check("[a.{b,c]\nmetrics = 1", "must be components");
        check("[a..b]\nmetrics = 1", "must be components");
    }
}
