//! Functions: a row of the table, and the two traits behind it.
//!
//! A function is a struct whose fields are its parameters ([`parameters!`](crate::argument::parameters)). Most
//! implement [`Evaluate`] and work on their arguments alone. Those that need their first argument over other spans,
//! events, or targets made of names implement [`Reaching`]: they declare it, the engine evaluates it, and hands it to
//! them. A row ([`Function`]) is a name that points at such a struct.

use crate::{
    Argument, Call, Consolidation, Context, Error, EventTags, Expression, Fetch, Literal, Parameter, Series, Span,
    argument::{Arguments, IsCallback, Parameters, Signature, Value},
    scope::{CallContext, Scope},
};

/// A function of its arguments.
pub(crate) trait Evaluate: Parameters {
    /// The answer.
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error>;
}

/// A function of its arguments and more.
///
/// 1. [`Reaching::reach`] declares the needs of a call, before anything is fetched. Planning and evaluation get the
///    same answer.
/// 2. Where that is [`Reach::Later`] or [`Reach::AfterSteps`], [`Reaching::reach_further`] declares it once, from the
///    evaluated arguments. This may cost another round of fetches.
/// 3. [`Reaching::evaluate`] gets all of it. There is no third phase.
pub(crate) trait Reaching: Parameters + 'static {
    /// Phase 1. Fields of series are empty here.
    fn reach(&self, call: &CallContext, first: &FirstArgument) -> Result<Reach, Error>;

    /// Phase 2, with all fields.
    fn reach_further(&self, _: &mut Scope) -> Result<Needs, Error> {
        Ok(Needs::default())
    }

    /// The answer.
    fn evaluate(self, inputs: Inputs, scope: &mut Scope) -> Result<Value, Error>;
}

/// The needs of a function before anything is fetched.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Reach {
    /// Its arguments and these.
    Also(Needs),
    /// The same, but not its first argument over the span of the call. That field of series stays empty.
    InsteadOfFirst(Needs),
    /// Its arguments, and whatever phase 2 says.
    Later,
    /// The same, and phase 2 takes nothing but the steps from the first argument: where all of its metrics are hidden over the
    /// span of the call, because they are stale, they come without that.
    AfterSteps,
}

impl Reach {
    /// The arguments are enough.
    pub(crate) fn arguments() -> Reach {
        Reach::Also(Needs::default())
    }

    /// The spans over which the first argument of a call is read, `span` being that of the call.
    pub(crate) fn spans_of_first(&self, span: Span) -> impl Iterator<Item = Span> + '_ {
        let (own, needs) = match self {
            Reach::Also(needs) => (Some(span), Some(needs)),
            Reach::InsteadOfFirst(needs) => (None, Some(needs)),
            Reach::Later | Reach::AfterSteps => (Some(span), None),
        };
        own.into_iter().chain(needs.into_iter().flat_map(|needs| needs.spans.iter().copied()))
    }
}

/// The needs of a function besides its arguments.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Needs {
    /// Its first argument over each of these spans.
    pub(crate) spans: Vec<Span>,
    /// The times of events in the span of the call.
    pub(crate) events: Option<EventTags>,
    /// Targets that it made of names, over the span of the call.
    pub(crate) targets: Vec<String>,
}

impl Needs {
    pub(crate) fn spans(spans: Vec<Span>) -> Needs {
        Needs { spans, ..Needs::default() }
    }

    pub(crate) fn targets(targets: Vec<String>) -> Needs {
        Needs { targets, ..Needs::default() }
    }
}

/// The evaluated needs of a function, in the order of its declarations, phase 1 first.
#[derive(Default)]
pub(crate) struct Inputs<'a> {
    /// Whether the first argument was evaluated over the span of the call, so that an empty field means no series.
    pub(crate) has_first: bool,
    /// The first argument over each span.
    pub(crate) spans: Vec<(Span, Vec<Series>)>,
    /// Unix seconds, in any order.
    pub(crate) events: &'a [i64],
    /// The series of each target.
    pub(crate) targets: Vec<(String, Vec<Series>)>,
}

impl Inputs<'_> {
    /// The first argument over the only span; nothing where there is none.
    pub(crate) fn only(self) -> Vec<Series> {
        debug_assert!(self.spans.len() <= 1, "the function asked for one span");
        self.spans.into_iter().next().map_or(Vec::new(), |(_, series)| series)
    }
}

/// A call's first argument, before it is evaluated.
pub(crate) struct FirstArgument<'a> {
    expression: Option<&'a Expression>,
    span: Span,
    request: &'a Context<'a>,
}

impl<'a> FirstArgument<'a> {
    pub(crate) fn new(expression: Option<&'a Expression>, span: Span, request: &'a Context<'a>) -> FirstArgument<'a> {
        FirstArgument { expression, span, request }
    }

    fn path(&self) -> Option<&str> {
        match self.expression {
            Some(Expression::Path(path) | Expression::SeriesByTag(path)) => Some(path),
            _ => None,
        }
    }

    /// Whether it is nothing but a fetch. Then it has the same series over a longer span.
    pub(crate) fn is_fetch(&self) -> bool {
        self.path().is_some()
    }

    /// The largest step, seconds, that the fetch will return, where the caller knows. Costs a look at every metric.
    pub(crate) fn largest_step(&self) -> Option<i64> {
        let largest_step = self.request.largest_step?;
        let mut fetch = Fetch::new(self.path()?, self.span);
        let shown = largest_step(&fetch);
        if shown.is_some() || !self.request.hides_stale {
            return shown;
        }
        // Those that are hidden over this span may be shown in a longer one.
        fetch.reads = Some([Span::ALL].into());
        largest_step(&fetch)
    }
}

/// A row of the table: a name, and the function it points at.
pub struct Function {
    /// The name in targets.
    pub name: &'static str,
    /// Where an editor lists it.
    pub group: &'static str,
    /// What it does, in a few sentences.
    pub description: &'static str,
    /// Whether groupByNode and its like take it as a callback.
    pub aggregator: bool,
    /// Whether graphite-web has no function of this name; then carbonapi has.
    pub extension: bool,
    /// Which rollup of a metric its arguments ask for.
    pub(crate) asks_for: AskedRollup,
    /// The signature to show, where it cannot be made of the parameters.
    shown_signature: Option<&'static str>,
    pub(crate) signature: Signature,
    pub(crate) body: Body,
}

/// The rollup that the arguments of a function ask for, of metrics that have several. As in metrictank, `consolidateBy` asks, and
/// functions whose values mean something else than their arguments do not pass that on.
#[derive(Clone, Copy)]
pub(crate) enum AskedRollup {
    /// What the call itself asks for.
    SameAsCall,
    /// The first.
    First,
    /// That of this method.
    Of(Consolidation),
    /// That of the method in a parameter, at this place among the arguments.
    OfParameter(&'static str, usize),
}

impl AskedRollup {
    /// What the arguments of a call ask for; `around` is what the call asks for.
    pub(crate) fn of_arguments(self, call: &Call, around: Option<Consolidation>) -> Option<Consolidation> {
        let (name, place) = match self {
            AskedRollup::SameAsCall => return around,
            AskedRollup::First => return None,
            AskedRollup::Of(method) => return Some(method),
            AskedRollup::OfParameter(name, place) => (name, place),
        };
        let named = call.named.iter().find(|(of, _)| of == name).map(|(_, argument)| argument);
        match named.or(call.positional.get(place)) {
            Some(Argument::Text(method)) => method.parse().ok(),
            _ => None,
        }
    }
}

/// How a function is evaluated.
#[derive(Clone, Copy)]
pub(crate) enum Body {
    Evaluate {
        /// Finds mistakes in arguments whose series are not known yet.
        check: fn(Arguments) -> Result<(), Error>,
        evaluate: fn(Arguments, &mut Scope) -> Result<Value, Error>,
    },
    Reaching {
        reach: fn(Arguments, &CallContext, &FirstArgument) -> Result<Reach, Error>,
        bind: fn(Arguments) -> Result<Box<dyn Bound>, Error>,
    },
}

/// A [`Reaching`] function with its arguments.
pub(crate) trait Bound {
    fn reach_further(&self, scope: &mut Scope) -> Result<Needs, Error>;
    fn evaluate(self: Box<Self>, inputs: Inputs, scope: &mut Scope) -> Result<Value, Error>;
}

impl<F: Reaching> Bound for F {
    fn reach_further(&self, scope: &mut Scope) -> Result<Needs, Error> {
        Reaching::reach_further(self, scope)
    }

    fn evaluate(self: Box<Self>, inputs: Inputs, scope: &mut Scope) -> Result<Value, Error> {
        Reaching::evaluate(*self, inputs, scope)
    }
}

impl Function {
    /// A row that points at a function of its arguments.
    pub(crate) const fn of<F: Evaluate>(
        name: &'static str,
        group: &'static str,
        description: &'static str,
    ) -> Function {
        let body = Body::Evaluate {
            check: |mut arguments| F::bind(&mut arguments).map(|_| ()),
            evaluate: |mut arguments, scope| F::bind(&mut arguments)?.evaluate(scope),
        };
        Function::new::<F>(name, group, description, body)
    }

    /// A row that points at a function that needs more than its arguments.
    pub(crate) const fn reaching<F: Reaching>(
        name: &'static str,
        group: &'static str,
        description: &'static str,
    ) -> Function {
        let body = Body::Reaching {
            reach: |mut arguments, call, first| F::bind(&mut arguments)?.reach(call, first),
            bind: |mut arguments| Ok(Box::new(F::bind(&mut arguments)?)),
        };
        Function::new::<F>(name, group, description, body)
    }

    const fn new<F: Parameters>(
        name: &'static str,
        group: &'static str,
        description: &'static str,
        body: Body,
    ) -> Function {
        Function {
            name,
            group,
            description,
            aggregator: false,
            extension: false,
            asks_for: AskedRollup::SameAsCall,
            shown_signature: None,
            signature: Signature::new(F::PARAMETERS),
            body,
        }
    }

    /// Fixes a parameter, which is then no longer shown.
    pub(crate) const fn preset(mut self, parameter: &'static str, value: Literal) -> Function {
        self.signature = self.signature.preset(parameter, value);
        self
    }

    /// Sets which rollup its arguments ask for.
    pub(crate) const fn asks_for(mut self, rollup: AskedRollup) -> Function {
        self.asks_for = rollup;
        self
    }

    /// Marks it as a callback for groupByNode and its like.
    pub(crate) const fn aggregator(mut self) -> Function {
        self.aggregator = true;
        self
    }

    /// Marks it as one that graphite-web does not have. It behaves as carbonapi documents.
    pub(crate) const fn extension(mut self) -> Function {
        self.extension = true;
        self
    }

    /// The signature to show, where it cannot be made of the parameters.
    pub(crate) const fn signature(mut self, signature: &'static str) -> Function {
        self.shown_signature = Some(signature);
        self
    }

    /// Leaves parameters empty that have a silent fallback elsewhere.
    pub(crate) const fn without_fallbacks(mut self) -> Function {
        self.signature = self.signature.without_fallbacks();
        self
    }

    /// The same under another name.
    pub(crate) const fn also(self, name: &'static str) -> Function {
        Function { name, ..self }
    }

    /// Binds a call's values to the parameters.
    pub(crate) fn arguments(
        &'static self,
        is_callback: IsCallback,
        positional: Vec<Value>,
        named: Vec<(String, Value)>,
    ) -> Result<Arguments, Error> {
        Arguments::of(self.name, &self.signature, is_callback, positional, named)
    }

    /// The parameters that a caller sees.
    pub fn shown(&self) -> impl Iterator<Item = &'static Parameter> + '_ {
        self.signature.shown()
    }

    /// The signature, as `/functions` shows it.
    pub fn signature_text(&self) -> String {
        if let Some(signature) = self.shown_signature {
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
        match self.signature.default_of(parameter).or(parameter.documented) {
            Some(Literal::Boolean(value)) => format!("{name}={}", if value { "True" } else { "False" }),
            Some(Literal::Integer(value)) => format!("{name}={value}"),
            Some(Literal::Float(value)) => format!("{name}={}", crate::number::repr(value)),
            Some(Literal::Text(value)) => format!("{name}='{value}'"),
            Some(Literal::None) => format!("{name}=None"),
            None if parameter.required => name.to_owned(),
            None => format!("{name}=None"),
        }
    }
}
