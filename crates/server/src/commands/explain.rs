//! `plumbago explain`: the rules that hold for a metric name.

use std::process::ExitCode;

use anyhow::Context;
use carbon::{Decision, Explanation};
use host::Disk;
use metric::Stage;
use serde_json::{Value, json};

use crate::{carbon_files::CarbonFiles, cli::ExplainOptions, config, output::print};

/// Prints the rules with the file and line of each.
pub fn explain(options: &ExplainOptions, disk: &dyn Disk) -> anyhow::Result<ExitCode> {
    let settings = config::load(&options.config, options.conf_dir.overrides(), disk)?;
    let (rules, _) = CarbonFiles::read(disk, settings.rules.conf_dir.as_deref())?.rules()?;
    let name =
        metric::canonical_name(options.name.as_bytes()).with_context(|| format!("'{}' is rejected", options.name))?;
    let explanation = rules.explain(&name);
    print(&match options.json {
        true => format!("{:#}\n", as_json(&name, &explanation)),
        false => format!("{name}\n{explanation}\n"),
    });
    Ok(ExitCode::SUCCESS)
}

fn as_json(name: &str, explanation: &Explanation) -> Value {
    let source = |source: &Option<carbon::RuleSource>| {
        source.as_ref().map(|source| {
            json!({
                "file": source.place.file, "line": source.place.line, "section": source.place.section,
                "pattern": source.pattern,
            })
        })
    };
    let stage = |stage: &Stage| json!({"resolution": stage.resolution(), "points": stage.points()});
    let stages: Vec<_> = explanation.policy.retention.stages().iter().map(stage).collect();
    let decision = match explanation.decision {
        Decision::Keep(_) => "accepted",
        Decision::Blacklisted => "blacklisted",
        Decision::NotWhitelisted => "not_whitelisted",
    };
    json!({
        "name": name,
        "decision": decision,
        "stages": stages,
        "aggregationMethod": explanation.policy.methods().to_string(),
        "xFilesFactor": explanation.policy.x_files_factor,
        "schema": source(&explanation.schema),
        "aggregation": source(&explanation.aggregation),
        "blacklist": source(&explanation.blacklist),
        "whitelist": source(&explanation.whitelist),
    })
}
