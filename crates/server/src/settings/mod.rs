//! The program's settings: every key, its default and its documentation, defined once.
//!
//! The list below is the only place that names a setting. The struct the program reads, the file and
//! environment loaders, the errors, `plumbago settings` and docs/settings.md are all made from it.

mod cluster_kinds;
mod kinds;
mod load;
mod show;

pub use cluster_kinds::{Globs, Hosts, InFlight, Patience, ReadConsistency, Replica, Secret, Share};
pub use kinds::{Address, Fsync, Kind, LogFormat, LogLevel, Zone};
pub use load::{Problem, Sources, load};
pub use show::{documented_toml, markdown};

use std::{path::PathBuf, time::Duration};

use store_cassandra::{Consistency, Indexes};

/// One setting, as documentation and loaders see it.
pub struct Definition {
    /// The TOML table it is in.
    pub section: &'static str,
    /// The key in that table.
    pub key: &'static str,
    /// What it is for, in sentences.
    pub doc: &'static str,
    /// What values it takes.
    pub takes: &'static str,
    /// Whether TOML writes its values in quotes.
    pub quoted: bool,
    /// Reads a value from text. The error says what the value must be.
    pub set: fn(&mut Settings, &str) -> Result<(), String>,
    /// The value as the text `set` reads.
    pub show: fn(&Settings) -> String,
}

impl Definition {
    /// `listen.line`.
    pub fn path(&self) -> String {
        format!("{}.{}", self.section, self.key)
    }

    /// `PLUMBAGO_LISTEN_LINE`.
    pub fn variable(&self) -> String {
        format!("PLUMBAGO_{}_{}", self.section.to_uppercase(), self.key.to_uppercase())
    }
}

macro_rules! settings {
    ($(
        $(#[doc = $section_doc:literal])+
        $section:ident: $Section:ident {
            $( $(#[doc = $doc:literal])+ $key:ident: $kind:ty = $default:literal; )+
        }
    )+) => {
        /// Every setting, by section.
        #[derive(Debug, Clone)]
        pub struct Settings {
            $( $(#[doc = $section_doc])+ pub $section: $Section, )+
        }

        $(
            $(#[doc = $section_doc])+
            #[derive(Debug, Clone)]
            pub struct $Section {
                $( $(#[doc = $doc])+ pub $key: $kind, )+
            }
        )+

        /// The sections with their documentation, in order.
        pub const SECTIONS: &[(&str, &str)] = &[$( (stringify!($section), concat!($($section_doc),+)) ),+];

        /// The settings, in order.
        pub const DEFINITIONS: &[Definition] = &[$($(
            Definition {
                section: stringify!($section),
                key: stringify!($key),
                doc: concat!($($doc),+),
                takes: <$kind as Kind>::TAKES,
                quoted: <$kind as Kind>::QUOTED,
                set: |settings, text| {
                    settings.$section.$key = <$kind as Kind>::read(text)?;
                    Ok(())
                },
                show: |settings| settings.$section.$key.write(),
            }
        ),+),+];

        impl Default for Settings {
            fn default() -> Settings {
                Settings {$(
                    $section: $Section {
                        $( $key: <$kind as Kind>::read($default).expect("a default is a valid value"), )+
                    },
                )+}
            }
        }
    };
}

settings! {
    /// Where points and queries come in. Port 0 takes a free one, which is printed; "off" does not listen.
    listen: Listen {
        /// Carbon's line protocol, over TCP.
        line: Option<Address> = "0.0.0.0:2003";
        /// Whether the line protocol is also taken over UDP, on the same address.
        udp: bool = "true";
        /// Carbon's pickle protocol.
        pickle: Option<Address> = "0.0.0.0:2004";
        /// Carbon's protobuf protocol.
        protobuf: Option<Address> = "off";
        /// HTTP: queries, points by POST, /metrics, health and administration.
        http: Option<Address> = "0.0.0.0:8080";
    }

    /// What the receivers allow a sender.
    receive: Receive {
        /// Connections at once to each TCP receiver. One more is closed as soon as it is made, and counted.
        max_connections: usize = "10000";
        /// A connection from which nothing was read for this long is closed.
        idle_timeout: Option<Duration> = "off";
        /// Longest pickle or protobuf frame. A longer one is skipped and counted.
        max_frame: Bytes = "64MiB";
        /// Longest body of points sent by HTTP POST, before and after gzip is undone.
        max_body: Bytes = "64MiB";
    }

    /// Where data is kept.
    data: Data {
        /// The folder. It is made when it is not there; one program at a time may use it.
        dir: PathBuf = "./data";
        /// Memory for recently read blocks of the store.
        cache: Bytes = "64MiB";
        /// How often expired points are looked for, to free their disk space.
        expire_every: Duration = "1h";
    }

    /// What happens to a point between its arrival and the store.
    ingest: Ingest {
        /// How long the journal may hold points in the operating system alone before it is fsynced:
        /// what a power failure can cost. "always" fsyncs before points count as accepted.
        sync: Fsync = "1s";
        /// Bytes of journal at most. When it is full, receivers stop reading until the store catches up.
        journal_limit: Bytes = "4GiB";
        /// Memory for points that are not in the store yet. When it is full they are written out early,
        /// and receivers wait.
        memory_limit: Bytes = "1GiB";
        /// How long a metric's points may wait in memory before they are written to the store together.
        /// Longer makes fuller rows, a smaller disk and less work; and a longer replay after a crash.
        flush_after: Duration = "1h";
    }

    /// Apache Cassandra or ScyllaDB, in BigGraphite's tables, in place of the embedded store. The journal and this
    /// node's own numbers of metrics stay in the data folder.
    cassandra: Cassandra {
        /// Hosts of the cluster, HOST or HOST:PORT, commas between them; one that answers is enough. "off" keeps
        /// points in the embedded store.
        contact_points: Option<Hosts> = "off";
        /// Keyspace of the points. Names are in the keyspace of this name with "_metadata" behind it.
        keyspace: String = "biggraphite";
        /// The role to log in as, where the cluster asks for one.
        user: Option<String> = "off";
        /// Its password; better in a file (password_file) or in this setting's environment variable.
        password: Secret = "off";
        /// A file that holds the password, and nothing else.
        password_file: Option<PathBuf> = "off";
        /// The data centre this node is in: its replicas are asked first, and LOCAL levels mean it.
        datacenter: Option<String> = "off";
        /// PEM file of the authorities that sign the cluster's certificates; naming one turns TLS on.
        tls_ca: Option<PathBuf> = "off";
        /// PEM file of this node's certificate, where the cluster asks for one.
        tls_certificate: Option<PathBuf> = "off";
        /// PEM file of its key.
        tls_key: Option<PathBuf> = "off";
        /// Whether a certificate must bear the host it was met at.
        tls_verify_host: bool = "true";
        /// Replication of keyspaces that `plumbago schema apply` or a first start creates, in CQL:
        /// "{'class': 'NetworkTopologyStrategy', 'dc1': 3}". "off" takes three replicas, or as many as there are nodes.
        replication: Option<String> = "off";
        /// How many replicas must have taken points. With fewer than a majority, what a node loses may be the only copy.
        data_write_consistency: Consistency = "local_quorum";
        /// How many replicas must answer for points; coarse slots of late points are derived from what is read.
        data_read_consistency: ReadConsistency = "local_quorum";
        /// How many replicas must have taken names.
        meta_write_consistency: Consistency = "local_quorum";
        /// How many replicas must answer for names.
        meta_read_consistency: ReadConsistency = "local_quorum";
        /// What the tables of names carry when they are created: "sasi", as BigGraphite has and needs it, "sai"
        /// (Cassandra 5) or "none" (ScyllaDB, or cheaper new metrics).
        indexes: Indexes = "sasi";
        /// Who answers globs: "local", the path index of this process, or "cassandra", the tables' indexes.
        globs: Globs = "local";
        /// Rows that a glob may read where Cassandra answers it; more is an error that says so.
        glob_rows: usize = "100000";
        /// Statements that a glob may become where Cassandra answers it.
        glob_queries: usize = "128";
        /// Which of BigGraphite's four replicas of aggregates this node writes. Give it another than
        /// BigGraphite's while both are sent the same points.
        replica: Replica = "0";
        /// Statements under way at once.
        in_flight: InFlight = "256";
        /// How long a connection to a node may take.
        connect_timeout: Patience = "5s";
        /// How long a statement may take, its retries included.
        request_timeout: Patience = "10s";
        /// How often the tables are read for names that others created or deleted.
        reconcile_every: Duration = "1h";
        /// How often a metric that gets points says so in the tables (updated_on), by which BigGraphite's clean goes.
        touch_every: Duration = "1d";
        /// The share of reads that say so in the tables (read_on), for a metric once in touch_every at most.
        read_sample: Share = "0.1";
    }

    /// The cluster of the names, where it is not that of the points.
    cassandra_metadata: CassandraMetadata {
        /// Its hosts; "off" keeps names where the points are.
        contact_points: Option<Hosts> = "off";
        /// The role to log in as, where the cluster asks for one.
        user: Option<String> = "off";
        /// Its password; better in a file or in the environment.
        password: Secret = "off";
        /// A file that holds the password, and nothing else.
        password_file: Option<PathBuf> = "off";
        /// The data centre this node is in.
        datacenter: Option<String> = "off";
        /// PEM file of the authorities that sign its certificates; naming one turns TLS on.
        tls_ca: Option<PathBuf> = "off";
        /// PEM file of this node's certificate, where the cluster asks for one.
        tls_certificate: Option<PathBuf> = "off";
        /// PEM file of its key.
        tls_key: Option<PathBuf> = "off";
        /// Whether a certificate must bear the host it was met at.
        tls_verify_host: bool = "true";
    }

    /// Carbon's own configuration.
    rules: Rules {
        /// The folder with storage-schemas.conf, storage-aggregation.conf, blacklist.conf and
        /// whitelist.conf, each where present. Without a folder carbon's defaults hold: a minute for a week.
        conf_dir: Option<PathBuf> = "off";
        /// How often the files are looked at for changes. SIGHUP looks at once.
        reload_every: Duration = "5s";
    }

    /// What HTTP clients are allowed.
    http: Http {
        /// Connections at once. Further ones wait in the system's queue.
        max_connections: usize = "4096";
        /// Bytes of a request line and its headers; more is answered with 431.
        max_header_bytes: Bytes = "64KiB";
        /// Bytes of a request body, points apart; more is answered with 413.
        max_body_bytes: Bytes = "8MiB";
        /// A connection that is silent, or slow to send or to read, for this long is closed.
        idle_timeout: Duration = "75s";
        /// Renders, finds and listings at work at one time.
        max_concurrent_queries: usize = "16";
        /// Queries that wait for their turn; one more is answered with 429.
        max_queued_queries: usize = "256";
    }

    /// What one query may ask for. More is refused with 422 and a text that names the setting.
    query: Query {
        /// Series one render may read, over all its targets.
        max_series: usize = "100000";
        /// Points one render may read, over all its series. Coarser stages are read before it is refused.
        max_points: usize = "50000000";
        /// Time until the first byte of an answer.
        timeout: Duration = "60s";
        /// Bytes of all targets of a render, or of the patterns of a find.
        max_target_bytes: Bytes = "1MiB";
        /// Bytes of an answer before compression.
        max_response_bytes: Bytes = "1GiB";
        /// Nodes that a find or an expand answers with.
        max_find_results: usize = "1000000";
        /// The zone of times of day in from, until and csv where a request names none.
        time_zone: Zone = "UTC";
    }

    /// The program's own metrics, stored in itself under carbon's names.
    own: Own {
        /// How often they are stored; "off" stores none. /metrics is served either way.
        every: Option<Duration> = "60s";
        /// The first part of their names: PREFIX.agents.HOST-a.metricsReceived and so on.
        prefix: String = "carbon";
        /// The host in their names; "auto" is the machine's name, with dots made underscores.
        host: String = "auto";
    }

    /// What the program writes to its standard error.
    log: Log {
        /// "text", "json", or "auto": text.
        format: LogFormat = "auto";
        /// "error", "warn", "info", "debug" or "trace", or a filter by crate such as "info,ingest=debug".
        level: LogLevel = "info";
    }

    /// How the program stops.
    stop: Stop {
        /// Time for a stop to write out what is held. What is left then stays in the journal and is
        /// replayed by the next start. A store that takes nothing is not waited for.
        timeout: Duration = "60s";
    }
}

/// A number of bytes.
pub type Bytes = kinds::Bytes;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_reads_back_as_written() {
        let defaults = Settings::default();
        for definition in DEFINITIONS {
            let mut again = Settings::default();
            let text = (definition.show)(&defaults);
            (definition.set)(&mut again, &text).unwrap_or_else(|error| panic!("{}: {error}", definition.path()));
            assert_eq!((definition.show)(&again), text, "{}", definition.path());
        }
    }

    #[test]
    fn no_two_settings_share_an_environment_variable() {
        let mut seen = std::collections::HashSet::new();
        for definition in DEFINITIONS {
            assert!(seen.insert(definition.variable()), "{}", definition.variable());
        }
    }
}
