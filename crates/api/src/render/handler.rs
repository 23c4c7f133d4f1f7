//! The handler of `/render`.
//!
//! 1. Read the parameters, and reject invalid ones.
//! 2. Wait for a turn.
//! 3. Find, read and evaluate the series: see [`evaluate`].
//! 4. Consolidate points beyond `maxDataPoints`, and send the answer in its format.

use std::sync::Arc;

use hyper::header::{self, HeaderMap};
use metric::Timestamp;
use render::Series;

use super::{
    evaluation::{Cost, Evaluated, evaluate},
    format::{FormatInput, Totals},
    picture,
    request::{NumberOutput, Output, RenderCall, RenderRequest},
    series_body::respond_series,
};
use crate::{
    http::Rejection,
    query::{Backend, Kind, Query, Reply, Work, blocking},
};

/// `/render`.
pub(crate) async fn render(backend: &Arc<Backend>, query: &Query) -> Result<Reply, Rejection> {
    let RenderCall { request, output, cache_seconds } = RenderCall::read(backend, query)?;
    let request = Arc::new(request);
    let (work, _cancel) = Work::begin(backend, query, Kind::of_targets(&request.targets)).await?;
    let coding = query.coding();
    let noted = work.clone();
    let mut reply = match output {
        Output::Picture(options) => picture::render(backend, &request, &options, coding, &work).await?,
        Output::Numbers(output) => {
            let Evaluated { series, cost } = evaluate(backend, &request, Cost::default(), &work).await?;
            let inner = backend.clone();
            let response = blocking(move || {
                let series = consolidated(&output, &request, series, &work)?;
                let NumberOutput { entry, options } = output;
                let (registry, viewer, times) = (&*inner.registry, &*request.viewer, &request.times);
                let points = || series.iter().map(|series| series.values.len()).sum();
                let totals = request.wants_lineage.then(|| Totals {
                    series_read: cost.series,
                    points_read: cost.points,
                    points: points(),
                    missing_peers: work.missing_peers(),
                });
                let format = (entry.make)(FormatInput { options, registry, viewer, times, series: &series, totals });
                respond_series(format, series, inner.limits.response_bytes, coding, &work)
            });
            Reply { response: response.await?, series: cost.series as u64, points: cost.points as u64 }
        }
    };
    reply.name_missing(&noted.missing_peers());
    set_caching(reply.response.headers_mut(), cache_seconds, backend.now());
    Ok(reply)
}

/// Step 4: applies `maxDataPoints`, for formats that support it.
fn consolidated(
    output: &NumberOutput,
    request: &RenderRequest,
    mut series: Vec<Series>,
    work: &Work,
) -> Result<Vec<Series>, Rejection> {
    let Some(max_points) = request.max_data_points.filter(|_| output.entry.consolidates) else { return Ok(series) };
    let range = render::time_range(&series);
    for each in &mut series {
        if work.is_cancelled() {
            return Err(Rejection::Cancelled);
        }
        render::consolidate(each, max_points, range);
    }
    Ok(series)
}

/// Sets the headers that tell browsers and proxies how long to keep an answer.
fn set_caching(headers: &mut HeaderMap, seconds: i64, now: Timestamp) {
    let control = match seconds {
        0 => "max-age=0, no-cache, no-store, must-revalidate, private".to_owned(),
        _ => format!("max-age={}", seconds.max(0)),
    };
    let expires = jiff::Timestamp::from_second(now.saturating_add(seconds.max(0))).unwrap_or(jiff::Timestamp::MAX);
    let expires = expires.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    for (name, value) in [(header::CACHE_CONTROL, control), (header::EXPIRES, expires)] {
        if let Ok(value) = value.parse() {
            headers.insert(name, value);
        }
    }
}
