//! How a series is drawn. Numbers stay as they are, except in a stack, where each series stands on those before it.

use crate::{
    Error, Literal,
    argument::{SeriesList, Value, parameters},
    function::{Evaluate, Function},
    scope::Scope,
};

const GROUP: &str = "Graph";

pub(super) const FUNCTIONS: &[Function] = &[
    Function::of::<Alpha>("alpha", GROUP, "Draws each series so opaque, 0 to 1."),
    Function::of::<AreaBetween>(
        "areaBetween",
        GROUP,
        "Draws the area between exactly two series, the lower one first.",
    ),
    Function::of::<Color>(
        "color",
        GROUP,
        "Draws each series in a colour: a name such as red, or digits such as 00ff00.",
    ),
    Function::of::<Dashed>("dashed", GROUP, "Draws each series as a line of dashes, so many pixels long."),
    Function::of::<DrawAsInfinite>(
        "drawAsInfinite",
        GROUP,
        "Draws each value above zero as a line from the bottom to the top of the graph: for deployments and other events.",
    ),
    Function::of::<LineWidth>("lineWidth", GROUP, "Draws each series with a line so many pixels wide."),
    Function::of::<SecondYAxis>("secondYAxis", GROUP, "Draws each series against the axis on the right."),
    Function::of::<Stacked>(
        "stacked",
        GROUP,
        "Draws series upon each other, each on the sum of those before it. Stacks of several names are apart.",
    )
    .signature("stacked(seriesLists, stackName='__DEFAULT__')"),
];

parameters! {
    /// alpha.
    struct Alpha {
        series: SeriesList = "seriesList".required();
        alpha: f64 = "alpha".required();
    }
}

impl Evaluate for Alpha {
    fn evaluate(mut self, _: &mut Scope) -> Result<Value, Error> {
        for series in &mut self.series.0 {
            series.graph_options_mut().alpha = Some(self.alpha);
        }
        Ok(self.series.0.into())
    }
}

parameters! {
    /// areaBetween.
    struct AreaBetween {
        series: SeriesList = "seriesList".required();
    }
}

impl Evaluate for AreaBetween {
    fn evaluate(mut self, scope: &mut Scope) -> Result<Value, Error> {
        let given = self.series.0.len();
        let [lower, upper] = self.series.0.as_mut_slice() else {
            return Err(scope.reject(format!("seriesList must be exactly two series, got {given}")));
        };
        let lower_options = lower.graph_options_mut();
        (lower_options.stacked, lower_options.invisible) = (true, true);
        upper.graph_options_mut().stacked = true;
        upper.tags.put("areaBetween", "1");
        lower.tags = upper.tags.clone();
        upper.name = format!("areaBetween({})", upper.path_expression).into();
        lower.name = upper.name.clone();
        Ok(self.series.0.into())
    }
}

parameters! {
    /// color.
    struct Color {
        series: SeriesList = "seriesList".required();
        color: String = "theColor".required();
    }
}

impl Evaluate for Color {
    fn evaluate(mut self, _: &mut Scope) -> Result<Value, Error> {
        for series in &mut self.series.0 {
            series.graph_options_mut().color = Some(self.color.clone());
        }
        Ok(self.series.0.into())
    }
}

parameters! {
    /// dashed.
    struct Dashed {
        series: SeriesList = "seriesList".required();
        length: i64 = "dashLength".default(Literal::Integer(5));
    }
}

impl Evaluate for Dashed {
    fn evaluate(mut self, _: &mut Scope) -> Result<Value, Error> {
        let shown = crate::general(self.length as f64);
        for series in &mut self.series.0 {
            series.tags.put("dashed", self.length.to_string());
            series.name = format!("dashed({}, {shown})", series.name).into();
            series.graph_options_mut().dashed = Some(self.length as f64);
        }
        Ok(self.series.0.into())
    }
}

parameters! {
    /// drawAsInfinite.
    struct DrawAsInfinite {
        series: SeriesList = "seriesList".required();
    }
}

impl Evaluate for DrawAsInfinite {
    fn evaluate(mut self, _: &mut Scope) -> Result<Value, Error> {
        for series in &mut self.series.0 {
            series.graph_options_mut().infinite = true;
            series.tags.put("drawAsInfinite", "1");
            series.name = format!("drawAsInfinite({})", series.name).into();
        }
        Ok(self.series.0.into())
    }
}

parameters! {
    /// lineWidth.
    struct LineWidth {
        series: SeriesList = "seriesList".required();
        width: f64 = "width".required();
    }
}

impl Evaluate for LineWidth {
    fn evaluate(mut self, _: &mut Scope) -> Result<Value, Error> {
        for series in &mut self.series.0 {
            series.graph_options_mut().line_width = Some(self.width);
        }
        Ok(self.series.0.into())
    }
}

parameters! {
    /// secondYAxis.
    struct SecondYAxis {
        series: SeriesList = "seriesList".required();
    }
}

impl Evaluate for SecondYAxis {
    fn evaluate(mut self, _: &mut Scope) -> Result<Value, Error> {
        for series in &mut self.series.0 {
            series.graph_options_mut().second_axis = true;
            series.tags.put("secondYAxis", "1");
            series.name = format!("secondYAxis({})", series.name).into();
        }
        Ok(self.series.0.into())
    }
}

/// The stack of series without a name for it.
const DEFAULT_STACK: &str = "__DEFAULT__";

parameters! {
    /// stacked.
    struct Stacked {
        series: SeriesList = "seriesList".required();
        stack: String = "stack".fallback(Literal::Text(DEFAULT_STACK));
    }
}

impl Evaluate for Stacked {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let mut total = scope.stacks.remove(&self.stack).unwrap_or_default();
        let mut stacked = Vec::with_capacity(self.series.0.len());
        for mut series in self.series.0 {
            scope.spend(series.values.len())?;
            if total.len() < series.values.len() {
                total.resize(series.values.len(), 0.0);
            }
            let mut stand = |(total, value): (&mut f64, &f64)| {
                if value.is_nan() {
                    return f64::NAN;
                }
                *total += value;
                *total
            };
            let values = total.iter_mut().zip(series.values.iter()).map(&mut stand).collect();
            let name = match self.stack == DEFAULT_STACK {
                true => {
                    series.tags.put("stacked", DEFAULT_STACK);
                    format!("stacked({})", series.name)
                }
                false => series.name.to_string(),
            };
            series.graph_options_mut().stacked = true;
            stacked.push(series.with_alike(values).called(name));
        }
        scope.stacks.insert(self.stack, total);
        Ok(stacked.into())
    }
}
