//! Which listeners other machines reach without a credential, and whether the settings allow that.

use crate::{
    carbon_doors, certificates,
    settings::{Address, Listener, ListenerProtocol, Settings},
};

/// A listener that everyone who reaches this machine can use.
#[derive(Debug, PartialEq, Eq)]
struct Exposed {
    /// Its key below `listen`, or `[[listener]]` and its name.
    key: String,
    address: Address,
    /// What everyone can do there.
    rights: &'static str,
}

/// The listeners that other machines reach.
fn exposed(settings: &Settings) -> Vec<Exposed> {
    let listen = &settings.listen;
    let admin = listen.admin.next_to(listen.http.as_ref());
    let write = "write metrics";
    let all = [
        ("line", listen.line.clone(), write),
        ("pickle", listen.pickle.clone(), write),
        ("protobuf", listen.protobuf.clone(), write),
        ("http", listen.http.clone(), "read and write metrics and events"),
        ("admin", admin, "delete metrics, make backups and read the server's state"),
    ];
    // Tokens guard HTTP, and so do certificates of clients.
    let asks = |key: &str| {
        let has_tls = key == "http" || certificates::admin_has_tls(settings);
        let asks_for_certificates = has_tls && certificates::http_asks_for_certificates(settings);
        matches!(key, "http" | "admin") && (settings.http.tokens.is_some() || asks_for_certificates)
    };
    let open = all.into_iter().filter(|(key, ..)| !asks(key));
    let open = open
        .filter_map(|(key, address, rights)| Some(Exposed { key: format!("listen.{key}"), address: address?, rights }));
    // `carbon_doors` refuses UDP without networks, which nothing else allows.
    let asks_nothing =
        |listener: &&Listener| listener.protocol != ListenerProtocol::Udp && !carbon_doors::is_guarded(listener);
    let listeners = settings.listeners.iter().filter(asks_nothing);
    let listeners = listeners.filter_map(|listener| {
        let key = format!("[[listener]] {}: address", listener.name.0);
        Some(Exposed { key, address: listener.address.clone()?, rights: write })
    });
    open.chain(listeners).filter(|exposed| !exposed.address.is_loopback()).collect()
}

/// Logs a warning for each listener that other machines reach.
///
/// # Errors
/// There are such listeners, and `listen.insecure` does not allow them.
pub fn check(settings: &Settings) -> Result<(), String> {
    let is_plain = settings.http.tls_certificate.is_none();
    if is_plain
        && settings.http.tokens.is_some()
        && settings.listen.http.as_ref().is_some_and(|http| !http.is_loopback())
    {
        tracing::warn!(
            "tokens and points travel unencrypted at listen.http: turn TLS on (http.tls_certificate, http.tls_key), or let a proxy with TLS stand before other networks"
        );
    }
    for listener in &settings.listeners {
        let is_public = listener.address.as_ref().is_some_and(|address| !address.is_loopback());
        if is_public && !listener.tokens.0.is_empty() && listener.tls_certificate.is_none() {
            tracing::warn!(
                listener = listener.name.0,
                "tokens of senders travel unencrypted: give the listener a tls_certificate"
            );
        }
    }
    let exposed = exposed(settings);
    if settings.listen.insecure {
        for Exposed { key, address, rights } in exposed {
            tracing::warn!(%address, "everyone who reaches {key} can {rights} (listen.insecure)");
        }
        return Ok(());
    }
    if exposed.is_empty() {
        return Ok(());
    }
    let mut text = "other machines reach these addresses, and nothing asks them for a credential:\n".to_owned();
    for Exposed { key, address, rights } in exposed {
        text += &format!("  {key} = \"{address}\": everyone there can {rights}\n");
    }
    text += "listen on 127.0.0.1 instead; or, for HTTP, name a file of tokens (http.tokens, `plumbago token add`); or, for points, give a [[listener]] networks, tokens or a tls_client_ca; or, if everyone who reaches these addresses may do that, say so with --insecure \
             (listen.insecure = true, PLUMBAGO_LISTEN_INSECURE=true). docs/security.md has more";
    Err(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Sources, load};

    fn settings(listen: &str) -> Settings {
        let file = Some(("p.toml".to_owned(), format!("[listen]\n{listen}")));
        load(&Sources { file, ..Sources::default() }).unwrap()
    }

    #[test]
    fn an_address_that_others_reach_needs_one_explicit_setting() {
        let check = |listen: &str, named: &[&str]| {
            let settings = settings(listen);
            let exposed = exposed(&settings);
            let keys: Vec<&str> = exposed.iter().map(|exposed| exposed.key.trim_start_matches("listen.")).collect();
            assert_eq!(keys, named, "{listen}");
            assert_eq!(super::check(&settings).is_ok(), named.is_empty() || settings.listen.insecure, "{listen}");
        };
        check("", &[]);
        check("line = ':2003'", &["line"]);
        check("line = 'off'\nhttp = '10.0.0.1:80'", &["http"]);
        check("http = '10.0.0.1:80'\nadmin = '10.0.0.1:80'", &["http", "admin"]);
        check("admin = '[::]:81'", &["admin"]);
        check("http = '10.0.0.1:80'\n[http]\ntokens = 'x'", &[]);
        let tls = "tls_certificate = 'c'\ntls_key = 'k'";
        check(&format!("http = '10.0.0.1:80'\n[http]\n{tls}"), &["http"]);
        let asks = format!("{tls}\ntls_client_ca = 'a'");
        check(&format!("http = '10.0.0.1:80'\n[http]\n{asks}"), &[]);
        check(&format!("http = '10.0.0.1:80'\n[http]\n{asks}\ntls_clients = 'optional'"), &["http"]);
        check(&format!("http = '10.0.0.1:80'\nadmin = '10.0.0.1:81'\n[http]\n{asks}"), &[]);
        check("line = ':2003'\nhttp = '10.0.0.1:80'\n[http]\ntokens = 'x'", &["line"]);
        let listener = "[[listener]]\nname = 'a'\naddress = ':2103'";
        check(listener, &["[[listener]] a: address"]);
        check(&format!("{listener}\nnetworks = '10.0.0.0/8'"), &[]);
        check(&format!("{listener}\ntokens = 'sha256:{}'", "00".repeat(32)), &[]);
        check(&format!("{listener}\ntls_certificate = 'c'\ntls_key = 'k'"), &["[[listener]] a: address"]);
        check(&format!("{listener}\ntls_certificate = 'c'\ntls_key = 'k'\ntls_client_ca = 'a'"), &[]);
        check("protobuf = '[::]:81'\ninsecure = true", &["protobuf"]);
    }

    #[test]
    fn the_refusal_names_the_setting_and_what_would_do() {
        let refusal = super::check(&settings("pickle = '0.0.0.0:2004'")).unwrap_err();
        assert!(refusal.contains("listen.pickle = \"0.0.0.0:2004\": everyone there can write metrics"), "{refusal}");
        assert!(refusal.contains("--insecure"), "{refusal}");
    }
}
