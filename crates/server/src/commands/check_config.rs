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
    settings::Log,
    tokens,
};

/// Prints every problem; fails if there is any.
pub fn check_config(options: &CheckOptions, disk: &Arc<dyn Disk>) -> anyhow::Result<ExitCode> {
    let mut problems = Vec::new();
    config::warnings().iter().for_each(|warning| print(&format!("warning: {warning}\n")));
    let conf_dir = match config::load_listing_problems(&options.config, options.conf_dir.overrides(), &**disk)? {
        Ok(settings) => {
            problems.extend(limits::check(&settings).err());
            problems.extend(addresses::check(&settings).err());
            problems.extend(exposure::check(&settings).err());
            problems.extend(tokens::open(&settings, disk).err().as_ref().map(with_causes));
            let clock: Arc<dyn Clock> = Arc::new(SystemClock);
            problems.extend(certificates::of_http(&settings, disk, &clock).err().as_ref().map(with_causes));
            problems.extend(carbon_doors::open(&settings, disk, &clock).err().as_ref().map(with_causes));
            problems.extend(quotas::read(&settings, &**disk).err().as_ref().map(with_causes));
            let secret = settings.peers.secret_file.as_ref().map(|path| PeerSecrets::read(path, &**disk));
            problems.extend(secret.and_then(Result::err).as_ref().map(with_causes));
            problems.extend(unwritable_logs(&settings.log, &**disk));
            settings.rules.conf_dir
        }
        Err(found) => {
            problems.extend(found.iter().map(ToString::to_string));
            options.conf_dir.conf_dir.clone().map(PathBuf::from)
        }
    };
    match CarbonFiles::read(&**disk, conf_dir.as_deref()).and_then(|files| files.rules()) {
        Ok((_, warnings)) => warnings.iter().for_each(|warning| print(&format!("warning: {warning}\n"))),
        Err(error) => problems.push(with_causes(&error)),
    }
    if problems.is_empty() {
        print(&match conf_dir {
            Some(dir) => format!("good: the settings and carbon's files in {} are valid\n", dir.display()),
            None => "good: the settings are valid; without --conf-dir carbon's defaults hold\n".to_owned(),
        });
        return Ok(ExitCode::SUCCESS);
    }
    problems.iter().for_each(|problem| eprintln!("{problem}"));
    Ok(ExitCode::FAILURE)
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
