//! `plumbago repair`.

use std::process::ExitCode;

use anyhow::Context;
use backup::{Checked, DamagedPart, EARLIER_SPEC, EXCHANGED_SEGMENT, FOREIGN_SEGMENT, Repaired, UNLIKE, costs};
use host::Host;
use serde_json::{Value, json};

use super::damage_text;
use crate::{cli::RepairOptions, output::print};

/// The exit status when something is not kept.
const NOT_ALL_KEPT: u8 = 3;

/// Repairs a data folder, and lists what is not kept.
pub fn repair(options: &RepairOptions, host: &Host) -> anyhow::Result<ExitCode> {
    let repaired = backup::repair(host, &options.data, options.dry_run).context("cannot repair the data folder")?;
    print(&if options.json { format!("{:#}\n", as_json(&repaired)) } else { text(&repaired, options.dry_run) });
    let is_left_out = !(repaired.given_up.is_empty() && repaired.unread.is_empty() && repaired.deletions.is_empty());
    let is_lost = is_left_out || repaired.before.faults().any(|(_, part)| costs(part));
    Ok(match (repaired.is_bad_still(), is_lost) {
        (true, _) => ExitCode::FAILURE,
        (false, true) => ExitCode::from(NOT_ALL_KEPT),
        (false, false) => ExitCode::SUCCESS,
    })
}

fn as_json(repaired: &Repaired) -> Value {
    let fault = |(file, part): (&Checked, &DamagedPart)| {
        let mut members = damage_text::as_json(file, part, &repaired.names);
        let is_lost = costs(part) && !repaired.is_left(&file.path);
        members.insert("is_lost".to_owned(), is_lost.into());
        Value::Object(members)
    };
    let damage: Vec<Value> = repaired.before.faults().map(fault).collect();
    let after = repaired.after.as_ref();
    json!({
        "damage": damage, "cut_off": damage_text::cut_off_json(&repaired.before), "repaired": after.is_some(),
        "good": after.unwrap_or(&repaired.before).is_good(),
        "given_up": repaired.given_up.iter().map(|path| path.display().to_string()).collect::<Vec<_>>(),
        "lost_deletions": repaired.deletions,
        "unread": repaired.unread.iter().map(|(path, _)| path.display().to_string()).collect::<Vec<_>>(),
        "known_losses": damage_text::known_losses_json(after.unwrap_or(&repaired.before)),
        "written_again": damage_text::written_again_json(&repaired.before),
    })
}

fn text(repaired: &Repaired, dry_run: bool) -> String {
    let mut text = String::new();
    for (file, part) in repaired.before.faults() {
        let state = match costs(part) {
            _ if repaired.is_left(&file.path) => "kept as it is",
            true if part.what == UNLIKE && 0 < part.bytes || [FOREIGN_SEGMENT, EARLIER_SPEC].contains(&part.what) => {
                "kept as it is"
            }
            true => "not kept",
            false if part.what == EXCHANGED_SEGMENT => "put right",
            false => "made again",
        };
        text += &format!("{state}: {}\n", damage_text::line(file, part, &repaired.names));
    }
    for path in &repaired.given_up {
        text +=
            &format!("not kept: {}: file of rows: a start did not find it; what it had is given up\n", path.display());
    }
    for how in &repaired.deletions {
        text += &format!("not kept: store/names: deletions: {how}\n");
    }
    for (path, how) in &repaired.unread {
        text += &format!(
            "kept as it is: {}: file of rows: the disk does not return all of it ({how}): copy it with ddrescue, put the copy in its place, \
             and repair again\n",
            path.display()
        );
    }
    text += &damage_text::cut_off_lines(&repaired.before);
    text += &damage_text::written_again_lines(&repaired.before);
    let after = repaired.after.as_ref().unwrap_or(&repaired.before);
    text += &damage_text::known_losses(after);
    let places = repaired.before.faults().count();
    let given_up = repaired.given_up.len();
    text += &match &repaired.after {
        None if places == 0 && 0 < given_up => {
            format!(
                "{given_up} files of rows are missing, which a repair gives up; put them back to keep what they had; nothing was changed\n"
            )
        }
        Some(_) if places == 0 && 0 < given_up => {
            format!("{given_up} missing files of rows are given up; everything that is there can be read\n")
        }
        _ if places == 0 && after.has_known_losses() => {
            "nothing is damaged now; what earlier damage cost is lost\n".to_owned()
        }
        Some(_) if places == 0 => "nothing is damaged; what earlier damage cost is not reported any more\n".to_owned(),
        None if places == 0 => "nothing is damaged\n".to_owned(),
        None if dry_run => format!("{places} damaged places; nothing was changed\n"),
        Some(after) if !after.is_good() => {
            let left = after.faults().count();
            format!("{places} damaged places, {left} of them are left: plumbago verify lists them\n")
        }
        _ => format!("{places} damaged places; their bytes are in damaged/, everything else can be read\n"),
    };
    text
}
