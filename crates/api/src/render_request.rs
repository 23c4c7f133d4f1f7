//! `/render`: what is asked, and how the answer goes out.
//!
//! 1. Read the parameters; refuse what cannot be.
//! 2. Wait for a turn.
//! 3. Find, read and evaluate the series: [`evaluate`] tells how.
//! 4. Fold what the client cannot show, and hand the answer to its format.

use std::sync::Arc;

use hyper::{HeaderMap, header};
use jiff::tz::TimeZone;
use metric::Timestamp;
use render::Series;
use tokio::sync::OwnedSemaphorePermit;

use crate::{
    Api, Refusal, Response,
    api::{Query, Reply},
    carbonapi::Protocol,
    carbonapi_fetch,
    carbonapi_series::FetchHead,
    evaluation::{Cost, Evaluated, evaluate},
    formats::{Answer, Format, NullPoints},
    graph_request::{self, GraphForm},
    json::JsonStyle,
    pieces::{Coding, respond},
    python,
    times::{Times, zone},
};

/// Seconds a browser may keep an answer: graphite-web's `DEFAULT_CACHE_DURATION`.
const CACHE_SECONDS: i64 = 60;

/// What a request to `/render` asks, checked.
#[derive(Clone)]
pub(crate) struct Asked {
    /// What is not blank among the targets.
    pub targets: Vec<String>,
    /// The span, and the time taken for now.
    pub times: Times,
    /// Where days begin.
    pub zone: TimeZone,
    /// The share of known values that folding needs.
    pub x_files_factor: f64,
    /// Values for `template()`.
    pub template: Vec<(String, String)>,
    /// Points a series that the client can show.
    pub max_data_points: Option<usize>,
    /// Who asks, for messages.
    pub source: String,
    /// Whether a graphite-web in front of us asks: anything but 200, and it leaves us out for a minute.
    pub from_front_end: bool,
    /// Whether paths are names and globs without escapes, as programs send them.
    pub has_plain_paths: bool,
    form: Form,
    cache_seconds: i64,
}

/// How the answer is written.
#[derive(Clone)]
enum Form {
    Numbers(Format),
    Graph(Box<GraphForm>),
}

/// `/render`.
pub(crate) async fn render(api: &Arc<Api>, query: &Query) -> Result<Reply, Refusal> {
    if query.protocol == Some(Protocol::V3) && !query.body.is_empty() {
        return carbonapi_fetch::render(api, query).await;
    }
    let asked = Arc::new(read(api, query)?);
    let permit = api.turn().await?;
    let coding = Coding::of(&query.headers);
    let mut format = match &asked.form {
        Form::Numbers(format) => format.clone(),
        Form::Graph(form) => {
            let mut reply = graph_request::render(api, &asked, form, coding, permit).await?;
            set_caching(&mut reply.response, asked.cache_seconds, (api.clock)());
            return Ok(reply);
        }
    };
    let Evaluated { series, cost } = evaluate(api, &asked, Cost::default()).await?;
    let (api_there, cache_seconds) = (api.clone(), asked.cache_seconds);
    let written = tokio::task::spawn_blocking(move || {
        if let Format::CarbonapiV3(heads) = &mut format {
            let Times { from, until, .. } = asked.times;
            heads.extend(series.iter().map(|series| FetchHead::of(&api_there, series, from, until)));
        }
        let series = folded(&format, asked.max_data_points, series);
        answered(Answer::new(format, series), api_there.limits.response_bytes, coding, permit)
    });
    let mut response = written.await.map_err(|_| Refusal::Broken)??;
    set_caching(&mut response, cache_seconds, (api.clock)());
    Ok(Reply { response, series: cost.series as u64, points: cost.points as u64 })
}

/// Hands an answer to the client, unless it is certain to be too long.
pub(crate) fn answered(
    answer: Answer,
    limit: usize,
    coding: Coding,
    permit: OwnedSemaphorePermit,
) -> Result<Response, Refusal> {
    let least = answer.least_bytes();
    if least > limit {
        return Err(Refusal::TooMuch {
            what: "the bytes of the answer come to",
            given: format!("at least {least}"),
            limit,
            setting: "query.max_response_bytes",
        });
    }
    let builder = hyper::Response::builder().header(header::CONTENT_TYPE, answer.content_type());
    Ok(respond(builder, Arc::new(answer), coding, permit))
}

/// Step 1.
fn read(api: &Api, query: &Query) -> Result<Asked, Refusal> {
    let params = &query.params;
    let bad = Refusal::parameters;
    let cache_seconds = params.int("cacheTimeout", CACHE_SECONDS).map_err(bad)?;
    let cache_seconds = if params.has("noCache") { 0 } else { cache_seconds };
    let name = if params.has("target") { "target" } else { "target[]" };
    let targets: Vec<String> = params.all(name).filter(|target| !target.trim().is_empty()).map(str::to_owned).collect();
    let zone = zone(api, params);
    let times = Times::read(api, params, &zone)?;
    let x_files_factor = params.last("xFilesFactor").map_or(Ok(0.0), python::float).map_err(bad)?;
    let form = form(query, &zone)?;
    api.check_targets(targets.iter().map(String::len).sum())?;
    let source = source(&query.headers);
    let is_for_programs = matches!(form, Form::Numbers(Format::Pickle | Format::Msgpack));
    let from_front_end = params.last("local") == Some("1") && is_for_programs;
    let has_plain_paths = from_front_end || query.protocol.is_some();
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
    if max_data_points == Some(0) && matches!(form, Form::Numbers(Format::Json(..))) {
        return Err(bad("maxDataPoints must be at least 1".to_owned()));
    }
    Ok(Asked {
        targets,
        times,
        zone,
        x_files_factor,
        template,
        max_data_points,
        source,
        from_front_end,
        has_plain_paths,
        form,
        cache_seconds,
    })
}

/// How the answer is to be written: a format of numbers where there is one of the name, and where it is not a pie.
fn form(query: &Query, zone: &TimeZone) -> Result<Form, Refusal> {
    let kind = graph_request::Kind::read(&query.params)?;
    match format(query, zone) {
        Some(format) if kind == graph_request::Kind::Lines => Ok(Form::Numbers(format)),
        _ => Ok(Form::Graph(Box::new(GraphForm::read(&query.params, kind)?))),
    }
}

/// The format of numbers asked for. graphite-web draws a picture for everything it does not know.
fn format(query: &Query, zone: &TimeZone) -> Option<Format> {
    match query.protocol {
        Some(Protocol::V2) => return Some(Format::CarbonapiV2),
        Some(Protocol::V3) => return Some(Format::CarbonapiV3(Vec::new())),
        None => {}
    }
    let params = &query.params;
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
    match given.or_else(short)? {
        "json" => Some(Format::Json(style(), null_points)),
        "csv" => Some(Format::Csv(zone.clone())),
        "raw" => Some(Format::Raw),
        "pickle" => Some(Format::Pickle),
        "msgpack" => Some(Format::Msgpack),
        "dygraph" => Some(Format::Dygraph(style())),
        "rickshaw" => Some(Format::Rickshaw(style())),
        _ => None,
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

impl Asked {
    /// The same of other targets.
    pub fn of_targets(&self, targets: Vec<String>) -> Asked {
        Asked { targets, ..self.clone() }
    }

    /// Names and globs that a program asks for, with nothing said but when.
    pub fn of_paths(api: &Api, paths: Vec<String>, times: Times) -> Asked {
        Asked {
            targets: paths,
            times,
            zone: api.time_zone.clone(),
            x_files_factor: 0.0,
            template: Vec::new(),
            max_data_points: None,
            source: String::new(),
            from_front_end: false,
            has_plain_paths: true,
            form: Form::Numbers(Format::CarbonapiV3(Vec::new())),
            cache_seconds: CACHE_SECONDS,
        }
    }

    /// A target that cannot be, in graphite-web's form.
    pub fn refused(&self, message: &str) -> Refusal {
        let mut context = format!("; targets: \"{}\"", self.targets.join(", "));
        if !self.source.is_empty() {
            context.push_str(&format!("; source: \"{}\"", self.source));
        }
        Refusal::Parameters { message: message.to_owned(), context }
    }
}

/// Step 4: what `maxDataPoints` asks for, of the one format that folds.
fn folded(format: &Format, max_data_points: Option<usize>, mut series: Vec<Series>) -> Vec<Series> {
    let (Format::Json(..), Some(most)) = (format, max_data_points) else { return series };
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
