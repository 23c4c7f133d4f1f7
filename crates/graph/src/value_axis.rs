//! A value axis: its limits and its labels.
//!
//! The choices are graphite-web's, so that a graph keeps its scale when it moves here:
//!
//! 1. The limits are those of the data, or of the request.
//! 2. Steps are 1, 2 or 5 times a power of ten (powers of two for binary units). Among those that cover the limits in
//!    one of the allowed numbers of steps, the one that leaves least blank wins.
//! 3. Where the data set the limits, they are moved out to whole steps.

use crate::{
    Error,
    options::{AxisOptions, Top, Units},
    units::label,
};

/// The distance of a limit from a whole step that still counts as whole, in steps.
const EPSILON: f64 = 0.0001;

/// Labels of an axis at most: graphite-web's bound, before it takes a step of its own.
const MAX_LABELS: f64 = 1000.0;

/// An axis with its limits.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ValueAxis {
    pub bottom: f64,
    /// Above `bottom`.
    pub top: f64,
    /// From a label to the next; `None` where each is `base` times the one before.
    step: Option<f64>,
    base: Option<f64>,
    units: Units,
}

/// The limits with their origin.
struct Limits {
    min: f64,
    max: f64,
    // Whether the request has the limit. Limits of the data may move.
    min_is_fixed: bool,
    max_is_fixed: bool,
    // Neither the data's exact end nor a fixed one is rounded.
    max_is_exact: bool,
    limit: Option<f64>,
}

impl ValueAxis {
    /// An axis over values from `data.0` to `data.1`, both finite. With a `log_base`, `data.0` is above zero.
    pub fn new(
        data: (f64, f64),
        asked: &AxisOptions,
        divisors: &[u32],
        log_base: Option<f64>,
        units: Units,
    ) -> Result<ValueAxis, Error> {
        let limits = Limits::of(data, asked)?;
        if let Some(base) = log_base {
            return limits.logarithmic(base, units);
        }
        // A step that is too small next to the values has equal multiples.
        let asked_step = asked.step.filter(|step| limits.min.abs().max(limits.max.abs()) / step < 1e15);
        let step = asked_step.unwrap_or_else(|| limits.step(divisors, units));
        let bottom = if limits.min_is_fixed { limits.min } else { step * (limits.min / step + EPSILON).floor() };
        let mut top = if limits.max_is_exact { limits.max } else { step * (limits.max / step - EPSILON).ceil() };
        if let Some(limit) = limits.limit.filter(|limit| !limits.max_is_exact && top > limit + EPSILON * step) {
            top = limit;
        }
        if top <= bottom {
            top = bottom + bottom.abs().max(1.0);
        }
        let is_wall = |step: f64| top - bottom > MAX_LABELS * step;
        let step = if is_wall(step) { limits.step(&[4, 5, 6], units) } else { step };
        let step = if is_wall(step) { (top - bottom) / 4.0 } else { step };
        Ok(ValueAxis { bottom, top, step: Some(step), base: None, units })
    }

    /// The values with labels, upwards, each with its label.
    pub fn labels(&self) -> Vec<(f64, String)> {
        let span = self.top - self.bottom;
        let labelled = |value: f64| (value, label(value, self.step, span, self.units));
        let mut labels = Vec::new();
        match (self.step, self.base) {
            (Some(step), _) => {
                let start = step * (self.bottom / step - EPSILON).ceil();
                let count = ((self.top - start) / step + EPSILON).floor().clamp(-1.0, MAX_LABELS);
                for index in 0..=count as i64 {
                    // Never "-0".
                    labels.push(labelled(start + index as f64 * step + 0.0));
                }
            }
            (None, base) => {
                let base = base.unwrap_or(10.0);
                let mut value = base.powf((self.bottom.ln() / base.ln() - EPSILON).ceil());
                while value < self.top * (1.0 + EPSILON) && (labels.len() as f64) < MAX_LABELS {
                    labels.push(labelled(value));
                    value *= base;
                }
            }
        }
        labels
    }

    /// How far up the axis a value is: 0 at its bottom, 1 at its top. NaN for a value that a logarithmic axis cannot show.
    pub fn height(&self, value: f64) -> f64 {
        match self.base {
            None => (value - self.bottom) / (self.top - self.bottom),
            Some(_) if value <= 0.0 => f64::NAN,
            Some(_) => (value / self.bottom).ln() / (self.top / self.bottom).ln(),
        }
    }

    /// The height that areas are filled down to: that of zero, or the bottom where there is none.
    pub fn ground(&self) -> f64 {
        if self.base.is_some() { 0.0 } else { self.height(0.0) }
    }
}

/// A distance to the other limit where the data give none.
fn distance(value: f64) -> f64 {
    if value.abs() < 1e-9 { 1.0 } else { 0.1 * value.abs() }
}

impl Limits {
    /// Step 1.
    fn of((min, max): (f64, f64), asked: &AxisOptions) -> Result<Limits, Error> {
        let mut limits = Limits {
            min: asked.min.unwrap_or(min),
            max,
            min_is_fixed: asked.min.is_some(),
            max_is_fixed: false,
            max_is_exact: asked.max.is_some(),
            limit: asked.limit,
        };
        if let Some(Top::At(max)) = asked.max {
            (limits.max, limits.max_is_fixed) = (max, true);
        }
        if let Some(limit) = asked.limit.filter(|limit| *limit < limits.max) {
            (limits.max, limits.max_is_fixed, limits.max_is_exact) = (limit, true, true);
        }
        if limits.min < limits.max {
            return Ok(limits);
        }
        match (limits.min_is_fixed, limits.max_is_fixed) {
            (true, true) => return Err(Error::Axis { min: limits.min, max: limits.max }),
            (true, false) => limits.max = limits.min + distance(limits.min),
            (false, true) => limits.min = limits.max - distance(limits.max),
            (false, false) => {
                let distance = distance(limits.min.abs().max(limits.max.abs()));
                let middle = (limits.min + limits.max) / 2.0;
                (limits.min, limits.max) = (middle - distance, middle + distance);
            }
        }
        Ok(limits)
    }

    /// Step 2: the step that leaves least blank.
    fn step(&self, divisors: &[u32], units: Units) -> f64 {
        let span = self.max - self.min;
        let most = divisors.iter().copied().max().unwrap_or(6).max(1);
        let fewest = f64::from(divisors.iter().copied().min().unwrap_or(4).max(1));
        let least_step = (span / f64::from(most)).max(f64::MIN_POSITIVE);
        let (base, mantissas): (f64, &[f64]) =
            if units == Units::Binary { (2.0, &[1.0]) } else { (10.0, &[1.0, 2.0, 5.0]) };
        let logarithm = if units == Units::Binary { least_step.log2() } else { least_step.log10() };
        let first = (logarithm - EPSILON).floor();
        let mut best: Option<(f64, f64)> = None;
        // Steps grow tenfold or twofold in each round, so few rounds cover any span.
        for round in 0..64 {
            let multiplier = base.powf(first + f64::from(round));
            for step in mantissas.iter().map(|mantissa| mantissa * multiplier) {
                if step < least_step * (1.0 - EPSILON) {
                    continue;
                }
                if best.is_some_and(|(blank, _)| step * fewest >= 2.0 * blank + span) {
                    return best.map_or(step, |(_, step)| step);
                }
                for &divisor in divisors {
                    let bottom = step * (self.min / step + EPSILON).floor();
                    let top = bottom + step * f64::from(divisor);
                    let blank = (top - self.max).max(self.min - bottom);
                    let covers = top >= self.max - EPSILON * step;
                    if covers && best.is_none_or(|(least, _)| blank < least) {
                        best = Some((blank, step));
                    }
                }
            }
        }
        best.map_or(span, |(_, step)| step)
    }

    /// Limits on powers of the base.
    fn logarithmic(&self, base: f64, units: Units) -> Result<ValueAxis, Error> {
        if self.min <= 0.0 || self.max <= 0.0 {
            let expected = "above 0 where logBase is given";
            let (param, given) = if self.min <= 0.0 { ("yMin", self.min) } else { ("yMax", self.max) };
            return Err(Error::option(param, &given.to_string(), expected));
        }
        let power = |value: f64| value.ln() / base.ln();
        let bottom = base.powf(power(self.min).floor());
        let mut top = base.powf(power(self.max).ceil());
        if top <= bottom {
            top = bottom * base;
        }
        Ok(ValueAxis { bottom, top, step: None, base: Some(base), units })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;

    /// The axis of recorded parameters, which are those of a request.
    fn axis(least: f64, most: f64, query: &str) -> Result<ValueAxis, Error> {
        let value = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        let asked = Options::read(&value)?.line;
        ValueAxis::new((least, most), &asked.axis, &asked.divisors, asked.log_base, asked.units)
    }

    #[test]
    fn limits_and_labels_are_those_that_graphite_web_chooses() {
        let mut compared = 0;
        for line in include_str!("../tests/axes.txt").lines() {
            let words: Vec<&str> = line.split('\t').collect();
            let ["value", least, most, query, bottom, top, labels @ ..] = &words[..] else { continue };
            let number = |text: &str| text.parse::<f64>().expect("a recorded number");
            let axis = axis(number(least), number(most), query).unwrap_or_else(|error| panic!("{line}: {error}"));
            let found: Vec<String> = axis.labels().into_iter().map(|(_, label)| label).collect();
            let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * (a.abs() + b.abs());
            // graphite-web adds 1 where there is no span; a span that scales with the values is the same for most.
            assert!(near(axis.bottom, number(bottom)) && near(axis.top, number(top)), "{line}\n{axis:?}");
            assert_eq!(found, *labels, "{line}\n{axis:?}");
            compared += 1;
        }
        assert!(compared > 500, "the recording was not found: {compared}");
    }

    #[test]
    fn limits_that_cannot_be_are_rejected() {
        for query in ["yMin=5&yMax=5", "yMin=5&yMax=1", "yMin=5&yLimit=4", "yMin=-1&logBase=10", "yMax=0&logBase=2"] {
            assert!(axis(1.0, 10.0, query).is_err(), "{query}");
        }
        assert_eq!(
            axis(1.0, 10.0, "yMin=5&yMax=1").unwrap_err().to_string(),
            "a value axis cannot go from 5 to 1: its minimum must be less than its maximum and its limit"
        );
    }

    #[test]
    fn any_limits_make_an_axis_with_few_labels() {
        let extremes = [-1e300, -1e17, -1.0, -1e-300, 0.0, 1e-300, 1.0, 1.0 + f64::EPSILON, 1e17, 1e17 + 16.0, 1e300];
        for least in extremes {
            for most in extremes.into_iter().filter(|most| least <= *most) {
                for query in [
                    "",
                    "yStep=1e-9",
                    "yStep=1e300",
                    "yDivisors=1",
                    "yDivisors=1000",
                    "yUnitSystem=binary",
                    "yLimit=0.5",
                ] {
                    let axis =
                        axis(least, most, query).unwrap_or_else(|error| panic!("{least} {most} {query}: {error}"));
                    assert!(axis.bottom < axis.top, "{least} {most} {query}: {axis:?}");
                    assert!(axis.labels().len() <= 1001, "{least} {most} {query}: {axis:?}");
                    let height = axis.height(least);
                    assert!(height.is_finite(), "{least} {most} {query}: {axis:?}, {height}");
                }
            }
        }
    }
}
