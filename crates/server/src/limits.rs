//! Settings that are valid one by one, and with which the program could do nothing: refused, before senders wait for ever.

use crate::settings::{Bytes, Kind, Settings};

/// The least that a limit on memory or disk can be: points of one read of a connection, as a record of the journal and as
/// slots, fit into it.
const LEAST: Bytes = Bytes(1 << 20);

const NOTHING: &str =
    "nothing listens: set at least one of listen.http, listen.line, listen.pickle and listen.protobuf to an address";

/// Checks the limits and the listeners.
///
/// # Errors
/// A sentence for each setting with which the program would accept nothing.
pub fn check(settings: &Settings) -> Result<(), String> {
    let limits = [
        ("ingest.journal_limit", settings.ingest.journal_limit),
        ("ingest.memory_limit", settings.ingest.memory_limit),
        ("receive.memory", settings.receive.memory),
    ];
    let mut problems: Vec<String> = limits.into_iter().filter_map(|(key, limit)| too_small(key, limit)).collect();
    let listen = &settings.listen;
    let of_points = [&listen.line, &listen.pickle, &listen.protobuf];
    let of_http = [listen.http.clone(), listen.admin.next_to(listen.http.as_ref())];
    if of_points.iter().all(|address| address.is_none()) && of_http.iter().all(Option::is_none) {
        problems.push(NOTHING.to_owned());
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
}

fn too_small(key: &str, limit: Bytes) -> Option<String> {
    (limit.0 < LEAST.0).then(|| {
        format!(
            "{key} must be at least {}, not {}: with less, senders would wait for ever",
            LEAST.write(),
            limit.write()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Sources, load};

    fn checked(text: &str) -> Result<(), String> {
        let file = Some(("p.toml".to_owned(), text.to_owned()));
        check(&load(&Sources { file, ..Sources::default() }).unwrap())
    }

    #[test]
    fn limits_that_no_batch_fits_are_refused_by_name() {
        for (section, key) in [("ingest", "journal_limit"), ("ingest", "memory_limit"), ("receive", "memory")] {
            assert_eq!(checked(&format!("[{section}]\n{key} = \"1MiB\"")), Ok(()));
            let refusal = checked(&format!("[{section}]\n{key} = \"1023KiB\"")).unwrap_err();
            assert!(refusal.starts_with(&format!("{section}.{key} must be at least 1MiB, not 1023KiB")), "{refusal}");
        }
    }

    #[test]
    fn a_program_that_listens_to_nothing_is_refused() {
        let off = "[listen]\nline = \"off\"\npickle = \"off\"\nprotobuf = \"off\"\n";
        assert_eq!(checked(off), Ok(()));
        let refusal = checked(&format!("{off}http = \"off\"")).unwrap_err();
        assert!(refusal.starts_with("nothing listens: "), "{refusal}");
        assert_eq!(checked("[listen]\nhttp = \"off\""), Ok(()));
    }
}
