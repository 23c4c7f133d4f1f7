//! The target language: text to [`Expression`].
//!
//! graphite-web's parser never goes back on a choice: it keeps an alternative that matched even if the rest does not.
//! The results are part of the language, so the rules below follow in its order: `true.x` as an argument is the boolean
//! `true` and then an error, and a call whose brackets do not close is a path. Text behind an expression is ignored.
//! Only groups in braces may contain more than graphite-web's.

use crate::{Argument, Call, Expression, ParseError};

/// Bytes of the longest target.
const MAX_BYTES: usize = 1 << 20;
/// Levels of the deepest target. graphite-web overflows Python's stack at about fifty.
const MAX_DEPTH: usize = 100;
/// Characters that a part of a path contains only behind a backslash.
const SYMBOLS: &[u8] = br#"(){},.'"\|"#;

/// Reads a target.
///
/// # Errors
/// Its beginning is not an expression, or it is too long or nested too deeply.
pub fn parse(target: &str) -> Result<Expression, ParseError> {
    if target.len() > MAX_BYTES {
        return Err(ParseError::Long { bytes: target.len(), most: MAX_BYTES });
    }
    // Alternative rules may read the same text twice, and inside of each other 2^n times. No honest target needs
    // more rules than this.
    let mut parser = Parser { text: target, at: 0, depth: 0, rules_left: 1000 + 64 * target.len(), overflown: false };
    let expression = parser.expression();
    if parser.overflown {
        return Err(ParseError::Deep { most: MAX_DEPTH });
    }
    expression.ok_or_else(|| ParseError::Nothing {
        at: target.len() - target.trim_start().len(),
        target: target.chars().take(200).collect(),
    })
}

/// A rule returns `None` where it does not match, and then leaves `at` where it was.
struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    rules_left: usize,
    overflown: bool,
}

/// `name=value`.
type Named = (String, Argument);

/// An argument of a call.
enum Item {
    Positional(Argument),
    Named(Named),
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    fn blanks(&mut self) {
        let blanks = self.rest().iter().take_while(|byte| b" \t\n\r".contains(byte)).count();
        self.at += blanks;
    }

    /// Tries a rule; where it does not match, nothing was read.
    fn attempt<T>(&mut self, rule: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let at = self.at;
        self.rules_left = self.rules_left.saturating_sub(1);
        self.overflown |= self.rules_left == 0;
        if self.overflown {
            return None;
        }
        let found = rule(self);
        if found.is_none() {
            self.at = at;
        }
        found
    }

    fn symbol(&mut self, symbol: u8) -> Option<()> {
        self.attempt(|this| {
            this.blanks();
            (this.rest().first() == Some(&symbol)).then(|| this.at += 1)
        })
    }

    fn identifier(&mut self) -> Option<&'a str> {
        self.attempt(|this| {
            this.blanks();
            let rest = this.rest();
            let length = rest.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
            let starts_well = rest.first().is_some_and(|byte| !byte.is_ascii_digit());
            let found = this.text.get(this.at..this.at + length).filter(|_| starts_well && length > 0)?;
            this.at += length;
            Some(found)
        })
    }

    /// `(template | call | path) ["|" call]*`
    fn expression(&mut self) -> Option<Expression> {
        if self.depth == MAX_DEPTH {
            self.overflown = true;
            return None;
        }
        self.depth += 1;
        let mut expression = self.attempt(Self::template).or_else(|| self.attempt(Self::simple));
        let mut pipes = 0;
        while let Some(inner) = expression.take() {
            let piped = self.attempt(|this| {
                this.symbol(b'|')?;
                this.call()
            });
            pipes += usize::from(piped.is_some());
            if self.depth + pipes > MAX_DEPTH {
                self.overflown = true;
            }
            match piped {
                Some(Expression::Call(mut call)) => {
                    call.positional.insert(0, Argument::Expression(inner));
                    expression = Some(Expression::Call(call));
                }
                Some(other) => expression = Some(other),
                None => {
                    expression = Some(inner);
                    break;
                }
            }
        }
        self.depth -= 1;
        expression
    }

    /// `call | path`
    fn simple(&mut self) -> Option<Expression> {
        self.attempt(Self::call).or_else(|| self.path().map(Expression::Path))
    }

    /// `"template" "(" (call | path) ["," (literals | named literals)] ")"`
    fn template(&mut self) -> Option<Expression> {
        self.blanks();
        if !self.rest().starts_with(b"template") {
            return None;
        }
        self.at += b"template".len();
        self.symbol(b'(')?;
        let inside = self.simple()?;
        let values = self.attempt(|this| {
            this.symbol(b',')?;
            match this.named(Self::literal) {
                Some(first) => this.more(first, |this| this.named(Self::literal)),
                None => {
                    let first = this.literal()?;
                    let literals = this.more(first, Self::literal)?;
                    Some(literals.into_iter().enumerate().map(|(i, value)| ((i + 1).to_string(), value)).collect())
                }
            }
        });
        self.symbol(b')')?;
        Some(Expression::Template(Box::new(inside), values.unwrap_or_default()))
    }

    /// `name "(" [arguments ["," named arguments]] ")"`
    fn call(&mut self) -> Option<Expression> {
        self.blanks();
        let start = self.at;
        let function = self.identifier()?;
        self.symbol(b'(')?;
        let (mut positional, mut named) = (Vec::new(), Vec::new());
        // A named argument that was read is kept: to look ahead and read it again would take 2^n times as long where
        // they are nested.
        let mut item = self.item();
        while let Some(read) = item {
            match read {
                Item::Positional(argument) => positional.push(argument),
                // A call has a positional argument or no argument.
                Item::Named(_) if positional.is_empty() => return None,
                Item::Named(first) => {
                    named = self.more(first, |this| this.named(Self::argument))?;
                    break;
                }
            }
            item = self.attempt(|this| {
                this.symbol(b',')?;
                this.item()
            });
        }
        self.symbol(b')')?;
        if function == "seriesByTag" {
            return Some(Expression::SeriesByTag(self.text.get(start..self.at)?.to_owned()));
        }
        Some(Expression::Call(Call { function: function.to_owned(), positional, named }))
    }

    /// `name "=" argument | argument`
    fn item(&mut self) -> Option<Item> {
        match self.named(Self::argument) {
            Some(named) => Some(Item::Named(named)),
            None => self.argument().map(Item::Positional),
        }
    }

    /// `first ("," item)*`
    fn more<T>(&mut self, first: T, mut item: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let mut items = vec![first];
        while let Some(next) = self.attempt(|this| {
            this.symbol(b',')?;
            item(this)
        }) {
            items.push(next);
        }
        Some(items)
    }

    /// `name "=" value`
    fn named(&mut self, value: impl FnOnce(&mut Self) -> Option<Argument>) -> Option<Named> {
        self.attempt(|this| {
            let name = this.identifier()?;
            this.symbol(b'=')?;
            Some((name.to_owned(), value(this)?))
        })
    }

    /// `boolean | number | none | string | inf | expression`
    fn argument(&mut self) -> Option<Argument> {
        self.attempt(|this| this.keyword("true").then_some(Argument::Boolean(true)))
            .or_else(|| self.attempt(|this| this.keyword("false").then_some(Argument::Boolean(false))))
            .or_else(|| self.attempt(Self::number))
            .or_else(|| self.attempt(|this| this.keyword("none").then_some(Argument::None)))
            .or_else(|| self.attempt(Self::string))
            .or_else(|| self.attempt(|this| this.keyword("inf").then_some(Argument::Float(f64::INFINITY))))
            .or_else(|| self.expression().map(Argument::Expression))
    }

    /// `number | string`
    fn literal(&mut self) -> Option<Argument> {
        self.attempt(Self::number).or_else(|| self.attempt(Self::string))
    }

    /// A word in any case that is not part of a longer one. Dots end it: `true.x` contains the word.
    fn keyword(&mut self, word: &str) -> bool {
        self.blanks();
        let rest = self.rest();
        let found = rest.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word.as_bytes()));
        let goes_on = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_' || *byte == b'$';
        let whole = found && !rest.get(word.len()).is_some_and(goes_on);
        if whole {
            self.at += word.len();
        }
        whole
    }

    /// A number, if a comma, a closing bracket or the end follows.
    fn number(&mut self) -> Option<Argument> {
        self.blanks();
        let rest = self.rest();
        let integer = integer(rest)?;
        let fraction = rest.get(integer..).filter(|rest| rest.first() == Some(&b'.')).map_or(0, |rest| {
            let digits = rest.iter().skip(1).take_while(|byte| byte.is_ascii_digit()).count();
            if digits == 0 { 0 } else { digits + 1 }
        });
        let decimal = integer + fraction;
        let exponent = rest
            .get(decimal..)
            .filter(|rest| rest.first().is_some_and(|byte| byte.eq_ignore_ascii_case(&b'e')))
            .and_then(|rest| self::integer(rest.get(1..)?))
            .map_or(0, |digits| digits + 1);
        // The longest form comes first, and gives way to the next where the text behind it does not fit.
        for length in [decimal + exponent, decimal, integer] {
            let end = self.at + length;
            if !self.number_may_end(end) {
                continue;
            }
            let text = self.text.get(self.at..end)?;
            self.at = end;
            let whole = if length == integer { text.parse().ok() } else { None };
            return Some(match whole {
                Some(integer) => Argument::Integer(integer),
                None => Argument::Float(text.parse().ok()?),
            });
        }
        None
    }

    fn number_may_end(&self, at: usize) -> bool {
        let rest = self.text.as_bytes().get(at..).unwrap_or_default();
        let after = rest.iter().find(|byte| !b" \t\n\r".contains(byte));
        let line_ends = rest.iter().find(|byte| !b" \t\r".contains(byte)) == Some(&b'\n');
        line_ends || matches!(after, None | Some(b',' | b')'))
    }

    /// Text between quotes. A backslash keeps the next character from ending it, and a doubled quote is
    /// part of it; neither is taken out.
    fn string(&mut self) -> Option<Argument> {
        self.blanks();
        let rest = self.rest();
        let quote = *rest.first().filter(|byte| matches!(byte, b'"' | b'\''))?;
        let mut end = 1;
        loop {
            match (*rest.get(end)?, rest.get(end + 1)) {
                (byte, Some(next)) if byte == quote && *next == quote => end += 2,
                (byte, _) if byte == quote => break,
                (b'\n' | b'\r', _) => return None,
                (b'\\', Some(b'x')) => {
                    let digits = rest.iter().skip(end + 2).take_while(|byte| byte.is_ascii_hexdigit()).count();
                    if digits == 0 {
                        return None;
                    }
                    end += 2 + digits;
                }
                (b'\\', _) => end += 2,
                _ => end += 1,
            }
        }
        let text = self.text.get(self.at + 1..self.at + end)?;
        self.at += end + 1;
        Some(Argument::Text(text.to_owned()))
    }

    /// Parts joined by dots, without a dot at the end.
    fn path(&mut self) -> Option<String> {
        self.attempt(|this| {
            this.blanks();
            let mut path = String::new();
            this.part(&mut path)?;
            loop {
                let length = path.len();
                let dotted = this.attempt(|this| {
                    (this.rest().first() == Some(&b'.')).then(|| this.at += 1)?;
                    path.push('.');
                    this.part(&mut path)
                });
                if dotted.is_none() {
                    path.truncate(length);
                    return Some(path);
                }
            }
        })
    }

    /// Plain characters and groups in braces, at least one, without a dot or blank between.
    fn part(&mut self, path: &mut String) -> Option<()> {
        let start = path.len();
        loop {
            let length = path.len();
            if self.attempt(|this| this.characters(path)).is_none() && self.attempt(|this| this.group(path)).is_none() {
                path.truncate(length);
                return (path.len() > start).then_some(());
            }
        }
    }

    /// Characters of a path, at least one; a backslash lets a symbol be one of them.
    fn characters(&mut self, path: &mut String) -> Option<()> {
        let start = path.len();
        let mut plain_from = self.at;
        while let Some(&byte) = self.rest().first() {
            let escaped = self.rest().get(1).filter(|next| SYMBOLS.contains(next) || **next == b'=');
            if byte == b'\\' && escaped.is_some() {
                path.push_str(self.text.get(plain_from..self.at)?);
                // The escaped symbol becomes the first of the next plain run.
                plain_from = self.at + 1;
                self.at += 2;
            } else if byte > b' ' && byte != 0x7f && !SYMBOLS.contains(&byte) {
                self.at += 1;
            } else {
                break;
            }
        }
        path.push_str(self.text.get(plain_from..self.at)?);
        (path.len() > start).then_some(())
    }

    /// `{a,b}` up to the brace that closes it. Inside may be dots, blanks, empty members and other groups, as in
    /// a pattern of `/metrics/find`; graphite-web ends the path before such a group, and answers for the rest. An open
    /// brace without a closing one is not a group.
    fn group(&mut self, path: &mut String) -> Option<()> {
        let mut open = 0_usize;
        loop {
            if open > 0 && self.attempt(|this| this.characters(path)).is_some() {
                continue;
            }
            let &symbol = self.rest().first()?;
            match symbol {
                b'{' => open += 1,
                b'}' => open = open.checked_sub(1)?,
                b',' | b'.' | b' ' if open > 0 => {}
                _ => return None,
            }
            path.push(char::from(symbol));
            self.at += 1;
            if open == 0 {
                return Some(());
            }
        }
    }
}

/// Length of `[-]digits` at the start of a text.
fn integer(text: &[u8]) -> Option<usize> {
    let sign = usize::from(text.first() == Some(&b'-'));
    let digits = text.iter().skip(sign).take_while(|byte| byte.is_ascii_digit()).count();
    (digits > 0).then_some(sign + digits)
}
