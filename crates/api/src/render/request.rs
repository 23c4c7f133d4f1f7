//! A request to `/render`, read from its parameters.

use std::{collections::HashMap, sync::Arc};

use graph::GraphType;
use hyper::HeaderMap;
use jiff::tz::TimeZone;

use super::{
    format::{self, Entry, FormatOptions, NullPoints},
    picture_options::{PictureOptions, graph_type},
};
use crate::{
    encode::{json::JsonStyle, python},
    http::{Parameters, Rejection},
    query::{Backend, Query, Times, Viewer, zone},
};

/// Seconds a browser may keep an answer: graphite-web's `DEFAULT_CACHE_DURATION`.
const CACHE_SECONDS: i64 = 60;

/// The series that a client requests.
#[derive(Debug, Clone)]
pub(crate) struct RenderRequest {
    /// Who sends it.
    pub viewer: Arc<Viewer>,
    /// The targets that are not blank.
    pub targets: Vec<String>,
    /// The time span, and the current time.
    pub times: Times,
    /// The zone in which days begin.
    pub zone: TimeZone,
    /// The share of known values that consolidation needs.
    pub x_files_factor: f64,
    /// Values for `template()`.
    pub template: Vec<(String, String)>,
    /// Points a series that the client can show.
    pub max_data_points: Option<usize>,
    /// The dashboard that sends the request, for messages.
    pub source: String,
    /// Whether a graphite-web in front of this server sends the request. After a status other than 200, it skips this
    /// server for a minute.
    pub from_front_end: bool,
    /// Whether paths are names and globs without escapes, as programs send them.
    pub has_plain_paths: bool,
    /// Whether the answer tells where each series comes from (`meta=true`).
    pub wants_lineage: bool,
}

/// A request to `/render`.
pub(crate) struct RenderCall {
    /// The series.
    pub request: RenderRequest,
    /// The form of the answer.
    pub output: Output,
    /// Seconds a browser may keep the answer.
    pub cache_seconds: i64,
}

/// The form of an answer.
pub(crate) enum Output {
    /// Numbers in a format.
    Numbers(NumberOutput),
    /// A picture.
    Picture(Box<PictureOptions>),
}

/// A format with its options.
pub(crate) struct NumberOutput {
    /// The format.
    pub entry: &'static Entry,
    /// Its options.
    pub options: FormatOptions,
}

impl RenderCall {
    /// Reads and checks the parameters.
    pub fn read(backend: &Backend, query: &Query) -> Result<RenderCall, Rejection> {
        let parameters = &query.parameters;
        let invalid = Rejection::parameters;
        let cache_seconds = parameters.int("cacheTimeout", CACHE_SECONDS).map_err(invalid)?;
        let cache_seconds = if parameters.has("noCache") { 0 } else { cache_seconds };
        let name = if parameters.has("target") { "target" } else { "target[]" };
        let targets: Vec<String> =
            parameters.all(name).filter(|target| !target.trim().is_empty()).map(str::to_owned).collect();
        let zone = zone(backend, parameters);
        let times = Times::read(backend, parameters, &zone)?;
        let x_files_factor = parameters.last("xFilesFactor").map_or(Ok(0.0), python::parse_float).map_err(invalid)?;
        let output = Output::read(query, &zone)?;
        let template = template(parameters);
        let values = template.iter().map(|(name, value)| name.len() + value.len());
        let bytes = targets.iter().map(String::len).chain(values).sum();
        backend.check_target_bytes("the bytes of the targets, and of the values of their templates, are", bytes)?;
        let entry = match &output {
            Output::Numbers(output) => Some(output.entry),
            Output::Picture(_) => None,
        };
        let from_front_end =
            parameters.last("local") == Some("1") && entry.is_some_and(|entry| entry.is_for_front_ends);
        let max_data_points = max_data_points(parameters);
        if max_data_points == Some(0) && entry.is_some_and(|entry| entry.consolidates) {
            return Err(invalid("maxDataPoints must be at least 1".to_owned()));
        }
        let request = RenderRequest {
            viewer: query.viewer.clone(),
            targets,
            times,
            zone,
            x_files_factor,
            template,
            max_data_points,
            source: source(&query.headers),
            from_front_end,
            has_plain_paths: from_front_end || query.protocol.is_some(),
            wants_lineage: entry.is_some_and(|entry| entry.consolidates) && asks_for_lineage(parameters),
        };
        Ok(RenderCall { request, output, cache_seconds })
    }
}

impl Output {
    /// The form that a request asks for: a format of numbers if it names one and does not ask for a pie.
    fn read(query: &Query, zone: &TimeZone) -> Result<Output, Rejection> {
        let graph_type = graph_type(&query.parameters)?;
        match NumberOutput::read(query, zone) {
            Some(output) if graph_type == GraphType::Lines => Ok(Output::Numbers(output)),
            _ => Ok(Output::Picture(Box::new(PictureOptions::read(query, graph_type)?))),
        }
    }
}

impl NumberOutput {
    /// The format of numbers that a request asks for. graphite-web draws a picture for every other format.
    fn read(query: &Query, zone: &TimeZone) -> Option<NumberOutput> {
        let parameters = &query.parameters;
        let given = parameters.last("format");
        let short = || match (parameters.has("rawData"), parameters.has("pickle")) {
            (true, _) => Some("raw"),
            (_, true) => Some("pickle"),
            _ => None,
        };
        let entry = match query.protocol {
            Some(protocol) => format::named(protocol.names()[0]),
            None => format::named(given.or_else(short)?),
        };
        let style = JsonStyle {
            ascii: true,
            pretty: parameters.truthy("pretty"),
            callback: given.and_then(|_| query.callback()),
        };
        let null_points = if parameters.has("noNullPoints") { NullPoints::Dropped } else { NullPoints::Kept };
        let options = FormatOptions { style, null_points, zone: zone.clone() };
        Some(NumberOutput { entry: entry?, options })
    }
}

/// The values of `template[name]=value`. A later value replaces an earlier one, as in a Python dict.
fn template(parameters: &Parameters) -> Vec<(String, String)> {
    let mut given: Vec<(&str, &str)> = Vec::new();
    for (name, value) in parameters.pairs() {
        let Some(name) = name.strip_prefix("template[") else { continue };
        let mut chars = name.chars();
        chars.next_back();
        given.push((chars.as_str(), value));
    }
    let last: HashMap<&str, usize> = given.iter().enumerate().map(|(place, (name, _))| (*name, place)).collect();
    let lasting = given.iter().enumerate().filter(|(place, (name, _))| last[name] == *place);
    lasting.map(|(_, &(name, value))| (name.to_owned(), value.to_owned())).collect()
}

/// `maxDataPoints`, ignored unless it consists of digits.
fn max_data_points(parameters: &Parameters) -> Option<usize> {
    let text = parameters.last("maxDataPoints")?;
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(usize::MAX))
}

/// `meta=true`, as Grafana sends it to data sources of the type Metrictank.
fn asks_for_lineage(parameters: &Parameters) -> bool {
    parameters.last("meta").is_some_and(|text| text == "1" || text.eq_ignore_ascii_case("true"))
}

/// The source of a request from the headers that Grafana sets, as graphite-web's messages quote them.
fn source(headers: &HeaderMap) -> String {
    let names =
        [("dashboard-id", "x-dashboard-id"), ("grafana-org-id", "x-grafana-org-id"), ("panel-id", "x-panel-id")];
    let known = names.iter().filter_map(|(label, name)| {
        let value = headers.get(*name)?.to_str().ok()?;
        Some(format!("{label}: {value}"))
    });
    known.collect::<Vec<_>>().join(", ")
}

impl RenderRequest {
    /// The same request for other targets.
    pub fn with_targets(&self, targets: Vec<String>) -> RenderRequest {
        RenderRequest { targets, ..self.clone() }
    }

    /// Names and globs from a program, with defaults for everything else.
    pub fn for_paths(backend: &Backend, query: &Query, paths: Vec<String>, times: Times) -> RenderRequest {
        RenderRequest {
            viewer: query.viewer.clone(),
            targets: paths,
            times,
            zone: backend.time_zone.clone(),
            x_files_factor: 0.0,
            template: Vec::new(),
            max_data_points: None,
            source: String::new(),
            from_front_end: false,
            has_plain_paths: true,
            wants_lineage: false,
        }
    }

    /// The rejection of an invalid target, in graphite-web's form.
    pub fn rejection(&self, message: &str) -> Rejection {
        let mut context = format!("; targets: \"{}\"", self.targets.join(", "));
        if !self.source.is_empty() {
            context.push_str(&format!("; source: \"{}\"", self.source));
        }
        Rejection::Parameters { message: message.to_owned(), context }
    }
}
