//! The ini dialect of carbon's files: Python's `configparser` with what go-carbon adds.

use std::collections::{BTreeMap, HashMap};

use super::error::{Findings, Place};

/// A section in its place in the file, with the values of `[DEFAULT]` for the keys it lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) place: Place,
    pub(super) name: String,
    /// By key in lower case.
    pub(super) options: BTreeMap<String, Value>,
}

/// A value: continuation lines joined by LF, quotes dropped, `%%` read as `%`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Value {
    pub(super) place: Place,
    pub(super) text: String,
}

/// The section whose values the others inherit. Carbon also takes it as a section like any other.
pub(super) const DEFAULT: &str = "DEFAULT";

/// The sections in the order of the file, in these steps: gather lines into options; report repetitions; clean the
/// values; inherit.
pub(super) fn parse(file: &'static str, text: &str, findings: &mut Findings) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    let mut section_lines: HashMap<String, usize> = HashMap::new();
    // The key that a line would continue, and the indentation beyond which it does.
    let mut open_key: Option<String> = None;
    let mut indentation = 0;

    for (i, line) in text.strip_prefix('\u{feff}').unwrap_or(text).lines().enumerate() {
        let section = sections.last().map(|section| section.name.clone());
        let place = Place { file, line: i + 1, section };
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
            continue;
        }
        let line_indentation = line.len() - line.trim_start().len();
        if let Some(name) = header(trimmed) {
            open_key = None;
            let place = Place { section: Some(name.to_owned()), ..place };
            if let Some(first) = section_lines.insert(name.to_owned(), place.line) {
                findings.warning(
                    &place,
                    format!(
                        "repeats the section on line {first}; both apply, as in go-carbon (carbon would not start)"
                    ),
                );
            }
            sections.push(Section { place, name: name.to_owned(), options: BTreeMap::new() });
            continue;
        }
        let Some(section) = sections.last_mut() else {
            findings.error(&place, format!("'{trimmed}' comes before the first [section]"));
            continue;
        };
        if line_indentation > indentation
            && let Some(value) = open_key.as_ref().and_then(|key| section.options.get_mut(key))
        {
            value.text.push('\n');
            value.text.push_str(trimmed);
            continue;
        }
        let Some((key, value)) = trimmed.split_once(['=', ':']) else {
            findings.error(&place, format!("'{trimmed}' is neither a [section] nor a 'key = value'"));
            continue;
        };
        let key = key.trim().to_lowercase();
        let value = Value { place: place.clone(), text: value.trim().to_owned() };
        if let Some(first) = section.options.insert(key.clone(), value) {
            findings.warning(
                &place,
                format!(
                    "repeats '{key}' on line {}; the last one applies, as in go-carbon (carbon would not start)",
                    first.place.line
                ),
            );
        }
        open_key = Some(key);
        indentation = line_indentation;
    }

    for value in sections.iter_mut().flat_map(|section| section.options.values_mut()) {
        value.text = without_quotes(value.text.trim()).replace("%%", "%");
    }
    let inherited: Vec<_> =
        sections.iter().filter(|section| section.name == DEFAULT).flat_map(|section| section.options.clone()).collect();
    for section in &mut sections {
        for (key, value) in &inherited {
            section.options.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
    sections
}

/// The name in `[name]`; a comment may follow.
fn header(trimmed: &str) -> Option<&str> {
    let (name, after) = trimmed.strip_prefix('[')?.rsplit_once(']')?;
    let after = after.trim_start();
    (after.is_empty() || after.starts_with(['#', ';'])).then_some(name)
}

fn without_quotes(text: &str) -> &str {
    for quote in ['"', '\''] {
        if let Some(inner) = text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)) {
            return inner;
        }
    }
    text
}
