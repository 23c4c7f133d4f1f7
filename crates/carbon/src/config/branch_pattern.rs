//! Patterns of branches in go-carbon's `storage-quotas.conf`: components with `*`, `?`, `[a-z]` and `{a,b}`.

use std::fmt;

use regex::Regex;

/// A pattern of branches, such as `sys.app-[0-9].*`. Without components it is all names.
#[derive(Debug, Clone, Default)]
pub struct BranchPattern {
    source: String,
    components: Vec<Component>,
}

#[derive(Debug, Clone)]
enum Component {
    Any,
    Text(String),
    Regex(Regex),
}

impl BranchPattern {
    /// Reads a pattern; `/` is all names. The error says what is valid.
    pub(super) fn read(text: &str) -> Result<BranchPattern, String> {
        if text == "/" {
            return Ok(BranchPattern { source: "/".to_owned(), components: Vec::new() });
        }
        let source = text.trim_end_matches('.').to_owned();
        let components = components(&source)?.into_iter().map(component).collect::<Result<_, String>>()?;
        Ok(BranchPattern { source, components })
    }

    /// Components of the branches that it matches.
    pub fn depth(&self) -> usize {
        self.components.len()
    }

    /// Whether it matches a branch of [`BranchPattern::depth`] components.
    pub fn matches(&self, branch: &str) -> bool {
        self.components.is_empty()
            || branch.split('.').zip(&self.components).all(|(part, component)| match component {
                Component::Any => true,
                Component::Text(text) => text == part,
                Component::Regex(regex) => regex.is_match(part),
            })
    }
}

impl fmt::Display for BranchPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)
    }
}

impl PartialEq for BranchPattern {
    fn eq(&self, other: &BranchPattern) -> bool {
        self.source == other.source
    }
}

impl Eq for BranchPattern {}

const VALID: &str = "the pattern must be components with '*', '?', '[a-z]' and '{a,b}', such as sys.app-{web,db}.*, or '/' for all names";

/// The components of a pattern: dots in braces divide nothing, and are invalid there.
fn components(source: &str) -> Result<Vec<&str>, String> {
    let (mut components, mut begin, mut is_in_braces) = (Vec::new(), 0, false);
    for (at, c) in source.char_indices() {
        match c {
            '{' if !is_in_braces => is_in_braces = true,
            '}' if is_in_braces => is_in_braces = false,
            '{' | '}' | ';' => return Err(VALID.to_owned()),
            '.' if is_in_braces => return Err(format!("a dot in braces is not supported; {VALID}")),
            '.' => {
                components.push(&source[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    components.push(&source[begin..]);
    if is_in_braces || components.iter().any(|component| component.is_empty()) {
        return Err(VALID.to_owned());
    }
    Ok(components)
}

fn component(text: &str) -> Result<Component, String> {
    if text == "*" {
        return Ok(Component::Any);
    }
    if !text.contains(['*', '?', '[', ']', '{', '}']) {
        return Ok(Component::Text(text.to_owned()));
    }
    let mut expression = String::from("^(?s:");
    let (mut chars, mut is_in_braces) = (text.chars(), false);
    while let Some(c) = chars.next() {
        match c {
            '*' => expression.push_str(".*"),
            '?' => expression.push('.'),
            '{' => {
                expression.push_str("(?:");
                is_in_braces = true;
            }
            '}' => {
                expression.push(')');
                is_in_braces = false;
            }
            ',' if is_in_braces => expression.push('|'),
            '[' => {
                let (class, rest) = chars.as_str().split_once(']').ok_or(VALID)?;
                expression.push_str(&class_of(class)?);
                chars = rest.chars();
            }
            ']' => return Err(VALID.to_owned()),
            c => expression.push_str(&regex::escape(c.encode_utf8(&mut [0; 4]))),
        }
    }
    expression.push_str(")$");
    Regex::new(&expression).map(Component::Regex).map_err(|_| VALID.to_owned())
}

/// `a-z` or `^a-z` as a class of regular expressions: characters and spans of them.
fn class_of(class: &str) -> Result<String, String> {
    let (begin, members) = match class.strip_prefix(['^', '!']) {
        Some(members) => ("[^", members),
        None => ("[", class),
    };
    if members.is_empty() || members.contains(['[', '{', '}']) {
        return Err(VALID.to_owned());
    }
    let mut expression = begin.to_owned();
    let mut members = members.chars().peekable();
    while let Some(first) = members.next() {
        expression.push_str(&regex::escape(first.encode_utf8(&mut [0; 4])));
        // A dash at either end is itself; `regex::escape` has escaped it.
        if members.peek() == Some(&'-') && members.clone().nth(1).is_some() {
            members.next();
            let last = members.next().expect("looked at");
            expression.push('-');
            expression.push_str(&regex::escape(last.encode_utf8(&mut [0; 4])));
        }
    }
    expression.push(']');
    Ok(expression)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_branch_is_like_a_pattern() {
        let check = |pattern: &str, found: &[&str], missed: &[&str]| {
            let pattern = BranchPattern::read(pattern).unwrap();
            found.iter().for_each(|branch| assert!(pattern.matches(branch), "{pattern} {branch}"));
            missed.iter().for_each(|branch| assert!(!pattern.matches(branch), "{pattern} {branch}"));
        };
        check("*", &["web", "", "é"], &[]);
        check("w*", &["web", "w"], &["aw", "xweb"]);
        check("w?b", &["web", "wéb"], &["wb", "weeb"]);
        check("*b", &["web", "b"], &["bw"]);
        check("a*X*c", &["aXbXc", "aXc"], &["abc", "aXcd"]);
        check("a.*.c", &["a.b.c"], &["a.b.d", "b.b.c"]);
        check("web[0-9a]", &["web7", "weba"], &["web", "webb", "web77"]);
        check("web[^0-9]", &["webx"], &["web7"]);
        check("web[!0-9-]x", &["webax"], &["web7x", "web-x"]);
        check("[-a]", &["-", "a"], &["b"]);
        check("{web,db*}-x", &["web-x", "db-x", "db7-x"], &["web", "app-x", "webdb-x"]);
        check("a+b", &["a+b"], &["aab"]);
        check("{a,b}.{c,[0-9]}", &["a.c", "b.7"], &["c.c", "a.d"]);
        check("/", &[""], &[]);
    }

    #[test]
    fn what_is_not_a_pattern_is_an_error() {
        for pattern in ["", "a..b", "a.{b.c,d}", "{a", "a}", "{a,{b}}", "[a", "a]", "a[]", "a;b=c", "[z-a]", "a.[.]"] {
            let error = BranchPattern::read(pattern).expect_err(pattern);
            assert!(error.contains("the pattern must be components"), "{pattern}: {error}");
        }
    }
}
