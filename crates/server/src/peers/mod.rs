//! Other nodes over the same tables: where they reach this one, and what operators see of them.

mod client;
mod door;
mod request;
mod secret;

use std::{net::SocketAddr, sync::Arc};

use cluster::{Heads, Peers};
use host::Clock;
use ingest::Ingest;
use serde_json::{Value, json};

use self::client::PeerClient;
use crate::settings::Settings;

pub use self::{door::PeerDoor, request::PATH, secret::PeerSecrets};

/// Where other nodes reach this one: the setting, or the address of the HTTP listener. A listener of all addresses is reached by
/// the machine's name. Empty without a listener.
pub fn address(setting: &str, http: Option<SocketAddr>, machine: &str) -> String {
    match http {
        _ if setting != "auto" => setting.to_owned(),
        Some(http) if http.ip().is_unspecified() => format!("{machine}:{}", http.port()),
        Some(http) => http.to_string(),
        None => String::new(),
    }
}

/// Asks other nodes for their points in memory from now on, where there is a secret. Returns what answers them.
pub fn begin(
    settings: &Settings,
    secrets: Option<PeerSecrets>,
    peers: &Peers,
    ingest: &Arc<Ingest>,
    clock: Arc<dyn Clock>,
) -> PeerDoor {
    let Some(secrets) = secrets else {
        tracing::info!(
            "peers.secret_file is not set: this node neither asks other nodes over the same tables for points that are not in \
             Cassandra yet nor gives them its own. With several nodes, answers lack the others' points for up to ingest.flush_after"
        );
        return PeerDoor::new(None, clock);
    };
    if settings.http.tls_certificate.is_some() {
        tracing::warn!(
            "nodes ask each other for points in memory over plain HTTP, and listen.http has TLS: other nodes get none from this \
             one. Name an address without TLS, such as that of a proxy, in cassandra.peer_address"
        );
    }
    let client = Arc::new(PeerClient::new(&secrets));
    let Heads { giver, .. } = peers.begin_heads(ingest, client, settings.peers.timeout);
    PeerDoor::new(Some((secrets, giver)), clock)
}

/// `nodes` and `changes` of `/admin/status`.
pub fn status(peers: &Peers) -> (Value, Value) {
    let asker = peers.heads().map(|heads| heads.asker);
    let nodes = peers.members().into_iter().map(|node| {
        // Of this node, and without a secret, there is nothing to say.
        let asked = asker.as_ref().filter(|_| !node.is_self);
        let memory = asked.map(|asker| asker.problem(&node).unwrap_or_else(|| "given".to_owned()));
        json!({
            "id": node.node.to_string(),
            "address": node.address,
            "version": node.version,
            "started": node.started,
            "heartbeat_age_seconds": node.heartbeat_age.as_secs_f64(),
            "alive": node.is_alive(),
            "replica": node.replica,
            "draining": node.is_draining,
            "self": node.is_self,
            "points_in_memory": memory,
        })
    });
    let counts = peers.changes();
    let changes = json!({
        "written": counts.written,
        "dropped": counts.dropped,
        "followed": counts.followed,
        "delay_seconds": counts.delay_seconds,
        "read_age_seconds": counts.age.map(|age| age.as_secs_f64()),
        "read_failures": counts.failures,
        "scans": counts.scans,
    });
    (nodes.collect(), changes)
}

/// `peers` of `/admin/status`; null without a secret.
pub fn heads_status(peers: &Peers) -> Value {
    let Some(Heads { asker, giver }) = peers.heads() else { return Value::Null };
    let (asked, given) = (asker.asked(), giver.given());
    json!({
        "asked": {
            "answered": asked.answered,
            "silent": asked.silent,
            "slow": asked.slow,
            "refused": asked.refused,
            "unsupported": asked.unsupported,
            "invalid": asked.invalid,
            "no_memory": asked.no_memory,
            "skipped": asked.skipped,
            "points": asked.points,
            "seconds": asked.seconds,
        },
        "given": {
            "answers": given.answers,
            "points": given.points,
            "refused": given.refused,
            "invalid": given.invalid,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_reach_a_node_by_its_listener_unless_a_setting_says_where() {
        let http = |text: &str| Some(text.parse().unwrap());
        assert_eq!(address("auto", http("10.0.0.7:8080"), "m1.example.net"), "10.0.0.7:8080");
        assert_eq!(address("auto", http("0.0.0.0:8080"), "m1.example.net"), "m1.example.net:8080");
        assert_eq!(address("auto", http("[::]:8080"), "m1.example.net"), "m1.example.net:8080");
        assert_eq!(address("auto", None, "m1.example.net"), "");
        assert_eq!(address("proxy:80", http("10.0.0.7:8080"), "m1.example.net"), "proxy:80");
    }
}
