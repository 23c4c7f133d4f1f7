//! The kinds of value a setting can have, and how each is written as text.

use std::{fmt, net::IpAddr, path::PathBuf, time::Duration};

use jiff::tz::TimeZone;
use tracing_subscriber::EnvFilter;

/// A value that is read from text and written back as the same text.
pub trait Kind: Sized {
    /// What values it takes, to follow "must be".
    const TAKES: &'static str;
    /// Whether TOML writes it in quotes.
    const QUOTED: bool = true;
    /// Reads it; the error is a whole clause that says what was given and what would do.
    fn read(text: &str) -> Result<Self, String>;
    /// Writes what `read` reads.
    fn write(&self) -> String;
}

/// The clause that says what a value must be.
pub(super) fn must_be<T: Kind>(text: &str) -> String {
    format!("must be {}, got '{text}'", T::TAKES)
}

/// A host and a port to listen on, resolved when it is bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    // Invariant: the text after the last colon is a port, and what is before is not empty.
    text: String,
}

impl Address {
    /// `host:port`, as `bind` takes it.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether only this machine reaches the address: a loopback address or `localhost`. Other names count as public.
    pub fn is_loopback(&self) -> bool {
        let host = self.text.rsplit_once(':').map_or("", |(host, _)| host);
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.to_canonical().is_loopback())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Kind for Address {
    const TAKES: &'static str = "an address and a port such as \"127.0.0.1:2003\"";

    fn read(text: &str) -> Result<Address, String> {
        let error = || must_be::<Address>(text);
        let (host, port) = text.rsplit_once(':').ok_or_else(error)?;
        port.parse::<u16>().map_err(|_| error())?;
        let is_bare_v6 = host.contains(':') && !host.starts_with('[');
        if is_bare_v6 || host.contains(char::is_whitespace) {
            return Err(error());
        }
        // ":2003" means every interface, as it does for go-carbon.
        let host = if host.is_empty() { "0.0.0.0" } else { host };
        Ok(Address { text: format!("{host}:{port}") })
    }

    fn write(&self) -> String {
        self.text.clone()
    }
}

/// An optional value; "off" means none.
impl<T: Kind + Optional> Kind for Option<T> {
    const TAKES: &'static str = T::TAKES_OR_OFF;

    fn read(text: &str) -> Result<Option<T>, String> {
        if text == "off" {
            return Ok(None);
        }
        T::read(text).map(Some).map_err(|_| must_be::<Option<T>>(text))
    }

    fn write(&self) -> String {
        self.as_ref().map_or_else(|| "off".to_owned(), T::write)
    }
}

/// A kind that can be "off", and the text of its alternatives. Constants cannot be joined generically.
pub trait Optional {
    /// [`Kind::TAKES`] with the word "off".
    const TAKES_OR_OFF: &'static str;
}

impl Optional for Address {
    const TAKES_OR_OFF: &'static str = "an address and a port such as \"127.0.0.1:2003\", or \"off\"";
}

impl Optional for Bytes {
    const TAKES_OR_OFF: &'static str = "a size such as \"64MiB\", or \"off\"";
}

impl Optional for Duration {
    const TAKES_OR_OFF: &'static str = "a time such as \"1s\", \"10min\" or \"1h\", or \"off\"";
}

impl Optional for PathBuf {
    const TAKES_OR_OFF: &'static str = "a folder, or \"off\"";
}

/// Units of time, longest first; `m` is a minute, as in carbon's own files.
const TIME_UNITS: [(&str, u64); 7] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("min", 60_000),
    // Read, but not written: "min" comes first.
    ("m", 60_000),
    ("sec", 1000),
    ("s", 1000),
    ("ms", 1),
];

/// `90s`, `1h`: a time in the largest unit that divides it.
pub fn span_text(span: Duration) -> String {
    let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    if millis == 0 {
        return "0s".to_owned();
    }
    let written = TIME_UNITS.iter().filter(|(unit, _)| !matches!(*unit, "m" | "sec"));
    for (unit, length) in written {
        if millis.is_multiple_of(*length) {
            return format!("{}{unit}", millis / length);
        }
    }
    unreachable!("every whole number of milliseconds is a multiple of one")
}

impl Kind for Duration {
    const TAKES: &'static str = "a time such as \"1s\", \"10min\" or \"1h\"";

    fn read(text: &str) -> Result<Duration, String> {
        let error = || must_be::<Duration>(text);
        let (number, unit) = number_and_unit(text).ok_or_else(error)?;
        let (_, length) = TIME_UNITS.iter().find(|(known, _)| *known == unit).ok_or_else(error)?;
        let millis = number.checked_mul(*length).ok_or_else(error)?;
        Ok(Duration::from_millis(millis))
    }

    fn write(&self) -> String {
        span_text(*self)
    }
}

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl Bytes {
    /// As a length in memory; as much as can be addressed where that is less.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// Free disk to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reserve {
    /// 1 GiB, or 5 % of a smaller disk.
    Auto,
    /// So many bytes.
    Bytes(Bytes),
}

impl Reserve {
    /// In bytes, of a disk of this size.
    pub fn bytes(self, capacity: impl FnOnce() -> u64) -> u64 {
        match self {
            Reserve::Auto => (1 << 30).min(capacity() / 20),
            Reserve::Bytes(bytes) => bytes.0,
        }
    }
}

impl Kind for Reserve {
    const TAKES: &'static str = "a size such as \"512MiB\" or \"8GiB\", or \"auto\"";

    fn read(text: &str) -> Result<Reserve, String> {
        if text == "auto" {
            return Ok(Reserve::Auto);
        }
        Bytes::read(text).map(Reserve::Bytes).map_err(|_| must_be::<Reserve>(text))
    }

    fn write(&self) -> String {
        match self {
            Reserve::Auto => "auto".to_owned(),
            Reserve::Bytes(bytes) => bytes.write(),
        }
    }
}

/// Units of size, largest first.
const SIZE_UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
    // Read, but not written.
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1000),
];

/// `16KiB`: a size in the largest binary unit that divides it.
pub fn bytes_text(bytes: u64) -> String {
    let (unit, size) =
        SIZE_UNITS[..5].iter().find(|(_, size)| bytes.is_multiple_of(*size)).expect("one divides every number");
    if bytes == 0 { "0B".to_owned() } else { format!("{}{unit}", bytes / size) }
}

impl Kind for Bytes {
    const TAKES: &'static str = "a size such as \"16KiB\", \"512MiB\" or \"8GiB\"";

    fn read(text: &str) -> Result<Bytes, String> {
        let error = || must_be::<Bytes>(text);
        let (number, unit) = number_and_unit(text).ok_or_else(error)?;
        let unit = if unit.is_empty() { "B" } else { unit };
        let (_, size) = SIZE_UNITS.iter().find(|(known, _)| known.eq_ignore_ascii_case(unit)).ok_or_else(error)?;
        number.checked_mul(*size).map(Bytes).ok_or_else(error)
    }

    fn write(&self) -> String {
        bytes_text(self.0)
    }
}

/// `10min` as 10 and `min`; blanks between are allowed.
fn number_and_unit(text: &str) -> Option<(u64, &str)> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits)?;
    Some((number.parse().ok()?, unit.trim_start()))
}

/// When the journal is fsynced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fsync {
    /// In groups, this far apart.
    Every(Duration),
    /// Before points count as accepted.
    Always,
}

impl Kind for Fsync {
    const TAKES: &'static str = "a time such as \"1s\", or \"always\"";

    fn read(text: &str) -> Result<Fsync, String> {
        if text == "always" {
            return Ok(Fsync::Always);
        }
        match Duration::read(text) {
            Ok(every) if !every.is_zero() => Ok(Fsync::Every(every)),
            _ => Err(must_be::<Fsync>(text)),
        }
    }

    fn write(&self) -> String {
        match self {
            Fsync::Every(every) => span_text(*every),
            Fsync::Always => "always".to_owned(),
        }
    }
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Text.
    Auto,
    /// Text, one event a line.
    Text,
    /// JSON, one object a line.
    Json,
}

impl Kind for LogFormat {
    const TAKES: &'static str = "\"auto\", \"text\" or \"json\"";

    fn read(text: &str) -> Result<LogFormat, String> {
        match text {
            "auto" => Ok(LogFormat::Auto),
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            _ => Err(must_be::<LogFormat>(text)),
        }
    }

    fn write(&self) -> String {
        match self {
            LogFormat::Auto => "auto",
            LogFormat::Text => "text",
            LogFormat::Json => "json",
        }
        .to_owned()
    }
}

/// Which log lines are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLevel {
    // Invariant: tracing's filter reads it.
    text: String,
}

impl LogLevel {
    /// The filter.
    pub fn filter(&self) -> EnvFilter {
        // The storage library tells of every file it opens, and the cluster's driver of every connection, every
        // index that Cassandra finds experimental, and every second of an outage, which is for their own developers: what
        // an operator must know of it, we say. A filter that names one of them still decides, and so does asking for all.
        let asks_for_all = self.text.parse::<tracing::Level>().is_ok_and(|level| tracing::Level::DEBUG <= level);
        let quiet = [("lsm_tree", "warn"), ("scylla", if asks_for_all { "warn" } else { "off" })]
            .into_iter()
            .filter(|(library, _)| !self.text.contains(library))
            .map(|(library, level)| format!(",{library}={level}"));
        EnvFilter::try_new(format!("{}{}", self.text, quiet.collect::<String>())).expect("it was read once")
    }
}

impl Kind for LogLevel {
    const TAKES: &'static str =
        "\"error\", \"warn\", \"info\", \"debug\", \"trace\" or a filter such as \"info,api=debug\"";

    fn read(text: &str) -> Result<LogLevel, String> {
        // A word that is not a level would count as a module's name, and nothing would be logged.
        let is_filter = text.contains(['=', ',']) || text.parse::<tracing::Level>().is_ok();
        let filter = is_filter.then(|| EnvFilter::try_new(text).ok()).flatten();
        filter.map(|_| LogLevel { text: text.to_owned() }).ok_or_else(|| must_be::<LogLevel>(text))
    }

    fn write(&self) -> String {
        self.text.clone()
    }
}

/// A time zone and the name it was chosen by.
#[derive(Debug, Clone)]
pub struct Zone {
    name: String,
    zone: TimeZone,
}

impl Zone {
    /// The zone.
    pub fn zone(&self) -> TimeZone {
        self.zone.clone()
    }
}

impl Kind for Zone {
    const TAKES: &'static str = "a time zone such as \"UTC\" or \"Europe/Paris\"";

    fn read(text: &str) -> Result<Zone, String> {
        let zone = TimeZone::get(text).map_err(|_| must_be::<Zone>(text))?;
        Ok(Zone { name: text.to_owned(), zone })
    }

    fn write(&self) -> String {
        self.name.clone()
    }
}

impl Kind for bool {
    const TAKES: &'static str = "true or false";
    const QUOTED: bool = false;

    fn read(text: &str) -> Result<bool, String> {
        text.parse().map_err(|_| must_be::<bool>(text))
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

impl Kind for usize {
    const TAKES: &'static str = "a whole number, at least 1";
    const QUOTED: bool = false;

    fn read(text: &str) -> Result<usize, String> {
        match text.parse() {
            Ok(0) | Err(_) => Err(must_be::<usize>(text)),
            Ok(number) => Ok(number),
        }
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

impl Kind for String {
    const TAKES: &'static str = "text";

    fn read(text: &str) -> Result<String, String> {
        if text.is_empty() { Err("must not be empty".to_owned()) } else { Ok(text.to_owned()) }
    }

    fn write(&self) -> String {
        self.clone()
    }
}

impl Kind for PathBuf {
    const TAKES: &'static str = "a folder";

    fn read(text: &str) -> Result<PathBuf, String> {
        if text.is_empty() { Err(must_be::<PathBuf>(text)) } else { Ok(PathBuf::from(text)) }
    }

    fn write(&self) -> String {
        self.display().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Kind>(text: &str, written: Option<&str>) {
        assert_eq!(T::read(text).ok().map(|value| value.write()).as_deref(), written, "{text}");
    }

    #[test]
    fn a_time_needs_a_unit() {
        check::<Duration>("90s", Some("90s"));
        check::<Duration>("120 s", Some("2min"));
        check::<Duration>("1m", Some("1min"));
        check::<Duration>("1500ms", Some("1500ms"));
        check::<Duration>("48h", Some("2d"));
        for bad in ["", "90", "s", "-1s", "1.5h", "1 fortnight", "99999999999999999999s", "18446744073709551615d"] {
            check::<Duration>(bad, None);
        }
    }

    #[test]
    fn a_size_may_be_plain_bytes() {
        check::<Bytes>("4096", Some("4KiB"));
        check::<Bytes>("1 mib", Some("1MiB"));
        check::<Bytes>("1KB", Some("1000B"));
        check::<Bytes>("lots", None);
    }

    #[test]
    fn an_address_has_a_host_and_a_port() {
        check::<Address>("127.0.0.1:0", Some("127.0.0.1:0"));
        check::<Address>("localhost:2003", Some("localhost:2003"));
        check::<Address>("[::]:2003", Some("[::]:2003"));
        check::<Address>(":2003", Some("0.0.0.0:2003"));
        for bad in ["2003", "localhost", "a:b", "::1", "a b:1", "h:70000"] {
            check::<Address>(bad, None);
        }
        check::<Option<Address>>("off", Some("off"));
        for local in ["127.0.0.1:0", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1", "localhost:1"] {
            assert!(Address::read(local).unwrap().is_loopback(), "{local}");
        }
        for public in [":1", "0.0.0.0:1", "[::]:1", "10.0.0.1:1", "localhost.example.org:1", "127.0.0.1.example.org:1"]
        {
            assert!(!Address::read(public).unwrap().is_loopback(), "{public}");
        }
    }

    #[test]
    fn a_level_or_a_zone_that_is_unknown_is_rejected() {
        check::<LogLevel>("info,ingest=debug", Some("info,ingest=debug"));
        check::<LogLevel>("warn", Some("warn"));
        check::<LogLevel>("loud", None);
        check::<LogLevel>("info,=,", None);
        check::<Zone>("Europe/Paris", Some("Europe/Paris"));
        check::<Zone>("Mars/Olympus", None);
    }

    #[test]
    fn an_error_names_valid_values() {
        assert_eq!(
            <Option<Address>>::read("2003").unwrap_err(),
            "must be an address and a port such as \"127.0.0.1:2003\", or \"off\", got '2003'"
        );
    }
}
