//! `/render`: series as numbers or as a picture.
//!
//! [`render()`] is the door for the router; [`evaluate`] and [`respond_series`] are the door for carbonapi's fetches.

mod handler;
mod request;

mod estimate;
mod evaluation;
mod origins;
mod reading;
mod resolve;

mod format;
mod picture;
mod picture_options;
mod series_body;

pub(crate) use evaluation::{Cost, evaluate};
pub(crate) use format::{CarbonapiV3, FetchHead};
pub(crate) use handler::render;
pub(crate) use request::RenderRequest;
pub(crate) use series_body::respond_series;
