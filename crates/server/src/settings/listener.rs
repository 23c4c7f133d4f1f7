//! `[[listener]]`: any number of further listeners for carbon's protocols, each with restrictions of its own.

use std::path::PathBuf;

use super::{
    doors::TlsClients,
    group::group,
    kinds::{Address, Kind, Optional, must_be},
};
use crate::tokens::Proxies;

/// One key of `[[listener]]`, as documentation and loaders see it.
pub struct ListenerKey {
    pub key: &'static str,
    /// What it is for, in sentences.
    pub doc: &'static str,
    /// What values it takes.
    pub takes: &'static str,
    /// Whether TOML writes its values in quotes.
    pub quoted: bool,
    /// Reads a value from text. The error says what the value must be.
    pub set: fn(&mut Listener, &str) -> Result<(), String>,
    /// The value as the text `set` reads.
    pub show: fn(&Listener) -> String,
}

macro_rules! listener {
    ($( $(#[doc = $doc:literal])+ $key:ident: $kind:ty = $default:literal; )+) => {
        group! { Listener { $( $(#[doc = $doc])+ $key: $kind = $default; )+ } }

        /// The keys of `[[listener]]`, in order.
        pub const LISTENER_KEYS: &[ListenerKey] = &[$(
            ListenerKey {
                key: stringify!($key),
                doc: concat!($($doc),+),
                takes: <$kind as Kind>::TAKES,
                quoted: <$kind as Kind>::QUOTED,
                set: |listener, text| {
                    listener.$key = <$kind as Kind>::read(text)?;
                    Ok(())
                },
                show: |listener| listener.$key.write(),
            }
        ),+];
    };
}

/// What the section is for.
pub const LISTENER_DOC: &str = "Further listeners for points, as many as needed, in the file alone: each `[[listener]]` \
    has a protocol, an address and restrictions. Carbon's protocols have no credentials, so the listener says who sends. \
    Those of `[listen]` have no restrictions.";

listener! {
    /// The name in logs and metrics. Required, and another one for each.
    name: ListenerName = "off";
    /// "line", "pickle" and "protobuf" over TCP, or "udp": lines in datagrams. "udp" takes no TLS, and addresses that other machines
    /// reach need `networks`.
    protocol: ListenerProtocol = "line";
    /// The address and port. Required. Other machines may reach it without `listen.insecure` if it has `networks`, `tokens` or a
    /// `tls_client_ca` that is required.
    address: Option<Address> = "off";
    /// PEM file of the certificate, and those between it and an authority. Turns TLS on. Read again every rules.reload_every and at
    /// SIGHUP.
    tls_certificate: Option<PathBuf> = "off";
    /// PEM file of its key.
    tls_key: Option<PathBuf> = "off";
    /// PEM file of the authorities that sign certificates of senders.
    tls_client_ca: Option<PathBuf> = "off";
    /// Whether senders need a certificate where there is a tls_client_ca: "require", or "optional", which refuses invalid
    /// certificates alone.
    tls_clients: TlsClients = "require";
    /// Addresses that may send, such as "10.0.0.5,10.1.0.0/16". Others are closed at once and counted.
    networks: Option<Proxies> = "off";
    /// The beginning of the names, with a dot at its end: "blue.".
    prefix: Option<String> = "off";
    /// "require" rejects names that do not begin with the prefix, "prepend" puts it before every name, "allow" before those that do
    /// not begin with it.
    prefix_rule: PrefixRuleText = "require";
    /// Hashes of tokens, "sha256:…" as `plumbago token add` writes them, separated by commas. The first component of each name is
    /// then one of these tokens, and not a part of the name: "TOKEN.servers.a.cpu 1 1700000000".
    tokens: TokenHashes = "off";
    /// Concurrent connections. A further one is closed at once and counted.
    max_connections: usize = "10000";
    /// Concurrent connections of one address, or of one /64 of IPv6. A further one is closed at once and counted.
    connections_per_address: Option<usize> = "off";
    /// Points a second of all senders together, and at once. Further ones are rejected and counted.
    points_per_second: Option<usize> = "off";
    /// New metrics a minute. Points of further ones are rejected and counted.
    creations_per_minute: Option<usize> = "off";
    /// Metrics below the prefix, whichever listener made them. Points of further new ones are rejected and counted.
    max_metrics: Option<usize> = "off";
}

/// The name of a listener; empty until it is given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListenerName(pub String);

impl Kind for ListenerName {
    const TAKES: &'static str = "1 to 64 letters, digits, '-' and '_'";

    fn read(text: &str) -> Result<ListenerName, String> {
        if text == "off" {
            return Ok(ListenerName::default());
        }
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        let is_name = (1..=64).contains(&text.len()) && text.bytes().all(is_valid);
        if is_name { Ok(ListenerName(text.to_owned())) } else { Err(must_be::<ListenerName>(text)) }
    }

    fn write(&self) -> String {
        if self.0.is_empty() { "off".to_owned() } else { self.0.clone() }
    }
}

/// A protocol of carbon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenerProtocol {
    Line,
    Udp,
    Pickle,
    Protobuf,
}

impl Kind for ListenerProtocol {
    const TAKES: &'static str = "\"line\", \"udp\", \"pickle\" or \"protobuf\"";

    fn read(text: &str) -> Result<ListenerProtocol, String> {
        match text {
            "line" => Ok(ListenerProtocol::Line),
            "udp" => Ok(ListenerProtocol::Udp),
            "pickle" => Ok(ListenerProtocol::Pickle),
            "protobuf" => Ok(ListenerProtocol::Protobuf),
            _ => Err(must_be::<ListenerProtocol>(text)),
        }
    }

    fn write(&self) -> String {
        match self {
            ListenerProtocol::Line => "line",
            ListenerProtocol::Udp => "udp",
            ListenerProtocol::Pickle => "pickle",
            ListenerProtocol::Protobuf => "protobuf",
        }
        .to_owned()
    }
}

/// What becomes of a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefixRuleText(pub ingest::PrefixRule);

impl Kind for PrefixRuleText {
    const TAKES: &'static str = "\"allow\", \"require\" or \"prepend\"";

    fn read(text: &str) -> Result<PrefixRuleText, String> {
        match text {
            "allow" => Ok(PrefixRuleText(ingest::PrefixRule::Allow)),
            "require" => Ok(PrefixRuleText(ingest::PrefixRule::Require)),
            "prepend" => Ok(PrefixRuleText(ingest::PrefixRule::Prepend)),
            _ => Err(must_be::<PrefixRuleText>(text)),
        }
    }

    fn write(&self) -> String {
        match self.0 {
            ingest::PrefixRule::Allow => "allow",
            ingest::PrefixRule::Require => "require",
            ingest::PrefixRule::Prepend => "prepend",
        }
        .to_owned()
    }
}

/// Hashes of tokens; empty without any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenHashes(pub Vec<ingest::TokenHash>);

impl Kind for TokenHashes {
    const TAKES: &'static str =
        "hashes such as \"sha256:…\" with 64 hexadecimal digits, separated by commas, or \"off\"";

    fn read(text: &str) -> Result<TokenHashes, String> {
        if text == "off" {
            return Ok(TokenHashes(Vec::new()));
        }
        // Never the text: it may be a token.
        let hashes = text.split(',').map(|hash| hash_of(hash.trim())).collect::<Option<Vec<_>>>();
        hashes.map(TokenHashes).ok_or_else(|| format!("must be {}", TokenHashes::TAKES))
    }

    fn write(&self) -> String {
        if self.0.is_empty() {
            return "off".to_owned();
        }
        let digits = |hash: &ingest::TokenHash| hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        self.0.iter().map(|hash| format!("sha256:{}", digits(hash))).collect::<Vec<_>>().join(",")
    }
}

impl Optional for usize {
    const TAKES_OR_OFF: &'static str = "a whole number, at least 1, or \"off\"";
}

fn hash_of(text: &str) -> Option<ingest::TokenHash> {
    let digits = text.strip_prefix("sha256:").filter(|digits| digits.len() == 64)?;
    let (pairs, _) = digits.as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    pairs.iter().map(byte).collect::<Option<Vec<u8>>>()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_reads_back_as_written() {
        let defaults = Listener::default();
        for key in LISTENER_KEYS {
            let mut again = Listener::default();
            let text = (key.show)(&defaults);
            (key.set)(&mut again, &text).unwrap_or_else(|error| panic!("{}: {error}", key.key));
            assert_eq!((key.show)(&again), text, "{}", key.key);
        }
    }

    #[test]
    fn hashes_are_read_as_they_are_written_and_a_token_is_not_shown() {
        let text = format!("sha256:{},sha256:{}", "0a".repeat(32), "ff".repeat(32));
        assert_eq!(TokenHashes::read(&text).unwrap().write(), text);
        for bad in ["hunter2", "sha256:", &format!("sha256:{}", "0g".repeat(32)), &text[1..]] {
            let error = TokenHashes::read(bad).unwrap_err();
            assert!(!error.contains("hunter2") && error.starts_with("must be hashes"), "{error}");
        }
    }

    #[test]
    fn a_name_fits_logs_and_labels() {
        assert!(ListenerName::read("blue-1_a").is_ok());
        for bad in ["", "a b", "a.b", "\"", &"a".repeat(65)] {
            assert!(ListenerName::read(bad).is_err(), "{bad}");
        }
    }
}
