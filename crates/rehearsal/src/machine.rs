//! A machine: what outlives a process. Its disk, its time, and the rules of its operator.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use carbon::{RuleFiles, Rules};
use host::{Clock as _, Disk as _, Host, Now, SeededRandom, SimulatedDisk};
use store::MemoryDriver;
use tokio::runtime::{Builder, Runtime};

use crate::{
    SimulatedClock,
    node::{Node, NodeOptions},
    tables::OpenTables,
};

/// When every machine is switched on: a round time, Unix seconds.
pub(crate) const BEGINNING: u64 = 1_800_000_000;

/// Blocking threads of a process: more than one, because some of their tasks wait for others.
const BLOCKING_THREADS: usize = 4;

/// Which driver keeps points and names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreKind {
    /// The in-memory driver, which outlives the process and loses nothing.
    Memory,
    /// The embedded store, on the machine's disk.
    Embedded,
}

/// A machine without a process.
#[derive(Debug)]
pub struct Machine {
    /// Its data folder.
    pub(crate) data: PathBuf,
    /// Its disk.
    pub disk: SimulatedDisk,
    /// The time, since 1970.
    pub now: Duration,
    /// When the journal is synced.
    pub sync: ingest::Sync,
    /// Bytes of points in memory.
    pub memory_limit_bytes: u64,
    /// Which of the rules are in force.
    pub rules: usize,
    /// Whether processes also do what the first rehearsals left out: they keep the mark of how far the time had come, and
    /// look for what an interrupted backup or restore left.
    pub is_whole: bool,
    /// Whether processes note files whose sync fails, as they must. Without it a rehearsal shows what it finds.
    pub notes_failed_syncs: bool,
    /// Seconds by which the calendar is ahead of the time of senders.
    pub(crate) ahead: i64,
    pub(crate) memory: Option<Arc<MemoryDriver>>,
    /// The tables of points, where other nodes write them too.
    pub(crate) shared: Option<Arc<dyn OpenTables>>,
    pub(crate) seed: u64,
}

/// A process on a machine.
pub struct Life {
    runtime: Runtime,
    pub(crate) node: Node,
    pub(crate) clock: Arc<SimulatedClock>,
    pub(crate) disk: SimulatedDisk,
}

impl Machine {
    /// A new machine, whose random numbers come from `seed`.
    pub fn new(store: StoreKind, seed: u64) -> Machine {
        Machine::with_disk(SimulatedDisk::new(), store, seed)
    }

    /// As [`Machine::new`], with this empty disk.
    pub fn with_disk(disk: SimulatedDisk, store: StoreKind, seed: u64) -> Machine {
        let data = PathBuf::from("/data");
        // The operator made the data folder long ago.
        disk.create_dir_all(&data).expect("an empty disk takes a folder");
        data.ancestors().for_each(|folder| disk.sync_dir(folder).expect("it was made"));
        Machine {
            data,
            disk,
            now: Duration::from_secs(BEGINNING),
            sync: ingest::Sync::Always,
            memory_limit_bytes: 1 << 30,
            rules: 0,
            is_whole: false,
            notes_failed_syncs: true,
            ahead: 0,
            memory: (store == StoreKind::Memory).then(Arc::default),
            shared: None,
            seed,
        }
    }

    /// Starts the process. On an error the machine is as the attempt left it.
    pub fn start(&mut self) -> Result<Life, String> {
        let mut builder = Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).max_blocking_threads(BLOCKING_THREADS).build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        self.seed += 1;
        let opened = runtime.block_on(async {
            let clock = Arc::new(SimulatedClock::at(self.now));
            let random = Arc::new(SeededRandom::new(self.seed));
            let host = Host { clock: clock.clone(), disk: Arc::new(self.disk.clone()), random };
            let options = NodeOptions {
                data: self.data.clone(),
                host,
                sync: self.sync,
                memory_limit_bytes: self.memory_limit_bytes,
                rules: rules(self.rules).clone(),
                is_whole: self.is_whole,
                notes_failed_syncs: self.notes_failed_syncs,
                memory: self.memory.clone(),
                shared: self.shared.clone(),
            };
            let opened = tokio::time::timeout(Duration::from_secs(3600), Node::open(options)).await;
            (opened.unwrap_or_else(|_| Err("the start does not end".to_owned())), clock)
        });
        let (node, clock) = opened;
        self.now = clock.since_epoch();
        let node = match node {
            Ok(node) => node,
            Err(error) => {
                runtime.shutdown_timeout(Duration::from_secs(10));
                return Err(error);
            }
        };
        Ok(Life { runtime, node, clock, disk: self.disk.clone() })
    }
}

impl Life {
    /// Runs one piece of work. `None` when the process dies meanwhile.
    ///
    /// # Panics
    /// When the work does not end within an hour of simulated time.
    pub(crate) fn run<T>(&self, what: &str, work: impl Future<Output = T>) -> Option<T> {
        let died = async {
            // Seldom after a while: most work that takes minutes of simulated time only waits.
            let mut look_after = Duration::from_millis(5);
            while !self.disk.is_dead() {
                tokio::time::sleep(look_after).await;
                look_after = (2 * look_after).min(Duration::from_secs(1));
            }
        };
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                () = died => None,
                done = work => Some(done),
                () = tokio::time::sleep(Duration::from_secs(3600)) => panic!("{what} does not end"),
            }
        })
    }

    /// The time, Unix seconds.
    pub(crate) fn now(&self) -> i64 {
        let _within = self.runtime.enter();
        self.clock.now()
    }

    /// The time by which the node judges.
    pub(crate) fn judged(&self) -> Now {
        let _within = self.runtime.enter();
        self.node.ingest.time().now()
    }

    /// Asks a node that looks at its clock.
    pub(crate) fn within<T>(&self, ask: impl FnOnce(&Node) -> T) -> T {
        let _within = self.runtime.enter();
        ask(&self.node)
    }

    /// Whether the clock is in doubt. Within the runtime.
    pub(crate) fn is_in_doubt(&self) -> bool {
        !self.node.ingest.time().now().is_certain()
    }

    /// The time by which stored points expire. `None` while the clock is in doubt.
    pub(crate) fn expiry(&self) -> Option<i64> {
        let now = self.judged();
        now.is_certain().then(|| now.low())
    }

    /// Points that were refused, for any reason.
    pub(crate) fn refused(&self) -> u64 {
        self.node.ingest.counters().rejects.iter().map(|(_, count)| count).sum()
    }

    /// Sets the calendar, so many seconds on or back.
    pub(crate) fn jump(&self, seconds: i64) {
        let _within = self.runtime.enter();
        self.clock.set(moved(self.clock.since_epoch(), seconds));
    }

    /// Ends the process, whatever it is doing. Returns the time.
    pub fn end(self) -> Duration {
        let _within = self.runtime.enter();
        let now = self.clock.since_epoch();
        drop(_within);
        drop(self.node);
        self.runtime.shutdown_timeout(Duration::from_secs(10));
        now
    }
}

/// A time of the calendar, so many seconds later or earlier.
pub(crate) fn moved(time: Duration, seconds: i64) -> Duration {
    let length = Duration::from_secs(seconds.unsigned_abs());
    if seconds < 0 { time.saturating_sub(length) } else { time + length }
}

/// Retentions that the operator chooses from. All begin with one second.
const RETENTIONS: [&str; 3] = ["1s:10m,10s:1h,60s:6h", "1s:15m,10s:1h,60s:6h", "1s:20m,10s:2h,60s:12h"];

/// The same for metrics of few slots: a comparison of everything is short.
const SHORT_RETENTIONS: [&str; 3] = ["1s:3m,10s:15m,60s:1h", "1s:4m,10s:15m,60s:1h", "1s:5m,10s:20m,60s:2h"];

/// Slots of a day have more points than a signed number of 16 bits can count.
const LONG_RETENTIONS: [&str; 3] = ["1s:11h,60s:3d,1d:30d", "1s:11h,60s:3d,1d:30d", "1s:12h,60s:3d,1d:30d"];

/// Added to the number of rules: the retentions are short.
pub const SHORT: usize = 4;
/// Added to the number of rules: the blacklist has the metrics of `strict.`.
pub const LISTED: usize = 8;
/// Added to the number of rules: the retentions are long.
pub const LONG: usize = 16;

/// Added to the number of rules: the retentions have several first steps, and the rest of the number is the place of one.
pub const STEPS: usize = 32;
/// Added to the number of rules: a metric has several methods, among them that of its name; other ones, and in another order, under
/// each of the first three numbers. Under the fourth it has that of its name alone.
pub const LISTS: usize = 64;
/// The numbers under which lists differ.
pub(crate) const PLACES_OF_LISTS: usize = 4;
/// Added to the number of rules: the retentions are long, and differ in the first stage and in the last one. Metrics whose rows are sums
/// change among the methods of such rows.
pub const ROLLED: usize = 1 << 20;
/// How many of them there are.
pub(crate) const PLACES_OF_ROLLED: usize = 4;
/// Retentions of these. The stages of minutes are the same.
const ROLLED_RETENTIONS: [&str; PLACES_OF_ROLLED] =
    ["1s:11h,60s:3d,1d:30d", "1s:12h,60s:3d,1d:30d", "1s:11h,60s:3d,1d:40d", "1s:12h,60s:3d,1d:30d"];

/// The method of metrics whose names begin with that of a method, under rules with this number.
pub(crate) fn method_under(method: metric::Aggregation, number: usize) -> metric::Aggregation {
    use metric::Aggregation::{Average, AvgZero, Sum};
    let sums = [Average, Sum, AvgZero];
    match sums.iter().position(|sum| *sum == method) {
        Some(place) if number & ROLLED > 0 => sums[(place + number % PLACES_OF_ROLLED) % sums.len()],
        _ => method,
    }
}

/// The xFilesFactor of all metrics but those of `strict.`, under rules with this number.
pub(crate) fn x_files_factor_under(number: usize) -> f64 {
    if number & ROLLED > 0 && number % PLACES_OF_ROLLED == 2 { 0.2 } else { 0.0 }
}

/// The bits of the number below that place.
pub(crate) const STEPS_BITS: usize = 7;

/// Retentions of several first steps, in groups: a seed changes among those of one. The first has coarse tables of their own,
/// those of the others are shared.
pub(crate) const OF_STEPS: [&[&str]; 8] = [
    &["1s:2h", "1s:3h", "1s:2h,60s:1d", "1s:2h,10s:6h,60s:1d", "10s:3h", "10s:6h,60s:2d", "60s:1d", "60s:2d,300s:4d"],
    &["1s:2h,60s:1d", "10s:3h,60s:1d"],
    &["1s:2h,10s:6h,60s:2d", "10s:6h,60s:2d"],
    &["1s:2h,300s:1d", "60s:6h,300s:1d"],
    &["1s:2h,60s:1d,300s:2d", "10s:3h,60s:1d,300s:2d", "60s:6h,300s:2d"],
    &["1s:2h,30s:6h,300s:1d", "10s:3h,30s:6h,300s:1d", "60s:6h,300s:1d", "30s:4h,300s:1d"],
    &["1s:2h,60s:1d,300s:2d", "10s:3h,60s:1d,300s:2d", "30s:4h,60s:1d,300s:2d"],
    &["1s:2h,10s:6h,60s:1d,300s:2d", "10s:6h,60s:1d,300s:2d", "60s:6h,300s:2d", "10s:3h,60s:1d"],
];

/// The number of rules with a retention of a group.
pub fn with_steps(group: usize, place: usize) -> usize {
    let before: usize = OF_STEPS[..group].iter().map(|group| group.len()).sum();
    STEPS | (before + place) << STEPS_BITS
}

/// The rules with this number: a metric is aggregated by the method that its name begins with, or by several. Those of `strict.` need a
/// third of their points; those of `steady.` keep the first retention; those of `brief.` are kept for two minutes; those of `list.`
/// have lists of methods.
pub(crate) fn rules(number: usize) -> &'static Rules {
    // Its patterns take longer to compile than most steps take, and a clone longer than many. There are a few hundred numbers.
    static MADE: Mutex<BTreeMap<usize, &'static Rules>> = Mutex::new(BTreeMap::new());
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    made.entry(number).or_insert_with(|| Box::leak(Box::new(make_rules(number))))
}

/// The methods of the metrics of a method, under the rules of a place: of the first three two are always there, and the third is left
/// out by one.
fn list(method: usize, place: usize) -> String {
    let name = |next: usize| metric::Aggregation::ALL[(method + next) % metric::Aggregation::ALL.len()].name();
    let next: &[usize] = [&[0, 1, 2][..], &[1, 0], &[2, 0, 1], &[0]][place % PLACES_OF_LISTS];
    next.iter().map(|next| name(*next)).collect::<Vec<_>>().join(",")
}

fn make_rules(number: usize) -> Rules {
    let with_steps = OF_STEPS.iter().copied().flatten().nth(number >> STEPS_BITS).copied().unwrap_or_default();
    let retentions = match number {
        _ if number & ROLLED > 0 => [ROLLED_RETENTIONS[number % PLACES_OF_ROLLED]; 3],
        _ if number & STEPS > 0 => [with_steps; 3],
        _ if number & SHORT > 0 => SHORT_RETENTIONS,
        _ if number & LONG > 0 => LONG_RETENTIONS,
        _ => RETENTIONS,
    };
    let schemas = format!(
        "[brief]\npattern = ^brief\\.\nretentions = 1s:2m\n[steady]\npattern = \\.steady\nretentions = {}\n[all]\npattern = \
         .*\nretentions = {}\n",
        retentions[0],
        retentions[number % 4 % retentions.len()]
    );
    let blacklist = (number & LISTED > 0).then_some("\\.strict$\n");
    let mut aggregation = String::new();
    for (place, method) in metric::Aggregation::ALL.iter().enumerate() {
        let name = method.name();
        let alone = || method_under(*method, number).name().to_owned();
        let methods = if number & LISTS > 0 { list(place, number % 4) } else { alone() };
        let factor = x_files_factor_under(number).to_string();
        for (kind, factor) in [("strict", "0.3"), ("", &*factor)] {
            aggregation += &format!(
                "[{name}{kind}]\npattern = ^{name}\\..*{kind}\nxFilesFactor = {factor}\naggregationMethod = {methods}\n"
            );
        }
    }
    // A method comes in with the second number, and is the first one then.
    let methods = list(0, number % 4 + 1);
    aggregation += &format!("[list]\npattern = ^list\\.\nxFilesFactor = 0\naggregationMethod = {methods}\n");
    let files =
        RuleFiles { schemas: Some(&schemas), aggregation: Some(&aggregation), blacklist, ..RuleFiles::default() };
    Rules::parse(files).expect("good rules").0
}
