//! Series of one value.

use crate::{
    Error, Series,
    argument::{Value, parameters},
    evaluate::Scope,
    functions::{Evaluate, Function},
    number::repr,
};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::of::<ConstantLine>("constantLine", "Special", "A line at a value, of three points."),
    Function::of::<Threshold>("threshold", "Graph", "A line at a value, with a label and a colour of its own."),
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
        // For graphs only.
        _color: Option<String> = "color";
    }
}

impl Evaluate for Threshold {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let mut line = line(self.value, &repr(self.value), scope);
        if let Some(label) = self.label.filter(|label| !label.is_empty()) {
            line.name = label.into();
        }
        Ok(vec![line].into())
    }
}

/// Three points: at both ends of the span and in its middle. The last lies at the end of the series, where
/// others have none.
pub(super) fn line(value: f64, text: &str, scope: &Scope) -> Series {
    let (start, end) = (scope.span.from, scope.span.until);
    // A span of one second has no middle; graphite-web fails on it.
    let step = ((end - start) / 2).max(1);
    let line = Series::computed(text, start, end, step, vec![value; 3]);
    Series { path_expression: format!("constantLine({text})").into(), x_files_factor: scope.x_files_factor, ..line }
}
