//! Who sends a request: by a token in the header `Authorization`, or by the header of a proxy that has asked already.

use std::{net::SocketAddr, sync::Arc};

use api::{Doorkeeper, Viewer};
use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use hyper::{HeaderMap, header};
use parking_lot::RwLock;

use super::{file::TokenFile, proxies::Proxies};

/// Bytes of a header with a token.
const MAX_HEADER: usize = 1024;

/// Recognises senders by the tokens in force.
pub struct Bearers {
    file: RwLock<Arc<TokenFile>>,
    /// The header that names a user, and the proxies that may send it.
    proxy: Option<(String, Proxies)>,
    /// Prefixes of listeners.
    listeners: Vec<String>,
}

impl Bearers {
    /// Without tokens. `listeners` are the prefixes of listeners, whose names are theirs.
    pub fn new(proxy: Option<(String, Proxies)>, listeners: Vec<String>) -> Bearers {
        Bearers { file: RwLock::default(), proxy, listeners }
    }

    /// Puts the tokens of a file into force; returns how many there are.
    ///
    /// # Errors
    /// Everything that is wrong with the file; the old ones stay in force.
    pub fn replace(&self, text: &str) -> Result<usize, String> {
        let before = self.file.read().clone();
        let file = TokenFile::read_among(text, &self.listeners, &before)?;
        let tokens = file.entries.len();
        *self.file.write() = Arc::new(file);
        Ok(tokens)
    }
}

impl Doorkeeper for Bearers {
    fn viewer(&self, headers: &HeaderMap, peer: SocketAddr) -> Option<Arc<Viewer>> {
        let file = self.file.read().clone();
        // A proxy that names a user has decided: a token that the user sends as well does not add to that.
        if let Some((name, _)) = self.proxy.as_ref().filter(|(_, proxies)| proxies.contain(peer.ip()))
            && let Some(user) = headers.get(name)
        {
            // Two headers may be a user's own and the proxy's.
            let is_one = headers.get_all(name).iter().count() == 1;
            return user.to_str().ok().filter(|_| is_one).and_then(|user| file.of_user(user));
        }
        let given = headers.get(header::AUTHORIZATION)?.to_str().ok().filter(|given| given.len() <= MAX_HEADER)?;
        let (scheme, rest) = given.split_once(' ')?;
        match scheme.to_ascii_lowercase().as_str() {
            "bearer" => file.of_token(rest.trim()),
            "basic" => {
                let decoded = decoded(rest.trim())?;
                let (_, password) = std::str::from_utf8(&decoded).ok()?.split_once(':')?;
                file.of_token(password)
            }
            _ => None,
        }
    }
}

/// Base64 as clients send it: with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

fn decoded(text: &str) -> Option<Vec<u8>> {
    BASE64.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::file::{hash, section};

    fn bearers() -> Bearers {
        let read = ["read".to_owned()];
        let text =
            section("grafana", Some(&hash("secret")), &read, &[], &[]) + &section("alice", None, &read, &[], &[]);
        let proxy = ("x-webauth-user".to_owned(), Proxies::read("10.0.0.1").unwrap());
        let bearers = Bearers::new(Some(proxy), Vec::new());
        bearers.replace(&text).unwrap();
        bearers
    }

    fn check(bearers: &Bearers, peer: &str, headers: &[(&'static str, &str)], expected: Option<&str>) {
        let mut map = HeaderMap::new();
        headers.iter().for_each(|(name, value)| _ = map.append(*name, value.parse().unwrap()));
        let peer = SocketAddr::new(peer.parse().unwrap(), 1);
        let viewer = bearers.viewer(&map, peer);
        assert_eq!(viewer.as_ref().map(|viewer| viewer.name.as_str()), expected, "{headers:?} from {peer}");
    }

    #[test]
    fn a_token_is_a_bearer_or_a_password_with_any_user_name() {
        let bearers = bearers();
        let check = |value: &str, expected| check(&bearers, "127.0.0.1", &[("authorization", value)], expected);
        check("Bearer secret", Some("grafana"));
        check("bearer  secret ", Some("grafana"));
        // any:secret, :secret
        check("Basic YW55OnNlY3JldA==", Some("grafana"));
        check("Basic OnNlY3JldA", Some("grafana"));
        for bad in
            ["", "Bearer", "Bearer ", "Bearer Secret", "Basic secret", "Basic c2VjcmV0", "Digest secret", "secret"]
        {
            check(bad, None);
        }
    }

    #[test]
    fn a_users_name_counts_from_a_proxy_alone() {
        let bearers = bearers();
        let alice = ("x-webauth-user", "alice");
        check(&bearers, "10.0.0.1", &[alice], Some("alice"));
        check(&bearers, "::ffff:10.0.0.1", &[alice], Some("alice"));
        check(&bearers, "10.0.0.2", &[alice], None);
        check(&bearers, "10.0.0.2", &[alice, ("authorization", "Bearer secret")], Some("grafana"));
        check(&bearers, "10.0.0.1", &[("x-webauth-user", "bob"), ("authorization", "Bearer secret")], None);
        check(&bearers, "10.0.0.1", &[alice, ("x-webauth-user", "grafana")], None);
        check(&bearers, "10.0.0.1", &[("authorization", "Bearer secret")], Some("grafana"));
        check(&bearers, "10.0.0.1", &[("x-webauth-user", "grafana")], None);
        check(&bearers, "10.0.0.1", &[], None);
    }

    #[test]
    fn base64_is_decoded() {
        for (text, bytes) in [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo"), ("Zm9vYg", "foob")] {
            assert_eq!(decoded(text).as_deref(), Some(bytes.as_bytes()), "{text}");
        }
        assert_eq!(decoded("a b"), None);
    }
}
