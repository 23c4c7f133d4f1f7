//! The table of all measures: each server's figure, how it compares with the baseline's, and whether its bound holds.

use std::fmt::Write as _;

use serde::Serialize;

use crate::{outcome::Outcome, report};

/// The value that a measure should have.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Bound {
    Most(f64),
    /// At most this many times the baseline's.
    TimesAtMost(f64),
    /// At least this many times the baseline's.
    TimesAtLeast(f64),
    /// For information.
    Any,
}

impl Bound {
    /// `None` when the baseline was not measured.
    fn met(self, value: f64, baseline: Option<f64>) -> Option<bool> {
        match self {
            Bound::Most(most) => Some(value <= most),
            Bound::TimesAtMost(times) => baseline.map(|baseline| value <= times * baseline),
            Bound::TimesAtLeast(times) => baseline.map(|baseline| times * baseline <= value),
            Bound::Any => None,
        }
    }

    fn text(self) -> String {
        match self {
            Bound::Most(most) => format!("≤ {most}"),
            Bound::TimesAtMost(times) => format!("≤ {times} ×"),
            Bound::TimesAtLeast(times) => format!("≥ {times} ×"),
            Bound::Any => "–".into(),
        }
    }
}

/// A line of the table.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Measure {
    title: String,
    unit: &'static str,
    bound: String,
    servers: Vec<ServerValue>,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct ServerValue {
    server: String,
    value: Option<f64>,
    /// Divided by the baseline's.
    ratio: Option<f64>,
    /// Whether the bound holds.
    met: Option<bool>,
    /// Why there is no value, or a remark on it.
    note: Option<String>,
}

/// The outcome of sending a load to one server.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct LoadResult {
    pub(crate) server: String,
    pub(crate) load: &'static str,
    pub(crate) outcome: Outcome,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    pub(crate) baseline: Option<String>,
    pub(crate) scale: f64,
    pub(crate) measures: Vec<Measure>,
    pub(crate) loads: Vec<LoadResult>,
}

/// One measure of one server.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Figure {
    pub(crate) value: Option<f64>,
    /// Why there is no value, or a remark on it.
    pub(crate) note: Option<String>,
}

impl Figure {
    /// `why` says why there is no value, if there is none.
    pub(crate) fn new(value: Option<f64>, why: &str) -> Figure {
        Figure { value, note: value.is_none().then(|| why.to_owned()) }
    }
}

/// One line of the table: the figure of each server against the baseline's.
pub(crate) fn compare(
    title: &str,
    unit: &'static str,
    bound: Bound,
    figures: &[(&str, Figure)],
    baseline: Option<&str>,
) -> Measure {
    let of_baseline = figures.iter().find(|(name, _)| baseline == Some(*name));
    let of_baseline = of_baseline.and_then(|(_, figure)| figure.value);
    let value = |(name, figure): &(&str, Figure)| {
        let value = figure.value;
        let is_baseline = baseline == Some(*name);
        ServerValue {
            server: (*name).to_owned(),
            value,
            ratio: value
                .zip(of_baseline.filter(|value| *value != 0.0))
                .filter(|_| !is_baseline)
                .map(|(value, of_baseline)| value / of_baseline),
            met: value.filter(|_| !is_baseline).and_then(|value| bound.met(value, of_baseline)),
            note: figure.note.clone(),
        }
    };
    Measure { title: title.to_owned(), unit, bound: bound.text(), servers: figures.iter().map(value).collect() }
}

/// The median of the values that were measured.
pub(crate) fn median(mut values: Vec<Option<f64>>) -> Figure {
    values.sort_by(|one, other| one.partial_cmp(other).expect("figures are numbers"));
    let measured: Vec<f64> = values.into_iter().flatten().collect();
    Figure::new(measured.get(measured.len() / 2).copied(), "not measured")
}

impl Report {
    /// As Markdown, with the notes below.
    pub(crate) fn table(&self) -> String {
        let Some(first) = self.measures.first() else { return String::new() };
        let mut head = report::row(["measure", "unit", "bound"]);
        for value in &first.servers {
            head.push(value.server.clone());
            if self.baseline.is_some() && self.baseline.as_ref() != Some(&value.server) {
                head.push("×".into());
            }
            if self.baseline.as_ref() != Some(&value.server) {
                head.push("met".into());
            }
        }
        let row = |measure: &Measure| {
            let mut row = vec![measure.title.clone(), measure.unit.to_owned(), measure.bound.clone()];
            for value in &measure.servers {
                row.push(report::optional(value.value));
                if self.baseline.is_some() && self.baseline.as_ref() != Some(&value.server) {
                    row.push(report::optional(value.ratio));
                }
                if self.baseline.as_ref() != Some(&value.server) {
                    row.push(value.met.map_or("–", |met| if met { "yes" } else { "no" }).into());
                }
            }
            row
        };
        let rows: Vec<Vec<String>> = self.measures.iter().map(row).collect();
        let mut out = report::table(&head, &rows);
        out.push('\n');
        for measure in &self.measures {
            for ServerValue { server, note, .. } in &measure.servers {
                if let Some(note) = note {
                    // Writing to a String cannot fail.
                    _ = writeln!(out, "- {}, {server}: {note}", measure.title);
                }
            }
        }
        for LoadResult { server, load, outcome } in &self.loads {
            for note in &outcome.notes {
                _ = writeln!(out, "- {load}, {server}: {note}");
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_hold_against_the_baseline_of_the_same_run() {
        let figures = [
            ("we", Figure::new(Some(3.0), "")),
            ("peer", Figure::new(Some(10.0), "")),
            ("other", Figure::new(None, "no pid")),
        ];
        let check = |bound| {
            let measure = compare("m", "s", bound, &figures, Some("peer"));
            measure.servers.iter().map(|value| (value.ratio, value.met)).collect::<Vec<_>>()
        };
        assert_eq!(check(Bound::TimesAtMost(0.4)), [(Some(0.3), Some(true)), (None, None), (None, None)]);
        assert_eq!(check(Bound::TimesAtLeast(2.0)), [(Some(0.3), Some(false)), (None, None), (None, None)]);
        assert_eq!(check(Bound::Most(2.0)), [(Some(0.3), Some(false)), (None, None), (None, None)]);
        assert_eq!(check(Bound::Any), [(Some(0.3), None), (None, None), (None, None)]);
    }

    #[test]
    fn a_ratio_needs_a_baseline() {
        let measure = compare("m", "s", Bound::TimesAtMost(0.4), &[("we", Figure::new(Some(3.0), ""))], None);
        assert_eq!((measure.servers[0].ratio, measure.servers[0].met), (None, None));
    }

    #[test]
    fn notes_about_a_load_are_below_the_table() {
        let outcome = Outcome { notes: vec!["it was never idle".into()], ..Outcome::default() };
        let measure = compare("m", "s", Bound::Any, &[("we", Figure::new(Some(3.0), ""))], None);
        let loads = vec![LoadResult { server: "we".into(), load: "much", outcome }];
        let report = Report { measures: vec![measure], loads, ..Report::default() };
        assert!(report.table().ends_with("\n- much, we: it was never idle\n"), "{}", report.table());
    }

    #[test]
    fn the_median_ignores_values_that_were_not_measured() {
        assert_eq!(median(vec![Some(3.0), None, Some(1.0), Some(2.0)]).value, Some(2.0));
        assert_eq!(median(vec![None]), Figure::new(None, "not measured"));
    }
}
