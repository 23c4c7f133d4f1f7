//! `plumbago drain`: makes a running server over Cassandra take no more points, write all that it has, and leave the other nodes; waits for
//! the end.

use std::{io::IsTerminal, process::ExitCode, time::Duration};

use anyhow::bail;
use host::Disk;
use serde_json::Value;

use super::ask::{Server, reason, request, server};
use crate::{cli::DrainOptions, config, output::print};

const PATH: &str = "/admin/drain";

/// Interval between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How long the command waits while nothing is written.
const PATIENCE: Duration = Duration::from_secs(30);

/// The exit status where the data folder has something that draining does not move.
const FOLDER_HAS_MORE: u8 = 3;

/// Asks the server, shows on a terminal how many points are left and for how long, and returns when none is.
pub fn drain(options: &DrainOptions, disk: &dyn Disk) -> anyhow::Result<ExitCode> {
    let settings = config::load(&options.config, options.overrides(), disk)?;
    let without = "the server has no HTTP port (listen.http is off); set one to drain it";
    let server = server(&settings, without, disk)?;
    let mut answer = ask(&server, "POST")?;
    let mut progress = Progress::new(number(&answer, "points_left"));
    let shows_progress = std::io::stderr().is_terminal();
    while text(&answer, "state") != "drained" {
        if progress.is_stuck() {
            end_line(shows_progress);
            bail!("{}", cannot(&server, &answer));
        }
        std::thread::sleep(LOOK_EVERY);
        answer = ask(&server, "GET")?;
        progress.saw(&answer);
        if shows_progress {
            eprint!("\r{:<78}", progress.line(&answer));
        }
    }
    end_line(shows_progress);
    let left = folder_has(&answer);
    print(&if options.json { format!("{answer:#}\n") } else { ended(&left) });
    Ok(if left.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(FOLDER_HAS_MORE) })
}

fn ask(server: &Server, method: &str) -> anyhow::Result<Value> {
    match request(server, method, PATH, "")? {
        (200, body) if text(&body, "state") != "off" => Ok(body),
        (200, _) => bail!("the server at {server} was started again and does not drain; run this command again"),
        (_, body) => bail!("the server at {server} cannot be drained: {}", reason(&body)),
    }
}

fn end_line(shows_progress: bool) {
    if shows_progress {
        eprint!("\r{:90}\r", "");
    }
}

/// What the looks saw.
struct Progress {
    looks: u32,
    at_first: u64,
    left: u64,
    /// Looks since fewer points were left than before.
    looks_without_progress: u32,
}

impl Progress {
    fn new(left: u64) -> Progress {
        Progress { looks: 0, at_first: left, left, looks_without_progress: 0 }
    }

    fn saw(&mut self, answer: &Value) {
        let left = number(answer, "points_left");
        let has_moved = left < self.left || answer.get("why").is_none_or(Value::is_null);
        self.looks_without_progress = if has_moved { 0 } else { self.looks_without_progress + 1 };
        self.looks += 1;
        self.left = left;
    }

    fn is_stuck(&self) -> bool {
        PATIENCE < LOOK_EVERY * self.looks_without_progress
    }

    fn line(&self, answer: &Value) -> String {
        let left = self.left;
        match answer.get("why").and_then(Value::as_str) {
            Some(why) => format!("{left} points left: {why}").chars().take(78).collect(),
            None => match seconds_left(self.at_first.saturating_sub(left), left, LOOK_EVERY * self.looks) {
                Some(seconds) => format!("{left} points left, for about {seconds} s"),
                None => format!("{left} points left"),
            },
        }
    }
}

/// How long the rest takes at the rate so far; `None` before anything was written.
fn seconds_left(written: u64, left: u64, took: Duration) -> Option<u64> {
    (0 < written && 0 < left).then(|| (took.as_secs_f64() * left as f64 / written as f64).ceil() as u64)
}

fn cannot(server: &Server, answer: &Value) -> String {
    let (left, names) = (number(answer, "points_left"), number(answer, "names_left"));
    format!(
        "the server at {server} drains, and has written nothing for {} s: {}; {left} points and {names} new names are left, safe in \
         its journal. It goes on by itself: run this command again to wait. Keep its data folder until then",
        PATIENCE.as_secs(),
        text(answer, "why")
    )
}

/// What only the data folder has.
fn folder_has(answer: &Value) -> Vec<String> {
    let Some(folder) = answer.get("only_in_data_folder") else { return Vec::new() };
    let mut has = Vec::new();
    if let Some(error) = folder.get("error").and_then(Value::as_str) {
        has.push(error.to_owned());
    }
    let (events, files) = (number(folder, "events"), number(folder, "damaged_files"));
    if 0 < events {
        has.push(format!("events (annotations) that are not on other nodes: {events}"));
    }
    if folder.get("points_without_cassandra").and_then(Value::as_bool) == Some(true) {
        has.push("points from a time without Cassandra, which no query reads".to_owned());
    }
    if 0 < files {
        has.push(format!("files in damaged/ and journal/late-… with what could not be read or put back: {files}"));
    }
    has
}

fn ended(left: &[String]) -> String {
    let drained = "drained: 0 points left; other nodes stop asking this one within 5 s";
    if left.is_empty() {
        return format!("{drained}. Stop the server; its data folder can be removed\n");
    }
    let items: String = left.iter().map(|item| format!("  {item}\n")).collect();
    format!("{drained}. Its data folder still has, and would lose:\n{items}")
}

fn number(body: &Value, key: &str) -> u64 {
    body.get(key).and_then(Value::as_u64).unwrap_or(0)
}

fn text<'a>(body: &'a Value, key: &str) -> &'a str {
    body.get(key).and_then(Value::as_str).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_time_of_the_rest_follows_from_the_rate_so_far() {
        assert_eq!(seconds_left(300, 100, Duration::from_secs(6)), Some(2));
        assert_eq!(seconds_left(3, 100, Duration::from_secs(1)), Some(34));
        assert_eq!(seconds_left(0, 100, Duration::from_secs(6)), None);
        assert_eq!(seconds_left(100, 0, Duration::from_secs(6)), None);
    }

    #[test]
    fn an_end_says_what_the_folder_would_lose() {
        let answer = |folder: Value| json!({"state": "drained", "only_in_data_folder": folder});
        let none = json!({"events": 0, "points_without_cassandra": false, "damaged_files": 0});
        assert!(folder_has(&answer(none)).is_empty());
        assert!(ended(&[]).contains("0 points left") && ended(&[]).contains("can be removed"));
        let all = json!({"events": 7, "points_without_cassandra": true, "damaged_files": 2});
        let left = folder_has(&answer(all));
        assert_eq!(left.len(), 3);
        let text = ended(&left);
        assert!(
            text.contains("other nodes: 7") && text.contains("put back: 2") && !text.contains("can be removed"),
            "{text}"
        );
        assert_eq!(folder_has(&answer(json!({"error": "cannot list data"}))), ["cannot list data"]);
    }
}
