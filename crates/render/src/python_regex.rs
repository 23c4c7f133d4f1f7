//! Regular expressions as Python's `re` reads them, because aliasSub, grep and exclude pass them through.
//!
//! fancy-regex is near to it, look-around and back-references included. We translate the syntax of patterns where it
//! differs, and replace here. Work on one name is bounded; a pattern that needs more is rejected.

use std::{fmt::Write as _, sync::OnceLock};

use fancy_regex::{Captures, Regex, RegexBuilder};
use regex_automata::nfa::thompson;

/// Steps of backtracking on one name, by its length; beyond, the pattern is rejected. A step may read the rest of the name,
/// so that longer names get fewer: a match takes about a tenth of a second at most.
const BACKTRACK_LIMITS: [(usize, usize); 3] = [(256, 25_000), (2 << 10, 5_000), (MAX_REPLACED_BYTES, 100)];
/// Bytes of the longest pattern.
const MAX_BYTES: usize = 4 << 10;
/// Bytes that a part of a pattern may take once compiled; counts such as `{1000}` multiply. What a search keeps takes some times of it.
const MAX_COMPILED_BYTES: usize = 2 << 20;
/// How many times of that all parts of a pattern may take.
const ALL_PARTS: usize = 4;
/// Look-arounds and references of a pattern of unknown size, at most.
const MOST_UNKNOWN: usize = 8;
/// Bytes of the longest name after replacing. Replacements that double a name, inside of each other, end here.
const MAX_REPLACED_BYTES: usize = 64 << 10;

/// A compiled pattern.
pub struct PythonRegex {
    regex: Regex,
    translated: String,
    /// Bytes that it may take once compiled.
    bytes: usize,
    /// The same for longer names, made for the first of them.
    for_longer: [OnceLock<Regex>; 2],
}

impl PythonRegex {
    /// Compiles a pattern. The error describes the mistake in it.
    pub fn new(pattern: &str) -> Result<PythonRegex, String> {
        PythonRegex::within(pattern, MAX_COMPILED_BYTES)
    }

    /// As [`PythonRegex::new`], for one of several patterns that are in memory together. Each part of it may take so many bytes once
    /// compiled, 2 MiB at most.
    pub fn within(pattern: &str, bytes: usize) -> Result<PythonRegex, String> {
        if pattern.len() > MAX_BYTES {
            return Err(format!("is a pattern of more than {MAX_BYTES} bytes"));
        }
        let translated = translated(pattern);
        let bytes = bytes.min(MAX_COMPILED_BYTES);
        let mistake = |error: &dyn std::fmt::Display| {
            let shown: String = pattern.chars().take(200).collect();
            format!("must be a regular expression, got '{shown}': {error}")
        };
        check_parts(&translated, bytes).map_err(|error| mistake(&error))?;
        let regex = compiled(&translated, BACKTRACK_LIMITS[0].1, bytes).map_err(|error| mistake(&error))?;
        Ok(PythonRegex { regex, translated, bytes, for_longer: Default::default() })
    }

    /// The pattern with the limit of steps for a text.
    fn within_limit(&self, text: &str) -> &Regex {
        let length = BACKTRACK_LIMITS.iter().position(|(bytes, _)| text.len() <= *bytes);
        match length.unwrap_or(BACKTRACK_LIMITS.len() - 1).checked_sub(1) {
            None => &self.regex,
            Some(longer) => self.for_longer[longer].get_or_init(|| {
                compiled(&self.translated, BACKTRACK_LIMITS[longer + 1].1, self.bytes).expect("it was compiled before")
            }),
        }
    }

    /// The pattern in the syntax of the crate `regex`, if every name that it can be compared with there matches as here: it
    /// has no escape or group that the two may read in another way.
    pub fn plain(&self) -> Option<&str> {
        const SAME: &str = "dDwWsSbBAz.-/:;,_+*?|(){}[]^$\\";
        let mut rest = self.translated.as_str();
        while let Some(at) = rest.find('\\') {
            let escaped = rest.get(at + 1..)?;
            if !escaped.starts_with(|character| SAME.contains(character)) {
                return None;
            }
            rest = escaped.get(1..)?;
        }
        (!self.translated.contains("(?") && !self.translated.contains("\\b{")).then_some(&self.translated)
    }

    /// Whether it matches anywhere, as `re.search`.
    pub fn finds(&self, text: &str) -> Result<bool, String> {
        self.within_limit(text).is_match(text).map_err(too_hard)
    }

    /// Replaces every match, as `re.sub`. Each may take as long as [`BACKTRACK_LIMITS`] allow, so `stop` is called
    /// between them.
    pub(crate) fn replace(
        &self,
        text: &str,
        replacement: &Replacement,
        stop: &dyn Fn() -> bool,
    ) -> Result<String, String> {
        let mut out = String::new();
        let regex = self.within_limit(text);
        let (mut copied, mut from) = (0, 0);
        while from <= text.len() {
            let Some(captures) = regex.captures_from_pos(text, from).map_err(too_hard)? else { break };
            let Some(whole) = captures.get(0) else { break };
            out.push_str(text.get(copied..whole.start()).unwrap_or_default());
            replacement.expand(&captures, &mut out)?;
            if stop() {
                return Err("stops, because the request was cancelled".to_owned());
            }
            copied = whole.end();
            // As of Python 3.7 an empty match may follow directly on one that is not empty, but not on one
            // that is.
            from = whole.end();
            if whole.start() == whole.end() {
                from += text.get(from..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8);
            }
        }
        out.push_str(text.get(copied..).unwrap_or_default());
        Ok(out)
    }

    /// Reads a replacement for this pattern: `\1`, `\g<name>` and Python's escapes. The error describes the
    /// mistake in it.
    pub(crate) fn replacement(&self, template: &str) -> Result<Replacement, String> {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = template;
        while let Some((before, after)) = rest.split_once('\\') {
            literal.push_str(before);
            let Some(escape) = after.chars().next() else {
                return Err("must not end with a single backslash".to_owned());
            };
            rest = after.get(escape.len_utf8()..).unwrap_or_default();
            match escape {
                'g' => {
                    let named = rest.strip_prefix('<').and_then(|rest| rest.split_once('>'));
                    let (name, after) = named.ok_or("has a \\g without <name>")?;
                    rest = after;
                    self.push_group(name, &mut literal, &mut parts)?;
                }
                '0' => {
                    let digits = rest.bytes().take(2).take_while(|byte| (b'0'..b'8').contains(byte)).count();
                    let (octal, after) = rest.split_at(digits);
                    literal.push(char::from(u8::from_str_radix(octal, 8).unwrap_or(0)));
                    rest = after;
                }
                '1'..='9' => {
                    let more = rest.bytes().take_while(u8::is_ascii_digit).count();
                    let digits = after.get(..1 + more.min(2)).unwrap_or_default();
                    let octal = digits.len() == 3 && digits.bytes().all(|byte| byte < b'8');
                    if octal {
                        let code = u32::from_str_radix(digits, 8).unwrap_or(0);
                        let known =
                            u8::try_from(code).map_err(|_| format!("has the octal escape \\{digits} above 377"))?;
                        literal.push(char::from(known));
                        rest = rest.get(2..).unwrap_or_default();
                    } else {
                        let digits = digits.get(..digits.len().min(2)).unwrap_or_default();
                        rest = rest.get(digits.len() - 1..).unwrap_or_default();
                        self.push_group(digits, &mut literal, &mut parts)?;
                    }
                }
                'a' => literal.push('\x07'),
                'b' => literal.push('\x08'),
                'f' => literal.push('\x0c'),
                'n' => literal.push('\n'),
                'r' => literal.push('\r'),
                't' => literal.push('\t'),
                'v' => literal.push('\x0b'),
                '\\' => literal.push('\\'),
                letter if letter.is_ascii_alphabetic() => return Err(format!("has the unknown escape \\{letter}")),
                other => literal.extend(['\\', other]),
            }
        }
        literal.push_str(rest);
        parts.push(Part::Literal(literal));
        Ok(Replacement { parts })
    }

    fn push_group(&self, name: &str, literal: &mut String, parts: &mut Vec<Part>) -> Result<(), String> {
        let named = || self.regex.capture_names().position(|known| known == Some(name));
        let group = match name.parse() {
            Ok(number) => Some(number).filter(|number| *number < self.regex.captures_len()),
            Err(_) => named(),
        };
        let group = group.ok_or_else(|| format!("refers to the group {name}, which the pattern does not have"))?;
        parts.push(Part::Literal(std::mem::take(literal)));
        parts.push(Part::Group(group));
        Ok(())
    }
}

/// A pattern in fancy-regex's syntax, compiled.
fn compiled(translated: &str, steps: usize, bytes: usize) -> Result<Regex, Box<fancy_regex::Error>> {
    let mut builder = RegexBuilder::new(translated);
    Ok(builder.backtrack_limit(steps).delegate_size_limit(bytes).build()?)
}

/// Checks what the parts of a pattern take together. fancy-regex compiles a pattern as a whole, within its limit, unless it has
/// look-around, atomic groups, conditions or references to groups; then it compiles what is inside of each and between them by
/// itself, without a limit. Together they are about as large as the same pattern with plain groups in their place.
fn check_parts(translated: &str, bytes: usize) -> Result<(), String> {
    const GROUPS: [&str; 6] = ["(?<=", "(?<!", "(?=", "(?!", "(?>", "(?("];
    let (mut plain, mut breaks, mut rest) = (String::with_capacity(translated.len()), 0, translated);
    while let Some(next) = rest.chars().next() {
        if let Some(group) = GROUPS.iter().find(|group| rest.starts_with(**group)) {
            plain.push_str("(?:");
            rest = &rest[group.len()..];
            breaks += 1;
            continue;
        }
        let escaped = rest.get(1..).and_then(|rest| rest.chars().next()).filter(|_| next == '\\');
        match escaped {
            Some(of_group) if of_group.is_ascii_digit() || "kgGK".contains(of_group) => breaks += 1,
            Some(escaped) => plain.extend([next, escaped]),
            None => plain.push(next),
        }
        rest = &rest[next.len_utf8() + escaped.map_or(0, char::len_utf8)..];
    }
    if breaks == 0 {
        return Ok(());
    }
    let limit = ALL_PARTS * bytes;
    let config = thompson::Config::new().nfa_size_limit(Some(limit));
    match thompson::Compiler::new().configure(config).build(&plain) {
        Err(error) if error.size_limit().is_some() => {
            Err(format!("compiled, all of its parts exceed the size limit of {limit} bytes"))
        }
        // It has something else that the crate `regex` does not know: each part may take what the crate allows.
        Err(_) if MOST_UNKNOWN < breaks => {
            Err(format!("it has more than {MOST_UNKNOWN} look-arounds and references, and its size is not known"))
        }
        _ => Ok(()),
    }
}

fn too_hard(error: fancy_regex::Error) -> String {
    format!("is a pattern that takes too long on these names: {error}")
}

/// The text that replaces a match.
pub(crate) struct Replacement {
    parts: Vec<Part>,
}

enum Part {
    Literal(String),
    Group(usize),
}

impl Replacement {
    fn expand(&self, captures: &Captures, out: &mut String) -> Result<(), String> {
        for part in &self.parts {
            match part {
                Part::Literal(text) => out.push_str(text),
                Part::Group(group) => out.push_str(captures.get(*group).map_or("", |found| found.as_str())),
            }
            if out.len() > MAX_REPLACED_BYTES {
                return Err(format!("and its replacement make a name of more than {MAX_REPLACED_BYTES} bytes"));
            }
        }
        Ok(())
    }
}

/// A pattern in the syntax of fancy-regex. In Python's, `{` that does not begin a count is a plain character, `{,n}`
/// counts from zero, `\Z` is the end, `\<` and `\>` are plain, `\141` is a character by its octal number; within brackets, `[`
/// and doubled `&`, `~` and `-` are plain.
fn translated(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut characters = pattern.char_indices().peekable();
    // Where a bracket began: a `]` directly behind it, or behind its `^`, is plain.
    let mut class_from: Option<usize> = None;
    while let Some((at, character)) = characters.next() {
        let rest = pattern.get(at..).unwrap_or_default();
        if let Some((code, digits)) = octal_escape(rest, class_from.is_some()) {
            let _ = write!(out, "\\x{{{code:x}}}");
            characters.nth(digits - 1);
        } else if character == '\\' {
            match characters.next() {
                Some((_, 'Z')) if class_from.is_none() => out.push_str("\\z"),
                Some((_, bracket @ ('<' | '>'))) => out.push(bracket),
                Some((_, escaped)) => out.extend(['\\', escaped]),
                None => out.push('\\'),
            }
        } else if let Some(from) = class_from {
            let first = at == from || (at == from + 1 && pattern.get(from..at) == Some("^"));
            match character {
                ']' if !first => {
                    class_from = None;
                    out.push(']');
                }
                ']' | '[' => out.extend(['\\', character]),
                '&' | '~' => out.extend(['\\', character]),
                '-' if rest.starts_with("--") => out.push_str("\\-"),
                _ => out.push(character),
            }
        } else if character == '[' {
            class_from = Some(at + 1);
            out.push('[');
        } else if character == '{' {
            match count_of(rest) {
                Some(("", counts)) => {
                    out.push_str("{0");
                    out.push_str(counts);
                    for _ in 0..counts.chars().count() {
                        characters.next();
                    }
                }
                Some(_) => out.push('{'),
                None => out.push_str("\\{"),
            }
        } else if character == '}' {
            // Closes an open count, and is plain otherwise.
            let open = out.rfind('{').filter(|open| !out.get(..*open).unwrap_or_default().ends_with('\\'));
            let closes = open.is_some_and(|open| {
                let inside = out.get(open + 1..).unwrap_or_default();
                !inside.is_empty() && inside.bytes().all(|byte| byte.is_ascii_digit() || byte == b',')
            });
            out.push_str(if closes { "}" } else { "\\}" });
        } else {
            out.push(character);
        }
    }
    out
}

/// The character of an octal escape at the start of a text, and how many digits it has: three that are not a group's number, after
/// a zero up to two; in brackets one to three.
fn octal_escape(text: &str, in_class: bool) -> Option<(u32, usize)> {
    let digits = text.strip_prefix('\\')?;
    let count = digits.bytes().take(3).take_while(|byte| (b'0'..b'8').contains(byte)).count();
    let is_octal = count == 3 || 0 < count && (in_class || digits.starts_with('0'));
    let code = u32::from_str_radix(digits.get(..count)?, 8).ok().filter(|_| is_octal)?;
    (code <= 0o377).then_some((code, count))
}

/// `m` of a `{m,n}`, `{m}`, `{m,}` or `{,n}` at the start of a text, and the text between it and the brace.
fn count_of(text: &str) -> Option<(&str, &str)> {
    let (inside, _) = text.strip_prefix('{')?.split_once('}')?;
    let (from, to) = inside.split_once(',').map_or((inside, ""), |(from, to)| (from, to));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let counted = digits(from) && digits(to) && !inside.is_empty();
    counted.then(|| (from, inside.get(from.len()..).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sub(pattern: &str, template: &str, text: &str) -> String {
        let regex = PythonRegex::new(pattern).expect("a pattern");
        let replacement = regex.replacement(template).expect("a replacement");
        regex.replace(text, &replacement, &|| false).expect("a replacement")
    }

    #[test]
    fn a_pattern_of_many_parts_has_as_much_room_as_one() {
        let large = |times: usize| PythonRegex::new(&r"(?=\w{40}|h)".repeat(times));
        assert!(large(1).is_ok());
        assert!(large(330).is_err_and(|error| error.contains("size")));
        assert!(PythonRegex::new(&r"(?=a|\d)".repeat(20)).is_ok());
        assert!(PythonRegex::new(&r"(a)|\1\w{40}".repeat(100)).is_err());
        // Without any of these it is one part.
        assert!(PythonRegex::new(r"\w{10}\.\w{10}|\d{20}").is_ok());
        assert!(PythonRegex::within(r"\w{40}", 64 << 10).is_err());
        assert!(PythonRegex::within(r"^(web|db)\d+\.[a-z]*", 64 << 10).is_ok());
        assert!(PythonRegex::within(r"^(\w+)", 160 << 10).is_ok());
    }

    // Answers of CPython 3.11.
    #[test]
    fn replacing_is_pythons() {
        assert_eq!(sub("(^.*$)", r"\1 A", "a.b"), "a.b A");
        assert_eq!(sub(".*", "X", "abc"), "XX");
        assert_eq!(sub("x*", "-", "abxd"), "-a-b--d-");
        assert_eq!(sub(r"(\w+)\.(\w+)", r"\2.\1", "a.b.c.d"), "b.a.d.c");
        assert_eq!(sub("(?P<n>b)", r"[\g<n>]", "abc"), "a[b]c");
        assert_eq!(sub("(b)|(c)", r"<\1\2>", "abc"), "a<b><c>");
        assert_eq!(sub("a", r"\\\.\n\101", "a"), "\\\\.\nA");
        assert_eq!(sub("(?<!a)b", "X", "abcb"), "abcX");
        assert_eq!(sub(r"(a)\1", "X", "aaa"), "Xa");
        assert_eq!(sub("", "-", "é"), "-é-");
    }

    #[test]
    fn patterns_are_pythons() {
        let finds = |pattern: &str, text: &str| PythonRegex::new(pattern).unwrap().finds(text).unwrap();
        assert!(finds("a{", "a{"));
        assert!(finds("a{b}", "a{b}"));
        assert!(finds("^a{,2}$", "aa"));
        assert!(!finds("^a{,2}$", "aaa"));
        assert!(finds("^a{1,2}$", "aa"));
        assert!(finds(r"^a\Z", "a"));
        assert!(finds("[[]", "["));
        assert!(finds("[]]", "]"));
        assert!(finds("[^]]", "a"));
        assert!(finds("[a&&b]", "&"));
        assert!(finds("^(?!foo).*$", "bar"));
        assert!(!finds("^(?!foo).*$", "foo.bar"));
        assert!(finds(r"a\/b\-c\_d", "a/b-c_d"));
        for (pattern, text, expected) in [
            (r"^\141$", "a", true),
            (r"^\1411$", "a1", true),
            (r"^\0601$", "01", true),
            (r"^[\141-\143\12]+$", "abc\n", true),
            (r"^[\141-\143]+$", "d", false),
            (r"^\351$", "é", true),
            (r"^\0$", "\0", true),
            (r"^(a)\1$", "aa", true),
            (r"^\\141$", r"\141", true),
        ] {
            assert_eq!(finds(pattern, text), expected, "{pattern}");
        }
        for wrong in [r"\777", r"(a)\10", r"[\8]"] {
            assert!(PythonRegex::new(wrong).is_err(), "{wrong}");
        }
        assert!(PythonRegex::new("(").is_err());
        assert!(PythonRegex::new("*").is_err());
        let regex = PythonRegex::new("(a)").unwrap();
        assert!(regex.replacement(r"\2").is_err());
        assert!(regex.replacement(r"\z").is_err());
        assert!(regex.replacement("\\").is_err());
    }

    #[test]
    fn a_pattern_that_takes_forever_is_given_up() {
        let regex = PythonRegex::new(r"^(a+)+\1$").unwrap();
        assert!(regex.finds(&format!("{}b", "a".repeat(60))).is_err());
    }

    #[test]
    fn long_names_get_fewer_steps() {
        for bytes in [250, 2000, 60_000] {
            let regex = PythonRegex::new(r"(?=(.*)(.*)(.*)x)(.*)(.*)y$").unwrap();
            let name = "n".repeat(bytes);
            let begun = std::time::Instant::now();
            let answer = regex.finds(&name);
            println!("{bytes} bytes: {:?}, {answer:?}", begun.elapsed());
            assert!(answer.is_err() || answer == Ok(false));
            assert!(begun.elapsed().as_secs() < 5, "{bytes} bytes take {:?}", begun.elapsed());
        }
        // Patterns without look-around read a name once.
        assert_eq!(PythonRegex::new("n*$").unwrap().finds(&"n".repeat(60_000)), Ok(true));
    }

    #[test]
    fn names_and_patterns_do_not_grow_without_bound() {
        let regex = PythonRegex::new("(.*)").unwrap();
        let replacement = regex.replacement(&r"\1".repeat(10_000)).unwrap();
        assert!(regex.replace(&"a".repeat(4000), &replacement, &|| false).unwrap_err().contains("bytes"));
        assert!(PythonRegex::new("((a{1000}){1000}){1000}").is_err());
        assert!(PythonRegex::new(&"a".repeat(MAX_BYTES + 1)).is_err());
        let stopped = regex.replace("a", &regex.replacement("b").unwrap(), &|| true);
        assert!(stopped.is_err());
    }
}
