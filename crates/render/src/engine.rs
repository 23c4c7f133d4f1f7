//! The engine: one walk over the targets, which plans and evaluates.
//!
//! The walk of a call: 1. phase 1 of what the function needs; 2. its arguments; 3. what phase 1 declared; 4. phase 2,
//! where the function has one, and what that declares; 5. the function. A part that is not fetched yet is noted, and
//! the call ends behind step 3 or 4 without an answer. Planning is the same walk without data, and ends behind step 3.

use std::{collections::HashSet, sync::Arc};

use crate::{
    Argument, Budget, Call, Consolidation, Context, Data, Error, EventFetch, Expression, Fetch, Fetches, Series, Span,
    ancestors::Ancestors,
    argument::Value,
    function::{Body, FirstArgument, Function, Inputs, Needs, Reach},
    functions,
    grammar::parse,
    scope::{CallContext, Scope},
    template::Templates,
};

/// Fetches beyond which a request is rejected. Functions that shift time inside of each other multiply.
const MAX_FETCHES: usize = 10_000;

/// Expressions that a walk over a request's targets, or over a target that a function made, visits at most.
const MAX_STEPS: usize = 10 * MAX_FETCHES;

/// Targets that functions make, inside of each other; beyond, a request is rejected.
const MAX_MADE: usize = 10;

/// Most spans of [`Fetch::reads`]. More count as one, from the first to the last: then metrics with points between them are
/// not hidden either.
const MAX_READS: usize = 64;

/// See the module's head.
pub(crate) struct Engine<'a> {
    request: &'a Context<'a>,
    /// `None` while planning.
    data: Option<&'a Data>,
    scope: Scope<'a>,
    missing: Missing,
    // Of targets that functions make.
    templates: Templates<'a>,
    steps_left: usize,
    /// How many targets made by functions are being evaluated, inside of each other.
    made: usize,
    /// The rollup that the expression asks for.
    rollup: Option<Consolidation>,
    /// The spans over which the functions around read the expression, where stale metrics are hidden and there are such
    /// functions: see [`Fetch::reads`]. They are the same in each walk over the expression, so that it has the same series
    /// over each span, as functions expect.
    reads: Option<Arc<[Span]>>,
}

/// Fetches that a walk met and that have no answer.
#[derive(Default)]
struct Missing {
    fetches: Fetches,
    series: HashSet<Fetch>,
    events: HashSet<EventFetch>,
}

impl Missing {
    fn len(&self) -> usize {
        self.series.len() + self.events.len()
    }

    // Both keep one fetch more than the bound, and the walk ends soon.

    fn add(&mut self, fetch: Fetch) {
        if self.len() <= MAX_FETCHES && self.series.insert(fetch.clone()) {
            self.fetches.series.push(fetch);
        }
    }

    fn add_events(&mut self, fetch: EventFetch) {
        if self.len() <= MAX_FETCHES && self.events.insert(fetch.clone()) {
            self.fetches.events.push(fetch);
        }
    }
}

impl<'a> Engine<'a> {
    pub(crate) fn new(request: &'a Context<'a>, data: Option<&'a Data>, budget: &'a Budget<'a>) -> Engine<'a> {
        Engine {
            request,
            data,
            scope: Scope::new(request, budget, functions::CALLBACKS),
            missing: Missing::default(),
            templates: Templates::new(&request.template, budget.cancelled),
            steps_left: MAX_STEPS,
            made: 0,
            rollup: None,
            reads: None,
        }
    }

    /// Whether something is missing, so that errors and empty answers mean nothing yet.
    pub(crate) fn awaits(&self) -> bool {
        !self.missing.fetches.is_empty()
    }

    /// The fetches that are missing.
    pub(crate) fn missing(self) -> Fetches {
        self.missing.fetches
    }

    /// The value of an expression over a span; [`Value::Planned`] where something is missing, and while planning.
    pub(crate) fn expression(&mut self, expression: &Expression, span: Span) -> Result<Value, Error> {
        self.steps_left = self.steps_left.saturating_sub(1);
        if self.steps_left == 0 || self.missing.len() > MAX_FETCHES {
            return Err(Error::Fetches { most: MAX_FETCHES });
        }
        self.scope.check()?;
        match expression {
            Expression::Path(path) | Expression::SeriesByTag(path) => self.series(path, span),
            Expression::Template(inside, _) => self.expression(inside, span),
            Expression::Call(call) => self.call(call, span),
        }
    }

    fn series(&mut self, path: &str, span: Span) -> Result<Value, Error> {
        // Both names of the mean are one rollup.
        let rollup =
            self.rollup.map(|method| if method == Consolidation::Avg { Consolidation::Average } else { method });
        let rollup = rollup.filter(|_| self.request.has_rollups);
        let reads = self.reads.clone().filter(|reads| **reads != [span]);
        let fetch = Fetch { rollup, reads, ..Fetch::new(path, span) };
        let Some(series) = self.data.and_then(|data| data.get(&fetch)) else {
            self.missing.add(fetch);
            return Ok(Value::Planned);
        };
        let x_files_factor = self.scope.x_files_factor;
        self.scope.hold(size_of_val(series))?;
        let with_factor = |series: &Series| Series { x_files_factor, ..series.clone() };
        Ok(Value::Series(series.iter().map(with_factor).collect()))
    }

    fn call(&mut self, call: &Call, span: Span) -> Result<Value, Error> {
        let function = functions::called(&call.function)?;
        let around = self.rollup;
        self.rollup = function.asks_for.of_arguments(call, around);
        let value = self.call_of(function, call, span);
        self.rollup = around;
        value
    }

    fn call_of(&mut self, function: &'static Function, call: &Call, span: Span) -> Result<Value, Error> {
        let first = match call.positional.first() {
            Some(Argument::Expression(first)) => Some(first),
            _ => None,
        };
        let context = CallContext::new(function.name, span, self.request);
        let reach = self.reach(function, call, &context, first)?;
        let reads = self.reads_of_first(function, call, first, (span, &reach))?;
        let takes_steps = self.request.hides_stale && reach == Reach::AfterSteps;
        let (has_first, phase_2, needs) = match reach {
            Reach::Also(needs) => (true, false, needs),
            Reach::InsteadOfFirst(needs) => (false, false, needs),
            Reach::Later | Reach::AfterSteps => (true, true, Needs::default()),
        };

        let held = self.scope.live();
        let mut complete = true;
        let mut positional = Vec::with_capacity(call.positional.len());
        for (position, argument) in call.positional.iter().enumerate() {
            let value = match argument {
                Argument::Expression(_) if position == 0 && !has_first => Value::Series(Vec::new()),
                Argument::Expression(first) if position == 0 => {
                    self.first_argument(first, span, &reads, takes_steps)?
                }
                argument => self.argument(argument, span)?,
            };
            complete &= !matches!(value, Value::Planned);
            positional.push(value);
        }
        let mut named = Vec::with_capacity(call.named.len());
        for (name, argument) in &call.named {
            let value = self.argument(argument, span)?;
            complete &= !matches!(value, Value::Planned);
            named.push((name.clone(), value));
        }
        let mut inputs = Inputs { has_first, ..Inputs::default() };
        complete &= self.gather(needs, (first, &reads), &context, &mut inputs)?;
        if !complete || self.data.is_none() {
            return Ok(Value::Planned);
        }

        let mut ancestors = Ancestors::of(series_of(&positional, &named, &inputs));
        // Functions write texts into the name, or the look, of each series; those that reach further count what they make.
        if let Body::Evaluate { .. } = function.body {
            let texts = positional.iter().chain(named.iter().map(|(_, value)| value)).map(Value::text_bytes).sum();
            self.scope.spend_texts(texts, series_of(&positional, &named, &inputs).count())?;
        }
        let arguments = function.arguments(functions::is_callback, positional, named)?;
        self.scope.check()?;
        self.scope.begin(context);
        let mut value = match function.body {
            Body::Evaluate { evaluate, .. } => evaluate(arguments, &mut self.scope)?,
            Body::Reaching { bind, .. } => {
                let bound = bind(arguments)?;
                if phase_2 {
                    let needs = bound.reach_further(&mut self.scope)?;
                    let reads = self.with_further_reads(&needs, span);
                    if !self.gather(needs, (first, &reads), &context, &mut inputs)? {
                        return Ok(Value::Planned);
                    }
                    self.scope.begin(context);
                    ancestors = ancestors.or_else(|| Ancestors::of(series_of(&[], &[], &inputs)));
                }
                bound.evaluate(inputs, &mut self.scope)?
            }
        };
        if let Some(ancestors) = ancestors {
            ancestors.inherited(&mut value);
        }
        let points = |series: &[Series]| series.iter().map(|series| series.values.len() + 1).sum::<usize>();
        match &value {
            Value::Series(series) => self.scope.spend_made(points(series))?,
            Value::Lists(lists) => self.scope.spend_made(lists.iter().map(|list| points(list) + 1).sum())?,
            _ => {}
        }
        // The arguments are gone.
        self.scope.hold_in_all(held.saturating_add(value.bytes()))?;
        Ok(value)
    }

    /// The spans over which the first argument of a call is read: those of the call, and of the walks over the call with other
    /// spans that the functions around make.
    fn reads_of_first(
        &self,
        function: &'static Function,
        call: &Call,
        first: Option<&Expression>,
        (span, reach): (Span, &Reach),
    ) -> Result<Option<Arc<[Span]>>, Error> {
        if !self.request.hides_stale || matches!(function.body, Body::Evaluate { .. }) {
            return Ok(self.reads.clone());
        }
        let mut reads = Vec::new();
        for &at in self.reads.as_deref().unwrap_or(&[span]) {
            if at == span {
                reads.extend(reach.spans_of_first(span));
                continue;
            }
            self.scope.check()?;
            // The walk with that span has the error.
            if let Ok(reach) = self.reach(function, call, &CallContext::new(function.name, at, self.request), first) {
                reads.extend(reach.spans_of_first(at));
            }
        }
        Ok(Some(distinct(reads)))
    }

    /// The same with what phase 2 declared, which is as far from each span of the call as from this one.
    fn with_further_reads(&self, needs: &Needs, span: Span) -> Option<Arc<[Span]>> {
        if !self.request.hides_stale || needs.spans.is_empty() {
            return self.reads.clone();
        }
        let mut reads = Vec::new();
        for &at in self.reads.as_deref().unwrap_or(&[span]) {
            reads.push(at);
            let further = |need: &Span| at.moved(need.from - span.from, need.until - span.until);
            reads.extend(needs.spans.iter().filter_map(further));
        }
        Some(distinct(reads))
    }

    /// The value of a call's first argument over the span of the call.
    fn first_argument(
        &mut self,
        first: &Expression,
        span: Span,
        reads: &Option<Arc<[Span]>>,
        takes_steps: bool,
    ) -> Result<Value, Error> {
        let value = self.reading(reads, |engine| engine.expression(first, span))?;
        match value {
            // All of its metrics may be stale here, and have points before: their steps say how far to read.
            Value::Series(series) if takes_steps && series.is_empty() => {
                self.reading(&Some([Span::ALL].into()), |engine| engine.expression(first, span))
            }
            value => Ok(value),
        }
    }

    /// Walks over an expression that is read over these spans.
    fn reading<T>(&mut self, reads: &Option<Arc<[Span]>>, walk: impl FnOnce(&mut Self) -> T) -> T {
        let around = std::mem::replace(&mut self.reads, reads.clone());
        let value = walk(self);
        self.reads = around;
        value
    }

    fn argument(&mut self, argument: &Argument, span: Span) -> Result<Value, Error> {
        match argument {
            Argument::Expression(expression) => self.expression(expression, span),
            literal => Ok(literal.into()),
        }
    }

    /// Phase 1 of a call. While planning, mistakes in any call's arguments are found here, before anything is fetched.
    fn reach(
        &self,
        function: &'static Function,
        call: &Call,
        context: &CallContext,
        first: Option<&Expression>,
    ) -> Result<Reach, Error> {
        // Series are not known here.
        let arguments = || {
            let positional = call.positional.iter().map(Value::from).collect();
            let named = call.named.iter().map(|(name, argument)| (name.clone(), argument.into())).collect();
            function.arguments(functions::is_callback, positional, named)
        };
        match function.body {
            Body::Evaluate { .. } if self.data.is_some() => Ok(Reach::arguments()),
            Body::Evaluate { check, .. } => check(arguments()?).map(|()| Reach::arguments()),
            Body::Reaching { reach, .. } => {
                reach(arguments()?, context, &FirstArgument::new(first, context.span, self.request))
            }
        }
    }

    /// Evaluates what a call needs, behind what it already has. Tells whether nothing is missing. Changes of the scope
    /// by an argument over another span, or by a target, are forgotten, as in graphite-web.
    fn gather(
        &mut self,
        needs: Needs,
        (first, reads): (Option<&Expression>, &Option<Arc<[Span]>>),
        context: &CallContext<'a>,
        inputs: &mut Inputs<'a>,
    ) -> Result<bool, Error> {
        let mut complete = true;
        let x_files_factor = self.scope.x_files_factor;
        for span in needs.spans {
            let walk = |engine: &mut Self| first.map_or(Ok(Value::None), |first| engine.expression(first, span));
            let value = self.reading(reads, walk);
            self.scope.x_files_factor = x_files_factor;
            match value? {
                Value::Planned => complete = false,
                Value::Series(series) => inputs.spans.push((span, series)),
                _ => inputs.spans.push((span, Vec::new())),
            }
        }
        if let Some(tags) = needs.events {
            let fetch = EventFetch { tags, span: context.span };
            match self.data.and_then(|data| data.get_events(&fetch)) {
                Some(times) => inputs.events = times,
                None => {
                    self.missing.add_events(fetch);
                    complete = false;
                }
            }
        }
        for target in needs.targets {
            let value = self.made_target(&target, context);
            self.scope.x_files_factor = x_files_factor;
            match value? {
                Value::Planned => complete = false,
                Value::Series(series) => inputs.targets.push((target, series)),
                _ => inputs.targets.push((target, Vec::new())),
            }
        }
        Ok(complete)
    }

    /// Evaluates a target that a function made.
    fn made_target(&mut self, target: &str, context: &CallContext) -> Result<Value, Error> {
        // Even one that names nothing costs something, and there may be many.
        self.scope.spend(1)?;
        if self.made == MAX_MADE {
            return Err(context.reject(format!("makes targets inside of more than {MAX_MADE} others")));
        }
        let parsed = parse(target)?;
        let resolved = self.templates.resolve(&parsed)?;
        let steps_left = std::mem::replace(&mut self.steps_left, MAX_STEPS);
        self.made += 1;
        let value = self.expression(&resolved, context.span);
        self.made -= 1;
        self.steps_left = steps_left;
        match value {
            // The error may come from data that is missing elsewhere.
            Err(error) if self.awaits() && !is_final(&error) => Ok(Value::Planned),
            other => other,
        }
    }
}

/// Spans in order, each once, or all as one where there are too many.
fn distinct(mut spans: Vec<Span>) -> Arc<[Span]> {
    spans.sort_unstable();
    spans.dedup();
    if spans.len() <= MAX_READS {
        return spans.into();
    }
    let (from, until) = (spans.iter().map(|span| span.from).min(), spans.iter().map(|span| span.until).max());
    from.zip(until).map(|(from, until)| Span { from, until }).into_iter().collect()
}

/// All series that go into a call.
fn series_of<'a>(
    positional: &'a [Value],
    named: &'a [(String, Value)],
    inputs: &'a Inputs<'_>,
) -> impl Iterator<Item = &'a Series> {
    let spans = inputs.spans.iter().map(|(_, series)| series).chain(inputs.targets.iter().map(|(_, series)| series));
    positional.iter().chain(named.iter().map(|(_, value)| value)).flat_map(Value::series).chain(spans.flatten())
}

/// Whether an error stays one, whatever is fetched.
pub(crate) fn is_final(error: &Error) -> bool {
    matches!(error, Error::Cancelled | Error::Memory | Error::Fetches { .. })
}
