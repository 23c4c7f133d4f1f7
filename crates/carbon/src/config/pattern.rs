//! The patterns of rule files: Python's regular expressions, searched anywhere in a name.

use std::{borrow::Cow, iter::Peekable, str::CharIndices, sync::Arc};

use regex::Regex;

/// A pattern, ready to search.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    source: String,
    matcher: Matcher,
}

/// How a pattern is searched for. Most rules are a literal with an anchor, for which a comparison does.
#[derive(Debug, Clone)]
enum Matcher {
    Anything,
    Prefix(String),
    Suffix(String),
    Inside(String),
    /// Shared by clones: each has memory for searches, which it fills by searching.
    Regex(Arc<Regex>),
}

impl Pattern {
    /// Compiles a pattern; the error says what is wrong with it.
    pub(super) fn new(source: &str) -> Result<Pattern, String> {
        let matcher = match literal(source) {
            Some(matcher) => matcher,
            None => Matcher::Regex(Arc::new(compile(source)?)),
        };
        Ok(Pattern { source: source.to_owned(), matcher })
    }

    /// The pattern as it was written.
    pub(super) fn source(&self) -> &str {
        &self.source
    }

    /// Whether `name` has a match. Allocates nothing.
    #[inline]
    pub(super) fn is_in(&self, name: &str) -> bool {
        match &self.matcher {
            Matcher::Anything => true,
            Matcher::Prefix(text) => name.starts_with(text.as_str()),
            Matcher::Suffix(text) => name.ends_with(text.as_str()),
            Matcher::Inside(text) => memchr::memmem::find(name.as_bytes(), text.as_bytes()).is_some(),
            Matcher::Regex(regex) => regex.is_match(name),
        }
    }
}

/// The matcher of a pattern that is a literal between anchors or `.*`; `None` for any other pattern.
fn literal(source: &str) -> Option<Matcher> {
    // Names have no line ends, so that `.*` matches whatever is left.
    let (from_start, rest) = match source.strip_prefix('^') {
        Some(rest) => (true, rest),
        None => (false, source),
    };
    let (from_start, rest) = match rest.strip_prefix(".*") {
        Some(rest) => (false, rest),
        None => (from_start, rest),
    };
    let mut text = String::new();
    let mut chars = rest.chars();
    loop {
        let left = chars.as_str();
        let is_open_end = matches!(left, "" | ".*" | ".*$");
        if is_open_end || left == "$" {
            let is_anything = text.is_empty() && (is_open_end || !from_start);
            return match (from_start, is_open_end) {
                _ if is_anything => Some(Matcher::Anything),
                (true, true) => Some(Matcher::Prefix(text)),
                (false, false) => Some(Matcher::Suffix(text)),
                (false, true) => Some(Matcher::Inside(text)),
                (true, false) => None,
            };
        }
        match chars.next()? {
            '\\' => text.push(chars.next().filter(char::is_ascii_punctuation)?),
            c if c.is_ascii_alphanumeric()
                || matches!(c, '_' | '-' | ':' | '/' | ',' | '=' | ';' | '%' | '~' | ' ') =>
            {
                text.push(c);
            }
            _ => return None,
        }
        // A repetition would belong to the last character.
        if chars.as_str().starts_with(['*', '+', '?', '{']) {
            return None;
        }
    }
}

fn compile(source: &str) -> Result<Regex, String> {
    let translated = translate(source)?;
    Regex::new(&translated).map_err(|error| {
        let text = error.to_string();
        let reason = text.lines().last().unwrap_or_default().trim();
        format!("'{source}' is not a regular expression: {}", reason.strip_prefix("error: ").unwrap_or(reason))
    })
}

/// A pattern in the syntax of the `regex` crate. Syntax that only Python and Perl have is an error; syntax that differs
/// is rewritten: `\Z`, a `{` that repeats nothing, `{,n}`, `(?#comment)`, and in a class `[`, `&`, `~`.
fn translate(source: &str) -> Result<Cow<'_, str>, String> {
    let mut out = String::with_capacity(source.len() + 8);
    let mut chars = source.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let rest = &source[at..];
        match c {
            '\\' => translate_escape(source, &mut chars, &mut out)?,
            '[' => translate_class(source, &mut chars, &mut out),
            '(' if rest.starts_with("(?#") => {
                let comment = chars.find(|&(_, c)| c == ')');
                comment.ok_or_else(|| format!("'{source}' has a comment that is not closed"))?;
            }
            '(' => {
                if let Some((_, what)) = UNSUPPORTED.into_iter().find(|(start, _)| rest.starts_with(start)) {
                    return Err(format!(
                        "'{source}' uses {what}, which cannot be searched in linear time; write it without"
                    ));
                }
                out.push(c);
            }
            '{' => match repetition(rest) {
                Some((lowest, length)) => {
                    out.push('{');
                    out.push_str(lowest);
                    out.push_str(&rest[1..length]);
                    chars.by_ref().take(length - 1).for_each(drop);
                }
                None => {
                    out.push_str("\\{");
                    continue;
                }
            },
            _ => out.push(c),
        }
        let is_possessive = matches!(c, '*' | '+' | '?' | '{') && chars.peek().is_some_and(|&(_, next)| next == '+');
        if is_possessive {
            return Err(unsupported(source, &format!("a possessive repetition '{c}+'")));
        }
    }
    Ok(if out == source { Cow::Borrowed(source) } else { Cow::Owned(out) })
}

fn unsupported(source: &str, what: &str) -> String {
    format!("'{source}' uses {what}, which cannot be searched in linear time; write it without")
}

/// Unsupported syntax, by its first characters.
const UNSUPPORTED: [(&str, &str); 7] = [
    ("(?=", "look-ahead '(?=…)'"),
    ("(?!", "negative look-ahead '(?!…)'"),
    ("(?<=", "look-behind '(?<=…)'"),
    ("(?<!", "negative look-behind '(?<!…)'"),
    ("(?P=", "a back-reference '(?P=…)'"),
    ("(?(", "a condition '(?(…)…)'"),
    ("(?>", "an atomic group '(?>…)'"),
];

/// What follows a backslash outside a class.
fn translate_escape(source: &str, chars: &mut Peekable<CharIndices<'_>>, out: &mut String) -> Result<(), String> {
    match chars.next() {
        None => return Err(format!("'{source}' ends in a backslash")),
        Some((_, 'Z')) => out.push_str("\\z"),
        Some((_, digit @ '1'..='9')) => {
            return Err(unsupported(source, &format!("a back-reference '\\{digit}'")));
        }
        // Word boundaries in the crate, plain characters in Python.
        Some((_, c @ ('<' | '>'))) => out.push(c),
        Some((_, c)) => {
            out.push('\\');
            out.push(c);
        }
    }
    Ok(())
}

/// The rest of a class after its `[`. `[:name:]` has its meaning in Go.
fn translate_class(source: &str, chars: &mut Peekable<CharIndices<'_>>, out: &mut String) {
    out.push('[');
    if chars.next_if(|&(_, c)| c == '^').is_some() {
        out.push('^');
    }
    if chars.next_if(|&(_, c)| c == ']').is_some() {
        out.push_str("\\]");
    }
    while let Some((at, c)) = chars.next() {
        match c {
            ']' => return out.push(']'),
            '[' => match source[at..].strip_prefix("[:").and_then(|rest| rest.find(":]")) {
                Some(length) => {
                    out.push_str(&source[at..at + length + 4]);
                    chars.by_ref().take(source[at..at + length + 4].chars().count() - 1).for_each(drop);
                }
                None => out.push_str("\\["),
            },
            '&' | '~' => out.extend(['\\', c]),
            '\\' => match chars.next() {
                // A backspace in Python, a word boundary in the crate.
                Some((_, 'b')) => out.push_str("\\x08"),
                Some((_, c @ ('<' | '>'))) => out.push(c),
                escaped => {
                    out.push('\\');
                    out.extend(escaped.map(|(_, c)| c));
                }
            },
            _ => out.push(c),
        }
    }
}

/// When `rest` begins with `{m}`, `{m,}`, `{m,n}` or `{,n}`: the lowest number it lacks, and its length.
fn repetition(rest: &str) -> Option<(&'static str, usize)> {
    let end = rest.find('}')?;
    let inner = &rest[1..end];
    let (lowest, highest) = inner.split_once(',').unwrap_or((inner, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if inner.is_empty() || !is_number(lowest) || !is_number(highest) {
        return None;
    }
    Some((if lowest.is_empty() { "0" } else { "" }, end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, found: &[&str], missed: &[&str]) {
        let pattern = Pattern::new(source).unwrap();
        // Every literal must match as the expression it stands for.
        let regex = compile(source).unwrap();
        for name in found {
            assert!(pattern.is_in(name) && regex.is_match(name), "{source} in {name}");
        }
        for name in missed {
            assert!(!pattern.is_in(name) && !regex.is_match(name), "{source} in {name}");
        }
    }

    #[test]
    fn a_pattern_is_found_anywhere_and_case_counts() {
        check("b.c", &["a.b.c.d", "bxc"], &["a.B.c"]);
        check(r"^carbon\.", &["carbon.a"], &["xcarbon.a", "carbonx"]);
        check(r"\.min$", &["a.min"], &["a.min.b", "amin"]);
        check(".*", &["", "a"], &[]);
        check("", &["", "a"], &[]);
        check("^.*$", &["", "a"], &[]);
        check("^", &["", "a"], &[]);
        check("$", &["", "a"], &[]);
        check("^$", &[""], &["a"]);
        check("^a$", &["a"], &["ab", "ba"]);
        check("^.*count$", &["a.count"], &["count.a"]);
        check(".*count.*", &["a.count.b"], &["a.b"]);
        check("^a.*", &["ab"], &["ba"]);
        check("ab*", &["a", "ab"], &["b"]);
        check(r"ab\.?", &["ab"], &["a"]);
        check("cpu|mem", &["a.cpu", "mem"], &["disk"]);
    }

    #[test]
    fn pythons_own_syntax_is_understood() {
        check(r"count\Z", &["a.count"], &["a.counts"]);
        check("a{b}", &["a{b}"], &["ab"]);
        check("^a{,2}$", &["", "a", "aa"], &["aaa"]);
        check("^a{2}$", &["aa"], &["a"]);
        check("^a{1,}$", &["aa"], &[""]);
        check("a(?#a comment)b", &["ab"], &["a"]);
        check("^[[a]$", &["[", "a"], &["b"]);
        check("^[]a]$", &["]", "a"], &["b"]);
        check("^[^]a]$", &["b"], &["]", "a"]);
        check("^[a&&b~]$", &["a", "&", "b", "~"], &["c"]);
        check("^[[:alpha:]_]+$", &["ab_"], &["a1"]);
        check(r"^[\]\-x]$", &["]", "-", "x"], &["\\"]);
        check(r"a\<b[\<\>]$", &["a<b>"], &["ab"]);
        check(r"[\b]", &["a\x08"], &["a"]);
        check(r"\*+a{b+", &["**a{bb"], &["a{b"]);
        check(r"(?P<host>\w+)\.cpu", &["a.cpu"], &[".cpu"]);
        check("é[èê]{1}", &["éê"], &["é"]);
    }

    #[test]
    fn unsupported_syntax_is_named_in_the_error() {
        for (source, part) in [
            ("a(?=b)", "look-ahead"),
            ("^(?!carbon)", "negative look-ahead '(?!…)'"),
            ("(?<=a)b", "look-behind"),
            ("(?<!a)b", "negative look-behind"),
            (r"(a)\1", r"back-reference '\1'"),
            ("(?P<x>a)(?P=x)", "back-reference '(?P=…)'"),
            ("(?>a)", "atomic"),
            ("a*+b", "possessive repetition '*+'"),
            ("a{2}+b", "possessive"),
            ("(a", "unclosed group"),
            ("*a", "repetition operator missing expression"),
            ("a\\", "backslash"),
            ("a{1000}{1000}{1000}", "size limit"),
        ] {
            let message = Pattern::new(source).unwrap_err();
            assert!(message.contains(part) && message.contains(source), "{message}");
        }
    }
}
