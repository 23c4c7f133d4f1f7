//! Claims of writer ids: two live nodes with one id would overwrite each other's aggregates.
//!
//! 1. A node keeps its writer id and its node id in a file in its data directory ([`Identity`]).
//! 2. At its start it claims the id in the table `writers`, by the only lightweight transaction there is. A node without a
//!    file takes a random id that no node ever had.
//! 3. While it runs it reports that it is alive, with a TTL: the report of a dead node expires. Its id stays its own.
//!
//! After a crash, a start on the same host and data directory takes the claim over at once. A copy of the data directory at the same
//! path on a host of the same name looks like that, too. So each process claims at a time of its own, `claimed_on`: the one
//! that claimed first finds another time within [`REFRESH`], and writes no more.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use futures::TryFutureExt;
use parking_lot::Mutex;
use scylla::{
    client::session::Session,
    statement::unprepared::Statement,
    value::{CqlTimestamp, Emptiable, MaybeEmpty},
};
use store::StoreError;
use uuid::Uuid;

use crate::{
    CassandraDriver, Options,
    ask::{Asker, read},
    failure::unavailable,
    rows::WRITERS,
    schema::{metadata_keyspace, quoted},
};

/// Seconds after which a silent node counts as dead.
const ALIVE_SECONDS: i32 = 120;

/// Interval between two reports that a node is alive.
const REFRESH: Duration = Duration::from_secs(30);

/// Attempts to take an id from a holder whose row changes meanwhile.
const TAKES_OVER: usize = 3;

/// Ids that a node without one tries. While fewer than half are taken, one in 10^12 nodes finds none.
const TRIES: usize = 40;

/// The identity that a node keeps in its data directory: lines `writer NUMBER` and `node UUID`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The writer id, 0 to 16383.
    pub writer: u16,
    /// The node's own id. A copy of a data directory has the same one, which gives the copy away.
    pub node: Uuid,
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "writer {}\nnode {}", self.writer, self.node)
    }
}

/// A file that is not an identity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the file must have the lines 'writer NUMBER', from 0 to 16383, and 'node UUID'")]
pub struct InvalidIdentity;

impl std::str::FromStr for Identity {
    type Err = InvalidIdentity;

    fn from_str(text: &str) -> Result<Identity, InvalidIdentity> {
        let (mut writer, mut node) = (None, None);
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            match line.trim().split_once(' ') {
                Some(("writer", number)) => writer = number.trim().parse().ok().filter(|&number| number < WRITERS),
                Some(("node", number)) => node = number.trim().parse().ok(),
                _ => return Err(InvalidIdentity),
            }
        }
        writer.zip(node).map(|(writer, node)| Identity { writer, node }).ok_or(InvalidIdentity)
    }
}

/// Where a node runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Location {
    /// The host's name.
    pub host: String,
    /// The data directory's absolute path.
    pub data_directory: String,
}

/// A claimed id. Until it is dropped, a task reports that the node is alive.
#[derive(Debug)]
pub struct Claim {
    identity: Identity,
    is_lost: Arc<AtomicBool>,
    /// The latest check of the id's holder, answered or not.
    checked: Arc<Mutex<Instant>>,
    refresh: tokio::task::JoinHandle<()>,
    row: Row,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.refresh.abort();
    }
}

impl Claim {
    /// What to keep in the data directory.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Whether another node took the id: this one was silent too long, and must not write any more.
    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// Whether this process was suspended for so long that another node may have taken the id, and has not checked since. It
    /// checks at once when it continues.
    pub fn is_doubtful(&self) -> bool {
        self.row.options.host.clock.instant() - *self.checked.lock() >= Duration::from_secs(ALIVE_SECONDS as u64)
    }

    /// Reports that the node is alive, unless another one took the id. A task does so twice a minute.
    ///
    /// # Errors
    /// `Rejected` where one did; [`Claim::is_lost`] from then on. `Unavailable` where the cluster cannot be asked.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        self.row.refresh(self.identity, &self.is_lost).await
    }

    /// Ends the claim at a clean stop, so that the data directory may move to another host at once.
    ///
    /// # Errors
    /// The cluster cannot do it; the claim expires two minutes later.
    pub async fn release(self) -> Result<(), StoreError> {
        self.refresh.abort();
        match self.row.holder_unless(self.identity.node).await? {
            None => self.row.run("releasing the writer id", "alive = null", "").await,
            // Another node has it and is alive.
            Some(_) => Ok(()),
        }
    }
}

/// The row of an id.
#[derive(Debug, Clone)]
struct Row {
    session: Arc<Session>,
    options: Options,
    keyspace: String,
    writer: u16,
    /// Where this node runs.
    location: Location,
    /// When this process claims: milliseconds since the epoch; those within the second are random: two
    /// processes that claim in the same second have the same time once in a thousand.
    claimed_on: i64,
}

/// The content of a row.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Holder {
    node: Option<Uuid>,
    location: Location,
    /// When its process claimed, in milliseconds since the epoch.
    claimed_on: Option<i64>,
    is_alive: bool,
}

impl CassandraDriver {
    /// Claims a writer id, the kept one or a new one, and writes under it from then on, for the life of the node. Replaces
    /// [`Options::writer`].
    ///
    /// # Errors
    /// `Rejected` where a live node has the id, or one from a copy of this data directory: the text says which. `Unavailable` where
    /// the cluster cannot be asked.
    pub async fn claim(&mut self, kept: Option<Identity>, location: &Location) -> Result<Claim, StoreError> {
        self.verify().await?;
        let claim = claim(self.names.session.clone(), &self.options, kept, location).await?;
        self.options.writer = claim.identity.writer;
        self.points.writer = claim.identity.writer;
        Ok(claim)
    }
}

async fn claim(
    session: Arc<Session>,
    options: &Options,
    kept: Option<Identity>,
    location: &Location,
) -> Result<Claim, StoreError> {
    let keyspace = metadata_keyspace(&options.keyspace);
    let random = &options.host.random;
    let claimed_on = options.host.clock.now() * 1000 + (random.bits() % 1000) as i64;
    let row = |writer| Row {
        session: session.clone(),
        options: options.clone(),
        keyspace: keyspace.clone(),
        writer,
        location: location.clone(),
        claimed_on,
    };
    if let Some(identity) = kept {
        let row = row(identity.writer);
        if let Err(holder) = row.take(identity.node).await? {
            row.take_over(identity.node, &holder).await?;
        }
        return row.keep(identity).await;
    }
    let node = uuid::Builder::from_random_bytes(random.bits_128().to_be_bytes()).into_uuid();
    for _ in 0..TRIES {
        let writer = random.bits() as u16 % WRITERS;
        let row = row(writer);
        // An id that is this node's already: the answer of an earlier attempt was lost.
        let taken = row.take(node).await?;
        if taken.is_ok() || taken.is_err_and(|holder| holder.node == Some(node)) {
            return row.keep(Identity { writer, node }).await;
        }
    }
    Err(StoreError::Rejected(format!(
        "no writer id was free among {TRIES} of {WRITERS}; delete rows of nodes that will not come back from {keyspace}.writers"
    )))
}

impl Row {
    /// Takes an id that no node has, or returns its holder.
    async fn take(&self, node: Uuid) -> Result<Result<(), Holder>, StoreError> {
        let insert = format!(
            "INSERT INTO {}.writers (writer, node, host, data_directory, claimed_on) VALUES (?, ?, ?, ?, ?) IF NOT EXISTS",
            quoted(&self.keyspace)
        );
        let Location { host, data_directory } = &self.location;
        let writer = i32::from(self.writer);
        let values = (writer, node, host, data_directory, CqlTimestamp(self.claimed_on), writer);
        if self.applied(&insert, values).await? {
            return Ok(Ok(()));
        }
        Ok(Err(self.holder(scylla::statement::Consistency::LocalQuorum).await?))
    }

    /// The holder of the id; an empty one where there is no row.
    async fn holder(&self, consistency: scylla::statement::Consistency) -> Result<Holder, StoreError> {
        let asker =
            Asker { session: &self.session, keyspace: &self.keyspace, consistency, retry: self.options.retry() };
        let cql = format!(
            "SELECT node, host, data_directory, claimed_on, alive FROM {}.writers WHERE writer = ?",
            quoted(&self.keyspace)
        );
        // Any program may write the empty values that CQL allows for these types.
        type Columns = (
            Option<MaybeEmpty<Uuid>>,
            Option<String>,
            Option<String>,
            Option<MaybeEmpty<CqlTimestamp>>,
            Option<MaybeEmpty<bool>>,
        );
        let mut rows: Vec<Columns> = asker.rows("reading table writers", &cql, (i32::from(self.writer),)).await?;
        let Some((node, host, data_directory, claimed_on, alive)) = rows.pop() else { return Ok(Holder::default()) };
        let location = Location { host: host.unwrap_or_default(), data_directory: data_directory.unwrap_or_default() };
        let claimed_on = value(claimed_on).map(|time| time.0);
        Ok(Holder { node: value(node), location, claimed_on, is_alive: alive.is_some() })
    }

    /// Takes the id from a holder that is this node itself, or dead.
    async fn take_over(&self, node: Uuid, holder: &Holder) -> Result<(), StoreError> {
        let mut holder = holder.clone();
        for _ in 0..TAKES_OVER {
            let is_itself = holder.node == Some(node) && holder.location == self.location;
            if holder.is_alive && !is_itself {
                break;
            }
            // Only if no other node did so meanwhile, not even a copy of this data directory, which has the same node id.
            let alive = if holder.is_alive { "alive = true" } else { "alive = null" };
            let update = format!(
                "UPDATE {}.writers SET node = ?, host = ?, data_directory = ?, claimed_on = ? WHERE writer = ? \
                 IF node = ? AND claimed_on = ? AND {alive}",
                quoted(&self.keyspace)
            );
            let Location { host, data_directory } = &self.location;
            let writer = i32::from(self.writer);
            let claimed_before = holder.claimed_on.map(CqlTimestamp);
            let claimed_on = CqlTimestamp(self.claimed_on);
            let values = (node, host, data_directory, claimed_on, writer, holder.node, claimed_before, writer);
            if self.applied(&update, values).await? {
                return Ok(());
            }
            // The holder may have expired or come back meanwhile, this node itself too; and a retried transaction may have
            // found its own first attempt.
            holder = self.holder(scylla::statement::Consistency::LocalQuorum).await?;
            if self.is_of(node, &holder) {
                return Ok(());
            }
        }
        Err(rejection(self.writer, node, &holder))
    }

    /// Whether a holder is this very process.
    fn is_of(&self, node: Uuid, holder: &Holder) -> bool {
        holder.node == Some(node) && holder.location == self.location && holder.claimed_on == Some(self.claimed_on)
    }

    /// Reports that the node is alive, now and at each interval.
    async fn keep(self, identity: Identity) -> Result<Claim, StoreError> {
        self.report_alive().await?;
        let is_lost = Arc::new(AtomicBool::new(false));
        let checked = Arc::new(Mutex::new(self.options.host.clock.instant()));
        let (row, lost, just_checked) = (self.clone(), is_lost.clone(), checked.clone());
        let refresh = tokio::spawn(async move {
            loop {
                tokio::time::sleep(REFRESH).await;
                let refreshed = row.refresh(identity, &lost).await;
                *just_checked.lock() = row.options.host.clock.instant();
                match refreshed {
                    Ok(()) => {}
                    // Ingestion logs a cluster that is away.
                    Err(error @ StoreError::Unavailable(_)) => {
                        tracing::debug!(%error, writer = identity.writer, "cannot report that this writer is alive");
                    }
                    Err(error @ StoreError::Rejected(_)) => {
                        tracing::error!(%error, writer = identity.writer, "this node writes no more; stop one of the two nodes, and give it an empty data folder")
                    }
                    Err(error) => {
                        tracing::error!(%error, writer = identity.writer, "cannot read the row of this writer in the table writers; retrying")
                    }
                }
            }
        });
        Ok(Claim { identity, is_lost, checked, refresh, row: self })
    }

    async fn refresh(&self, identity: Identity, is_lost: &AtomicBool) -> Result<(), StoreError> {
        let holder = self.holder_unless(identity.node).await?;
        if let Some(holder) = holder {
            is_lost.store(true, Ordering::Relaxed);
            let Location { host, data_directory } = &holder.location;
            return Err(StoreError::Rejected(match holder.location == self.location {
                true => format!(
                    "a copy of this node, with the same path {data_directory} on a host of the same name '{host}', was started after \
                     this one and took the writer id"
                ),
                false => {
                    format!("a node on host '{host}' in {data_directory} took the writer id while this node was away")
                }
            }));
        }
        self.report_alive().await
    }

    /// The holder of the id, unless it is this process. A copy of its data directory has the same node id, and another location or
    /// another time of its claim. Without a node id, the row was deleted.
    async fn holder_unless(&self, node: Uuid) -> Result<Option<Holder>, StoreError> {
        let is_ours = |holder: &Holder| holder.node.is_none() || self.is_of(node, holder);
        if is_ours(&self.holder(self.options.consistency.meta_read).await?) {
            return Ok(None);
        }
        // One replica may still have the holder before.
        let holder = self.holder(scylla::statement::Consistency::LocalQuorum).await?;
        Ok(Some(holder).filter(|holder| !is_ours(holder)))
    }

    async fn report_alive(&self) -> Result<(), StoreError> {
        self.run("reporting that this writer is alive", "alive = true", &format!("USING TTL {ALIVE_SECONDS}")).await
    }

    async fn run(&self, what: &str, set: &str, using: &str) -> Result<(), StoreError> {
        let cql = format!("UPDATE {}.writers {using} SET {set} WHERE writer = ?", quoted(&self.keyspace));
        let mut statement = Statement::new(cql);
        statement.set_consistency(self.options.consistency.meta_write);
        statement.set_is_idempotent(true);
        let values = (i32::from(self.writer),);
        let retry = self.options.retry();
        let ran = retry.run(|| self.session.query_unpaged(statement.clone(), values));
        ran.map_ok(drop).await.map_err(|error| unavailable(what, &self.keyspace, &error))
    }

    /// Runs a lightweight transaction that takes the id and reports that the node is alive, both or neither: a copy of this
    /// data directory that starts at the same moment must not find an id of a dead node. Returns whether the condition held.
    /// A retried transaction may find its own first attempt, so callers compare the row with what they wrote. The last of
    /// `values` is the writer id.
    async fn applied(&self, take: &str, values: impl scylla::serialize::row::SerializeRow) -> Result<bool, StoreError> {
        const WHAT: &str = "claiming a writer id";
        let cql = format!(
            "BEGIN BATCH {take}; UPDATE {}.writers USING TTL {ALIVE_SECONDS} SET alive = true WHERE writer = ?; APPLY BATCH",
            quoted(&self.keyspace)
        );
        let mut statement = Statement::new(cql);
        statement.set_consistency(scylla::statement::Consistency::LocalQuorum);
        statement.set_serial_consistency(Some(scylla::statement::SerialConsistency::LocalSerial));
        let answer = self.options.retry().run(|| self.session.query_unpaged(statement.clone(), &values)).await;
        let answer = answer.map_err(|error| unavailable(WHAT, &self.keyspace, &error))?;
        let rows: Vec<scylla::value::Row> = read(WHAT, answer)?;
        let first = rows.first().and_then(|row| row.columns.first()?.as_ref()?.as_boolean());
        Ok(first.unwrap_or(false))
    }
}

fn value<T: Emptiable>(column: Option<MaybeEmpty<T>>) -> Option<T> {
    match column? {
        MaybeEmpty::Value(value) => Some(value),
        MaybeEmpty::Empty => None,
    }
}

/// Why a node cannot have an id that another live one has, and what to do.
fn rejection(writer: u16, node: Uuid, holder: &Holder) -> StoreError {
    let Holder { location: Location { host, data_directory }, .. } = holder;
    let at = format!("on host '{host}' in {data_directory}, which was alive less than {ALIVE_SECONDS} s ago");
    StoreError::Rejected(match holder.node == Some(node) {
        // A new id would not help: the journal of the copy has points that the original has, too, and sums would count them twice.
        true => format!(
            "writer id {writer} belongs to a node with a copy of this data directory, {at}; if this directory replaces that node, \
             stop that node and wait as long, then start this one as it is; otherwise start this node with an empty data directory, \
             since the journal here has points that the other node stores"
        ),
        false => format!(
            "writer id {writer} belongs to another node, {at}; stop that node and wait as long, or delete the file 'writer' in \
             this data directory, and nothing else, so that this node gets an id of its own"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_with_a_copy_is_not_advised_to_take_an_id_of_its_own_next_to_the_points_of_the_original() {
        let [copied, other] = [7, 8].map(Uuid::from_u128);
        let location = Location { host: "h".to_owned(), data_directory: "/data".to_owned() };
        let holder = Holder { node: Some(copied), location, is_alive: true, ..Holder::default() };
        let text = rejection(5, copied, &holder).to_string();
        assert!(text.contains("a copy of this data directory, on host 'h' in /data"), "{text}");
        assert!(text.contains("an empty data directory") && !text.contains("'writer'"), "{text}");
        let text = rejection(5, other, &holder).to_string();
        assert!(
            text.contains("another node, on host 'h' in /data") && text.contains("delete the file 'writer'"),
            "{text}"
        );
    }

    #[test]
    fn a_process_checks_more_often_than_it_may_be_suspended() {
        let longest = REFRESH + Duration::from_secs(60);
        assert!(longest < Duration::from_secs(ALIVE_SECONDS as u64), "a slow answer does not make the claim doubtful");
    }

    #[test]
    fn an_identity_is_read_as_written() {
        let identity = Identity { writer: 16383, node: Uuid::from_u128(7) };
        assert_eq!(identity.to_string(), "writer 16383\nnode 00000000-0000-0000-0000-000000000007\n");
        assert_eq!(identity.to_string().parse(), Ok(identity));
        for bad in
            ["", "writer 1", "writer 16384\nnode 00000000-0000-0000-0000-000000000007", "writer 1\nnode x", "a b c"]
        {
            assert_eq!(bad.parse::<Identity>(), Err(InvalidIdentity), "{bad}");
        }
    }
}
