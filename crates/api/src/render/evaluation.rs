//! The series of a render.
//!
//! 1. Parse all targets, and plan every fetch.
//! 2. Resolve the planned paths, and estimate the cost of reading them.
//! 3. Read all series at once.
//! 4. Evaluate. A function may request more fetches, which go through steps 2 to 4 again.
//!
//! Steps 1, 2 and 4 run on threads that may block; step 3 is asynchronous.

use std::sync::Arc;

use host::Excerpt;
use metadata::Found;
use metric::{Aggregation, Window};
use parking_lot::Mutex;
use render::{Budget, Consolidation, Context, Data, EventFetch, EventTags, Expression, Fetch, Fetches, Series};
use store::{Event, FetchedSeries, SeriesRequest};

use super::{
    estimate::ReadEstimate,
    origins::Origins,
    reading::Parts,
    request::RenderRequest,
    resolve::{ResolvedPaths, too_many_series},
};
use crate::{
    events::{Pages, SetOf, TagFilter},
    http::Rejection,
    query::{Backend, Times, Work, blocking},
};

/// Rounds of reading and evaluating, at most. A window counted in points may need a second round, and one inside another
/// a third; this is also the depth limit of nested calls.
const MAX_ROUNDS: usize = 100;

/// Memory for a series besides its points and its names: its request, what is read of it.
const SERIES_BYTES: usize = 512;

/// The result of a render.
pub(crate) struct Evaluated {
    /// The series of all targets, in the order of the targets.
    pub series: Vec<Series>,
    /// The cost of reading.
    pub cost: Cost,
}

/// The series and points that a request has read.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cost {
    /// Number of series.
    pub series: usize,
    /// Number of points.
    pub points: usize,
}

/// Evaluates the targets of a request. The work ends when it is cancelled.
///
/// `spent` is the cost of earlier evaluations for the same HTTP request. The limits apply to the sum, and the returned
/// cost is the sum.
pub(crate) async fn evaluate(
    backend: &Arc<Backend>,
    request: &Arc<RenderRequest>,
    spent: Cost,
    work: &Arc<Work>,
) -> Result<Evaluated, Rejection> {
    match rounds(Evaluation::new(backend, request, work, spent)).await {
        // The pattern of one user is at fault; a rejection would affect the other users of the front end.
        Err(rejection @ (Rejection::Parameters { .. } | Rejection::TooMuch { .. } | Rejection::TooHard(_)))
            if request.from_front_end =>
        {
            backend.withhold("render", &rejection);
            Ok(Evaluated { series: Vec::new(), cost: spent })
        }
        other => other,
    }
}

async fn rounds(state: Evaluation) -> Result<Evaluated, Rejection> {
    let (mut state, mut next) = run(state, Evaluation::begin).await?;
    for _ in 0..MAX_ROUNDS {
        let (fetches, requests) = match next {
            Next::Done(series) => return Ok(Evaluated { series, cost: state.cost }),
            Next::Read(fetches, requests) => (fetches, requests),
        };
        state.read_events(fetches.events).await?;
        let read = requests.read(&state.paths.backend.series, &state.work).await?;
        (state, next) = run(state, |state| state.proceed(fetches.series, read)).await?;
    }
    let targets = state.request.targets.join("; ");
    tracing::error!(targets = %Excerpt(targets), rounds = MAX_ROUNDS, "the plan does not converge; rejecting the request. This is a bug, please report it");
    Err(Rejection::Broken)
}

/// What a target takes once it is read, at most: its texts, and each of its arguments. `template()` may double it.
fn expression_bytes(target: &str) -> usize {
    let arguments = target.bytes().filter(|byte| matches!(byte, b',' | b'(' | b'|')).count();
    2 * (target.len() + (arguments + 1) * ARGUMENT_BYTES)
}

/// Runs a step on a thread that may block.
async fn run(
    mut state: Evaluation,
    work: impl FnOnce(&mut Evaluation) -> Result<Next, Rejection> + Send + 'static,
) -> Result<(Evaluation, Next), Rejection> {
    blocking(move || {
        let next = work(&mut state)?;
        Ok((state, next))
    })
    .await
}

/// The next step.
enum Next {
    /// Read these fetches. The requests are those of the fetches of series: one for each metric of each path, in order.
    Read(Fetches, Parts),
    /// The result is complete.
    Done(Vec<Series>),
}

/// Bytes of an argument without its text, those around it that a vector has spare included.
const ARGUMENT_BYTES: usize = 2 * size_of::<render::Argument>();

/// An unfinished evaluation.
struct Evaluation {
    request: Arc<RenderRequest>,
    work: Arc<Work>,
    paths: Arc<ResolvedPaths>,
    expressions: Vec<Expression>,
    data: Data,
    // Memory of `data`.
    data_bytes: usize,
    cost: Cost,
}

impl Evaluation {
    fn new(backend: &Arc<Backend>, request: &Arc<RenderRequest>, work: &Arc<Work>, cost: Cost) -> Evaluation {
        Evaluation {
            request: request.clone(),
            work: work.clone(),
            paths: Arc::new(ResolvedPaths::new(backend.clone(), request, work.clone())),
            expressions: Vec::new(),
            data: Data::new(),
            data_bytes: 0,
            cost,
        }
    }

    /// Steps 1 and 2.
    fn begin(&mut self) -> Result<Next, Rejection> {
        self.work.take(self.request.targets.iter().map(|target| expression_bytes(target)).sum())?;
        for target in &self.request.targets {
            let expression = match render::parse(target) {
                // A front end sends unescaped paths, and assigns the answer to the text that it sent.
                Ok(Expression::Path(_)) | Err(_) if self.request.has_plain_paths => Expression::Path(target.clone()),
                Ok(Expression::SeriesByTag(_)) if self.request.has_plain_paths => {
                    Expression::SeriesByTag(target.clone())
                }
                parsed => parsed.map_err(|error| self.request.rejection(&error.to_string()))?,
            };
            self.expressions.push(expression);
        }
        let planned = self.in_context(|state, context| {
            let cancelled = || state.work.is_cancelled();
            let budget = Budget::new(state.paths.backend.limits.points, &cancelled);
            render::plan(&state.expressions, context, &budget).map_err(|error| state.rejection(error))
        })?;
        if planned.is_empty() { self.evaluate() } else { self.resolve(planned) }
    }

    /// Step 3 for events. Each event counts as a point.
    async fn read_events(&mut self, fetches: Vec<EventFetch>) -> Result<(), Rejection> {
        let backend = self.paths.backend.clone();
        for fetch in fetches {
            if !self.request.viewer.sees_events() {
                self.data.put_events(fetch, Vec::new());
                continue;
            }
            let filter = match &fetch.tags {
                EventTags::All(tags) => {
                    let filter = TagFilter::new(tags.iter().map(String::as_str), SetOf::All);
                    Some(filter.map_err(Rejection::Request)?)
                }
                EventTags::Any => None,
            };
            let mut times = Vec::new();
            let max_events = backend.limits.points.saturating_sub(self.cost.points);
            let mut each = |event: &Event| {
                if filter.as_ref().is_none_or(|filter| filter.matches(&event.content.tags)) {
                    times.push(event.content.when);
                }
                if times.len() <= max_events { Ok(()) } else { Err(too_many_events(backend.limits.points)) }
            };
            let mut pages = Pages::new(&backend, fetch.span.from, fetch.span.until);
            while pages.next(&mut each).await? {}
            self.cost.points += times.len();
            self.data.put_events(fetch, times);
        }
        Ok(())
    }

    /// Stores the series of step 3; then steps 4 and, if necessary, 2.
    fn proceed(&mut self, fetches: Vec<Fetch>, read: Vec<Option<FetchedSeries>>) -> Result<Next, Rejection> {
        let mut read = read.into_iter();
        let mut last_missing: Option<Arc<[String]>> = None;
        for fetch in fetches {
            let mut series = Vec::new();
            let paths = self.paths.clone();
            let mut origins = self.request.wants_lineage.then(|| Origins::new(&paths.backend));
            let found = paths.found();
            let leaves = found.get(&paths.key(&fetch)).into_iter().flat_map(Found::leaves);
            for ((metric, name), read) in leaves.zip(read.by_ref()) {
                // A span outside of the retention has no series; a metric without points has one of nulls.
                let Some(read) = read else { continue };
                // Series that were read together name the same nodes, by one list.
                if let Some(missing) = &read.missing_peers
                    && last_missing.as_ref().is_none_or(|last| !Arc::ptr_eq(last, missing))
                {
                    self.work.note_missing(missing);
                    last_missing = Some(missing.clone());
                }
                self.cost.series += 1;
                self.cost.points += read.values.len();
                self.data_bytes += read.values.capacity() * size_of::<f64>() + SERIES_BYTES + 2 * name.len();
                let consolidation = consolidation(&fetch, &read);
                let lineage = origins.as_mut().and_then(|origins| origins.of(metric, &read));
                let read = Series::fetched(name, fetch.path.clone(), read.start, i64::from(read.step), read.values);
                series.push(Series { lineage, consolidation, ..read });
            }
            self.data.put(fetch, series);
        }
        self.work.correct(self.data_bytes)?;
        // The estimate before the read bounds memory; this rejects the result of a source that read more.
        let limit = self.paths.backend.limits.points;
        if self.cost.points > limit {
            return Err(too_many_points(self.cost.points, limit));
        }
        self.evaluate()
    }

    /// Step 4.
    fn evaluate(&mut self) -> Result<Next, Rejection> {
        let evaluation = self.in_context(|state, context| {
            let cancelled = || state.work.is_cancelled();
            let refused = Mutex::new(None);
            let memory = |bytes: usize| match state.work.take_besides(bytes) {
                Ok(()) => true,
                Err(rejection) => {
                    *refused.lock() = Some(rejection);
                    false
                }
            };
            let points = state.paths.backend.limits.points;
            let budget = Budget { points, cancelled: &cancelled, memory: &memory };
            let evaluation = render::evaluate(&state.expressions, context, &state.data, &budget);
            evaluation.map_err(|error| refused.into_inner().unwrap_or_else(|| state.rejection(error)))
        })?;
        match evaluation {
            render::Evaluation::Done(series) => {
                self.data = Data::new();
                self.work.keep(series.iter().map(Series::bytes).sum());
                Ok(Next::Done(series))
            }
            render::Evaluation::Fetch(fetches) => self.resolve(fetches),
        }
    }

    /// Step 2.
    fn resolve(&self, fetches: Fetches) -> Result<Next, Rejection> {
        let backend = &self.paths.backend;
        let mut total = self.cost.series;
        for fetch in &fetches.series {
            total += self.paths.with(fetch, |found| found.leaves().count())?;
            if total > backend.limits.series {
                return Err(too_many_series(backend.limits.series));
            }
        }
        let now = backend.series.now_for(self.request.times.now, self.request.times.until);
        let points_left = backend.limits.points.saturating_sub(self.cost.points);
        let max_points = (points_left / (total - self.cost.series).max(1)).max(1);
        let mut requests = Parts::within(backend.limits.memory);
        let mut estimate = ReadEstimate::new(backend, now, max_points);
        let (mut points, mut names) = (0usize, 0);
        for fetch in &fetches.series {
            if self.work.is_cancelled() {
                return Err(Rejection::Cancelled);
            }
            let window = Window::between(fetch.span.from, fetch.span.until);
            let rollup = fetch.rollup.and_then(method);
            self.paths.with(fetch, |found| {
                estimate.each(fetch.span, found, |metric, name, series| {
                    let series = series.map_or(0, |series| series.points);
                    points = points.saturating_add(series);
                    names += name.len();
                    requests.push(SeriesRequest { metric, window, now, max_points, rollup }, series);
                });
            })?;
        }
        if points > points_left {
            return Err(too_many_points(points, backend.limits.points));
        }
        let series = requests.len() * SERIES_BYTES + 2 * names;
        self.work.take(points.saturating_mul(size_of::<f64>()).saturating_add(series))?;
        self.work.take_besides(requests.memory())?;
        Ok(Next::Read(fetches, requests))
    }

    /// Plans or evaluates.
    fn in_context<T>(
        &self,
        work: impl FnOnce(&Evaluation, &Context<'_>) -> Result<T, Rejection>,
    ) -> Result<T, Rejection> {
        let request = &self.request;
        let Times { now, from, until } = request.times;
        let paths = self.paths.clone();
        let largest_step = move |fetch: &Fetch| {
            let step =
                |found: &Found| ReadEstimate::new(&paths.backend, now, usize::MAX).largest_step(fetch.span, found);
            paths.with(fetch, step).ok()?
        };
        let context = Context {
            time_zone: request.zone.clone(),
            x_files_factor: request.x_files_factor,
            template: request.template.clone(),
            largest_step: Some(&largest_step),
            has_rollups: self.paths.backend.registry.has_rollups(),
            hides_stale: self.paths.hides_stale,
            ..Context::new(now, from, until)
        };
        work(self, &context)
    }

    /// The rejection of an error of planning or evaluating.
    fn rejection(&self, error: render::Error) -> Rejection {
        match error {
            render::Error::Cancelled => Rejection::Cancelled,
            render::Error::Budget { points } => Rejection::TooMuch {
                what: "the points that the functions produce are",
                given: format!("more than {points}"),
                limit: points,
                setting: "query.max_points",
            },
            other => self.request.rejection(&other.to_string()),
        }
    }
}

/// The method of the rollup that a fetch asks for. Rules have no method for the first of the values.
fn method(rollup: Consolidation) -> Option<Aggregation> {
    Some(match rollup {
        Consolidation::Average | Consolidation::Avg => Aggregation::Average,
        Consolidation::Sum => Aggregation::Sum,
        Consolidation::AvgZero => Aggregation::AvgZero,
        Consolidation::Max => Aggregation::Max,
        Consolidation::Min => Aggregation::Min,
        Consolidation::Last => Aggregation::Last,
        Consolidation::First => return None,
    })
}

/// How values of a series are folded where a function combines it with series of larger steps: as the rollup that `consolidateBy`
/// asked for, of a metric that has several; otherwise by the mean, as in graphite-web.
fn consolidation(fetch: &Fetch, read: &FetchedSeries) -> Consolidation {
    if fetch.rollup.is_none() || !read.is_of_list {
        return Consolidation::default();
    }
    match read.aggregation {
        Aggregation::Average => Consolidation::Average,
        Aggregation::Sum => Consolidation::Sum,
        Aggregation::AvgZero => Consolidation::AvgZero,
        Aggregation::Max => Consolidation::Max,
        Aggregation::Min => Consolidation::Min,
        Aggregation::Last => Consolidation::Last,
        // They have no name in Graphite.
        Aggregation::AbsMax | Aggregation::AbsMin => Consolidation::default(),
    }
}

fn too_many_events(limit: usize) -> Rejection {
    let given = format!("more than {limit} together with the points of series");
    Rejection::TooMuch { what: "the counted events are", given, limit, setting: "query.max_points" }
}

fn too_many_points(points: usize, limit: usize) -> Rejection {
    let given = format!("{points} even at the coarsest stage");
    Rejection::TooMuch { what: "the points of all series are", given, limit, setting: "query.max_points" }
}
