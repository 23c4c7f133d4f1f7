//! The two questions to the engine: what to fetch, and the series of the answer.

use crate::{
    Budget, Context, Data, Error, Expression, Fetches, Series,
    argument::Value,
    engine::{Engine, is_final},
    functions,
    template::Templates,
};

/// The answer to an evaluation.
#[derive(Debug, Clone, PartialEq)]
pub enum Evaluation {
    /// The series of all targets, in the order of the targets.
    Done(Vec<Series>),
    /// Something is missing: fetch these too, then evaluate again. The data has none of them yet. A few rounds
    /// suffice; a caller that allows as many as calls are nested (100) never rejects an honest request.
    Fetch(Fetches),
}

/// The fetches that `targets` need, each once, in the order in which they are met.
///
/// Nearly always these are all. Two kinds of needs depend on what a fetch returns: how far a window counted in points
/// reaches back, unless [`Context::largest_step`] knows, and targets that functions make of names. [`evaluate`]
/// asks for those in a second round.
///
/// # Errors
/// Unknown functions and wrong arguments, except where those are series: mistakes cost no fetch. Of the budget
/// only the cancellation is asked here.
pub fn plan(targets: &[Expression], context: &Context, budget: &Budget) -> Result<Fetches, Error> {
    let mut templates = Templates::new(&context.template, budget.cancelled);
    let mut engine = Engine::new(context, None, budget);
    for target in targets {
        let target = templates.resolve(target)?;
        engine.expression(&target, context.span)?;
    }
    Ok(engine.missing())
}

/// Evaluates targets.
///
/// # Errors
/// Unknown functions and wrong arguments; series that functions reject; the end of the budget.
pub fn evaluate(targets: &[Expression], context: &Context, data: &Data, budget: &Budget) -> Result<Evaluation, Error> {
    let mut templates = Templates::new(&context.template, budget.cancelled);
    let targets = targets.iter().map(|target| templates.resolve(target)).collect::<Result<Vec<_>, _>>()?;
    let mut engine = Engine::new(context, Some(data), budget);
    let mut all = Vec::new();
    for target in &targets {
        match engine.expression(target, context.span) {
            Ok(Value::Series(series)) => all.extend(series),
            Ok(Value::Lists(lists)) if !lists.is_empty() => return Err(unfinished(target)),
            Ok(_) => {}
            // The error may come from data that is missing elsewhere.
            Err(error) if !engine.awaits() || is_final(&error) => return Err(error),
            Err(_) => {}
        }
    }
    if engine.awaits() { Ok(Evaluation::Fetch(engine.missing())) } else { Ok(Evaluation::Done(all)) }
}

fn unfinished(target: &Expression) -> Error {
    let function = match target {
        Expression::Call(call) => functions::find(&call.function).map_or("", |function| function.name),
        _ => "",
    };
    Error::Rejected {
        function,
        problem: "makes lists of series; put it inside of reduceSeries or aggregate".to_owned(),
    }
}
