//! Every setting: its key, its kind, its default and its documentation.
//!
//! The table below is the only place that names a setting. The structs the program reads, the loaders of files and
//! variables, the errors, `plumbago settings` and docs/settings.md come from it.

use std::{path::PathBuf, time::Duration};

use cluster::Globs;
use store_cassandra::{Consistency, Indexes, Layout};

use super::{
    cluster_kinds::{Hosts, InFlight, Keyspace, Patience, ReadConsistency, Replica, Secret, Share},
    doors::{AdminAddress, HeaderNameText, HostNames, Origins, TlsClients},
    group::group,
    idle_after::IdleAfter,
    kinds::{Address, Bytes, Fsync, Kind, LogFormat, LogLevel, Reserve, Zone},
    listener::Listener,
    prefix_limits::PrefixLimits,
};
use crate::tokens::Proxies;

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

/// The name of a section: its field's, unless another is given.
macro_rules! section_name {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $section:ident) => {
        stringify!($section)
    };
}

/// The definitions of one section's keys.
macro_rules! definitions {
    ($field:ident, $section:expr, { $( $(#[doc = $doc:literal])+ $key:ident: $kind:ty = $default:literal; )+ }) => {
        &[$(
            Definition {
                section: $section,
                key: stringify!($key),
                doc: concat!($($doc),+),
                takes: <$kind as Kind>::TAKES,
                quoted: <$kind as Kind>::QUOTED,
                set: |settings, text| {
                    settings.$field.$key = <$kind as Kind>::read(text)?;
                    Ok(())
                },
                show: |settings| settings.$field.$key.write(),
            }
        ),+]
    };
}

/// Groups of keys. `a, b: Group { … }` gives two sections the same keys; `field in section` adds keys to a section of
/// another name than the field.
macro_rules! settings {
    ($( $( $(#[doc = $section_doc:literal])* $field:ident $(in $section:ident)? ),+ : $Group:ident $keys:tt )+) => {
        /// Every setting.
        #[derive(Debug, Clone, Default)]
        pub struct Settings {
            $($( $(#[doc = $section_doc])* pub $field: $Group, )+)+
            /// Each `[[listener]]` of the file.
            pub listeners: Vec<Listener>,
        }

        $( group! { $Group $keys } )+

        /// The sections with their documentation. Those without one add keys to a section above.
        const GROUPS: &[(&str, &str)] =
            &[$($( (section_name!($field $($section)?), concat!($($section_doc),*)) ),+),+];

        const DEFINITIONS: &[&[Definition]] =
            &[$($( definitions!($field, section_name!($field $($section)?), $keys) ),+),+];
    };
}

/// The sections with their documentation, in order.
pub fn sections() -> impl Iterator<Item = (&'static str, &'static str)> {
    GROUPS.iter().copied().filter(|(_, doc)| !doc.is_empty())
}

/// The settings, in order.
pub fn definitions() -> impl Iterator<Item = &'static Definition> {
    DEFINITIONS.iter().copied().flatten()
}

settings! {
    /// Addresses for points and queries. By default only programs on this machine reach them; "0.0.0.0:2003" is every address
    /// of this machine, and needs `insecure`. Port 0 takes a free port, which is printed; "off" does not listen.
    listen: Listen {
        /// Carbon's line protocol, over TCP.
        line: Option<Address> = "127.0.0.1:2003";
        /// Whether the line protocol is also accepted over UDP, on the same address.
        udp: bool = "true";
        /// Carbon's pickle protocol.
        pickle: Option<Address> = "127.0.0.1:2004";
        /// Carbon's protobuf protocol.
        protobuf: Option<Address> = "off";
        /// HTTP: queries, events, and points by POST.
        http: Option<Address> = "127.0.0.1:8080";
        /// Administration over HTTP: /admin, /metrics, /healthy, /ready and /tags/delSeries. "auto" answers them at the HTTP
        /// address while that is on loopback, at 127.0.0.1:8081 while other machines reach it, and nowhere without HTTP. The same address as `http` answers both there.
        admin: AdminAddress = "auto";
        /// Allows addresses that other machines reach. Everyone who reaches them can read and write all metrics, and an admin
        /// address also deletes them. Without it the program does not start with such an address.
        insecure: bool = "false";
    }

    /// Limits of the receivers.
    receive: Receive {
        /// Concurrent connections of each TCP receiver. A further one is closed at once and counted.
        max_connections: usize = "10000";
        /// Closes a connection that sent nothing for this long.
        idle_timeout: Option<Duration> = "off";
        /// Longest pickle or protobuf frame. A longer frame is skipped and counted.
        max_frame: Bytes = "64MiB";
        /// Memory for what all connections and bodies of points together have sent and that is not accepted yet: bytes, what
        /// a pickle needs while it is read, and decoded points. When it is spent, connections wait for it; the largest ones that
        /// have paused in the middle of a message are closed, or else the largest whose message takes longer than 2 s. An eighth
        /// of 4 MiB or more is for connections that have at most 64 KiB, as senders of lines: they do not wait behind long
        /// messages. Pickles that need more than 1 MiB share one half of it; a pickle
        /// that needs more than that half, about six times its length, is rejected as `frame_needs_memory`. At least 1 MiB.
        memory: Bytes = "256MiB";
        /// Longest body of points sent by HTTP POST, before and after gzip is undone.
        max_body: Bytes = "64MiB";
    }

    /// The data folder.
    data: Data {
        /// The folder. Created if missing; one process at a time can use it.
        dir: PathBuf = "./data";
        /// Memory for recently read blocks of the store.
        cache: Bytes = "64MiB";
        /// Free disk that is kept for merges, which make room. Below it senders wait. "auto" is 1 GiB, or 5 % of a smaller disk.
        reserve: Reserve = "auto";
        /// Open files of the process that connections leave for the data folder, a quarter of all at most. The limit of open
        /// files is raised at the start as far as the system allows.
        reserved_files: usize = "1024";
        /// Interval between two searches for expired points, to free their disk space.
        expire_every: Duration = "1h";
        /// How long expired points stay in the folder trash, in time that the program runs. They go earlier, oldest first, while
        /// less than 1 GiB of the disk is free.
        trash_keep: Duration = "3d";
        /// Bytes a second that the scrub reads: it reads every file of rows again and again, to find damage before a query does.
        scrub_bytes_per_second: Bytes = "4MiB";
        /// Bytes a second that a backup reads, so that queries and flushes have most of the disk; "off" is as fast as the disk.
        backup_bytes_per_second: Option<Bytes> = "off";
    }

    /// Points between their arrival and the store.
    ingest: Ingest {
        /// Interval between two fsyncs of the journal: a power failure can lose the points since the last one. "always"
        /// fsyncs before points count as accepted.
        sync: Fsync = "1s";
        /// Size limit of the journal, at least 1 MiB. When it is full, receivers stop reading until the store catches up.
        journal_limit: Bytes = "4GiB";
        /// Memory for points that are not in the store yet, at least 1 MiB. When it is full, points are written early and
        /// receivers wait.
        memory_limit: Bytes = "1GiB";
        /// Memory for metrics without their points: names, their index, and about 80 bytes more; names as senders spell them
        /// otherwise have what is left of it. When it is full, points of unknown metrics are rejected.
        names_limit: Bytes = "4GiB";
        /// How long a metric's points may wait in memory before they are written to the store together. A longer time makes
        /// fuller rows, a smaller disk and less work, but a longer replay after a crash.
        flush_after: Duration = "1h";
    }

    /// Limits on metrics. Beyond them, points of unknown metrics are rejected and counted; known metrics are accepted.
    limits: Limits {
        /// Metrics in all.
        metrics: usize = "10000000";
        /// New metrics a minute, in all.
        creations_per_minute: usize = "10000000";
        /// Further limits by the beginning of names: "dev.=100000/1000, lab.=5000/100" allows 100,000 metrics below dev, and a
        /// thousand new ones a minute.
        prefixes: Option<PrefixLimits> = "off";
        /// File of quotas as go-carbon's storage-quotas.conf: a section is a pattern such as [sys.app.*], and each branch that it matches may
        /// have `metrics`, and `namespaces` (directories) below it, and take `throughput` points a minute. `dropping-policy` is "new",
        /// "none", which counts what is beyond and rejects nothing, or "all", which then rejects all points of the branch. [/] is all names.
        /// Its other keys have no effect. Read again every rules.reload_every and at SIGHUP.
        quotas: Option<PathBuf> = "off";
        /// Events that are stored in a minute; a further one gets status 429.
        events_per_minute: usize = "6000";
        /// Events in all, about 100 bytes of memory each; a further one gets status 507.
        events: usize = "1000000";
        /// Bytes of all events; a further one gets status 507.
        events_bytes: Bytes = "1GiB";
        /// Events older than this are deleted, every data.expire_every, by the clock and the newest stored point together; not while the
        /// clock is in doubt. A new event that is older gets status 400. "off" keeps all, as graphite-web does.
        events_keep: Option<Duration> = "off";
        /// Metrics without points for this long are deleted: "retention" is as long as the metric keeps points, a time shortens
        /// that, "never" keeps them. A point counts until the end of its slot in the coarsest stage. Found in the embedded
        /// store every data.expire_every, at most a tenth of the time reading; not while the clock is in doubt. Metrics
        /// that damage found since the start may have cost points are kept for as long after these. The time is that of the newest stored
        /// point: while nothing is sent, nothing expires. Metrics in Cassandra's tables
        /// do not expire here: only all nodes together know when one got its last point.
        idle_after: IdleAfter = "retention";
    }

    /// Apache Cassandra or ScyllaDB, in BigGraphite's tables, in place of the embedded store. The journal and the metric ids
    /// of this node stay in the data folder. Without contact_points, points stay in the embedded store.
    cassandra,
    /// The cluster of the names, where the points are in another. Without contact_points, names are where the points are.
    cassandra_metadata: ClusterAccess {
        /// Hosts of the cluster, HOST or HOST:PORT, separated by commas. One that answers is enough. "off" names no cluster.
        contact_points: Option<Hosts> = "off";
        /// The role to log in as, where the cluster requires a login.
        user: Option<String> = "off";
        /// Its password. Better given in a file (password_file) or in this setting's environment variable.
        password: Secret = "off";
        /// A file with the password and nothing else.
        password_file: Option<PathBuf> = "off";
        /// The data centre of this node: its replicas are asked first, and LOCAL levels mean it.
        datacenter: Option<String> = "off";
        /// PEM file of the authorities that sign the cluster's certificates. Turns TLS on.
        tls_ca: Option<PathBuf> = "off";
        /// PEM file of this node's certificate, where the cluster requires one.
        tls_certificate: Option<PathBuf> = "off";
        /// PEM file of its key.
        tls_key: Option<PathBuf> = "off";
        /// Whether a certificate must contain the host name or address that this node connects to.
        tls_verify_host: bool = "true";
    }

    tables in cassandra: CassandraTables {
        /// Keyspace of the points. Names are in the keyspace of this name with "_metadata" appended.
        keyspace: Keyspace = "biggraphite";
        /// Replication of keyspaces that `plumbago schema apply` or a first start creates, in CQL:
        /// "{'class': 'NetworkTopologyStrategy', 'dc1': 3}". "off" takes three replicas, or one per node if there are fewer.
        replication: Option<String> = "off";
        /// How points are written: "rows", a row a point in BigGraphite's tables, or "packed", a row for each run of points in
        /// tables of Plumbago's own, which cost Cassandra a small part of that. Both are read.
        layout: Layout = "rows";
        /// Replicas that must accept points. Below a majority, the only copy may be on a node that fails.
        data_write_consistency: Consistency = "local_quorum";
        /// Replicas that must answer for points. Coarse slots of late points are computed from what is read.
        data_read_consistency: ReadConsistency = "local_quorum";
        /// Replicas that must accept names.
        meta_write_consistency: Consistency = "local_quorum";
        /// Replicas that must answer for names.
        meta_read_consistency: ReadConsistency = "local_quorum";
        /// Indexes of the tables of names when they are created: "sasi", which BigGraphite has and needs, "sai"
        /// (Cassandra 5) or "none" (ScyllaDB, or cheaper new metrics).
        indexes: Indexes = "sasi";
        /// Which index answers globs: "local", the path index of this process, or "cassandra", the tables' indexes.
        globs: Globs = "local";
        /// Rows that a glob may read where Cassandra answers it. A glob that needs more gets an error.
        glob_rows: usize = "100000";
        /// Statements that a glob may become where Cassandra answers it.
        glob_queries: usize = "128";
        /// Which of the four replicas of aggregates this node writes, 0 to 3. Nodes that receive the same points (a relay's replication)
        /// need different ones, and so does BigGraphite while both receive the same points; nodes that share points out need the same.
        replica: Replica = "0";
        /// Concurrent statements.
        in_flight: InFlight = "256";
        /// Timeout of a connection to a node.
        connect_timeout: Patience = "5s";
        /// Timeout of a statement, its retries included.
        request_timeout: Patience = "10s";
        /// Within this time a node finds what other programs created in the tables or deleted from them: it reads all names, spread
        /// over a quarter of it, and again after half of it.
        reconcile_every: Duration = "1h";
        /// Interval between two updates of updated_on for a metric that gets points. BigGraphite's clean deletes metrics by it.
        touch_every: Duration = "1d";
        /// The share of reads that update read_on, at most once per metric in touch_every.
        read_sample: Share = "0.1";
        /// Where other nodes over the same tables reach this node over HTTP, HOST:PORT. "auto" takes the address of listen.http,
        /// with this machine's name where that listens on all addresses.
        peer_address: String = "auto";
    }

    /// Points that other nodes over the same tables have in memory and have not stored yet.
    peers: PeerHeads {
        /// File with a secret of at least 16 characters, the same for all nodes: with it nodes give each other their points in memory,
        /// over HTTP at the addresses in the table `nodes`, and any node answers with the points of all. Of several lines the first is
        /// shown to others and each is accepted. Read at the start. "off" neither asks nor gives.
        secret_file: Option<PathBuf> = "off";
        /// How long a read waits for other nodes. A node that is not there in time is named in the answer (X-Plumbago-Missing-Peers) and not
        /// waited for again by that query; one that did not even begin to answer by no query, until it answers a probe.
        timeout: Duration = "500ms";
    }

    /// Carbon's own configuration.
    rules: Rules {
        /// The folder with storage-schemas.conf, storage-aggregation.conf, blacklist.conf, whitelist.conf and metrictank's index-rules.conf. Each file is
        /// optional. Without a folder carbon's defaults hold: a minute for a week.
        conf_dir: Option<PathBuf> = "off";
        /// Interval between two checks of the files for changes. SIGHUP checks at once.
        reload_every: Duration = "5s";
    }

    /// Limits of HTTP clients.
    http: Http {
        /// Concurrent connections. For a further one the longest idle one is closed, or else the one whose client has kept a request
        /// waiting the longest, for 2 s at least; without these it waits. Where an eighth of this number wait already, 256 at most, it gets
        /// status 503 instead. Health checks do not wait, except over TLS.
        max_connections: usize = "4096";
        /// Concurrent connections of one address, or of one /64 of IPv6, and three quarters of all at most. For a further one its longest
        /// idle one is closed; while none is idle, the further one is closed and counted. Loopback addresses are exempt: a proxy there
        /// has the connections of all its clients.
        connections_per_address: usize = "1024";
        /// Size limit of a request line and its headers, roughly: one read more may be accepted. A longer one gets status 431.
        max_header_bytes: Bytes = "64KiB";
        /// Size limit of a request body, except bodies of points; a longer one gets status 413.
        max_body_bytes: Bytes = "8MiB";
        /// Closes a connection that is silent, or slow to send or to read, for this long.
        idle_timeout: Duration = "75s";
        /// Closes a connection whose request line and headers are not whole this long after their first byte, or up to twice as long.
        head_timeout: Duration = "10s";
        /// Time in which a client sends a body; a longer one gets status 408. While the server makes a client wait does not count.
        body_timeout: Duration = "10min";
        /// Bytes a second that a client must send of a body, or read of an answer that waits for it, over 30 seconds, or over
        /// idle_timeout if that is shorter. "off" allows any rate.
        min_rate: Option<Bytes> = "256B";
        /// Memory for answers that clients have not read yet. When it is spent, answers wait query.memory_wait for it, then
        /// get status 503. Answers up to 16 KiB are not counted. A client (token, or address) with an answer in it has at
        /// most three quarters.
        answer_memory: Bytes = "96MiB";
        /// Concurrent renders, finds and listings. A client (token, or address) has at most seven eighths of them; renders of
        /// globs have three quarters, and so have finds and listings.
        max_concurrent_queries: usize = "16";
        /// Queries that wait for their turn; a further one gets status 429. The client with the fewest running queries is next.
        /// A full queue makes place for a client with fewer in it.
        max_queued_queries: usize = "256";
        /// Names by which clients may address this server, in the Host header: "graphite.example.org,*.example.net". Addresses,
        /// localhost, names without a dot and names below .localhost, .local and .internal always are. Other names get status
        /// 421, because web pages can make their own name point to this server. "local" adds no name, "any" allows every name.
        hosts: HostNames = "local";
        /// Origins of web pages that may read answers (CORS), such as `https://grafana.example.org`. Not at an admin address of
        /// its own.
        cors_origins: Option<Origins> = "off";
        /// File of tokens, which `plumbago token` writes: then every request needs one, except /healthy and /ready. It is sent as
        /// "Authorization: Bearer TOKEN" or as a password with any user name. Read again every rules.reload_every and at SIGHUP.
        tokens: Option<PathBuf> = "off";
        /// Addresses of proxies that have asked their users for a login, such as "10.0.0.5,10.1.0.0/16": a request from there may
        /// name its user in proxy_header. The file of tokens says what each user may do (`plumbago token add --user`).
        proxies: Option<Proxies> = "off";
        /// The header in which these proxies name the user. They must remove it from what clients send.
        proxy_header: HeaderNameText = "X-WEBAUTH-USER";
        /// Whether the parameter jsonp makes an answer a call of that function, which web pages of every origin can read.
        jsonp: bool = "false";
        /// PEM file of the certificate of `listen.http`, and those between it and an authority. Turns TLS on, with HTTP/1.1 and
        /// HTTP/2, there and at `listen.admin`, unless that is a loopback address of its own. Read again every
        /// rules.reload_every and at SIGHUP.
        tls_certificate: Option<PathBuf> = "off";
        /// PEM file of its key.
        tls_key: Option<PathBuf> = "off";
        /// PEM file of the authorities that sign certificates of clients.
        tls_client_ca: Option<PathBuf> = "off";
        /// Whether clients need a certificate where there is a tls_client_ca: "require", or "optional", which refuses invalid
        /// certificates alone.
        tls_clients: TlsClients = "require";
    }

    /// Limits of one query. A query above a limit gets status 422 and a text that names the setting.
    query: Query {
        /// Series one render may read, over all its targets.
        max_series: usize = "100000";
        /// Points one render may read, over all its series. Coarser stages are read before the query is rejected.
        max_points: usize = "50000000";
        /// Time until the first byte of an answer. The work for it ends then, too.
        timeout: Duration = "60s";
        /// Memory for all queries together: names, points, and what functions make of them. An eighth of it is for small
        /// queries alone. A query that needs more than the others leave waits memory_wait for it. A client (token, or
        /// address) with other queries begins none beyond three quarters. Bodies count, too, those still coming of one client
        /// up to a quarter; these are refused where others wait for their memory.
        memory: Bytes = "256MiB";
        /// How long a query waits for memory before it gets status 503.
        memory_wait: Duration = "5s";
        /// Size limit of all targets of a render with the values of their templates, or of the patterns of a find. A name in a message of carbonapi's version 3 counts 16 bytes more.
        max_target_bytes: Bytes = "1MiB";
        /// Size limit of an answer before compression.
        max_response_bytes: Bytes = "1GiB";
        /// Nodes in the answer of a find or an expand.
        max_find_results: usize = "1000000";
        /// The time zone of from, until and csv where a request names none.
        time_zone: Zone = "UTC";
    }

    /// The program's own metrics, stored in itself under carbon's names.
    own: Own {
        /// Interval between two of their points; "off" stores none. /metrics works either way.
        every: Option<Duration> = "60s";
        /// The first part of their names: PREFIX.agents.HOST-a.metricsReceived and so on.
        prefix: String = "carbon";
        /// The host in their names; "auto" is the machine's name with underscores for dots.
        host: String = "auto";
    }

    /// The log, on standard error.
    log: Log {
        /// "text", "json", or "auto": text.
        format: LogFormat = "auto";
        /// "error", "warn", "info", "debug" or "trace", or a filter by crate such as "info,ingest=debug".
        level: LogLevel = "info";
        /// File with a line of JSON for each query: when, who, from where, what, how long, series, points, bytes, the limit that was
        /// met, dashboard and panel of Grafana. Lines are added at its end; another program may rename or empty it at any time.
        queries: Option<PathBuf> = "off";
        /// File with the same lines of queries that take longer than slow_after.
        slow_queries: Option<PathBuf> = "off";
        /// From a query to the end of its answer.
        slow_after: Duration = "5s";
        /// File with such a line for each request that stores points or events or administers the server, and for each client that is
        /// refused (status 401, 403 or 421): at most ten of these a second, which count the others.
        audit: Option<PathBuf> = "off";
    }

    /// How the program stops.
    stop: Stop {
        /// Time for a stop to write all points in memory to the store. The rest stays in the journal, and the next start
        /// replays it. A stop does not wait for a store that rejects points.
        timeout: Duration = "60s";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_reads_back_as_written() {
        let defaults = Settings::default();
        for definition in definitions() {
            let mut again = Settings::default();
            let text = (definition.show)(&defaults);
            (definition.set)(&mut again, &text).unwrap_or_else(|error| panic!("{}: {error}", definition.path()));
            assert_eq!((definition.show)(&again), text, "{}", definition.path());
        }
    }

    #[test]
    fn no_two_settings_share_an_environment_variable() {
        let mut seen = std::collections::HashSet::new();
        for definition in definitions() {
            assert!(seen.insert(definition.variable()), "{}", definition.variable());
        }
    }
}
