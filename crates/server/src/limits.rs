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
    let zeros = zeros(settings).into_iter().filter(|(_, is_zero, _)| *is_zero);
    problems.extend(zeros.map(|(key, _, what)| format!("{key} must not be 0: {what}")));
    let listen = &settings.listen;
    let of_points = [&listen.line, &listen.pickle, &listen.protobuf];
    let of_http = [listen.http.clone(), listen.admin.next_to(listen.http.as_ref())];
    if of_points.iter().all(|address| address.is_none()) && of_http.iter().all(Option::is_none) {
        problems.push(NOTHING.to_owned());
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
}

/// Settings that may not be zero, whether they are, and what would come of it.
fn zeros(settings: &Settings) -> Vec<(&'static str, bool, &'static str)> {
    const REFUSED: &str = "every request would be refused";
    const CLOSED: &str = "every connection would be closed at once";
    const NO_REST: &str = "it would be done all the time";
    let Settings { receive, data, rules, http, query, peers, tables, .. } = settings;
    let is_nothing = |bytes: Bytes| bytes.0 == 0;
    vec![
        ("receive.max_frame", is_nothing(receive.max_frame), "every frame would be skipped"),
        ("receive.max_body", is_nothing(receive.max_body), REFUSED),
        ("data.expire_every", data.expire_every.is_zero(), NO_REST),
        ("rules.reload_every", rules.reload_every.is_zero(), NO_REST),
        ("http.max_header_bytes", is_nothing(http.max_header_bytes), REFUSED),
        ("http.idle_timeout", http.idle_timeout.is_zero(), CLOSED),
        ("http.head_timeout", http.head_timeout.is_zero(), CLOSED),
        ("http.body_timeout", http.body_timeout.is_zero(), CLOSED),
        ("http.answer_memory", is_nothing(http.answer_memory), REFUSED),
        ("query.timeout", query.timeout.is_zero(), REFUSED),
        ("query.memory", is_nothing(query.memory), REFUSED),
        ("query.max_target_bytes", is_nothing(query.max_target_bytes), REFUSED),
        ("query.max_response_bytes", is_nothing(query.max_response_bytes), REFUSED),
        ("cassandra.reconcile_every", tables.reconcile_every.is_zero(), NO_REST),
        ("peers.timeout", peers.timeout.is_zero(), "no answer of another node could come in time"),
    ]
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
    fn zeros_with_which_nothing_would_work_are_refused_together() {
        let refusal =
            checked("[http]\nidle_timeout = \"0s\"\nhead_timeout = \"0s\"\n[query]\nmemory = \"0B\"").unwrap_err();
        let expected = [
            "http.idle_timeout must not be 0: every connection would be closed at once",
            "http.head_timeout must not be 0: every connection would be closed at once",
            "query.memory must not be 0: every request would be refused",
        ];
        assert_eq!(refusal.lines().collect::<Vec<&str>>(), expected);
        for (key, ..) in zeros(&Settings::default()) {
            let definition = crate::settings::definitions().find(|known| known.path() == key);
            let mut settings = Settings::default();
            let set = definition.unwrap_or_else(|| panic!("{key}")).set;
            assert!(["0s", "0B"].iter().any(|text| set(&mut settings, text).is_ok()), "{key}");
            assert!(check(&settings).unwrap_err().starts_with(key), "{key}");
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
