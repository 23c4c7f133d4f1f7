//! The parameters of a picture. `graph` owns those of the drawing; `format` and `jsonp` are HTTP's.

use std::cell::Cell;

use graph::{Error, GraphType, Options};

use crate::{
    http::{Parameters, Rejection},
    query::Query,
};

/// Bytes of a text of a picture, such as its title: each is measured and drawn letter by letter.
const MAX_TEXT: usize = 4 << 10;

/// A picture that a client requests.
#[derive(Debug, Clone)]
pub(crate) struct PictureOptions {
    /// How it is drawn.
    pub graph: Options,
    /// Lines or a pie.
    pub graph_type: GraphType,
    /// The form of the file.
    pub file: File,
}

/// The form of a picture's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum File {
    /// PNG.
    Png,
    /// SVG, as the argument of a function if `jsonp` names one.
    Svg(Option<String>),
}

/// Reads `graphType` and `pieMode`.
pub(crate) fn graph_type(parameters: &Parameters) -> Result<GraphType, Rejection> {
    GraphType::read(&|name| parameters.last(name)).map_err(invalid)
}

impl PictureOptions {
    /// Reads the parameters of a picture: SVG for `format=svg`, and PNG for every unknown format, as in graphite-web.
    pub fn read(query: &Query, graph_type: GraphType) -> Result<PictureOptions, Rejection> {
        let parameters = &query.parameters;
        let file = match parameters.last("format") {
            Some("pdf") => {
                let text =
                    "format=pdf is not supported: use format=svg, which most programs convert to PDF, or format=png";
                return Err(Rejection::Format(text.to_owned()));
            }
            Some("svg") => File::Svg(query.callback()),
            _ => File::Png,
        };
        let too_long = Cell::new(None);
        let text = |name: &str| {
            let text = parameters.last(name)?;
            if text.len() > MAX_TEXT {
                too_long.set(Some((name.to_owned(), text.len())));
                return None;
            }
            Some(text)
        };
        let graph = Options::read(&text).map_err(invalid);
        if let Some((name, bytes)) = too_long.take() {
            let problem =
                format!("the parameter {name} of a picture has {bytes} bytes; at most {MAX_TEXT} are allowed");
            return Err(Rejection::parameters(problem));
        }
        let graph = graph?;
        Ok(PictureOptions { graph, graph_type, file })
    }
}

fn invalid(error: Error) -> Rejection {
    Rejection::parameters(error.to_string())
}
