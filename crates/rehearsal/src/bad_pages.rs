//! Pages that a disk does not return for a time, and what may be missing meanwhile.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    io::ErrorKind,
    path::{Path, PathBuf},
    time::Duration,
};

use carbon::Rules;
use host::{Disk as _, Now};
use ingest::wal::{self, Record};
use metric::{MetricId, Policy, Timestamp};
use store::Damage;

use crate::{
    Fidelity, Floor, Machine, Model, Step, backups, check,
    machine::Life,
    node::Node,
    sending,
    step::{BadPages, FileKind},
};

/// What the name of a kept file has before the first and the last time of points whose slots had expired.
const EXPIRED: &str = "-expired-";

/// What the name of a kept file has whose points have slots with other values.
const OLDER: &str = "-older";

/// What a finding says that a segment of the journal was not read whole.
const UNREAD_SEGMENT: &str = "journal segment";

/// How long a flush or a change of rules is waited for while pages cannot be read.
const PATIENCE: Duration = Duration::from_secs(3);

/// Attempts to put points back once they can be read, one a second.
const ATTEMPTS: usize = 60;

/// Has reads of these pages fail.
pub(crate) fn spoil(machine: &Machine, parts: &[BadPages]) {
    let all = [&*machine.data, Path::new(backups::FOLDER)].map(|folder| machine.disk.files(folder));
    let files: Vec<(PathBuf, u64)> = all.into_iter().flatten().filter(|(_, len)| 0 < *len).collect();
    for part in parts {
        let of_kind: Vec<&(PathBuf, u64)> = files.iter().filter(|(path, _)| is_of(part.kind, path)).collect();
        if of_kind.is_empty() {
            continue;
        }
        let (path, len) = of_kind[(part.file % of_kind.len() as u64) as usize];
        let first = part.first % len.div_ceil(part.page);
        let bytes = first * part.page..(first + part.pages) * part.page;
        match machine.disk.spoil(path, bytes, part.times) {
            // A merge has ended since, and removed it.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            spoiled => spoiled.expect("it is a file"),
        }
    }
}

/// Where files of rows are that went from their places.
const AWAY: &str = "/away";

/// Takes a file of rows from its place. Returns that, and where it is.
pub(crate) fn take_rows(machine: &Machine, number: u64) -> Option<(PathBuf, PathBuf)> {
    let files = machine.disk.files(&machine.data.join("store"));
    let mut rows: Vec<PathBuf> = files.into_iter().map(|(path, _)| path).collect();
    rows.retain(|path| is_of(FileKind::Rows, path));
    let path = rows.get((number % rows.len().max(1) as u64) as usize)?.clone();
    let aside = Path::new(AWAY).join(format!("{number}.rows"));
    // A merge may have removed it.
    machine.disk.take(&path, &aside).ok().map(|()| (path, aside))
}

/// Puts a file back, unless its window has expired.
pub(crate) fn return_rows(machine: &Machine, (path, aside): (PathBuf, PathBuf)) {
    if path.parent().is_some_and(|folder| machine.disk.exists(folder)) {
        machine.disk.take(&aside, &path).expect("no other file has its name");
    }
}

fn is_of(kind: FileKind, path: &Path) -> bool {
    let is_in = |folder: &str| path.parent().is_some_and(|parent| parent.ends_with(folder));
    let is_of_backup = path.starts_with(backups::FOLDER);
    if is_of_backup || kind == FileKind::Backup {
        return is_of_backup && kind == FileKind::Backup;
    }
    match kind {
        FileKind::Rows => path.extension().is_some_and(|extension| extension == "rows"),
        FileKind::Names => is_in("store/names"),
        FileKind::Events => is_in("store/events"),
        FileKind::Journal => is_in("journal"),
        FileKind::Manifest => path.ends_with("store/manifest"),
        FileKind::Spec => path.ends_with("store/spec"),
        FileKind::Clock => path.ends_with("clock"),
        FileKind::Any | FileKind::Backup => true,
    }
}

/// Whether a step is done while pages cannot be read. Rules stay while points wait to be read back.
pub(crate) fn may_do(step: &Step, life: Option<&Life>) -> bool {
    match step {
        Step::StartWithFaults(..) => false,
        Step::Rules(_) => life.is_some_and(|life| parked(&life.node) == 0),
        _ => true,
    }
}

fn parked(node: &Node) -> u64 {
    node.ingest.flush_progress().parked_points
}

/// Whether a start went on without pages of the journal, perhaps of segments that it could read before its end. `known` has the
/// kept files of earlier starts, whose points were put back.
pub(crate) fn has_missed(life: &Life, known: &mut BTreeSet<String>) -> bool {
    let is_missed = |damage: Damage| {
        let Some(kept) = damage.moved_to else { return true };
        let put_back = [OLDER, EXPIRED].iter().filter_map(|part| kept.split_once(part)).map(|(segment, _)| segment);
        let segment = put_back.min_by_key(|segment| segment.len());
        known.insert(segment.unwrap_or(&kept).to_owned()) || segment.is_none()
    };
    let unread = life.node.damage.examples().into_iter().filter(|damage| damage.what == UNREAD_SEGMENT);
    unread.map(is_missed).fold(false, |any, is_missed| any | is_missed)
}

/// Learns which slots had expired when their points could be read, by the files that findings of the node name.
pub(crate) fn learn_of_expired(life: &Life, machine: &Machine, model: &mut Model) {
    model.metrics.values_mut().for_each(|metric| metric.left_out.clear());
    for kept in life.node.damage.examples().into_iter().filter_map(|damage| damage.moved_to) {
        let Some((_, times)) = kept.split_once(EXPIRED) else { continue };
        let mut times = times.split(['-', '~']).map(|time| time.parse::<Timestamp>().expect("it is a time"));
        let (first, last) = (times.next().expect("the first time"), times.next().expect("the last time"));
        let bytes = contents(machine, &kept);
        let mut names: BTreeMap<MetricId, String> = BTreeMap::new();
        let mut policies: BTreeMap<u16, Policy> = BTreeMap::new();
        let mut policy_of: BTreeMap<MetricId, u16> = BTreeMap::new();
        for (_, record) in wal::records(&bytes) {
            match record {
                Record::Policy { id, policy } => _ = policies.insert(id, policy),
                Record::Metrics { metrics, .. } => {
                    for (id, policy, name) in metrics {
                        names.insert(id, name.to_owned());
                        policy_of.insert(id, policy);
                    }
                }
                Record::Points { now, points } => {
                    for point in points.filter(|point| (first..=last).contains(&i64::from(point.time))) {
                        let registered = || life.node.registry.read().name(point.metric).to_owned();
                        let name = names.entry(point.metric).or_insert_with(registered);
                        let Some(metric) = model.metrics.get_mut(name) else { continue };
                        let came_under = policy_of.get(&point.metric).and_then(|id| policies.get(id));
                        let slot = slot_of(came_under.unwrap_or(&metric.policy), point.time.into(), now);
                        metric.left_out.extend(slot);
                    }
                }
                Record::Segment { .. } => {}
            }
        }
    }
}

/// The stage and slot that a point went to which a node accepted by this time.
fn slot_of(policy: &Policy, time: Timestamp, now: Now) -> Option<(usize, Timestamp)> {
    let stage = policy.retention.stage_holding(time, now.low())?;
    Some((stage, time - time.rem_euclid(i64::from(policy.retention.stages()[stage].resolution()))))
}

/// The bytes of a file of the data folder, without a call that counts.
fn contents(machine: &Machine, file: &str) -> Vec<u8> {
    let bytes = RefCell::new(None);
    let read =
        machine.disk.rot(&machine.data.join(file), |live| _ = bytes.borrow_mut().get_or_insert_with(|| live.clone()));
    read.expect("a finding names a file that is there");
    bytes.into_inner().unwrap_or_default()
}

/// Writes points out, for as long as that may take. Returns whether all are stored.
pub(crate) async fn flush(node: &Node) -> bool {
    matches!(tokio::time::timeout(PATIENCE, node.ingest.flush_patiently(PATIENCE)).await, Ok(Ok(())))
}

/// Waits for the rules, which may wait for what cannot be read. Returns whether they are in force.
pub(crate) async fn until_in_force(life: &Life, rules: &Rules) -> bool {
    tokio::time::timeout(PATIENCE, sending::until_in_force(life, rules, false)).await.is_ok()
}

/// Puts back what can be read again, which a node does each minute.
pub(crate) async fn put_back(life: &Life) -> Result<(), String> {
    let mut failed = None;
    for _ in 0..ATTEMPTS {
        match life.node.ingest.put_back().await {
            Ok(_) => return Ok(()),
            Err(error) => failed = Some(error),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Err(format!("points are not put back: {failed:?}"))
}

/// What is served while pages cannot be read. Answers may be refused, or lack what was stored, with a report; every value was
/// sent to its metric and time, and no deleted metric is there.
pub(crate) fn check(life: &Life, model: &Model, ahead: i64) -> Result<(), String> {
    loop {
        let node = &life.node;
        let (mended, was_parked) = (node.damage.mended(), 0 < parked(node));
        let Some(missing) = missing(life, model, ahead)? else { return Ok(()) };
        if !node.damage.examples().is_empty() || 0 < parked(node) {
            return Ok(());
        }
        // What the report said was over before the query ended, in another thread. The next answer is whole.
        if !was_parked && mended == node.damage.mended() {
            return Err(format!("while pages cannot be read: {missing} are missing, and nothing is reported"));
        }
    }
}

/// What an answer lacks. `None` where that is nothing, or where it is refused.
fn missing(life: &Life, model: &Model, ahead: i64) -> Result<Option<String>, String> {
    let mut seen = model.clone();
    let losses = match check::check(life, &mut seen, Fidelity::Damaged, ahead) {
        Err(error) if error.starts_with("a query fails") || error.starts_with("events cannot be read") => {
            return Ok(None);
        }
        losses => losses.map_err(|error| format!("while pages cannot be read: {error}"))?,
    };
    let is_lost = |name: &&String| !seen.metrics.contains_key(*name) && model.metrics[*name].is_certain(Floor::Durable);
    let lost: Vec<&String> = model.metrics.keys().filter(is_lost).collect();
    let is_whole = losses.places.is_empty() && lost.is_empty();
    Ok((!is_whole).then(|| format!("{lost:?} and {:?}", losses.places)))
}
