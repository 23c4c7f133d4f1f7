//! How points come.

/// How points come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Plaintext over TCP.
    LineTcp,
    /// Plaintext over UDP.
    LineUdp,
    /// Pickle over TCP.
    Pickle,
    /// Protobuf over TCP.
    Protobuf,
    /// HTTP POST, whatever the body.
    Http,
    /// Plumbago's own metrics.
    Own,
}

impl Protocol {
    /// Every protocol, in the order of the variants.
    pub const ALL: [Protocol; 6] =
        [Protocol::LineTcp, Protocol::LineUdp, Protocol::Pickle, Protocol::Protobuf, Protocol::Http, Protocol::Own];

    /// The label of its counters.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::LineTcp => "line_tcp",
            Protocol::LineUdp => "line_udp",
            Protocol::Pickle => "pickle",
            Protocol::Protobuf => "protobuf",
            Protocol::Http => "http",
            Protocol::Own => "own",
        }
    }
}
