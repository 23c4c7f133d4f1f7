//! Names with values of the series in them, parts of names, and names in other letters.

use std::fmt::Write;

use base64::{
    Engine as _, alphabet,
    engine::{GeneralPurpose, GeneralPurposeConfig},
};

use crate::{
    Aggregator, Error, Kind, Literal, Series,
    argument::{ParameterPosition, SeriesList, Take, Value, parameters},
    function::{Evaluate, Function},
    number::repr,
    scope::Scope,
};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::of::<CactiStyle>(
        "cactiStyle",
        "Special",
        "Adds the last, largest and smallest value to each name, in columns; system, si or binary, shortens them with \
         prefixes.",
    ),
    Function::of::<LegendValue>(
        "legendValue",
        "Alias",
        "Adds the value of each series by some functions to its name; si or binary at the end shortens the values with \
         prefixes.",
    )
    .signature("legendValue(seriesList, *valueTypes)"),
    LOWER,
    Function::of::<Substr>(
        "substr",
        "Special",
        "The nodes of each name from start up to, but not including, stop; negative ones count from the end.",
    ),
    LOWER.also("toLowerCase").extension(),
    UPPER.also("toUpperCase").extension(),
    UPPER,
    Function::of::<AliasByBase64>(
        "aliasByBase64",
        "Alias",
        "Names each series by its name decoded from Base64, or by its name with one node decoded, the first being 1.",
    )
    .extension(),
];

const LOWER: Function = Function::of::<Case>(
    "lower",
    "Alias",
    "Each name in small letters, or the letters at some positions only; negative ones count from the end.",
)
.preset("upper", Literal::Boolean(false));

const UPPER: Function = Function::of::<Case>(
    "upper",
    "Alias",
    "Each name in capital letters, or the letters at some positions only; negative ones count from the end.",
)
.preset("upper", Literal::Boolean(true));

parameters! {
    /// upper and lower.
    struct Case {
        series: SeriesList = "seriesList".required();
        upper: bool = "upper";
        positions: Vec<i64> = "pos";
    }
}

impl Evaluate for Case {
    fn evaluate(mut self, scope: &mut Scope) -> Result<Value, Error> {
        for series in &mut self.series.0 {
            scope.check()?;
            if self.positions.is_empty() {
                let name = if self.upper { series.name.to_uppercase() } else { series.name.to_lowercase() };
                series.name = name.into();
                continue;
            }
            let mut letters: Vec<String> = series.name.chars().map(String::from).collect();
            for position in &self.positions {
                let from_end = if *position < 0 { letters.len() as i64 } else { 0 };
                let at = position.checked_add(from_end).and_then(|at| usize::try_from(at).ok());
                if let Some(letter) = at.and_then(|at| letters.get_mut(at)) {
                    *letter = if self.upper { letter.to_uppercase() } else { letter.to_lowercase() };
                }
            }
            series.name = letters.concat().into();
        }
        Ok(self.series.0.into())
    }
}

/// A position in a name, negative from its end.
struct Position(i64);

impl Take for Position {
    const KIND: Kind = Kind::Node;

    fn one(value: Value, position: &ParameterPosition) -> Result<Self, Error> {
        i64::one(value, position).map(Position)
    }
}

parameters! {
    /// substr.
    struct Substr {
        series: SeriesList = "seriesList".required();
        start: Position = "start".default(Literal::Integer(0));
        stop: Position = "stop".default(Literal::Integer(0));
    }
}

impl Evaluate for Substr {
    fn evaluate(mut self, _: &mut Scope) -> Result<Value, Error> {
        for series in &mut self.series.0 {
            series.name = nodes(&series.name, self.start.0, self.stop.0).into();
        }
        Ok(self.series.0.into())
    }
}

/// Some nodes of the text inside the innermost left and the first right bracket, up to its first comma.
fn nodes(name: &str, start: i64, stop: i64) -> String {
    let left = name.rfind('(').map_or(0, |at| at + 1);
    let right = name.find(')').unwrap_or(name.len());
    let nodes: Vec<&str> = name.get(left..right).unwrap_or_default().split('.').collect();
    let count = nodes.len() as i64;
    let place = |at: i64| (if at < 0 { at.saturating_add(count) } else { at }).clamp(0, count) as usize;
    let (start, stop) = (place(start), if stop == 0 { nodes.len() } else { place(stop) });
    let joined = nodes.get(start..stop).unwrap_or_default().join(".");
    // The comma goes last: a dot behind it counts.
    joined.split(',').next().unwrap_or_default().to_owned()
}

/// Prefixes and what they stand for, the largest first.
type Units = [(&'static str, f64); 5];

const SI: Units = [("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)];
const BINARY: Units = [
    ("Pi", 1_125_899_906_842_624.0),
    ("Ti", 1_099_511_627_776.0),
    ("Gi", 1_073_741_824.0),
    ("Mi", 1_048_576.0),
    ("Ki", 1024.0),
];

/// A value divided by the largest unit that it reaches, and that unit's prefix. A whole number up to
/// rounding becomes one.
fn in_units(value: f64, units: &Units) -> (f64, &'static str) {
    let (divided, prefix) = match units.iter().find(|(_, size)| value.abs() >= *size) {
        Some((prefix, size)) => (value / size, *prefix),
        None => (value, ""),
    };
    let nearly_whole = divided - divided.floor() < 1e-11 && value > 1.0;
    (if nearly_whole { divided.floor() } else { divided }, prefix)
}

/// Text so many letters wide at least. A format's own width ends at 65,535, and names do not.
fn padded(text: &str, width: usize) -> String {
    let missing = width.saturating_sub(text.chars().count());
    let mut padded = text.to_owned();
    padded.extend(std::iter::repeat_n(' ', missing));
    padded
}

/// The number of points that take as much memory.
fn bytes_as_points(bytes: usize) -> usize {
    bytes.div_ceil(size_of::<f64>())
}

/// `'%.2f' % value` of Python.
fn two_decimals(value: f64) -> String {
    if value.is_finite() { format!("{value:.2}") } else { repr(value) }
}

parameters! {
    /// legendValue.
    struct LegendValue {
        series: SeriesList = "seriesList".required();
        types: Vec<ValueType> = "valuesTypes".options(VALUE_TYPES);
    }
}

/// The name of an aggregator, or of a system of units. Another name is valid, and its value shown as unknown.
struct ValueType(String);

impl Take for ValueType {
    const KIND: Kind = Kind::String;

    fn one(value: Value, position: &ParameterPosition) -> Result<Self, Error> {
        let problem = "must be the name of an aggregation function, si or binary, got series";
        value.text().map(ValueType).ok_or_else(|| position.problem(problem.to_owned()))
    }
}

macro_rules! texts {
    ($($text:literal)*) => { &[$(Literal::Text($text)),*] };
}

const VALUE_TYPES: &[Literal] = texts!(
    "average" "averageSeries" "avg" "avgSeries" "avg_zero" "avg_zeroSeries" "binary" "count" "countSeries" "current"
    "currentSeries" "diff" "diffSeries" "last" "lastSeries" "max" "maxSeries" "median" "medianSeries" "min" "minSeries"
    "multiply" "multiplySeries" "range" "rangeOf" "rangeOfSeries" "rangeSeries" "si" "stddev" "stddevSeries" "sum"
    "sumSeries" "total" "totalSeries"
);

impl Evaluate for LegendValue {
    fn evaluate(mut self, scope: &mut Scope) -> Result<Value, Error> {
        let units = match self.types.last().map(|last| last.0.as_str()) {
            Some("si") => Some(SI),
            Some("binary") => Some(BINARY),
            Some(_) => None,
            None => return Err(scope.reject("valuesTypes is missing; 'last' or 'avg' would do")),
        };
        if units.is_some() {
            self.types.pop();
        }
        for series in &mut self.series.0 {
            scope.check()?;
            let mut name = series.name.to_string();
            for ValueType(func) in &self.types {
                scope.spend(bytes_as_points(func.len() + 35))?;
                let value = value_of(series, func);
                match &units {
                    None => {
                        let text = match value {
                            None => "(?)".to_owned(),
                            Some((value, _)) if value.is_nan() => "None".to_owned(),
                            Some((value, true)) => format!("{value:.0}"),
                            Some((value, false)) => repr(value),
                        };
                        let _ = write!(name, " ({func}: {text})");
                    }
                    Some(units) => {
                        let text = match value {
                            None => "(?)".to_owned(),
                            Some((value, _)) if value.is_nan() => "None".to_owned(),
                            Some((value, _)) => {
                                let (value, prefix) = in_units(value, units);
                                two_decimals(value) + prefix
                            }
                        };
                        name = format!("{name:<20}{func:<5}{text:<10}");
                    }
                }
            }
            series.name = name.into();
        }
        Ok(self.series.0.into())
    }
}

/// The value of a series by a function, and whether Python's answer is an integer; `None` for an unknown function. A
/// name with `Series` at its end is unknown here, though `/functions` offers it.
fn value_of(series: &Series, func: &str) -> Option<(f64, bool)> {
    let aggregator = Aggregator::named(func)?;
    Some((aggregator.of(&series.values), aggregator.answers_integer(&series.values, series.integers)))
}

const SYSTEMS: &[Literal] = texts!("binary" "si");

parameters! {
    /// cactiStyle.
    struct CactiStyle {
        series: SeriesList = "seriesList".required();
        system: Option<String> = "system".options(SYSTEMS);
        units: Option<String> = "units";
    }
}

impl CactiStyle {
    fn text(&self, value: f64) -> String {
        let units = self.units.as_deref().filter(|units| !units.is_empty());
        let scaled = match self.system.as_deref() {
            Some("si") => Some(in_units(value, &SI)),
            Some(_) => Some(in_units(value, &BINARY)),
            None => None,
        };
        match (scaled, units) {
            (Some((value, prefix)), Some(units)) => format!("{} {prefix}{units}", two_decimals(value)),
            (Some((value, prefix)), None) => two_decimals(value) + prefix,
            (None, Some(units)) => format!("{} {units}", two_decimals(value)),
            (None, None) => two_decimals(value),
        }
    }
}

/// Steps of writing a value or a name.
const STEPS_PER_TEXT: usize = 500;

impl Evaluate for CactiStyle {
    fn evaluate(mut self, scope: &mut Scope) -> Result<Value, Error> {
        scope.check()?;
        let list = std::mem::take(&mut self.series.0);
        // One long name makes all of them long.
        let name_width = list.iter().map(|series| series.name.chars().count()).max().unwrap_or(0);
        scope.spend(bytes_as_points(name_width.saturating_mul(list.len())))?;
        let column = |aggregator: Aggregator| {
            let value = |series: &Series| {
                scope.check_after(2 * series.values.len() + STEPS_PER_TEXT)?;
                Ok(aggregator.of(&series.values))
            };
            let values = list.iter().map(value).collect::<Result<Vec<f64>, Error>>()?;
            // A column is as wide as its widest whole number, three standing in for nothing, and three more.
            let width = |value: &f64| {
                let shown = if value.is_nan() || *value == 0.0 { 3.0 } else { value.trunc() };
                // Negative zero is not a whole number of Python.
                self.text(shown + 0.0).chars().count()
            };
            let widest = values.iter().map(width).max().unwrap_or(0) + 3;
            let texts = values.iter().map(|value| if value.is_nan() { "nan".to_owned() } else { self.text(*value) });
            let padded = |text: String| {
                scope.check_after(STEPS_PER_TEXT)?;
                Ok(padded(&text, widest))
            };
            texts.map(padded).collect::<Result<Vec<String>, Error>>()
        };
        let (lasts, maxima, minima) = (column(Aggregator::Last)?, column(Aggregator::Max)?, column(Aggregator::Min)?);
        let mut named = Vec::with_capacity(list.len());
        for (mut series, ((last, max), min)) in list.into_iter().zip(lasts.iter().zip(&maxima).zip(&minima)) {
            scope.check_after(STEPS_PER_TEXT)?;
            let name = padded(&series.name, name_width);
            series.name = format!("{name} Current:{last} Max:{max} Min:{min} ").into();
            named.push(series);
        }
        Ok(named.into())
    }
}

parameters! {
    /// aliasByBase64.
    struct AliasByBase64 {
        series: SeriesList = "seriesList".required();
        node: Option<Position> = "nodeNum";
    }
}

impl Evaluate for AliasByBase64 {
    fn evaluate(mut self, scope: &mut Scope) -> Result<Value, Error> {
        for series in &mut self.series.0 {
            scope.check()?;
            let Some(Position(node)) = self.node else {
                if let Some(name) = from_base64(&series.name) {
                    series.name = name.into();
                }
                continue;
            };
            let metric = series.tags.get("name").unwrap_or_default();
            let mut nodes: Vec<String> = metric.split('.').map(str::to_owned).collect();
            let at = usize::try_from(node - 1).unwrap_or(usize::MAX);
            if let Some(node) = nodes.get_mut(at)
                && let Some(decoded) = from_base64(node)
            {
                *node = decoded;
                series.name = nodes.join(".").into();
            }
        }
        Ok(self.series.0.into())
    }
}

/// RFC 4648 with padding. Bits of the last digit that no byte has may be anything, as in Python.
const BASE64: GeneralPurpose =
    GeneralPurpose::new(&alphabet::STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// The text that a Base64 text encodes; `None` where the text is invalid.
fn from_base64(text: &str) -> Option<String> {
    String::from_utf8(BASE64.decode(text).ok()?).ok()
}
