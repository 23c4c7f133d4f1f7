//! Arguments: what a parameter takes, and how a call's values become the fields of a function.

use std::fmt;

use crate::{Aggregator, Error, Series, functions::Function, number::repr, time::parse_interval};

/// What a parameter takes, by the names `/functions` uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `aggFunc`: the name of an [`Aggregator`].
    Aggregator,
    /// `aggOrSeriesFunc`: that, or the name of a function that makes one series of several.
    AggregatorOrFunction,
    /// `any`.
    Any,
    /// `boolean`.
    Boolean,
    /// `date`: a time as `from` and `until` have it.
    Date,
    /// `float`.
    Float,
    /// `integer`.
    Integer,
    /// `intOrInf`.
    IntegerOrInfinity,
    /// `intOrInterval`: a number of points or a time.
    IntegerOrInterval,
    /// `interval`.
    Interval,
    /// `node`: a position in a name.
    Node,
    /// `nodeOrTag`: a position in a name, or a tag.
    NodeOrTag,
    /// `seriesList`.
    SeriesList,
    /// `seriesLists`: lists of series, as mapSeries makes them.
    SeriesLists,
    /// `string`.
    String,
    /// `tag`.
    Tag,
}

impl Kind {
    /// The name that `/functions` uses.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Aggregator => "aggFunc",
            Kind::AggregatorOrFunction => "aggOrSeriesFunc",
            Kind::Any => "any",
            Kind::Boolean => "boolean",
            Kind::Date => "date",
            Kind::Float => "float",
            Kind::Integer => "integer",
            Kind::IntegerOrInfinity => "intOrInf",
            Kind::IntegerOrInterval => "intOrInterval",
            Kind::Interval => "interval",
            Kind::Node => "node",
            Kind::NodeOrTag => "nodeOrTag",
            Kind::SeriesList => "seriesList",
            Kind::SeriesLists => "seriesLists",
            Kind::String => "string",
            Kind::Tag => "tag",
        }
    }
}

/// A value that the table of functions holds: a default, a preset, an option, a suggestion.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Literal {
    /// A truth value.
    Boolean(bool),
    /// A whole number.
    Integer(i64),
    /// Another number.
    Float(f64),
    /// A text.
    Text(&'static str),
    /// Nothing, which some options are.
    None,
}

/// One parameter of a function, as `/functions` describes it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameter {
    /// Its name, for `name=value` and for messages.
    pub name: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// Whether `/functions` calls it required.
    pub required: bool,
    /// Whether it takes all remaining arguments.
    pub multiple: bool,
    /// What it is when it is not given, as `/functions` says.
    pub default: Option<Literal>,
    /// What `/functions` calls the default, where the function itself must know that nothing was given.
    pub documented: Option<Literal>,
    /// What it is when it is not given, though `/functions` says nothing of it.
    pub fallback: Option<Literal>,
    /// The values it is restricted to; none means any.
    pub options: &'static [Literal],
    /// Values that an editor may offer.
    pub suggestions: &'static [Literal],
}

impl Parameter {
    pub(crate) const fn new(name: &'static str, kind: Kind, multiple: bool) -> Parameter {
        Parameter {
            name,
            kind,
            required: false,
            multiple,
            default: None,
            documented: None,
            fallback: None,
            options: &[],
            suggestions: &[],
        }
    }

    pub(crate) const fn required(mut self) -> Parameter {
        self.required = true;
        self
    }

    pub(crate) const fn default(mut self, value: Literal) -> Parameter {
        self.default = Some(value);
        self
    }

    pub(crate) const fn documented(mut self, value: Literal) -> Parameter {
        self.documented = Some(value);
        self
    }

    pub(crate) const fn fallback(mut self, value: Literal) -> Parameter {
        self.fallback = Some(value);
        self
    }

    pub(crate) const fn options(mut self, options: &'static [Literal]) -> Parameter {
        self.options = options;
        self
    }

    pub(crate) const fn suggest(mut self, suggestions: &'static [Literal]) -> Parameter {
        self.suggestions = suggestions;
        self
    }
}

/// Declares a function's struct, each field with the parameter it is bound from.
macro_rules! parameters {
    ($(#[$attribute:meta])* struct $name:ident {
        $($(#[$doc:meta])* $field:ident: $type:ty = $parameter:literal $(.$method:ident($($value:expr),*))*;)*
    }) => {
        $(#[$attribute])*
        pub(crate) struct $name {
            $($(#[$doc])* $field: $type,)*
        }

        impl $crate::argument::Parameters for $name {
            const PARAMETERS: &'static [$crate::Parameter] = &[$(
                $crate::Parameter::new(
                    $parameter,
                    <$type as $crate::argument::Take>::KIND,
                    <$type as $crate::argument::Take>::MULTIPLE,
                )$(.$method($($value),*))*,
            )*];

            fn bind(arguments: &mut $crate::argument::Arguments) -> Result<Self, $crate::Error> {
                Ok($name { $($field: arguments.take()?,)* })
            }
        }
    };
}
pub(crate) use parameters;

/// A struct whose fields are a function's parameters. Implemented by [`parameters!`].
pub(crate) trait Parameters: Sized {
    /// One for each field, in order.
    const PARAMETERS: &'static [Parameter];

    /// Fills the fields.
    fn bind(arguments: &mut Arguments) -> Result<Self, Error>;
}

/// What an argument evaluates to, and what a function returns.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    Boolean(bool),
    Integer(i64),
    Float(f64),
    None,
    Text(String),
    Series(Vec<Series>),
    /// Lists of series, which few functions make and take.
    Lists(Vec<Vec<Series>>),
    /// Series that are not known while planning.
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
    /// How a message shows it.
    fn shown(&self) -> String {
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

    /// `str(value)` of Python, where that is a word.
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

/// A call's values, sorted by parameter.
pub(crate) struct Arguments {
    function: &'static Function,
    // One for each of the function's parameters, presets included; one value in each unless the parameter
    // takes many.
    values: std::vec::IntoIter<Vec<Value>>,
    next: usize,
}

impl Arguments {
    /// Gives each parameter its values: those by place, those by name, the presets, and what stands in for
    /// what was not given. As in graphite-web, `none` is the same as not given, and a parameter that takes
    /// many is content with no value at all.
    pub(crate) fn of(
        function: &'static Function,
        positional: Vec<Value>,
        named: Vec<(String, Value)>,
    ) -> Result<Arguments, Error> {
        let parameters = function.parameters;
        let mut values: Vec<Vec<Value>> = parameters.iter().map(|_| Vec::new()).collect();
        let visible: Vec<usize> = (0..parameters.len()).filter(|i| function.shows(&parameters[*i])).collect();
        let given = positional.len();
        for (place, value) in positional.into_iter().enumerate() {
            let last = visible.last().copied().filter(|i| parameters[*i].multiple);
            let Some(parameter) = visible.get(place).copied().or(last) else {
                let parameter = format!("takes {} arguments", visible.len());
                return Err(Error::Argument {
                    function: function.name,
                    parameter,
                    problem: format!("and {given} were given"),
                });
            };
            values[parameter].push(value);
        }
        for (name, value) in named {
            let problem = |problem: &str| Error::Argument {
                function: function.name,
                parameter: name.clone(),
                problem: problem.to_owned(),
            };
            // Case does not matter, because timeShift documents `alignDst` and takes `alignDST`.
            let found = visible.iter().copied().find(|i| parameters[*i].name.eq_ignore_ascii_case(&name));
            let parameter = found.ok_or_else(|| {
                let known: Vec<&str> = visible.iter().map(|i| parameters[*i].name).collect();
                problem(&format!("is not a parameter; there are {}", known.join(", ")))
            })?;
            if !values[parameter].is_empty() {
                return Err(problem("is given twice"));
            }
            values[parameter].push(value);
        }
        for (parameter, values) in parameters.iter().zip(&mut values) {
            if !parameter.multiple {
                values.retain(|value| !matches!(value, Value::None));
            }
            if let Some(preset) = function.preset_of(parameter) {
                *values = vec![preset.into()];
            } else if values.is_empty()
                && let Some(standing_in) = function.standing_in(parameter)
            {
                values.push(standing_in.into());
            }
        }
        Ok(Arguments { function, values: values.into_iter(), next: 0 })
    }

    /// The next field's value.
    pub(crate) fn take<T: Take>(&mut self) -> Result<T, Error> {
        let parameter = &self.function.parameters[self.next];
        self.next += 1;
        let values = self.values.next().expect("a field for each parameter, from the same macro");
        T::take(values, &Place { function: self.function, parameter })
    }
}

/// Where a value stands, for messages.
pub(crate) struct Place {
    function: &'static Function,
    parameter: &'static Parameter,
}

impl Place {
    pub(crate) fn problem(&self, problem: String) -> Error {
        Error::Argument { function: self.function.name, parameter: self.parameter.name.to_owned(), problem }
    }

    fn expected(&self, what: &str, given: &Value) -> Error {
        self.problem(format!("must be {what}, got {}", given.shown()))
    }

    /// What graphite-web itself checks, and answers with 400.
    pub(crate) fn refused(&self, problem: String) -> Error {
        Error::Refused { function: self.function.name, problem: format!("{} {problem}", self.parameter.name) }
    }
}

/// A field's type: what it takes and how.
pub(crate) trait Take: Sized {
    const KIND: Kind;
    const MULTIPLE: bool = false;

    /// From the values given for a parameter, of which there may be none.
    fn take(values: Vec<Value>, place: &Place) -> Result<Self, Error> {
        match values.into_iter().next() {
            Some(value) => Self::one(value, place),
            None => Err(place.problem("is missing".to_owned())),
        }
    }

    /// From one value.
    fn one(value: Value, place: &Place) -> Result<Self, Error>;
}

impl<T: Take> Take for Vec<T> {
    const KIND: Kind = T::KIND;
    const MULTIPLE: bool = true;

    fn take(values: Vec<Value>, place: &Place) -> Result<Self, Error> {
        values.into_iter().map(|value| T::one(value, place)).collect()
    }

    fn one(value: Value, place: &Place) -> Result<Self, Error> {
        Ok(vec![T::one(value, place)?])
    }
}

impl<T: Take> Take for Option<T> {
    const KIND: Kind = T::KIND;

    fn take(values: Vec<Value>, place: &Place) -> Result<Self, Error> {
        values.into_iter().next().map(|value| T::one(value, place)).transpose()
    }

    fn one(value: Value, place: &Place) -> Result<Self, Error> {
        T::one(value, place).map(Some)
    }
}

/// Series, in order.
pub(crate) struct SeriesList(pub(crate) Vec<Series>);

impl Take for SeriesList {
    const KIND: Kind = Kind::SeriesList;

    fn one(value: Value, place: &Place) -> Result<Self, Error> {
        match value {
            Value::Series(series) => Ok(SeriesList(series)),
            Value::Lists(lists) if lists.is_empty() => Ok(SeriesList(Vec::new())),
            Value::Planned => Ok(SeriesList(Vec::new())),
            other => Err(place.expected("series", &other)),
        }
    }
}

/// Lists of series. A plain list is the only one of its kind.
pub(crate) struct SeriesLists(pub(crate) Vec<Vec<Series>>);

impl Take for SeriesLists {
    const KIND: Kind = Kind::SeriesLists;

    fn one(value: Value, place: &Place) -> Result<Self, Error> {
        match value {
            Value::Lists(lists) => Ok(SeriesLists(lists)),
            Value::Series(series) => Ok(SeriesLists(vec![series])),
            Value::Planned => Ok(SeriesLists(Vec::new())),
            other => Err(place.expected("lists of series, as mapSeries makes them", &other)),
        }
    }
}

/// Series, or lists of series as if they were one.
pub(crate) struct AllSeries(pub(crate) Vec<Series>);

impl Take for AllSeries {
    const KIND: Kind = Kind::SeriesList;

    fn one(value: Value, place: &Place) -> Result<Self, Error> {
        match value {
            Value::Lists(lists) => Ok(AllSeries(lists.into_iter().flatten().collect())),
            other => SeriesList::one(other, place).map(|list| AllSeries(list.0)),
        }
    }
}

impl Take for f64 {
    const KIND: Kind = Kind::Float;

    fn one(value: Value, place: &Place) -> Result<Self, Error> {
        let number = match &value {
            Value::Integer(number) => Some(*number as f64),
            Value::Float(number) => Some(*number),
            Value::Boolean(truth) => Some(f64::from(u8::from(*truth))),
            Value::Text(text) => text.trim().parse().ok(),
            _ => None,
        };
        number.filter(|number| !number.is_nan()).ok_or_else(|| place.expected("a number", &value))
    }
}

fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Integer(number) => Some(*number),
        Value::Boolean(truth) => Some(i64::from(*truth)),
        Value::Float(number) if number.fract() == 0.0 && number.abs() < 1e15 => Some(*number as i64),
        Value::Text(text) => text.trim().parse().ok(),
        _ => None,
    }
}

impl Take for i64 {
    const KIND: Kind = Kind::Integer;

    fn one(value: Value, place: &Place) -> Result<Self, Error> {
        integer(&value).ok_or_else(|| place.expected("a whole number", &value))
    }
}

impl Take for bool {
    const KIND: Kind = Kind::Boolean;

    fn one(value: Value, place: &Place) -> Result<Self, Error> {
        let truth = match &value {
            Value::Boolean(truth) => Some(*truth),
            Value::Text(text) if text.eq_ignore_ascii_case("true") => Some(true),
            Value::Text(text) if text.eq_ignore_ascii_case("false") => Some(false),
            Value::Integer(1) => Some(true),
            Value::Integer(0) => Some(false),
            Value::Float(1.0) => Some(true),
            Value::Float(0.0) => Some(false),
            _ => None,
        };
        truth.ok_or_else(|| place.expected("true or false", &value))
    }
}

impl Take for String {
    const KIND: Kind = Kind::String;

    fn one(value: Value, place: &Place) -> Result<Self, Error> {
        let text = value.text().ok_or_else(|| place.expected("a quoted text", &value))?;
        let options = place.parameter.options;
        let is_text = |option: &Literal| matches!(option, Literal::Text(option) if *option == text);
        if !options.is_empty() && !options.iter().any(is_text) {
            let known: Vec<String> = options.iter().map(|option| Value::from(*option).shown()).collect();
            return Err(place.refused(format!("must be one of {}, got '{text}'", known.join(", "))));
        }
        Ok(text)
    }
}

/// A whole number, or no bound at all.
pub(crate) struct Limit(pub(crate) f64);

impl Take for Limit {
    const KIND: Kind = Kind::IntegerOrInfinity;

    fn one(value: Value, place: &Place) -> Result<Self, Error> {
        f64::one(value, place).map(Limit)
    }
}

/// A time, and how it was written.
pub(crate) struct Interval {
    pub(crate) seconds: i64,
    pub(crate) text: String,
}

impl Take for Interval {
    const KIND: Kind = Kind::Interval;

    fn one(value: Value, place: &Place) -> Result<Self, Error> {
        match value {
            Value::Text(text) => match parse_interval(&text) {
                Ok(seconds) => Ok(Interval { seconds, text }),
                Err(_) => Err(place.expected("an interval such as '5min'", &Value::Text(text))),
            },
            other => Err(place.expected("an interval such as '5min'", &other)),
        }
    }
}

/// A number of points, or a time.
pub(crate) enum Length {
    /// Points, and how they were written.
    Points(i64, String),
    /// Seconds, never negative, and how they were written.
    Time(i64, String),
}

impl Take for Length {
    const KIND: Kind = Kind::IntegerOrInterval;

    fn one(value: Value, place: &Place) -> Result<Self, Error> {
        const EXPECTED: &str = "a number of points or an interval such as '5min'";
        let points = match &value {
            Value::Integer(points) => Some(*points),
            Value::Float(points) if points.abs() < 1e15 => Some(*points as i64),
            Value::Text(text) => {
                let seconds = parse_interval(text).map_err(|_| place.expected(EXPECTED, &value))?;
                return Ok(Length::Time(seconds.abs(), text.clone()));
            }
            _ => None,
        };
        match (points, value.text()) {
            (Some(points @ 0..), Some(text)) => Ok(Length::Points(points, text)),
            _ => Err(place.expected(EXPECTED, &value)),
        }
    }
}

/// A number where `/functions` promises a whole one, and graphite-web takes any.
pub(crate) struct Real(pub(crate) f64);

impl Take for Real {
    const KIND: Kind = Kind::Integer;

    fn one(value: Value, place: &Place) -> Result<Self, Error> {
        f64::one(value, place).map(Real)
    }
}

/// A time as `from` and `until` have it, not read yet: what it is depends on the request.
pub(crate) struct Date(pub(crate) String);

impl Take for Date {
    const KIND: Kind = Kind::Date;

    fn one(value: Value, place: &Place) -> Result<Self, Error> {
        let text = value.text().ok_or_else(|| place.expected("a time such as '-1h' or '20260121'", &value))?;
        Ok(Date(text))
    }
}

/// A tag's name.
pub(crate) struct Tag(pub(crate) String);

impl Take for Tag {
    const KIND: Kind = Kind::Tag;

    fn one(value: Value, place: &Place) -> Result<Self, Error> {
        let text = value.text().ok_or_else(|| place.expected("a tag's name", &value))?;
        Ok(Tag(text))
    }
}

/// A position in a name, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Node(pub(crate) i64);

impl Take for Node {
    const KIND: Kind = Kind::Node;

    fn one(value: Value, place: &Place) -> Result<Self, Error> {
        integer(&value).map(Node).ok_or_else(|| place.expected("a node's number", &value))
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

    fn one(value: Value, place: &Place) -> Result<Self, Error> {
        match value {
            Value::Text(tag) => Ok(NodeOrTag::Tag(tag)),
            other => match integer(&other) {
                Some(node) => Ok(NodeOrTag::Node(node)),
                None => Err(place.expected("a node's number or a tag", &other)),
            },
        }
    }
}

/// An aggregator, and the name by which it was asked for.
#[derive(Debug, Clone)]
pub(crate) struct Named {
    pub(crate) aggregator: Aggregator,
    pub(crate) name: String,
}

impl Take for Named {
    const KIND: Kind = Kind::Aggregator;

    fn one(value: Value, place: &Place) -> Result<Self, Error> {
        let name = value.text().unwrap_or_default();
        match Aggregator::named(&name) {
            Some(aggregator) => Ok(Named { aggregator, name }),
            None => {
                let known: Vec<&str> = Aggregator::NAMES.iter().map(|(name, _)| *name).collect();
                Err(place.refused(format!("must be one of {}, got {}", known.join(", "), value.shown())))
            }
        }
    }
}

/// What makes one series of several: an aggregator, with or without `Series` behind its name, or a function
/// that does.
pub(crate) enum Callback {
    Aggregator(Named),
    Function(&'static Function),
}

impl Callback {
    /// The name by which it was asked for, but for a `Series` that an aggregator does not need.
    pub(crate) fn name(&self) -> &str {
        match self {
            Callback::Aggregator(named) => &named.name,
            Callback::Function(function) => function.name,
        }
    }
}

impl Take for Callback {
    const KIND: Kind = Kind::AggregatorOrFunction;

    fn one(value: Value, place: &Place) -> Result<Self, Error> {
        let name = value.text().unwrap_or_default();
        if let Some(function) = crate::functions::find(&name)
            && function.aggregator
        {
            return Ok(Callback::Function(function));
        }
        let bare = name.strip_suffix("Series").unwrap_or(&name);
        Named::one(Value::Text(bare.to_owned()), place).map(Callback::Aggregator)
    }
}

/// Anything; the function decides.
pub(crate) struct Any(pub(crate) Value);

impl Take for Any {
    const KIND: Kind = Kind::Any;

    fn one(value: Value, _: &Place) -> Result<Self, Error> {
        Ok(Any(value))
    }
}
