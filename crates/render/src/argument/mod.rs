//! Arguments: what parameters take, and how the values of a call become the fields of a function.

mod bind;
mod parameter;
mod types;
mod value;

pub(crate) use bind::{Arguments, IsCallback, ParameterPosition, Parameters, Take, parameters};
pub(crate) use parameter::Signature;
pub use parameter::{Kind, Literal, Parameter};
pub(crate) use types::{
    AllSeries, Any, Callback, Date, Interval, Length, Limit, Named, Node, NodeOrTag, Real, SeriesList, SeriesLists, Tag,
};
pub(crate) use value::Value;
