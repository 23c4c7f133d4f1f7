//! Targets, times, intervals, maxDataPoints and the table of functions are as in graphite-web 1.1.10. The
//! answers are recorded by record.py.

use std::{fmt::Write, fs, path::Path};

use jiff::tz::TimeZone;
use render::{Argument, Call, Expression, functions, functions_json, parse, python_float, time};
use serde_json::Value;

fn recorded(name: &str) -> Vec<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name);
    let text = fs::read_to_string(path).expect("a recorded file");
    text.lines().filter(|line| !line.starts_with("# ")).map(words).collect()
}

fn words(line: &str) -> Vec<String> {
    let marked = line.replace("\\\\", "\u{1}");
    let plain = |word: &str| {
        let word = word.replace("\\t", "\t").replace("\\n", "\n").replace("\\r", "\r").replace("\\0", "\0");
        word.replace('\u{1}', "\\")
    };
    marked.split('\t').map(plain).collect()
}

/// Compares all lines and shows every one that differs.
fn compare(name: &str, at_least: usize, answer: impl Fn(&[String]) -> String) {
    let lines = recorded(name);
    assert!(lines.len() >= at_least, "{name} has lines");
    let mut wrong = String::new();
    for line in &lines {
        let (theirs, given) = line.split_last().expect("words");
        let ours = answer(given);
        if ours != *theirs {
            let _ = writeln!(wrong, "{given:?}\n  ours   {ours}\n  theirs {theirs}");
        }
    }
    assert!(wrong.is_empty(), "{name}:\n{wrong}");
}

#[test]
fn targets_are_read_as_graphite_web_reads_them() {
    compare("grammar.txt", 250, |given| parse(&given[0]).map_or("error".to_owned(), |target| shown(&target)));
}

fn shown(expression: &Expression) -> String {
    match expression {
        Expression::Path(path) => format!("path {}", Value::from(path.as_str())),
        Expression::SeriesByTag(source) => format!("tagged {}", Value::from(source.as_str())),
        Expression::Call(Call { function, positional, named }) => {
            let arguments = positional.iter().map(argument);
            let named = named.iter().map(|(name, value)| format!("{name}={}", argument(value)));
            format!("{function}({})", arguments.chain(named).collect::<Vec<_>>().join(", "))
        }
        Expression::Template(inside, values) => {
            let values = values.iter().map(|(name, value)| format!("{name}={}", argument(value)));
            format!("template{{{}}}", [shown(inside)].into_iter().chain(values).collect::<Vec<_>>().join(", "))
        }
    }
}

fn argument(argument: &Argument) -> String {
    match argument {
        Argument::Boolean(value) => if *value { "True" } else { "False" }.to_owned(),
        Argument::Integer(value) => value.to_string(),
        Argument::Float(value) => python_float(*value),
        Argument::None => "None".to_owned(),
        Argument::Text(text) => Value::from(text.as_str()).to_string(),
        Argument::Expression(expression) => shown(expression),
    }
}

#[test]
fn times_are_read_as_graphite_web_reads_them() {
    compare("times.txt", 600, |given| {
        let zone = TimeZone::get(&given[0]).expect("a zone");
        let now = given[1].parse().expect("a time");
        time::parse_at_time(&given[2], now, &zone).map_or("error".to_owned(), |time| time.to_string())
    });
}

#[test]
fn intervals_are_read_as_graphite_web_reads_them() {
    compare("intervals.txt", 20, |given| {
        time::parse_interval(&given[0]).map_or("error".to_owned(), |seconds| seconds.to_string())
    });
}

/// What `/functions` says, but for descriptions, which are our own: of all of graphite-web's functions, and of others only
/// that they are.
#[test]
fn the_table_describes_functions_as_graphite_web_does() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/functions.json");
    let read = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
    // Infinity is a text here: JSON has none, and strict readers reject the number.
    let theirs = fs::read_to_string(path).expect("a recorded file").replace("1e9999", "\"inf\"");
    let theirs = read(&theirs);
    let theirs = theirs.as_object().expect("functions");
    assert_eq!(theirs.len(), 154);
    let ours = read(&functions_json(None, false, false));
    let mut wrong = String::new();
    for (name, theirs) in theirs {
        let ours = &ours[name];
        for key in ["group", "function", "params"] {
            if ours[key] != theirs[key] {
                let _ = writeln!(wrong, "{name}: {key}\n  ours   {}\n  theirs {}", ours[key], theirs[key]);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    for function in functions::all() {
        assert_eq!(function.extension, !theirs.contains_key(function.name), "{}", function.name);
        assert_eq!(ours[function.name].get("extension").is_some(), function.extension, "{}", function.name);
    }
    assert_eq!(functions::all().count(), ours.as_object().expect("functions").len(), "no name is there twice");
}

#[test]
fn functions_are_listed_by_group_or_name() {
    let read = |text: String| serde_json::from_str::<Value>(&text).expect("JSON");
    let sorting = read(functions_json(Some("Sorting"), false, true));
    assert!(sorting["sortByName"].is_object() && sorting.get("scale").is_none());
    let grouped = read(functions_json(None, true, false));
    assert!(grouped["Sorting"]["sortByName"].is_object());
    assert!(render::function_json("keepLastValue", false).expect("a function").contains("\"default\":\"inf\""));
    assert_eq!(render::function_json("nope", false), None);
    for function in functions::all() {
        assert!(!function.description.is_empty(), "{}", function.name);
    }
}

#[test]
fn the_page_of_functions_is_up_to_date() {
    let page = include_str!("../../../docs/functions.md");
    let renew = "write it again: cargo run -q -p render --example functions_page > docs/functions.md";
    assert!(page == render::functions_page(), "{renew}");
}
