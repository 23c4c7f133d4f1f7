//! Who sends a request: what it may touch, and which names it sees.

use std::{net::SocketAddr, sync::Arc};

use hyper::{HeaderMap, Method};
use metadata::{FindError, FindLimits, Finder, NameFilter, Registry};
use metric::Policy;

use super::{name_scope::NameScope, write_scope::WriteScope};
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
    /// To delete metrics by their names.
    Delete,
    /// To administer the server.
    Admin,
}

impl Scope {
    /// All of them.
    pub const ALL: [Scope; 5] = [Scope::Read, Scope::Write, Scope::Events, Scope::Delete, Scope::Admin];

    /// As files and messages name it.
    pub const fn name(self) -> &'static str {
        match self {
            Scope::Read => "read",
            Scope::Write => "write",
            Scope::Events => "events",
            Scope::Delete => "delete",
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
    /// The names that it sees; all without this.
    pub names: Option<Arc<NameScope>>,
    /// The names that it may write; all without this.
    pub writes: Option<Arc<WriteScope>>,
    /// How much it may send.
    pub limits: SenderLimits,
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
        Viewer {
            name: String::new(),
            scopes: Scope::ALL.to_vec(),
            names: None,
            writes: None,
            limits: SenderLimits::default(),
        }
    }

    /// The scope that a request lacks. Metrics of the server and events are not divided by names: a credential that sees
    /// some names alone needs a scope of its own for them.
    pub(crate) fn lacks(&self, access: Access, method: &Method) -> Option<Scope> {
        let has = |scope| self.scopes.contains(&scope);
        let reads_all = has(Scope::Read) && self.names.is_none();
        let (is_allowed, needed) = match access {
            Access::Health | Access::Peer => (true, Scope::Read),
            Access::Read => (has(Scope::Read), Scope::Read),
            Access::Metrics => (has(Scope::Admin) || reads_all, Scope::Admin),
            Access::Write => (has(Scope::Write), Scope::Write),
            Access::Events if access.is_write(method) => (has(Scope::Events), Scope::Events),
            Access::Events => (self.sees_events(), Scope::Events),
            Access::Delete => (has(Scope::Delete) || has(Scope::Admin), Scope::Delete),
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
        let writes = self.writes.clone().map(|names| names as Arc<dyn NameFilter>);
        Sender { name: self.name.clone(), names: self.metrics(), writes, limits: self.limits }
    }

    /// The filter of metrics for a find.
    pub(crate) fn metrics(&self) -> Option<Arc<dyn NameFilter>> {
        self.names.clone().map(|names| names as Arc<dyn NameFilter>)
    }

    /// The filter of metrics and branches for a find. A branch is shown if it has a shown metric below.
    pub(crate) fn nodes(&self, finder: &dyn Finder) -> Result<Option<Arc<dyn NameFilter>>, FindError> {
        let Some(NameScope { prefixes, tags }) = self.names.as_deref() else { return Ok(None) };
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
        registry.read_policy(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(prefixes: &[&str]) -> Option<Arc<NameScope>> {
        NameScope::new(prefixes.iter().map(|&prefix| prefix.to_owned()).collect(), Vec::new()).ok().map(Arc::new)
    }

    #[test]
    fn a_scope_allows_what_it_names() {
        let viewer = |scopes: &[Scope], prefixes: &[&str]| Viewer {
            name: "a".to_owned(),
            scopes: scopes.to_vec(),
            names: names(prefixes),
            writes: None,
            limits: SenderLimits::default(),
        };
        let check = |viewer: &Viewer, method: Method, allowed: &[Access]| {
            for access in [
                Access::Health,
                Access::Metrics,
                Access::Read,
                Access::Write,
                Access::Events,
                Access::Delete,
                Access::Admin,
            ] {
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
        check(&viewer(&[Scope::Delete], &["a."]), Method::POST, &[health, Access::Delete]);
        check(&viewer(&[Scope::Admin], &[]), get, &[health, Access::Metrics, Access::Delete, Access::Admin]);
    }
}
