//! What tokens may write over HTTP, and how much of their limits they have used.

use std::{collections::HashMap, sync::Arc};

use api::Sender;
use ingest::{ListenerGate, Restrictions, TokenGate};
use parking_lot::Mutex;

/// Tokens whose use is remembered: more than a file of tokens has.
const MAX_GATES: usize = 20_000;

/// The gates of all tokens with restrictions that have sent points since the start. Their counts survive a change of the file.
#[derive(Default)]
pub struct TokenGates {
    by_name: Mutex<HashMap<String, (Restrictions, Arc<ListenerGate>)>>,
}

impl TokenGates {
    /// The gate of a sender; none for one without restrictions, whose points cost nothing more.
    pub fn of(&self, sender: &Sender) -> Option<TokenGate> {
        let restrictions = Restrictions {
            points_per_second: sender.limits.points_per_second,
            creations_per_minute: sender.limits.creations_per_minute,
            max_metrics: sender.limits.max_metrics,
            ..Restrictions::default()
        };
        if restrictions.are_none() && sender.writes.is_none() {
            return None;
        }
        let mut by_name = self.by_name.lock();
        if MAX_GATES <= by_name.len() {
            by_name.clear();
        }
        let known = by_name.get(&sender.name).filter(|(known, _)| *known == restrictions);
        let limits = known.map(|(_, gate)| gate.clone()).unwrap_or_else(|| {
            let gate = ListenerGate::new(restrictions.clone());
            by_name.insert(sender.name.clone(), (restrictions, gate.clone()));
            gate
        });
        Some(TokenGate { limits, writes: sender.writes.clone(), counted: sender.names.clone() })
    }

    /// Name and gate of each, in the order of names.
    pub fn all(&self) -> Vec<(String, Arc<ListenerGate>)> {
        let by_name = self.by_name.lock();
        let mut all: Vec<_> = by_name.iter().map(|(name, (_, gate))| (name.clone(), gate.clone())).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }
}

#[cfg(test)]
mod tests {
    use api::SenderLimits;

    use super::*;

    fn sender(name: &str, points_per_second: Option<u64>) -> Sender {
        let limits = SenderLimits { points_per_second, ..SenderLimits::default() };
        Sender { name: name.to_owned(), names: None, writes: None, limits }
    }

    #[test]
    fn a_token_with_limits_has_one_gate_until_they_change() {
        let gates = TokenGates::default();
        assert!(gates.of(&sender("free", None)).is_none());
        let of = |points| gates.of(&sender("a", Some(points))).unwrap().limits;
        let first = of(10);
        assert!(Arc::ptr_eq(&first, &of(10)));
        assert!(!Arc::ptr_eq(&first, &of(20)));
        assert_eq!(gates.all().len(), 1);
    }
}
