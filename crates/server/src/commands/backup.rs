//! `plumbago backup`, `restore` and `verify`.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, bail};
use backup::{Fault, Report};
use host::{Host, Open};
use serde_json::{Value, json};

use super::ask::{address, reason, request};
use crate::{
    cli::{BackupOptions, RestoreOptions, VerifyOptions},
    config,
    output::print,
};

/// Asks the server on this machine for a backup into a folder.
pub fn backup(options: &BackupOptions, host: &Host) -> anyhow::Result<ExitCode> {
    let disk = &*host.disk;
    let settings = config::load(&options.config, options.overrides(), disk)?;
    let address = address(&settings, "the server has no HTTP port (listen.http is off); set one to make backups")?;
    disk.create_dir_all(&options.dir).with_context(|| format!("cannot make {}", options.dir.display()))?;
    let dir = disk.canonicalize(&options.dir)?;
    let proof = format!(".plumbago-{:016x}", host.random.bits());
    disk.open(&dir.join(&proof), Open::CreateNew).with_context(|| format!("cannot write to {}", dir.display()))?;
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.append_pair("dir", &dir.to_string_lossy()).append_pair("proof", &proof);
    let asked = request(&address, "POST", "/admin/backup", &form.finish());
    let _ = disk.remove_file(&dir.join(&proof));
    let (status, body) = asked?;
    if status != 200 {
        bail!("the server at {address} cannot make a backup: {}", reason(&body));
    }
    print(&if options.json {
        format!("{body:#}\n")
    } else {
        let text = |key: &str| {
            body.get(key)
                .map_or_else(String::new, |value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
        };
        format!(
            "{}\n{} of {}: {} files, {} bytes; {} files are links, {} bytes were copied\n",
            text("backup"),
            "everything accepted until",
            text("moment"),
            text("files"),
            text("bytes"),
            text("linked_files"),
            text("copied_bytes")
        )
    });
    Ok(ExitCode::SUCCESS)
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
        restored.manifest.moment
    ));
    Ok(ExitCode::SUCCESS)
}

/// Reads all of a data folder or a backup; fails if something cannot be read.
pub fn verify(options: &VerifyOptions, host: &Host) -> anyhow::Result<ExitCode> {
    let disk = &*host.disk;
    if options.folder.extension().is_some_and(|ending| ending == "unfinished") {
        bail!("{} is of an interrupted backup or restore; the next one removes it", options.folder.display());
    }
    let report = if disk.exists(&options.folder.join("store")) && !disk.exists(&options.folder.join("backup.json")) {
        let _lock = backup::lock(disk, &options.folder)
            .context("a running server reads its files itself; see damage in /admin/status")?;
        backup::verify(disk, &options.folder)?
    } else {
        backup::verify_backup(disk, &options.folder)?.1
    };
    print(&if options.json { format!("{:#}\n", as_json(&report)) } else { table(&report) });
    Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn as_json(report: &Report) -> Value {
    let fault = |(path, fault): (&PathBuf, &Fault)| {
        json!({
            "file": path.display().to_string(), "what": fault.what, "offset": fault.offset, "bytes": fault.bytes, "why": fault.how,
            "metric_ids": fault.metrics.map(|(first, last)| [first.0, last.0]),
            "span": fault.span.map(|(from, until)| [from, until]),
        })
    };
    let faults: Vec<Value> = report.faults().map(|(file, found)| fault((&file.path, found))).collect();
    let kind = |(kind, [files, bytes, faults]): (&'static str, [u64; 3])| {
        (kind.to_owned(), json!({"files": files, "bytes": bytes, "damaged_places": faults}))
    };
    let kinds: serde_json::Map<String, Value> = report.kinds().into_iter().map(kind).collect();
    json!({
        "good": report.is_good(), "files": report.files.len(), "bytes": report.bytes(), "kinds": kinds, "damage": faults,
    })
}

fn table(report: &Report) -> String {
    let mut text = String::new();
    for (file, fault) in report.faults() {
        let Fault { what, offset, bytes, how, metrics, span } = fault;
        text += &format!("{}: {what}, {bytes} bytes at {offset}: {how}", file.path.display());
        if let Some((first, last)) = metrics {
            text += &format!("; metrics {first} to {last}");
        }
        if let Some((from, until)) = span {
            text += &format!("; points from {from} to {until}");
        }
        text.push('\n');
    }
    for (kind, [files, bytes, faults]) in report.kinds() {
        text += &format!("{kind:<12} {files:>8} files {bytes:>15} bytes {faults:>6} damaged places\n");
    }
    let (files, bytes) = (report.files.len(), report.bytes());
    text += &match report.is_good() {
        true => format!("good: {files} files, {bytes} bytes\n"),
        false => format!("damaged: {} places in {files} files, {bytes} bytes\n", report.faults().count()),
    };
    text
}
