//! The settings as documentation: a TOML file with comments, and a table for docs/settings.md.

use std::fmt::Write;

use super::{
    listener::{LISTENER_DOC, LISTENER_KEYS, Listener},
    table::{Definition, Settings, definitions, sections},
};

/// Every setting with its value and its documentation, as a file that `load` reads.
pub fn documented_toml(settings: &Settings) -> String {
    let mut out = String::from("# Plumbago's settings. Each is optional; the environment overrides this file.\n");
    for (section, section_doc) in sections() {
        out.push('\n');
        comment(&mut out, section_doc);
        writeln!(out, "[{section}]").expect("a string takes all");
        for definition in definitions().filter(|known| known.section == section) {
            out.push('\n');
            comment(&mut out, definition.doc);
            writeln!(out, "# Environment: {}", definition.variable()).expect("a string takes all");
            writeln!(out, "{} = {}", definition.key, toml_value(definition, settings)).expect("a string takes all");
        }
    }
    show_listeners(&mut out, settings);
    out
}

/// Each `[[listener]]`; without one, its keys as comments.
fn show_listeners(out: &mut String, settings: &Settings) {
    out.push('\n');
    comment(out, LISTENER_DOC);
    for listener in &settings.listeners {
        out.push_str("[[listener]]\n");
        for key in LISTENER_KEYS {
            let text = (key.show)(listener);
            let value = if key.quoted { toml::Value::String(text).to_string() } else { text };
            writeln!(out, "{} = {value}", key.key).expect("a string takes all");
        }
        out.push('\n');
    }
    if settings.listeners.is_empty() {
        out.push_str("# [[listener]]\n");
        for key in LISTENER_KEYS {
            comment(out, &format!("{}: {}", key.key, key.doc));
        }
    }
}

/// The page docs/settings.md.
pub fn markdown() -> String {
    let defaults = Settings::default();
    let mut out = String::from(
        "# Settings\n\n\
         One TOML file, given by `--config FILE` or the variable `PLUMBAGO_CONFIG`. Every setting is optional. \
         The environment\noverrides the file, and options of the command line override both. `plumbago settings` prints \
         them as a file to start\nfrom, with the values in force.\n\n\
         This page is generated from the program's definitions: `plumbago settings --markdown`.\n",
    );
    for (section, section_doc) in sections() {
        write!(out, "\n## [{section}]\n\n{}\n\n", section_doc.trim()).expect("a string takes all");
        out.push_str("| key | default | variable | what it does |\n|---|---|---|---|\n");
        for definition in definitions().filter(|known| known.section == section) {
            let value = toml_value(definition, &defaults);
            let doc = definition.doc.trim();
            let row = format!("| `{}` | `{value}` | `{}` | {doc} |", definition.key, definition.variable());
            writeln!(out, "{row}").expect("a string takes all");
        }
    }
    write!(out, "\n## [[listener]]\n\n{LISTENER_DOC}\n\n| key | default | what it does |\n|---|---|---|\n")
        .expect("a string takes all");
    let defaults = Listener::default();
    for key in LISTENER_KEYS {
        let text = (key.show)(&defaults);
        let value = if key.quoted { toml::Value::String(text).to_string() } else { text };
        writeln!(out, "| `{}` | `{value}` | {} |", key.key, key.doc.trim()).expect("a string takes all");
    }
    out
}

fn comment(out: &mut String, doc: &str) {
    let mut line = String::from("#");
    for word in doc.split_whitespace() {
        if line.len() + word.len() + 1 > 100 {
            writeln!(out, "{line}").expect("a string takes all");
            line = String::from("#");
        }
        line.push(' ');
        line.push_str(word);
    }
    writeln!(out, "{line}").expect("a string takes all");
}

fn toml_value(definition: &Definition, settings: &Settings) -> String {
    let text = (definition.show)(settings);
    if definition.quoted { toml::Value::String(text).to_string() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Sources, load};

    #[test]
    fn the_printed_file_is_read_back_as_the_same_settings() {
        let printed = documented_toml(&Settings::default());
        let sources = Sources { file: Some(("printed".into(), printed.clone())), ..Sources::default() };
        let settings = load(&sources).unwrap_or_else(|problems| panic!("{problems:?}"));
        assert_eq!(documented_toml(&settings), printed);
    }

    #[test]
    fn the_page_on_settings_is_what_the_program_prints() {
        let page = include_str!("../../../../docs/settings.md");
        assert!(page == markdown(), "write it again: cargo run -- settings --markdown > docs/settings.md");
    }
}
