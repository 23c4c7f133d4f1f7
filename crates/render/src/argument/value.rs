//! Values: what arguments evaluate to and functions return.

use super::parameter::Literal;
use crate::{Argument, Series, number::repr};

/// The value of an argument, and the answer of a function.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    Boolean(bool),
    Integer(i64),
    Float(f64),
    None,
    Text(String),
    Series(Vec<Series>),
    /// Lists of series; few functions make or take them.
    Lists(Vec<Vec<Series>>),
    /// Series that are not fetched yet.
    Planned,
}

impl From<Vec<Series>> for Value {
    fn from(series: Vec<Series>) -> Value {
        Value::Series(series)
    }
}

impl From<Literal> for Value {
    fn from(literal: Literal) -> Value {
        match literal {
            Literal::Boolean(value) => Value::Boolean(value),
            Literal::Integer(value) => Value::Integer(value),
            Literal::Float(value) => Value::Float(value),
            Literal::Text(value) => Value::Text(value.to_owned()),
            Literal::None => Value::None,
        }
    }
}

impl Value {
    /// The value in a message.
    pub(super) fn shown(&self) -> String {
        match self {
            Value::Boolean(value) => value.to_string(),
            Value::Integer(value) => value.to_string(),
            Value::Float(value) => repr(*value),
            Value::None => "none".to_owned(),
            Value::Text(text) => format!("'{}'", text.chars().take(100).collect::<String>()),
            Value::Series(_) | Value::Planned => "series".to_owned(),
            Value::Lists(_) => "lists of series".to_owned(),
        }
    }

    /// The series, of all lists.
    pub(crate) fn series(&self) -> impl Iterator<Item = &Series> {
        let (one, many) = match self {
            Value::Series(series) => (series.as_slice(), &[][..]),
            Value::Lists(lists) => (&[][..], lists.as_slice()),
            _ => (&[][..], &[][..]),
        };
        one.iter().chain(many.iter().flatten())
    }

    /// Bytes of series.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Value::Series(series) => series.iter().map(Series::bytes).sum(),
            Value::Lists(lists) => lists.iter().flatten().map(Series::bytes).sum(),
            _ => 0,
        }
    }

    /// Bytes of a text, 0 of any other value.
    pub(crate) fn text_bytes(&self) -> usize {
        if let Value::Text(text) = self { text.len() } else { 0 }
    }

    /// `str(value)` of Python, for values that are not series.
    pub(crate) fn text(&self) -> Option<String> {
        match self {
            Value::Boolean(true) => Some("True".to_owned()),
            Value::Boolean(false) => Some("False".to_owned()),
            Value::Integer(value) => Some(value.to_string()),
            Value::Float(value) => Some(repr(*value)),
            Value::Text(text) => Some(text.clone()),
            Value::None | Value::Series(_) | Value::Lists(_) | Value::Planned => None,
        }
    }
}

impl From<&Argument> for Value {
    /// A literal's value; series are not known here.
    fn from(argument: &Argument) -> Value {
        match argument {
            Argument::Boolean(value) => Value::Boolean(*value),
            Argument::Integer(value) => Value::Integer(*value),
            Argument::Float(value) => Value::Float(*value),
            Argument::None => Value::None,
            Argument::Text(value) => Value::Text(value.clone()),
            Argument::Expression(_) => Value::Planned,
        }
    }
}
