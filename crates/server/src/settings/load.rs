//! Settings from a TOML file, the environment and the command line, each overriding the one before.

use std::fmt;

use toml::de::{DeTable, DeValue};

use super::{
    listener::{LISTENER_KEYS, Listener},
    table::{Definition, Settings, definitions, sections},
};

/// Variables of ours that are not settings.
const OTHER_VARIABLES: [&str; 2] = ["PLUMBAGO_CONFIG", "PLUMBAGO_TOKEN"];

/// Something wrong with a setting, and where it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// `plumbago.toml:3`, `PLUMBAGO_LISTEN_LINE` or `--line`.
    pub place: String,
    /// What is wrong and what is valid.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

/// Options of the command line: the setting's path, the option's name for messages, the value.
pub type Overrides = Vec<(&'static str, &'static str, String)>;

/// Where settings come from.
#[derive(Default)]
pub struct Sources {
    /// The file's path, for messages, and its text.
    pub file: Option<(String, String)>,
    /// The environment.
    pub environment: Vec<(String, String)>,
    /// Options given.
    pub options: Overrides,
}

/// The settings, or everything that is wrong with them.
#[cfg(test)]
pub fn load(sources: &Sources) -> Result<Settings, Vec<Problem>> {
    let (settings, problems) = load_valid(sources);
    if problems.is_empty() { Ok(settings) } else { Err(problems) }
}

/// The settings that are valid, with defaults for the others, and everything that is wrong with those.
pub fn load_valid(sources: &Sources) -> (Settings, Vec<Problem>) {
    let mut settings = Settings::default();
    let mut problems = Vec::new();
    if let Some((path, text)) = &sources.file {
        load_file(&mut settings, path, text, &mut problems);
    }
    for (variable, text) in &sources.environment {
        load_variable(&mut settings, variable, text, &mut problems);
    }
    for (path, option, text) in &sources.options {
        let definition = definitions().find(|known| known.path() == *path).expect("options name settings");
        if let Err(message) = (definition.set)(&mut settings, text) {
            problems.push(Problem { place: (*option).to_owned(), message });
        }
    }
    (settings, problems)
}

fn load_file(settings: &mut Settings, path: &str, text: &str, problems: &mut Vec<Problem>) {
    // A table is not iterated in the order of the file; its problems are listed in that order.
    let mut found = problems_of_file(settings, text);
    found.sort_by_key(|(offset, _)| *offset);
    for (offset, message) in found {
        problems.push(Problem { place: format!("{path}:{}", line_at(text, offset)), message });
    }
}

/// Sets what the file names; returns each problem with its byte offset.
fn problems_of_file(settings: &mut Settings, text: &str) -> Vec<(usize, String)> {
    let mut problems = Vec::new();
    let document = match DeTable::parse(text) {
        Ok(document) => document.into_inner(),
        Err(error) => {
            let span = error.span().unwrap_or_default();
            let message = match error.message() {
                "duplicate key" => {
                    let key = text.get(span.clone()).unwrap_or_default();
                    format!("'{key}' is there twice; keep one, and write a section once, with all of its keys below")
                }
                message => message.to_owned(),
            };
            return vec![(span.start, message)];
        }
    };
    for (section, value) in document.iter() {
        let name = section.get_ref().as_ref();
        if name == "listener" {
            load_listeners(settings, section.span().start, value.get_ref(), &mut problems);
            continue;
        }
        if !sections().any(|(known, _)| known == name) {
            problems.push((section.span().start, unknown_section(name)));
            continue;
        }
        let DeValue::Table(table) = value.get_ref() else {
            let message = format!("'{name}' is a section: write [{name}] and its keys below");
            problems.push((section.span().start, message));
            continue;
        };
        for (key, value) in table.iter() {
            let Some(definition) = find(name, key.get_ref()) else {
                problems.push((key.span().start, unknown_key(name, key.get_ref())));
                continue;
            };
            let done = match scalar(value.get_ref()) {
                Some(text) => (definition.set)(settings, &text),
                None => Err(format!("must be {}", definition.takes)),
            };
            if let Err(message) = done {
                problems.push((value.span().start, format!("{} {message}", definition.path())));
            }
        }
    }
    problems
}

/// Adds each `[[listener]]`.
fn load_listeners(settings: &mut Settings, start: usize, value: &DeValue<'_>, problems: &mut Vec<(usize, String)>) {
    let DeValue::Array(all) = value else {
        problems.push((start, "there may be several listeners: write [[listener]] and the keys below".to_owned()));
        return;
    };
    for one in all.iter() {
        let DeValue::Table(table) = one.get_ref() else {
            problems.push((one.span().start, "write [[listener]] and the keys below".to_owned()));
            continue;
        };
        let mut listener = Listener::default();
        for (key, value) in table.iter() {
            let name = key.get_ref().as_ref();
            let Some(known) = LISTENER_KEYS.iter().find(|known| known.key == name) else {
                let near = nearest(name, LISTENER_KEYS.iter().map(|known| known.key.to_owned()));
                problems
                    .push((key.span().start, format!("{name} is not a key of [[listener]]; the nearest is {near}")));
                continue;
            };
            let done = match scalar(value.get_ref()) {
                Some(text) => (known.set)(&mut listener, &text),
                None => Err(format!("must be {}", known.takes)),
            };
            if let Err(message) = done {
                problems.push((value.span().start, format!("{name} {message}")));
            }
        }
        settings.listeners.push(listener);
    }
}

/// A value as the text a setting is read from.
fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).ok().map(|n| n.to_string()),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(truth) => Some(truth.to_string()),
        DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => None,
    }
}

/// Variables of our sections must name a setting. Others that begin with PLUMBAGO_ are left alone:
/// Kubernetes sets PLUMBAGO_SERVICE_HOST, PLUMBAGO_PORT_2003_TCP and so on for a service of that name.
fn load_variable(settings: &mut Settings, variable: &str, text: &str, problems: &mut Vec<Problem>) {
    if let Some(definition) = definitions().find(|known| known.variable() == variable) {
        if let Err(message) = (definition.set)(settings, text) {
            problems.push(Problem { place: variable.to_owned(), message });
        }
        return;
    }
    let Some(rest) = variable.strip_prefix("PLUMBAGO_") else { return };
    let section = sections().find(|(known, _)| {
        let after = rest.strip_prefix(&known.to_uppercase());
        after.is_some_and(|after| after.starts_with('_'))
    });
    if section.is_some() {
        let near = nearest(variable, definitions().map(Definition::variable));
        let message = format!("is not a setting; the nearest is {near}");
        problems.push(Problem { place: variable.to_owned(), message });
    }
}

/// Variables that look like settings and are none. A warning each: Kubernetes sets variables for services of our name.
pub fn ignored_variables(environment: &[(String, String)]) -> Vec<String> {
    let mut warnings: Vec<String> = environment.iter().filter_map(|(name, _)| ignored_variable(name)).collect();
    warnings.sort();
    warnings
}

fn ignored_variable(variable: &str) -> Option<String> {
    let rest = variable.strip_prefix("PLUMBAGO_")?;
    let is_known = OTHER_VARIABLES.contains(&variable) || definitions().any(|known| known.variable() == variable);
    if is_known || is_of_kubernetes(variable) {
        return None;
    }
    // PLUMBAGO_DATA is for --data, which is data.dir; PLUMBAGO_CONF_DIR for rules.conf_dir.
    let of_section = |known: &&Definition| known.section.eq_ignore_ascii_case(rest) && known.key == "dir";
    let named = definitions().find(of_section);
    let named = named.or_else(|| definitions().find(|known| known.key.eq_ignore_ascii_case(rest)));
    let near = named.map_or_else(|| nearest(variable, definitions().map(Definition::variable)), Definition::variable);
    Some(format!("the variable {variable} is not a setting and has no effect; the nearest setting is {near}"))
}

/// PLUMBAGO_SERVICE_HOST, PLUMBAGO_PORT_2003_TCP_ADDR and so on, also for a service plumbago-NAME.
fn is_of_kubernetes(variable: &str) -> bool {
    let of_port = |rest: &str| {
        rest.is_empty()
            || rest.strip_prefix('_').is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
    };
    variable.contains("_SERVICE_HOST")
        || variable.contains("_SERVICE_PORT")
        || variable.match_indices("_PORT").any(|(at, port)| of_port(&variable[at + port.len()..]))
}

fn find(section: &str, key: &str) -> Option<&'static Definition> {
    definitions().find(|known| known.section == section && known.key == key)
}

fn unknown_section(name: &str) -> String {
    // A key may have been written above all sections, or in a section of its own.
    if let Some(definition) = definitions().find(|known| known.key == name) {
        return format!(
            "'{name}' is not a section; the setting {} belongs below [{}]",
            definition.path(),
            definition.section
        );
    }
    let near = nearest(name, sections().map(|(known, _)| known.to_owned()));
    format!("'{name}' is not a section; the nearest is [{near}]")
}

fn unknown_key(section: &str, key: &str) -> String {
    let elsewhere = definitions().find(|known| known.key == key);
    if let Some(definition) = elsewhere {
        return format!("{section}.{key} is not a setting; there is {}", definition.path());
    }
    let given = format!("{section}.{key}");
    let near = nearest(&given, definitions().map(Definition::path));
    format!("{given} is not a setting; the nearest is {near}")
}

fn nearest(given: &str, known: impl Iterator<Item = String>) -> String {
    known.min_by_key(|candidate| strsim::levenshtein(given, candidate)).expect("there are settings")
}

fn line_at(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().get(..offset).unwrap_or(text.as_bytes());
    before.iter().filter(|&&byte| byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_file(text: &str) -> Result<Settings, Vec<String>> {
        let sources = Sources { file: Some(("p.toml".into(), text.into())), ..Sources::default() };
        load(&sources).map_err(|problems| problems.iter().map(Problem::to_string).collect())
    }

    fn from_variable(name: &str, value: &str) -> Result<Settings, Vec<String>> {
        let sources = Sources { environment: vec![(name.into(), value.into())], ..Sources::default() };
        load(&sources).map_err(|problems| problems.iter().map(Problem::to_string).collect())
    }

    #[test]
    fn a_file_sets_what_it_names_and_leaves_the_rest() {
        let settings = from_file("[listen]\nline = \"127.0.0.1:0\"\n[receive]\nmax_connections = 1_000\n").unwrap();
        assert_eq!(settings.listen.line.unwrap().as_str(), "127.0.0.1:0");
        assert_eq!(settings.listen.pickle.unwrap().as_str(), "127.0.0.1:2004");
        assert_eq!(settings.receive.max_connections, 1000);
    }

    #[test]
    fn an_unknown_key_is_rejected_with_its_line_and_the_nearest_known_one() {
        let problems = from_file("[listen]\n\nlnie = \"x\"\n").unwrap_err();
        assert_eq!(problems, ["p.toml:3: listen.lnie is not a setting; the nearest is listen.line"]);
        let problems = from_file("[listn]\nline = \"x\"\n").unwrap_err();
        assert_eq!(problems, ["p.toml:1: 'listn' is not a section; the nearest is [listen]"]);
        let problems = from_file("conf_dir = \"x\"\n").unwrap_err();
        assert_eq!(
            problems,
            ["p.toml:1: 'conf_dir' is not a section; the setting rules.conf_dir belongs below [rules]"]
        );
        let problems = from_file("[data]\nconf_dir = \"x\"\n").unwrap_err();
        assert_eq!(problems, ["p.toml:2: data.conf_dir is not a setting; there is rules.conf_dir"]);
    }

    #[test]
    fn a_key_or_section_that_is_there_twice_is_named_with_what_to_do() {
        let advice = "is there twice; keep one, and write a section once, with all of its keys below";
        let problems = from_file("[listen]\nline = \"off\"\nline = \"off\"\n").unwrap_err();
        assert_eq!(problems, [format!("p.toml:3: 'line' {advice}")]);
        let problems = from_file("[listen]\nline = \"off\"\n[listen]\nudp = true\n").unwrap_err();
        assert_eq!(problems, [format!("p.toml:3: 'listen' {advice}")]);
    }

    #[test]
    fn all_problems_are_listed_at_once() {
        let problems = from_file("[listen]\nline = 3\nudp = 1\nhttp = [1]\n").unwrap_err();
        assert_eq!(
            problems,
            [
                "p.toml:2: listen.line must be an address and a port such as \"127.0.0.1:2003\", or \"off\", got '3'",
                "p.toml:3: listen.udp must be true or false, got '1'",
                "p.toml:4: listen.http must be an address and a port such as \"127.0.0.1:2003\", or \"off\"",
            ]
        );
    }

    #[test]
    fn each_listener_has_keys_of_its_own() {
        let text = "[[listener]]\nname = 'a'\naddress = ':1'\n[[listener]]\nname = 'b'\nprotocol = 'pickle'\nmax_connections = 3\n";
        let settings = from_file(text).unwrap();
        let names: Vec<&str> = settings.listeners.iter().map(|listener| listener.name.0.as_str()).collect();
        assert_eq!((names, settings.listeners[1].max_connections), (vec!["a", "b"], 3));
        let problems = from_file("[[listener]]\nname = 'a b'\nprefx = 'x'\ntokens = 'hunter2'\n").unwrap_err();
        assert_eq!(
            problems,
            [
                "p.toml:2: name must be 1 to 64 letters, digits, '-' and '_', got 'a b'",
                "p.toml:3: prefx is not a key of [[listener]]; the nearest is prefix",
                "p.toml:4: tokens must be hashes such as \"sha256:…\" with 64 hexadecimal digits, separated by commas, or \"off\"",
            ]
        );
        let problems = from_file("[listener]\nname = 'a'\n").unwrap_err();
        assert_eq!(problems, ["p.toml:1: there may be several listeners: write [[listener]] and the keys below"]);
    }

    #[test]
    fn text_that_is_not_toml_is_rejected_with_its_line() {
        let problems = from_file("[listen]\nline = \n").unwrap_err();
        assert!(problems[0].starts_with("p.toml:2: "), "{problems:?}");
    }

    #[test]
    fn the_environment_overrides_the_file_and_an_option_overrides_both() {
        let mut sources = Sources {
            file: Some(("p.toml".into(), "[data]\ndir = \"a\"".into())),
            environment: vec![("PLUMBAGO_DATA_DIR".into(), "b".into())],
            options: vec![],
        };
        assert_eq!(load(&sources).unwrap().data.dir.to_str(), Some("b"));
        sources.options.push(("data.dir", "--data", "c".into()));
        assert_eq!(load(&sources).unwrap().data.dir.to_str(), Some("c"));
    }

    #[test]
    fn an_unknown_variable_of_a_section_is_rejected() {
        let problems = from_variable("PLUMBAGO_LISTEN_LINES", "x").unwrap_err();
        assert_eq!(problems, ["PLUMBAGO_LISTEN_LINES: is not a setting; the nearest is PLUMBAGO_LISTEN_LINE"]);
    }

    #[test]
    fn a_variable_without_effect_is_reported_with_the_nearest_setting() {
        let warnings = |names: &[&str]| {
            let environment: Vec<_> = names.iter().map(|name| ((*name).to_owned(), "x".to_owned())).collect();
            ignored_variables(&environment)
        };
        let near = |variable, setting| {
            format!("the variable {variable} is not a setting and has no effect; the nearest setting is {setting}")
        };
        assert_eq!(
            warnings(&["PLUMBAGO_DATA", "PLUMBAGO_CONF_DIR", "PLUMBAGO_LINE", "PATH"]),
            [
                near("PLUMBAGO_CONF_DIR", "PLUMBAGO_RULES_CONF_DIR"),
                near("PLUMBAGO_DATA", "PLUMBAGO_DATA_DIR"),
                near("PLUMBAGO_LINE", "PLUMBAGO_LISTEN_LINE"),
            ]
        );
        let ours =
            ["PLUMBAGO_CONFIG", "PLUMBAGO_TOKEN", "PLUMBAGO_LISTEN_LINE", "PLUMBAGO_SERVICE_HOST", "PLUMBAGO_PORT"];
        assert_eq!(warnings(&ours), [""; 0]);
        let services = ["PLUMBAGO_PORT_2003_TCP_ADDR", "PLUMBAGO_DEV_SERVICE_PORT_HTTP", "PLUMBAGO_DEV_PORT_8080_TCP"];
        assert_eq!(warnings(&services), [""; 0]);
    }

    #[test]
    fn variables_that_kubernetes_sets_are_left_alone() {
        assert!(from_variable("PLUMBAGO_SERVICE_HOST", "10.0.0.1").is_ok());
        assert!(from_variable("PLUMBAGO_PORT_2003_TCP_ADDR", "10.0.0.1").is_ok());
    }
}
