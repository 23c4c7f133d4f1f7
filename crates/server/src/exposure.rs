//! Which listeners other machines reach without a credential, and whether the settings allow that.

use crate::settings::{Address, Settings};

/// A listener that everyone who reaches this machine can use.
#[derive(Debug, PartialEq, Eq)]
struct Exposed {
    /// Its key below `listen`.
    key: &'static str,
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
    // Tokens guard HTTP.
    let asks = |key: &str| settings.http.tokens.is_some() && matches!(key, "http" | "admin");
    let open = all.into_iter().filter(|(key, ..)| !asks(key));
    let open = open.filter_map(|(key, address, rights)| Some(Exposed { key, address: address?, rights }));
    open.filter(|exposed| !exposed.address.is_loopback()).collect()
}

/// Logs a warning for each listener that other machines reach.
///
/// # Errors
/// There are such listeners, and `listen.insecure` does not allow them.
pub fn check(settings: &Settings) -> Result<(), String> {
    if settings.http.tokens.is_some() && settings.listen.http.as_ref().is_some_and(|http| !http.is_loopback()) {
        tracing::warn!(
            "tokens and points travel unencrypted at listen.http: let a proxy with TLS stand before other networks"
        );
    }
    let exposed = exposed(settings);
    if settings.listen.insecure {
        for Exposed { key, address, rights } in exposed {
            tracing::warn!(%address, "everyone who reaches listen.{key} can {rights} (listen.insecure)");
        }
        return Ok(());
    }
    if exposed.is_empty() {
        return Ok(());
    }
    let mut text = "other machines reach these addresses, and nothing asks them for a credential:\n".to_owned();
    for Exposed { key, address, rights } in exposed {
        text += &format!("  listen.{key} = \"{address}\": everyone there can {rights}\n");
    }
    text += "listen on 127.0.0.1 instead; or, for HTTP, name a file of tokens (http.tokens, `plumbago token add`); or, if everyone who reaches these addresses may do that, say so with --insecure \
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
            let keys: Vec<&str> = exposed(&settings).iter().map(|exposed| exposed.key).collect();
            assert_eq!(keys, named, "{listen}");
            assert_eq!(super::check(&settings).is_ok(), named.is_empty() || settings.listen.insecure, "{listen}");
        };
        check("", &[]);
        check("line = ':2003'", &["line"]);
        check("line = 'off'\nhttp = '10.0.0.1:80'", &["http"]);
        check("http = '10.0.0.1:80'\nadmin = '10.0.0.1:80'", &["http", "admin"]);
        check("admin = '[::]:81'", &["admin"]);
        check("http = '10.0.0.1:80'\n[http]\ntokens = 'x'", &[]);
        check("line = ':2003'\nhttp = '10.0.0.1:80'\n[http]\ntokens = 'x'", &["line"]);
        check("protobuf = '[::]:81'\ninsecure = true", &["protobuf"]);
    }

    #[test]
    fn the_refusal_names_the_setting_and_what_would_do() {
        let refusal = super::check(&settings("pickle = '0.0.0.0:2004'")).unwrap_err();
        assert!(refusal.contains("listen.pickle = \"0.0.0.0:2004\": everyone there can write metrics"), "{refusal}");
        assert!(refusal.contains("--insecure"), "{refusal}");
    }
}
