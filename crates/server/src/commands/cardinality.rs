//! `plumbago cardinality`: how many metrics a running server has, by branch, tag or value.

use std::process::ExitCode;

use anyhow::bail;
use host::Disk;
use serde_json::Value;

use super::ask::{reason, request, server};
use crate::{cli::CardinalityOptions, config, output::print};

/// Asks the server, and prints a table.
pub fn cardinality(options: &CardinalityOptions, disk: &dyn Disk) -> anyhow::Result<ExitCode> {
    let settings = config::load(&options.config, options.overrides(), disk)?;
    let without = "the server has no HTTP port (listen.http is off); set one to count its metrics";
    let server = server(&settings, without, disk)?;
    let answer = match request(&server, "GET", &format!("/admin/cardinality?{}", query(options)), "")? {
        (200, answer) => answer,
        (_, body) => bail!("the server at {server} cannot count its metrics: {}", reason(&body)),
    };
    print(&if options.json { format!("{answer:#}\n") } else { text(&answer) });
    Ok(ExitCode::SUCCESS)
}

fn query(options: &CardinalityOptions) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            query.append_pair(name, &value);
        }
    };
    add("prefix", options.prefix.clone());
    add("depth", options.depth.map(|depth| depth.to_string()));
    add("by", options.tags.then(|| "tag".to_owned()).or(options.tag.as_ref().map(|tag| format!("tag:{tag}"))));
    add("limit", options.limit.map(|limit| limit.to_string()));
    add("new_within", options.new_within.map(|seconds| seconds.to_string()));
    add("sort", options.by_new.then(|| "new".to_owned()));
    query.finish()
}

/// A line for each group, one for those not shown, and the totals.
fn text(answer: &Value) -> String {
    let mut lines = vec![["METRICS", "SHARE", "NEW", "LIVE", "SIZE", "NAME"].map(str::to_owned)];
    let all = number(&answer["counted"], "metrics").unwrap_or(0).max(1);
    let line = |counts: &Value, name: String| {
        let share = 100.0 * number(counts, "metrics").unwrap_or(0) as f64 / all as f64;
        let shown = |key| number(counts, key).map_or("-".to_owned(), |number| number.to_string());
        let size = number(counts, "bytes_estimate").map_or("-".to_owned(), size);
        [shown("metrics"), format!("{share:.1}%"), shown("new"), shown("live"), size, name]
    };
    for group in answer["groups"].as_array().into_iter().flatten() {
        lines.push(line(group, group["name"].as_str().unwrap_or_default().to_owned()));
    }
    let hidden = number(answer, "groups_not_shown").unwrap_or(0);
    if 0 < hidden {
        lines.push(line(&answer["not_shown"], format!("({hidden} more)")));
    }
    lines.push(line(&answer["counted"], "(together)".to_owned()));
    let widths: Vec<usize> =
        (0..5).map(|column| lines.iter().map(|line| line[column].len()).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for line in &lines {
        for (cell, width) in line.iter().zip(&widths) {
            text.push_str(&format!("{cell:>width$}  "));
        }
        text.push_str(&line[5]);
        text.push('\n');
    }
    let (all, tagged) = (number(&answer["all"], "metrics").unwrap_or(0), number(answer, "tagged").unwrap_or(0));
    let hours = number(answer, "new_within").unwrap_or(0) as f64 / 3600.0;
    text.push_str(&format!(
        "{all} metrics in all, {tagged} of them tagged. NEW: created in the last {hours:.0} h. LIVE: may have points since then. SIZE: an \
         estimate, as if no slot were empty.\n"
    ));
    text
}

fn number(value: &Value, key: &str) -> Option<u64> {
    value.get(key).and_then(Value::as_u64)
}

fn size(bytes: u64) -> String {
    let (mut size, mut unit) = (bytes as f64, "B");
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        if size < 1024.0 {
            break;
        }
        (size, unit) = (size / 1024.0, next);
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{size:.1} {unit}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_table_can_be_read_at_night() {
        let counts = |metrics: u64, live: Option<u64>| json!({"metrics": metrics, "new": 1, "live": live, "bytes_estimate": metrics * 1000});
        let mut group = counts(30, Some(20));
        group["name"] = "servers".into();
        let answer = json!({
            "by": "branch", "new_within": 86_400, "all": counts(40, None), "tagged": 3, "counted": counts(40, None),
            "groups": [group], "groups_not_shown": 2, "not_shown": counts(10, Some(5)),
        });
        let expected = "\
METRICS   SHARE  NEW  LIVE      SIZE  NAME
     30   75.0%    1    20  29.3 KiB  servers
     10   25.0%    1     5   9.8 KiB  (2 more)
     40  100.0%    1     -  39.1 KiB  (together)
40 metrics in all, 3 of them tagged. NEW: created in the last 24 h. LIVE: may have points since then. SIZE: an estimate, as if no slot were empty.
";
        assert_eq!(text(&answer), expected);
    }
}
