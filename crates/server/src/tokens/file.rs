//! The file of tokens: TOML, a section a token.

use std::{collections::HashMap, fmt::Write, sync::Arc};

use api::{NameOwners, NameScope, Scope, SenderLimits, Viewer, WriteScope};
use sha2::{Digest, Sha256};
use toml::{Table, Value};

use crate::settings::{Bytes, Kind};

/// Tokens of a file.
const MAX_TOKENS: usize = 10_000;

/// Prefixes, and tags, of a token.
const MAX_NAMES: usize = 100;

/// Keys of a section.
const KEYS: [&str; 10] = [
    "hash",
    "scopes",
    "prefixes",
    "tags",
    "points_per_second",
    "creations_per_minute",
    "max_metrics",
    "queries",
    "query_memory",
    "events_per_minute",
];

/// The least memory for the queries of a token: a small answer fits into it.
const LEAST_MEMORY: u64 = 1 << 20;

/// A token or a user of a proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// `sha256:` and 64 hexadecimal digits; users of a proxy have none.
    pub hash: Option<String>,
    /// Who sends it.
    pub viewer: Arc<Viewer>,
}

/// The tokens of a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TokenFile {
    /// In the order of names.
    pub entries: Vec<Entry>,
    by_hash: HashMap<String, Arc<Viewer>>,
    // Users of a proxy alone: a user who chooses the name of a token at the proxy does not get its rights.
    users: HashMap<String, Arc<Viewer>>,
}

/// The hash of a token, as the file has it.
pub fn hash(token: &str) -> String {
    let mut text = "sha256:".to_owned();
    Sha256::digest(token).iter().for_each(|byte| write!(text, "{byte:02x}").expect("a string takes all"));
    text
}

impl TokenFile {
    /// Reads a file.
    ///
    /// # Errors
    /// Everything that is wrong, a line each.
    pub fn read(text: &str) -> Result<TokenFile, String> {
        TokenFile::read_among(text, &[], &TokenFile::default())
    }

    /// Reads a file next to listeners with prefixes. Tokens that see the same names as `before` share them with it.
    ///
    /// # Errors
    /// As [`TokenFile::read`].
    pub fn read_among(text: &str, listeners: &[String], before: &TokenFile) -> Result<TokenFile, String> {
        let table: Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
        if table.len() > MAX_TOKENS {
            return Err(format!("there are {} tokens; at most {MAX_TOKENS} are allowed", table.len()));
        }
        let (mut file, mut problems) = (TokenFile::default(), Vec::new());
        for (name, value) in &table {
            match entry(name, value) {
                Ok(entry) => file.entries.push(entry),
                Err(problem) => problems.push(format!("[{name}]: {problem}")),
            }
        }
        file.divide_names(listeners, before);
        for Entry { hash, viewer } in &file.entries {
            let Some(hash) = hash else {
                file.users.insert(viewer.name.clone(), viewer.clone());
                continue;
            };
            if let Some(other) = file.by_hash.insert(hash.clone(), viewer.clone()) {
                problems.push(format!("[{}]: has the hash of [{}]", viewer.name, other.name));
            }
        }
        if problems.is_empty() { Ok(file) } else { Err(problems.join("\n  ")) }
    }

    /// Says which names each token may write.
    fn divide_names(&mut self, listeners: &[String], before: &TokenFile) {
        let known: HashMap<&str, &Arc<NameScope>> = before
            .entries
            .iter()
            .filter_map(|Entry { viewer, .. }| Some((viewer.name.as_str(), viewer.names.as_ref()?)))
            .collect();
        for Entry { viewer, .. } in &mut self.entries {
            let same = known.get(viewer.name.as_str()).filter(|&&known| Some(known) == viewer.names.as_ref());
            if let Some(&same) = same {
                Arc::make_mut(viewer).names = Some(same.clone());
            }
        }
        let viewers = || self.entries.iter().map(|entry| &entry.viewer);
        let reading = viewers().filter_map(|viewer| viewer.names.as_deref());
        let writing = viewers().filter(|viewer| viewer.scopes.contains(&Scope::Write));
        let writing = writing.filter_map(|viewer| viewer.names.as_ref());
        let owners = Arc::new(NameOwners::new(listeners.iter().map(String::as_str), reading, writing));
        for Entry { viewer, .. } in &mut self.entries {
            let writes = viewer.names.clone().map(|own| Arc::new(WriteScope::new(own, owners.clone())));
            Arc::make_mut(viewer).writes = writes;
        }
    }

    /// The sender of a token.
    pub fn of_token(&self, token: &str) -> Option<Arc<Viewer>> {
        self.by_hash.get(&hash(token)).cloned()
    }

    /// A user of a proxy.
    pub fn of_user(&self, user: &str) -> Option<Arc<Viewer>> {
        self.users.get(user).cloned()
    }

    /// Whether there is a token or a user of this name.
    pub fn has(&self, name: &str) -> bool {
        self.entries.iter().any(|entry| entry.viewer.name == name)
    }
}

/// Whether a text can be the name of a section.
fn is_name(name: &str) -> bool {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
    (1..=128).contains(&name.len()) && name.bytes().all(is_valid)
}

fn entry(name: &str, value: &Value) -> Result<Entry, String> {
    let table = value.as_table().ok_or("must be a section with keys")?;
    if !is_name(name) {
        return Err("a name has 1 to 128 letters, digits, '-', '_', '.' and '@'".to_owned());
    }
    if let Some(key) = table.keys().find(|key| !KEYS.contains(&key.as_str())) {
        return Err(format!("'{key}' is not a key; there are {}", KEYS.join(", ")));
    }
    let texts = |key: &str| match table.get(key) {
        None => Ok(Vec::new()),
        Some(Value::Array(values)) if values.len() <= MAX_NAMES => {
            let texts = values.iter().map(|value| value.as_str().map(str::to_owned));
            texts.collect::<Option<Vec<String>>>().ok_or_else(|| format!("{key} must be a list of texts"))
        }
        Some(_) => Err(format!("{key} must be a list of at most {MAX_NAMES} texts")),
    };
    let hash =
        match table.get("hash") {
            None => None,
            Some(hash) => Some(hash.as_str().filter(|hash| is_hash(hash)).map(str::to_owned).ok_or(
                "hash must be 'sha256:' and 64 hexadecimal digits in lower case; `plumbago token add` makes one",
            )?),
        };
    let scopes = texts("scopes")?.iter().map(|scope| scope_of(scope)).collect::<Result<Vec<Scope>, String>>()?;
    if scopes.is_empty() {
        return Err(format!("scopes is missing: some of {}", all_scopes()));
    }
    let (prefixes, tags) = (texts("prefixes")?, texts("tags")?);
    let names = match table.contains_key("prefixes") || table.contains_key("tags") {
        true => Some(Arc::new(NameScope::new(prefixes, tags)?)),
        false => None,
    };
    if names.is_some() && scopes.contains(&Scope::Admin) {
        return Err("prefixes and tags restrict names: a token with the scope admin has neither".to_owned());
    }
    let limits = SenderLimits {
        points_per_second: number(table, "points_per_second")?,
        creations_per_minute: number(table, "creations_per_minute")?,
        max_metrics: number(table, "max_metrics")?,
        queries: number(table, "queries")?,
        query_memory: table.get("query_memory").map(memory).transpose()?,
        events_per_minute: number(table, "events_per_minute")?,
    };
    if limits.max_metrics.is_some() && names.is_none() {
        return Err("max_metrics counts the metrics below prefixes or tags, and there are none".to_owned());
    }
    Ok(Entry { hash, viewer: Arc::new(Viewer { name: name.to_owned(), scopes, names, writes: None, limits }) })
}

/// A limit; none without the key.
fn number<T: TryFrom<i64>>(table: &Table, key: &str) -> Result<Option<T>, String> {
    let Some(value) = table.get(key) else { return Ok(None) };
    let number = value.as_integer().filter(|&number| 0 < number).and_then(|number| T::try_from(number).ok());
    number.map(Some).ok_or_else(|| format!("{key} must be a whole number above 0"))
}

/// Bytes of memory, as in the settings.
fn memory(value: &Value) -> Result<usize, String> {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let bytes = Bytes::read(&text).map_err(|error| format!("query_memory {error}"))?;
    if bytes.0 < LEAST_MEMORY {
        return Err("query_memory must be at least 1MiB".to_owned());
    }
    Ok(bytes.as_usize())
}

/// The scope of a name.
fn scope_of(name: &str) -> Result<Scope, String> {
    let known = Scope::ALL.into_iter().find(|scope| scope.name() == name);
    known.ok_or_else(|| format!("'{name}' is not a scope; there are {}", all_scopes()))
}

/// The names of all scopes.
fn all_scopes() -> String {
    Scope::ALL.map(Scope::name).join(", ")
}

fn is_hash(text: &str) -> bool {
    let digits = text.strip_prefix("sha256:").unwrap_or_default();
    digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// A section as text.
pub fn section(name: &str, hash: Option<&str>, scopes: &[String], prefixes: &[String], tags: &[String]) -> String {
    let list = |texts: &[String]| Value::Array(texts.iter().cloned().map(Value::String).collect());
    // A name may have dots, which would be nested sections.
    let mut text = format!("[{}]\n", Value::String(name.to_owned()));
    if let Some(hash) = hash {
        text += &format!("hash = \"{hash}\"\n");
    }
    text += &format!("scopes = {}\n", list(scopes));
    for (key, texts) in [("prefixes", prefixes), ("tags", tags)] {
        if !texts.is_empty() {
            text += &format!("{key} = {}\n", list(texts));
        }
    }
    text
}

/// A file without a section, comments of the others kept. `None` if no line begins the section.
pub fn without(text: &str, name: &str) -> Option<String> {
    let heads = [format!("[{name}]"), format!("[{}]", Value::String(name.to_owned())), format!("['{name}']")];
    let is_head = |line: &str| heads.iter().any(|head| line.split('#').next().unwrap_or_default().trim() == head);
    let (mut rest, mut is_inside, mut is_found) = (String::new(), false, false);
    for line in text.split_inclusive('\n') {
        if line.trim_start().starts_with('[') {
            is_inside = is_head(line);
            is_found |= is_inside;
        }
        if !is_inside {
            rest += line;
        }
    }
    is_found.then_some(rest)
}

#[cfg(test)]
mod tests {
    use metadata::NameFilter;

    use super::*;

    #[test]
    fn a_section_is_read_as_it_is_written() {
        let own = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<String>>();
        let text = section("ops.team", Some(&hash("secret")), &own(&["read", "admin"]), &[], &[])
            + &section("blue", Some(&hash("other")), &own(&["read"]), &own(&["blue."]), &own(&["tenant=blue"]))
            + &section("alice@example.org", None, &own(&["read"]), &[], &[]);
        let file = TokenFile::read(&text).unwrap();
        let names: Vec<&str> = file.entries.iter().map(|entry| entry.viewer.name.as_str()).collect();
        assert_eq!(names, ["alice@example.org", "blue", "ops.team"]);
        assert_eq!(file.of_token("secret").unwrap().scopes, [Scope::Read, Scope::Admin]);
        let blue = file.of_token("other").unwrap();
        assert_eq!(blue.names, NameScope::new(own(&["blue."]), own(&["tenant=blue"])).ok().map(Arc::new));
        assert_eq!(file.of_token("alice@example.org"), None);
        assert_eq!(file.of_user("alice@example.org").unwrap().name, "alice@example.org");
        assert_eq!((file.of_token(""), file.of_user(""), file.of_user("blue")), (None, None, None));
        let rest = without(&text, "blue").unwrap();
        assert_eq!(TokenFile::read(&rest).unwrap().entries.len(), 2);
        assert_eq!(without(&rest, "blue"), None);
        assert_eq!(without("# a\n[x] # c\nhash = 1\n# of y\n[y]\n", "x").as_deref(), Some("# a\n[y]\n"));
    }

    #[test]
    fn names_are_divided_among_tokens_that_write_and_listeners() {
        let own = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<String>>();
        let (blue, write) = (own(&["blue."]), own(&["write"]));
        let text = section("blue", Some(&hash("a")), &write, &blue, &[])
            + &section("red", Some(&hash("b")), &write, &[], &own(&["tenant=red"]))
            + &section("all", Some(&hash("c")), &write, &[], &[]);
        let file = TokenFile::read_among(&text, &own(&["office."]), &TokenFile::default()).unwrap();
        let may = |token: &str, name: &str| file.of_token(token).unwrap().writes.as_ref().unwrap().shows_metric(name);
        assert!(may("a", "blue.a") && !may("a", "blue.a;tenant=red") && !may("a", "office.a"));
        assert!(may("b", "x;tenant=red") && !may("b", "blue.a;tenant=red") && !may("b", "office.a;tenant=red"));
        assert!(file.of_token("c").unwrap().writes.is_none());
        let text = text + &section("green", Some(&hash("d")), &write, &own(&["x"]), &[]);
        let next = TokenFile::read_among(&text, &[], &file).unwrap();
        let names = |file: &TokenFile| file.of_token("b").unwrap().names.clone().unwrap();
        assert!(Arc::ptr_eq(&names(&file), &names(&next)));
        let writes = next.of_token("b").unwrap().writes.clone().unwrap();
        assert!(!writes.shows_metric("x;tenant=red") && writes.shows_metric("office.a;tenant=red"));
    }

    #[test]
    fn a_file_that_allows_more_than_it_says_is_refused() {
        let hash = hash("a");
        let check = |text: &str, words: &str| {
            let problem = TokenFile::read(text).unwrap_err();
            assert!(problem.contains(words), "{text}: {problem}");
        };
        check("a = 1", "[a]: must be a section");
        check("[a]\nhash = 'x'\nscopes = ['read']", "hash must be");
        check(&format!("[a]\nhash = '{hash}'"), "scopes is missing");
        check("[a]\nscopes = ['reed']", "'reed' is not a scope");
        check("[a]\nscopes = ['read']\nprefix = ['x']", "'prefix' is not a key");
        check("[a]\nscopes = ['read']\nprefixes = []", "neither prefixes nor tags");
        check("[a]\nscopes = ['read']\nprefixes = ['*']", "'*' is not the beginning");
        check("[a]\nscopes = ['read', 'admin']\nprefixes = ['x.']", "a token with the scope admin has neither");
        check("[a]\nscopes = ['write']\npoints_per_second = 0", "points_per_second must be");
        check("[a]\nscopes = ['write']\nmax_metrics = 5", "max_metrics counts the metrics below");
        check("[a]\nscopes = ['read']\nquery_memory = '1KiB'", "query_memory must be at least 1MiB");
        check("[a]\nscopes = ['read']\nquery_memory = 'much'", "query_memory ");
        check("[a]\nscopes = ['write']\ncreations_per_minute = '5'", "creations_per_minute must be");
        check(
            &format!("[a]\nhash = '{hash}'\nscopes = ['read']\n[b]\nhash = '{hash}'\nscopes = ['read']"),
            "has the hash of",
        );
        check("['a b']\nscopes = ['read']", "a name has");
    }
}
