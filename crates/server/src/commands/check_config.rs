//! `plumbago check-config`: are the settings and carbon's files valid?

use std::{path::PathBuf, process::ExitCode, sync::Arc};

use host::{Clock, Disk, SystemClock};

use crate::{
    carbon_doors,
    carbon_files::CarbonFiles,
    certificates,
    cli::CheckOptions,
    config, exposure, limits,
    output::{print, with_causes},
    quotas, tokens,
};

/// Prints every problem; fails if there is any.
pub fn check_config(options: &CheckOptions, disk: &Arc<dyn Disk>) -> anyhow::Result<ExitCode> {
    let mut problems = Vec::new();
    config::warnings().iter().for_each(|warning| print(&format!("warning: {warning}\n")));
    let conf_dir = match config::load_listing_problems(&options.config, options.conf_dir.overrides(), &**disk)? {
        Ok(settings) => {
            problems.extend(limits::check(&settings).err());
            problems.extend(exposure::check(&settings).err());
            problems.extend(tokens::open(&settings, disk).err().as_ref().map(with_causes));
            let clock: Arc<dyn Clock> = Arc::new(SystemClock);
            problems.extend(certificates::of_http(&settings, disk, &clock).err().as_ref().map(with_causes));
            problems.extend(carbon_doors::open(&settings, disk, &clock).err().as_ref().map(with_causes));
            problems.extend(quotas::read(&settings, &**disk).err().as_ref().map(with_causes));
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
