//! Measures the tag index on a million metrics of ten tags:
//! `cargo run --release -p metadata --example tags [-- METRICS]`.
//!
//! Creating and indexing are in processor time, questions by the clock. Of the tags five have 10 values, three 1,000, one 100,000, and one is nearly unique.

use std::time::{Duration, Instant};

use metadata::{FindLimits, Matcher, Registry, SAVED_TAGS, TagExpressions, TagListing};
use metric::Policy;

fn main() {
    let metrics: usize = std::env::args().nth(1).map_or(1_000_000, |arg| arg.parse().expect("a number of metrics"));
    let names: Vec<String> = (0..metrics).map(name).collect();
    let bytes: usize = names.iter().map(String::len).sum();
    println!("{metrics} names of {:.1} bytes", bytes as f64 / metrics as f64);

    let registry = Registry::new();
    let policy = registry.intern(&Policy::default());
    let (mut creating, mut indexing) = (Duration::ZERO, Duration::ZERO);
    let (mut longest, before) = (Duration::ZERO, resident_bytes());
    for batch in names.chunks(20_000) {
        let started = Cpu::now();
        for batch in batch.chunks(1000) {
            let mut guard = registry.write();
            for name in batch {
                guard.create(registry.hash(name.as_bytes()), name, policy, 1_700_000_000);
            }
        }
        creating += started.elapsed();
        let started = Cpu::now();
        registry.compact();
        indexing += started.elapsed();
        longest = longest.max(started.elapsed());
    }
    let each = |time: Duration| time.as_nanos() as f64 / metrics as f64;
    println!(
        "create {:.0} ns, index {:.0} ns a metric, longest {longest:?} for 20,000",
        each(creating),
        each(indexing)
    );
    let resident = resident_bytes() - before;
    println!("{:.1} bytes a metric resident with its name", resident as f64 / metrics as f64);

    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("names");
    registry.save(&host::SystemDisk, &path, None).expect("the registry is saved");
    drop(registry);
    saved_index(&path);
    let started = Cpu::now();
    let registry = Registry::open(&host::SystemDisk, &path).expect("the saved registry is read").registry;
    println!("open {:?}", started.elapsed());
    let (started, without) = (Cpu::now(), resident_bytes());
    registry.compact();
    println!("index all {:?}", started.elapsed());
    let (resident, estimated) = (resident_bytes() - without, registry.memory_bytes());
    println!("{:.1} bytes a metric for its tags, {estimated} estimated with names", resident as f64 / metrics as f64);

    questions(&registry);
}

/// How long a start takes until a question is answered that needs the saved tag index, by the clock.
fn saved_index(path: &std::path::Path) {
    let folder = path.parent().expect("a file in a folder");
    let sizes = [path, &folder.join(SAVED_TAGS)].map(|file| std::fs::metadata(file).expect("a saved file").len());
    let disk: std::sync::Arc<dyn host::Disk> = std::sync::Arc::new(host::SystemDisk);
    let started = Instant::now();
    let saved = Registry::open(&*disk, path).expect("the saved registry is read").expecting_tags(&disk, folder);
    let opened = started.elapsed();
    saved.compact();
    println!(
        "saved names of {} bytes open after {opened:?}, tags of {} after {:?}",
        sizes[0],
        sizes[1],
        started.elapsed()
    );
}

/// What users ask, and how long it takes.
fn questions(registry: &Registry) {
    let limits = FindLimits { nodes: 10_000_000, ..FindLimits::default() };
    let expressions = |texts: &[&str]| TagExpressions::read_any(texts, compile).expect("valid expressions");
    let listing = |texts: &[&str], prefix: &str| TagListing {
        expressions: (!texts.is_empty()).then(|| expressions(texts)),
        prefix: prefix.to_owned(),
        pattern: None,
        limit: Some(100),
    };
    let sets: [&[&str]; 11] = [
        &["pod=web-0001234"],
        &["host=~web.*", "dc=dc1", "rack=r001"],
        &["host=~web.*", "dc=dc1"],
        &["host=~web-0[0-4].*", "env=e2", "rack!=r003"],
        &["host=~.*77$", "dc=dc1"],
        &["pod=~.*d.*77"],
        &["host=~.*d7.*"],
        &["host!=~web-.*7$", "dc=dc1", "app=app001"],
        &["rack!=r003"],
        &["pod!=~.*7$", "name!="],
        &["dc!=dc1", "env!=~e[1-8]"],
    ];
    for texts in sets {
        let mut found = 0;
        let count = measure(|| found = registry.count_tagged(&expressions(texts), &limits).expect("within its limits"));
        print!("{texts:?}: {found} in {count}");
        if found <= 200_000 {
            let read = measure(|| _ = registry.tagged(&expressions(texts), &limits).expect("within its limits"));
            print!(", with names {read}");
        }
        println!();
    }
    let exprs: [&[&str]; 5] = [&[], &["dc=dc1"], &["host=web-000123"], &["dc=dc1", "rack=r001"], &["env=~e[12]"]];
    for texts in exprs {
        for prefix in ["", "r"] {
            let taken =
                measure(|| _ = registry.list_tags(&listing(texts, prefix), &limits).expect("within its limits"));
            println!("tags of {texts:?} with '{prefix}': {taken}");
        }
        for (tag, prefix) in [("dc", ""), ("rack", ""), ("host", "web-01"), ("pod", ""), ("pod", "web-09")] {
            let ask = || _ = registry.list_values(tag, &listing(texts, prefix), &limits).expect("within its limits");
            println!("values of {tag} of {texts:?} with '{prefix}': {}", measure(ask));
        }
    }
    for tag in ["host", "pod"] {
        let all = TagListing::default();
        let taken = measure(|| _ = registry.list_values(tag, &all, &limits).expect("within its limits"));
        println!("all values of {tag}: {taken}");
    }
}

fn compile(pattern: &str) -> Result<Matcher, String> {
    let regex = regex_automata::meta::Regex::new(pattern).map_err(|error| error.to_string())?;
    Ok(Matcher::new(move |value| Ok(regex.is_match(value))).with_pattern(pattern, usize::MAX))
}

/// The median and the longest of some calls.
fn measure(mut call: impl FnMut()) -> String {
    let mut times = Vec::new();
    let begun = Instant::now();
    while times.len() < 100 && (times.len() < 5 || begun.elapsed() < Duration::from_secs(2)) {
        let started = Instant::now();
        call();
        times.push(started.elapsed());
    }
    times.sort();
    format!("{:.1?} (at most {:.1?} of {})", times[times.len() / 2], times[times.len() - 1], times.len())
}

fn name(i: usize) -> String {
    // Spread, so that neighbours share little.
    let spread = |values: usize, seed: u64| {
        let bits = (i as u64 ^ seed << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((bits ^ bits >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33) as usize % values
    };
    let role = ["web", "db"][spread(2, 1)];
    format!(
        "requests.{};app=app{:03};cell=c{};dc=dc{};disk=d{:03};env=e{};host={role}-{:06};os=os{};pod={role}-{i:07};rack=r{:03};tier=t{}",
        spread(100, 2),
        spread(1000, 3),
        spread(10, 4),
        spread(10, 5),
        spread(1000, 6),
        spread(10, 7),
        spread(100_000, 8),
        spread(10, 9),
        spread(1000, 10),
        spread(10, 11),
    )
}

/// A moment by the processor time of this thread, which other programs do not change.
#[derive(Clone, Copy)]
struct Cpu(Duration);

impl Cpu {
    fn now() -> Cpu {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
        let nanoseconds = text.split(' ').next().and_then(|first| first.parse().ok());
        Cpu(Duration::from_nanos(nanoseconds.expect("processor time")))
    }

    fn elapsed(self) -> Duration {
        Cpu::now().0 - self.0
    }
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.expect("resident pages") * 4096
}
