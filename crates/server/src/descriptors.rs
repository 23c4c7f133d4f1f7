//! The file descriptors of this process, divided: for files, for HTTP, and for receivers.

/// Descriptors of files of the data folder, of the log and of the runtime; the setting `data.reserved_files` at most.
/// A process with few descriptors keeps a quarter of them.
const FILES_PART: u64 = 4;

/// A quarter of the rest is for HTTP, so that an operator gets an answer when receivers have taken all they may.
const HTTP_PART: u64 = 4;

/// How many connections there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptors {
    /// Of all receivers together.
    pub receivers: u64,
    /// Of HTTP.
    pub http: u64,
}

impl Descriptors {
    /// Raises the limit of the process as far as the system allows, and divides it.
    pub fn of_this_process(reserved_files: usize, http: usize) -> Descriptors {
        let limit = host::raise_open_files().unwrap_or_else(|error| {
            let limit = host::open_files_limit();
            tracing::warn!(%error, limit, "cannot raise the limit of open files; going on with this one");
            limit
        });
        Descriptors::divided(limit, reserved_files as u64, http as u64)
    }

    fn divided(limit: u64, reserved_files: u64, http: u64) -> Descriptors {
        let sockets = limit - reserved_files.min(limit / FILES_PART);
        let http = http.min(sockets / HTTP_PART);
        Descriptors { receivers: sockets - http, http }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_few_descriptors_keeps_some_for_files_and_http() {
        let few = Descriptors::divided(1024, 1024, 4096);
        assert_eq!(few, Descriptors { receivers: 576, http: 192 });
        let many = Descriptors::divided(1 << 20, 1024, 4096);
        assert_eq!(many, Descriptors { receivers: (1 << 20) - 1024 - 4096, http: 4096 });
    }
}
