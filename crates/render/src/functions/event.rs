//! Events as series.

use std::sync::Arc;

use crate::{
    Consolidation, Error, EventTags, Series,
    argument::{Value, parameters},
    function::{FirstArgument, Function, Inputs, Needs, Reach, Reaching},
    scope::{CallContext, Scope},
};

pub(super) const FUNCTIONS: &[Function] = &[Function::reaching::<Events>(
    "events",
    "Special",
    "The number of events with all the tags in each second; '*' counts every event. \
     Use it with drawAsInfinite, or fold it with summarize.",
)];

parameters! {
    /// events.
    struct Events {
        tags: Vec<String> = "tags".required();
    }
}

impl Reaching for Events {
    fn reach(&self, _: &CallContext, _: &FirstArgument) -> Result<Reach, Error> {
        let tags = match self.tags.as_slice() {
            [any] if any == "*" => EventTags::Any,
            tags => EventTags::All(Arc::from(tags)),
        };
        Ok(Reach::Also(Needs { events: Some(tags), ..Needs::default() }))
    }

    fn evaluate(self, inputs: Inputs, scope: &mut Scope) -> Result<Value, Error> {
        let name = format!("events(\"{}\")", self.tags.join("\", \""));
        let (start, end) = (scope.span().from, scope.span().until);
        let seconds = usize::try_from(end.saturating_sub(start)).unwrap_or(0);
        scope.spend(seconds)?;
        let mut counts = vec![f64::NAN; seconds];
        for time in inputs.events {
            // An event at the very end has no second of its own; graphite-web fails on it.
            let second = time.checked_sub(start).and_then(|second| usize::try_from(second).ok());
            if let Some(count) = second.and_then(|second| counts.get_mut(second)) {
                *count = if count.is_nan() { 1.0 } else { *count + 1.0 };
            }
        }
        let counted = Series::computed(&name, start, end, 1, counts);
        let factor = scope.x_files_factor;
        Ok(vec![Series { consolidation: Consolidation::Sum, integers: true, x_files_factor: factor, ..counted }].into())
    }
}
