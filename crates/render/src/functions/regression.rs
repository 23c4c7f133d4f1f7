//! The straight line that is nearest to a series.

use crate::{
    Error, Series, Span,
    argument::{Date, SeriesList, Value, parameters},
    function::{FirstArgument, Function, Inputs, Needs, Reach, Reaching},
    scope::{CallContext, Scope},
};

pub(super) const FUNCTIONS: &[Function] = &[Function::reaching::<LinearRegression>(
    "linearRegression",
    "Calculate",
    "The line of least squares through each series. It fits the values between startSourceAt and endSourceAt, \
     given as from and until are, or those of the graph.",
)];

parameters! {
    /// linearRegression.
    struct LinearRegression {
        series: SeriesList = "seriesList".required();
        start: Option<Date> = "startSourceAt";
        end: Option<Date> = "endSourceAt";
    }
}

impl LinearRegression {
    fn source(&self, call: &CallContext) -> Result<Span, Error> {
        let time = |date: &Option<Date>, otherwise: i64, parameter: &str| match date {
            Some(date) => call.time(date, parameter),
            None => Ok(otherwise),
        };
        let from = time(&self.start, call.span.from, "startSourceAt")?;
        let until = time(&self.end, call.span.until, "endSourceAt")?;
        if until < from {
            return Err(call.reject(format!("startSourceAt must not be after endSourceAt, got {from} and {until}")));
        }
        Ok(Span { from, until })
    }
}

impl Reaching for LinearRegression {
    fn reach(&self, call: &CallContext, _: &FirstArgument) -> Result<Reach, Error> {
        Ok(Reach::Also(Needs::spans(vec![self.source(call)?])))
    }

    fn evaluate(self, inputs: Inputs, scope: &mut Scope) -> Result<Value, Error> {
        let Some((span, sources)) = inputs.spans.into_iter().next() else { return Ok(Vec::new().into()) };
        let mut lines = Vec::with_capacity(sources.len());
        for (source, mut series) in sources.iter().zip(self.series.0) {
            let points = series.values.len();
            scope.spend(points)?;
            let Some((slope, offset)) = least_squares(source) else { continue };
            let Span { from, until } = span;
            series.tags.put("linearRegressions", format!("{from}, {until}"));
            let name = format!("linearRegression({}, {from}, {until})", series.name);
            let (start, end, step) = (series.start, series.end, series.step);
            let values = (0..points as i64).map(|i| offset + (start + i * step) as f64 * slope).collect();
            let line = Series::computed(&name, start, end, step, values);
            lines.push(Series { tags: series.tags, x_files_factor: series.x_files_factor, ..line });
        }
        Ok(lines.into())
    }
}

/// Growth a second, and the value at time zero, of the line of least squares; `None` where there are fewer than two
/// values. Sums of positions are integers, as in Python.
fn least_squares(series: &Series) -> Option<(f64, f64)> {
    let (mut count, mut places, mut squares) = (0_i128, 0_i128, 0_i128);
    let (mut sum, mut products) = (0.0, 0.0);
    for (i, value) in series.values.iter().enumerate() {
        if value.is_nan() {
            continue;
        }
        let place = i as i128;
        count += 1;
        places += place;
        squares += place * place;
        sum += value;
        products += i as f64 * value;
    }
    let denominator = (count * squares - places * places) as f64;
    if denominator == 0.0 {
        return None;
    }
    let (count, places, squares) = (count as f64, places as f64, squares as f64);
    let slope = (count * products - places * sum) / denominator / series.step as f64;
    let offset = (squares * sum - products * places) / denominator - slope * series.start as f64;
    Some((slope, offset))
}
