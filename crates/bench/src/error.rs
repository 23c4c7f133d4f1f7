//! Errors of a measurement.

/// Why a measurement failed, for the user at the terminal.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The arguments contradict each other or are incomplete.
    #[error("{0}")]
    Usage(String),
    /// A socket could not be opened or failed while in use.
    #[error("{what} {address}: {source}")]
    Socket {
        /// The action that failed, e.g. `connecting to`.
        what: &'static str,
        /// Host and port.
        address: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The server's answer is not the expected one.
    #[error("{url}: {why}")]
    Answer {
        /// The address asked.
        url: String,
        /// The difference.
        why: String,
    },
    /// The process to measure cannot be read under /proc.
    #[error("process {pid} cannot be measured: {why}")]
    Process {
        /// The process.
        pid: u32,
        /// The reason.
        why: String,
    },
    /// The folder to measure cannot be read.
    #[error("folder {folder} cannot be measured: {source}")]
    Disk {
        /// The folder.
        folder: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Points sent did not become readable in time. The table is printed before, unless these were the points that make
    /// metrics known.
    #[error(
        "after {seconds:.1} s the points of {whole} of {metrics} metrics could be read, and of the next one {lacking} could \
         not; --timeout gives them longer"
    )]
    Unreadable {
        /// Metrics read.
        metrics: u64,
        /// Metrics with all their points.
        whole: u64,
        /// Points missing from the next metric.
        lacking: u64,
        /// How long the wait was.
        seconds: f64,
    },
    /// Points read back differ from the points sent. The table is printed before.
    #[error("of {checked} points read back, {missing} were missing, {wrong} wrong and {extra} never sent")]
    Unfaithful {
        /// Points compared.
        checked: u64,
        /// Sent, but null or absent.
        missing: u64,
        /// Sent, but with another value.
        wrong: u64,
        /// A value where none was sent.
        extra: u64,
    },
}
