//! Graphs as SVG and PNG, asked for with graphite-web's parameters.
//!
//! [`Options::read`] takes the parameters of a request, [`line_graph`] and [`pie_graph`] lay a picture out, and a
//! [`Picture`] is written as [`Picture::svg`] or [`Picture::png`]. Nothing here fetches, waits or looks at a clock, and
//! the same input gives the same bytes.
//!
//! The choices that change what a graph says (scales, labels, folding, stacking, colours) are graphite-web's; how it is
//! set on the page is not.

mod graph_type;
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

mod error;
mod picture;
mod raster;
mod svg;

pub use error::Error;
pub use graph_type::{GraphType, SliceSize};
pub use line_graph::line_graph;
pub use options::{MAX_PIXELS, Options};
pub use picture::Picture;
pub use pie_graph::{Slice, pie_graph};
pub use series::{Fold, Series, Style};
