//! Metrics of certificates and handshakes.

use std::sync::Arc;

use prometheus::proto::{MetricFamily, MetricType};
use tls::Identity;

use super::families::{labelled, labelled_twice};

/// The families of all listeners with TLS.
pub(super) fn certificate_families(identities: &[Arc<Identity>]) -> [MetricFamily; 2] {
    let days = identities.iter().filter_map(|identity| Some((identity.name(), identity.days_left()?))).collect();
    let handshakes = identities.iter().flat_map(|identity| {
        identity.handshakes().map(|(outcome, count)| ([identity.name(), outcome.name()], count as f64))
    });
    let help_days = "Days until the certificate in force expires, below zero after that, by listener.";
    let help = "TLS handshakes, by listener and outcome.";
    let labels = ["listener", "outcome"];
    [
        labelled("plumbago_tls_certificate_days_left", help_days, MetricType::GAUGE, "listener", days),
        labelled_twice("plumbago_tls_handshakes_total", help, MetricType::COUNTER, labels, handshakes.collect()),
    ]
}
