//! Graphs as SVG and PNG, asked for with graphite-web's parameters.
//!
//! [`Options::read`] takes the parameters of a request, [`line_graph`] and [`pie_graph`] lay a picture out, and a
//! [`Picture`] is written as [`Picture::svg`] or [`Picture::png`]. Nothing here fetches, waits or looks at a clock, and
//! the same input gives the same bytes.
//!
//! The choices that change what a graph says (scales, labels, folding, stacking, colours) are graphite-web's; how it is
//! set on the page is not.

mod options;
mod series;

mod line_graph;
mod pie_graph;

mod axes;
mod layout;
mod legend;
mod skyline;
mod time_axis;
mod trace;
mod units;
mod value_axis;

mod color;
mod face;
mod scene;
mod template;

mod raster;
mod svg;

pub use line_graph::line_graph;
pub use options::{MAX_PIXELS, Options};
pub use pie_graph::{Slice, pie_graph};
pub use series::{Fold, Series, Style};

/// A picture, ready to be written.
#[derive(Debug, Clone)]
pub struct Picture {
    scene: scene::Scene,
    font: Option<String>,
}

/// Why there is no picture.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// A parameter, or an argument of a function, that cannot be drawn.
    #[error("{param} must be {expected}, got '{given}'")]
    Option {
        /// Its name.
        param: &'static str,
        /// What was given.
        given: String,
        /// What would do.
        expected: String,
    },
    /// More pixels than are drawn.
    #[error("an image of {width} x {height} pixels is too large; at most {MAX_PIXELS} pixels are drawn")]
    TooLarge {
        /// Pixels across.
        width: u32,
        /// Pixels down.
        height: u32,
    },
    /// A value axis whose ends were both asked for, the wrong way round.
    #[error("a value axis cannot go from {min} to {max}: its minimum must be less than its maximum and its limit")]
    Axis {
        /// Where it is to begin.
        min: f64,
        /// Where it is to end.
        max: f64,
    },
    /// A picture that is longer in bytes than was allowed.
    #[error("the image comes to more than {limit} bytes")]
    TooLong {
        /// The bytes allowed.
        limit: usize,
    },
    /// The caller asked to stop.
    #[error("the drawing was stopped")]
    Stopped,
}

impl Error {
    fn option(param: &'static str, given: &str, expected: &str) -> Error {
        // A message that quotes a megabyte helps nobody.
        let short: String = given.chars().take(100).collect();
        let given = if short.len() < given.len() { format!("{short}…") } else { short };
        Error::Option { param, given, expected: expected.to_owned() }
    }
}

impl Picture {
    /// The picture as SVG text, at most about `limit` bytes of it. `stop` is asked now and then, and ends the work.
    pub fn svg(&self, limit: usize, stop: &dyn Fn() -> bool) -> Result<String, Error> {
        svg::write(&self.scene, self.font.as_deref(), limit, stop)
    }

    /// The picture as the bytes of a PNG file. `stop` is asked now and then, and ends the work.
    pub fn png(&self, stop: &dyn Fn() -> bool) -> Result<Vec<u8>, Error> {
        raster::write(&self.scene, stop)
    }
}
