//! Who sends a request: what it may touch, and which names it sees.

use std::{fmt, net::SocketAddr, sync::Arc};

use hyper::{HeaderMap, Method};
use metadata::{FindError, FindLimits, Finder, NameFilter, Registry};
use metric::Policy;

use crate::http::{Access, Sender, SenderLimits};

/// What a credential allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// To read names and points.
    Read,
    /// To store points.
    Write,
    /// To read and store events.
    Events,
    /// To administer the server.
    Admin,
}

impl Scope {
    /// All of them.
    pub const ALL: [Scope; 4] = [Scope::Read, Scope::Write, Scope::Events, Scope::Admin];

    /// As files and messages name it.
    pub const fn name(self) -> &'static str {
        match self {
            Scope::Read => "read",
            Scope::Write => "write",
            Scope::Events => "events",
            Scope::Admin => "admin",
        }
    }
}

/// The sender of a request, as its credential says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Viewer {
    /// The credential's name; empty where clients are not asked for one.
    pub name: String,
    /// What it may touch.
    pub scopes: Vec<Scope>,
    /// The names that it sees and may write; all without this.
    pub names: Option<NameScope>,
    /// How much it may send.
    pub limits: SenderLimits,
}

/// Names that begin with a prefix, or that have all of some tags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameScope {
    // Invariant: no prefix is empty or has a character of globs or tags; prefixes or tags are not empty.
    prefixes: Vec<String>,
    // `tag=value` each.
    tags: Vec<String>,
}

/// Decides who sends a request.
pub trait Doorkeeper: Send + Sync + 'static {
    /// The sender, or `None` when the request has no valid credential.
    fn viewer(&self, headers: &HeaderMap, peer: SocketAddr) -> Option<Arc<Viewer>>;

    /// Whether answers depend on the sender.
    fn asks(&self) -> bool {
        true
    }
}

/// Lets everyone do everything.
impl Doorkeeper for () {
    fn viewer(&self, _: &HeaderMap, _: SocketAddr) -> Option<Arc<Viewer>> {
        Some(Arc::new(Viewer::everyone()))
    }

    fn asks(&self) -> bool {
        false
    }
}

impl Viewer {
    /// A sender who may do everything.
    pub fn everyone() -> Viewer {
        Viewer { name: String::new(), scopes: Scope::ALL.to_vec(), names: None, limits: SenderLimits::default() }
    }

    /// The scope that a request lacks. Metrics of the server and events are not divided by names: a credential that sees
    /// some names alone needs a scope of its own for them.
    pub(crate) fn lacks(&self, access: Access, method: &Method) -> Option<Scope> {
        let has = |scope| self.scopes.contains(&scope);
        let reads_all = has(Scope::Read) && self.names.is_none();
        let (is_allowed, needed) = match access {
            Access::Health => (true, Scope::Read),
            Access::Read => (has(Scope::Read), Scope::Read),
            Access::Metrics => (has(Scope::Admin) || reads_all, Scope::Admin),
            Access::Write => (has(Scope::Write), Scope::Write),
            Access::Events if access.is_write(method) => (has(Scope::Events), Scope::Events),
            Access::Events => (self.sees_events(), Scope::Events),
            Access::Admin => (has(Scope::Admin), Scope::Admin),
        };
        (!is_allowed).then_some(needed)
    }

    /// Whether events are shown.
    pub(crate) fn sees_events(&self) -> bool {
        self.scopes.contains(&Scope::Events) || self.scopes.contains(&Scope::Read) && self.names.is_none()
    }

    /// The sender, for paths that are not Graphite's.
    pub(crate) fn sender(&self) -> Sender {
        Sender { name: self.name.clone(), names: self.metrics(), limits: self.limits }
    }

    /// The filter of metrics for a find.
    pub(crate) fn metrics(&self) -> Option<Arc<dyn NameFilter>> {
        self.names.clone().map(|names| Arc::new(names) as Arc<dyn NameFilter>)
    }

    /// The filter of metrics and branches for a find. A branch is shown if it has a shown metric below.
    pub(crate) fn nodes(&self, finder: &dyn Finder) -> Result<Option<Arc<dyn NameFilter>>, FindError> {
        let Some(NameScope { prefixes, tags }) = &self.names else { return Ok(None) };
        let mut living = Vec::new();
        for prefix in prefixes {
            let one = FindLimits { nodes: 1, ..FindLimits::default() };
            match finder.find(&format!("{prefix}*"), &one) {
                Ok(found) if found.is_empty() => {}
                Ok(_) | Err(FindError::TooManyNodes { .. }) => living.push(prefix.clone()),
                Err(error) => return Err(error),
            }
        }
        Ok(Some(Arc::new(NameScope { prefixes: living, tags: tags.clone() })))
    }

    /// The policy of a metric that this sender sees.
    pub(crate) fn policy(&self, registry: &Registry, name: &str) -> Option<Arc<Policy>> {
        if self.names.as_ref().is_some_and(|names| !names.shows_metric(name)) {
            return None;
        }
        let policy = {
            let names = registry.read();
            let id = names.find(registry.hash(name.as_bytes()), name.as_bytes())?;
            names.policy_id(id)
        };
        Some(registry.policy(policy))
    }
}

impl NameScope {
    /// Names that begin with one of these prefixes, or that have all of these tags (`tag=value`).
    ///
    /// # Errors
    /// The prefix or tag that is not one.
    pub fn new(prefixes: Vec<String>, tags: Vec<String>) -> Result<NameScope, String> {
        let is_prefix = |text: &str| !text.is_empty() && !text.starts_with('.') && !text.contains(SPECIAL);
        let is_tag = |text: &str| text.split_once('=').is_some_and(|(tag, value)| !tag.is_empty() && !value.is_empty());
        if let Some(bad) = prefixes.iter().find(|prefix| !is_prefix(prefix)) {
            return Err(format!("'{bad}' is not the beginning of names, such as 'servers.web.'"));
        }
        if let Some(bad) = tags.iter().find(|tag| !is_tag(tag) || tag.contains(';')) {
            return Err(format!("'{bad}' is not a tag with its value, such as 'tenant=blue'"));
        }
        if prefixes.is_empty() && tags.is_empty() {
            return Err("neither prefixes nor tags are given".to_owned());
        }
        Ok(NameScope { prefixes, tags })
    }
}

impl fmt::Display for NameScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefixes = self.prefixes.iter().map(|prefix| format!("{prefix}*"));
        let tags = (!self.tags.is_empty()).then(|| self.tags.join("+"));
        f.write_str(&prefixes.chain(tags).collect::<Vec<_>>().join(" "))
    }
}

/// Characters of globs, tags and line protocols.
const SPECIAL: [char; 12] = ['*', '?', '[', ']', '{', '}', ',', '\\', ';', ' ', '\n', '\t'];

impl NameFilter for NameScope {
    fn shows_metric(&self, name: &str) -> bool {
        let has = |tag: &String| name.split(';').skip(1).any(|known| known == tag);
        self.prefixes.iter().any(|prefix| name.starts_with(prefix.as_str()))
            || !self.tags.is_empty() && self.tags.iter().all(has)
    }

    fn shows_branch(&self, path: &str) -> bool {
        let leads_to = |prefix: &str| prefix.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
        self.prefixes.iter().any(|prefix| path.starts_with(prefix.as_str()) || leads_to(prefix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(prefixes: &[&str], tags: &[&str]) -> Result<NameScope, String> {
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        NameScope::new(owned(prefixes), owned(tags))
    }

    #[test]
    fn names_are_seen_by_prefix_or_by_all_tags() {
        let blue = scope(&["blue.", "shared.web"], &["tenant=blue", "dc=a"]).unwrap();
        for name in ["blue.a", "shared.web1.load", "shared.web", "x;dc=a;tenant=blue", "x;a=b;dc=a;tenant=blue"] {
            assert!(blue.shows_metric(name), "{name}");
        }
        for name in
            ["blue", "bluer.a", "red.a", "shared.db", "x;tenant=blue", "x;dc=a;tenant=bluer", "tenant=blue;dc=a"]
        {
            assert!(!blue.shows_metric(name), "{name}");
        }
        for path in ["blue", "blue.a", "shared", "shared.web1"] {
            assert!(blue.shows_branch(path), "{path}");
        }
        for path in ["bluer", "b", "red", "shared.db", "share"] {
            assert!(!blue.shows_branch(path), "{path}");
        }
    }

    #[test]
    fn a_prefix_has_no_glob_and_a_tag_has_a_value() {
        for bad in ["", "a*", ".a", "a;b", "{a,b}."] {
            assert!(scope(&[bad], &[]).is_err(), "{bad}");
        }
        for bad in ["", "a", "=b", "a=", "a=b;c=d"] {
            assert!(scope(&[], &[bad]).is_err(), "{bad}");
        }
        assert!(scope(&[], &[]).is_err());
    }

    #[test]
    fn a_scope_allows_what_it_names() {
        let viewer = |scopes: &[Scope], prefixes: &[&str]| Viewer {
            name: "a".to_owned(),
            scopes: scopes.to_vec(),
            names: scope(prefixes, &[]).ok(),
            limits: SenderLimits::default(),
        };
        let check = |viewer: &Viewer, method: Method, allowed: &[Access]| {
            let all = [Access::Health, Access::Metrics, Access::Read, Access::Write, Access::Events, Access::Admin];
            for access in all {
                assert_eq!(viewer.lacks(access, &method).is_none(), allowed.contains(&access), "{viewer:?} {access:?}");
            }
        };
        let (health, get) = (Access::Health, Method::GET);
        let reader = viewer(&[Scope::Read], &[]);
        check(&reader, get.clone(), &[health, Access::Metrics, Access::Read, Access::Events]);
        check(&reader, Method::POST, &[health, Access::Metrics, Access::Read]);
        check(&viewer(&[Scope::Read], &["a."]), get.clone(), &[health, Access::Read]);
        check(&viewer(&[Scope::Read, Scope::Events], &["a."]), get.clone(), &[health, Access::Read, Access::Events]);
        check(&viewer(&[Scope::Events], &[]), Method::POST, &[health, Access::Events]);
        check(&viewer(&[Scope::Write], &[]), Method::POST, &[health, Access::Write]);
        check(&viewer(&[Scope::Admin], &[]), get, &[health, Access::Metrics, Access::Admin]);
    }
}
