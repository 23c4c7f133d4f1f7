//! The wire formats as facts: what goes in, and what comes out of the sink.

mod seen;

mod frames;
mod lines;
mod pauses;
mod pickles;
mod protobuf;
mod streams;
