//! `plumbago backup`, `restore` and `verify`.

use std::{path::Path, process::ExitCode};

use anyhow::{Context, bail};
use backup::{Checked, DamagedPart, Report};
use host::{Host, Open, utc};
use serde_json::{Value, json};

use super::{
    ask::{reason, request, server},
    damage_text::{self, Names},
};
use crate::{
    backups::PROOF,
    cli::{BackupOptions, RestoreOptions, VerifyOptions},
    config,
    data_folder::make_folder,
    output::print,
};

/// Asks the server on this machine for a backup into a folder.
pub fn backup(options: &BackupOptions, host: &Host) -> anyhow::Result<ExitCode> {
    let disk = &*host.disk;
    let settings = config::load(&options.config, options.overrides(), disk)?;
    let server = server(&settings, "the server has no HTTP port (listen.http is off); set one to make backups", disk)?;
    // Before a folder is made for nothing.
    request(&server, "GET", "/healthy", "")?;
    make_folder(disk, &options.dir).with_context(|| format!("cannot make {}", options.dir.display()))?;
    let dir = disk.canonicalize(&options.dir)?;
    let proof = format!("{PROOF}{:016x}", host.random.bits());
    disk.open(&dir.join(&proof), Open::CreateNew).with_context(|| format!("cannot write to {}", dir.display()))?;
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.append_pair("dir", &dir.to_string_lossy()).append_pair("proof", &proof);
    let asked = request(&server, "POST", "/admin/backup", &form.finish());
    let _ = disk.remove_file(&dir.join(&proof));
    let (status, body) = asked?;
    if status != 200 {
        bail!("the server at {server} cannot make a backup: {}", reason(&body));
    }
    print(&if options.json { format!("{body:#}\n") } else { made_text(&body) });
    let is_damaged = !places(&body, "damage").is_empty() || !places(&body, "damage_before").is_empty();
    Ok(if is_damaged { ExitCode::from(DAMAGED) } else { ExitCode::SUCCESS })
}

/// The exit status where the backup, or the one before, has damaged files.
const DAMAGED: u8 = 3;

fn places<'a>(body: &'a Value, of: &str) -> &'a [Value] {
    body[of].as_array().map_or(&[], Vec::as_slice)
}

fn made_text(body: &Value) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut lines = String::new();
    let (places, before) = (places(body, "damage"), places(body, "damage_before"));
    for place in before {
        lines += &format!("damaged in an earlier backup: {}: {}\n", text(&place["file"]), text(&place["why"]));
    }
    for place in places {
        lines += &format!("damaged: {}: {}: {}", text(&place["file"]), text(&place["what"]), text(&place["why"]));
        let names: Vec<&str> = place["metrics"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if !names.is_empty() {
            lines += &format!("; of metrics such as {}", names.join(", "));
        }
        lines.push('\n');
    }
    let moment = body["moment"].as_i64().map_or_else(String::new, utc);
    lines += &format!(
        "{}\neverything accepted until {moment}: {} files, {} bytes; {} files are links, {} bytes were copied\n",
        text(&body["backup"]),
        body["files"],
        body["bytes"],
        body["linked_files"],
        body["copied_bytes"]
    );
    if !places.is_empty() {
        lines += &format!(
            "{} damaged places are in the backup, too; everything else is good. Keep an older backup; see Damage in \
             docs/operating.md\n",
            places.len()
        );
    }
    let lacking = body["lacking"].as_array().map_or(0, Vec::len);
    if 0 < lacking {
        lines += &format!(
            "{lacking} files are not in the backup: a restore of it gives up what they had. Find them, or keep an older backup\n"
        );
    }
    if !before.is_empty() {
        lines += "An earlier backup is damaged; this one does not use the damaged files. Look at the disk of the backups, \
                  and verify the other backups on it\n";
    }
    lines
}

/// Makes a data folder of a backup.
pub fn restore(options: &RestoreOptions, host: &Host) -> anyhow::Result<ExitCode> {
    let restored = backup::restore(&*host.disk, &options.backup, &options.data)?;
    print(&format!(
        "restored {} to {}: {} files, {} bytes, everything accepted until {}\nThe next start replays the journal in it.\n",
        restored.backup.display(),
        options.data.display(),
        restored.manifest.files.len(),
        restored.bytes,
        utc(restored.manifest.moment)
    ));
    if !restored.gone.is_empty() {
        print(&format!(
            "{} files of rows are not in the backup: what they had is lost, and each start says so. One that is put into the folder while \
             the server is stopped is used\n",
            restored.gone.len()
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads all of a data folder or a backup; fails if something cannot be read.
pub fn verify(options: &VerifyOptions, host: &Host) -> anyhow::Result<ExitCode> {
    let disk = &*host.disk;
    // What an interrupted backup or restore left has a store, too.
    let folder = disk.canonicalize(&options.folder).unwrap_or_else(|_| options.folder.clone());
    let is_unfinished = folder.extension().is_some_and(|ending| ending == "unfinished");
    let is_data = disk.exists(&options.folder.join("store")) && !disk.exists(&options.folder.join("backup.json"));
    let data = is_data && !is_unfinished;
    if let Some(newest) = backup::newest_backup(disk, &options.folder).filter(|_| data) {
        bail!(
            "{} has a store and also backups, such as {}: nothing was read; verify a backup by its own name, or move the store (what is in \
             it besides backup-…) to a folder of its own",
            options.folder.display(),
            newest.display()
        );
    }
    let (folder, report) = if data {
        let _lock = backup::lock_to_read(disk, &options.folder)?;
        (options.folder.clone(), backup::verify(disk, &options.folder)?)
    } else {
        let folder = backup::find(disk, &options.folder)?;
        let report = backup::verify_backup(disk, &folder)?.1;
        (folder, report)
    };
    let is_named = report.faults().any(|(_, part)| part.metrics.is_some());
    let names = if is_named { store_embedded::names_of(disk, &folder.join("store")) } else { Names::new() };
    print(&if options.json {
        format!("{:#}\n", as_json(&report, &names))
    } else {
        text(&report, &names, &folder, data)
    });
    Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn as_json(report: &Report, names: &Names) -> Value {
    let part = |(file, part): (&Checked, &DamagedPart)| Value::Object(damage_text::as_json(file, part, names));
    let damage: Vec<Value> = report.faults().map(part).collect();
    let kind = |(kind, [files, bytes, faults]): (&'static str, [u64; 3])| {
        (kind.to_owned(), json!({"files": files, "bytes": bytes, "damaged_places": faults}))
    };
    let kinds: serde_json::Map<String, Value> = report.kinds().into_iter().map(kind).collect();
    json!({
        "good": report.is_good(), "files": report.files.len(), "bytes": report.bytes(), "kinds": kinds, "damage": damage,
        "cut_off": damage_text::cut_off_json(report), "known_losses": damage_text::known_losses_json(report),
        "written_again": damage_text::written_again_json(report),
    })
}

fn text(report: &Report, names: &Names, folder: &Path, is_data: bool) -> String {
    let mut text = String::new();
    for (file, part) in report.faults() {
        text += &damage_text::line(file, part, names);
        text.push('\n');
    }
    text += &damage_text::cut_off_lines(report);
    text += &damage_text::written_again_lines(report);
    text += &damage_text::known_losses(report);
    for (kind, [files, bytes, faults]) in report.kinds() {
        text += &format!("{kind:<12} {files:>8} files {bytes:>15} bytes {faults:>6} damaged places\n");
    }
    let (files, bytes, folder) = (report.files.len(), report.bytes(), folder.display());
    text += &match (report.is_good(), is_data) {
        (true, _) if report.has_known_losses() => {
            format!("good, but for what earlier damage cost: {folder}: {files} files, {bytes} bytes\n")
        }
        (true, _) => format!("good: {folder}: {files} files, {bytes} bytes\n"),
        (false, true) => format!(
            "damaged: {folder}: {} places in {files} files, {bytes} bytes; plumbago repair --dry-run says what a repair cannot keep\n",
            report.faults().count()
        ),
        (false, false) => format!(
            "damaged: {folder}: {} places in {files} files, {bytes} bytes; restore another backup, or copy this one and repair the \
             copy\n",
            report.faults().count()
        ),
    };
    text
}
