//! `template()`: variables of a target, filled in before anything is planned.

use std::borrow::Cow;

use crate::{Argument, Call, Error, Expression, argument::Value};

impl Expression {
    /// The expression with every `template()` filled in. `values` go before a template's own.
    ///
    /// A path that is nothing but `$name` becomes the value itself: a number, or a text that a function takes
    /// as such.
    pub(crate) fn resolved(&self, values: &[(String, String)]) -> Result<Cow<'_, Expression>, Error> {
        if !self.has_template()? {
            return Ok(Cow::Borrowed(self));
        }
        if values.len() > MAX_VALUES {
            return Err(Error::TemplateValues { most: MAX_VALUES });
        }
        let mut bytes_left = MAX_FILLED_BYTES;
        let filled = self.filled(&[], values, &mut bytes_left);
        if bytes_left == 0 {
            return Err(Error::Filled { most: MAX_FILLED_BYTES });
        }
        Ok(Cow::Owned(match filled {
            Argument::Expression(expression) => expression,
            other => Expression::Path(Value::from(&other).text().unwrap_or_default()),
        }))
    }

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

    /// When `bytes_left` is zero at the end, the paths have grown too long and the answer is invalid.
    fn filled(&self, own: &[(String, Argument)], request: &[(String, String)], bytes_left: &mut usize) -> Argument {
        match self {
            Expression::Path(path) => fill(path, own, bytes_left),
            Expression::SeriesByTag(_) => Argument::Expression(self.clone()),
            Expression::Template(inside, values) => {
                let mut own = values.clone();
                for (name, value) in request {
                    own.retain(|(known, _)| known != name);
                    own.push((name.clone(), Argument::Text(value.clone())));
                }
                inside.filled(&own, request, bytes_left)
            }
            Expression::Call(call) => {
                let mut fill = |argument: &Argument| match argument {
                    Argument::Expression(expression) => expression.filled(own, request, bytes_left),
                    literal => literal.clone(),
                };
                Argument::Expression(Expression::Call(Call {
                    function: call.function.clone(),
                    positional: call.positional.iter().map(&mut fill).collect(),
                    named: call.named.iter().map(|(name, argument)| (name.clone(), fill(argument))).collect(),
                }))
            }
        }
    }
}

/// Values of a template, those of the request included. Each is searched for in each path.
const MAX_VALUES: usize = 256;

/// Bytes of all paths of a target once its templates are filled in; beyond, the target is rejected.
const MAX_FILLED_BYTES: usize = 4 << 20;

fn fill(path: &str, values: &[(String, Argument)], bytes_left: &mut usize) -> Argument {
    let mut filled = path.to_owned();
    for (name, value) in values {
        let variable = format!("${name}");
        if filled == variable {
            return match value {
                Argument::Text(text) if is_decimal(text) => match text.parse() {
                    Ok(number) => Argument::Float(number),
                    Err(_) => Argument::Text(text.clone()),
                },
                value => value.clone(),
            };
        }
        let text = Value::from(value).text().unwrap_or_default();
        let grown = filled.matches(&variable).count().saturating_mul(text.len()).saturating_add(filled.len());
        if grown > *bytes_left {
            *bytes_left = 0;
            break;
        }
        filled = filled.replace(&variable, &text);
    }
    *bytes_left = bytes_left.saturating_sub(filled.len());
    Argument::Expression(Expression::Path(filled))
}

/// `-?[0-9.]+`
fn is_decimal(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}
