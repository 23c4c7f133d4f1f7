//! Releases of a program compared: their series moved so that all begin with the newest.

use crate::{
    Error, Series,
    argument::{SeriesList, Value, parameters},
    function::{Evaluate, Function},
    scope::Scope,
};

pub(super) const FUNCTIONS: &[Function] = &[Function::of::<TimeShiftByMetric>(
    "timeShiftByMetric",
    "Transform",
    "Series of several major versions, moved so that each begins where the newest does. Node number versionRankIndex is \
     the version; a version begins at the last value of a series such as marks.2_13.",
)
.extension()];

parameters! {
    /// timeShiftByMetric.
    struct TimeShiftByMetric {
        series: SeriesList = "seriesList".required();
        marks: SeriesList = "markSource".required();
        rank: i64 = "versionRankIndex".required();
    }
}

/// The newest minor version of a major one.
struct Release<'a> {
    name: &'a str,
    version: (u64, u64),
    /// The index of the value at which it begins.
    begins: i64,
}

impl Evaluate for TimeShiftByMetric {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let (list, marks) = (self.series.0, self.marks.0);
        let Ok(rank) = usize::try_from(self.rank) else {
            return Err(scope.reject(format!("versionRankIndex must not be negative, got {}", self.rank)));
        };
        for (parameter, list) in [("seriesList", &list), ("markSource", &marks)] {
            if list.len() < 2 {
                return Err(scope.reject(format!("{parameter} must be at least two series, got {}", list.len())));
            }
        }
        let points = list.first().map_or(0, |series| series.values.len());
        if points == 0 || list.iter().chain(&marks).any(|series| series.values.len() != points) {
            return Err(scope.reject("all series must have values, and the same number of them"));
        }
        let releases = newest(&marks);
        let [latest, _, ..] = releases.as_slice() else {
            return Err(scope.reject(format!(
                "markSource must tell where two major versions begin, by names that end in such as 2_13; {} is there",
                releases.len()
            )));
        };
        let step = marks.first().map_or(1, |mark| mark.step);
        let mut shifted = Vec::with_capacity(list.len());
        for mut series in list {
            let version = series.tags.get("name").and_then(|name| name.split('.').nth(rank)).unwrap_or_default();
            let exact = releases.iter().find(|release| release.name == version);
            let release = exact.or_else(|| releases.iter().find(|release| release.name.starts_with(version)));
            let Some(release) = release.filter(|_| !version.is_empty()) else { continue };
            let by = (latest.begins - release.begins) * step;
            (series.start, series.end) = (series.start + by, series.end + by);
            let name = format!("timeShiftByMetric({})", series.name);
            shifted.push(series.called(name));
        }
        Ok(shifted.into())
    }
}

/// The newest minor version of each major one that has a mark, the newest first.
fn newest(marks: &[Series]) -> Vec<Release<'_>> {
    let release = |mark: &'_ Series| -> Option<(u64, u64, i64)> {
        let (major, minor) = version(mark.tags.get("name")?.rsplit('.').next()?)?;
        Some((major, minor, mark.values.iter().rposition(|value| !value.is_nan())? as i64))
    };
    let mut releases: Vec<Release> = marks
        .iter()
        .filter_map(|mark| {
            let (major, minor, begins) = release(mark)?;
            let name = mark.tags.get("name")?.rsplit('.').next()?;
            Some(Release { name, version: (major, minor), begins })
        })
        .collect();
    releases.sort_by_key(|release| std::cmp::Reverse(release.version));
    releases.dedup_by_key(|release| release.version.0);
    releases
}

/// The first two numbers of a text between which there is nothing but an underscore.
fn version(text: &str) -> Option<(u64, u64)> {
    text.match_indices('_').find_map(|(at, _)| {
        let (before, after) = (text.get(..at)?, text.get(at + 1..)?);
        let digits = |character: char| character.is_ascii_digit();
        let major = before.trim_end_matches(digits);
        let minor = after.len() - after.trim_start_matches(digits).len();
        Some((before.get(major.len()..)?.parse().ok()?, after.get(..minor)?.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_version_is_two_numbers() {
        assert_eq!(super::version("65_4"), Some((65, 4)));
        assert_eq!(super::version("v65_4-rc1"), Some((65, 4)));
        assert_eq!(super::version("a_b_1_2"), Some((1, 2)));
        assert_eq!(super::version("65"), None);
        assert_eq!(super::version("_4"), None);
    }
}
