//! Encodings of answers: JSON, MessagePack, pickle, protocol buffers, and Python's texts of numbers and times.
//!
//! Each module is a door of its own; none knows HTTP or Graphite.

pub(crate) mod calendar;
pub(crate) mod json;
pub(crate) mod msgpack;
pub(crate) mod pickle;
pub(crate) mod protobuf;
pub(crate) mod python;
