//! The settings in force: from the file, the environment and the options of the command line.

use anyhow::Context;
use host::Disk;

use crate::{
    cli::ConfigOption,
    settings::{self, Overrides, Problem, Settings, Sources},
};

/// The settings, or one error that lists everything wrong with them.
pub fn load(config: &ConfigOption, overrides: Overrides, disk: &dyn Disk) -> anyhow::Result<Settings> {
    let (settings, problems) = load_valid(config, overrides, disk)?;
    let lines: Vec<String> = problems.iter().map(Problem::to_string).collect();
    if lines.is_empty() {
        return Ok(settings);
    }
    Err(anyhow::anyhow!("invalid settings; `plumbago settings` prints the valid values\n  {}", lines.join("\n  ")))
}

/// The settings that are valid, with defaults for the others, and each thing wrong with those.
///
/// # Errors
/// The settings file cannot be read.
pub fn load_valid(
    config: &ConfigOption,
    overrides: Overrides,
    disk: &dyn Disk,
) -> anyhow::Result<(Settings, Vec<Problem>)> {
    let path = config.config.clone().or_else(|| std::env::var_os("PLUMBAGO_CONFIG").map(Into::into));
    let file = match path {
        Some(path) => {
            let text = disk.read_to_string(&path).with_context(|| {
                format!(
                    "cannot read the settings file {}; `plumbago settings` prints one to start from",
                    path.display()
                )
            })?;
            Some((path.display().to_string(), text))
        }
        None => None,
    };
    Ok(settings::load_valid(&Sources { file, environment: environment(), options: overrides }))
}

/// Warnings about variables that look like settings and have no effect.
pub fn warnings() -> Vec<String> {
    settings::ignored_variables(&environment())
}

fn environment() -> Vec<(String, String)> {
    // A variable that is not UTF-8 is not one of ours.
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}
