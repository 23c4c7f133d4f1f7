//! The kind of picture: the parameters `graphType` and `pieMode`.

use crate::error::Error;

/// The kind of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GraphType {
    /// A line for each series.
    Lines,
    /// A slice for each series.
    Pie(SliceSize),
}

/// The size of a series as a slice of a pie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SliceSize {
    /// The mean of its values.
    Average,
    /// Its largest value.
    Maximum,
    /// Its smallest value.
    Minimum,
}

impl GraphType {
    /// Reads `graphType` and `pieMode`; `value` returns the last value of a parameter.
    pub fn read<'a>(value: &dyn Fn(&str) -> Option<&'a str>) -> Result<GraphType, Error> {
        match value("graphType") {
            None | Some("line") => return Ok(GraphType::Lines),
            Some("pie") => {}
            Some(other) => return Err(Error::GraphType(other.to_owned())),
        }
        let mode = value("pieMode").filter(|mode| !mode.is_empty()).unwrap_or("average");
        match mode.to_ascii_lowercase().as_str() {
            "average" => Ok(GraphType::Pie(SliceSize::Average)),
            "maximum" => Ok(GraphType::Pie(SliceSize::Maximum)),
            "minimum" => Ok(GraphType::Pie(SliceSize::Minimum)),
            _ => Err(Error::option("pieMode", mode, "average, maximum or minimum")),
        }
    }
}

impl SliceSize {
    /// The size of a slice; zero without a finite value.
    pub fn of(self, values: &[f64]) -> f64 {
        let known = || values.iter().copied().filter(|value| value.is_finite());
        let count = known().count();
        if count == 0 {
            return 0.0;
        }
        match self {
            SliceSize::Average => known().sum::<f64>() / count as f64,
            SliceSize::Maximum => known().fold(f64::NEG_INFINITY, f64::max),
            SliceSize::Minimum => known().fold(f64::INFINITY, f64::min),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_type_or_mode_is_an_error_that_lists_the_valid_ones() {
        let read = |graph_type: &'static str, mode: &'static str| {
            let value = |name: &str| Some(if name == "graphType" { graph_type } else { mode });
            GraphType::read(&value).map_err(|error| error.to_string())
        };
        assert_eq!(read("pie", "Maximum"), Ok(GraphType::Pie(SliceSize::Maximum)));
        assert_eq!(read("bar", ""), Err("Invalid graphType 'bar', must be one of ['line', 'pie']".to_owned()));
        assert_eq!(read("pie", "x"), Err("pieMode must be average, maximum or minimum, got 'x'".to_owned()));
    }

    #[test]
    fn a_slice_ignores_unknown_and_infinite_values() {
        let values = [1.0, f64::NAN, 3.0, f64::INFINITY];
        assert_eq!(SliceSize::Average.of(&values), 2.0);
        assert_eq!((SliceSize::Minimum.of(&values), SliceSize::Maximum.of(&values)), (1.0, 3.0));
        assert_eq!(SliceSize::Maximum.of(&[f64::NAN]), 0.0);
    }
}
