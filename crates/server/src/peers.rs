//! Other nodes over the same tables: where they reach this one, and what operators see of them.

use std::net::SocketAddr;

use cluster::Peers;
use serde_json::{Value, json};

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

/// `nodes` and `changes` of `/admin/status`.
pub fn status(peers: &Peers) -> (Value, Value) {
    let nodes = peers.members().into_iter().map(|node| {
        json!({
            "id": node.node.to_string(),
            "address": node.address,
            "version": node.version,
            "started": node.started,
            "heartbeat_age_seconds": node.heartbeat_age.as_secs_f64(),
            "alive": node.is_alive(),
            "self": node.is_self,
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
