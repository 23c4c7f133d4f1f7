//! The parameters of functions, as `/functions` shows them.

/// The kinds of values that parameters take, by the names in `/functions`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `aggFunc`: the name of an [`Aggregator`](crate::Aggregator).
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
    /// The name in `/functions`.
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

/// A value in the table of functions: a default, a preset, an option, a suggestion.
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
    /// The values that it takes.
    pub kind: Kind,
    /// Whether `/functions` calls it required.
    pub required: bool,
    /// Whether it takes all remaining arguments.
    pub multiple: bool,
    /// The value where none is given, shown by `/functions`.
    pub default: Option<Literal>,
    /// The default that `/functions` shows, where the function itself must know that no value was given.
    pub documented: Option<Literal>,
    /// The value where none is given, not shown by `/functions`.
    pub fallback: Option<Literal>,
    /// The only valid values; empty for any.
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

/// The parameters of a function with their presets.
pub(crate) struct Signature {
    /// In the order of the struct's fields, presets included.
    pub(crate) parameters: &'static [Parameter],
    presets: [Option<(&'static str, Literal)>; 2],
    // Whether a parameter's silent fallback applies.
    falls_back: bool,
}

impl Signature {
    pub(crate) const fn new(parameters: &'static [Parameter]) -> Signature {
        Signature { parameters, presets: [None; 2], falls_back: true }
    }

    /// Fixes a parameter, which is then no longer shown.
    pub(crate) const fn preset(mut self, parameter: &'static str, value: Literal) -> Signature {
        let free = if self.presets[0].is_none() { 0 } else { 1 };
        self.presets[free] = Some((parameter, value));
        self
    }

    /// Leaves parameters empty that have a silent fallback elsewhere.
    pub(crate) const fn without_fallbacks(mut self) -> Signature {
        self.falls_back = false;
        self
    }

    /// The parameters that a caller sees.
    pub(crate) fn shown(&self) -> impl Iterator<Item = &'static Parameter> + '_ {
        self.parameters.iter().filter(|parameter| self.shows(parameter))
    }

    pub(crate) fn shows(&self, parameter: &Parameter) -> bool {
        self.preset_of(parameter).is_none()
    }

    pub(crate) fn preset_of(&self, parameter: &Parameter) -> Option<Literal> {
        self.presets.iter().flatten().find(|(name, _)| *name == parameter.name).map(|(_, value)| *value)
    }

    /// The value of a parameter that is not given.
    pub(crate) fn default_of(&self, parameter: &Parameter) -> Option<Literal> {
        parameter.default.or(parameter.fallback.filter(|_| self.falls_back))
    }
}
