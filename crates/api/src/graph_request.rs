//! `/render` as a picture: what is asked of it, what its series become, and how it goes out.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use graph::{Error, Fold, Options, Picture, Slice, Style, line_graph, pie_graph};
use hyper::header::CONTENT_TYPE;
use render::{Consolidation, Series};
use tokio::sync::OwnedSemaphorePermit;

use crate::{
    Api, Body, Refusal, Response,
    api::Reply,
    evaluation::{Cost, Evaluated, evaluate},
    find::CancelOnDrop,
    params::Params,
    pieces::{Coding, respond_text},
    python,
    render_request::Asked,
    write::json_string,
};

/// A picture that is asked for.
#[derive(Debug, Clone)]
pub(crate) struct GraphForm {
    options: Options,
    kind: Kind,
    file: File,
}

/// What is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A line for each series.
    Lines,
    /// A slice for each series, as large as it comes to.
    Pie(SliceSize),
}

/// What a series comes to as a slice of a pie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SliceSize {
    Average,
    Maximum,
    Minimum,
}

/// How the picture is written.
#[derive(Debug, Clone, PartialEq, Eq)]
enum File {
    Png,
    /// SVG, in a call of a function where `jsonp` names one.
    Svg(Option<String>),
}

impl Kind {
    /// What `graphType` and `pieMode` ask for.
    pub fn read(params: &Params) -> Result<Kind, Refusal> {
        match params.last("graphType") {
            None | Some("line") => return Ok(Kind::Lines),
            Some("pie") => {}
            Some(other) => {
                let other = format!("Invalid graphType '{other}', must be one of ['line', 'pie']");
                return Err(Refusal::parameters(other));
            }
        }
        let mode = params.last("pieMode").filter(|mode| !mode.is_empty()).unwrap_or("average");
        match mode.to_ascii_lowercase().as_str() {
            "average" => Ok(Kind::Pie(SliceSize::Average)),
            "maximum" => Ok(Kind::Pie(SliceSize::Maximum)),
            "minimum" => Ok(Kind::Pie(SliceSize::Minimum)),
            _ => {
                let mode = python::quoted(mode);
                Err(Refusal::parameters(format!("pieMode must be average, maximum or minimum, got {mode}")))
            }
        }
    }
}

impl GraphForm {
    /// What a request asks: SVG where `format` says so, and PNG for any name that is not another format's, as in
    /// graphite-web.
    pub fn read(params: &Params, kind: Kind) -> Result<GraphForm, Refusal> {
        let file = match params.last("format") {
            Some("pdf") => {
                let text =
                    "format=pdf is not made here: use format=svg, which most programs turn into PDF, or format=png";
                return Err(Refusal::Format(text.to_owned()));
            }
            Some("svg") => File::Svg(params.last("jsonp").map(str::to_owned)),
            _ => File::Png,
        };
        let options =
            Options::read(&|name| params.last(name)).map_err(|error| Refusal::parameters(error.to_string()))?;
        Ok(GraphForm { options, kind, file })
    }
}

/// Answers with a picture.
pub(crate) async fn render(
    api: &Arc<Api>,
    asked: &Arc<Asked>,
    form: &GraphForm,
    coding: Coding,
    permit: OwnedSemaphorePermit,
) -> Result<Reply, Refusal> {
    let (content, cost) = match form.kind {
        Kind::Lines => {
            let Evaluated { series, cost } = evaluate(api, asked, Cost::default()).await?;
            (Content::Lines(series), cost)
        }
        Kind::Pie(size) => {
            let (slices, cost) = slices(api, asked, size).await?;
            (Content::Slices(slices), cost)
        }
    };
    let cancelled = Arc::new(AtomicBool::new(false));
    let _cancel = CancelOnDrop(cancelled.clone());
    let (form, asked, limit) = (form.clone(), asked.clone(), api.limits.response_bytes);
    let drawn = tokio::task::spawn_blocking(move || {
        let stop = || cancelled.load(Ordering::Relaxed);
        let picture = content.draw(&form.options, &asked, &stop);
        let response = picture.and_then(|picture| respond(&picture, &form.file, limit, coding, permit, &stop));
        response.map_err(|error| match error {
            Error::TooLong { limit } => Refusal::TooMuch {
                what: "the bytes of the answer come to",
                given: format!("more than {limit}"),
                limit,
                setting: "query.max_response_bytes",
            },
            // Nobody is there to read it.
            Error::Stopped => Refusal::Broken,
            other => Refusal::parameters(other.to_string()),
        })
    });
    let response = drawn.await.map_err(|_| Refusal::Broken)??;
    Ok(Reply { response, series: cost.series as u64, points: cost.points as u64 })
}

/// What is drawn from.
enum Content {
    Lines(Vec<Series>),
    Slices(Vec<Slice>),
}

impl Content {
    fn draw(self, options: &Options, asked: &Asked, stop: &dyn Fn() -> bool) -> Result<Picture, Error> {
        match self {
            Content::Lines(series) => {
                let lines: Vec<graph::Series> = series.into_iter().map(line).collect();
                line_graph(options, &lines, &asked.zone, stop)
            }
            Content::Slices(slices) => pie_graph(options, &slices, stop),
        }
    }
}

/// A series as it is drawn.
fn line(series: Series) -> graph::Series {
    let options = series.graph_options();
    let style = Style {
        color: options.color.clone(),
        alpha: options.alpha,
        line_width: options.line_width,
        dashed: options.dashed,
        second_axis: options.second_axis,
        stacked: options.stacked,
        infinite: options.infinite,
        invisible: options.invisible,
    };
    let fold = match series.consolidation {
        Consolidation::Average | Consolidation::Avg => Fold::Average,
        Consolidation::AvgZero => Fold::AverageZero,
        Consolidation::Sum => Fold::Sum,
        Consolidation::Max => Fold::Max,
        Consolidation::Min => Fold::Min,
        Consolidation::First => Fold::First,
        Consolidation::Last => Fold::Last,
    };
    graph::Series {
        name: series.name,
        start: series.start,
        end: series.end,
        step: series.step,
        values: series.values,
        fold,
        x_files_factor: series.x_files_factor,
        style,
    }
}

/// The slices of a pie, in the order of the targets: `name:number`, or one for each series of an expression.
async fn slices(api: &Arc<Api>, asked: &Arc<Asked>, size: SliceSize) -> Result<(Vec<Slice>, Cost), Refusal> {
    let mut slices = Vec::new();
    let mut cost = Cost::default();
    let mut targets = asked.targets.iter().peekable();
    while let Some(target) = targets.next() {
        if let Some(slice) = given_slice(target) {
            slices.push(slice);
            continue;
        }
        // Expressions in a row are evaluated together.
        let mut row = vec![target.clone()];
        while let Some(more) = targets.next_if(|target| given_slice(target).is_none()) {
            row.push(more.clone());
        }
        let evaluated = evaluate(api, &Arc::new(asked.of_targets(row)), cost).await?;
        cost = evaluated.cost;
        slices.extend(
            evaluated
                .series
                .iter()
                .map(|series| Slice { name: series.name.to_string(), value: size.of(&series.values) }),
        );
    }
    Ok((slices, cost))
}

/// `name:number`. Other targets may hold colons too, for which graphite-web has a 500.
fn given_slice(target: &str) -> Option<Slice> {
    let (name, number) = target.split_once(':')?;
    Some(Slice { name: name.to_owned(), value: python::float(number).ok()? })
}

impl SliceSize {
    fn of(self, values: &[f64]) -> f64 {
        let known = || values.iter().copied().filter(|value| value.is_finite());
        let count = known().count();
        if count == 0 {
            return 0.0;
        }
        match self {
            SliceSize::Average => known().sum::<f64>() / count as f64,
            SliceSize::Maximum => known().fold(f64::NEG_INFINITY, f64::max),
            SliceSize::Minimum => known().fold(f64::INFINITY, f64::min),
        }
    }
}

/// Writes a picture into an answer.
fn respond(
    picture: &Picture,
    file: &File,
    limit: usize,
    coding: Coding,
    permit: OwnedSemaphorePermit,
    stop: &dyn Fn() -> bool,
) -> Result<Response, Error> {
    let builder = hyper::Response::builder();
    let svg = || picture.svg(limit, stop);
    Ok(match file {
        // Compressed already.
        File::Png => {
            let body = Body::from(picture.png(stop)?);
            builder.header(CONTENT_TYPE, "image/png").body(body).expect("the parts of an answer are ours")
        }
        File::Svg(None) => {
            respond_text(builder.header(CONTENT_TYPE, "image/svg+xml"), svg()?.into_bytes(), coding, permit)
        }
        File::Svg(Some(callback)) => {
            let mut text = format!("{callback}(").into_bytes();
            json_string(&mut text, &svg()?, true);
            text.push(b')');
            respond_text(builder.header(CONTENT_TYPE, "text/javascript"), text, coding, permit)
        }
    })
}
