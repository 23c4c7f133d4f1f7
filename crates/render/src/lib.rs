//! Graphite's target language: parsing, planning and evaluation.
//!
//! A request takes three steps. [`parse`] turns the text of each target into an [`Expression`]. [`plan`] lists the
//! series and events to fetch, with their spans of time. [`evaluate`] turns the fetched [`Data`] into the series of
//! the answer; a few functions need a second round of fetches. All of it is pure: the caller fetches, and the current
//! time is an argument.
//!
//! ```
//! use render::{Budget, Context, Data, Evaluation, Series, evaluate, parse, plan};
//!
//! let targets = [parse("scale(sumSeries(web.*.requests), 0.5)")?];
//! let context = Context::new(1_000, 880, 1_000);
//! let mut data = Data::new();
//! for fetch in plan(&targets, &context, &Budget::unlimited())?.series {
//!     let series = ["web.a.requests", "web.b.requests"]
//!         .map(|name| Series::fetched(name, fetch.path.clone(), 900, 60, vec![1.0, 2.0]));
//!     data.put(fetch, series.into());
//! }
//! let answer = evaluate(&targets, &context, &data, &Budget::unlimited())?;
//! let Evaluation::Done(series) = answer else { panic!("these functions need no second round") };
//! assert_eq!(&*series[0].name, "scale(sumSeries(web.*.requests),0.5)");
//! assert_eq!(*series[0].values, [1.0, 2.0]);
//! # Ok::<(), render::Error>(())
//! ```
//!
//! [`functions`] is the table of functions: argument checks, messages, plans, evaluation and `/functions` come from it.
//! The reference is graphite-web 1.1.10; `tests/` holds its answers.

mod aggregator;
mod ancestors;
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
mod lineage;
mod normalize;
mod number;
mod page;
mod python_float;
mod python_format;
mod python_regex;
mod scope;
mod series;
mod sorted;
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
pub use lineage::{Lineage, Origin, Source, fetched_from};
pub use number::general;
pub use page::functions_page;
pub use python_float::{MAX_FLOAT_BYTES, python_float, write_python_float};
pub use python_regex::PythonRegex;
pub use series::{Consolidation, Series, Tags};
pub use span::Span;
