//! The names to send: a fleet as a Graphite user has it, the same in every run.

use std::fmt::Write as _;

use clap::ValueEnum;

/// The kind of a metric's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Two decimals, up and down.
    Gauge,
    /// A whole number that never falls.
    Counter,
}

/// The names of the hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Pattern {
    /// `ROOT.dc1.host0001.cpu.0.user`: numbered hosts in four data centres, a hundred metrics each
    #[default]
    Hosts,
    /// `ROOT.dc1.web-7f3a9c11d2.cpu.0.user`: the same with random host names, which share far less
    Pods,
}

/// The metrics of a host. A million metrics are ten thousand hosts: 80,000 match `*.*.*.cpu.*.user` and
/// 2,500 match `ROOT.dc1.*.loadavg.01`.
const CPUS: u64 = 8;
const CPU: [(&str, Kind); 8] = [
    ("user", Kind::Gauge),
    ("system", Kind::Gauge),
    ("idle", Kind::Gauge),
    ("iowait", Kind::Gauge),
    ("nice", Kind::Counter),
    ("irq", Kind::Counter),
    ("softirq", Kind::Counter),
    ("steal", Kind::Counter),
];
const REST: [(&str, Kind); 36] = [
    ("loadavg.01", Kind::Gauge),
    ("loadavg.05", Kind::Gauge),
    ("loadavg.15", Kind::Gauge),
    ("memory.used", Kind::Gauge),
    ("memory.free", Kind::Gauge),
    ("memory.cached", Kind::Gauge),
    ("memory.buffers", Kind::Gauge),
    ("memory.slab", Kind::Gauge),
    ("memory.swap_used", Kind::Gauge),
    ("memory.dirty", Kind::Gauge),
    ("memory.available", Kind::Gauge),
    ("network.eth0.rx_bytes", Kind::Counter),
    ("network.eth0.rx_packets", Kind::Counter),
    ("network.eth0.rx_errors", Kind::Counter),
    ("network.eth0.tx_bytes", Kind::Counter),
    ("network.eth0.tx_packets", Kind::Counter),
    ("network.eth0.tx_errors", Kind::Counter),
    ("network.eth1.rx_bytes", Kind::Counter),
    ("network.eth1.rx_packets", Kind::Counter),
    ("network.eth1.rx_errors", Kind::Counter),
    ("network.eth1.tx_bytes", Kind::Counter),
    ("network.eth1.tx_packets", Kind::Counter),
    ("network.eth1.tx_errors", Kind::Counter),
    ("disk.sda.reads", Kind::Counter),
    ("disk.sda.writes", Kind::Counter),
    ("disk.sda.read_bytes", Kind::Counter),
    ("disk.sda.write_bytes", Kind::Counter),
    ("disk.sda.busy", Kind::Gauge),
    ("disk.sdb.reads", Kind::Counter),
    ("disk.sdb.writes", Kind::Counter),
    ("disk.sdb.read_bytes", Kind::Counter),
    ("disk.sdb.write_bytes", Kind::Counter),
    ("disk.sdb.busy", Kind::Gauge),
    ("processes.running", Kind::Gauge),
    ("processes.blocked", Kind::Gauge),
    ("uptime", Kind::Counter),
];
const DATA_CENTRES: u64 = 4;

/// Metrics of one host.
pub(crate) const PER_HOST: u64 = CPUS * CPU.len() as u64 + REST.len() as u64;

/// An endless list of names, in the order in which a fleet reports: host by host.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    /// One or more components, without the last dot.
    pub(crate) root: String,
    pub(crate) pattern: Pattern,
    /// Chooses the random parts of `pods`.
    pub(crate) seed: u64,
}

impl Names {
    /// The name of the `index`-th metric.
    pub(crate) fn name(&self, index: u64) -> String {
        let (host, of_host) = (index / PER_HOST, index % PER_HOST);
        let (data_centre, number) = (host % DATA_CENTRES + 1, host / DATA_CENTRES + 1);
        let mut name = format!("{}.dc{data_centre}.", self.root);
        // Writing to a String cannot fail.
        let _ = match self.pattern {
            Pattern::Hosts => write!(name, "host{number:04}"),
            Pattern::Pods => {
                let random = mix(self.seed ^ mix(host));
                let role = ["web", "api", "db", "cache", "queue", "batch"][(random % 6) as usize];
                write!(name, "{role}-{:010x}", random >> 24)
            }
        };
        let _ = match metric(of_host) {
            (Some(cpu), metric) => write!(name, ".cpu.{cpu}.{}", metric.0),
            (None, metric) => write!(name, ".{}", metric.0),
        };
        name
    }

    /// The kind of the `index`-th metric.
    pub(crate) fn kind(&self, index: u64) -> Kind {
        metric(index % PER_HOST).1.1
    }
}

/// A metric of a host by its index, and the number of its CPU if it belongs to one.
fn metric(of_host: u64) -> (Option<u64>, (&'static str, Kind)) {
    let modes = CPU.len() as u64;
    match of_host.checked_sub(CPUS * modes) {
        None => (Some(of_host / modes), CPU[(of_host % modes) as usize]),
        Some(rest) => (None, REST[rest as usize]),
    }
}

/// A number that looks random and depends on `number` alone (the finalizer of splitmix64).
pub(crate) fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn names(pattern: Pattern) -> Names {
        Names { root: "servers".into(), pattern, seed: 1 }
    }

    #[test]
    fn a_million_metrics_answer_the_questions_of_the_table() {
        let names = names(Pattern::Hosts);
        let (mut users, mut loads, mut counters) = (0, 0, 0);
        let mut seen = HashSet::new();
        for index in 0..1_000_000 {
            let name = names.name(index);
            let parts: Vec<&str> = name.split('.').collect();
            users += u32::from(matches!(parts[..], [_, _, _, "cpu", _, "user"]));
            loads += u32::from(matches!(parts[..], ["servers", "dc1", _, "loadavg", "01"]));
            counters += u32::from(names.kind(index) == Kind::Counter);
            assert!(seen.insert(name), "{index} has the name of another");
        }
        assert_eq!((users, loads, counters), (80_000, 2_500, 530_000));
    }

    #[test]
    fn ten_thousand_metrics_have_a_thousand_series_to_render() {
        let names = names(Pattern::Hosts);
        let rendered = (0..10_000).map(|index| names.name(index)).filter(|name| {
            let parts: Vec<&str> = name.split('.').collect();
            matches!(parts[..], [_, _, _, "cpu", "0" | "1" | "2" | "3" | "4", "user" | "system"])
        });
        assert_eq!(rendered.count(), 1_000);
    }

    #[test]
    fn names_are_the_same_on_every_run() {
        assert_eq!(names(Pattern::Hosts).name(0), "servers.dc1.host0001.cpu.0.user");
        assert_eq!(names(Pattern::Hosts).name(999_999), "servers.dc4.host2500.uptime");
        assert_eq!(names(Pattern::Pods).name(123_456), names(Pattern::Pods).name(123_456));
    }

    #[test]
    fn random_hosts_have_names_of_their_own() {
        let names = names(Pattern::Pods);
        let hosts: HashSet<String> = (0..10_000).map(|host| names.name(host * PER_HOST)).collect();
        assert_eq!(hosts.len(), 10_000);
    }
}
