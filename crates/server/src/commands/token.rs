//! `plumbago token`: adds, lists and revokes the tokens of a file.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, bail};
use host::{Disk, Host, Open};
use toml::Value;

use crate::{
    cli::{TokenAction, TokenAddOptions, TokenOptions, TokenRevokeOptions},
    config,
    output::print,
    tokens::{Entry, TokenFile, hash, section, without},
};

/// The contents of a file without tokens.
const NO_TOKENS: &str = "# No tokens.\n";

/// Does what is asked with the file of tokens. A running server reads the file again within rules.reload_every.
pub fn token(options: &TokenOptions, host: &Host) -> anyhow::Result<ExitCode> {
    let settings = config::load(&options.config, options.overrides(), &*host.disk)?;
    let file = settings.http.tokens.context("no file of tokens is named; give --file FILE or set http.tokens")?;
    match &options.action {
        TokenAction::Add(add) => self::add(&file, add, host),
        TokenAction::List => list(&file, &*host.disk),
        TokenAction::Revoke(revoke) => self::revoke(&file, revoke, &*host.disk),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn add(file: &Path, options: &TokenAddOptions, host: &Host) -> anyhow::Result<()> {
    let TokenAddOptions { name, scopes, prefixes, tags, user, .. } = options;
    let text = if host.disk.exists(file) { read(file, &*host.disk)? } else { String::new() };
    let known = parse(file, &text)?;
    if known.has(name) {
        bail!("{} has '{name}' already; revoke it first, or choose another name", file.display());
    }
    let random = || format!("{:032x}", host.random.bits_128());
    let token = format!("plumbago_{}{}", random(), random());
    let given = if *user { None } else { Some(hash(&token)) };
    let begin = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    let section = section(name, given.as_deref(), scopes, prefixes, tags);
    let limits = [
        ("points_per_second", options.points_per_second),
        ("creations_per_minute", options.creations_per_minute),
        ("max_metrics", options.max_metrics),
        ("queries", options.queries),
        ("events_per_minute", options.events_per_minute),
    ];
    let limits = limits.iter().filter_map(|(key, limit)| Some(format!("{key} = {}\n", limit.as_ref()?)));
    let memory = options.query_memory.iter().map(|bytes| format!("query_memory = {}\n", Value::String(bytes.clone())));
    let text = format!("{text}{begin}{section}{}", limits.chain(memory).collect::<String>());
    parse(file, &text).context("nothing was written")?;
    write(file, &text, &*host.disk)?;
    match user {
        true => eprintln!("added the user '{name}' of a proxy to {}", file.display()),
        false => {
            eprintln!("added '{name}' to {}; this is its token, which is not shown again:", file.display());
            print(&format!("{token}\n"));
        }
    }
    Ok(())
}

fn list(file: &Path, disk: &dyn Disk) -> anyhow::Result<()> {
    for Entry { hash, viewer } in parse(file, &read(file, disk)?)?.entries {
        let scopes: Vec<&str> = viewer.scopes.iter().map(|scope| scope.name()).collect();
        let kind = if hash.is_some() { "token" } else { "user" };
        let names = viewer.names.as_ref().map_or_else(|| "all names".to_owned(), ToString::to_string);
        print(&format!("{:<24} {kind:<6} {:<24} {names}\n", viewer.name, scopes.join(",")));
    }
    Ok(())
}

fn revoke(file: &Path, options: &TokenRevokeOptions, disk: &dyn Disk) -> anyhow::Result<()> {
    let text = read(file, disk)?;
    parse(file, &text)?;
    let Some(rest) = without(&text, &options.name) else {
        bail!("{} does not have '{}'; `plumbago token list` shows what it has", file.display(), options.name);
    };
    parse(file, &rest).context("nothing was written")?;
    write(file, &rest, disk)?;
    eprintln!("revoked '{}'; a running server follows within rules.reload_every", options.name);
    Ok(())
}

fn read(file: &Path, disk: &dyn Disk) -> anyhow::Result<String> {
    disk.read_to_string(file).with_context(|| format!("cannot read the file of tokens {}", file.display()))
}

fn parse(file: &Path, text: &str) -> anyhow::Result<TokenFile> {
    let parsed = TokenFile::read(text).map_err(anyhow::Error::msg);
    parsed.with_context(|| format!("cannot use the file of tokens {}", file.display()))
}

/// Writes in place, so that the file keeps its owner and its rights: the server's user must be able to read it. A whole copy is on
/// the disk meanwhile: a full disk changes nothing, and after a crash the copy has what is lost.
fn write(file: &Path, text: &str, disk: &dyn Disk) -> anyhow::Result<()> {
    // An empty file is taken for a lost one.
    let text = if text.trim().is_empty() { NO_TOKENS } else { text };
    let write = |path: &Path| {
        let mut open = disk.open(path, Open::Create)?;
        open.write_all(text.as_bytes())?;
        open.sync_all()
    };
    let mut copy = file.as_os_str().to_owned();
    copy.push(".new");
    let copy = PathBuf::from(copy);
    let failed = || format!("cannot write the file of tokens {}", file.display());
    if let Err(error) = write(&copy) {
        disk.remove_file(&copy).ok();
        return Err(error).with_context(failed);
    }
    write(file).with_context(|| format!("{}; all of it is in {}", failed(), copy.display()))?;
    disk.remove_file(&copy).with_context(|| format!("cannot remove {}", copy.display()))
}
