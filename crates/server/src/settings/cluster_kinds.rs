//! The kinds of value that only the settings of a cluster have.

use std::time::Duration;

use cluster::Globs;
use store_cassandra::{Consistency, Indexes, Layout};

use super::kinds::{Kind, Optional, must_be};

/// Hosts to connect to, each with a port where it is not the usual one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hosts {
    // Invariant: not empty, and no member is.
    hosts: Vec<String>,
}

impl Hosts {
    /// `HOST` or `HOST:PORT` each.
    pub fn all(&self) -> &[String] {
        &self.hosts
    }
}

impl Kind for Hosts {
    const TAKES: &'static str = "hosts such as \"10.0.0.1,10.0.0.2:9042\"";

    fn read(text: &str) -> Result<Hosts, String> {
        let hosts: Vec<String> = text.split(',').map(|host| host.trim().to_owned()).collect();
        let is_host = |host: &String| {
            let port = host.rsplit_once(':').filter(|(before, _)| !before.contains(':')).map(|(_, port)| port);
            !host.is_empty()
                && !host.contains(char::is_whitespace)
                && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
        };
        if hosts.iter().all(is_host) { Ok(Hosts { hosts }) } else { Err(must_be::<Hosts>(text)) }
    }

    fn write(&self) -> String {
        self.hosts.join(",")
    }
}

impl Optional for Hosts {
    const TAKES_OR_OFF: &'static str = "hosts such as \"10.0.0.1,10.0.0.2:9042\", or \"off\"";
}

impl Optional for String {
    const TAKES_OR_OFF: &'static str = "text, or \"off\"";
}

/// A keyspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keyspace {
    // Invariant: Cassandra takes it, unless it is too long.
    name: String,
}

impl Keyspace {
    /// Its name.
    pub fn as_str(&self) -> &str {
        &self.name
    }
}

impl Kind for Keyspace {
    const TAKES: &'static str = "a name of letters, digits and underscores";

    /// What Cassandra would refuse at each attempt is refused here.
    fn read(text: &str) -> Result<Keyspace, String> {
        let is_name = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if is_name { Ok(Keyspace { name: text.to_owned() }) } else { Err(must_be::<Keyspace>(text)) }
    }

    fn write(&self) -> String {
        self.name.clone()
    }
}

/// Something that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    text: Option<String>,
}

impl Secret {
    /// The secret, where there is one.
    pub fn reveal(&self) -> Option<&str> {
        self.text.as_deref()
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.text.is_some() { "Secret(…)" } else { "Secret(none)" })
    }
}

impl Kind for Secret {
    const TAKES: &'static str = "text, or \"off\"";

    fn read(text: &str) -> Result<Secret, String> {
        Ok(Secret { text: (text != "off" && !text.is_empty()).then(|| text.to_owned()) })
    }

    fn write(&self) -> String {
        if self.text.is_some() { "(not shown)" } else { "off" }.to_owned()
    }
}

impl Kind for Consistency {
    const TAKES: &'static str = "\"any\", \"one\", \"two\", \"three\", \"quorum\", \"all\", \"local_quorum\", \
                                 \"each_quorum\" or \"local_one\"";

    fn read(text: &str) -> Result<Consistency, String> {
        let known = LEVELS.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
        known.map(|(_, level)| *level).ok_or_else(|| must_be::<Consistency>(text))
    }

    fn write(&self) -> String {
        let known = LEVELS.iter().find(|(_, level)| level == self);
        known.map_or("", |(name, _)| name).to_owned()
    }
}

const LEVELS: [(&str, Consistency); 9] = [
    ("any", Consistency::Any),
    ("one", Consistency::One),
    ("two", Consistency::Two),
    ("three", Consistency::Three),
    ("quorum", Consistency::Quorum),
    ("all", Consistency::All),
    ("local_quorum", Consistency::LocalQuorum),
    ("each_quorum", Consistency::EachQuorum),
    ("local_one", Consistency::LocalOne),
];

/// How many replicas must answer a read. "any" is for writes alone: it means a hint that no client can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadConsistency(pub Consistency);

impl Kind for ReadConsistency {
    const TAKES: &'static str = "\"one\", \"two\", \"three\", \"quorum\", \"all\", \"local_quorum\", \"each_quorum\" or \
                                 \"local_one\"";

    fn read(text: &str) -> Result<ReadConsistency, String> {
        let level = Consistency::read(text).ok().filter(|level| *level != Consistency::Any);
        level.map(ReadConsistency).ok_or_else(|| must_be::<ReadConsistency>(text))
    }

    fn write(&self) -> String {
        self.0.write()
    }
}

/// How long something may take that takes time: a thousandth of a second or more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience(pub Duration);

impl Kind for Patience {
    const TAKES: &'static str = "a time above zero such as \"500ms\" or \"10s\"";

    fn read(text: &str) -> Result<Patience, String> {
        let time = Duration::read(text).ok().filter(|time| !time.is_zero());
        time.map(Patience).ok_or_else(|| must_be::<Patience>(text))
    }

    fn write(&self) -> String {
        self.0.write()
    }
}

/// The number of concurrent statements: at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InFlight(pub usize);

impl Kind for InFlight {
    const TAKES: &'static str = "a whole number from 1 to 32768";
    const QUOTED: bool = false;

    fn read(text: &str) -> Result<InFlight, String> {
        let number = text.parse().ok().filter(|number| (1..=32_768).contains(number));
        number.map(InFlight).ok_or_else(|| must_be::<InFlight>(text))
    }

    fn write(&self) -> String {
        self.0.to_string()
    }
}

impl Kind for Indexes {
    const TAKES: &'static str = "\"sasi\", \"sai\" or \"none\"";

    fn read(text: &str) -> Result<Indexes, String> {
        match text {
            "sasi" => Ok(Indexes::Sasi),
            "sai" => Ok(Indexes::Sai),
            "none" => Ok(Indexes::None),
            _ => Err(must_be::<Indexes>(text)),
        }
    }

    fn write(&self) -> String {
        match self {
            Indexes::Sasi => "sasi",
            Indexes::Sai => "sai",
            Indexes::None => "none",
        }
        .to_owned()
    }
}

impl Kind for Layout {
    const TAKES: &'static str = "\"rows\" or \"packed\"";

    fn read(text: &str) -> Result<Layout, String> {
        match text {
            "rows" => Ok(Layout::Rows),
            "packed" => Ok(Layout::Packed),
            _ => Err(must_be::<Layout>(text)),
        }
    }

    fn write(&self) -> String {
        match self {
            Layout::Rows => "rows",
            Layout::Packed => "packed",
        }
        .to_owned()
    }
}

impl Kind for Globs {
    const TAKES: &'static str = "\"local\" or \"cassandra\"";

    fn read(text: &str) -> Result<Globs, String> {
        match text {
            "local" => Ok(Globs::Local),
            "cassandra" => Ok(Globs::Cassandra),
            _ => Err(must_be::<Globs>(text)),
        }
    }

    fn write(&self) -> String {
        match self {
            Globs::Local => "local",
            Globs::Cassandra => "cassandra",
        }
        .to_owned()
    }
}

/// Which of the four replicas of aggregates a writer writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replica(pub u8);

impl Kind for Replica {
    const TAKES: &'static str = "0, 1, 2 or 3";
    const QUOTED: bool = false;

    fn read(text: &str) -> Result<Replica, String> {
        let number = text.parse().ok().filter(|&number| number < 4);
        number.map(Replica).ok_or_else(|| must_be::<Replica>(text))
    }

    fn write(&self) -> String {
        self.0.to_string()
    }
}

/// A share of something.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share(pub f64);

impl Kind for Share {
    const TAKES: &'static str = "a number from 0 to 1";
    const QUOTED: bool = false;

    fn read(text: &str) -> Result<Share, String> {
        let number = text.parse().ok().filter(|number| (0.0..=1.0).contains(number));
        number.map(Share).ok_or_else(|| must_be::<Share>(text))
    }

    fn write(&self) -> String {
        format!("{:?}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_may_have_ports() {
        for good in ["a", "a:1,b", "10.0.0.1:9042", "::1", "a , b:2"] {
            assert!(Hosts::read(good).is_ok(), "{good}");
        }
        for bad in ["", "a,", "a:x", "a:0", "a b"] {
            assert!(Hosts::read(bad).is_err(), "{bad}");
        }
        assert_eq!(Hosts::read("a , b:2").unwrap().write(), "a,b:2");
    }

    #[test]
    fn a_keyspace_has_a_name_that_cassandra_takes() {
        for good in ["biggraphite", "Graphite_2", "1"] {
            assert_eq!(Keyspace::read(good).unwrap().as_str(), good);
        }
        for bad in ["", "big-graphite", "a.b", "a b", "größe"] {
            assert!(Keyspace::read(bad).unwrap_err().contains("letters, digits and underscores"), "{bad}");
        }
    }

    #[test]
    fn a_secret_is_never_shown() {
        let secret = Secret::read("hunter2").unwrap();
        assert_eq!((secret.reveal(), secret.write().as_str()), (Some("hunter2"), "(not shown)"));
        assert!(!format!("{secret:?}").contains("hunter2"));
        assert_eq!(Secret::read("off").unwrap().reveal(), None);
    }

    #[test]
    fn a_timeout_of_zero_and_reads_at_level_any_are_rejected() {
        assert!(Patience::read("0s").is_err() && Patience::read("1ms").is_ok());
        assert!(ReadConsistency::read("any").is_err() && Consistency::read("any").is_ok());
        assert_eq!(ReadConsistency::read("LOCAL_QUORUM").unwrap().write(), "local_quorum");
    }

    #[test]
    fn a_replica_and_a_share_have_bounds() {
        assert!(Replica::read("4").is_err() && Replica::read("3").is_ok());
        assert!(Share::read("1.5").is_err() && Share::read("0.1").is_ok() && Share::read("NaN").is_err());
        assert!(InFlight::read("0").is_err() && InFlight::read("1").is_ok());
        assert!(Consistency::read("LOCAL_QUORUM").is_ok() && Consistency::read("some").is_err());
    }
}
