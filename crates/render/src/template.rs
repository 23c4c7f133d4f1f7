//! `template()`: variables of a target, filled in before anything is planned.

use std::borrow::Cow;

use crate::{Argument, Call, Error, Expression, argument::Value};

/// Templates of one walk over the targets of a request: what their paths may still have in bytes.
pub(crate) struct Templates<'a> {
    // Values of the request, by name.
    values: &'a [(String, String)],
    bytes_left: usize,
    cancelled: &'a (dyn Fn() -> bool + Sync),
}

/// A value of a template.
#[derive(Clone, Copy)]
enum Given<'a> {
    Own(&'a Argument),
    Request(&'a str),
}

impl<'a> Templates<'a> {
    /// `values` are those of the request; they go before a template's own.
    pub(crate) fn new(values: &'a [(String, String)], cancelled: &'a (dyn Fn() -> bool + Sync)) -> Templates<'a> {
        Templates { values, bytes_left: MAX_FILLED_BYTES, cancelled }
    }

    /// An expression with every `template()` filled in.
    ///
    /// A path that is nothing but `$name` becomes the value itself: a number, or a text that a function takes
    /// as such.
    pub(crate) fn resolve<'e>(&mut self, expression: &'e Expression) -> Result<Cow<'e, Expression>, Error> {
        if !expression.has_template()? {
            return Ok(Cow::Borrowed(expression));
        }
        if self.values.len() > MAX_VALUES {
            return Err(Error::TemplateValues { most: MAX_VALUES });
        }
        Ok(Cow::Owned(match self.filled(expression, &[])? {
            Argument::Expression(expression) => expression,
            other => Expression::Path(Value::from(&other).text().unwrap_or_default()),
        }))
    }

    fn filled(&mut self, expression: &Expression, given: &[(&str, Given<'_>)]) -> Result<Argument, Error> {
        match expression {
            Expression::Path(path) => self.fill(path, given),
            Expression::SeriesByTag(_) => Ok(Argument::Expression(expression.clone())),
            Expression::Template(inside, own) => {
                let of_request = |name: &str| self.values.iter().any(|(known, _)| known == name);
                let own = own.iter().filter(|(name, _)| !of_request(name));
                let own = own.map(|(name, value)| (name.as_str(), Given::Own(value)));
                let request = self.values.iter().map(|(name, value)| (name.as_str(), Given::Request(value)));
                let given: Vec<_> = own.chain(request).collect();
                self.filled(inside, &given)
            }
            Expression::Call(call) => {
                let mut fill = |argument: &Argument| match argument {
                    Argument::Expression(expression) => self.filled(expression, given),
                    literal => Ok(literal.clone()),
                };
                let positional = call.positional.iter().map(&mut fill).collect::<Result<_, _>>()?;
                let named = call.named.iter().map(|(name, argument)| Ok((name.clone(), fill(argument)?)));
                let named = named.collect::<Result<_, Error>>()?;
                Ok(Argument::Expression(Expression::Call(Call { function: call.function.clone(), positional, named })))
            }
        }
    }

    fn fill(&mut self, path: &str, given: &[(&str, Given<'_>)]) -> Result<Argument, Error> {
        let mut filled = path.to_owned();
        for (name, value) in given {
            if (self.cancelled)() {
                return Err(Error::Cancelled);
            }
            let variable = format!("${name}");
            if filled == variable {
                return Ok(value.argument());
            }
            let count = filled.matches(&variable).count();
            if count == 0 {
                continue;
            }
            let text = value.text();
            let grown = count.saturating_mul(text.len()).saturating_add(filled.len());
            if grown > self.bytes_left {
                return Err(Error::Filled { most: MAX_FILLED_BYTES });
            }
            filled = filled.replace(&variable, &text);
        }
        self.bytes_left = self.bytes_left.checked_sub(filled.len()).ok_or(Error::Filled { most: MAX_FILLED_BYTES })?;
        Ok(Argument::Expression(Expression::Path(filled)))
    }
}

impl Given<'_> {
    fn argument(self) -> Argument {
        match self {
            Given::Own(Argument::Text(text)) => number_or_text(text),
            Given::Own(value) => value.clone(),
            Given::Request(text) => number_or_text(text),
        }
    }

    fn text(&self) -> Cow<'_, str> {
        match self {
            Given::Own(value) => Value::from(*value).text().unwrap_or_default().into(),
            Given::Request(text) => Cow::Borrowed(text),
        }
    }
}

fn number_or_text(text: &str) -> Argument {
    match text.parse() {
        Ok(number) if is_decimal(text) => Argument::Float(number),
        _ => Argument::Text(text.to_owned()),
    }
}

impl Expression {
    fn has_template(&self) -> Result<bool, Error> {
        Ok(match self {
            Expression::Path(_) | Expression::SeriesByTag(_) => false,
            Expression::Template(_, own) if own.len() > MAX_VALUES => {
                return Err(Error::TemplateValues { most: MAX_VALUES });
            }
            Expression::Template(inside, _) => inside.has_template().map(|_| true)?,
            // The grammar reads a template with anything but literals as a call.
            Expression::Call(call) if call.function == "template" => return Err(Error::Template),
            Expression::Call(call) => {
                let mut found = false;
                for argument in call.positional.iter().chain(call.named.iter().map(|(_, argument)| argument)) {
                    if let Argument::Expression(expression) = argument {
                        found |= expression.has_template()?;
                    }
                }
                found
            }
        })
    }
}

/// Values of a template, those of the request included. Each is searched for in each path.
const MAX_VALUES: usize = 256;

/// Bytes of all paths of the templates of a request once they are filled in; beyond, the request is rejected.
const MAX_FILLED_BYTES: usize = 4 << 20;

/// `-?[0-9.]+`
fn is_decimal(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}
