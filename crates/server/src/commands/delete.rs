//! `plumbago delete`: deletes metrics from a running server.

use std::{
    io::{IsTerminal, Write},
    process::ExitCode,
    sync::mpsc,
    time::Duration,
};

use anyhow::bail;
use host::Disk;
use serde_json::Value;

use super::ask::{Server, reason, request, server};
use crate::{cli::DeleteOptions, config, output::print};

const PATH: &str = "/admin/delete";

/// Interval between two reports of progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// Names shown before the question.
const NAMES_SHOWN: usize = 20;

/// Counts the metrics, asks whether to delete them, and deletes them.
pub fn delete(options: &DeleteOptions, disk: &dyn Disk) -> anyhow::Result<ExitCode> {
    let settings = config::load(&options.config, options.overrides(), disk)?;
    if options.patterns.is_empty() && options.tags.is_empty() {
        bail!("give a glob, a name, or tag expressions (--tags)");
    }
    if !options.patterns.is_empty() && !options.tags.is_empty() {
        bail!(
            "give globs or --tags, not both: globs find names without tags, tag expressions those with tags; --tags 'name=~^keep' \
             is an expression on the name"
        );
    }
    let server =
        server(&settings, "the server has no HTTP port (listen.http is off); set one to delete metrics", disk)?;
    let form = form(options);
    let counted = ask(&server, &format!("{form}&dry_run=1"))?;
    let metrics = number(&counted, "metrics");
    if metrics == 0 && !options.dry_run {
        let asked: Vec<&str> = options.patterns.iter().chain(&options.tags).map(String::as_str).collect();
        bail!("no metric matches {}; nothing was deleted", asked.join(" "));
    }
    if options.dry_run {
        print(&if options.json { format!("{counted:#}\n") } else { table(&counted, "would be deleted") });
        return Ok(ExitCode::SUCCESS);
    }
    if !options.yes {
        eprint!("{}", table(&counted, "match"));
        if !is_confirmed(metrics)? {
            bail!("nothing was deleted");
        }
    }
    let answer = delete_with_progress(&server, &form)?;
    let deleted = number(&answer, "deleted");
    print(&if options.json { format!("{answer:#}\n") } else { format!("deleted {deleted} metrics\n") });
    Ok(ExitCode::SUCCESS)
}

fn form(options: &DeleteOptions) -> String {
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.extend_pairs(options.patterns.iter().map(|pattern| ("query", pattern)));
    form.extend_pairs(options.tags.iter().map(|expression| ("expr", expression)));
    form.finish()
}

fn ask(server: &Server, form: &str) -> anyhow::Result<Value> {
    match request(server, "POST", PATH, form)? {
        (200, body) => Ok(body),
        (_, body) => bail!("the server at {server} cannot delete metrics: {}", reason(&body)),
    }
}

fn delete_with_progress(server: &Server, form: &str) -> anyhow::Result<Value> {
    let (done, answer) = mpsc::channel();
    let (asked, sent) = (server.clone(), form.to_owned());
    std::thread::spawn(move || done.send(ask(&asked, &sent)));
    let shows_progress = std::io::stderr().is_terminal();
    let answer = loop {
        match answer.recv_timeout(PROGRESS_EVERY) {
            Ok(answer) => break answer,
            Err(mpsc::RecvTimeoutError::Timeout) if shows_progress => {
                if let Ok((200, body)) = request(server, "GET", PATH, "") {
                    eprint!("\r{} of {} metrics  ", number(&body, "metrics_done"), number(&body, "metrics"));
                }
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => bail!("the request ended without an answer"),
        }
    };
    if shows_progress {
        eprint!("\r{:60}\r", "");
    }
    answer
}

fn is_confirmed(metrics: u64) -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        bail!("standard input is not a terminal to ask on; give --yes to delete {metrics} metrics");
    }
    eprint!("Delete {metrics} metrics with all their points? Type 'yes': ");
    std::io::stderr().flush()?;
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    Ok(line.trim() == "yes")
}

fn number(body: &Value, key: &str) -> u64 {
    body.get(key).and_then(Value::as_u64).unwrap_or(0)
}

/// The first names, and how many metrics there are.
fn table(answer: &Value, verb: &str) -> String {
    let metrics = number(answer, "metrics");
    let names = answer.get("names").and_then(Value::as_array);
    let names = names.into_iter().flatten().filter_map(Value::as_str);
    let mut text: String = names.take(NAMES_SHOWN).map(|name| format!("{name}\n")).collect();
    if metrics > NAMES_SHOWN as u64 {
        text += &format!("… and {} more\n", metrics - NAMES_SHOWN as u64);
    }
    text + &format!("{metrics} metrics {verb}\n")
}
