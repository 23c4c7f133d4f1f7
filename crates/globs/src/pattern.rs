//! From a pattern, a glob over whole names as graphite-web 1.1.10 reads it, to an automaton over bytes.
//!
//! 1. The pattern is cut at its dots. Empty components are dropped, as from names.
//! 2. In each component `{a,b}` groups are multiplied out, the innermost first, before anything else has a
//!    meaning: `[{a,b]}` is `[a` or `[b]`. A brace without its partner is itself.
//! 3. The results are matched as Python's `fnmatch` does: `*`, `?`, `[abc]`, `[a-z]`, `[!x]`; a `[` without its
//!    partner is itself; nothing matches a dot; case counts; `?` is a character, not a byte.
//! 4. A component that is exactly `**` stands for any number of components, none included; as the last one,
//!    for at least one. `b**c` is `b*c`.
//!
//! graphite-web drops every backslash. Here, as in BigGraphite, a backslash makes the next character
//! itself: the same for the characters that need one in a render target, and the way to name a metric
//! that has a star in it.

use globset::GlobBuilder;
use metric::MAX_COMPONENTS;
use regex_automata::{hybrid::dfa::DFA, nfa::thompson, util::start};

use crate::error::GlobError;

/// Bytes of a pattern, at most. Grafana sends long lists in braces; 64 KiB is thousands of host names.
const MAX_PATTERN_BYTES: usize = 64 << 10;

/// Alternatives into which the braces of a pattern may multiply, at most, all components together.
const MAX_ALTERNATIVES: usize = 10_000;

/// Characters of those alternatives and of what they were made from, at most. Eight bytes are kept for each, and some
/// dozens of bytes of regular expression are made of it.
const MAX_VARIANT_CHARACTERS: usize = 512 << 10;

/// Memory for the automaton's program and for its states, in bytes. A pattern that needs more is rejected.
const MAX_PROGRAM_BYTES: usize = 32 << 20;
const MAX_STATE_BYTES: usize = 32 << 20;

/// Whether `pattern` is more than the name of a single metric.
pub fn is_pattern(pattern: &str) -> bool {
    let mut quoted = false;
    for byte in pattern.bytes() {
        match byte {
            _ if quoted => quoted = false,
            b'\\' => quoted = true,
            b'*' | b'?' | b'[' | b'{' => return true,
            _ => {}
        }
    }
    false
}

/// The name that a pattern without glob characters stands for: without backslashes and empty components.
pub fn plain_name(pattern: &str) -> String {
    let text: String = glyphs(pattern).into_iter().map(|glyph| glyph.char).collect();
    text.split('.').filter(|component| !component.is_empty()).collect::<Vec<_>>().join(".")
}

/// The automaton of a pattern, or `None` when nothing can match.
///
/// # Errors
/// The pattern is too long, too deep or too complex, or one of its components is not a glob.
pub fn automaton(pattern: &str) -> Result<Option<DFA>, GlobError> {
    let Some(regex) = regex(pattern)? else { return Ok(None) };
    let program =
        thompson::Config::new().nfa_size_limit(Some(MAX_PROGRAM_BYTES)).which_captures(thompson::WhichCaptures::None);
    let nfa = thompson::Compiler::new().configure(program).build(&regex).map_err(|_| GlobError::TooComplex)?;
    // A walk keeps states while it looks for others, so the cache must never be cleared under it.
    let states = DFA::config().cache_capacity(MAX_STATE_BYTES).minimum_cache_clear_count(Some(0));
    let dfa = DFA::builder().configure(states).build_from_nfa(nfa).map_err(|_| GlobError::TooComplex)?;
    Ok(Some(dfa))
}

/// An automaton starts at the first byte of a name and must match from there.
pub fn start() -> start::Config {
    start::Config::new().anchored(regex_automata::Anchored::Yes)
}

/// A character, and whether a backslash before it makes it literal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Glyph {
    pub(crate) char: char,
    pub(crate) quoted: bool,
}

impl Glyph {
    pub(crate) fn is(self, char: char) -> bool {
        self.char == char && !self.quoted
    }
}

fn glyphs(pattern: &str) -> Vec<Glyph> {
    let mut glyphs = Vec::with_capacity(pattern.len());
    let mut quoted = false;
    for char in pattern.chars() {
        if char == '\\' && !quoted {
            quoted = true;
            continue;
        }
        glyphs.push(Glyph { char, quoted });
        quoted = false;
    }
    glyphs
}

/// The components of a pattern, each multiplied out; empty when there is none.
pub(crate) fn components(pattern: &str) -> Result<Vec<Vec<Vec<Glyph>>>, GlobError> {
    if pattern.len() > MAX_PATTERN_BYTES {
        return Err(GlobError::TooLong { bytes: pattern.len(), limit: MAX_PATTERN_BYTES });
    }
    let glyphs = glyphs(pattern);
    // A dot separates whether or not it is quoted: no name has one inside a component.
    let components: Vec<&[Glyph]> = glyphs.split(|glyph| glyph.char == '.').filter(|c| !c.is_empty()).collect();
    if components.len() > MAX_COMPONENTS {
        return Err(GlobError::TooManyComponents { given: components.len(), limit: MAX_COMPONENTS });
    }
    let mut budget = Budget { alternatives: MAX_ALTERNATIVES, characters: MAX_VARIANT_CHARACTERS };
    components.into_iter().map(|component| variants(component, &mut budget)).collect()
}

/// What the braces of the rest of a pattern may still multiply to.
struct Budget {
    alternatives: usize,
    characters: usize,
}

impl Budget {
    /// Spends an alternative before it is made.
    fn spend(&mut self, characters: usize) -> Result<(), GlobError> {
        match (self.alternatives.checked_sub(1), self.characters.checked_sub(characters)) {
            (Some(alternatives), Some(characters)) => {
                *self = Budget { alternatives, characters };
                Ok(())
            }
            _ => Err(GlobError::TooManyAlternatives { limit: MAX_ALTERNATIVES }),
        }
    }
}

/// Whether a variant of a component stands for any number of components.
pub(crate) fn is_any_depth(variant: &[Glyph]) -> bool {
    variant.len() == 2 && variant.iter().all(|glyph| glyph.is('*'))
}

/// A regular expression over characters for the whole of a name, or `None` when nothing can match.
fn regex(pattern: &str) -> Result<Option<String>, GlobError> {
    let components = components(pattern)?;
    if components.is_empty() {
        return Ok(None);
    }
    let mut regex = String::from("^");
    for (i, component) in components.iter().enumerate() {
        let mut any_depth = false;
        let mut nothing = false;
        let mut alternatives = Vec::new();
        for variant in component {
            if variant.is_empty() {
                nothing = true;
            } else if is_any_depth(variant) {
                any_depth = true;
            } else if let Some(alternative) = component_regex(pattern, variant)? {
                alternatives.push(alternative);
            }
        }
        let is_last = i + 1 == components.len();
        // An empty alternative leaves its component out. As the last one it would be a name that ends in a dot.
        let may_be_left_out = nothing && !is_last;
        if alternatives.is_empty() && !any_depth && !may_be_left_out {
            return Ok(None);
        }
        let end = if is_last { "" } else { r"\." };
        let depth = if is_last { r"(?:[^.]+\.)*[^.]+" } else { r"(?:[^.]+\.)*" };
        regex.push_str("(?:");
        if any_depth {
            regex.push_str(depth);
        }
        if !alternatives.is_empty() {
            regex.push_str(if any_depth { "|(?:" } else { "(?:" });
            regex.push_str(&alternatives.join("|"));
            regex.push(')');
            regex.push_str(end);
        }
        regex.push(')');
        if may_be_left_out {
            regex.push('?');
        }
    }
    regex.push('$');
    Ok(Some(regex))
}

/// Multiplies out the braces of a component: sorted, each once.
fn variants(component: &[Glyph], budget: &mut Budget) -> Result<Vec<Vec<Glyph>>, GlobError> {
    budget.spend(component.len())?;
    let mut open = vec![component.to_vec()];
    let mut done = Vec::new();
    while let Some(text) = open.pop() {
        let Some((start, close)) = innermost_group(&text) else {
            done.push(text);
            continue;
        };
        // This text is an alternative no more, but those that are made of it.
        budget.alternatives += 1;
        for choice in text[start + 1..close].split(|glyph| glyph.is(',')) {
            budget.spend(start + choice.len() + text.len() - close)?;
            open.push([&text[..start], choice, &text[close + 1..]].concat());
        }
    }
    done.sort_unstable();
    done.dedup();
    Ok(done)
}

/// The first closing brace that has an opening one before it, with the last of those.
fn innermost_group(text: &[Glyph]) -> Option<(usize, usize)> {
    let mut start = None;
    for (i, glyph) in text.iter().enumerate() {
        if glyph.is('{') {
            start = Some(i);
        } else if glyph.is('}')
            && let Some(start) = start
        {
            return Some((start, i));
        }
    }
    None
}

/// The regular expression of one variant of a component, or `None` when nothing can match.
///
/// globset parses the glob. It differs from fnmatch in details, so the variant is first rewritten such that
/// both read it alike.
fn component_regex(pattern: &str, variant: &[Glyph]) -> Result<Option<String>, GlobError> {
    let Some(glob) = as_globset_reads_it(variant) else { return Ok(None) };
    let invalid =
        |error: globset::Error| GlobError::Invalid { pattern: pattern.to_owned(), reason: error.kind().to_string() };
    let glob = GlobBuilder::new(&glob).literal_separator(true).backslash_escape(true).build().map_err(invalid)?;
    Ok(Some(over_characters(glob.regex())))
}

/// Rewrites fnmatch's dialect: stars in a row become one, classes are spelled out without a dot in
/// them, everything else is escaped. `None` when a class has nothing in it.
fn as_globset_reads_it(variant: &[Glyph]) -> Option<String> {
    let mut glob = String::new();
    let mut i = 0;
    // Nothing closes a class after the last bracket: to look for one each time would take the square.
    let last_bracket = variant.iter().rposition(|glyph| glyph.is(']')).unwrap_or(0);
    while i < variant.len() {
        let glyph = variant[i];
        i += 1;
        if glyph.is('*') {
            while i < variant.len() && variant[i].is('*') {
                i += 1;
            }
            glob.push('*');
        } else if glyph.is('?') {
            glob.push('?');
        } else if glyph.is('[') {
            match class_end(&variant[..=last_bracket.max(i - 1)], i) {
                Some(end) => {
                    push_class(&mut glob, &variant[i..end])?;
                    i = end + 1;
                }
                None => push_literal(&mut glob, '['),
            }
        } else {
            push_literal(&mut glob, glyph.char);
        }
    }
    Some(glob)
}

fn push_literal(glob: &mut String, char: char) {
    if char.is_ascii_punctuation() {
        glob.push('\\');
    }
    glob.push(char);
}

/// Where the class ends that begins at `start`, after its bracket. A closing bracket in the first place,
/// or after the exclamation mark, is a member.
fn class_end(variant: &[Glyph], start: usize) -> Option<usize> {
    let mut end = start;
    if variant.get(end).is_some_and(|glyph| glyph.is('!')) {
        end += 1;
    }
    if variant.get(end).is_some_and(|glyph| glyph.char == ']') {
        end += 1;
    }
    variant[end.min(variant.len())..].iter().position(|glyph| glyph.is(']')).map(|at| end + at)
}

/// Writes a class for globset, which never matches a dot. `None` when nothing is in it.
fn push_class(glob: &mut String, members: &[Glyph]) -> Option<()> {
    let negated = members.first().is_some_and(|glyph| glyph.is('!'));
    let mut ranges = class_ranges(&members[usize::from(negated)..]);
    if negated {
        if ranges.is_empty() {
            glob.push('?');
            return Some(());
        }
        ranges.push(('.', '.'));
    } else {
        ranges = without(ranges, '.');
        if ranges.is_empty() {
            return None;
        }
    }
    // globset knows no escapes in a class. What has a meaning by its place goes where it has none: a bracket
    // first, a hyphen last.
    let has = |char: char| ranges.iter().any(|&(first, last)| first <= char && char <= last);
    let (bracket, hyphen) = (has(']'), has('-'));
    let ranges = without(without(ranges, ']'), '-');
    glob.push('[');
    if negated {
        glob.push('!');
    }
    if bracket {
        glob.push(']');
    } else if ranges.first().is_some_and(|&(first, _)| matches!(first, '!' | '^')) && !negated {
        // A control character, which no name has, keeps these from meaning "not".
        glob.push('\u{1}');
    }
    for (first, last) in ranges {
        glob.push(first);
        if first != last {
            glob.push('-');
            glob.push(last);
        }
    }
    if hyphen {
        glob.push('-');
    }
    glob.push(']');
    Some(())
}

/// The ranges of a class as Python reads them: a hyphen that is first or last is a member, and a range that
/// runs backwards is empty.
fn class_ranges(members: &[Glyph]) -> Vec<(char, char)> {
    let mut ranges = Vec::new();
    let mut i = 0;
    while i < members.len() {
        let first = members[i].char;
        let is_range = i + 2 < members.len() && members[i + 1].is('-');
        let last = if is_range { members[i + 2].char } else { first };
        if first <= last {
            ranges.push((first, last));
        }
        i += if is_range { 3 } else { 1 };
    }
    ranges
}

/// Ranges with an ASCII character taken out of them.
fn without(ranges: Vec<(char, char)>, out: char) -> Vec<(char, char)> {
    let before = char::from(out as u8 - 1);
    let after = char::from(out as u8 + 1);
    let split = |(first, last): (char, char)| {
        let holds = first <= out && out <= last;
        let left = (first, if holds { before } else { last });
        let right = holds.then_some((after, last));
        [Some(left), right].into_iter().flatten().filter(|(first, last)| first <= last)
    };
    ranges.into_iter().flat_map(split).collect()
}

/// globset writes for bytes, with slashes between components. We match characters, with dots.
fn over_characters(regex: &str) -> String {
    let regex = regex.strip_prefix("(?-u)").unwrap_or(regex);
    let regex = regex.strip_prefix('^').unwrap_or(regex);
    let regex = regex.strip_suffix('$').unwrap_or(regex);
    // Only a star or a question mark comes out as this: a class that is negated has a dot in it as well.
    let regex = regex.replace("[^/]", "[^.]");
    // A character beyond ASCII comes as its bytes, each `\xhh`.
    let mut text = String::with_capacity(regex.len());
    let mut bytes = Vec::new();
    let mut rest = regex.as_str();
    while let Some(char) = rest.chars().next() {
        let hex = rest.strip_prefix(r"\x").and_then(|hex| u8::from_str_radix(hex.get(..2)?, 16).ok());
        if let Some(byte) = hex {
            bytes.push(byte);
            rest = &rest[4..];
            if let Ok(char) = std::str::from_utf8(&bytes) {
                text.push_str(char);
                bytes.clear();
            }
            continue;
        }
        // An escape is two characters, so that `\\x` is not taken for one of the above.
        let taken = match char {
            '\\' => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            _ => char.len_utf8(),
        };
        text.push_str(&rest[..taken]);
        rest = &rest[taken..];
    }
    text
}
