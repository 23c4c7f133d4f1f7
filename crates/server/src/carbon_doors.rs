//! Each `[[listener]]` of the settings as a door: who may connect there, and what senders may send.

use std::sync::Arc;

use anyhow::Context;
use host::{Clock, Disk};
use ingest::{
    ListenerGate, PrefixLimit, Restrictions,
    receivers::{Allows, Door, Refused},
};

use crate::{
    certificates,
    settings::{Listener, ListenerProtocol, Settings},
};

/// Names of the listeners of `[listen]`, in logs and metrics.
const OWN_NAMES: [&str; 5] = ["line", "pickle", "protobuf", "http", "admin"];

/// The doors of all listeners, in order.
///
/// # Errors
/// The settings of a listener do not go together, or its certificate cannot be used.
pub fn open(settings: &Settings, disk: &Arc<dyn Disk>, clock: &Arc<dyn Clock>) -> anyhow::Result<Vec<Arc<Door>>> {
    let mut doors: Vec<Arc<Door>> = Vec::new();
    for (i, listener) in settings.listeners.iter().enumerate() {
        let name = &listener.name.0;
        let place = || if name.is_empty() { format!("[[listener]] {}", i + 1) } else { format!("[[listener]] {name}") };
        check(listener).map_err(anyhow::Error::msg).with_context(place)?;
        anyhow::ensure!(doors.iter().all(|door| door.name != *name), "two listeners have the name {name}");
        doors.push(Arc::new(door(listener, disk, clock).with_context(place)?));
    }
    Ok(doors)
}

/// The limits on metrics that listeners have by their prefix.
pub fn prefix_limits(settings: &Settings) -> impl Iterator<Item = PrefixLimit> {
    settings.listeners.iter().filter_map(|listener| {
        let (prefix, metrics) = (listener.prefix.clone()?, listener.max_metrics? as u64);
        Some(PrefixLimit { prefix, metrics, creations_per_minute: u64::MAX })
    })
}

/// Whether something asks the senders of a listener who they are.
pub fn is_guarded(listener: &Listener) -> bool {
    listener.networks.is_some() || !listener.tokens.0.is_empty() || certificates::listener_asks(listener)
}

fn door(listener: &Listener, disk: &Arc<dyn Disk>, clock: &Arc<dyn Clock>) -> anyhow::Result<Door> {
    let restrictions = Restrictions {
        prefix: listener.prefix.clone().map(|prefix| (prefix, listener.prefix_rule.0)),
        tokens: listener.tokens.0.clone(),
        points_per_second: listener.points_per_second.map(|points| points as u64),
        creations_per_minute: listener.creations_per_minute.map(|metrics| metrics as u64),
        // Among the limits by prefix.
        max_metrics: None,
    };
    let networks = listener.networks.clone();
    Ok(Door {
        name: listener.name.0.clone(),
        allows: networks.map(|networks| -> Allows { Arc::new(move |address| networks.contain(address)) }),
        connections_per_address: listener.connections_per_address,
        identity: certificates::of_listener(listener, disk, clock)?,
        gate: Some(ListenerGate::new(restrictions)),
        refused: Refused::default(),
    })
}

/// What the settings of one listener must be together.
fn check(listener: &Listener) -> Result<(), String> {
    let Listener { name, protocol, address, prefix, .. } = listener;
    if name.0.is_empty() {
        return Err("name is missing: a text for logs and metrics".to_owned());
    }
    if OWN_NAMES.contains(&name.0.as_str()) {
        return Err("is the name of a listener of [listen]; take another".to_owned());
    }
    let Some(address) = address else {
        return Err("address is missing, such as \"0.0.0.0:2103\"".to_owned());
    };
    if let Some(prefix) = prefix {
        let example = format!("{prefix}x");
        let is_canonical = metric::canonical_name(example.as_bytes()).is_ok_and(|name| name == example.as_str());
        if !prefix.ends_with('.') || prefix.contains([';', '{', '~']) || !is_canonical {
            return Err(format!(
                "prefix must be the beginning of names with a dot at its end, such as \"blue.\", got '{prefix}'"
            ));
        }
    } else if listener.max_metrics.is_some() {
        return Err("max_metrics counts the metrics below a prefix; give a prefix".to_owned());
    }
    if *protocol == ListenerProtocol::Udp {
        if listener.tls_certificate.is_some() || listener.tls_key.is_some() || listener.tls_client_ca.is_some() {
            return Err("UDP has no TLS".to_owned());
        }
        if !address.is_loopback() && listener.networks.is_none() {
            return Err(
                "UDP on an address that other machines reach needs networks: the addresses that may send".to_owned()
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use host::SystemClock;

    use super::*;
    use crate::settings::{Sources, load};

    fn opened(text: &str) -> Result<Vec<Arc<Door>>, String> {
        let file = Some(("p.toml".to_owned(), text.to_owned()));
        let settings = load(&Sources { file, ..Sources::default() }).unwrap_or_else(|problems| panic!("{problems:?}"));
        let (disk, clock): (Arc<dyn Disk>, Arc<dyn Clock>) = (Arc::new(host::SystemDisk), Arc::new(SystemClock));
        open(&settings, &disk, &clock).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn settings_that_do_not_go_together_are_refused_with_the_name_of_the_listener() {
        let check = |text: &str, words: &str| {
            let error = opened(&format!("[[listener]]\n{text}")).err().unwrap_or_else(|| panic!("{text}"));
            assert!(error.contains(words), "{text}: {error}");
        };
        check("name = 'a'", "[[listener]] a: address is missing");
        check("address = ':1'", "[[listener]] 1: name is missing");
        check("name = 'line'\naddress = ':1'", "is the name of a listener of [listen]");
        check("name = 'a'\naddress = ':1'\nprefix = 'blue'", "with a dot at its end");
        check("name = 'a'\naddress = ':1'\nprefix = '.blue.'", "with a dot at its end");
        check("name = 'a'\naddress = ':1'\nmax_metrics = 5", "give a prefix");
        check("name = 'a'\naddress = ':1'\nprotocol = 'udp'", "needs networks");
        check("name = 'a'\naddress = '127.0.0.1:1'\nprotocol = 'udp'\ntls_key = 'x'", "UDP has no TLS");
        check("name = 'a'\naddress = ':1'\ntls_key = 'x'", "[[listener]] a: tls_certificate and tls_key go together");
        check("name = 'a'\naddress = ':1'\n[[listener]]\nname = 'a'\naddress = ':2'", "two listeners have the name a");
    }

    #[test]
    fn a_listener_is_a_door_with_its_restrictions() {
        let doors =
            opened("[[listener]]\nname = 'a'\naddress = ':1'\nnetworks = '10.0.0.0/8'\nconnections_per_address = 3")
                .unwrap();
        let [door] = doors.as_slice() else { panic!() };
        let allows = door.allows.as_ref().unwrap();
        assert!(allows("10.1.1.1".parse().unwrap()) && !allows("127.0.0.1".parse().unwrap()));
        assert_eq!((door.name.as_str(), door.connections_per_address), ("a", Some(3)));
    }
}
