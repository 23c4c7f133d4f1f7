//! Measures the registry and the path index on a million host metrics:
//! `cargo run --release -p metadata --example index [-- METRICS [irregular]]`.
//!
//! With `irregular`, hosts have random names, as cloud instances do, so that the index can share less.

use std::time::{Duration, Instant};

use metadata::{FindLimits, Registry};
use metric::Policy;

/// Metrics of one host.
const PER_HOST: usize = 100;

fn main() {
    let mut args = std::env::args().skip(1);
    let metrics: usize = args.next().map_or(1_000_000, |arg| arg.parse().expect("a number of metrics"));
    let irregular = args.next().is_some_and(|arg| arg == "irregular");
    let names = names(metrics, irregular);
    let bytes: usize = names.iter().map(String::len).sum();
    println!("{} names of {:.1} bytes", names.len(), bytes as f64 / names.len() as f64);

    let before = resident_bytes();
    let registry = Registry::new();
    let policy = registry.intern(&Policy::default());
    let (mut creating, mut compacting, mut longest) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    // As a server does that takes 200,000 new names a second and compacts every 100 ms.
    for batch in names.chunks(20_000) {
        for batch in batch.chunks(1000) {
            let started = Instant::now();
            let mut guard = registry.write();
            for name in batch {
                let hash = registry.hash(name.as_bytes());
                if guard.find(hash, name.as_bytes()).is_none() {
                    guard.create(hash, name, policy, 1_700_000_000);
                }
            }
            drop(guard);
            creating += started.elapsed();
            longest = longest.max(started.elapsed());
        }
        let started = Instant::now();
        registry.compact();
        compacting += started.elapsed();
    }
    let each = |time: Duration| time.as_nanos() as f64 / names.len() as f64;
    println!("create {:.0} ns, compact {:.0} ns a metric while they come", each(creating), each(compacting));
    println!("longest hold of the lock for 1000 metrics {longest:?}");
    finds(&registry, "at the end of the stream");
    let started = Instant::now();
    while registry.compact() {}
    println!("compact {:.0} ns a metric afterwards", each(started.elapsed()));
    println!("{:?}", registry.index_statistics());
    let resident = resident_bytes() - before;
    println!(
        "{:.1} bytes a metric resident, {:.1} of them estimated",
        resident as f64 / names.len() as f64,
        registry.memory_bytes() as f64 / names.len() as f64
    );
    finds(&registry, "compacted");

    let mut guard = registry.write();
    for i in 0..8000 {
        let name = format!("servers.dc1.new{:03}.cpu.{}.user", i / 100, i % 100);
        guard.create(registry.hash(name.as_bytes()), &name, policy, 1_700_000_000);
    }
    drop(guard);
    finds(&registry, "with 8000 names in the tail");

    lookups(&names);

    let path = std::env::temp_dir().join(format!("plumbago-example-index-{}", std::process::id()));
    let started = Instant::now();
    registry.save(&host::SystemDisk, &path, None).expect("the registry is saved");
    println!("save {:?}, {} bytes", started.elapsed(), std::fs::metadata(&path).map_or(0, |file| file.len()));
    let started = Instant::now();
    let opened = Registry::open(&host::SystemDisk, &path).expect("the registry is opened").registry;
    println!("open {:?}, {} metrics", started.elapsed(), opened.len());
    std::fs::remove_file(&path).expect("the saved registry is removed");
}

fn finds(registry: &Registry, when: &str) {
    println!("finds {when}:");
    // As Grafana sends a variable with many values.
    let hosts: Vec<String> = (1..=2000).map(|host| format!("host{host:04}")).collect();
    let hosts = format!("servers.dc1.{{{}}}.loadavg.01", hosts.join(","));
    let patterns = [
        "*.*.*.cpu.*.user",
        "servers.dc1.*.loadavg.01",
        "*.*.*.*.*.nothing",
        "servers.*.*.cpu.*.nothing.at.all",
        "servers.*",
        "servers.dc1.*",
        "**.loadavg.01",
        "servers.dc{1,2}.host00[0-4]?.loadavg.*",
        &hosts,
    ];
    let limits = FindLimits::default();
    for pattern in patterns {
        let mut times = Vec::new();
        let mut results = 0;
        for _ in 0..15 {
            let started = Instant::now();
            results = registry.find(pattern, &limits).expect("a good pattern").len();
            times.push(started.elapsed());
        }
        times.sort();
        println!(
            "  {pattern:36.36} {results:6} results, best {:?}, median {:?}, worst {:?}",
            times[0], times[7], times[14]
        );
    }
    let started = Instant::now();
    let mut count = 0;
    registry.all(|_, _| {
        count += 1;
        true
    });
    println!("  {:36} {count:6} results, {:?}", "all", started.elapsed());
}

/// Looks names up in an order that no cache foresees, in registries of several sizes.
fn lookups(names: &[String]) {
    for count in [10_000, 100_000, names.len()] {
        let registry = Registry::new();
        let policy = registry.intern(&Policy::default());
        let mut order: Vec<&String> = names.iter().take(count).collect();
        let mut guard = registry.write();
        for name in &order {
            guard.create(registry.hash(name.as_bytes()), name, policy, 0);
        }
        drop(guard);
        let mut seed = 1u64;
        for i in (1..order.len()).rev() {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            order.swap(i, (seed >> 33) as usize % (i + 1));
        }
        // Copied in that order, as lines arrive: what is measured is the registry, not where names lie.
        let text: String = order.iter().map(|name| name.as_str()).collect();
        let mut ends = order.iter().scan(0, |end, name| {
            *end += name.len();
            Some(*end)
        });
        let mut begin = 0;
        let mut lines = Vec::new();
        for end in &mut ends {
            lines.push(&text.as_bytes()[begin..end]);
            begin = end;
        }
        let guard = registry.read();
        let (mut one_by_one, mut in_batches) = (Duration::MAX, Duration::MAX);
        let mut found = 0;
        for _ in 0..(3_000_000 / count).max(3) {
            let started = Instant::now();
            for line in &lines {
                found += guard.find(registry.hash(line), line).expect("it was created").index();
            }
            one_by_one = one_by_one.min(started.elapsed());
            let started = Instant::now();
            let mut hashes = [0; 64];
            for batch in lines.chunks(hashes.len()) {
                for (line, hash) in batch.iter().zip(&mut hashes) {
                    *hash = registry.hash(line);
                    guard.prefetch(*hash);
                }
                for (line, hash) in batch.iter().zip(&hashes) {
                    found += guard.find(*hash, line).expect("it was created").index();
                }
            }
            in_batches = in_batches.min(started.elapsed());
        }
        std::hint::black_box(found);
        let each = |time: Duration| time.as_nanos() as f64 / count as f64;
        println!("hash and find among {count}: {:.0} ns, prefetched {:.0} ns", each(one_by_one), each(in_batches));
    }
}

fn names(metrics: usize, irregular: bool) -> Vec<String> {
    let mut kinds = Vec::new();
    for cpu in 0..8 {
        for state in ["user", "system", "idle", "iowait", "irq", "softirq", "steal", "nice"] {
            kinds.push(format!("cpu.{cpu}.{state}"));
        }
    }
    kinds.extend(["01", "05", "15"].map(|minutes| format!("loadavg.{minutes}")));
    for disk in ["sda", "sdb", "nvme0n1", "nvme1n1"] {
        kinds.extend(
            ["reads", "writes", "bytes_read", "bytes_written", "busy"].map(|kind| format!("disk.{disk}.{kind}")),
        );
    }
    kinds.extend(["free", "used", "cached", "buffered", "dirty"].map(|kind| format!("memory.{kind}")));
    kinds.extend(["rx_bytes", "tx_bytes", "rx_errors", "tx_errors"].map(|kind| format!("net.eth0.{kind}")));
    kinds.extend(["rx_bytes", "tx_bytes", "rx_errors", "tx_errors"].map(|kind| format!("net.eth1.{kind}")));
    kinds.truncate(PER_HOST);
    let hosts = metrics.div_ceil(kinds.len());
    let mut names = Vec::with_capacity(metrics);
    let mut seed = 7u64;
    for host in 0..hosts {
        let dc = host * 4 / hosts + 1;
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let host = match irregular {
            true => format!("i-{:016x}", seed),
            false => format!("host{:04}", host % (hosts.div_ceil(4)) + 1),
        };
        names.extend(kinds.iter().map(|kind| format!("servers.dc{dc}.{host}.{kind}")));
    }
    names.truncate(metrics);
    names
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: usize = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4096
}
