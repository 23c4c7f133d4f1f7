//! `plumbago schema`: the tables in Cassandra shown, made, and checked.

use std::process::ExitCode;

use anyhow::Context;
use metric::Retention;
use store_cassandra::{Options, schema};

use crate::{
    cli::{SchemaAction, SchemaActionOptions, SchemaOptions},
    cluster, load_settings,
    rules::Texts,
    say,
    settings::{Hosts, Kind, Settings},
};

/// Does what is asked.
pub fn schema(options: &SchemaOptions) -> anyhow::Result<ExitCode> {
    match &options.action {
        SchemaAction::Show(options) => show(options),
        SchemaAction::Apply(options) => apply(options),
        SchemaAction::Check(options) => check(options),
    }
}

fn show(options: &SchemaActionOptions) -> anyhow::Result<ExitCode> {
    let mut settings = load_settings(&options.config, options.overrides())?;
    // Nobody is asked, so no cluster need be named.
    settings.cassandra.contact_points.get_or_insert_with(|| Hosts::read("127.0.0.1").expect("a host"));
    let retentions = retentions(&settings)?;
    say(&schema::show(&cluster_options(&settings)?, &retentions));
    Ok(ExitCode::SUCCESS)
}

fn apply(options: &SchemaActionOptions) -> anyhow::Result<ExitCode> {
    let settings = load_settings(&options.config, options.overrides())?;
    let (cluster, retentions) = (cluster_options(&settings)?, retentions(&settings)?);
    let wanted = schema::Schema::new(&cluster, &retentions);
    runtime()?.block_on(schema::apply(&cluster, &wanted, &mut |done| say(&format!("{done}\n"))))?;
    Ok(ExitCode::SUCCESS)
}

fn check(options: &SchemaActionOptions) -> anyhow::Result<ExitCode> {
    let settings = load_settings(&options.config, options.overrides())?;
    let (cluster, retentions) = (cluster_options(&settings)?, retentions(&settings)?);
    let wanted = schema::Schema::new(&cluster, &retentions);
    let report = runtime()?.block_on(schema::check(&cluster, &wanted))?;
    say(&report.to_string());
    Ok(if report.is_fine() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")
}

fn cluster_options(settings: &Settings) -> anyhow::Result<Options> {
    cluster::options(settings)?
        .context("no cluster is named; give --cassandra HOST[:PORT], or cassandra.contact_points")
}

fn retentions(settings: &Settings) -> anyhow::Result<Vec<Retention>> {
    let (rules, _) = Texts::read(settings.rules.conf_dir.as_deref())?.rules()?;
    Ok(cluster::retentions(rules.policies()))
}
