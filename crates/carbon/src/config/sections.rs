//! Storage schemas and aggregation rules: the sections of both files.

use metric::{Aggregation, Methods, Policy, Retention};

use super::{
    error::{Findings, Place},
    ini::{self, Section},
    pattern::Pattern,
    retention::{self, Unreadable},
};

pub(super) const SCHEMAS_FILE: &str = "storage-schemas.conf";
pub(super) const AGGREGATION_FILE: &str = "storage-aggregation.conf";

const SCHEMA_KEYS: [&str; 3] = ["pattern", "retentions", "priority"];
const AGGREGATION_KEYS: [&str; 3] = ["pattern", "xfilesfactor", "aggregationmethod"];

/// Keys of go-carbon and metrictank in either file. They have no effect here.
const OTHERS_KEYS: [&str; 5] =
    ["compressed", "reorderbuffer", "reorderbufferallowupdate", "xffmigration", "aggregationmethodmigration"];

/// A rule of `storage-schemas.conf`.
#[derive(Debug, Clone)]
pub(super) struct Schema {
    pub(super) place: Place,
    pub(super) pattern: Pattern,
    pub(super) retention: Retention,
}

/// A rule of `storage-aggregation.conf`; what it leaves out has carbon's default.
#[derive(Debug, Clone)]
pub(super) struct AggregationRule {
    pub(super) place: Place,
    pub(super) pattern: Pattern,
    /// One method or several, the first one first.
    pub(super) aggregation: Option<Methods>,
    pub(super) x_files_factor: Option<f64>,
}

/// The schemas in the order of their precedence.
pub(super) fn schemas(text: &str, findings: &mut Findings) -> Vec<Schema> {
    let mut schemas = Vec::new();
    let sections = ini::parse(SCHEMAS_FILE, text, findings);
    if sections.is_empty() && findings.errors.is_empty() {
        let place = Place { file: SCHEMAS_FILE, line: 1, section: None };
        let default = Policy::default().retention;
        findings
            .warning(&place, format!("the file has no [section]: every new metric gets carbon's default, {default}"));
    }
    for section in sections {
        warn_of_unknown_keys(&section, &SCHEMA_KEYS, findings);
        let priority = priority(&section, findings);
        if let Some(schema) = schema(&section, findings) {
            schemas.push((priority, schema));
        }
    }
    let is_in_order = schemas.windows(2).all(|pair| pair[0].0 >= pair[1].0);
    if !is_in_order {
        schemas.sort_by_key(|(priority, _)| std::cmp::Reverse(*priority));
        let (_, first) = &schemas[0];
        let place = first.place.clone();
        findings.warning(
            &place,
            "'priority' changes the order of the sections, as in go-carbon; carbon since 0.9 uses the order of the file",
        );
    }
    schemas.into_iter().map(|(_, schema)| schema).collect()
}

/// The aggregation rules in the order of their precedence.
pub(super) fn aggregation_rules(text: &str, findings: &mut Findings) -> Vec<AggregationRule> {
    let mut rules = Vec::new();
    for section in ini::parse(AGGREGATION_FILE, text, findings) {
        warn_of_unknown_keys(&section, &AGGREGATION_KEYS, findings);
        rules.extend(aggregation_rule(&section, findings));
    }
    rules
}

fn schema(section: &Section, findings: &mut Findings) -> Option<Schema> {
    let pattern = pattern(section, findings)?;
    let Some(retentions) = section.options.get("retentions").filter(|value| !value.text.is_empty()) else {
        findings.warning(&section.place, "there are no retentions; the section is skipped, as carbon does");
        return None;
    };
    let mut remarks = Vec::new();
    let retention = retention::parse(&retentions.text, &mut remarks);
    for remark in remarks {
        findings.warning(&retentions.place, remark);
    }
    match retention {
        Ok(retention) => Some(Schema { place: section.place.clone(), pattern, retention }),
        Err(Unreadable::Fatal(message)) => {
            findings.error(&retentions.place, message);
            None
        }
        Err(Unreadable::Skipped(error)) => {
            findings.warning(&retentions.place, format!("{error}; the section is skipped, as carbon does"));
            None
        }
    }
}

fn aggregation_rule(section: &Section, findings: &mut Findings) -> Option<AggregationRule> {
    let pattern = pattern(section, findings)?;
    let mut x_files_factor = None;
    if let Some(value) = section.options.get("xfilesfactor") {
        match value.text.parse::<f64>() {
            Ok(part) if (0.0..=1.0).contains(&part) => x_files_factor = Some(part),
            Ok(_) => {
                findings.error(&value.place, format!("xFilesFactor is '{}'; it must be from 0 to 1", value.text));
                return None;
            }
            Err(_) => {
                let message = format!(
                    "xFilesFactor is '{}', which is not a number; the section is skipped, as carbon does",
                    value.text
                );
                findings.warning(&value.place, message);
                return None;
            }
        }
    }
    let mut aggregation = None;
    if let Some(value) = section.options.get("aggregationmethod") {
        // Of several, as metrictank has them, the first answers unless a query asks for another one.
        match value.text.parse::<Methods>() {
            Ok(methods) => {
                let is_hidden = |method: &Aggregation| matches!(method, Aggregation::AbsMax | Aggregation::AbsMin);
                for method in methods.iter().skip(1).filter(is_hidden) {
                    let message = format!(
                        "no query shows the rollup of {method}: consolidateBy has no such function; put it first, or leave it out"
                    );
                    findings.warning(&value.place, message);
                }
                aggregation = Some(methods);
            }
            Err(error) => {
                findings.error(&value.place, error.to_string());
                return None;
            }
        }
    }
    Some(AggregationRule { place: section.place.clone(), pattern, aggregation, x_files_factor })
}

fn pattern(section: &Section, findings: &mut Findings) -> Option<Pattern> {
    let Some(value) = section.options.get("pattern").filter(|value| !value.text.is_empty()) else {
        if section.name != ini::DEFAULT {
            findings.warning(&section.place, "there is no pattern; the section is skipped, as carbon does");
        }
        return None;
    };
    for (sign, what) in [
        (" #", "the comment after it is part of the pattern, as in carbon; put the comment on a line of its own"),
        (" ;", "the comment after it is part of the pattern, as in carbon; put the comment on a line of its own"),
        ("\n", "it is continued on the next line, and no name has a line end"),
    ] {
        if value.text.contains(sign) {
            findings.warning(
                &value.place,
                format!("the pattern '{}' probably matches nothing: {what}", value.text.escape_debug()),
            );
        }
    }
    match Pattern::new(&value.text) {
        Ok(pattern) => Some(pattern),
        Err(message) => {
            findings.error(&value.place, message);
            None
        }
    }
}

fn priority(section: &Section, findings: &mut Findings) -> i64 {
    let Some(value) = section.options.get("priority") else { return 0 };
    value.text.parse().unwrap_or_else(|_| {
        findings.warning(&value.place, format!("priority is '{}', which is not a whole number; 0 applies", value.text));
        0
    })
}

fn warn_of_unknown_keys(section: &Section, known: &[&str], findings: &mut Findings) {
    for (key, value) in &section.options {
        if !known.contains(&key.as_str()) && !OTHERS_KEYS.contains(&key.as_str()) {
            let message = format!("unknown key '{key}'; the keys are {}", known.join(", "));
            findings.warning(&value.place, message);
        }
    }
}
