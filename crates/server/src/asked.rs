//! What a request of administration asks for: its parameters, and for how long it wants them.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use api::ExtensionRequest;
use hyper::StatusCode;

/// Bytes of a form.
const FORM_BYTES: usize = 64 << 10;

/// The parameters of a request: the query string's, then the form's.
pub struct Asked(Vec<(String, String)>);

impl Asked {
    /// Reads them, and says them for the record of the request.
    pub async fn read(request: ExtensionRequest) -> Result<Asked, (StatusCode, String)> {
        let asked_for = request.asked_for.clone();
        let mut pairs = request.parameters(FORM_BYTES).await?;
        pairs.retain(|(name, _)| !name.is_empty());
        let asked = Asked(pairs);
        let shown = asked.0.iter().filter(|(name, _)| name != "proof");
        asked_for.set(shown.map(|(name, value)| format!("{name}={value}")).collect());
        Ok(asked)
    }

    /// Of a form.
    #[cfg(test)]
    pub fn parsed(text: &[u8]) -> Asked {
        let pairs = form_urlencoded::parse(text).filter(|(name, _)| !name.is_empty());
        Asked(pairs.map(|(name, value)| (name.into_owned(), value.into_owned())).collect())
    }

    pub fn all(&self, name: &str) -> Vec<&str> {
        self.0.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str()).collect()
    }

    /// Rejects parameters that a request does not have: what a misspelt one was to prevent would happen.
    pub fn only(&self, known: &[&str]) -> Result<(), String> {
        let Some((unknown, _)) = self.0.iter().find(|(name, _)| !known.contains(&name.as_str())) else { return Ok(()) };
        Err(match known {
            [] => format!("unknown parameter '{unknown}'; this request has none"),
            known => format!("unknown parameter '{unknown}'; this request has {}", known.join(", ")),
        })
    }

    /// The last value of a parameter.
    pub fn last(&self, name: &str) -> Option<&str> {
        self.all(name).last().copied()
    }

    pub fn flag(&self, name: &str) -> bool {
        self.all(name).last().is_some_and(|value| !matches!(*value, "" | "0" | "false"))
    }
}

/// Sets its flag when it is dropped.
pub struct CancelOnDrop(pub Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}
