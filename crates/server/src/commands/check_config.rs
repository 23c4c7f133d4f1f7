//! `plumbago check-config`: are the settings and carbon's files valid?

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use host::{Clock, Disk, Open, SystemClock};

use crate::{
    addresses, carbon_doors,
    carbon_files::CarbonFiles,
    certificates,
    cli::CheckOptions,
    config, exposure, limits,
    output::{print, with_causes},
    peers::PeerSecrets,
    quotas,
    settings::{Log, Settings},
    tokens,
};

/// Prints every problem; fails if there is any.
pub fn check_config(options: &CheckOptions, disk: &Arc<dyn Disk>) -> anyhow::Result<ExitCode> {
    let mut warnings = config::warnings();
    let (settings, wrong) = config::load_valid(&options.config, options.conf_dir.overrides(), &**disk)?;
    let mut problems: Vec<String> = wrong.iter().map(ToString::to_string).collect();
    // These compare settings with each other.
    if wrong.is_empty() {
        problems.extend(limits::check(&settings).err());
        problems.extend(addresses::check(&settings).err());
        problems.extend(exposure::check(&settings).err());
    }
    problems.extend(problems_of_files(&settings, disk));
    match quotas::read(&settings, &**disk) {
        Ok((_, of_quotas)) => warnings.extend(of_quotas.iter().map(ToString::to_string)),
        Err(error) => problems.push(with_causes(&error)),
    }
    let conf_dir = settings.rules.conf_dir;
    match CarbonFiles::read(&**disk, conf_dir.as_deref()).and_then(|files| files.rules()) {
        Ok((_, of_files)) => warnings.extend(of_files),
        Err(error) => problems.push(with_causes(&error)),
    }
    warnings.iter().for_each(|warning| print(&format!("warning: {warning}\n")));
    problems.iter().for_each(|problem| eprintln!("{problem}"));
    if !problems.is_empty() {
        if !wrong.is_empty() {
            eprintln!("how settings fit each other is checked once these are valid");
        }
        return Ok(ExitCode::FAILURE);
    }
    let valid = match conf_dir {
        Some(dir) => format!("the settings and carbon's files in {} are valid", dir.display()),
        None => "the settings are valid; without --conf-dir carbon's defaults hold".to_owned(),
    };
    print(&match warnings.len() {
        0 => format!("good: {valid}\n"),
        1 => format!("{valid}, with 1 warning: see above\n"),
        number => format!("{valid}, with {number} warnings: see above\n"),
    });
    Ok(ExitCode::SUCCESS)
}

/// What is wrong with the files that settings name.
fn problems_of_files(settings: &Settings, disk: &Arc<dyn Disk>) -> Vec<String> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let secret = settings.peers.secret_file.as_ref().map(|path| PeerSecrets::read(path, &**disk));
    let opened = [
        tokens::open(settings, disk).err().as_ref().map(with_causes),
        certificates::of_http(settings, disk, &clock).err().as_ref().map(with_causes),
        carbon_doors::open(settings, disk, &clock).err().as_ref().map(with_causes),
        secret.and_then(Result::err).as_ref().map(with_causes),
    ];
    opened.into_iter().flatten().chain(unwritable_logs(&settings.log, &**disk)).collect()
}

/// The logs that cannot be written, as far as that shows without a change: no file is made.
fn unwritable_logs(log: &Log, disk: &dyn Disk) -> Vec<String> {
    let logs = [("log.queries", &log.queries), ("log.slow_queries", &log.slow_queries), ("log.audit", &log.audit)];
    let problem = |(key, path): (&str, &Option<PathBuf>)| {
        let path = path.as_ref()?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let opened = match disk.exists(path) {
            true => disk.open(path, Open::ReadWrite).map(drop),
            false => disk.read_dir(folder).map(drop),
        };
        opened.err().map(|error| format!("cannot write {} ({key}): {error}", path.display()))
    };
    logs.into_iter().filter_map(problem).collect()
}
