//! `plumbago repair`.

use std::process::ExitCode;

use anyhow::Context;
use backup::{Checked, Fault, Repaired};
use host::Host;
use metric::MetricId;
use serde_json::{Value, json};

use crate::{cli::RepairOptions, output::print};

/// The exit status when something is not kept.
const NOT_ALL_KEPT: u8 = 3;

/// Names of one damaged place that are listed.
const MOST_NAMES: usize = 20;

/// Repairs a data folder, and lists what is not kept.
pub fn repair(options: &RepairOptions, host: &Host) -> anyhow::Result<ExitCode> {
    let repaired = backup::repair(host, &options.data, options.dry_run)
        .context("cannot repair the data folder; what was repaired until then stays")?;
    print(&if options.json { format!("{:#}\n", as_json(&repaired)) } else { text(&repaired, options.dry_run) });
    let is_bad_still = repaired.after.as_ref().is_some_and(|after| !after.is_good());
    let costs = repaired.before.faults().any(|(_, fault)| fault.costs());
    Ok(match (is_bad_still, costs) {
        (true, _) => ExitCode::FAILURE,
        (false, true) => ExitCode::from(NOT_ALL_KEPT),
        (false, false) => ExitCode::SUCCESS,
    })
}

/// How many metrics with a known name may be touched, and the first of their names.
fn names(repaired: &Repaired, fault: &Fault) -> (usize, Vec<String>) {
    let Some((first, last)) = fault.metrics else { return (0, Vec::new()) };
    let touched = repaired.names.range(first.min(last)..=MetricId(last.0.max(first.0)));
    (touched.clone().count(), touched.take(MOST_NAMES).map(|(_, name)| name.clone()).collect())
}

fn as_json(repaired: &Repaired) -> Value {
    let fault = |(file, fault): (&Checked, &Fault)| {
        let (count, names) = names(repaired, fault);
        json!({
            "file": file.path.display().to_string(), "what": fault.what, "offset": fault.offset, "bytes": fault.bytes,
            "why": fault.how, "is_lost": fault.costs(),
            "metrics": fault.metrics.is_some().then_some(count), "names": names,
            "metric_ids": fault.metrics.map(|(first, last)| [first.0, last.0]),
            "span": fault.span.map(|(from, until)| [from, until]),
        })
    };
    let damage: Vec<Value> = repaired.before.faults().map(fault).collect();
    let after = repaired.after.as_ref();
    json!({"damage": damage, "repaired": after.is_some(), "good": after.unwrap_or(&repaired.before).is_good()})
}

fn text(repaired: &Repaired, dry_run: bool) -> String {
    let mut text = String::new();
    for (file, fault) in repaired.before.faults() {
        let Fault { what, offset, bytes, how, span, .. } = fault;
        let state = if fault.costs() { "not kept" } else { "made again" };
        text += &format!("{state}: {}: {what}, {bytes} bytes at {offset}: {how}", file.path.display());
        let (count, names) = names(repaired, fault);
        if fault.metrics.is_some() {
            text += &format!("; of at most {count} metrics: {}", names.join(", "));
            text += if names.len() < count { ", …" } else { "" };
        }
        if let Some((from, until)) = span {
            text += &format!("; points from {from} to {until}");
        }
        text.push('\n');
    }
    let places = repaired.before.faults().count();
    text += &match &repaired.after {
        _ if places == 0 => "nothing is damaged\n".to_owned(),
        None if dry_run => format!("{places} damaged places; nothing was changed\n"),
        Some(after) if !after.is_good() => {
            let left = after.faults().count();
            format!("{places} damaged places, {left} of them are left: plumbago verify lists them\n")
        }
        _ => format!("{places} damaged places; their bytes are in damaged/, everything else can be read\n"),
    };
    text
}
