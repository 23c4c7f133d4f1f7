//! Carbon's folder: its files read, checked, explained and watched.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::Context;
use carbon::{Decision, RuleFiles, Rules};
use ingest::Ingest;

use crate::{
    cli::{CheckOptions, ExplainOptions},
    load_settings, say, sources,
};

/// The files of carbon's folder as text, each where it is there.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Texts {
    schemas: Option<String>,
    aggregation: Option<String>,
    blacklist: Option<String>,
    whitelist: Option<String>,
}

impl Texts {
    /// Reads the folder; without one, carbon's defaults hold.
    pub fn read(dir: Option<&Path>) -> anyhow::Result<Texts> {
        let Some(dir) = dir else { return Ok(Texts::default()) };
        anyhow::ensure!(dir.is_dir(), "the conf-dir {} is not a folder; name carbon's, or none", dir.display());
        let text = |name: &str| {
            let path = dir.join(name);
            match fs::read(&path) {
                Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
            }
        };
        Ok(Texts {
            schemas: text("storage-schemas.conf")?,
            aggregation: text("storage-aggregation.conf")?,
            blacklist: text("blacklist.conf")?,
            whitelist: text("whitelist.conf")?,
        })
    }

    /// The rules, and what may not be meant; or everything that is wrong, a line each.
    pub fn rules(&self) -> anyhow::Result<(Rules, Vec<String>)> {
        let files = RuleFiles {
            schemas: self.schemas.as_deref(),
            aggregation: self.aggregation.as_deref(),
            blacklist: self.blacklist.as_deref(),
            whitelist: self.whitelist.as_deref(),
        };
        match Rules::parse(files) {
            Ok((rules, warnings)) => Ok((rules, warnings.iter().map(ToString::to_string).collect())),
            Err(errors) => {
                let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
                anyhow::bail!("carbon's files cannot be used:\n  {}", lines.join("\n  "))
            }
        }
    }
}

/// `plumbago check-config`.
pub fn check(options: &CheckOptions) -> anyhow::Result<ExitCode> {
    let sources = sources(&options.config, options.conf_dir.overrides())?;
    let mut problems = Vec::new();
    let conf_dir = match crate::settings::load(&sources) {
        Ok(settings) => settings.rules.conf_dir,
        Err(found) => {
            problems.extend(found.iter().map(ToString::to_string));
            options.conf_dir.conf_dir.clone().map(PathBuf::from)
        }
    };
    match Texts::read(conf_dir.as_deref()).and_then(|texts| texts.rules()) {
        Ok((_, warnings)) => warnings.iter().for_each(|warning| say(&format!("warning: {warning}\n"))),
        Err(error) => problems.push(format!("{error:#}")),
    }
    if problems.is_empty() {
        say(&match conf_dir {
            Some(dir) => format!("good: the settings and carbon's files in {} can be used\n", dir.display()),
            None => "good: the settings can be used; without a --conf-dir carbon's defaults hold\n".to_owned(),
        });
        return Ok(ExitCode::SUCCESS);
    }
    problems.iter().for_each(|problem| eprintln!("{problem}"));
    Ok(ExitCode::FAILURE)
}

/// `plumbago explain`.
pub fn explain(options: &ExplainOptions) -> anyhow::Result<ExitCode> {
    let settings = load_settings(&options.config, options.conf_dir.overrides())?;
    let (rules, _) = Texts::read(settings.rules.conf_dir.as_deref())?.rules()?;
    let name =
        metric::canonical_name(options.name.as_bytes()).with_context(|| format!("'{}' is refused", options.name))?;
    let explanation = rules.explain(&name);
    if !options.json {
        say(&format!("{name}\n{explanation}\n"));
        return Ok(ExitCode::SUCCESS);
    }
    let source = |source: &Option<carbon::RuleSource>| {
        source.as_ref().map(|source| {
            serde_json::json!({
                "file": source.place.file, "line": source.place.line, "section": source.place.section,
                "pattern": source.pattern,
            })
        })
    };
    let stage = |stage: &metric::Stage| serde_json::json!({"resolution": stage.resolution(), "points": stage.points()});
    let stages: Vec<_> = explanation.policy.retention.stages().iter().map(stage).collect();
    let decision = match explanation.decision {
        Decision::Keep(_) => "accepted",
        Decision::Blacklisted => "blacklisted",
        Decision::NotWhitelisted => "not_whitelisted",
    };
    let answer = serde_json::json!({
        "name": name,
        "decision": decision,
        "stages": stages,
        "aggregationMethod": explanation.policy.aggregation.name(),
        "xFilesFactor": explanation.policy.x_files_factor,
        "schema": source(&explanation.schema),
        "aggregation": source(&explanation.aggregation),
        "blacklist": source(&explanation.blacklist),
        "whitelist": source(&explanation.whitelist),
    });
    say(&format!("{answer:#}\n"));
    Ok(ExitCode::SUCCESS)
}

/// Carbon's folder while the program runs.
pub struct Watched {
    dir: Option<PathBuf>,
    texts: Texts,
    /// Whether the folder could not be read when it was last looked at.
    is_unreadable: bool,
    /// Whether the files that are there now are not those in force.
    pub refused: Arc<AtomicBool>,
}

impl Watched {
    /// The folder as it was read at the start.
    pub fn new(dir: Option<PathBuf>, texts: Texts) -> Watched {
        Watched { dir, texts, is_unreadable: false, refused: Arc::default() }
    }

    /// Looks for changes until dropped: every `every`, and at each SIGHUP. Bad files leave the old rules in force.
    pub async fn follow(mut self, ingest: Arc<Ingest>, every: Duration) {
        let mut hangups =
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).expect("signals can be taken");
        loop {
            tokio::select! {
                () = tokio::time::sleep(every.max(Duration::from_millis(100))) => {}
                _ = hangups.recv() => {}
            }
            let read = Texts::read(self.dir.as_deref());
            let changed = match read {
                Ok(texts) if texts == self.texts && !self.is_unreadable => continue,
                Ok(texts) => texts,
                // Said once, however long it lasts.
                Err(_) if self.is_unreadable => continue,
                Err(error) => {
                    self.is_unreadable = true;
                    self.refuse(&error);
                    continue;
                }
            };
            self.is_unreadable = false;
            match changed.rules() {
                Ok((rules, warnings)) => {
                    warnings.iter().for_each(|warning| tracing::warn!(warning, "carbon's files"));
                    ingest.set_rules(rules).await;
                    self.refused.store(false, Relaxed);
                    tracing::info!("carbon's files were read again and are in force");
                }
                Err(error) => self.refuse(&error),
            }
            // A bad file is said once, and looked at again when it changes.
            self.texts = changed;
        }
    }

    fn refuse(&self, error: &anyhow::Error) {
        self.refused.store(true, Relaxed);
        tracing::error!("carbon's files changed and cannot be used; the old rules stay in force: {error:#}");
    }
}
