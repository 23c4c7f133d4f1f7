//! Metric names: which ones are accepted, and their canonical form.

use std::borrow::Cow;

/// The most components of the dotted part of a name. BigGraphite's tables have this many columns.
pub const MAX_COMPONENTS: usize = 64;

/// The most bytes of a name: a path of a file system may be as long.
pub const MAX_NAME_BYTES: usize = 4095;

/// Why a name is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum NameError {
    /// Nothing is left once empty components are dropped.
    #[error("the metric name is empty")]
    Empty,
    /// More than [`MAX_NAME_BYTES`].
    #[error("the metric name is longer than {MAX_NAME_BYTES} bytes")]
    TooLong,
    /// More than [`MAX_COMPONENTS`].
    #[error("the metric name has more than {MAX_COMPONENTS} components")]
    TooManyComponents,
    /// Below space, or DEL.
    #[error("the metric name has a control character")]
    ControlCharacter,
    /// Not UTF-8.
    #[error("the metric name is not UTF-8")]
    NotUtf8,
}

/// Whether a canonical name carries tags. Tagged metrics are found by their tags, not by globs.
pub fn is_tagged(name: &str) -> bool {
    name.contains(';')
}

/// The canonical form of a name: empty components dropped (as BigGraphite does on both sides), leading `~` too, tags
/// in carbon's canonical order. Borrowed when the name already has that form, which is nearly always.
///
/// A name that cannot be parsed is kept as it is, as carbon does. The canonical form of a canonical name is that name.
pub fn canonical_name(raw: &[u8]) -> Result<Cow<'_, str>, NameError> {
    let mut name = nearly_canonical_name(raw)?;
    // A dropped character can uncover the next to drop: the tags of `a{b="c"}.`, the `~` of `~.~a`.
    // Every pass but the last shortens the name.
    while let Cow::Owned(changed) = &name {
        let again = nearly_canonical_name(changed.as_bytes())?;
        if again == *changed {
            break;
        }
        name = Cow::Owned(again.into_owned());
    }
    Ok(name)
}

/// One pass of [`canonical_name`].
fn nearly_canonical_name(raw: &[u8]) -> Result<Cow<'_, str>, NameError> {
    if raw.len() > MAX_NAME_BYTES {
        return Err(NameError::TooLong);
    }
    let text = std::str::from_utf8(raw).map_err(|_| NameError::NotUtf8)?;
    if raw.iter().any(|&byte| byte < b' ' || byte == 0x7f) {
        return Err(NameError::ControlCharacter);
    }
    let name = if has_canonical_tags(text) { None } else { parsed(text) };
    let name = name.map_or(Cow::Borrowed(text), Cow::Owned);
    let dotted_len = name.find(';').unwrap_or(name.len());
    let dotted = &name[..dotted_len];
    let mut components = 0;
    let mut has_empty = false;
    for component in dotted.split('.') {
        has_empty |= component.is_empty();
        components += usize::from(!component.is_empty());
    }
    if components == 0 {
        return Err(NameError::Empty);
    }
    if components > MAX_COMPONENTS {
        return Err(NameError::TooManyComponents);
    }
    if !has_empty {
        return Ok(name);
    }
    let mut kept = dotted.split('.').filter(|c| !c.is_empty()).collect::<Vec<_>>().join(".");
    kept.push_str(&name[dotted_len..]);
    Ok(Cow::Owned(kept))
}

/// The canonical form of a name that has tags or begins with `~`, or `None` for any other and where it does not parse.
///
/// The rules are carbon's `TaggedSeries.parse`: a name that ends in `"}` is OpenMetrics, else tags follow
/// the first `;`. A tag is at least one character without `;!^=`; a value at least one, without `;`,
/// and does not begin with `~`. The last of equal tags wins; leading `~` are taken from the name.
fn parsed(text: &str) -> Option<String> {
    let (name, tags) = match text.split_once('{') {
        Some((name, rest)) if text.ends_with("\"}") => (name, open_metrics_tags(rest.strip_suffix('}')?)?),
        _ => {
            let Some((name, rest)) = text.split_once(';') else {
                return text.strip_prefix('~').map(without_tildes).filter(|name| !name.is_empty()).map(str::to_owned);
            };
            let tags = rest.split(';').map(|tag| tag.split_once('=').map(|(t, v)| (t, Cow::Borrowed(v))));
            (name, tags.collect::<Option<Vec<_>>>()?)
        }
    };
    let name = without_tildes(name);
    if name.is_empty() {
        return None;
    }
    let mut kept: Vec<(&str, Cow<'_, str>)> = Vec::new();
    for (tag, value) in tags {
        if !is_good_tag(tag) || !is_good_value(&value) {
            return None;
        }
        match kept.iter_mut().find(|(known, _)| *known == tag) {
            Some(entry) => entry.1 = value,
            None => kept.push((tag, value)),
        }
    }
    // Carbon sorts the whole ";tag=value" texts, so that "a-x" comes before "a".
    let mut parts: Vec<String> = kept.iter().map(|(tag, value)| format!(";{tag}={value}")).collect();
    parts.sort_unstable();
    Some(format!("{name}{}", parts.concat()))
}

fn without_tildes(name: &str) -> &str {
    name.trim_start_matches('~')
}

/// Whether [`parsed`] would return the same text: it has tags, which are good, in order, each once. Then it takes no memory.
fn has_canonical_tags(text: &str) -> bool {
    let Some((name, tags)) = text.split_once(';') else { return false };
    // The braces of OpenMetrics may be anywhere.
    if name.is_empty() || name.starts_with('~') || text.ends_with("\"}") {
        return false;
    }
    let (mut last, mut last_tag) = ("", "");
    for part in tags.split(';') {
        let Some((tag, value)) = part.split_once('=') else { return false };
        if part <= last || tag == last_tag || !is_good_tag(tag) || !is_good_value(value) {
            return false;
        }
        (last, last_tag) = (part, tag);
    }
    true
}

fn is_good_tag(tag: &str) -> bool {
    !tag.is_empty() && !tag.contains([';', '!', '^', '='])
}

fn is_good_value(value: &str) -> bool {
    !value.is_empty() && !value.contains(';') && !value.starts_with('~')
}

/// `a="b",c="d\"e"` as pairs, or `None` when it has another form. As in carbon, a backslash stands before a quote or a
/// backslash, there is one `{` in the whole name, and the comma may follow a colon.
fn open_metrics_tags(mut rest: &str) -> Option<Vec<(&str, Cow<'_, str>)>> {
    if rest.contains('{') {
        return None;
    }
    let mut tags = Vec::new();
    loop {
        let (tag, after) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next()? {
                (_, '\\') => value.push(chars.next().map(|(_, next)| next).filter(|next| matches!(next, '"' | '\\'))?),
                (i, '"') => break i,
                (_, c) => value.push(c),
            }
        };
        tags.push((tag, Cow::Owned(value)));
        rest = &after[end + 1..];
        if rest.is_empty() {
            return Some(tags);
        }
        rest = rest.strip_prefix(":,").or_else(|| rest.strip_prefix(','))?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(raw: &str, canonical: &str) {
        assert_eq!(canonical_name(raw.as_bytes()).as_deref(), Ok(canonical));
    }

    #[test]
    fn empty_components_are_dropped() {
        check("a.b", "a.b");
        check(".a..b.", "a.b");
        check("a..b;t=v..w", "a.b;t=v..w");
        assert_eq!(canonical_name(b"..."), Err(NameError::Empty));
        assert_eq!(canonical_name(b""), Err(NameError::Empty));
    }

    #[test]
    fn tags_are_sorted_as_carbon_sorts_them() {
        check("n;b=2;a=1", "n;a=1;b=2");
        check("n;a=1;a-x=2", "n;a-x=2;a=1");
        check("n;a=1;a=2", "n;a=2");
        check("~~n;a=1", "n;a=1");
        check(r#"n{b="2",a="x"}"#, "n;a=x;b=2");
    }

    #[test]
    fn tags_that_do_not_parse_stay_as_they_are() {
        check("n;b", "n;b");
        check("n;b=~x;a=1", "n;b=~x;a=1");
        check("n{b=2}", "n{b=2}");
    }

    #[test]
    fn tildes_before_a_name_are_dropped_with_and_without_tags() {
        check("~a.b", "a.b");
        check("~~x", "x");
        check("a.~b~", "a.~b~");
        check("~a{b=c}", "a{b=c}");
        check("~", "~");
        check("~~", "~~");
        check("~a;b", "~a;b");
        check("~;a=b", "~;a=b");
        check(r#"~{a="b"}"#, r#"~{a="b"}"#);
        check("~.a", "a");
        check(".~a", "a");
        check("~.~a..b", "a.b");
        assert_eq!(canonical_name(b"~."), Err(NameError::Empty));
        assert!(matches!(canonical_name(b"~a"), Ok(Cow::Owned(_))), "a borrowed name is the one that was sent");
    }

    #[test]
    fn open_metrics_names_are_parsed_as_carbon_parses_them() {
        check(r#"d{p="a\"b"}"#, r#"d;p=a"b"#);
        check(r#"d{p="C:\\a"}"#, r"d;p=C:\a");
        check(r#"d{p="\\\"\\"}"#, r#"d;p=\"\"#);
        check(r#"d{p="a":,q="b"}"#, "d;p=a;q=b");
        check(r#"d{p="b}"}"#, "d;p=b}");
        // What carbon cannot parse keeps its name, so that two series stay two.
        for name in [
            r#"d{p="C:\a"}"#,
            r#"d{p="a\nb"}"#,
            r#"~d{p="a\nb"}"#,
            r#"d{p="\"}"#,
            r#"d{p="\é"}"#,
            r#"d{p=""}"#,
            r#"d{p="a",}"#,
            r#"d{p="{b"}"#,
            r#"d{q{p="b"}"#,
            r#"d{p="a":q="b"}"#,
        ] {
            check(name, name);
        }
    }

    #[test]
    fn a_canonical_name_is_its_own_canonical_name() {
        check(r#"a{b="c"}."#, "a;b=c");
        check("~.~a;b=c", "a;b=c");
        check("~.~.~a;b=c", "a;b=c");
    }

    #[test]
    fn tags_in_canonical_form_are_borrowed_and_others_are_not() {
        for name in ["n;a=1", "n;a=1;b=2", "n;a-x=2;a=1", "n.m;a=x=y;b={}", "n{;a=1", "é;ä=ö"] {
            assert!(matches!(canonical_name(name.as_bytes()), Ok(Cow::Borrowed(same)) if same == name), "{name}");
        }
        // Every text of a few letters is what `parsed` makes of it, or has no tags that parse.
        let letters = ["n", ";", "=", "a", "b", "~", "!", "\"}", "{", "."];
        let mut texts = vec![String::new()];
        for _ in 0..5 {
            texts = texts.iter().flat_map(|text| letters.map(|letter| format!("{text}{letter}"))).collect();
            for text in texts.iter().map(|text| format!("n;a=b;{text}")).chain(texts.iter().cloned()) {
                if has_canonical_tags(&text) {
                    assert_eq!(parsed(&text).as_ref(), Some(&text));
                } else if !text.ends_with("\"}") {
                    assert_ne!(parsed(&text).as_ref(), Some(&text));
                }
            }
            texts.retain(|text| !text.starts_with([';', '=', '!', '"']));
        }
    }

    #[test]
    fn names_that_would_break_a_table_are_rejected() {
        assert_eq!(canonical_name(b"a\x00b"), Err(NameError::ControlCharacter));
        assert_eq!(canonical_name(b"a\x7fb"), Err(NameError::ControlCharacter));
        assert_eq!(canonical_name(b"a\xffb"), Err(NameError::NotUtf8));
        assert_eq!(canonical_name(&[b'a'; 4096]), Err(NameError::TooLong));
        let deep = |n: usize| vec!["a"; n].join(".");
        assert_eq!(canonical_name(deep(65).as_bytes()), Err(NameError::TooManyComponents));
        check(&deep(64), &deep(64));
        check("é.b", "é.b");
    }
}
