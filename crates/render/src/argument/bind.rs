//! Binding: the values of a call become the fields of a function's struct.

use super::{
    parameter::{Kind, Literal, Parameter, Signature},
    value::Value,
};
use crate::Error;

/// Declares a function's struct, each field with its parameter.
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

/// Whether a function of this name takes part as a callback. The table of functions is above this module, so its
/// answer comes with the call.
pub(crate) type IsCallback = fn(&str) -> bool;

/// The values of a call, sorted by parameter.
pub(crate) struct Arguments {
    function: &'static str,
    signature: &'static Signature,
    is_callback: IsCallback,
    // One for each of the function's parameters, presets included; one value in each unless the parameter
    // takes many.
    values: std::vec::IntoIter<Vec<Value>>,
    next: usize,
}

impl Arguments {
    /// Gives each parameter its values: those by position, those by name, presets and defaults. As in graphite-web,
    /// `none` is the same as not given, and a parameter that takes many values also takes none.
    pub(crate) fn of(
        function: &'static str,
        signature: &'static Signature,
        is_callback: IsCallback,
        positional: Vec<Value>,
        named: Vec<(String, Value)>,
    ) -> Result<Arguments, Error> {
        let parameters = signature.parameters;
        let mut values: Vec<Vec<Value>> = parameters.iter().map(|_| Vec::new()).collect();
        let visible: Vec<usize> = (0..parameters.len()).filter(|i| signature.shows(&parameters[*i])).collect();
        let given = positional.len();
        for (place, value) in positional.into_iter().enumerate() {
            let last = visible.last().copied().filter(|i| parameters[*i].multiple);
            let Some(parameter) = visible.get(place).copied().or(last) else {
                let parameter = format!("takes {} arguments", visible.len());
                return Err(Error::Argument { function, parameter, problem: format!("and {given} were given") });
            };
            values[parameter].push(value);
        }
        for (name, value) in named {
            let problem =
                |problem: &str| Error::Argument { function, parameter: name.clone(), problem: problem.to_owned() };
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
            if let Some(preset) = signature.preset_of(parameter) {
                *values = vec![preset.into()];
            } else if values.is_empty()
                && let Some(default) = signature.default_of(parameter)
            {
                values.push(default.into());
            }
        }
        Ok(Arguments { function, signature, is_callback, values: values.into_iter(), next: 0 })
    }

    /// The value of the next field.
    pub(crate) fn take<T: Take>(&mut self) -> Result<T, Error> {
        let parameter = &self.signature.parameters[self.next];
        self.next += 1;
        let values = self.values.next().expect("a field for each parameter, from the same macro");
        let Arguments { function, is_callback, .. } = *self;
        T::take(values, &ParameterPosition { function, parameter, is_callback })
    }
}

/// The parameter of a value, for checks and messages.
pub(crate) struct ParameterPosition {
    function: &'static str,
    pub(super) parameter: &'static Parameter,
    pub(super) is_callback: IsCallback,
}

impl ParameterPosition {
    pub(crate) fn problem(&self, problem: String) -> Error {
        Error::Argument { function: self.function, parameter: self.parameter.name.to_owned(), problem }
    }

    pub(super) fn expected(&self, what: &str, given: &Value) -> Error {
        self.problem(format!("must be {what}, got {}", given.shown()))
    }

    /// An error that graphite-web also finds, and answers with 400.
    pub(crate) fn rejected(&self, problem: String) -> Error {
        Error::Rejected { function: self.function, problem: format!("{} {problem}", self.parameter.name) }
    }
}

/// The type of a field.
pub(crate) trait Take: Sized {
    const KIND: Kind;
    const MULTIPLE: bool = false;

    /// From the values of a parameter; may be none.
    fn take(values: Vec<Value>, position: &ParameterPosition) -> Result<Self, Error> {
        match values.into_iter().next() {
            Some(value) => Self::one(value, position),
            None => Err(position.problem("is missing".to_owned())),
        }
    }

    /// From one value.
    fn one(value: Value, position: &ParameterPosition) -> Result<Self, Error>;
}

impl<T: Take> Take for Vec<T> {
    const KIND: Kind = T::KIND;
    const MULTIPLE: bool = true;

    fn take(values: Vec<Value>, position: &ParameterPosition) -> Result<Self, Error> {
        values.into_iter().map(|value| T::one(value, position)).collect()
    }

    fn one(value: Value, position: &ParameterPosition) -> Result<Self, Error> {
        Ok(vec![T::one(value, position)?])
    }
}

impl<T: Take> Take for Option<T> {
    const KIND: Kind = T::KIND;

    fn take(values: Vec<Value>, position: &ParameterPosition) -> Result<Self, Error> {
        values.into_iter().next().map(|value| T::one(value, position)).transpose()
    }

    fn one(value: Value, position: &ParameterPosition) -> Result<Self, Error> {
        T::one(value, position).map(Some)
    }
}

impl Take for f64 {
    const KIND: Kind = Kind::Float;

    fn one(value: Value, position: &ParameterPosition) -> Result<Self, Error> {
        let number = match &value {
            Value::Integer(number) => Some(*number as f64),
            Value::Float(number) => Some(*number),
            Value::Boolean(truth) => Some(f64::from(u8::from(*truth))),
            Value::Text(text) => text.trim().parse().ok(),
            _ => None,
        };
        number.filter(|number| !number.is_nan()).ok_or_else(|| position.expected("a number", &value))
    }
}

pub(super) fn integer(value: &Value) -> Option<i64> {
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

    fn one(value: Value, position: &ParameterPosition) -> Result<Self, Error> {
        integer(&value).ok_or_else(|| position.expected("a whole number", &value))
    }
}

impl Take for bool {
    const KIND: Kind = Kind::Boolean;

    fn one(value: Value, position: &ParameterPosition) -> Result<Self, Error> {
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
        truth.ok_or_else(|| position.expected("true or false", &value))
    }
}

impl Take for String {
    const KIND: Kind = Kind::String;

    fn one(value: Value, position: &ParameterPosition) -> Result<Self, Error> {
        let text = value.text().ok_or_else(|| position.expected("a quoted text", &value))?;
        let options = position.parameter.options;
        let is_text = |option: &Literal| matches!(option, Literal::Text(option) if *option == text);
        if !options.is_empty() && !options.iter().any(is_text) {
            let known: Vec<String> = options.iter().map(|option| Value::from(*option).shown()).collect();
            return Err(position.rejected(format!("must be one of {}, got '{text}'", known.join(", "))));
        }
        Ok(text)
    }
}
