//! A machine: what outlives a process. Its disk, its time, and the rules of its operator.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use carbon::{RuleFiles, Rules};
use host::{Clock as _, Disk as _, Host, SeededRandom, SimulatedDisk};
use store::MemoryDriver;
use tokio::runtime::{Builder, Runtime};

use crate::{
    SimulatedClock,
    node::{Node, NodeOptions},
};

/// When every machine is switched on: a round time, Unix seconds.
const BEGINNING: u64 = 1_800_000_000;

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
    pub(crate) memory: Option<Arc<MemoryDriver>>,
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
            memory: (store == StoreKind::Memory).then(Arc::default),
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
                rules: rules(self.rules),
                memory: self.memory.clone(),
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
            while !self.disk.is_dead() {
                tokio::time::sleep(Duration::from_millis(5)).await;
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

/// Retentions that the operator chooses from. All begin with one second.
pub(crate) const RETENTIONS: [&str; 3] = ["1s:10m,10s:1h,60s:6h", "1s:15m,10s:1h,60s:6h", "1s:20m,10s:2h,60s:12h"];

/// The rules with this number: a metric is aggregated by the method that its name begins with. Those of `strict.` need a
/// third of their points; those of `steady.` keep the first retention; those of `brief.` are kept for two minutes.
pub(crate) fn rules(number: usize) -> Rules {
    // Its patterns take longer to compile than most steps take.
    static MADE: Mutex<BTreeMap<usize, Rules>> = Mutex::new(BTreeMap::new());
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    made.entry(number).or_insert_with(|| make_rules(number)).clone()
}

fn make_rules(number: usize) -> Rules {
    let schemas = format!(
        "[brief]\npattern = ^brief\\.\nretentions = 1s:2m\n[steady]\npattern = \\.steady\nretentions = {}\n[all]\npattern = \
         .*\nretentions = {}\n",
        RETENTIONS[0],
        RETENTIONS[number % RETENTIONS.len()]
    );
    let mut aggregation = String::new();
    for method in metric::Aggregation::ALL {
        let name = method.name();
        for (kind, factor) in [("strict", "0.3"), ("", "0")] {
            aggregation += &format!(
                "[{name}{kind}]\npattern = ^{name}\\..*{kind}\nxFilesFactor = {factor}\naggregationMethod = {name}\n"
            );
        }
    }
    let files = RuleFiles { schemas: Some(&schemas), aggregation: Some(&aggregation), ..RuleFiles::default() };
    Rules::parse(files).expect("good rules").0
}
