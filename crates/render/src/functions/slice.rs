//! Series cut to a part of their time.

use crate::{
    Error, Literal, Series,
    argument::{Date, SeriesList, Value, parameters},
    function::{Evaluate, Function},
    scope::Scope,
};

pub(super) const FUNCTIONS: &[Function] = &[Function::of::<TimeSlice>(
    "timeSlice",
    "Transform",
    "The values from startSliceAt to endSliceAt, both inclusive and given as from and until are; null before and after.",
)];

parameters! {
    /// timeSlice.
    struct TimeSlice {
        series: SeriesList = "seriesList".required();
        start: Date = "startSliceAt".required();
        end: Date = "endSliceAt".default(Literal::Text("now"));
    }
}

impl Evaluate for TimeSlice {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let start = scope.time(&self.start, "startSliceAt")?;
        let end = scope.time(&self.end, "endSliceAt")?;
        let mut slices = Vec::with_capacity(self.series.0.len());
        for mut series in self.series.0 {
            scope.check()?;
            series.tags.put("timeSliceStart", start.to_string());
            series.tags.put("timeSliceEnd", end.to_string());
            series.name = format!("timeSlice({}, {start}, {end})", series.name).into();
            // graphite-web counts from the beginning of the request, not from that of the series.
            let (from, step) = (scope.span().from, series.step);
            let inside = |i: usize| (start..=end).contains(&(from + i as i64 * step));
            let cut = |(i, value): (usize, &f64)| if inside(i) { *value } else { f64::NAN };
            let values = series.values.iter().enumerate().map(cut).collect();
            slices.push(Series::with_alike(series, values));
        }
        Ok(slices.into())
    }
}
