//! Tokens as the settings ask for them.

use std::sync::Arc;

use anyhow::Context;
use api::Doorkeeper;
use host::Disk;

use super::{bearers::Bearers, watcher::TokenWatcher};
use crate::settings::Settings;

/// Who decides on senders of requests, and what keeps the tokens up to date.
pub struct Tokens {
    pub doorkeeper: Arc<dyn Doorkeeper>,
    pub watcher: Option<Arc<TokenWatcher>>,
}

/// Reads the file of tokens, if the settings name one. Without one everyone may do everything.
pub fn open(settings: &Settings, disk: &Arc<dyn Disk>) -> anyhow::Result<Tokens> {
    let http = &settings.http;
    let Some(path) = &http.tokens else {
        anyhow::ensure!(http.proxies.is_none(), "http.proxies needs http.tokens: that file says what each user may do");
        return Ok(Tokens { doorkeeper: Arc::new(()), watcher: None });
    };
    let cannot = || format!("cannot use the file of tokens {} (http.tokens)", path.display());
    let text = disk.read_to_string(path).with_context(cannot)?;
    let proxy = http.proxies.clone().map(|proxies| (http.proxy_header.to_ascii_lowercase(), proxies));
    let prefixes = settings.listeners.iter().filter_map(|listener| listener.prefix.clone());
    let bearers = Arc::new(Bearers::new(proxy, prefixes.collect()));
    if bearers.replace(&text).map_err(anyhow::Error::msg).with_context(cannot)? == 0 {
        tracing::warn!(file = %path.display(), "the file of tokens is empty: no request is answered; `plumbago token add` adds one");
    }
    let watcher = TokenWatcher::new(disk.clone(), path.clone(), text, bearers.clone());
    Ok(Tokens { doorkeeper: bearers, watcher: Some(Arc::new(watcher)) })
}
