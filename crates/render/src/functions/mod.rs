//! The table of functions. Each family has a file of its own; nothing outside of them names a function.
//!
//! A function is a struct whose fields are its parameters ([`parameters!`](crate::argument::parameters)) and
//! whose [`Evaluate`] makes series of them. A name is a row that points at it. Argument checks, messages,
//! planning and `/functions` come from the two.

use std::{collections::HashMap, sync::LazyLock};

use jiff::tz::TimeZone;

use crate::{
    Error, Literal, Parameter, Span,
    argument::{Arguments, Date, Parameters, Value},
    evaluate::Scope,
    time::parse_at_time,
};

mod alias;
mod baseline;
mod buckets;
mod combine;
mod consolidation;
mod constant;
mod deviation;
mod event;
mod exponential;
mod filter;
mod forecast;
mod fourier;
mod gaps;
mod generate;
mod graph;
mod legend;
mod lists;
mod maths;
mod moving;
mod node;
mod outlier;
mod pairs;
mod percent;
mod query;
mod regression;
mod release;
mod set;
mod shift;
mod slice;
mod slo;
mod sort;
mod statistics;
mod summarize;
mod tag;
mod transform;
mod weighted;
mod wildcards;

/// Every function, by family. A new file is added here and nowhere else.
const FAMILIES: &[&[Function]] = &[
    alias::FUNCTIONS,
    baseline::FUNCTIONS,
    buckets::FUNCTIONS,
    combine::FUNCTIONS,
    consolidation::FUNCTIONS,
    constant::FUNCTIONS,
    deviation::FUNCTIONS,
    event::FUNCTIONS,
    exponential::FUNCTIONS,
    filter::FUNCTIONS,
    forecast::FUNCTIONS,
    fourier::FUNCTIONS,
    gaps::FUNCTIONS,
    generate::FUNCTIONS,
    graph::FUNCTIONS,
    legend::FUNCTIONS,
    lists::FUNCTIONS,
    maths::FUNCTIONS,
    moving::FUNCTIONS,
    node::FUNCTIONS,
    outlier::FUNCTIONS,
    pairs::FUNCTIONS,
    percent::FUNCTIONS,
    release::FUNCTIONS,
    query::FUNCTIONS,
    regression::FUNCTIONS,
    set::FUNCTIONS,
    shift::FUNCTIONS,
    slo::FUNCTIONS,
    slice::FUNCTIONS,
    sort::FUNCTIONS,
    statistics::FUNCTIONS,
    summarize::FUNCTIONS,
    tag::FUNCTIONS,
    transform::FUNCTIONS,
    weighted::FUNCTIONS,
    wildcards::FUNCTIONS,
];

/// A row of the table: a name, and the function it points at.
pub struct Function {
    /// The name in targets.
    pub name: &'static str,
    /// Where an editor lists it.
    pub group: &'static str,
    /// What it does, in a few sentences.
    pub description: &'static str,
    /// All parameters in the order of the struct's fields, presets included; see [`Function::shown`].
    pub parameters: &'static [Parameter],
    /// Whether groupByNode and its like take it as a callback.
    pub aggregator: bool,
    /// Whether graphite-web has no function of this name; then carbonapi has.
    pub extension: bool,
    presets: [Option<(&'static str, Literal)>; 2],
    signature: Option<&'static str>,
    strict: bool,
    /// Whether it evaluates its first argument over other spans than the one asked for.
    pub(crate) reaches: bool,
    reach: fn(Arguments, &Asked) -> Result<Reach, Error>,
    evaluate: fn(Arguments, &mut Scope) -> Result<Value, Error>,
}

/// What a function knows of its first argument before that is evaluated.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// The function, as the request calls it.
    pub(crate) function: &'static str,
    /// The span that the function is asked for.
    pub(crate) span: Span,
    /// Whether the argument is nothing but a fetch. Then it has the same series over a longer span.
    pub(crate) fetched: bool,
    /// The largest step that fetch will return, where somebody knows.
    pub(crate) largest_step: Option<i64>,
    /// The request's.
    pub(crate) time_zone: TimeZone,
    /// The request's, Unix seconds.
    pub(crate) now: i64,
}

impl Asked {
    /// What a date means in this request, Unix seconds.
    pub(crate) fn time(&self, date: &Date, parameter: &str) -> Result<i64, Error> {
        parse_at_time(&date.0, self.now, &self.time_zone).map_err(|_| {
            let given: String = date.0.chars().take(100).collect();
            Error::Argument {
                function: self.function,
                parameter: parameter.to_owned(),
                problem: format!("must be a time such as '-1h' or '20260121', got '{given}'"),
            }
        })
    }

    /// A span whose ends are moved by what a parameter says, or the error that it leaves the calendar.
    pub(crate) fn moved(&self, span: Span, from_by: i64, until_by: i64, parameter: &str) -> Result<Span, Error> {
        let problem = || format!("{parameter} reaches beyond the calendar, the years 1 to 9999");
        span.moved(from_by, until_by).ok_or_else(|| Error::Refused { function: self.function, problem: problem() })
    }
}

/// The spans over which a function needs its first argument.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reach {
    /// The span asked for.
    pub(crate) asked: bool,
    /// And these.
    pub(crate) more: Vec<Span>,
}

/// What a function does, beside having parameters.
pub(crate) trait Evaluate: Parameters {
    /// Whether [`Evaluate::reach`] says anything but "the span asked for".
    const REACHES: bool = false;

    /// The spans over which the first argument is needed. Series are not known yet: their fields are empty.
    fn reach(&self, _: &Asked) -> Result<Reach, Error> {
        Ok(Reach { asked: true, more: Vec::new() })
    }

    /// The answer.
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error>;
}

impl Function {
    pub(crate) const fn of<F: Evaluate>(
        name: &'static str,
        group: &'static str,
        description: &'static str,
    ) -> Function {
        Function {
            name,
            group,
            description,
            parameters: F::PARAMETERS,
            aggregator: false,
            extension: false,
            presets: [None; 2],
            signature: None,
            strict: false,
            reaches: F::REACHES,
            reach: |mut arguments, asked| F::bind(&mut arguments)?.reach(asked),
            evaluate: |mut arguments, scope| F::bind(&mut arguments)?.evaluate(scope),
        }
    }

    /// Fixes a parameter, which is then no longer shown.
    pub(crate) const fn preset(mut self, parameter: &'static str, value: Literal) -> Function {
        let free = if self.presets[0].is_none() { 0 } else { 1 };
        self.presets[free] = Some((parameter, value));
        self
    }

    /// Marks it as a callback for groupByNode and its like.
    pub(crate) const fn aggregator(mut self) -> Function {
        self.aggregator = true;
        self
    }

    /// Marks it as one that graphite-web does not have. Its behaviour is what carbonapi publishes of its own.
    pub(crate) const fn extension(mut self) -> Function {
        self.extension = true;
        self
    }

    /// The signature to show, where it cannot be told from the parameters.
    pub(crate) const fn signature(mut self, signature: &'static str) -> Function {
        self.signature = Some(signature);
        self
    }

    /// Leaves parameters empty that have a silent stand-in elsewhere.
    pub(crate) const fn without_fallbacks(mut self) -> Function {
        self.strict = true;
        self
    }

    /// The same under another name.
    pub(crate) const fn also(self, name: &'static str) -> Function {
        Function { name, ..self }
    }

    /// The parameters a caller sees.
    pub fn shown(&self) -> impl Iterator<Item = &'static Parameter> + '_ {
        self.parameters.iter().filter(|parameter| self.shows(parameter))
    }

    /// The signature, as `/functions` shows it.
    pub fn signature_text(&self) -> String {
        if let Some(signature) = self.signature {
            return signature.to_owned();
        }
        let parameters: Vec<String> = self.shown().map(|parameter| self.parameter_text(parameter)).collect();
        format!("{}({})", self.name, parameters.join(", "))
    }

    fn parameter_text(&self, parameter: &Parameter) -> String {
        let name = parameter.name;
        if parameter.multiple {
            return format!("*{name}");
        }
        match self.standing_in(parameter).or(parameter.documented) {
            Some(Literal::Boolean(value)) => format!("{name}={}", if value { "True" } else { "False" }),
            Some(Literal::Integer(value)) => format!("{name}={value}"),
            Some(Literal::Float(value)) => format!("{name}={}", crate::number::repr(value)),
            Some(Literal::Text(value)) => format!("{name}='{value}'"),
            Some(Literal::None) => format!("{name}=None"),
            None if parameter.required => name.to_owned(),
            None => format!("{name}=None"),
        }
    }

    pub(crate) fn shows(&self, parameter: &Parameter) -> bool {
        self.preset_of(parameter).is_none()
    }

    pub(crate) fn preset_of(&self, parameter: &Parameter) -> Option<Literal> {
        self.presets.iter().flatten().find(|(name, _)| *name == parameter.name).map(|(_, value)| *value)
    }

    /// What a parameter is where it is not given.
    pub(crate) fn standing_in(&self, parameter: &Parameter) -> Option<Literal> {
        parameter.default.or(parameter.fallback.filter(|_| !self.strict))
    }

    pub(crate) fn reach(&self, arguments: Arguments, asked: &Asked) -> Result<Reach, Error> {
        (self.reach)(arguments, asked)
    }

    pub(crate) fn evaluate(&self, arguments: Arguments, scope: &mut Scope) -> Result<Value, Error> {
        (self.evaluate)(arguments, scope)
    }
}

/// Every function, family by family.
pub fn all() -> impl Iterator<Item = &'static Function> {
    FAMILIES.iter().copied().flatten()
}

/// The function of a name.
pub fn find(name: &str) -> Option<&'static Function> {
    static BY_NAME: LazyLock<HashMap<&'static str, &'static Function>> =
        LazyLock::new(|| all().map(|function| (function.name, function)).collect());
    BY_NAME.get(name).copied()
}

/// The function of a name, or the error that suggests another.
pub(crate) fn called(name: &str) -> Result<&'static Function, Error> {
    find(name).ok_or_else(|| {
        let nearest = all().map(|function| (distance(name, function.name), function.name)).min();
        let near = |(distance, _): &(usize, &str)| *distance <= 2 || *distance * 3 <= name.len();
        Error::UnknownFunction {
            name: name.chars().take(100).collect(),
            nearest: nearest.filter(near).map(|(_, name)| name),
        }
    })
}

/// Insertions, deletions and replacements from one name to another, in any case; names beyond a hundred
/// bytes are far from everything.
fn distance(from: &str, to: &str) -> usize {
    if from.len() > 100 {
        return usize::MAX / 4;
    }
    let (from, to) = (from.to_ascii_lowercase(), to.to_ascii_lowercase());
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in to.bytes().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[to.len()]
}
