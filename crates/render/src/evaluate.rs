//! Expressions to series, from what was fetched.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
};

use crate::{
    Argument, Budget, Call, Context, Data, Error, EventTags, Expression, Fetch, Series, Span,
    argument::{Arguments, Value},
    functions::{self, Asked, Function},
    grammar::parse,
    plan::{MAX_FETCHES, asked, bind_planned},
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
            Ok(Value::Lists(lists)) if !lists.is_empty() => return Err(unfinished(target)),
            Ok(_) => {}
            // A function may well stumble over what is not there yet.
            Err(error) if !scope.awaits() || is_final(&error) => return Err(error),
            Err(_) => {}
        }
    }
    if scope.awaits() { Ok(Evaluation::Fetch(scope.missing.fetches)) } else { Ok(Evaluation::Done(all)) }
}

/// Whether an error stays one, whatever is fetched.
fn is_final(error: &Error) -> bool {
    matches!(error, Error::Cancelled | Error::Fetches { .. })
}

fn unfinished(target: &Expression) -> Error {
    let function = match target {
        Expression::Call(call) => functions::find(&call.function).map_or("", |function| function.name),
        _ => "",
    };
    Error::Refused { function, problem: "makes lists of series; put it inside of reduceSeries or aggregate".to_owned() }
}

/// Texts that functions make and have evaluated, inside of each other; beyond, a request is refused.
const MAX_TEXTS: usize = 10;

/// What is to be fetched before an evaluation comes to anything: in the order in which it was met, and for looking
/// it up.
#[derive(Default)]
struct Missing {
    fetches: Vec<Fetch>,
    seen: HashSet<Fetch>,
}

/// Where a function is evaluated: the request, the data, and the call itself.
pub(crate) struct Scope<'a> {
    pub(crate) context: &'a Context<'a>,
    data: &'a Data,
    budget: &'a Budget<'a>,
    points_left: usize,
    missing: Missing,
    /// How many texts made by functions are being evaluated, inside of each other.
    texts: usize,
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
            missing: Missing::default(),
            function: "",
            asked: Asked {
                function: "",
                span,
                fetched: false,
                largest_step: None,
                time_zone: context.time_zone.clone(),
                now: context.now,
            },
            texts: 0,
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

    /// Calls a function with nothing but series, a list for each parameter, as other functions do with their callbacks.
    pub(crate) fn call_back(
        &mut self,
        function: &'static Function,
        lists: Vec<Vec<Series>>,
    ) -> Result<Vec<Series>, Error> {
        if function.reaches {
            let name = function.name;
            return Err(self.refuse(format!("cannot call {name}, which fetches its series over another time")));
        }
        let arguments = Arguments::of(function, lists.into_iter().map(Value::Series).collect(), Vec::new())?;
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
        if self.missing.fetches.len() > MAX_FETCHES {
            return Err(Error::Fetches { most: MAX_FETCHES });
        }
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
        // What is beyond the bound is counted and not kept; whoever called finds out soon.
        if self.missing.seen.len() <= MAX_FETCHES && self.missing.seen.insert(fetch.clone()) {
            self.missing.fetches.push(fetch);
        }
    }

    /// Whether something is missing, so that errors and empty answers mean nothing yet.
    pub(crate) fn awaits(&self) -> bool {
        !self.missing.fetches.is_empty()
    }

    /// Evaluates a target that a function made. What it changes in the context is forgotten afterwards. Nothing
    /// comes of one for which something is still missing.
    pub(crate) fn text(&mut self, target: &str) -> Result<Vec<Series>, Error> {
        // Even one that names nothing costs something, and there may be many.
        self.spend(1)?;
        if self.texts == MAX_TEXTS {
            return Err(self.refuse(format!("makes targets inside of more than {MAX_TEXTS} others")));
        }
        let parsed = parse(target)?;
        let resolved = parsed.resolved(&self.context.template)?;
        let mut inner = Scope {
            points_left: self.points_left,
            missing: std::mem::take(&mut self.missing),
            texts: self.texts + 1,
            stacks: std::mem::take(&mut self.stacks),
            asked: self.asked.clone(),
            span: self.span,
            x_files_factor: self.x_files_factor,
            ..Scope::of(self.context, self.data, self.budget)
        };
        let value = inner.expression(&resolved);
        self.points_left = inner.points_left;
        self.missing = inner.missing;
        self.stacks = inner.stacks;
        match value {
            Ok(Value::Series(series)) => Ok(series),
            Err(error) if !self.awaits() || is_final(&error) => Err(error),
            _ => Ok(Vec::new()),
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
        let points = |series: &[Series]| series.iter().map(|series| series.values.len() + 1).sum::<usize>();
        match &value {
            Value::Series(series) => self.spend(points(series))?,
            Value::Lists(lists) => self.spend(lists.iter().map(|list| points(list) + 1).sum())?,
            _ => {}
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
        let mut bytes_left = MAX_FILLED_BYTES;
        let filled = self.filled(&[], values, &mut bytes_left);
        if bytes_left == 0 {
            return Err(Error::Filled { most: MAX_FILLED_BYTES });
        }
        Ok(Cow::Owned(match filled {
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

    /// When `bytes_left` comes to zero, the paths have grown too long and the answer is worth nothing.
    fn filled(&self, own: &[(String, Argument)], request: &[(String, String)], bytes_left: &mut usize) -> Argument {
        match self {
            Expression::Path(path) => fill(path, own, bytes_left),
            Expression::SeriesByTag(_) => Argument::Expression(self.clone()),
            Expression::Template(inside, values) => {
                let mut own = values.clone();
                for (name, value) in request {
                    own.retain(|(known, _)| known != name);
                    own.push((name.clone(), Argument::Text(value.clone())));
                }
                inside.filled(&own, request, bytes_left)
            }
            Expression::Call(call) => {
                let mut fill = |argument: &Argument| match argument {
                    Argument::Expression(expression) => expression.filled(own, request, bytes_left),
                    literal => literal.clone(),
                };
                Argument::Expression(Expression::Call(Call {
                    function: call.function.clone(),
                    positional: call.positional.iter().map(&mut fill).collect(),
                    named: call.named.iter().map(|(name, argument)| (name.clone(), fill(argument))).collect(),
                }))
            }
        }
    }
}

/// Bytes that the paths of a target may have together once its templates are filled in. Beyond, it is refused.
const MAX_FILLED_BYTES: usize = 4 << 20;

fn fill(path: &str, values: &[(String, Argument)], bytes_left: &mut usize) -> Argument {
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
        let text = value.value().text().unwrap_or_default();
        let grown = filled.matches(&variable).count().saturating_mul(text.len()).saturating_add(filled.len());
        if grown > *bytes_left {
            *bytes_left = 0;
            break;
        }
        filled = filled.replace(&variable, &text);
    }
    *bytes_left = bytes_left.saturating_sub(filled.len());
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
