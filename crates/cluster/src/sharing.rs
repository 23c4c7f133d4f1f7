//! What a node does with tables that others share, whatever the way to them: its driver, and the tasks that keep names in step.

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock, atomic::AtomicBool},
    time::Duration,
};

use futures::future::{BoxFuture, FutureExt};
use host::{Clock, Host};
use ingest::Ingest;
use store::Store;
use store_cassandra::Calendar;

use crate::{
    change_log::{ChangeLog, WRITE_EVERY},
    driver::ClusterDriver,
    follower::Follower,
    index_readiness::IndexReadiness,
    last_seen::LastSeen,
    members::Members,
    name_sync::NameSync,
    peers::Peers,
    rescan::Rescan,
    tables::Tables,
};

/// What ingestion needs.
pub struct Sharing {
    tables: Arc<dyn Tables>,
    driver: Arc<ClusterDriver>,
    last_seen: Arc<LastSeen>,
    log: Arc<ChangeLog>,
    local: Store,
    host: Host,
}

/// What needs ingestion.
pub struct Shared {
    tables: Arc<dyn Tables>,
    last_seen: Arc<LastSeen>,
    pub(crate) names: Arc<NameSync>,
    follower: Arc<Follower>,
    pub(crate) peers: Arc<Peers>,
}

/// A task of the node, made again if it panics.
pub struct Task {
    /// What it does.
    pub name: &'static str,
    /// Makes it.
    pub make: Box<dyn FnMut() -> BoxFuture<'static, ()> + Send>,
    /// Whether a stop needs it until its points are written.
    pub lasts_until_stored: bool,
}

impl Task {
    pub(crate) fn new(name: &'static str, make: impl FnMut() -> BoxFuture<'static, ()> + Send + 'static) -> Task {
        Task { name, make: Box::new(make), lasts_until_stored: false }
    }

    fn until_stored(self) -> Task {
        Task { lasts_until_stored: true, ..self }
    }
}

impl Sharing {
    /// Over tables that are reached so and written by this calendar, without reports of when metrics were read. For rehearsals. `local` is the
    /// embedded store.
    pub fn over(tables: Arc<dyn Tables>, calendar: Arc<Calendar>, local: Store, host: Host) -> Sharing {
        let log = Arc::new(ChangeLog::new(host.clock.clone(), calendar));
        Sharing::new(tables, log, local, host, (Duration::from_secs(86_400), 0.0))
    }

    /// `touch_every` is the interval of reports that a metric lives, and `read_sample` the share of reads that are reported.
    pub(crate) fn new(
        tables: Arc<dyn Tables>,
        log: Arc<ChangeLog>,
        local: Store,
        host: Host,
        (touch_every, read_sample): (Duration, f64),
    ) -> Sharing {
        let clock: Arc<dyn Clock> = host.clock.clone();
        let last_seen = Arc::new(LastSeen::new(clock.clone(), touch_every, read_sample));
        let driver = ClusterDriver::new(tables.clone(), local.clone(), last_seen.clone(), log.clone());
        Sharing { tables, driver: Arc::new(driver), last_seen, log, local, host }
    }

    /// What ingestion writes to.
    pub fn store(&self) -> Store {
        Store { shared: Some(self.driver.clone()), ..Store::of(self.driver.clone()) }
    }

    /// The embedded store.
    pub(crate) fn local(&self) -> &Store {
        &self.local
    }

    /// Adds what needs ingestion. `replica` is that of this node's aggregates.
    pub fn attach(self, ingest: &Arc<Ingest>, data: PathBuf, version: String, replica: u8) -> Shared {
        let Sharing { tables, last_seen, log, local, host, .. } = self;
        let Host { clock, disk, random } = host;
        let rescan = Arc::new(Rescan::default());
        let follower = Arc::new(Follower::new(
            clock.clone(),
            tables.clone(),
            local.names.clone(),
            ingest.clone(),
            log.clone(),
            rescan.clone(),
        ));
        let members = Arc::new(Members::new(clock.clone(), tables.clone(), version, replica));
        let peers = Arc::new(Peers {
            clock: clock.clone(),
            members,
            tables: Some(tables.clone()),
            log,
            followed: follower.followed.clone(),
            heads: OnceLock::new(),
            is_introduced: AtomicBool::new(false),
        });
        let names = Arc::new(NameSync {
            clock,
            readiness: Arc::new(IndexReadiness::open(disk, &data, tables.clone())),
            tables: tables.clone(),
            local: local.names,
            ingest: ingest.clone(),
            rescan,
            random,
        });
        Shared { tables, last_seen, names, follower, peers }
    }
}

impl Shared {
    /// The nodes over the same tables, and what they tell each other.
    pub fn peers(&self) -> &Arc<Peers> {
        &self.peers
    }

    /// Reads all names if that was never done.
    pub fn first_names(&self) -> impl Future<Output = ()> + Send + 'static {
        let names = self.names.clone();
        async move { names.first().await }
    }

    /// The tasks that run along with ingestion: reports and names. All names are read at this interval.
    pub fn tasks(self, reconcile_every: Duration) -> Vec<Task> {
        let Shared { tables, last_seen, names, follower, peers } = self;
        let (log, written_to) = (peers.log.clone(), tables.clone());
        vec![
            Task::new("last seen", move || last_seen.clone().report(tables.clone()).boxed()),
            Task::new("name sync", move || names.clone().follow(reconcile_every).boxed()),
            // New names wait until this node has followed what others deleted before.
            Task::new("names of other nodes", move || follower.clone().follow().boxed()).until_stored(),
            Task::new("names for other nodes", move || tell(log.clone(), written_to.clone()).boxed()),
            // Answers name a node that stops for as long as it has points that are not stored.
            Task::new("heartbeat", move || peers.clone().meet().boxed()).until_stored(),
        ]
    }
}

/// Tells other nodes of names, until dropped. Errors are logged there.
async fn tell(log: Arc<ChangeLog>, tables: Arc<dyn Tables>) {
    loop {
        tokio::time::sleep(WRITE_EVERY).await;
        if let (Ok(driver), Some(node)) = (tables.tables(), tables.own()) {
            let _ = log.write(driver, node).await;
        }
    }
}
