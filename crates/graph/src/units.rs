//! Numbers on a value axis, with the units of a unit system.

use crate::options::Units;

const BINARY: [(&str, f64); 5] = [
    ("Pi", 1_125_899_906_842_624.0),
    ("Ti", 1_099_511_627_776.0),
    ("Gi", 1_073_741_824.0),
    ("Mi", 1_048_576.0),
    ("Ki", 1024.0),
];
const SI: [(&str, f64); 5] = [("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)];
const SECONDS: [(&str, f64); 5] =
    [("Y", 31_536_000.0), ("M", 2_592_000.0), ("D", 86_400.0), ("H", 3600.0), ("m", 60.0)];
const MILLISECONDS: [(&str, f64); 6] =
    [("Y", 31_536_000e3), ("M", 2_592_000e3), ("D", 86_400e3), ("H", 3600e3), ("m", 60e3), ("s", 1000.0)];

/// The prefixes of a system, the largest first.
fn sizes(units: Units) -> &'static [(&'static str, f64)] {
    match units {
        Units::Binary => &BINARY,
        Units::Si => &SI,
        Units::Seconds => &SECONDS,
        Units::Milliseconds => &MILLISECONDS,
        Units::None => &[],
    }
}

/// A value in the largest unit that neither it nor the step from label to label is smaller than.
fn scaled(value: f64, step: Option<f64>, units: Units) -> (f64, &'static str) {
    let fits = |size: f64| value.abs() >= size && step.is_none_or(|step| step >= size);
    let found = sizes(units).iter().find(|(_, size)| fits(*size));
    let (mut scaled, name) = found.map_or((value, ""), |(name, size)| (value / size, *name));
    if scaled - scaled.floor() < 1e-11 && value > 1.0 {
        scaled = scaled.floor();
    }
    (scaled, name)
}

/// The label of a value on an axis that spans `span` in steps of `step` (none where they are not even): as many
/// digits as graphite-web needs to make the labels different.
pub(crate) fn label(value: f64, step: Option<f64>, span: f64, units: Units) -> String {
    let (value, unit) = scaled(value, step, units);
    let (span, span_unit) = scaled(span, step, units);
    let number = if value < 0.1 {
        shortest(value)
    } else if value < 1.0 {
        format!("{value:.2}")
    // graphite-web compares `"k "` with `"k"` here: a value with a unit never has more than one decimal.
    } else if span > 10.0 || !unit.is_empty() || !span_unit.is_empty() || span > 3.0 {
        format!("{value:.1}")
    } else if span > 0.1 {
        format!("{value:.2}")
    } else {
        shortest(value)
    };
    if unit.is_empty() { number } else { format!("{number} {unit}") }
}

/// C's `%g`: six digits, no zeros at the end, a power of ten where the number is very large or small.
pub(crate) fn shortest(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return if value == 0.0 { "0".to_owned() } else { value.to_string() };
    }
    let scientific = format!("{value:.5e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed = |text: &str| {
        let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text };
        text.to_owned()
    };
    if (-4..6).contains(&exponent) {
        let decimals = usize::try_from(5 - exponent).unwrap_or(0);
        return trimmed(&format!("{value:.decimals$}"));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_form_is_that_of_c() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (1.0, "1"),
            (-2.5, "-2.5"),
            (0.1 + 0.2, "0.3"),
            (999_999.5, "1e+06"),
            (123_456.0, "123456"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (-1.5e300, "-1.5e+300"),
        ] {
            assert_eq!(shortest(value), text);
        }
    }
}
