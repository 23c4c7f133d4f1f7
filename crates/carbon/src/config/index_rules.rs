//! `index-rules.conf`, as metrictank has it: after how long without points a metric is hidden from searches.

use super::{
    error::{Findings, Place},
    ini::{self, Section},
    pattern::Pattern,
    retention,
};

const FILE: &str = "index-rules.conf";

const KEYS: [&str; 2] = ["pattern", "max-stale"];

/// Rules of the file, at most: each metric has the number of its rule in a byte.
const MOST: usize = 250;

/// A rule of `index-rules.conf`. Of several that match a name, the first holds.
#[derive(Debug, Clone)]
pub struct IndexRule {
    pub(super) place: Place,
    pub(super) pattern: Pattern,
    /// Seconds after its last point from which on a metric is hidden; `None` where it never is.
    pub max_stale: Option<u64>,
}

impl IndexRule {
    /// Whether the rule is for a canonical name. Allocates nothing.
    pub fn matches(&self, name: &str) -> bool {
        self.pattern.is_in(name)
    }
}

/// The rules in the order of the file.
pub(super) fn index_rules(text: &str, findings: &mut Findings) -> Vec<IndexRule> {
    let mut rules = Vec::new();
    for section in ini::parse(FILE, text, findings) {
        for (key, value) in &section.options {
            if !KEYS.contains(&key.as_str()) {
                findings.warning(&value.place, format!("unknown key '{key}'; the keys are {}", KEYS.join(", ")));
            }
        }
        if section.name != ini::DEFAULT || !section.options.is_empty() {
            rules.extend(index_rule(&section, findings));
        }
    }
    if let Some(rule) = rules.get(MOST) {
        findings.error(&rule.place, format!("this is rule {}; {MOST} are possible: put patterns together", MOST + 1));
    }
    rules
}

fn index_rule(section: &Section, findings: &mut Findings) -> Option<IndexRule> {
    let Some(pattern) = section.options.get("pattern") else {
        findings.error(&section.place, "the pattern is missing; write 'pattern = REGEX', 'pattern = .*' for all names");
        return None;
    };
    // Metrictank's example has an empty one, which matches every name.
    let source = if pattern.text.is_empty() { ".*" } else { &pattern.text };
    let compiled = Pattern::new(source).map_err(|message| findings.error(&pattern.place, message)).ok();
    let Some(max_stale) = section.options.get("max-stale") else {
        findings.error(&section.place, "max-stale is missing; write a time such as 'max-stale = 14d', or 0 for never");
        return None;
    };
    match retention::seconds(&max_stale.text) {
        Ok(seconds) => Some(IndexRule {
            place: section.place.clone(),
            pattern: compiled?,
            max_stale: (seconds > 0).then_some(seconds),
        }),
        Err(why) => {
            let message = format!("max-stale: {why}; write a time such as 14d, or 0 for never");
            findings.error(&max_stale.place, message);
            None
        }
    }
}
