//! Expressions to series, from what was fetched.

use std::{borrow::Cow, collections::HashMap};

use crate::{
    Argument, Budget, Call, Context, Data, Error, EventTags, Expression, Fetch, Series, Span,
    argument::{Arguments, Value},
    functions::{self, Asked, Function},
    plan::{asked, bind_planned},
};

/// What an evaluation comes to.
#[derive(Debug, Clone, PartialEq)]
pub enum Evaluation {
    /// The series of all targets, in the order of the targets.
    Done(Vec<Series>),
    /// Something is missing: fetch these too, then evaluate again. None of them is in the data yet. A few
    /// rounds do; a caller that allows as many as calls are nested (100) never refuses an honest request.
    Fetch(Vec<Fetch>),
}

/// Evaluates targets.
///
/// # Errors
/// Unknown functions and wrong arguments; what functions refuse; the budget's end.
pub fn evaluate(targets: &[Expression], context: &Context, data: &Data, budget: &Budget) -> Result<Evaluation, Error> {
    let targets = targets.iter().map(|target| target.resolved(&context.template)).collect::<Result<Vec<_>, _>>()?;
    let mut scope = Scope::of(context, data, budget);
    let mut all = Vec::new();
    for target in &targets {
        match scope.expression(target) {
            Ok(Value::Series(series)) => all.extend(series),
            Ok(_) => {}
            // A function may well stumble over what is not there yet.
            Err(error) if scope.missing.is_empty() || matches!(error, Error::Cancelled) => return Err(error),
            Err(_) => {}
        }
    }
    if scope.missing.is_empty() { Ok(Evaluation::Done(all)) } else { Ok(Evaluation::Fetch(scope.missing)) }
}

/// Where a function is evaluated: the request, the data, and the call itself.
pub(crate) struct Scope<'a> {
    pub(crate) context: &'a Context<'a>,
    data: &'a Data,
    budget: &'a Budget<'a>,
    points_left: usize,
    missing: Vec<Fetch>,
    /// The function that is being evaluated, by the name it was called.
    function: &'static str,
    /// What was known of its first argument before that was evaluated.
    pub(crate) asked: Asked,
    /// Whether its first argument was evaluated over the span asked for; else it is empty.
    pub(crate) asked_was_evaluated: bool,
    /// Its first argument.
    input: Option<&'a Expression>,
    /// The span in which it is evaluated: the request's, unless something around it moved that.
    pub(crate) span: Span,
    /// The share of known values that folding needs here.
    pub(crate) x_files_factor: f64,
    /// How high each stack of series is by now, for all targets of the request. One point a time, of series that the
    /// budget bounds.
    pub(crate) stacks: HashMap<String, Vec<f64>>,
}

impl<'a> Scope<'a> {
    fn of(context: &'a Context<'a>, data: &'a Data, budget: &'a Budget<'a>) -> Scope<'a> {
        let span = context.span;
        Scope {
            context,
            data,
            budget,
            points_left: budget.points,
            missing: Vec::new(),
            function: "",
            asked: Asked {
                function: "",
                span,
                fetched: false,
                largest_step: None,
                time_zone: context.time_zone.clone(),
            },
            asked_was_evaluated: true,
            input: None,
            span,
            x_files_factor: context.x_files_factor,
            stacks: HashMap::new(),
        }
    }

    /// Evaluates the first argument of the current call over another span. What it changes in the context
    /// is forgotten afterwards, as in graphite-web.
    pub(crate) fn again(&mut self, span: Span) -> Result<Vec<Series>, Error> {
        let Some(input) = self.input else { return Ok(Vec::new()) };
        let (old_span, old_factor) = (self.span, self.x_files_factor);
        self.span = span;
        let value = self.expression(input);
        (self.span, self.x_files_factor) = (old_span, old_factor);
        match value? {
            Value::Series(series) => Ok(series),
            _ => Ok(Vec::new()),
        }
    }

    /// Calls a function with nothing but series, as other functions do with their callbacks.
    pub(crate) fn call_back(&mut self, function: &'static Function, series: Vec<Series>) -> Result<Vec<Series>, Error> {
        let arguments = Arguments::of(function, vec![Value::Series(series)], Vec::new())?;
        let caller = std::mem::replace(&mut self.function, function.name);
        let value = function.evaluate(arguments, self);
        self.function = caller;
        match value? {
            Value::Series(series) => Ok(series),
            _ => Ok(Vec::new()),
        }
    }

    /// The function that is being evaluated, by the name it was called.
    pub(crate) fn function(&self) -> &'static str {
        self.function
    }

    /// The function refuses its arguments or what they stand for.
    pub(crate) fn refuse(&self, problem: impl Into<String>) -> Error {
        Error::Refused { function: self.function, problem: problem.into() }
    }

    /// Returns early when nobody waits any more. For loops over series.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if (self.budget.cancelled)() { Err(Error::Cancelled) } else { Ok(()) }
    }

    /// Takes points that are about to be made from the budget, before memory is taken for them.
    pub(crate) fn spend(&mut self, points: usize) -> Result<(), Error> {
        self.check()?;
        self.points_left = self.points_left.checked_sub(points).ok_or(Error::Budget { points: self.budget.points })?;
        Ok(())
    }

    fn expression(&mut self, expression: &'a Expression) -> Result<Value, Error> {
        match expression {
            Expression::Path(path) | Expression::SeriesByTag(path) => Ok(Value::Series(self.fetched(path))),
            Expression::Template(inside, _) => self.expression(inside),
            Expression::Call(call) => self.call(call),
        }
    }

    fn fetched(&mut self, path: &str) -> Vec<Series> {
        let fetch = Fetch::series(path, self.span);
        let Some(series) = self.data.get(&fetch) else {
            self.miss(fetch);
            return Vec::new();
        };
        let with_factor = |series: &Series| Series { x_files_factor: self.x_files_factor, ..series.clone() };
        series.iter().map(with_factor).collect()
    }

    /// The times of events of the span, Unix seconds; none while they are not read yet. `shown` says which they are
    /// in words.
    pub(crate) fn events(&mut self, tags: EventTags, shown: &str) -> &'a [i64] {
        let fetch = Fetch { path: shown.into(), span: self.span, events: Some(tags) };
        let data = self.data;
        data.get_events(&fetch).unwrap_or_else(|| {
            self.miss(fetch);
            &[]
        })
    }

    fn miss(&mut self, fetch: Fetch) {
        if !self.missing.contains(&fetch) {
            self.missing.push(fetch);
        }
    }

    fn call(&mut self, call: &'a Call) -> Result<Value, Error> {
        let function = functions::called(&call.function)?;
        let asked = asked(function, call, self.span, self.context);
        let skip_first = function.reaches && !function.reach(bind_planned(function, call)?, &asked)?.asked;
        let mut positional = Vec::with_capacity(call.positional.len());
        for (place, argument) in call.positional.iter().enumerate() {
            let skipped = place == 0 && skip_first;
            positional.push(if skipped { Value::Planned } else { self.argument(argument)? });
        }
        let mut named = Vec::with_capacity(call.named.len());
        for (name, argument) in &call.named {
            named.push((name.clone(), self.argument(argument)?));
        }
        let arguments = Arguments::of(function, positional, named)?;
        let input = match call.positional.first() {
            Some(Argument::Expression(input)) => Some(input),
            _ => None,
        };
        self.check()?;
        let caller = (
            std::mem::replace(&mut self.function, function.name),
            std::mem::replace(&mut self.asked, asked),
            std::mem::replace(&mut self.asked_was_evaluated, !skip_first),
            std::mem::replace(&mut self.input, input),
        );
        let value = function.evaluate(arguments, self);
        (self.function, self.asked, self.asked_was_evaluated, self.input) = caller;
        let value = value?;
        if let Value::Series(series) = &value {
            self.spend(series.iter().map(|series| series.values.len() + 1).sum())?;
        }
        Ok(value)
    }

    fn argument(&mut self, argument: &'a Argument) -> Result<Value, Error> {
        match argument {
            Argument::Expression(expression) => self.expression(expression),
            literal => Ok(literal.value()),
        }
    }
}

impl Expression {
    /// The expression with every `template()` filled in. `values` go before a template's own.
    ///
    /// A path that is nothing but `$name` becomes the value itself: a number, or a text that a function takes
    /// as such.
    pub(crate) fn resolved(&self, values: &[(String, String)]) -> Result<Cow<'_, Expression>, Error> {
        if !self.has_template()? {
            return Ok(Cow::Borrowed(self));
        }
        Ok(Cow::Owned(match self.filled(&[], values) {
            Argument::Expression(expression) => expression,
            other => Expression::Path(other.value().text().unwrap_or_default()),
        }))
    }

    fn has_template(&self) -> Result<bool, Error> {
        Ok(match self {
            Expression::Path(_) | Expression::SeriesByTag(_) => false,
            Expression::Template(..) => true,
            // The grammar takes a template with anything but literals for a call.
            Expression::Call(call) if call.function == "template" => return Err(Error::Template),
            Expression::Call(call) => {
                let mut found = false;
                for argument in call.positional.iter().chain(call.named.iter().map(|(_, argument)| argument)) {
                    if let Argument::Expression(expression) = argument {
                        found |= expression.has_template()?;
                    }
                }
                found
            }
        })
    }

    fn filled(&self, own: &[(String, Argument)], request: &[(String, String)]) -> Argument {
        match self {
            Expression::Path(path) => fill(path, own),
            Expression::SeriesByTag(_) => Argument::Expression(self.clone()),
            Expression::Template(inside, values) => {
                let mut own = values.clone();
                for (name, value) in request {
                    own.retain(|(known, _)| known != name);
                    own.push((name.clone(), Argument::Text(value.clone())));
                }
                inside.filled(&own, request)
            }
            Expression::Call(call) => {
                let fill = |argument: &Argument| match argument {
                    Argument::Expression(expression) => expression.filled(own, request),
                    literal => literal.clone(),
                };
                Argument::Expression(Expression::Call(Call {
                    function: call.function.clone(),
                    positional: call.positional.iter().map(fill).collect(),
                    named: call.named.iter().map(|(name, argument)| (name.clone(), fill(argument))).collect(),
                }))
            }
        }
    }
}

fn fill(path: &str, values: &[(String, Argument)]) -> Argument {
    let mut filled = path.to_owned();
    for (name, value) in values {
        let variable = format!("${name}");
        if filled == variable {
            return match value {
                Argument::Text(text) if is_decimal(text) => match text.parse() {
                    Ok(number) => Argument::Float(number),
                    Err(_) => Argument::Text(text.clone()),
                },
                value => value.clone(),
            };
        }
        filled = filled.replace(&variable, &value.value().text().unwrap_or_default());
    }
    Argument::Expression(Expression::Path(filled))
}

/// `-?[0-9.]+`
fn is_decimal(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

/// Runs what needs a scope but no request.
#[cfg(test)]
pub(crate) fn in_scope<T>(run: impl FnOnce(&Scope) -> T) -> T {
    let (context, data, budget) = (Context::new(0, 0, 0), Data::new(), Budget::unlimited());
    run(&Scope::of(&context, &data, &budget))
}
