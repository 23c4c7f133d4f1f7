//! Standard output.

use std::io::{self, Write};

/// Writes text. A closed pipe (`plumbago settings | head`) or a full disk is not an error.
pub fn print(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// An error with its causes, on one line. A cause whose text is in what comes before it is left out.
pub fn with_causes(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cause_is_printed_twice() {
        let system = || anyhow::anyhow!("Connection refused (os error 111)");
        let error = system().context("asking 127.0.0.1:1: Connection refused (os error 111)");
        assert_eq!(with_causes(&error), "asking 127.0.0.1:1: Connection refused (os error 111)");
        let error = system().context("no server answers").context("cannot flush");
        assert_eq!(with_causes(&error), "cannot flush: no server answers: Connection refused (os error 111)");
    }
}
