//! What a listener with restrictions takes from its senders: names with its token and prefix, and so many points.
//!
//! A batch of such a listener goes through its gate before it is accepted. Batches of other listeners have none.

use std::time::Instant;

use carbon::RejectReason;
use metric::canonical_name;
use sha2::{Digest, Sha256};

use super::{
    batch::{Batch, Sent},
    restrictions::{Gate, PrefixRule, TokenHash},
};

/// In place of input that may have a token.
const HIDDEN: &[u8] = b"(not shown: senders of this listener send a token)";

/// Bytes of the longest token.
const TOKEN_BYTES: usize = 128;

/// Rejects what the listener of a batch does not allow, and gives the other points their names.
pub(super) fn pass(gate: &mut Gate, batch: &mut Batch, now: Instant) {
    let has_tokens = !gate.listener.restrictions.tokens.is_empty();
    if has_tokens {
        // Lines that are not points may begin with the token, too.
        batch.examples.iter_mut().for_each(|example| example.sample = HIDDEN.to_vec());
    }
    let mut passed = Vec::with_capacity(batch.sent.len());
    for mut sent in std::mem::take(&mut batch.sent) {
        match renamed(gate, batch, &mut sent).and_then(|()| writable(gate, batch, &sent)) {
            Ok(()) => passed.push(sent),
            Err(RejectReason::WrongToken) => batch.reject_sample(RejectReason::WrongToken, HIDDEN),
            Err(reason) => {
                let name = batch.name(&sent).to_vec();
                batch.reject_sample(reason, &name);
            }
        }
    }
    let granted = gate.listener.granted(passed.len(), now);
    for sent in passed.split_off(granted) {
        let name = batch.name(&sent).to_vec();
        batch.reject_sample(RejectReason::TooManyPoints, &name);
    }
    batch.sent = passed;
}

/// Takes the token from a name, and sees to its prefix. After an error other than a wrong token, the name is without it.
fn renamed(gate: &mut Gate, batch: &mut Batch, sent: &mut Sent) -> Result<(), RejectReason> {
    let is_changed = without_token(gate, batch, sent)?;
    let Some((prefix, rule)) = &gate.listener.restrictions.prefix else {
        if is_changed {
            batch.rename(sent, None);
        }
        return Ok(());
    };
    // The beginning of a name as it is kept: empty components and a `~` may stand before it as it is sent.
    let begins = |name: &[u8]| canonical_name(name).map(|name| is_below(&name, prefix));
    let is_prepended = match rule {
        PrefixRule::Require => false,
        PrefixRule::Prepend => true,
        PrefixRule::Allow => !begins(batch.name(sent)).unwrap_or(false),
    };
    if is_changed || is_prepended {
        let is_short = batch.rename(sent, is_prepended.then_some(prefix.as_bytes()));
        is_short.then_some(()).ok_or(RejectReason::NameTooLong)?;
    }
    match begins(batch.name(sent)) {
        Ok(false) => Err(RejectReason::OutsidePrefix),
        // A name that cannot be kept has its own reason, later.
        Ok(true) | Err(_) => Ok(()),
    }
}

/// Refuses a name that the sender's token may not write.
fn writable(gate: &Gate, batch: &Batch, sent: &Sent) -> Result<(), RejectReason> {
    let Some(names) = &gate.writes else { return Ok(()) };
    // A name that cannot be kept has its own reason, later.
    let is_own = canonical_name(batch.name(sent)).map_or(true, |name| names.shows_metric(&name));
    is_own.then_some(()).ok_or(RejectReason::OutsideToken)
}

/// Takes the first component from a name where the listener has tokens, and checks it. Returns whether it did.
fn without_token(gate: &mut Gate, batch: &Batch, sent: &mut Sent) -> Result<bool, RejectReason> {
    let tokens = &gate.listener.restrictions.tokens;
    if tokens.is_empty() {
        return Ok(false);
    }
    let name = batch.name(sent);
    let length = name.iter().take(TOKEN_BYTES + 1).position(|&byte| byte == b'.').ok_or(RejectReason::WrongToken)?;
    let token = &name[..length];
    // Both are hashes or of this connection's own sender: nothing to learn from how long a comparison takes.
    if gate.known_token.as_deref() != Some(token) {
        let hash: TokenHash = Sha256::digest(token).into();
        if !tokens.contains(&hash) {
            return Err(RejectReason::WrongToken);
        }
        gate.known_token = Some(token.to_vec());
    }
    let taken = length + 1;
    sent.name_start += taken as u32;
    sent.name_len -= taken as u16;
    Ok(true)
}

/// Whether a canonical name is one below this prefix.
fn is_below(name: &str, prefix: &str) -> bool {
    prefix.len() < name.len() && name.starts_with(prefix)
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use carbon::Sink;
    use metadata::Registry;

    use super::*;
    use crate::{
        accept::restrictions::{ListenerGate, Restrictions},
        protocol::Protocol,
    };

    fn gate(restrictions: Restrictions) -> Gate {
        Gate::new(ListenerGate::new(restrictions))
    }

    /// The names that pass, and what is rejected with its example.
    fn through(gate: &mut Gate, names: &[&str], now: Instant) -> (Vec<String>, Vec<(RejectReason, String)>) {
        let registry = Arc::new(Registry::new());
        let mut batch = Batch::new(Protocol::LineTcp, 1, registry.clone());
        names.iter().for_each(|name| batch.point(name.as_bytes(), 60, 1.0));
        pass(gate, &mut batch, now);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        for sent in &batch.sent {
            assert_eq!(sent.hash, registry.hash(batch.name(sent)));
        }
        let passed = batch.sent.iter().map(|sent| text(batch.name(sent))).collect();
        (passed, batch.examples.iter().map(|example| (example.reason, text(&example.sample))).collect())
    }

    fn check_prefix(rule: PrefixRule, name: &str, expected: Option<&str>) {
        let mut gate = gate(Restrictions { prefix: Some(("blue.".to_owned(), rule)), ..Restrictions::default() });
        let (passed, rejected) = through(&mut gate, &[name], Instant::now());
        assert_eq!(passed.first().map(String::as_str), expected, "{name}");
        let is_outside = rejected.first().is_some_and(|(reason, _)| *reason == RejectReason::OutsidePrefix);
        assert_eq!(is_outside, expected.is_none(), "{name}");
    }

    #[test]
    fn names_are_below_the_prefix_as_its_rule_says() {
        use PrefixRule::{Allow, Prepend, Require};
        check_prefix(Require, "blue.a", Some("blue.a"));
        check_prefix(Require, "blue.cpu;host=a", Some("blue.cpu;host=a"));
        for outside in ["a", "red.a", "blue", "blue.", "blue..", "blu", "Blue.a", "blue.;a=b", "bluer.a"] {
            check_prefix(Require, outside, None);
        }
        // Both are stored as blue.a.
        check_prefix(Require, "..blue.a", Some("..blue.a"));
        check_prefix(Require, "~blue.a", Some("~blue.a"));
        check_prefix(Prepend, "a", Some("blue.a"));
        check_prefix(Prepend, "blue.a", Some("blue.blue.a"));
        check_prefix(Prepend, "cpu;host=a", Some("blue.cpu;host=a"));
        check_prefix(Prepend, "..a", Some("blue...a"));
        check_prefix(Prepend, ";host=a", None);
        check_prefix(Allow, "a", Some("blue.a"));
        check_prefix(Allow, "blue.a", Some("blue.a"));
        check_prefix(Allow, "blue", Some("blue.blue"));
        check_prefix(Allow, "", None);
    }

    #[test]
    fn a_token_is_taken_from_names_and_never_shown() {
        let tokens = vec![Sha256::digest("old").into(), Sha256::digest("new").into()];
        let mut gate = gate(Restrictions { tokens, ..Restrictions::default() });
        let long = format!("{}.a", "x".repeat(200));
        let names = ["old.a", "new.b.c", "new.d;old=1", "old", "wrong.a", "OLD.a", ".old.a", "", ".", long.as_str()];
        let (passed, rejected) = through(&mut gate, &names, Instant::now());
        assert_eq!(passed, ["a", "b.c", "d;old=1"]);
        assert_eq!(rejected.len(), 7);
        for (reason, sample) in &rejected {
            assert_eq!((*reason, sample.as_bytes()), (RejectReason::WrongToken, HIDDEN));
        }
        for first in [".a", "", "a"] {
            let mut fresh = Gate::new(gate.listener.clone());
            assert_eq!(through(&mut fresh, &[first], Instant::now()).0, [""; 0], "{first}");
        }
        let registry = Arc::new(Registry::new());
        let mut batch = Batch::new(Protocol::LineTcp, 1, registry);
        batch.reject(RejectReason::BadLine, b"old.a x");
        pass(&mut gate, &mut batch, Instant::now());
        assert_eq!(batch.examples[0].sample, HIDDEN);
    }

    #[test]
    fn token_and_prefix_hold_together() {
        let prefix = Some(("blue.".to_owned(), PrefixRule::Require));
        let tokens = vec![Sha256::digest("old").into()];
        let mut gate = gate(Restrictions { prefix, tokens, ..Restrictions::default() });
        let (passed, rejected) = through(&mut gate, &["old.blue.a", "old.red.a", "blue.a"], Instant::now());
        assert_eq!(passed, ["blue.a"]);
        assert_eq!(rejected[0], (RejectReason::OutsidePrefix, "red.a".to_owned()));
        assert_eq!(rejected[1].0, RejectReason::WrongToken);
    }

    #[test]
    fn points_beyond_the_rate_are_rejected() {
        let mut gate = gate(Restrictions { points_per_second: Some(10), ..Restrictions::default() });
        let (names, start) = (["a"; 8], Instant::now());
        let mut at = |seconds: f64| {
            let (passed, rejected) = through(&mut gate, &names, start + Duration::from_secs_f64(seconds));
            assert!(rejected.iter().all(|(reason, _)| *reason == RejectReason::TooManyPoints));
            passed.len()
        };
        assert_eq!([0.0, 0.0, 0.05, 0.55, 60.0, 60.0, 60.0].map(&mut at), [8, 2, 0, 5, 8, 2, 0]);
    }
}
