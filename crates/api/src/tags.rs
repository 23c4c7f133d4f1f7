//! The tag API, as graphite-web answers it with a tag database.
//!
//! Every answer is JSON, as is the error of a request that the client can correct: graphite-web in front of this server reads it.

use std::sync::Arc;

use hyper::StatusCode;
use metadata::{
    FindError, FindLimits, Found, HideStale, ListedTag, ListedValue, Registry, TagExpressions, TagListing, text_id,
};
use metric::canonical_name;

use crate::{
    encode::{
        json::{JsonStyle, LIST, OBJECT, Part, json_string},
        python,
    },
    http::{AHEAD, BrowserRules, Chunks, Coding, Rejection, Response, respond, respond_text, short, uncached_head},
    query::{Backend, Kind, NamesTimes, Query, Reply, Work, blocking, compile_pattern, read_tag_expressions},
};

/// Tags or values that a completion without a limit lists, as in graphite-web.
const COMPLETIONS: usize = 100;

/// Bytes of an entry in an answer, without its text: an estimate.
const ENTRY_BYTES: usize = 80;

/// What is wrong with a request, or why it cannot be answered.
enum Problem {
    /// The client's mistake, in graphite-web's words where it has some.
    Asked(String),
    /// Another, answered as everywhere.
    Other(Rejection),
}

impl From<FindError> for Problem {
    fn from(error: FindError) -> Problem {
        match error {
            FindError::Tags(error) => Problem::Asked(error.to_string()),
            other => Problem::Other(other.into()),
        }
    }
}

impl From<Rejection> for Problem {
    fn from(rejection: Rejection) -> Problem {
        Problem::Other(rejection)
    }
}

/// `/tags`: all tags.
pub(crate) async fn list(backend: &Arc<Backend>, query: &Query) -> Result<Reply, Rejection> {
    let listing = filtered(query);
    tags_work(backend, query, listing, |registry, listing, limits, turn| {
        listed(turn, limits, |limits| Ok(List::Tags(registry.list_tags(listing, limits)?)))
    })
    .await
}

/// `/tags/TAG`: the values of a tag.
pub(crate) async fn details(backend: &Arc<Backend>, query: &Query) -> Result<Reply, Rejection> {
    let encoded = query.path.strip_prefix("/tags/").unwrap_or_default();
    let tag = percent_encoding::percent_decode_str(encoded).decode_utf8_lossy().into_owned();
    let asked = filtered(query).map(|listing| move || Ok((tag, listing()?)));
    tags_work(backend, query, asked, |registry, (tag, listing), limits, turn| {
        listed(turn, limits, |limits| {
            let Some(values) = registry.list_values(tag, listing, limits)? else { return Ok(List::Nothing) };
            Ok(List::Details { id: text_id(tag), tag: tag.clone(), values })
        })
    })
    .await
}

/// `/tags/findSeries`: the names of metrics for which expressions hold.
pub(crate) async fn find_series(backend: &Arc<Backend>, query: &Query) -> Result<Reply, Rejection> {
    let expressions = match texts_of(query, "expr", "expr[]") {
        texts if texts.is_empty() => Err("no tag expressions specified".to_owned()),
        texts => Ok(expressions_of(owned(texts))),
    };
    tags_work(backend, query, expressions, |registry, expressions, limits, turn| {
        Ok(turn.find_tagged(registry, expressions, limits, |_| 0)?.map(Listed::Found))
    })
    .await
}

/// `/tags/autoComplete/tags`: tags that metrics have for which expressions hold, without the tags of these.
pub(crate) async fn complete_tags(backend: &Arc<Backend>, query: &Query) -> Result<Reply, Rejection> {
    let listing = completion(query, "tagPrefix", None);
    tags_work(backend, query, listing, |registry, listing, limits, turn| {
        listed(turn, limits, |limits| {
            let tags = registry.list_tags(listing, limits)?;
            Ok(List::Texts(tags.into_iter().map(|one| one.tag).collect()))
        })
    })
    .await
}

/// `/tags/autoComplete/values`: values of a tag that metrics have for which expressions hold.
pub(crate) async fn complete_values(backend: &Arc<Backend>, query: &Query) -> Result<Reply, Rejection> {
    let tag = query.parameters.last("tag").unwrap_or_default().to_owned();
    let listing = match tag.is_empty() {
        true => Err("no tag specified".to_owned()),
        false => completion(query, "valuePrefix", Some(&tag)),
    };
    let asked = listing.map(|listing| move || Ok((tag, listing()?)));
    tags_work(backend, query, asked, |registry, (tag, listing), limits, turn| {
        listed(turn, limits, |limits| {
            let values = registry.list_values(tag, listing, limits)?.unwrap_or_default();
            Ok(List::Texts(values.into_iter().map(|one| one.value).collect()))
        })
    })
    .await
}

/// `/tags/tagSeries` and `/tags/tagMultiSeries`: the canonical names of series. Nothing is stored: a metric is there from its
/// first point on.
pub(crate) async fn tag_series(_: &Arc<Backend>, query: &Query) -> Result<Reply, Rejection> {
    let is_one = query.path == "/tags/tagSeries";
    let paths = match is_one {
        true => query.parameters.last("path").filter(|path| !path.is_empty()).into_iter().collect(),
        false => texts_of(query, "path", "path[]"),
    };
    if paths.is_empty() {
        let what = if is_one { "no path specified" } else { "no paths specified" };
        return Ok(mistake(query, what));
    }
    let mut names = Vec::new();
    for path in paths {
        match canonical_name(path.as_bytes()) {
            Ok(name) if metadata::is_plain_or_tagged(&name) => names.push(name.into_owned()),
            Ok(_) => return Ok(mistake(query, &format!("Cannot parse path {path}"))),
            Err(error) => return Ok(mistake(query, &format!("Cannot parse path {path}: {error}"))),
        }
    }
    let style = style(query);
    let mut out = Vec::new();
    style.open(&mut out);
    match names.first() {
        Some(name) if is_one => json_string(&mut out, name, true),
        _ => style.items(&mut out, LIST, 1, &names, |out, name| json_string(out, name, true)),
    }
    style.close(&mut out);
    Ok(Reply::json(StatusCode::OK, out))
}

/// How an answer to a request for tags is written.
#[derive(Debug, Clone)]
pub struct TagStyle(JsonStyle);

impl Default for TagStyle {
    fn default() -> TagStyle {
        TagStyle(JsonStyle { ascii: true, pretty: false, callback: None })
    }
}

impl TagStyle {
    /// Of the parameters `pretty` and `jsonp`, where that is allowed (`http.jsonp`).
    ///
    /// # Errors
    /// What is wrong with `jsonp`.
    pub fn of(allows_jsonp: bool, pretty: Option<&str>, jsonp: Option<&str>) -> Result<TagStyle, String> {
        let is_given = |text: &&str| !text.is_empty();
        let callback = jsonp.filter(is_given).map(str::to_owned);
        if let Some(callback) = &callback {
            let rules = BrowserRules { jsonp: allows_jsonp, ..BrowserRules::default() };
            rules.check_callback(callback).map_err(|rejection| rejection.to_string())?;
        }
        Ok(TagStyle(JsonStyle { ascii: true, pretty: pretty.is_some_and(|text| !text.is_empty()), callback }))
    }

    /// The content type.
    pub fn content_type(&self) -> &'static str {
        self.0.content_type()
    }

    /// The body of an answer that says that something is done.
    pub fn done(&self) -> Vec<u8> {
        self.written(|out| out.extend_from_slice(b"true"))
    }

    /// The body of an answer with an error.
    pub fn error(&self, text: &str) -> Vec<u8> {
        self.written(|out| object(out, &self.0, 1, &[("error", Field::Text(text))]))
    }

    fn written(&self, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        self.0.open(&mut out);
        write(&mut out);
        self.0.close(&mut out);
        out
    }
}

/// What an answer has.
enum Listed {
    Found(Found),
    List(List),
}

/// A list in an answer, or `null`. It is short, unless a client asks for all values of a tag.
enum List {
    Texts(Vec<String>),
    Tags(Vec<ListedTag>),
    Details { id: u32, tag: String, values: Vec<ListedValue> },
    Nothing,
}

impl List {
    /// Memory of the list, and of the answer: an estimate.
    fn bytes(&self) -> usize {
        match self {
            List::Texts(texts) => texts.iter().map(|text| text.len() + ENTRY_BYTES).sum(),
            List::Tags(tags) => tags.iter().map(|one| one.tag.len() + ENTRY_BYTES).sum(),
            List::Details { values, .. } => values.iter().map(|one| one.value.len() + ENTRY_BYTES).sum(),
            List::Nothing => 0,
        }
    }

    /// As `json.dumps` writes it: with `pretty`, keys are sorted.
    fn write(&self, style: &JsonStyle, out: &mut Vec<u8>) {
        match self {
            List::Texts(texts) => style.items(out, LIST, 1, texts, |out, text| json_string(out, text, true)),
            List::Tags(tags) => style.items(out, LIST, 1, tags, |out, one| {
                object(out, style, 2, &[("id", Field::Number(one.id.into())), ("tag", Field::Text(&one.tag))]);
            }),
            List::Details { id, tag, values } => {
                let fields =
                    [("id", Field::Number((*id).into())), ("tag", Field::Text(tag)), ("values", Field::Values(values))];
                object(out, style, 1, &fields);
            }
            List::Nothing => out.extend_from_slice(b"null"),
        }
    }
}

/// What an object has.
enum Field<'a> {
    Number(u64),
    Text(&'a str),
    Values(&'a [ListedValue]),
}

fn object(out: &mut Vec<u8>, style: &JsonStyle, depth: usize, fields: &[(&str, Field<'_>)]) {
    style.items(out, OBJECT, depth, fields, |out, (name, field)| {
        json_string(out, name, true);
        out.extend_from_slice(b": ");
        match field {
            Field::Number(number) => out.extend_from_slice(number.to_string().as_bytes()),
            Field::Text(text) => json_string(out, text, true),
            Field::Values(values) => style.items(out, LIST, depth + 1, *values, |out, one| {
                let (id, value) = (("id", Field::Number(one.id.into())), ("value", Field::Text(&one.value)));
                let count = ("count", Field::Number(one.count));
                let fields = if style.pretty { [count, id, value] } else { [id, value, count] };
                object(out, style, depth + 2, &fields);
            }),
        }
    });
}

/// Waits for a turn, reads what is asked and calls `work` with it on a thread that may block, and answers with its list. Compiling
/// a hundred patterns takes a second.
async fn tags_work<T>(
    backend: &Arc<Backend>,
    query: &Query,
    asked: Result<impl FnOnce() -> Result<T, String> + Send + 'static, String>,
    work: impl FnOnce(&Registry, &T, &FindLimits, &Work) -> Result<Result<Listed, FindError>, Rejection> + Send + 'static,
) -> Result<Reply, Rejection> {
    let asked = match asked {
        Ok(asked) => asked,
        Err(text) => return Ok(mistake(query, &text)),
    };
    let times = match NamesTimes::read(backend, &query.parameters) {
        Ok(times) => times,
        Err(rejection) => return Ok(mistake(query, &rejection.to_string())),
    };
    let (turn, _cancel) = Work::begin(backend, query, Kind::Names).await?;
    let (backend, filter) = (backend.clone(), query.viewer.metrics());
    let (style, coding) = (style(query), query.coding());
    let answer = blocking(move || {
        let cancelled = Some(turn.cancelled().clone());
        let nodes = backend.limits.find_results;
        let stale = Some(HideStale { now: times.now, unless: [times.span()].into() });
        let limits = FindLimits { nodes, cancelled, filter, times: times.span(), stale, ..FindLimits::default() };
        backend.finder.has_all()?;
        let asked = match asked() {
            Ok(asked) => asked,
            Err(text) => return Ok(Err(text)),
        };
        let listed = work(&backend.registry, &asked, &limits, &turn)?;
        match listed.map_err(Problem::from).and_then(|listed| Ok(respond_list(listed, style, coding, &turn)?)) {
            Ok(response) => Ok(Ok(response)),
            Err(Problem::Asked(text)) => Ok(Err(text)),
            Err(Problem::Other(rejection)) => Err(rejection),
        }
    });
    Ok(match answer.await? {
        Ok(response) => response.into(),
        Err(text) => mistake(query, &text),
    })
}

/// A list, whose memory is taken before.
fn listed(
    turn: &Work,
    limits: &FindLimits,
    list: impl Fn(&FindLimits) -> Result<List, FindError>,
) -> Result<Result<Listed, FindError>, Rejection> {
    Ok(turn.within_memory(limits, 0, list, List::bytes, List::bytes)?.map(Listed::List))
}

/// Names in one chunk of an answer: about 300 kB.
const NAMES_PER_CHUNK: usize = 2048;

/// Bytes of punctuation of a name in JSON: quotes, comma, blank.
const PUNCTUATION: usize = 4;

/// The names of metrics that were found, written while they are sent: a large answer is not in memory a second time.
struct FoundNames {
    found: Found,
    style: JsonStyle,
}

impl FoundNames {
    /// Bytes in memory while the answer is sent: the names, and the chunks that are ready. An estimate.
    fn memory(&self) -> usize {
        let text: usize = self.found.lengths().map(|length| length + PUNCTUATION).sum();
        let (names, ready) = (self.found.len().max(1), NAMES_PER_CHUNK * (AHEAD + 1));
        self.found.bytes() + if names <= ready { text } else { text / names * ready }
    }
}

impl Chunks for FoundNames {
    fn count(&self) -> usize {
        self.found.len().div_ceil(NAMES_PER_CHUNK).max(1)
    }

    fn write(&self, chunk: usize, out: &mut Vec<u8>) {
        let FoundNames { found, style } = self;
        let begin = chunk * NAMES_PER_CHUNK;
        let end = found.len().min(begin + NAMES_PER_CHUNK);
        out.reserve(found.range(begin..end).map(|node| node.path.len() + PUNCTUATION).sum());
        if begin == 0 {
            style.open(out);
        }
        let part = Part { is_first: begin == 0, is_last: end == found.len() };
        let names = found.range(begin..end).map(|node| node.path);
        style.part(out, LIST, 1, part, names, |out, name| json_string(out, name, true));
        if end == found.len() {
            style.close(out);
        }
    }
}

fn respond_list(listed: Listed, style: JsonStyle, coding: Coding, turn: &Work) -> Result<Response, Rejection> {
    let head = uncached_head(style.content_type());
    match listed {
        Listed::Found(found) => {
            let names = FoundNames { found, style };
            let share = turn.answer(names.memory())?;
            Ok(respond(head, Arc::new(names), coding, share))
        }
        Listed::List(list) => {
            let bytes = list.bytes();
            turn.take(bytes)?;
            let share = turn.answer(bytes)?;
            let mut out = Vec::with_capacity(bytes);
            style.open(&mut out);
            list.write(&style, &mut out);
            style.close(&mut out);
            Ok(respond_text(head, out, coding, share))
        }
    }
}

/// The answer to a request that the client can correct.
fn mistake(query: &Query, text: &str) -> Reply {
    let style = TagStyle(style(query));
    short(StatusCode::BAD_REQUEST, style.content_type(), style.error(text)).into()
}

fn style(query: &Query) -> JsonStyle {
    JsonStyle { ascii: true, pretty: query.parameters.truthy("pretty"), callback: query.callback() }
}

/// The values of a name, or of the same with brackets, as PHP and Rails write lists.
fn texts_of<'a>(query: &'a Query, name: &str, with_brackets: &str) -> Vec<&'a str> {
    let texts: Vec<&str> = query.parameters.all(name).collect();
    if texts.is_empty() { query.parameters.all(with_brackets).collect() } else { texts }
}

fn owned(texts: Vec<&str>) -> Vec<String> {
    texts.into_iter().map(str::to_owned).collect()
}

fn expressions_of(texts: Vec<String>) -> impl FnOnce() -> Result<TagExpressions, String> {
    move || read_tag_expressions(&texts).map_err(|error| error.to_string())
}

/// The listing of `filter` and `limit`, whose pattern is not compiled yet. As in SQL, a negative limit is none.
fn filtered(query: &Query) -> Result<impl FnOnce() -> Result<TagListing, String> + use<>, String> {
    let filter = query.parameters.last("filter").filter(|filter| !filter.is_empty());
    let filter = filter.map(|filter| match filter.starts_with('^') {
        true => filter.to_owned(),
        false => format!("^({filter})"),
    });
    let limit = query.parameters.last("limit").filter(|limit| !limit.is_empty());
    let limit = limit.map(python::parse_int).transpose()?.and_then(|limit| usize::try_from(limit).ok());
    Ok(move || {
        let pattern = filter.map(|filter| compile_pattern(&filter, 1)).transpose();
        let pattern = pattern.map_err(|reason| format!("the filter {reason}"))?;
        Ok(TagListing { pattern, limit, ..TagListing::default() })
    })
}

/// The listing of a completion: of the values of a tag, or of tags; patterns are not compiled yet. Grafana sends a limit of 0 where it
/// has none: see docs/differences.md.
fn completion(
    query: &Query,
    prefix: &str,
    tag: Option<&str>,
) -> Result<impl FnOnce() -> Result<TagListing, String> + use<>, String> {
    let limit = query.parameters.last("limit").filter(|limit| !limit.is_empty()).map(python::parse_int).transpose()?;
    let limit = limit.and_then(|limit| usize::try_from(limit).ok()).filter(|&limit| limit > 0);
    let mut texts = owned(texts_of(query, "expr", "expr[]"));
    if let Some(tag) = tag.filter(|_| !texts.is_empty()) {
        texts.push(format!("{tag}!="));
    }
    let prefix = query.parameters.last(prefix).unwrap_or_default().to_owned();
    Ok(move || {
        let expressions = if texts.is_empty() { None } else { Some(expressions_of(texts)()?) };
        Ok(TagListing { expressions, prefix, pattern: None, limit: Some(limit.unwrap_or(COMPLETIONS)) })
    })
}
