//! Service level objectives: the share of values that meet one.

use crate::{
    Error, Literal, Series,
    argument::{Interval, SeriesList, Value, parameters},
    function::{FirstArgument, Function, Inputs, Needs, Reach, Reaching},
    number::general,
    scope::{CallContext, Scope},
};

const GROUP: &str = "Transform";

pub(super) const FUNCTIONS: &[Function] = &[
    Function::reaching::<Slo>(
        "slo",
        GROUP,
        "The share of the known values, 0 to 1, that compares with a value by method, in each interval; where the graph is \
         shorter than the interval, in the interval that ends with it.",
    )
    .extension(),
    Function::reaching::<SloErrorBudget>(
        "sloErrorBudget",
        GROUP,
        "How many seconds of each interval may still go wrong: the share of values that meet the objective, less the \
         objective, times the interval. Negative where the objective is missed.",
    )
    .extension(),
];

const METHODS: &[Literal] =
    &[Literal::Text("above"), Literal::Text("aboveOrEqual"), Literal::Text("below"), Literal::Text("belowOrEqual")];

parameters! {
    /// slo.
    struct Slo {
        series: SeriesList = "seriesList".required();
        interval: Interval = "interval".required();
        method: String = "method".required().options(METHODS);
        value: f64 = "value".required();
    }
}

parameters! {
    /// sloErrorBudget.
    struct SloErrorBudget {
        series: SeriesList = "seriesList".required();
        interval: Interval = "interval".required();
        method: String = "method".required().options(METHODS);
        value: f64 = "value".required();
        objective: f64 = "objective".required();
    }
}

impl Reaching for Slo {
    fn reach(&self, call: &CallContext, _: &FirstArgument) -> Result<Reach, Error> {
        let Slo { interval, method, value, .. } = self;
        Objective { interval, method, value: *value, objective: None }.reach(call)
    }

    fn evaluate(self, inputs: Inputs, scope: &mut Scope) -> Result<Value, Error> {
        let Slo { series, interval, method, value } = self;
        Objective { interval: &interval, method: &method, value, objective: None }.evaluate(series.0, inputs, scope)
    }
}

impl Reaching for SloErrorBudget {
    fn reach(&self, call: &CallContext, _: &FirstArgument) -> Result<Reach, Error> {
        let SloErrorBudget { interval, method, value, objective, .. } = self;
        Objective { interval, method, value: *value, objective: Some(*objective) }.reach(call)
    }

    fn evaluate(self, inputs: Inputs, scope: &mut Scope) -> Result<Value, Error> {
        let SloErrorBudget { series, interval, method, value, objective } = self;
        let objective = Some(objective);
        Objective { interval: &interval, method: &method, value, objective }.evaluate(series.0, inputs, scope)
    }
}

struct Objective<'a> {
    interval: &'a Interval,
    method: &'a str,
    value: f64,
    objective: Option<f64>,
}

impl Objective<'_> {
    /// An interval longer than the graph needs a longer span.
    fn reach(&self, call: &CallContext) -> Result<Reach, Error> {
        let missing = self.interval.seconds.saturating_sub(call.span.until - call.span.from);
        let longer = (missing > 0).then(|| call.moved(-missing, 0, "interval")).transpose()?;
        Ok(Reach::Also(Needs::spans(longer.into_iter().collect())))
    }

    fn met(&self, value: f64) -> bool {
        match self.method {
            "above" => value > self.value,
            "aboveOrEqual" => value >= self.value,
            "below" => value < self.value,
            _ => value <= self.value,
        }
    }

    fn evaluate(&self, list: Vec<Series>, inputs: Inputs, scope: &mut Scope) -> Result<Value, Error> {
        let interval = self.interval.seconds;
        if interval <= 0 {
            return Err(scope.reject(format!("interval must be longer than nothing, got '{}'", self.interval.text)));
        }
        let longer = inputs.spans.into_iter().next().map(|(_, longer)| longer);
        let budget = self.objective.map_or(String::new(), |objective| format!(", {}", general(objective)));
        let suffix = format!("{}, {}, {}{budget}", self.interval.text, self.method, general(self.value));
        let mut met = Vec::with_capacity(list.len());
        for series in list {
            let name = format!("{}({}, {suffix})", scope.function(), series.name);
            let all = longer.as_ref().map_or(Some(&series), |longer| longer.iter().find(|all| all.name == series.name));
            let values = match all {
                Some(all) if series.step <= interval => {
                    scope.spend(usize::try_from((all.end - all.start) / interval).unwrap_or(0))?;
                    self.shares(all)
                }
                // An interval shorter than a step has no values to count.
                _ => {
                    let count = usize::try_from((series.end - series.start + interval - 1) / interval).unwrap_or(0);
                    scope.spend(count)?;
                    vec![f64::NAN; count]
                }
            };
            let end = series.start + interval * values.len() as i64;
            met.push(Series { step: interval, end, ..series.with(values).called(name) });
        }
        Ok(met.into())
    }

    /// The value of each interval; unknown where it has no known value.
    fn shares(&self, series: &Series) -> Vec<f64> {
        let interval = self.interval.seconds;
        let number = |i: usize| i as i64 * series.step / interval;
        let places: Vec<usize> = (0..series.values.len()).collect();
        let share = |places: &[usize]| {
            let known = || places.iter().filter_map(|i| series.values.get(*i)).filter(|value| !value.is_nan());
            let share = known().filter(|value| self.met(**value)).count() as f64 / known().count() as f64;
            let Some(objective) = self.objective else { return share };
            // The last interval may be cut off; then only its part counts.
            let (first, last) = (places.first().copied().unwrap_or(0), places.last().copied().unwrap_or(0));
            let whole = (last as i64 + 1) * series.step >= (number(first) + 1) * interval;
            let there = (last + 1 - first) as i64 * series.step;
            (share - objective) * if whole { interval } else { there } as f64
        };
        places.chunk_by(|a, b| number(*a) == number(*b)).map(share).collect()
    }
}
