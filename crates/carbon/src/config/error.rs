//! Mistakes in rule files, and their places.

use std::fmt;

/// A place in a rule file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Place {
    /// The file's usual name, such as `storage-schemas.conf`.
    pub file: &'static str,
    /// The line, counted from 1.
    pub line: usize,
    /// The section, where the file has sections and the line is in one.
    pub section: Option<String>,
}

/// `storage-schemas.conf:12: [carbon]`.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)?;
        match &self.section {
            Some(section) => write!(f, ": [{section}]"),
            None => Ok(()),
        }
    }
}

/// A mistake that leaves no rules to use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {message}")]
pub struct ConfigError {
    /// Where.
    pub place: Place,
    /// What the file says, and what would be valid.
    pub message: String,
}

/// A likely mistake in valid rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// Where.
    pub place: Place,
    /// What the file says, and what it means here.
    pub message: String,
}

/// `storage-schemas.conf:12: [carbon]: …`.
impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

/// Errors and warnings so far.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) errors: Vec<ConfigError>,
    pub(super) warnings: Vec<Warning>,
}

impl Findings {
    /// In the order of the lines; the files stay in the order in which they were read.
    pub(super) fn sort(&mut self) {
        self.errors
            .chunk_by_mut(|a, b| a.place.file == b.place.file)
            .for_each(|of_file| of_file.sort_by_key(|e| e.place.line));
        self.warnings
            .chunk_by_mut(|a, b| a.place.file == b.place.file)
            .for_each(|of_file| of_file.sort_by_key(|w| w.place.line));
    }

    pub(super) fn error(&mut self, place: &Place, message: impl Into<String>) {
        self.errors.push(ConfigError { place: place.clone(), message: message.into() });
    }

    pub(super) fn warning(&mut self, place: &Place, message: impl Into<String>) {
        self.warnings.push(Warning { place: place.clone(), message: message.into() });
    }
}
