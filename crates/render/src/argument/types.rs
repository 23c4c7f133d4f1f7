//! The types of a function's fields: each checks the value of an argument once.

use std::fmt;

use super::{
    bind::{ParameterPosition, Take, integer},
    parameter::Kind,
    value::Value,
};
use crate::{Aggregator, Error, Series, time::parse_interval};

/// Series, in order.
pub(crate) struct SeriesList(pub(crate) Vec<Series>);

impl Take for SeriesList {
    const KIND: Kind = Kind::SeriesList;

    fn one(value: Value, position: &ParameterPosition) -> Result<Self, Error> {
        match value {
            Value::Series(series) => Ok(SeriesList(series)),
            Value::Lists(lists) if lists.is_empty() => Ok(SeriesList(Vec::new())),
            Value::Planned => Ok(SeriesList(Vec::new())),
            other => Err(position.expected("series", &other)),
        }
    }
}

/// Lists of series. A plain list becomes a list of one list.
pub(crate) struct SeriesLists(pub(crate) Vec<Vec<Series>>);

impl Take for SeriesLists {
    const KIND: Kind = Kind::SeriesLists;

    fn one(value: Value, position: &ParameterPosition) -> Result<Self, Error> {
        match value {
            Value::Lists(lists) => Ok(SeriesLists(lists)),
            Value::Series(series) => Ok(SeriesLists(vec![series])),
            Value::Planned => Ok(SeriesLists(Vec::new())),
            other => Err(position.expected("lists of series, as mapSeries makes them", &other)),
        }
    }
}

/// Series, or lists of series as if they were one.
pub(crate) struct AllSeries(pub(crate) Vec<Series>);

impl Take for AllSeries {
    const KIND: Kind = Kind::SeriesList;

    fn one(value: Value, position: &ParameterPosition) -> Result<Self, Error> {
        match value {
            Value::Lists(lists) => Ok(AllSeries(lists.into_iter().flatten().collect())),
            other => SeriesList::one(other, position).map(|list| AllSeries(list.0)),
        }
    }
}

/// A whole number, or no bound at all.
pub(crate) struct Limit(pub(crate) f64);

impl Take for Limit {
    const KIND: Kind = Kind::IntegerOrInfinity;

    fn one(value: Value, position: &ParameterPosition) -> Result<Self, Error> {
        f64::one(value, position).map(Limit)
    }
}

/// A time, and its text in the request.
pub(crate) struct Interval {
    pub(crate) seconds: i64,
    pub(crate) text: String,
}

impl Take for Interval {
    const KIND: Kind = Kind::Interval;

    fn one(value: Value, position: &ParameterPosition) -> Result<Self, Error> {
        match value {
            Value::Text(text) => match parse_interval(&text) {
                Ok(seconds) => Ok(Interval { seconds, text }),
                Err(_) => Err(position.expected("an interval such as '5min'", &Value::Text(text))),
            },
            other => Err(position.expected("an interval such as '5min'", &other)),
        }
    }
}

/// A number of points, or a time.
pub(crate) enum Length {
    /// Points, and their text in the request.
    Points(i64, String),
    /// Seconds, never negative, and their text in the request.
    Time(i64, String),
}

impl Take for Length {
    const KIND: Kind = Kind::IntegerOrInterval;

    fn one(value: Value, position: &ParameterPosition) -> Result<Self, Error> {
        const EXPECTED: &str = "a number of points or an interval such as '5min'";
        let points = match &value {
            Value::Integer(points) => Some(*points),
            Value::Float(points) if points.abs() < 1e15 => Some(*points as i64),
            Value::Text(text) => {
                let seconds = parse_interval(text).map_err(|_| position.expected(EXPECTED, &value))?;
                return Ok(Length::Time(seconds.abs(), text.clone()));
            }
            _ => None,
        };
        match (points, value.text()) {
            (Some(points @ 0..), Some(text)) => Ok(Length::Points(points, text)),
            _ => Err(position.expected(EXPECTED, &value)),
        }
    }
}

/// Any number, where `/functions` shows a whole one: graphite-web takes any.
pub(crate) struct Real(pub(crate) f64);

impl Take for Real {
    const KIND: Kind = Kind::Integer;

    fn one(value: Value, position: &ParameterPosition) -> Result<Self, Error> {
        f64::one(value, position).map(Real)
    }
}

/// A time as `from` and `until` have it, not parsed yet: its value depends on the request.
pub(crate) struct Date(pub(crate) String);

impl Take for Date {
    const KIND: Kind = Kind::Date;

    fn one(value: Value, position: &ParameterPosition) -> Result<Self, Error> {
        let text = value.text().ok_or_else(|| position.expected("a time such as '-1h' or '20260121'", &value))?;
        Ok(Date(text))
    }
}

/// A tag's name.
pub(crate) struct Tag(pub(crate) String);

impl Take for Tag {
    const KIND: Kind = Kind::Tag;

    fn one(value: Value, position: &ParameterPosition) -> Result<Self, Error> {
        let text = value.text().ok_or_else(|| position.expected("a tag's name", &value))?;
        Ok(Tag(text))
    }
}

/// A position in a name, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Node(pub(crate) i64);

impl Take for Node {
    const KIND: Kind = Kind::Node;

    fn one(value: Value, position: &ParameterPosition) -> Result<Self, Error> {
        integer(&value).map(Node).ok_or_else(|| position.expected("a node's number", &value))
    }
}

/// A position in a name, negative from its end.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum NodeOrTag {
    Node(i64),
    Tag(String),
}

impl fmt::Display for NodeOrTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeOrTag::Node(node) => write!(f, "{node}"),
            NodeOrTag::Tag(tag) => f.write_str(tag),
        }
    }
}

impl Take for NodeOrTag {
    const KIND: Kind = Kind::NodeOrTag;

    fn one(value: Value, position: &ParameterPosition) -> Result<Self, Error> {
        match value {
            Value::Text(tag) => Ok(NodeOrTag::Tag(tag)),
            other => match integer(&other) {
                Some(node) => Ok(NodeOrTag::Node(node)),
                None => Err(position.expected("a node's number or a tag", &other)),
            },
        }
    }
}

/// An aggregator, and its name in the request.
#[derive(Debug, Clone)]
pub(crate) struct Named {
    pub(crate) aggregator: Aggregator,
    pub(crate) name: String,
}

impl Take for Named {
    const KIND: Kind = Kind::Aggregator;

    fn one(value: Value, position: &ParameterPosition) -> Result<Self, Error> {
        let name = value.text().unwrap_or_default();
        match Aggregator::named(&name) {
            Some(aggregator) => Ok(Named { aggregator, name }),
            None => {
                let known: Vec<&str> = Aggregator::NAMES.iter().map(|(name, _)| *name).collect();
                Err(position.rejected(format!("must be one of {}, got {}", known.join(", "), value.shown())))
            }
        }
    }
}

/// Makes one series of several: an aggregator, with or without `Series` behind its name, or a function.
pub(crate) enum Callback {
    Aggregator(Named),
    /// The name of a function that is marked as a callback.
    Function(String),
}

impl Callback {
    /// The name as requested, without a `Series` that an aggregator does not need.
    pub(crate) fn name(&self) -> &str {
        match self {
            Callback::Aggregator(named) => &named.name,
            Callback::Function(name) => name,
        }
    }
}

impl Take for Callback {
    const KIND: Kind = Kind::AggregatorOrFunction;

    fn one(value: Value, position: &ParameterPosition) -> Result<Self, Error> {
        let name = value.text().unwrap_or_default();
        if (position.is_callback)(&name) {
            return Ok(Callback::Function(name));
        }
        let bare = name.strip_suffix("Series").unwrap_or(&name);
        Named::one(Value::Text(bare.to_owned()), position).map(Callback::Aggregator)
    }
}

/// Anything; the function decides.
pub(crate) struct Any(pub(crate) Value);

impl Take for Any {
    const KIND: Kind = Kind::Any;

    fn one(value: Value, _: &ParameterPosition) -> Result<Self, Error> {
        Ok(Any(value))
    }
}
