//! `plumbago schema`: the tables in Cassandra shown, created and checked.

use std::process::ExitCode;

use anyhow::Context;
use host::Host;
use metric::Retention;
use store_cassandra::{
    Options,
    schema::{self, Schema},
};
use tokio::runtime::{Builder, Runtime};

use crate::{
    carbon_files::CarbonFiles,
    cassandra_options,
    cli::{SchemaAction, SchemaActionOptions, SchemaOptions},
    config,
    output::print,
    settings::{Hosts, Kind, Settings},
};

/// Runs the action.
pub fn schema(options: &SchemaOptions, host: &Host) -> anyhow::Result<ExitCode> {
    match &options.action {
        SchemaAction::Show(options) => show(options, host),
        SchemaAction::Apply(options) => apply(options, host),
        SchemaAction::Check(options) => check(options, host),
    }
}

fn show(options: &SchemaActionOptions, host: &Host) -> anyhow::Result<ExitCode> {
    let mut settings = load(options, host)?;
    // No cluster is contacted, so none must be named.
    settings.cassandra.contact_points.get_or_insert_with(|| Hosts::read("127.0.0.1").expect("a host"));
    let (cluster, retentions) = wanted(&settings, host)?;
    print(&schema::show(&cluster, &retentions));
    Ok(ExitCode::SUCCESS)
}

fn apply(options: &SchemaActionOptions, host: &Host) -> anyhow::Result<ExitCode> {
    let (cluster, retentions) = wanted(&load(options, host)?, host)?;
    let wanted = Schema::new(&cluster, &retentions);
    runtime()?.block_on(schema::apply(&cluster, &wanted, &mut |done| print(&format!("{done}\n"))))?;
    Ok(ExitCode::SUCCESS)
}

fn check(options: &SchemaActionOptions, host: &Host) -> anyhow::Result<ExitCode> {
    let (cluster, retentions) = wanted(&load(options, host)?, host)?;
    let wanted = Schema::new(&cluster, &retentions);
    let report = runtime()?.block_on(schema::check(&cluster, &wanted))?;
    print(&report.to_string());
    Ok(if report.is_fine() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn runtime() -> anyhow::Result<Runtime> {
    Builder::new_multi_thread().enable_all().build().context("cannot start threads")
}

fn load(options: &SchemaActionOptions, host: &Host) -> anyhow::Result<Settings> {
    config::load(&options.config, options.overrides(), &*host.disk)
}

/// The cluster and the retentions that the settings ask for.
fn wanted(settings: &Settings, host: &Host) -> anyhow::Result<(Options, Vec<Retention>)> {
    let cluster = cassandra_options::options(settings, host)?
        .context("no cluster is named; give --cassandra HOST[:PORT], or cassandra.contact_points")?;
    let (rules, _) = CarbonFiles::read(&*host.disk, settings.rules.conf_dir.as_deref())?.rules()?;
    Ok((cluster, cassandra_options::retentions(rules.policies())))
}
