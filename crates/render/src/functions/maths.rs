//! One series to one series of the same times, by a mathematical function of each value.

use crate::{
    Aggregator, Error, Literal, Series,
    argument::{SeriesList, Value, parameters},
    function::{Evaluate, Function},
    functions::combine::power,
    number::{general, repr, round_to_millionths, rounded},
    scope::Scope,
};

const GROUP: &str = "Transform";

pub(super) const FUNCTIONS: &[Function] = &[
    Function::of::<Add>("add", GROUP, "Each value plus a constant."),
    Function::of::<Exp>("exp", GROUP, "The number e raised to the power of each value."),
    IS_NON_NULL,
    IS_NON_NULL.also("isNotNull").extension(),
    LOGARITHM,
    LOGARITHM.also("logarithm").extension(),
    Function::of::<Logit>("logit", GROUP, "The logarithm of x / (1 - x) for each value x; null outside of 0 to 1."),
    Function::of::<MinMax>("minMax", GROUP, "Each value on the way from the series' minimum, 0, to its maximum, 1."),
    Function::of::<OffsetToZero>("offsetToZero", GROUP, "Each value less the series' minimum, which thereby is zero."),
    Function::of::<Pow>("pow", GROUP, "Each value raised to the power of a number; null where the result is undefined."),
    Function::of::<Round>(
        "round",
        GROUP,
        "Each value rounded to so many decimals, halves going to the even neighbour; a negative precision rounds to tens, \
         hundreds and so on.",
    )
    .signature("round(seriesList, precision=None)"),
    Function::of::<ScaleToSeconds>(
        "scaleToSeconds",
        GROUP,
        "Each value as if it had been counted over so many seconds instead of the series' own step, rounded to six \
         decimals.",
    ),
    Function::of::<Sigmoid>("sigmoid", GROUP, "1 / (1 + exp(-x)) for each value x."),
    Function::of::<SquareRoot>("squareRoot", GROUP, "The square root of each value, null below zero."),
];

const IS_NON_NULL: Function =
    Function::of::<IsNonNull>("isNonNull", GROUP, "One where there is a value, zero where there is none.");

const LOGARITHM: Function =
    Function::of::<Log>("log", GROUP, "The logarithm of each value to a base; null at and below zero.");

/// Each series under another name, which later names refer to as well, with other values. `integers` says whether
/// integers of Python stay integers.
fn each(
    list: SeriesList,
    scope: &mut Scope,
    tag: Option<(&str, &str)>,
    integers: impl Fn(&Series) -> bool,
    name: impl Fn(&str) -> String,
    value: impl Fn(f64) -> f64,
) -> Result<Value, Error> {
    let mut changed = Vec::with_capacity(list.0.len());
    for mut series in list.0 {
        scope.spend(series.values.len())?;
        if let Some((tag, text)) = tag {
            series.tags.put(tag, text);
        }
        let name = name(&series.name);
        let integers = integers(&series);
        let values = scope.column(&series.values, 12, |known| value(*known))?;
        changed.push(Series { integers, ..series.with(values).called(name) });
    }
    Ok(changed.into())
}

fn never(_: &Series) -> bool {
    false
}

/// `'%d' % value`, where Python can write that.
fn whole(value: f64, parameter: &str, scope: &Scope) -> Result<String, Error> {
    if !value.is_finite() {
        return Err(scope.reject(format!("{parameter} must be finite, got {}", repr(value))));
    }
    let text = format!("{:.0}", value.trunc());
    Ok(if text == "-0" { "0".to_owned() } else { text })
}

parameters! {
    /// add.
    struct Add {
        series: SeriesList = "seriesList".required();
        constant: f64 = "constant".required();
    }
}

impl Evaluate for Add {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let Add { series, constant } = self;
        let shown = whole(constant, "constant", scope)?;
        let tag = repr(constant);
        let name = |name: &str| format!("add({name},{shown})");
        each(series, scope, Some(("add", &tag)), never, name, |value| value + constant)
    }
}

parameters! {
    /// exp.
    struct Exp {
        series: SeriesList = "seriesList".required();
    }
}

impl Evaluate for Exp {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        // An overflow is null, as in pow.
        let exp = |value: f64| {
            let power = value.exp();
            if power.is_infinite() && value.is_finite() { f64::NAN } else { power }
        };
        each(self.series, scope, Some(("exp", "e")), never, |name| format!("exp({name})"), exp)
    }
}

parameters! {
    /// isNonNull.
    struct IsNonNull {
        series: SeriesList = "seriesList".required();
    }
}

impl Evaluate for IsNonNull {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let known = |value: f64| f64::from(u8::from(!value.is_nan()));
        each(self.series, scope, Some(("isNonNull", "1")), |_| true, |name| format!("isNonNull({name})"), known)
    }
}

parameters! {
    /// log.
    struct Log {
        series: SeriesList = "seriesList".required();
        base: i64 = "base".default(Literal::Integer(10));
    }
}

impl Evaluate for Log {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let base = self.base;
        if base < 2 {
            return Err(scope.reject(format!("base must be at least 2, got {base}")));
        }
        // Python divides two natural logarithms.
        let divisor = (base as f64).ln();
        let log = |value: f64| if value > 0.0 { value.ln() / divisor } else { f64::NAN };
        let (tag, name) = (base.to_string(), |name: &str| format!("log({name}, {base})"));
        each(self.series, scope, Some(("log", &tag)), never, name, log)
    }
}

parameters! {
    /// logit.
    struct Logit {
        series: SeriesList = "seriesList".required();
    }
}

impl Evaluate for Logit {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let logit = |value: f64| {
            let odds = value / (1.0 - value);
            if odds > 0.0 && odds.is_finite() { odds.ln() } else { f64::NAN }
        };
        each(self.series, scope, Some(("logit", "logit")), never, |name| format!("logit({name})"), logit)
    }
}

parameters! {
    /// minMax.
    struct MinMax {
        series: SeriesList = "seriesList".required();
    }
}

impl Evaluate for MinMax {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let mut scaled = Vec::with_capacity(self.series.0.len());
        for series in self.series.0 {
            scope.spend(series.values.len())?;
            let (min, max) = (Aggregator::Min.of(&series.values), Aggregator::Max.of(&series.values));
            let height = max - min;
            let scale = |value: &f64| match height == 0.0 && !value.is_nan() {
                true => 0.0,
                false => (value - min) / height,
            };
            let values = scope.column(&series.values, 3, scale)?;
            let name = format!("minMax({})", series.name);
            scaled.push(series.with(values).called(name));
        }
        Ok(scaled.into())
    }
}

parameters! {
    /// offsetToZero.
    struct OffsetToZero {
        series: SeriesList = "seriesList".required();
    }
}

impl Evaluate for OffsetToZero {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let mut lowered = Vec::with_capacity(self.series.0.len());
        for mut series in self.series.0 {
            scope.spend(series.values.len())?;
            let min = Aggregator::Min.of(&series.values);
            let tag = match (min.is_nan(), series.integers) {
                (true, _) => "None".to_owned(),
                (false, true) => format!("{min:.0}"),
                (false, false) => repr(min),
            };
            series.tags.put("offsetToZero", tag);
            let values = scope.column(&series.values, 2, |value| value - min)?;
            let name = format!("offsetToZero({})", series.name);
            lowered.push(series.with_alike(values).called(name));
        }
        Ok(lowered.into())
    }
}

parameters! {
    /// pow.
    struct Pow {
        series: SeriesList = "seriesList".required();
        factor: f64 = "factor".required();
    }
}

impl Evaluate for Pow {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let Pow { series, factor } = self;
        let tag = repr(factor);
        let name = |name: &str| format!("pow({name},{})", general(factor));
        each(series, scope, Some(("pow", &tag)), never, name, |value| power(value, factor))
    }
}

parameters! {
    /// squareRoot.
    struct SquareRoot {
        series: SeriesList = "seriesList".required();
    }
}

impl Evaluate for SquareRoot {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let name = |name: &str| format!("squareRoot({name})");
        // Python takes the power, which is not to the last bit what the root is; the compiler must not know.
        let half = std::hint::black_box(0.5);
        each(self.series, scope, Some(("squareRoot", "1")), never, name, |value| power(value, half))
    }
}

parameters! {
    /// round.
    struct Round {
        series: SeriesList = "seriesList".required();
        precision: Option<i64> = "precision".documented(Literal::Integer(0));
    }
}

impl Evaluate for Round {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let precision = self.precision.unwrap_or(0);
        let shown = self.precision.map_or(String::new(), |precision| format!(",{}", general(precision as f64)));
        let (tag, name) = (precision.to_string(), |name: &str| format!("round({name}{shown})"));
        let integers = |series: &Series| series.integers;
        each(self.series, scope, Some(("round", &tag)), integers, name, |value| rounded(value, precision))
    }
}

parameters! {
    /// scaleToSeconds.
    struct ScaleToSeconds {
        series: SeriesList = "seriesList".required();
        seconds: f64 = "seconds".required();
    }
}

impl Evaluate for ScaleToSeconds {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let shown = whole(self.seconds, "seconds", scope)?;
        let mut scaled = Vec::with_capacity(self.series.0.len());
        for mut series in self.series.0 {
            scope.spend(series.values.len())?;
            series.tags.put("scaleToSeconds", repr(self.seconds));
            let name = format!("scaleToSeconds({},{shown})", series.name);
            let factor = self.seconds / series.step as f64;
            let values = scope.column(&series.values, 5, |value| round_to_millionths(value * factor))?;
            scaled.push(series.with(values).called(name));
        }
        Ok(scaled.into())
    }
}

parameters! {
    /// sigmoid.
    struct Sigmoid {
        series: SeriesList = "seriesList".required();
    }
}

impl Evaluate for Sigmoid {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let sigmoid = |value: f64| 1.0 / (1.0 + (-value).exp());
        each(self.series, scope, Some(("sigmoid", "sigmoid")), never, |name| format!("sigmoid({name})"), sigmoid)
    }
}
