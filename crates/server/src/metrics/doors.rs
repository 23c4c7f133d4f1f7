//! Metrics of each `[[listener]]`, and of tokens with restrictions.

use std::sync::Arc;

use ::ingest::receivers::Door;
use prometheus::proto::{MetricFamily, MetricType};

use super::families::{labelled, labelled_twice};
use crate::tokens::TokenGates;

/// The families of all listeners. A reason without a count is left out.
pub(super) fn door_families(doors: &[Arc<Door>]) -> [MetricFamily; 3] {
    let gates = || doors.iter().filter_map(|door| Some((door.name.as_str(), door.gate.as_ref()?)));
    let points = gates().map(|(name, gate)| (name, gate.points() as f64)).collect();
    let rejects = gates().flat_map(|(name, gate)| {
        let counted = gate.rejects().filter(|(_, count)| 0 < *count);
        counted.map(move |(reason, count)| ([name, reason.name()], count as f64))
    });
    let refused = doors.iter().flat_map(|door| {
        let (name, refused) = (door.name.as_str(), &door.refused);
        [([name, "network"], refused.network() as f64), ([name, "address"], refused.address() as f64)]
    });
    let (counter, labels) = (MetricType::COUNTER, ["listener", "reason"]);
    let help_rejects = "Inputs rejected, by [[listener]] and reason.";
    let help_refused =
        "Connections and datagrams refused, by [[listener]]: outside its networks, too many of an address.";
    [
        labelled("plumbago_listener_points_total", "Points accepted, by [[listener]].", counter, "listener", points),
        labelled_twice("plumbago_listener_rejected_total", help_rejects, counter, labels, rejects.collect()),
        labelled_twice("plumbago_listener_refused_total", help_refused, counter, labels, refused.collect()),
    ]
}

/// The families of tokens whose points go through a gate. A reason without a count is left out.
pub(super) fn token_families(gates: &TokenGates) -> [MetricFamily; 2] {
    let all = gates.all();
    let points = all.iter().map(|(name, gate)| (name.as_str(), gate.points() as f64)).collect();
    let rejects = all.iter().flat_map(|(name, gate)| {
        let counted = gate.rejects().filter(|(_, count)| 0 < *count);
        counted.map(move |(reason, count)| ([name.as_str(), reason.name()], count as f64))
    });
    let (counter, labels) = (MetricType::COUNTER, ["token", "reason"]);
    let help_points = "Points accepted over HTTP, by token with restrictions.";
    let help_rejects = "Inputs rejected over HTTP, by token with restrictions and reason.";
    [
        labelled("plumbago_token_points_total", help_points, counter, "token", points),
        labelled_twice("plumbago_token_rejected_total", help_rejects, counter, labels, rejects.collect()),
    ]
}
