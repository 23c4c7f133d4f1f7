//! Graphs as SVG and PNG, with graphite-web's parameters.
//!
//! [`Options::read`] takes the parameters of a request, [`line_graph`] and [`pie_graph`] lay a picture out, and a
//! [`Picture`] is written as [`Picture::svg`] or [`Picture::png`]. Nothing here fetches, waits or reads a clock, and the
//! same input gives the same bytes.
//!
//! ```
//! use graph::{Options, Slice, pie_graph};
//!
//! let parameters = [("width", "400"), ("title", "Requests")];
//! let value = |name: &str| parameters.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
//! let options = Options::read(&value)?;
//! let slices = [Slice { name: "web".to_owned(), value: 3.0 }, Slice { name: "api".to_owned(), value: 1.0 }];
//! let never_stop = || false;
//! let picture = pie_graph(&options, &slices, &never_stop)?;
//! assert!(picture.svg(1 << 20, &never_stop)?.contains("Requests"));
//! assert!(picture.png(&never_stop)?.starts_with(b"\x89PNG"));
//! # Ok::<(), graph::Error>(())
//! ```
//!
//! The choices that change the message of a graph (scales, labels, folding, stacking, colours) are graphite-web's; the
//! layout is not.

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
