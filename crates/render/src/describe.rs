//! The answer of `/functions`, from the table of functions.

use serde_json::{Map, Value, json};

use crate::{
    Aggregator, Kind, Literal, Parameter,
    functions::{self, Function},
};

/// JSON text: all functions, or those of one group, by name or by group and name. `pretty` indents by two.
pub fn functions_json(group: Option<&str>, grouped: bool, pretty: bool) -> String {
    let mut all = Map::new();
    for function in functions::all().filter(|function| group.is_none_or(|group| group == function.group)) {
        let description = describe(function);
        if grouped {
            let group = all.entry(function.group).or_insert_with(|| json!({}));
            group[function.name] = description;
        } else {
            all.insert(function.name.to_owned(), description);
        }
    }
    text(&Value::Object(all), pretty)
}

/// JSON text: one function, or `None` where no function has this name. `pretty` indents by two.
pub fn function_json(name: &str, pretty: bool) -> Option<String> {
    functions::find(name).map(|function| text(&describe(function), pretty))
}

fn text(value: &Value, pretty: bool) -> String {
    let written = if pretty { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) };
    written.expect("a map with text keys and finite numbers is JSON")
}

fn describe(function: &Function) -> Value {
    let mut shown = json!({
        "name": function.name,
        "function": function.signature_text(),
        "description": function.description,
        "module": "graphite.render.functions",
        "group": function.group,
        "params": function.shown().map(parameter).collect::<Vec<_>>(),
    });
    // Only for extensions: for all others the answer is graphite-web's.
    if function.extension {
        shown["extension"] = json!(true);
    }
    shown
}

fn parameter(parameter: &Parameter) -> Value {
    let mut shown = Map::new();
    shown.insert("name".to_owned(), json!(parameter.name));
    shown.insert("type".to_owned(), json!(parameter.kind.name()));
    if parameter.required {
        shown.insert("required".to_owned(), json!(true));
    }
    if let Some(default) = parameter.default.or(parameter.documented) {
        shown.insert("default".to_owned(), literal(&default));
    }
    if parameter.multiple {
        shown.insert("multiple".to_owned(), json!(true));
    }
    let mut options: Vec<Value> = parameter.options.iter().map(literal).collect();
    if matches!(parameter.kind, Kind::Aggregator | Kind::AggregatorOrFunction) {
        options.extend(Aggregator::NAMES.iter().map(|(name, _)| json!(name)));
    }
    if parameter.kind == Kind::AggregatorOrFunction {
        options.extend(functions::all().filter(|function| function.aggregator).map(|function| json!(function.name)));
    }
    options.sort_by_key(python_text);
    options.dedup();
    if !options.is_empty() {
        shown.insert("options".to_owned(), Value::Array(options));
    }
    if !parameter.suggestions.is_empty() {
        shown.insert("suggestions".to_owned(), parameter.suggestions.iter().map(literal).collect());
    }
    Value::Object(shown)
}

fn literal(literal: &Literal) -> Value {
    match literal {
        Literal::Boolean(value) => json!(value),
        Literal::Integer(value) => json!(value),
        // JSON has no infinity, and readers in Go reject a whole document with 1e9999. Python's `float()` reads this text,
        // and Grafana writes it into targets, as it does for the number.
        Literal::Float(value) if value.is_infinite() => json!(if *value < 0.0 { "-inf" } else { "inf" }),
        Literal::Float(value) => json!(value),
        Literal::Text(value) => json!(value),
        Literal::None => Value::Null,
    }
}

/// `str(value)` of Python, by which it sorts options.
fn python_text(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
