//! Series of one value.

use crate::{
    Error, Series,
    argument::{Date, Value, parameters},
    function::{Evaluate, Function},
    number::repr,
    scope::Scope,
};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::of::<ConstantLine>("constantLine", "Special", "A line at a value, of three points."),
    Function::of::<Threshold>("threshold", "Graph", "A line at a value, with a label and a colour of its own."),
    Function::of::<VerticalLine>(
        "verticalLine",
        "Graph",
        "A line from bottom to top at a time, which is given as from and until are, with a label and a colour of its own.",
    ),
];

parameters! {
    /// constantLine.
    struct ConstantLine {
        value: f64 = "value".required();
    }
}

impl Evaluate for ConstantLine {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        Ok(vec![line(self.value, &repr(self.value), scope)].into())
    }
}

parameters! {
    /// threshold.
    struct Threshold {
        value: f64 = "value".required();
        label: Option<String> = "label";
        color: Option<String> = "color";
    }
}

impl Evaluate for Threshold {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let mut line = line(self.value, &repr(self.value), scope);
        if let Some(label) = self.label.filter(|label| !label.is_empty()) {
            line.name = label.into();
        }
        set_color(&mut line, self.color);
        Ok(vec![line].into())
    }
}

fn set_color(series: &mut Series, color: Option<String>) {
    if let Some(color) = color.filter(|color| !color.is_empty()) {
        series.graph_options_mut().color = Some(color);
    }
}

parameters! {
    /// verticalLine.
    struct VerticalLine {
        time: Date = "ts".required();
        label: Option<String> = "label";
        color: Option<String> = "color";
    }
}

impl Evaluate for VerticalLine {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let time = scope.time(&self.time, "ts")?;
        if time < scope.span().from {
            return Err(scope.reject(format!("timestamp {time} exists before start of range")));
        }
        if scope.span().until < time {
            return Err(scope.reject(format!("timestamp {time} exists after end of range")));
        }
        // The line ends at its start, and yet has two values.
        let line = Series::computed(&self.label.unwrap_or_default(), time, time, 1, vec![1.0; 2]);
        let mut line = Series { x_files_factor: scope.x_files_factor, ..line };
        line.graph_options_mut().infinite = true;
        set_color(&mut line, self.color);
        Ok(vec![line].into())
    }
}

/// Three points: at both ends of the span and in its middle. The last is at the end of the series, where
/// other series have no point.
pub(super) fn line(value: f64, text: &str, scope: &Scope) -> Series {
    let (start, end) = (scope.span().from, scope.span().until);
    // A span of one second has no middle; graphite-web fails on it.
    let step = ((end - start) / 2).max(1);
    let line = Series::computed(text, start, end, step, vec![value; 3]);
    Series { path_expression: format!("constantLine({text})").into(), x_files_factor: scope.x_files_factor, ..line }
}
