//! `/render` as a picture: its options, the drawing, and the answer.

use std::sync::Arc;

use graph::{Error, Fold, GraphType, Options, Picture, Slice, SliceSize, Style, line_graph, pie_graph};
use render::{Consolidation, GraphOptions, Series};

use super::{
    evaluation::{Cost, Evaluated, evaluate},
    picture_options::{File, PictureOptions},
    request::RenderRequest,
};
use crate::{
    encode::{json::json_string, python},
    http::{Coding, Rejection, Response, head, respond_text},
    query::{Backend, Reply, Work, blocking},
};

/// Draws the series of a request and answers with the picture.
pub(crate) async fn render(
    backend: &Arc<Backend>,
    request: &Arc<RenderRequest>,
    options: &PictureOptions,
    coding: Coding,
    work: &Arc<Work>,
) -> Result<Reply, Rejection> {
    let (content, cost) = match options.graph_type {
        GraphType::Lines => {
            let Evaluated { series, cost } = evaluate(backend, request, Cost::default(), work).await?;
            (Content::Lines(series), cost)
        }
        GraphType::Pie(size) => {
            let (slices, cost) = slices(backend, request, size, work).await?;
            (Content::Slices(slices), cost)
        }
    };
    let (options, request, limit) = (options.clone(), request.clone(), backend.limits.response_bytes);
    let work = work.clone();
    let response = blocking(move || {
        work.take(content.drawing_bytes(&options))?;
        let stop = || work.is_cancelled();
        let picture = content.draw(&options.graph, &request, &stop).map_err(rejection)?;
        respond(&picture, &options.file, limit, coding, &work)
    });
    Ok(Reply { response: response.await?, series: cost.series as u64, points: cost.points as u64 })
}

fn rejection(error: Error) -> Rejection {
    match error {
        Error::TooLong { limit } => Rejection::response_too_large(format!("more than {limit}"), limit),
        Error::Stopped => Rejection::Cancelled,
        other => Rejection::parameters(other.to_string()),
    }
}

/// The input of a drawing.
enum Content {
    Lines(Vec<Series>),
    Slices(Vec<Slice>),
}

/// Bytes of a point of a drawing: in its paths, and as text.
const POINT_BYTES: usize = 48;

/// Bytes of a pixel: drawn, and compressed.
const PIXEL_BYTES: usize = 2 * 4;

/// Bytes of a series or slice besides its points: its entry in the legend.
const ENTRY_BYTES: usize = 1024;

impl Content {
    /// What drawing takes, at most about: no series has more points than the picture has columns.
    fn drawing_bytes(&self, options: &PictureOptions) -> usize {
        let (width, height) = options.graph.size();
        let pixels = match options.file {
            File::Png => PIXEL_BYTES * width * height,
            File::Svg(_) => 0,
        };
        let drawn = match self {
            Content::Lines(series) => {
                series.iter().map(|series| ENTRY_BYTES + POINT_BYTES * series.values.len().min(width)).sum()
            }
            Content::Slices(slices) => ENTRY_BYTES * slices.len(),
        };
        drawn + pixels
    }

    fn draw(self, options: &Options, request: &RenderRequest, stop: &dyn Fn() -> bool) -> Result<Picture, Error> {
        match self {
            Content::Lines(series) => {
                let lines: Vec<graph::Series> = series.into_iter().map(line).collect();
                line_graph(options, &lines, &request.zone, stop)
            }
            Content::Slices(slices) => pie_graph(options, &slices, stop),
        }
    }
}

/// A series as `graph` draws it.
fn line(series: Series) -> graph::Series {
    let style = style(series.graph_options());
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

/// The options that functions of the group *Graph* set, as `graph` draws them. Both structs have the same fields, and the compiler
/// checks that none is missing here.
fn style(options: &GraphOptions) -> Style {
    let GraphOptions { color, alpha, line_width, dashed, second_axis, stacked, infinite, invisible } = options.clone();
    Style { color, alpha, line_width, dashed, second_axis, stacked, infinite, invisible }
}

/// The slices of a pie in the order of the targets: one for each `name:number`, one for each series of an expression.
async fn slices(
    backend: &Arc<Backend>,
    request: &Arc<RenderRequest>,
    size: SliceSize,
    work: &Arc<Work>,
) -> Result<(Vec<Slice>, Cost), Rejection> {
    let mut slices = Vec::new();
    let mut cost = Cost::default();
    let mut targets = request.targets.iter().peekable();
    while let Some(target) = targets.next() {
        if let Some(slice) = given_slice(target) {
            slices.push(slice);
            continue;
        }
        // Consecutive expressions are evaluated together.
        let mut row = vec![target.clone()];
        while let Some(more) = targets.next_if(|target| given_slice(target).is_none()) {
            row.push(more.clone());
        }
        let evaluated = evaluate(backend, &Arc::new(request.with_targets(row)), cost, work).await?;
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

/// Parses `name:number`. Other targets may contain colons too; graphite-web answers those with 500.
fn given_slice(target: &str) -> Option<Slice> {
    let (name, number) = target.split_once(':')?;
    Some(Slice { name: name.to_owned(), value: python::parse_float(number).ok()? })
}

/// Writes a picture into an answer.
fn respond(picture: &Picture, file: &File, limit: usize, coding: Coding, work: &Work) -> Result<Response, Rejection> {
    let stop = || work.is_cancelled();
    let svg = || picture.svg(limit, &stop).map_err(rejection);
    Ok(match file {
        // PNG is compressed already.
        File::Png => {
            let png = picture.png(&stop).map_err(rejection)?;
            let share = work.answer(png.len())?;
            respond_text(head("image/png"), png, Coding::Identity, share)
        }
        File::Svg(None) => {
            let text = svg()?.into_bytes();
            let share = work.answer(text.len())?;
            respond_text(head("image/svg+xml"), text, coding, share)
        }
        File::Svg(Some(callback)) => {
            let mut text = format!("{callback}(").into_bytes();
            json_string(&mut text, &svg()?, true);
            text.push(b')');
            let share = work.answer(text.len())?;
            respond_text(head("text/javascript"), text, coding, share)
        }
    })
}
