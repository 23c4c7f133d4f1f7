//! `/render`: from parameters to series to bytes.
//!
//! 1. Read the parameters; refuse what cannot be.
//! 2. Parse all targets and plan every fetch they need.
//! 3. Resolve the planned paths to metrics, within the budgets.
//! 4. Fetch all series at once.
//! 5. Evaluate, where work may be done. A function may ask for more; then steps 3 to 5 again.
//! 6. Fold what the client cannot show, and hand the answer to its format.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use hyper::{HeaderMap, header};
use jiff::tz::TimeZone;
use metadata::{FindError, FindLimits, Found};
use metric::{Timestamp, Window};
use render::{Budget, Context, Data, Evaluation, Expression, Fetch, Series, Span};
use store::SeriesRequest;

use crate::{
    Api, Refusal, Response,
    api::{Query, Reply},
    find::{CancelOnDrop, is_users, refusal},
    formats::{Answer, Format, NullPoints},
    json::JsonStyle,
    params::Params,
    pieces::{Coding, respond},
    python,
    times::{Times, zone},
};

/// Rounds of fetching and evaluating. A window counted in points is known after the first; one of those in
/// another takes one more, and calls are nested at most this deep.
const MAX_ROUNDS: usize = 100;

/// Seconds a browser may keep an answer: graphite-web's `DEFAULT_CACHE_DURATION`.
const CACHE_SECONDS: i64 = 60;

/// What a request to `/render` asks, checked.
struct Asked {
    targets: Vec<String>,
    expressions: Vec<Expression>,
    format: Format,
    times: Times,
    zone: TimeZone,
    x_files_factor: f64,
    template: Vec<(String, String)>,
    max_data_points: Option<usize>,
    cache_seconds: i64,
    source: String,
    // A graphite-web in front of us asks: anything but 200 and it leaves us out for a minute.
    from_front_end: bool,
}

/// `/render`.
pub(crate) async fn render(api: &Arc<Api>, query: &Query) -> Result<Reply, Refusal> {
    let asked = Arc::new(read(api, query)?);
    let permit = api.turn().await?;
    let cancelled = Arc::new(AtomicBool::new(false));
    let _cancel = CancelOnDrop(cancelled.clone());
    let mut cost = Cost::default();
    let series = match evaluated(api, &asked, &cancelled, &mut cost).await {
        // A pattern that cannot be read, or that names too much, is one user's; the front end has others.
        Err(Refusal::Parameters { .. } | Refusal::TooMuch { .. }) if asked.from_front_end => Vec::new(),
        other => other?,
    };
    let headers = query.headers.clone();
    let (limit, cache_seconds) = (api.limits.response_bytes, asked.cache_seconds);
    let written = tokio::task::spawn_blocking(move || {
        let answer = Answer::new(asked.format.clone(), folded(&asked, series));
        let least = answer.least_bytes();
        if least > limit {
            return Err(Refusal::TooMuch {
                what: "the bytes of the answer come to",
                given: format!("at least {least}"),
                limit,
                setting: "query.max_response",
            });
        }
        let builder = hyper::Response::builder().header(header::CONTENT_TYPE, answer.content_type());
        Ok(respond(builder, Arc::new(answer), Coding::of(&headers), permit))
    });
    let mut response = written.await.map_err(|_| Refusal::Broken)??;
    set_caching(&mut response, cache_seconds, (api.clock)());
    Ok(Reply { response, series: cost.series as u64, points: cost.points as u64 })
}

/// Step 1, and the parsing of step 2.
fn read(api: &Api, query: &Query) -> Result<Asked, Refusal> {
    let params = &query.params;
    let bad = Refusal::parameters;
    let graph_type = params.last("graphType").unwrap_or("line");
    if !matches!(graph_type, "line" | "pie") {
        return Err(bad(format!("Invalid graphType '{graph_type}', must be one of ['line', 'pie']")));
    }
    let cache_seconds = params.int("cacheTimeout", CACHE_SECONDS).map_err(bad)?;
    let cache_seconds = if params.has("noCache") { 0 } else { cache_seconds };
    let name = if params.has("target") { "target" } else { "target[]" };
    let targets: Vec<String> = params.all(name).filter(|target| !target.trim().is_empty()).map(str::to_owned).collect();
    let zone = zone(api, params);
    let times = Times::read(api, params, &zone)?;
    let x_files_factor = params.last("xFilesFactor").map_or(Ok(0.0), python::float).map_err(bad)?;
    let format = format(params, &zone)?;
    if graph_type == "pie" {
        let text = "pie charts are images, and images are not made here yet; leave graphType out and ask for a format \
                    of numbers: json, csv, raw, pickle, msgpack, dygraph or rickshaw";
        return Err(Refusal::Format(text.to_owned()));
    }
    let bytes: usize = targets.iter().map(String::len).sum();
    if bytes > api.limits.target_bytes {
        let (given, limit) = (bytes.to_string(), api.limits.target_bytes);
        return Err(Refusal::TooMuch {
            what: "the bytes of the targets are",
            given,
            limit,
            setting: "query.max_target",
        });
    }
    let source = source(&query.headers);
    let from_front_end = params.last("local") == Some("1") && matches!(format, Format::Pickle | Format::Msgpack);
    let mut expressions = Vec::with_capacity(targets.len());
    for target in &targets {
        match render::parse(target) {
            // A front end sends paths, already unescaped, and files what it gets under the text it sent.
            Ok(Expression::Path(_)) | Err(_) if from_front_end => expressions.push(Expression::Path(target.clone())),
            Ok(Expression::SeriesByTag(_)) if from_front_end => {
                expressions.push(Expression::SeriesByTag(target.clone()))
            }
            Ok(expression) => expressions.push(expression),
            Err(error) => return Err(refused(&targets, &source, &error.to_string())),
        }
    }
    // `template[name]=value`; a later one of the same name goes before, as in a Python dict.
    let mut template: Vec<(String, String)> = Vec::new();
    for (name, value) in params.pairs() {
        let Some(name) = name.strip_prefix("template[") else { continue };
        let mut chars = name.chars();
        chars.next_back();
        template.retain(|(known, _)| known != chars.as_str());
        template.push((chars.as_str().to_owned(), value.to_owned()));
    }
    let digits =
        params.last("maxDataPoints").filter(|text| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()));
    let max_data_points = digits.map(|text| text.parse().unwrap_or(usize::MAX));
    if max_data_points == Some(0) && matches!(format, Format::Json(..)) {
        return Err(bad("maxDataPoints must be at least 1".to_owned()));
    }
    Ok(Asked {
        targets,
        expressions,
        format,
        times,
        zone,
        x_files_factor,
        template,
        max_data_points,
        cache_seconds,
        source,
        from_front_end,
    })
}

/// The format asked for. graphite-web draws a picture for everything it does not know.
fn format(params: &Params, zone: &TimeZone) -> Result<Format, Refusal> {
    let given = params.last("format");
    let short = || match (params.has("rawData"), params.has("pickle")) {
        (true, _) => Some("raw"),
        (_, true) => Some("pickle"),
        _ => None,
    };
    let style = || JsonStyle {
        ascii: true,
        pretty: params.truthy("pretty"),
        callback: given.and_then(|_| params.last("jsonp")).map(str::to_owned),
    };
    let null_points = if params.has("noNullPoints") { NullPoints::Dropped } else { NullPoints::Kept };
    match given.or_else(short) {
        Some("json") => Ok(Format::Json(style(), null_points)),
        Some("csv") => Ok(Format::Csv(zone.clone())),
        Some("raw") => Ok(Format::Raw),
        Some("pickle") => Ok(Format::Pickle),
        Some("msgpack") => Ok(Format::Msgpack),
        Some("dygraph") => Ok(Format::Dygraph(style())),
        Some("rickshaw") => Ok(Format::Rickshaw(style())),
        other => {
            let given = match other {
                None => "there is no format parameter, which means a picture".to_owned(),
                Some(name) if matches!(name, "png" | "svg" | "pdf") => format!("format={name} is a picture"),
                Some(name) => format!("there is no format {}", python::quoted(name)),
            };
            let text =
                "pictures are not made here yet; use format=json, csv, raw, pickle, msgpack, dygraph or rickshaw";
            Err(Refusal::Format(format!("{given}: {text}")))
        }
    }
}

/// Who asks, by the headers that Grafana sets, as graphite-web's messages quote them.
fn source(headers: &HeaderMap) -> String {
    let names =
        [("dashboard-id", "x-dashboard-id"), ("grafana-org-id", "x-grafana-org-id"), ("panel-id", "x-panel-id")];
    let known = names.iter().filter_map(|(label, name)| {
        let value = headers.get(*name)?.to_str().ok()?;
        Some(format!("{label}: {value}"))
    });
    known.collect::<Vec<_>>().join(", ")
}

/// A target that cannot be, in graphite-web's form.
fn refused(targets: &[String], source: &str, message: &str) -> Refusal {
    let mut context = format!("; targets: \"{}\"", targets.join(", "));
    if !source.is_empty() {
        context.push_str(&format!("; source: \"{source}\""));
    }
    Refusal::Parameters { message: message.to_owned(), context }
}

/// What a render has read.
#[derive(Default)]
struct Cost {
    series: usize,
    points: usize,
}

/// Steps 2 to 5.
async fn evaluated(
    api: &Arc<Api>,
    asked: &Arc<Asked>,
    cancelled: &Arc<AtomicBool>,
    cost: &mut Cost,
) -> Result<Vec<Series>, Refusal> {
    let mut work = Work { data: Data::new(), found: HashMap::new(), wanted: Vec::new(), series: Vec::new() };
    work = step(api, asked, cancelled, work, Step::Plan).await?;
    for _ in 0..MAX_ROUNDS {
        let wanted = std::mem::take(&mut work.wanted);
        if !wanted.is_empty() {
            work = fetch(api, asked, cancelled, wanted, cost, work).await?;
        }
        work = step(api, asked, cancelled, work, Step::Evaluate).await?;
        if work.wanted.is_empty() {
            return Ok(work.series);
        }
    }
    tracing::error!(targets = ?asked.targets, "the planner asks for more and more");
    Err(Refusal::Broken)
}

/// What goes back and forth between the reactor and the threads that work.
struct Work {
    data: Data,
    // The metrics of every path that was looked up.
    found: HashMap<Arc<str>, Found>,
    wanted: Vec<Fetch>,
    series: Vec<Series>,
}

/// What is done where work may be done.
enum Step {
    Plan,
    Evaluate,
}

/// Plans, or evaluates with what is there, on a thread that may be kept busy.
async fn step(
    api: &Arc<Api>,
    asked: &Arc<Asked>,
    cancelled: &Arc<AtomicBool>,
    mut work: Work,
    step: Step,
) -> Result<Work, Refusal> {
    let (asked, api, cancelled) = (asked.clone(), api.clone(), cancelled.clone());
    let targets = asked.clone();
    let done = tokio::task::spawn_blocking(move || {
        let Times { now, from, until } = asked.times;
        let context = Context {
            time_zone: asked.zone.clone(),
            x_files_factor: asked.x_files_factor,
            max_data_points: asked.max_data_points,
            template: asked.template.clone(),
            ..Context::new(now, from, until)
        };
        let found = Arc::new(Mutex::new(std::mem::take(&mut work.found)));
        let largest_step = {
            let (api, asked, cancelled, found) = (api.clone(), asked.clone(), cancelled.clone(), found.clone());
            move |fetch: &Fetch| {
                let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                let names = look_up(&api, &asked, &cancelled, &fetch.path, &mut found, api.limits.series).ok()?;
                Reckoning::new(&api, now, usize::MAX).largest_step(fetch.span, names)
            }
        };
        let context = Context { largest_step: Some(&largest_step), ..context };
        match step {
            Step::Plan => work.wanted = render::plan(&asked.expressions, &context)?,
            Step::Evaluate => {
                let budget = Budget { points: api.limits.points, cancelled: &|| cancelled.load(Ordering::Relaxed) };
                match render::evaluate(&asked.expressions, &context, &work.data, &budget)? {
                    Evaluation::Done(series) => work.series = series,
                    Evaluation::Fetch(wanted) => work.wanted = wanted,
                }
            }
        }
        work.found = std::mem::take(&mut found.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(work)
    });
    let done: Result<Work, render::Error> = done.await.map_err(|_| Refusal::Broken)?;
    done.map_err(|error| match error {
        render::Error::Budget { points } => Refusal::TooMuch {
            what: "the points that the functions make are",
            given: format!("more than {points}"),
            limit: points,
            setting: "query.max_points",
        },
        other => refused(&targets.targets, &targets.source, &other.to_string()),
    })
}

/// Steps 3 and 4: what is wanted is resolved, reckoned, read and filed.
async fn fetch(
    api: &Arc<Api>,
    asked: &Arc<Asked>,
    cancelled: &Arc<AtomicBool>,
    wanted: Vec<Fetch>,
    cost: &mut Cost,
    mut work: Work,
) -> Result<Work, Refusal> {
    let limits = &api.limits;
    let (series_left, points_left) = (limits.series - cost.series, limits.points - cost.points);
    let resolve = {
        let (api, asked, cancelled) = (api.clone(), asked.clone(), cancelled.clone());
        move || {
            for fetch in &wanted {
                look_up(&api, &asked, &cancelled, &fetch.path, &mut work.found, series_left)?;
            }
            let requests = requests(&api, asked.times.now, &wanted, &work.found, series_left, points_left)?;
            Ok((work, wanted, requests))
        }
    };
    let resolved: Result<_, Refusal> = tokio::task::spawn_blocking(resolve).await.map_err(|_| Refusal::Broken)?;
    let (mut work, wanted, requests) = resolved?;
    let series = if requests.is_empty() { Vec::new() } else { api.series.clone().fetch(requests).await? };
    let mut series = series.into_iter();
    for fetch in wanted {
        let mut filed = Vec::new();
        let leaves = work.found.get(&fetch.path).into_iter().flat_map(Found::leaves);
        for ((_, name), read) in leaves.zip(series.by_ref()) {
            // What lies outside its retention has no series; what was never written has one of nulls.
            let Some(read) = read else { continue };
            cost.series += 1;
            cost.points += read.values.len();
            filed.push(Series::fetched(name, fetch.path.clone(), read.start, i64::from(read.step), read.values));
        }
        work.data.put(fetch, filed);
    }
    // The reckoning before the read is what keeps memory bounded; a source that read more anyway is
    // refused here.
    if cost.points > limits.points {
        return Err(too_many_points(cost.points, limits.points));
    }
    Ok(work)
}

fn too_many_points(points: usize, limit: usize) -> Refusal {
    let given = format!("{points} even at the coarsest precision kept");
    Refusal::TooMuch { what: "the points of all series are", given, limit, setting: "query.max_points" }
}

/// The metrics of a path, looked up once in a request.
fn look_up<'a>(
    api: &Api,
    asked: &Asked,
    cancelled: &Arc<AtomicBool>,
    path: &Arc<str>,
    found: &'a mut HashMap<Arc<str>, Found>,
    series_left: usize,
) -> Result<&'a Found, Refusal> {
    let entry = match found.entry(path.clone()) {
        Entry::Occupied(known) => return Ok(known.into_mut()),
        Entry::Vacant(entry) => entry,
    };
    // No tag is indexed yet, so no expression over tags finds a series.
    if path.starts_with("seriesByTag(") {
        return Ok(entry.insert(Found::default()));
    }
    let limits = FindLimits { nodes: series_left, cancelled: Some(cancelled.clone()), ..FindLimits::default() };
    match api.registry.leaves(path, &limits) {
        Ok(leaves) => Ok(entry.insert(leaves)),
        Err(FindError::TooManyNodes { .. }) => Err(too_many_series(api.limits.series)),
        Err(error) if asked.from_front_end && is_users(&error) => Ok(entry.insert(Found::default())),
        Err(error) => Err(refusal(error)),
    }
}

/// What fetches ask of the source: for each in turn, one request for each of its path's metrics.
fn requests(
    api: &Api,
    now: Timestamp,
    fetches: &[Fetch],
    found: &HashMap<Arc<str>, Found>,
    series_left: usize,
    points_left: usize,
) -> Result<Vec<SeriesRequest>, Refusal> {
    let found = |fetch: &Fetch| found.get(&fetch.path);
    let total: usize = fetches.iter().filter_map(found).map(|found| found.leaves().count()).sum();
    if total > series_left {
        return Err(too_many_series(api.limits.series));
    }
    let max_points = (points_left / total.max(1)).max(1);
    let mut requests = Vec::with_capacity(total);
    let mut reckoning = Reckoning::new(api, now, max_points);
    let mut points = 0usize;
    for fetch in fetches {
        let Some(found) = found(fetch) else { continue };
        let window = Window::between(fetch.span.from, fetch.span.until);
        requests.extend(found.leaves().map(|(metric, _)| SeriesRequest { metric, window, now, max_points }));
        points = points.saturating_add(reckoning.points(fetch.span, found));
    }
    if points > points_left {
        return Err(too_many_points(points, api.limits.points));
    }
    Ok(requests)
}

fn too_many_series(limit: usize) -> Refusal {
    let given = format!("more than {limit}");
    Refusal::TooMuch { what: "the series that match are", given, limit, setting: "query.max_series" }
}

/// What a read will give, before it is made: the stages of each metric's policy say.
struct Reckoning<'a> {
    api: &'a Api,
    now: Timestamp,
    max_points: usize,
    // By policy and span: there are few of both.
    known: HashMap<(metadata::PolicyId, Span), Option<Reckoned>>,
}

/// One series, before it is read.
#[derive(Clone, Copy)]
struct Reckoned {
    step: u32,
    points: usize,
}

impl Reckoning<'_> {
    fn new(api: &Api, now: Timestamp, max_points: usize) -> Reckoning<'_> {
        Reckoning { api, now, max_points, known: HashMap::new() }
    }

    /// Points of all metrics.
    fn points(&mut self, span: Span, found: &Found) -> usize {
        let mut points = 0usize;
        self.each(span, found, |series| points = points.saturating_add(series.points));
        points
    }

    /// The largest step among the metrics that have a series, where it is certain. Where there are so many
    /// points that a coarser stage may have to be read, it is not.
    fn largest_step(&mut self, span: Span, found: &Found) -> Option<i64> {
        let (mut points, mut step) = (0usize, None);
        self.each(span, found, |series| {
            points = points.saturating_add(series.points);
            step = step.max(Some(i64::from(series.step)));
        });
        step.filter(|_| points <= self.api.limits.points / 16)
    }

    fn each(&mut self, span: Span, found: &Found, mut each: impl FnMut(Reckoned)) {
        let names = self.api.registry.read();
        for (number, _) in found.leaves() {
            let policy = names.policy_id(number);
            let (now, max_points, api) = (self.now, self.max_points, self.api);
            let known = self.known.entry((policy, span));
            let reckoned = known.or_insert_with(|| {
                let retention = &api.registry.policy(policy).retention;
                reckoned(retention, span, now, max_points)
            });
            reckoned.iter().for_each(|&series| each(series));
        }
    }
}

/// The step and the points of one series: of the finest stage that reaches back far enough and has few
/// enough, or of the coarsest there is. These are whisper's rules, and those of every `SeriesSource`.
fn reckoned(retention: &metric::Retention, span: Span, now: Timestamp, max_points: usize) -> Option<Reckoned> {
    let oldest = now - retention.longest().duration();
    if span.from > now || span.until < oldest {
        return None;
    }
    let (from, until) = (span.from.max(oldest), span.until.min(now));
    let fitting = retention.stages().get(retention.stage_holding(from, now)?..)?;
    let mut last = None;
    for stage in fitting {
        let step = i64::from(stage.resolution());
        let points = (until.div_euclid(step) - from.div_euclid(step)).max(1);
        let points = usize::try_from(points).unwrap_or(usize::MAX);
        last = Some(Reckoned { step: stage.resolution(), points });
        if points <= max_points {
            break;
        }
    }
    last
}

/// Step 6: what `maxDataPoints` asks for, of the one format that folds.
fn folded(asked: &Asked, mut series: Vec<Series>) -> Vec<Series> {
    let (Format::Json(..), Some(most)) = (&asked.format, asked.max_data_points) else { return series };
    let range = render::time_range(&series);
    for each in &mut series {
        render::consolidate(each, most, range);
    }
    series
}

/// The headers by which browsers and proxies keep an answer, or do not.
fn set_caching(response: &mut Response, seconds: i64, now: Timestamp) {
    let control = match seconds {
        0 => "max-age=0, no-cache, no-store, must-revalidate, private".to_owned(),
        _ => format!("max-age={}", seconds.max(0)),
    };
    let expires = jiff::Timestamp::from_second(now.saturating_add(seconds.max(0))).unwrap_or(jiff::Timestamp::MAX);
    let expires = expires.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    for (name, value) in [(header::CACHE_CONTROL, control), (header::EXPIRES, expires)] {
        if let Ok(value) = value.parse() {
            response.headers_mut().insert(name, value);
        }
    }
}
