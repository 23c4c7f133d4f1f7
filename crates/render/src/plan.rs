//! What must be fetched for a request, found before anything is.

use std::collections::HashSet;

use crate::{
    Argument, Call, Context, Error, Expression, Fetch, Span,
    argument::{Arguments, Value},
    functions::{self, Asked},
};

/// Fetches beyond which a request is refused. Functions that shift time inside of each other multiply.
pub(crate) const MAX_FETCHES: usize = 10_000;

/// The fetches that `targets` need, each once, in the order in which they are met.
///
/// Nearly always these are all. Two things can only be known from what a fetch brings: how far a window
/// counted in points reaches back, unless [`Context::largest_step`] says, and what functions ask for that
/// make names from names. Then [`crate::evaluate`] asks for more.
///
/// # Errors
/// Unknown functions and wrong arguments, except where those are series: mistakes cost no fetch.
pub fn plan(targets: &[Expression], context: &Context) -> Result<Vec<Fetch>, Error> {
    let mut planner = Planner { context, fetches: Vec::new(), seen: HashSet::new(), steps_left: 10 * MAX_FETCHES };
    for target in targets {
        let target = target.resolved(&context.template)?;
        planner.expression(&target, context.span)?;
    }
    Ok(planner.fetches)
}

struct Planner<'a> {
    context: &'a Context<'a>,
    fetches: Vec<Fetch>,
    seen: HashSet<Fetch>,
    steps_left: usize,
}

impl Planner<'_> {
    fn expression(&mut self, expression: &Expression, span: Span) -> Result<(), Error> {
        self.steps_left = self.steps_left.saturating_sub(1);
        if self.steps_left == 0 || self.fetches.len() > MAX_FETCHES {
            return Err(Error::Fetches { most: MAX_FETCHES });
        }
        match expression {
            Expression::Path(path) | Expression::SeriesByTag(path) => {
                let fetch = Fetch::series(path.as_str(), span);
                if self.seen.insert(fetch.clone()) {
                    self.fetches.push(fetch);
                }
                Ok(())
            }
            Expression::Template(inside, _) => self.expression(inside, span),
            Expression::Call(call) => self.call(call, span),
        }
    }

    fn call(&mut self, call: &Call, span: Span) -> Result<(), Error> {
        let function = functions::called(&call.function)?;
        let reach = function.reach(bind_planned(function, call)?, &asked(function, call, span, self.context))?;
        let named = call.named.iter().map(|(_, argument)| argument);
        for (place, argument) in call.positional.iter().chain(named).enumerate() {
            let Argument::Expression(expression) = argument else { continue };
            if place > 0 || reach.asked {
                self.expression(expression, span)?;
            }
            if place == 0 {
                for span in &reach.more {
                    self.expression(expression, *span)?;
                }
            }
        }
        Ok(())
    }
}

/// A call's arguments with nothing in the place of series.
pub(crate) fn bind_planned(function: &'static functions::Function, call: &Call) -> Result<Arguments, Error> {
    let planned = |argument: &Argument| match argument {
        Argument::Expression(_) => Value::Planned,
        literal => literal.value(),
    };
    let positional = call.positional.iter().map(planned).collect();
    let named = call.named.iter().map(|(name, argument)| (name.clone(), planned(argument))).collect();
    Arguments::of(function, positional, named)
}

/// What a function may know of its first argument before that is evaluated.
pub(crate) fn asked(function: &'static functions::Function, call: &Call, span: Span, context: &Context) -> Asked {
    let first = call.positional.first();
    let path = match first {
        Some(Argument::Expression(Expression::Path(path) | Expression::SeriesByTag(path))) => Some(path),
        _ => None,
    };
    // Whoever knows the step looks many metrics up for it; most functions do not care.
    let step_of = |path: &String| context.largest_step?(&Fetch::series(path.as_str(), span));
    let largest_step = path.filter(|_| function.reaches).and_then(step_of);
    Asked {
        function: function.name,
        span,
        fetched: path.is_some(),
        largest_step,
        time_zone: context.time_zone.clone(),
        now: context.now,
    }
}

impl Argument {
    /// A literal's value; series are not known here.
    pub(crate) fn value(&self) -> Value {
        match self {
            Argument::Boolean(value) => Value::Boolean(*value),
            Argument::Integer(value) => Value::Integer(*value),
            Argument::Float(value) => Value::Float(*value),
            Argument::None => Value::None,
            Argument::Text(value) => Value::Text(value.clone()),
            Argument::Expression(_) => Value::Planned,
        }
    }
}
