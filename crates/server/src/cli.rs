//! The command line: subcommands, their options, and which setting each option overrides.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::settings::Overrides;

/// A Graphite server in one program: carbon's receivers, storage with rollups, and Graphite's HTTP API.
#[derive(Parser)]
#[command(name = "plumbago", version, args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// The subcommand; `serve` by default.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Options of `serve`.
    #[command(flatten)]
    pub serve: ServeOptions,
}

/// The subcommands.
#[derive(Subcommand)]
pub enum Command {
    /// Receive, store and serve metrics (the default)
    Serve(ServeOptions),
    /// Check the settings and carbon's files: lists every problem and exits 1 if there is any; warnings, such as of a section that carbon
    /// would skip, leave the status at 0
    CheckConfig(CheckOptions),
    /// Show which rules apply to a metric name, and why
    Explain(ExplainOptions),
    /// Make a running server write all points in memory to the store, and wait for the end
    Flush(FlushOptions),
    /// Make a running server over Cassandra take no more points, write all that it has, and leave the other nodes: its data folder can be
    /// removed then; exits 3 and lists what only that has, if there is anything
    Drain(DrainOptions),
    /// Make a running server on this machine write a backup; the next one into the same folder is incremental
    Backup(BackupOptions),
    /// Make a data folder of a backup, after comparing every file with its checksum
    Restore(RestoreOptions),
    /// Read all of a data folder that is not in use, or of a backup; exits 1 and lists what cannot be read
    Verify(VerifyOptions),
    /// Write a data folder that is not in use again without what is damaged in it; exits 3 and lists what is not kept
    Repair(RepairOptions),
    /// Count the metrics of a running server by branch, tag or value: how many, how many new, and their size
    Cardinality(CardinalityOptions),
    /// Delete metrics with all their points from a running server
    Delete(DeleteOptions),
    /// Add, list and revoke the tokens that HTTP clients send
    Token(TokenOptions),
    /// Show, apply or check the tables in Cassandra
    Schema(SchemaOptions),
    /// Load and measure any Graphite server, by its addresses
    Bench(bench::Args),
    /// Print every setting with its documentation, as a file to start from
    Settings(SettingsOptions),
}

/// The settings file, in every subcommand that reads settings.
#[derive(Args, Default)]
pub struct ConfigOption {
    /// Settings file; the variable PLUMBAGO_CONFIG also names one. `plumbago settings` prints a file to start from
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Carbon's folder, in every subcommand that reads it.
#[derive(Args, Default)]
pub struct ConfDirOption {
    /// Carbon's folder: storage-schemas.conf, storage-aggregation.conf, blacklist.conf, whitelist.conf, index-rules.conf
    #[arg(long, value_name = "DIR")]
    pub conf_dir: Option<String>,
}

/// Options of `plumbago serve`.
#[derive(Args, Default)]
pub struct ServeOptions {
    /// Settings file.
    #[command(flatten)]
    pub config: ConfigOption,
    /// Carbon's folder.
    #[command(flatten)]
    pub conf_dir: ConfDirOption,
    /// Folder for data [default: ./data]
    #[arg(long, value_name = "DIR")]
    pub data: Option<String>,
    /// Line protocol, TCP and UDP [default: 127.0.0.1:2003]
    #[arg(long, value_name = "ADDR")]
    pub line: Option<String>,
    /// Pickle protocol [default: 127.0.0.1:2004]
    #[arg(long, value_name = "ADDR")]
    pub pickle: Option<String>,
    /// Protobuf protocol [default: off]
    #[arg(long, value_name = "ADDR")]
    pub protobuf: Option<String>,
    /// HTTP [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    pub http: Option<String>,
    /// Administration: /admin, /metrics, /healthy, /ready [default: auto]
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<String>,
    /// Allow addresses that other machines reach: everyone there can read and write all metrics
    #[arg(long)]
    pub insecure: bool,
    /// The cluster to keep points and names in.
    #[command(flatten)]
    pub cluster: ClusterOption,
}

/// The running server, in every subcommand that asks one.
#[derive(Args, Default)]
pub struct ServerOption {
    /// The address where the server answers administration [default: auto, as the server's settings say]
    #[arg(long, value_name = "ADDR", alias = "http")]
    pub admin: Option<String>,
}

impl ServerOption {
    fn overrides(&self) -> Overrides {
        given([("listen.admin", "--admin", &self.admin)])
    }
}

/// The Cassandra cluster, in every subcommand that connects to one.
#[derive(Args, Default)]
pub struct ClusterOption {
    /// Keep points and names in Cassandra, in BigGraphite's tables [default: off]
    #[arg(long, value_name = "HOST[:PORT],…")]
    pub cassandra: Option<String>,
    /// Keyspace of the points; names are in NAME_metadata [default: biggraphite]
    #[arg(long, value_name = "NAME")]
    pub keyspace: Option<String>,
}

impl ClusterOption {
    fn all(&self) -> [(&'static str, &'static str, &Option<String>); 2] {
        [
            ("cassandra.contact_points", "--cassandra", &self.cassandra),
            ("cassandra.keyspace", "--keyspace", &self.keyspace),
        ]
    }
}

impl ServeOptions {
    /// The settings these options override, as [`crate::settings::Sources`] takes them.
    pub fn overrides(&self) -> Overrides {
        let all = [
            ("rules.conf_dir", "--conf-dir", &self.conf_dir.conf_dir),
            ("data.dir", "--data", &self.data),
            ("listen.line", "--line", &self.line),
            ("listen.pickle", "--pickle", &self.pickle),
            ("listen.protobuf", "--protobuf", &self.protobuf),
            ("listen.http", "--http", &self.http),
            ("listen.admin", "--admin", &self.admin),
        ];
        let mut given_here = given(all);
        if self.insecure {
            given_here.push(("listen.insecure", "--insecure", "true".to_owned()));
        }
        given_here.extend(given(self.cluster.all()));
        given_here
    }
}

/// Options of `plumbago check-config`.
#[derive(Args)]
pub struct CheckOptions {
    /// Settings file.
    #[command(flatten)]
    pub config: ConfigOption,
    /// Carbon's folder.
    #[command(flatten)]
    pub conf_dir: ConfDirOption,
}

/// Options of `plumbago explain`.
#[derive(Args)]
pub struct ExplainOptions {
    /// The metric name, tags included
    pub name: String,
    /// Settings file.
    #[command(flatten)]
    pub config: ConfigOption,
    /// Carbon's folder.
    #[command(flatten)]
    pub conf_dir: ConfDirOption,
    /// Answer in JSON
    #[arg(long)]
    pub json: bool,
}

/// Options of `plumbago backup`.
#[derive(Args)]
pub struct BackupOptions {
    /// Settings file.
    #[command(flatten)]
    pub config: ConfigOption,
    /// The server.
    #[command(flatten)]
    pub server: ServerOption,
    /// Folder of the backups. On the file system of the data folder, files of rows are links
    pub dir: PathBuf,
    /// Answer in JSON
    #[arg(long)]
    pub json: bool,
}

impl BackupOptions {
    /// The setting this option overrides.
    pub fn overrides(&self) -> Overrides {
        self.server.overrides()
    }
}

/// Options of `plumbago restore`.
#[derive(Args)]
pub struct RestoreOptions {
    /// A backup, or the folder of backups: the newest one in it
    pub backup: PathBuf,
    /// The data folder to make; missing or empty
    pub data: PathBuf,
}

/// Options of `plumbago verify`.
#[derive(Args)]
pub struct VerifyOptions {
    /// A data folder, a backup, or a folder of backups: the newest one in it
    pub folder: PathBuf,
    /// Answer in JSON
    #[arg(long)]
    pub json: bool,
}

/// Options of `plumbago repair`.
#[derive(Args)]
pub struct RepairOptions {
    /// A data folder
    pub data: PathBuf,
    /// Only list what would not be kept
    #[arg(long)]
    pub dry_run: bool,
    /// Answer in JSON
    #[arg(long)]
    pub json: bool,
}

/// Options of `plumbago flush`.
#[derive(Args)]
pub struct FlushOptions {
    /// Settings file.
    #[command(flatten)]
    pub config: ConfigOption,
    /// The server.
    #[command(flatten)]
    pub server: ServerOption,
}

impl FlushOptions {
    /// The setting this option overrides.
    pub fn overrides(&self) -> Overrides {
        self.server.overrides()
    }
}

/// Options of `plumbago drain`.
#[derive(Args)]
pub struct DrainOptions {
    /// Settings file.
    #[command(flatten)]
    pub config: ConfigOption,
    /// The server.
    #[command(flatten)]
    pub server: ServerOption,
    /// Answer in JSON
    #[arg(long)]
    pub json: bool,
}

impl DrainOptions {
    /// The setting this option overrides.
    pub fn overrides(&self) -> Overrides {
        self.server.overrides()
    }
}

/// Options of `plumbago cardinality`.
#[derive(Args)]
pub struct CardinalityOptions {
    /// Count below this branch, such as servers.web [default: all names]
    pub prefix: Option<String>,
    /// Components below it that are counted apart [default: 1]
    #[arg(long)]
    pub depth: Option<usize>,
    /// Count tagged metrics by tag
    #[arg(long, conflicts_with_all = ["prefix", "depth"])]
    pub tags: bool,
    /// Count tagged metrics by the values of this tag
    #[arg(long, value_name = "NAME", conflicts_with_all = ["prefix", "depth", "tags"])]
    pub tag: Option<String>,
    /// Lines [default: 20]
    #[arg(long)]
    pub limit: Option<usize>,
    /// Metrics created within so many seconds are new [default: 86400]
    #[arg(long, value_name = "SECONDS")]
    pub new_within: Option<u64>,
    /// The groups with most new metrics first
    #[arg(long)]
    pub by_new: bool,
    /// Answer in JSON
    #[arg(long)]
    pub json: bool,
    /// Settings file.
    #[command(flatten)]
    pub config: ConfigOption,
    /// The server.
    #[command(flatten)]
    pub server: ServerOption,
}

impl CardinalityOptions {
    /// The setting this option overrides.
    pub fn overrides(&self) -> Overrides {
        self.server.overrides()
    }
}

/// Options of `plumbago delete`.
#[derive(Args)]
pub struct DeleteOptions {
    /// Globs and names, not together with --tags; a name may have tags
    #[arg(value_name = "GLOB")]
    pub patterns: Vec<String>,
    /// A tag expression, as in seriesByTag: 'dc=east', 'host=~web.*'. Of several, all must hold. Not together with globs
    #[arg(long, value_name = "EXPRESSION")]
    pub tags: Vec<String>,
    /// Only count and list the metrics
    #[arg(long)]
    pub dry_run: bool,
    /// Delete without a question
    #[arg(long)]
    pub yes: bool,
    /// Answer in JSON
    #[arg(long)]
    pub json: bool,
    /// Settings file.
    #[command(flatten)]
    pub config: ConfigOption,
    /// The server.
    #[command(flatten)]
    pub server: ServerOption,
}

impl DeleteOptions {
    /// The setting this option overrides.
    pub fn overrides(&self) -> Overrides {
        self.server.overrides()
    }
}

/// Options of `plumbago token`.
#[derive(Args)]
pub struct TokenOptions {
    /// The action.
    #[command(subcommand)]
    pub action: TokenAction,
    /// Settings file.
    #[command(flatten)]
    pub config: ConfigOption,
    /// The file of tokens [default: http.tokens of the settings]
    #[arg(long, value_name = "FILE", global = true)]
    pub file: Option<String>,
}

impl TokenOptions {
    /// The setting this option overrides.
    pub fn overrides(&self) -> Overrides {
        given([("http.tokens", "--file", &self.file)])
    }
}

/// Actions on the file of tokens.
#[derive(Subcommand)]
pub enum TokenAction {
    /// Add a token and print it; the file keeps its hash alone
    Add(TokenAddOptions),
    /// List names, scopes and visible metrics
    List,
    /// Remove a token; a running server follows within rules.reload_every
    Revoke(TokenRevokeOptions),
}

/// Options of `plumbago token add`.
#[derive(Args)]
pub struct TokenAddOptions {
    /// A name for messages, such as the client's
    pub name: String,
    /// What it allows: read, write, events, delete, admin; several with commas
    #[arg(long = "scope", value_name = "SCOPE,…", value_delimiter = ',', default_value = "read")]
    pub scopes: Vec<String>,
    /// Shows, and takes points for, metrics whose names begin like this alone, such as 'servers.web.'; may be given several times
    #[arg(long = "prefix", value_name = "PREFIX")]
    pub prefixes: Vec<String>,
    /// Shows, and takes points for, tagged metrics that have all of these tags, such as 'tenant=blue'; may be given several times
    #[arg(long = "tag", value_name = "TAG=VALUE")]
    pub tags: Vec<String>,
    /// Points a second that it may send to /ingest
    #[arg(long, value_name = "POINTS")]
    pub points_per_second: Option<u32>,
    /// Queries that it may have under way at once
    #[arg(long, value_name = "QUERIES")]
    pub queries: Option<u32>,
    /// Events a minute that it may store
    #[arg(long, value_name = "EVENTS")]
    pub events_per_minute: Option<u32>,
    /// New metrics a minute that it may make
    #[arg(long, value_name = "METRICS")]
    pub creations_per_minute: Option<u32>,
    /// Metrics that there may be among the names that it may write; needs --prefix or --tag
    #[arg(long, value_name = "METRICS")]
    pub max_metrics: Option<u32>,
    /// Memory for all of its queries together, such as 64MiB
    #[arg(long, value_name = "BYTES")]
    pub query_memory: Option<String>,
    /// Adds a user for a proxy (http.proxies), without a token
    #[arg(long)]
    pub user: bool,
}

/// Options of `plumbago token revoke`.
#[derive(Args)]
pub struct TokenRevokeOptions {
    /// The token's name
    pub name: String,
}

/// Options of `plumbago schema`.
#[derive(Args)]
pub struct SchemaOptions {
    /// The action.
    #[command(subcommand)]
    pub action: SchemaAction,
}

/// Actions on the tables.
#[derive(Subcommand)]
pub enum SchemaAction {
    /// Print the CQL of all tables that the settings and storage-schemas.conf require
    Show(SchemaActionOptions),
    /// Create what is missing; existing things are not altered or dropped
    Apply(SchemaActionOptions),
    /// Compare the existing tables with the required ones; exits 1 if the program would not start
    Check(SchemaActionOptions),
}

/// Options of each action of `plumbago schema`.
#[derive(Args)]
pub struct SchemaActionOptions {
    /// Settings file.
    #[command(flatten)]
    pub config: ConfigOption,
    /// Carbon's folder.
    #[command(flatten)]
    pub conf_dir: ConfDirOption,
    /// The cluster.
    #[command(flatten)]
    pub cluster: ClusterOption,
}

impl SchemaActionOptions {
    /// The settings these options override.
    pub fn overrides(&self) -> Overrides {
        let mut all = self.conf_dir.overrides();
        all.extend(given(self.cluster.all()));
        all
    }
}

/// Options of `plumbago settings`.
#[derive(Args)]
pub struct SettingsOptions {
    /// Settings file.
    #[command(flatten)]
    pub config: ConfigOption,
    /// Print the page docs/settings.md instead
    #[arg(long)]
    pub markdown: bool,
}

impl ConfDirOption {
    /// The setting this option overrides.
    pub fn overrides(&self) -> Overrides {
        given([("rules.conf_dir", "--conf-dir", &self.conf_dir)])
    }
}

fn given<const N: usize>(all: [(&'static str, &'static str, &Option<String>); N]) -> Overrides {
    let given = all.into_iter().filter_map(|(path, option, value)| Some((path, option, value.clone()?)));
    given.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn bare_plumbago_takes_the_options_of_serve() {
        let cli = Cli::try_parse_from(["plumbago", "--line", "127.0.0.1:0"]).unwrap();
        assert!(cli.command.is_none());
        assert_eq!(cli.serve.overrides(), [("listen.line", "--line", "127.0.0.1:0".to_owned())]);
    }

    #[test]
    fn every_option_overrides_a_setting_that_exists_and_shows_its_default() {
        let defaults = crate::settings::Settings::default();
        let all = || Some("127.0.0.1:0".to_owned());
        let options = ServeOptions {
            conf_dir: ConfDirOption { conf_dir: all() },
            data: all(),
            line: all(),
            pickle: all(),
            protobuf: all(),
            http: all(),
            admin: all(),
            insecure: true,
            cluster: ClusterOption { cassandra: all(), keyspace: all() },
            ..ServeOptions::default()
        };
        let command = Cli::command();
        let serve = command.find_subcommand("serve").unwrap();
        for (path, option, _) in options.overrides() {
            let definition = crate::settings::definitions().find(|known| known.path() == path).unwrap();
            let argument = serve.get_arguments().find(|known| known.get_long() == Some(&option[2..])).unwrap();
            let help = argument.get_help().unwrap().to_string();
            let default = (definition.show)(&defaults);
            assert!(!help.contains("[default:") || help.contains(&format!("[default: {default}]")), "{help}");
        }
    }
}
