//! The window before the graph, which functions over a moving window fetch as well. Declares no function.
//!
//! A window of time is known at once. One of points is as long as that many of the largest step: where the caller does
//! not know that, phase 2 takes it from the series.

use crate::{
    Error, Literal, Series,
    argument::{Length, SeriesList},
    function::{FirstArgument, Inputs, Needs, Reach},
    scope::{CallContext, Scope},
};

/// Windows that an editor may offer.
pub(super) const LENGTHS: &[Literal] = &[
    Literal::Integer(5),
    Literal::Integer(7),
    Literal::Integer(10),
    Literal::Text("1min"),
    Literal::Text("5min"),
    Literal::Text("10min"),
    Literal::Text("30min"),
    Literal::Text("1hour"),
];

/// graphite-web looks at the series over the span of the call to see whether there are any and what their steps are. For
/// a plain fetch both are known before.
pub(super) fn reach(window: &Length, call: &CallContext, first: &FirstArgument) -> Result<Reach, Error> {
    let preview = match window {
        Length::Time(seconds, _) => Some(*seconds),
        Length::Points(points, _) => first.largest_step().map(|step| step.saturating_mul(*points)),
    };
    let Some(preview) = preview else { return Ok(Reach::AfterSteps) };
    let needs = Needs::spans(vec![call.moved(-preview, 0, "windowSize")?]);
    Ok(if first.is_fetch() { Reach::InsteadOfFirst(needs) } else { Reach::Also(needs) })
}

/// The window in points, once the steps are known. Without series there is nothing to fetch.
pub(super) fn reach_further(window: &Length, series: &SeriesList, scope: &Scope) -> Result<Needs, Error> {
    let largest_step = series.0.iter().map(|series| series.step).max();
    let (Length::Points(points, _), Some(step)) = (window, largest_step) else { return Ok(Needs::default()) };
    Ok(Needs::spans(vec![scope.moved(-step.saturating_mul(*points), 0, "windowSize")?]))
}

/// The seconds of the window before the graph, and the series that include it; `None` without series.
pub(super) fn previewed(series: &SeriesList, inputs: Inputs, scope: &Scope) -> Option<(i64, Vec<Series>)> {
    if inputs.has_first && series.0.is_empty() {
        return None;
    }
    let (span, wide) = inputs.spans.into_iter().next()?;
    Some((scope.span().from - span.from, wide))
}
