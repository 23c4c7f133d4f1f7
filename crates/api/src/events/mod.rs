//! Events over HTTP: submits them, lists them by time and tag, and shows one by its id.
//!
//! The handlers are the door for the router; [`Pages`] and [`TagFilter`] are the door for renders.

mod handlers;
mod scan;
mod submitted;
mod tags;

pub(crate) use handlers::{events, get_data, one};
pub(crate) use scan::Pages;
pub(crate) use tags::{SetOf, TagFilter};
