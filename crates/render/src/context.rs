//! The context of a request: what holds for all its targets.

use jiff::tz::TimeZone;

use crate::{Fetch, Span};

/// The largest step, seconds, among the series that a fetch will return.
pub type StepOf<'a> = dyn Fn(&Fetch) -> Option<i64> + Sync + 'a;

/// See the module's head.
#[derive(Clone)]
pub struct Context<'a> {
    /// The current time, Unix seconds.
    pub now: i64,
    /// The span of the request.
    pub span: Span,
    /// Where days begin.
    pub time_zone: TimeZone,
    /// The share of values, 0 to 1, that must be known where several are folded into one, unless a function sets another.
    pub x_files_factor: f64,
    /// Values for `template()`, by name without the dollar sign; they go before the call's own.
    pub template: Vec<(String, String)>,
    /// The largest step among the series that a fetch will return; exact, or `None` where the caller does not know. A
    /// window counted in points reaches back so many steps: with this, it is planned in the first round instead of
    /// a second.
    pub largest_step: Option<&'a StepOf<'a>>,
    /// Whether any metric has several rollups, so that `consolidateBy` asks for one. Without, the same path over the same span
    /// is one fetch.
    pub has_rollups: bool,
    /// Whether the caller hides metrics of globs that have no points in what is read. Then fetches say all that is
    /// ([`Fetch::reads`]). Without, the same path over the same span is one fetch.
    pub hides_stale: bool,
}

impl Context<'static> {
    /// A context with Graphite's defaults: UTC, xFilesFactor 0, no template values.
    pub fn new(now: i64, from: i64, until: i64) -> Context<'static> {
        Context {
            now,
            span: Span { from, until },
            time_zone: TimeZone::UTC,
            x_files_factor: 0.0,
            template: Vec::new(),
            largest_step: None,
            has_rollups: false,
            hides_stale: false,
        }
    }
}

/// The bounds of an evaluation, checked between functions and between series.
#[derive(Clone, Copy)]
pub struct Budget<'a> {
    /// Points that all functions together may produce; beyond, [`crate::Error::Budget`].
    pub points: usize,
    /// Whether the client is gone; then [`crate::Error::Cancelled`].
    pub cancelled: &'a (dyn Fn() -> bool + Sync),
    /// Reserves memory for the evaluation: bytes in all, without those of the data. Called before memory is taken, with
    /// larger and larger numbers. False: it gets none, then [`crate::Error::Memory`].
    pub memory: &'a (dyn Fn(usize) -> bool + Sync),
}

impl Budget<'static> {
    /// No bound, for tests and tools.
    pub fn unlimited() -> Budget<'static> {
        Budget { points: usize::MAX, cancelled: &|| false, memory: &|_| true }
    }
}

impl<'a> Budget<'a> {
    /// A bound of points and a way to cancel; memory without a bound.
    pub fn new(points: usize, cancelled: &'a (dyn Fn() -> bool + Sync)) -> Budget<'a> {
        Budget { points, cancelled, memory: &|_| true }
    }
}
