//! The series of a render: planned, looked up, read, evaluated.
//!
//! 1. Parse all targets and plan every fetch they need.
//! 2. Look up the planned paths, and reckon what reading them would cost.
//! 3. Read all series at once.
//! 4. Evaluate. A function may ask for more, which is looked up and read the same way.
//!
//! Steps 1, 2 and 4 are work for a processor and run on threads that may be kept busy; step 3 waits.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use metadata::{FindError, FindLimits, Found, Matcher, TagError, TagExpressions};
use metric::Window;
use render::{
    Argument, Budget, Context, Data, Evaluation, EventFetch, EventTags, Expression, Fetch, Fetches, PythonRegex, Series,
};
use store::{FetchedSeries, SeriesRequest};

use crate::{
    Api, Refusal,
    events::{SetOf, Wanted, each_event},
    find::{CancelOnDrop, is_users, refusal},
    reckoning::Reckoning,
    render_request::Asked,
    times::Times,
};

/// Rounds of reading and evaluating. A window counted in points may be known after the first only; one of
/// those in another takes one more, and calls are nested at most this deep.
const MAX_ROUNDS: usize = 100;

/// What a render comes to.
pub(crate) struct Evaluated {
    /// The series of all targets, in the order of the targets.
    pub series: Vec<Series>,
    /// What was read for them.
    pub cost: Cost,
}

/// What a render has read.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cost {
    /// Series that there were.
    pub series: usize,
    /// Their points.
    pub points: usize,
}

/// Evaluates what is asked. Dropping the future stops all of it.
///
/// `spent` was read before for the same request; what it may cost is meant for both, and the cost that comes back is
/// of both.
pub(crate) async fn evaluate(api: &Arc<Api>, asked: &Arc<Asked>, spent: Cost) -> Result<Evaluated, Refusal> {
    let cancelled = Arc::new(AtomicBool::new(false));
    let _cancel = CancelOnDrop(cancelled.clone());
    match rounds(Evaluating::new(api, asked, cancelled, spent)).await {
        // A pattern that names too much is one user's; the front end has others.
        Err(refusal @ (Refusal::Parameters { .. } | Refusal::TooMuch { .. } | Refusal::TooHard(_)))
            if asked.from_front_end =>
        {
            tracing::warn!(%refusal, "a front end is sent no series");
            api.observer.withheld("render");
            Ok(Evaluated { series: Vec::new(), cost: spent })
        }
        other => other,
    }
}

async fn rounds(state: Evaluating) -> Result<Evaluated, Refusal> {
    let (mut state, mut next) = at_work(state, Evaluating::begin).await?;
    for _ in 0..MAX_ROUNDS {
        let (fetches, requests) = match next {
            Next::Done(series) => return Ok(Evaluated { series, cost: state.cost }),
            Next::Read(fetches, requests) => (fetches, requests),
        };
        state.read_events(fetches.events).await?;
        let source = state.names.api.series.clone();
        let read = if requests.is_empty() { Vec::new() } else { source.fetch(requests).await? };
        (state, next) = at_work(state, |state| state.go_on(fetches.series, read)).await?;
    }
    tracing::error!(targets = ?state.asked.targets, "the planner asks for more and more");
    Err(Refusal::Broken)
}

/// Does work on a thread that may be kept busy.
async fn at_work(
    mut state: Evaluating,
    work: impl FnOnce(&mut Evaluating) -> Result<Next, Refusal> + Send + 'static,
) -> Result<(Evaluating, Next), Refusal> {
    let done = tokio::task::spawn_blocking(move || {
        let next = work(&mut state)?;
        Ok((state, next))
    });
    done.await.map_err(|_| Refusal::Broken)?
}

/// What comes after a round of work.
enum Next {
    /// To read: fetches, and what those of series ask of the source, for each in turn one request for each of its
    /// path's metrics.
    Read(Fetches, Vec<SeriesRequest>),
    /// Nothing more.
    Done(Vec<Series>),
}

/// A render on its way.
struct Evaluating {
    asked: Arc<Asked>,
    names: Arc<Names>,
    expressions: Vec<Expression>,
    data: Data,
    cost: Cost,
}

impl Evaluating {
    fn new(api: &Arc<Api>, asked: &Arc<Asked>, cancelled: Arc<AtomicBool>, cost: Cost) -> Evaluating {
        let (api, from_front_end) = (api.clone(), asked.from_front_end);
        Evaluating {
            asked: asked.clone(),
            names: Arc::new(Names { api, from_front_end, cancelled, found: Mutex::default() }),
            expressions: Vec::new(),
            data: Data::new(),
            cost,
        }
    }

    /// Steps 1 and 2.
    fn begin(&mut self) -> Result<Next, Refusal> {
        for target in &self.asked.targets {
            let expression = match render::parse(target) {
                // A front end sends paths, already unescaped, and files what it gets under the text it sent.
                Ok(Expression::Path(_)) | Err(_) if self.asked.has_plain_paths => Expression::Path(target.clone()),
                Ok(Expression::SeriesByTag(_)) if self.asked.has_plain_paths => Expression::SeriesByTag(target.clone()),
                parsed => parsed.map_err(|error| self.asked.refused(&error.to_string()))?,
            };
            self.expressions.push(expression);
        }
        let planned = self.in_context(|state, context| render::plan(&state.expressions, context))?;
        if planned.is_empty() { self.evaluate() } else { self.look_up(planned) }
    }

    /// Step 3, of events. Each counts as a point.
    async fn read_events(&mut self, fetches: Vec<EventFetch>) -> Result<(), Refusal> {
        let api = self.names.api.clone();
        for fetch in fetches {
            let wanted = match &fetch.tags {
                EventTags::All(tags) => Some(Wanted::new(tags.iter().map(String::as_str), SetOf::All)),
                EventTags::Any => None,
            };
            let mut times = Vec::new();
            let most = api.limits.points.saturating_sub(self.cost.points);
            each_event(&api, fetch.span.from, fetch.span.until, |event| {
                if wanted.as_ref().is_none_or(|wanted| wanted.takes(&event.told.tags)) {
                    times.push(event.told.when);
                }
                if times.len() <= most { Ok(()) } else { Err(too_many_events(api.limits.points)) }
            })
            .await?;
            self.cost.points += times.len();
            self.data.put_events(fetch, times);
        }
        Ok(())
    }

    /// Files what was read; then steps 4 and, if need be, 2.
    fn go_on(&mut self, fetches: Vec<Fetch>, read: Vec<Option<FetchedSeries>>) -> Result<Next, Refusal> {
        let mut read = read.into_iter();
        for fetch in fetches {
            let mut series = Vec::new();
            let names = self.names.clone();
            let found = names.found();
            let leaves = found.get(&fetch.path).into_iter().flat_map(Found::leaves);
            for ((_, name), read) in leaves.zip(read.by_ref()) {
                // What lies outside its retention has no series; what was never written has one of nulls.
                let Some(read) = read else { continue };
                self.cost.series += 1;
                self.cost.points += read.values.len();
                series.push(Series::fetched(name, fetch.path.clone(), read.start, i64::from(read.step), read.values));
            }
            self.data.put(fetch, series);
        }
        // The reckoning before the read is what keeps memory bounded; a source that read more anyway is
        // refused here.
        let limit = self.names.api.limits.points;
        if self.cost.points > limit {
            return Err(too_many_points(self.cost.points, limit));
        }
        self.evaluate()
    }

    /// Step 4.
    fn evaluate(&mut self) -> Result<Next, Refusal> {
        let evaluation = self.in_context(|state, context| {
            let cancelled = || state.names.cancelled.load(Ordering::Relaxed);
            let budget = Budget { points: state.names.api.limits.points, cancelled: &cancelled };
            render::evaluate(&state.expressions, context, &state.data, &budget)
        })?;
        match evaluation {
            Evaluation::Done(series) => Ok(Next::Done(series)),
            Evaluation::Fetch(fetches) => self.look_up(fetches),
        }
    }

    /// Step 2.
    fn look_up(&self, fetches: Fetches) -> Result<Next, Refusal> {
        let api = &self.names.api;
        let mut total = self.cost.series;
        for fetch in &fetches.series {
            total += self.names.look_up(&fetch.path, |found| found.leaves().count())?;
            if total > api.limits.series {
                return Err(too_many_series(api.limits.series));
            }
        }
        let now = self.asked.times.now;
        let points_left = api.limits.points.saturating_sub(self.cost.points);
        let max_points = (points_left / (total - self.cost.series).max(1)).max(1);
        let mut requests = Vec::with_capacity(total - self.cost.series);
        let mut reckoning = Reckoning::new(api, now, max_points);
        let mut points = 0usize;
        for fetch in &fetches.series {
            let window = Window::between(fetch.span.from, fetch.span.until);
            self.names.look_up(&fetch.path, |found| {
                requests.extend(found.leaves().map(|(metric, _)| SeriesRequest { metric, window, now, max_points }));
                points = points.saturating_add(reckoning.points(fetch.span, found));
            })?;
        }
        if points > points_left {
            return Err(too_many_points(points, api.limits.points));
        }
        Ok(Next::Read(fetches, requests))
    }

    /// Plans or evaluates.
    fn in_context<T>(
        &self,
        work: impl FnOnce(&Evaluating, &Context<'_>) -> Result<T, render::Error>,
    ) -> Result<T, Refusal> {
        let asked = &self.asked;
        let Times { now, from, until } = asked.times;
        let names = self.names.clone();
        let largest_step = move |fetch: &Fetch| {
            let reckon = |found: &Found| Reckoning::new(&names.api, now, usize::MAX).largest_step(fetch.span, found);
            names.look_up(&fetch.path, reckon).ok()?
        };
        let context = Context {
            time_zone: asked.zone.clone(),
            x_files_factor: asked.x_files_factor,
            template: asked.template.clone(),
            largest_step: Some(&largest_step),
            ..Context::new(now, from, until)
        };
        work(self, &context).map_err(|error| match error {
            render::Error::Budget { points } => Refusal::TooMuch {
                what: "the points that the functions make are",
                given: format!("more than {points}"),
                limit: points,
                setting: "query.max_points",
            },
            other => asked.refused(&other.to_string()),
        })
    }
}

/// The metrics of the paths of one request, each looked up once.
struct Names {
    api: Arc<Api>,
    from_front_end: bool,
    cancelled: Arc<AtomicBool>,
    found: Mutex<HashMap<Arc<str>, Found>>,
}

impl Names {
    /// Hands on the metrics of a path.
    fn look_up<T>(&self, path: &Arc<str>, each: impl FnOnce(&Found) -> T) -> Result<T, Refusal> {
        let mut found = self.found();
        let entry = match found.entry(path.clone()) {
            Entry::Occupied(known) => return Ok(each(known.get())),
            Entry::Vacant(entry) => entry,
        };
        let limits = FindLimits {
            nodes: self.api.limits.series,
            cancelled: Some(self.cancelled.clone()),
            ..FindLimits::default()
        };
        let Api { registry, finder, .. } = &*self.api;
        let tagged = || {
            let tags = tag_expressions(path)?;
            finder.has_all()?;
            registry.tagged(&tags, &limits)
        };
        let leaves = match path.starts_with("seriesByTag(") {
            true => tagged(),
            false => finder.leaves(path, &limits),
        };
        match leaves {
            Ok(leaves) => Ok(each(entry.insert(leaves))),
            Err(FindError::TooManyNodes { .. }) => Err(too_many_series(limits.nodes)),
            Err(error) if self.from_front_end && is_users(&error) => Ok(each(entry.insert(Found::default()))),
            Err(error) => Err(refusal(error)),
        }
    }

    fn found(&self) -> MutexGuard<'_, HashMap<Arc<str>, Found>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The expressions of a whole `seriesByTag(...)` call. The grammar keeps that as it was written; read under another
/// name it gives its arguments away. What is no text among them is passed over, as in graphite-web.
fn tag_expressions(call: &str) -> Result<TagExpressions, TagError> {
    let arguments = call.strip_prefix("seriesByTag").unwrap_or(call);
    let Ok(Expression::Call(call)) = render::parse(&format!("tags{arguments}")) else {
        return Err(TagError::Invalid(call.to_owned()));
    };
    let texts = call.positional.into_iter().filter_map(|argument| match argument {
        Argument::Text(text) => Some(text),
        _ => None,
    });
    TagExpressions::read(&texts.collect::<Vec<_>>(), |pattern| {
        let regex = PythonRegex::new(pattern)?;
        let matcher: Matcher = Box::new(move |value| regex.finds(value));
        Ok(matcher)
    })
}

fn too_many_series(limit: usize) -> Refusal {
    let given = format!("more than {limit}");
    Refusal::TooMuch { what: "the series that match are", given, limit, setting: "query.max_series" }
}

fn too_many_events(limit: usize) -> Refusal {
    let given = format!("more than {limit} together with the points of series");
    Refusal::TooMuch { what: "the events that are counted are", given, limit, setting: "query.max_points" }
}

fn too_many_points(points: usize, limit: usize) -> Refusal {
    let given = format!("{points} even at the coarsest precision kept");
    Refusal::TooMuch { what: "the points of all series are", given, limit, setting: "query.max_points" }
}
