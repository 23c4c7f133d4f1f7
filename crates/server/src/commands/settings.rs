//! `plumbago settings`: every setting with its documentation.

use std::process::ExitCode;

use host::Disk;

use crate::{
    cli::SettingsOptions,
    config,
    output::print,
    settings::{documented_toml, markdown},
};

/// Prints a settings file with the values in force, or the page docs/settings.md.
pub fn settings(options: &SettingsOptions, disk: &dyn Disk) -> anyhow::Result<ExitCode> {
    if options.markdown {
        print(&markdown());
    } else {
        print(&documented_toml(&config::load(&options.config, vec![], disk)?));
    }
    Ok(ExitCode::SUCCESS)
}
