//! Graphite's target language: parsing, planning and evaluation.
//!
//! A request goes through here in three steps. [`parse`] turns each target's text into an [`Expression`].
//! [`plan`] says which path expressions must be fetched, over which spans of time. [`evaluate`] turns
//! what was fetched into the series of the answer. All of it is pure: the caller fetches, and `now` is an
//! argument. [`functions`] is the one table from which arguments are checked, errors worded, spans planned
//! and `/functions` answered.
//!
//! The reference is graphite-web 1.1.10; `tests/` holds its answers.

mod aggregator;
mod argument;
mod consolidate;
mod context;
mod describe;
mod engine;
mod error;
mod evaluate;
mod expression;
mod fetch;
mod function;
pub mod functions;
mod grammar;
mod graph_options;
mod normalize;
mod number;
mod page;
mod python_format;
mod python_regex;
mod scope;
mod series;
mod span;
mod template;
pub mod time;

pub use aggregator::Aggregator;
pub use argument::{Kind, Literal, Parameter};
pub use consolidate::{consolidate, time_range};
pub use context::{Budget, Context, StepOf};
pub use describe::{function_json, functions_json};
pub use error::{Error, ParseError};
pub use evaluate::{Evaluation, evaluate, plan};
pub use expression::{Argument, Call, Expression};
pub use fetch::{Data, EventFetch, EventTags, Fetch, Fetches};
pub use grammar::parse;
pub use graph_options::GraphOptions;
pub use number::{general, python_repr};
pub use page::functions_page;
pub use python_regex::PythonRegex;
pub use series::{Consolidation, Series, Tags};
pub use span::Span;
