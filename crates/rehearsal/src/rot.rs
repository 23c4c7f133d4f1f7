//! Bits that flip in the files of a machine without a process.

use std::collections::BTreeSet;

use host::{Random as _, SeededRandom};
use store::Damage;
use store_embedded::{DamagedPart, FileReport, check_file};

use crate::{Fidelity, Losses, LostSlot, Machine, Run, Step, StoreKind, workload, workload::points};

/// What a flipped bit cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cost {
    /// The node served everything but this, and reported as many findings.
    Lost(Losses, usize),
    /// The node refused to start, with this message.
    Refused(String),
}

/// One bit of one file that flips, chosen by a seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flip {
    /// Chooses file and bit.
    pub seed: u64,
    /// Whether the process was killed, rather than stopped.
    pub is_killed: bool,
}

impl Flip {
    /// Runs the workload, ends the process, flips the bit, and goes on. Returns the place and the cost.
    ///
    /// # Errors
    /// What is wrong, in one sentence.
    pub fn run(self) -> Result<(String, Cost), String> {
        self.run_in("")
    }

    /// As [`Flip::run`], in one of the files whose paths end so.
    ///
    /// # Errors
    /// What is wrong, in one sentence.
    pub fn run_in(self, file: &str) -> Result<(String, Cost), String> {
        let random = SeededRandom::new(self.seed);
        let mut run = Run::new(Machine::new(StoreKind::Embedded, 1));
        run.perform(&workload())?;
        if self.is_killed {
            run.kill()
        } else {
            run.stop()?
        }
        let files: Vec<_> = run.machine.disk.files(&run.machine.data).into_iter().filter(|(_, len)| 0 < *len).collect();
        let files: Vec<_> = files.into_iter().filter(|(path, _)| path.to_string_lossy().ends_with(file)).collect();
        let (path, len) = &files[random.index(files.len())];
        let (byte, bit) = (random.index(*len as usize), random.below(8));
        // What is on the disk of a killed process may be shorter.
        let disk = run.machine.disk.clone();
        let before = check_file(&disk, path).ok();
        let flip = |contents: &mut Vec<u8>| contents.get_mut(byte).into_iter().for_each(|byte| *byte ^= 1 << bit);
        run.machine.disk.rot(path, flip).map_err(|error| error.to_string())?;
        let after = check_file(&disk, path).ok();
        let place = format!("{} byte {byte} of {len} bit {bit}", path.display());
        if let Err(refused) = run.start() {
            return Ok((place, Cost::Refused(refused)));
        }
        let wrong = |error: String| format!("{place}: {error}");
        let losses = run.check(Fidelity::Damaged).map_err(wrong)?;
        let findings = run.damage().len();
        compare(&run, &losses, self.is_killed, before.as_ref().zip(after.as_ref())).map_err(wrong)?;
        if losses != Losses::default() && findings == 0 {
            return Err(wrong(format!("{losses:?} and no damage is reported")));
        }
        // It receives, flushes and serves everything else.
        run.perform(&[Step::Send(vec![points(&random, 0, 20, 3)]), Step::Flush]).map_err(wrong)?;
        run.check(Fidelity::Damaged).map_err(wrong)?;
        run.stop().map_err(wrong)?;
        run.check(Fidelity::Damaged).map_err(wrong)?;
        Ok((place, Cost::Lost(losses, findings)))
    }
}

/// Bytes that a point, a name or an event has at least in a log.
const LEAST_BYTES: u64 = 8;

/// Slots of other stages that a point counts in.
const COARSE_STAGES: u64 = 2;

/// Whether a flipped bit cost at most the rows of its block, in a file of rows, or what the bytes had that are reported, in a
/// log. Of the stage itself no more slots are lost than the block had values. In a killed node, coarser slots over the rows of the block are
/// null as well where points wait in memory to be added to them, also where the block had nothing of theirs.
fn compare(
    run: &Run,
    losses: &Losses,
    is_killed: bool,
    rows: Option<(&FileReport, &FileReport)>,
) -> Result<(), String> {
    let Some((before, after)) = rows else { return compare_log(run, losses) };
    let in_block = before.points - after.points.min(before.points);
    let outside: Vec<&LostSlot> =
        losses.places.iter().filter(|lost| !after.damaged.iter().any(|part| is_of(run, lost, part, after))).collect();
    let own = losses.places.iter().filter(|lost| lost.step == after.table.stage.resolution()).count() as u64;
    let is_own_bounded = is_killed && after.table.aggregated || own <= in_block;
    let is_bounded = is_own_bounded && (is_killed || losses.places.len() as u64 <= (1 + COARSE_STAGES) * in_block);
    if outside.is_empty() && is_bounded && losses.metrics + losses.events == 0 {
        return Ok(());
    }
    let Losses { slots, coarse, metrics, events, .. } = losses;
    Err(format!(
        "costs {slots} slots, {coarse} coarse ones, {metrics} metrics, {events} events; the block had {in_block} values; not of it: \
         {outside:?}; {:?}",
        after.damaged
    ))
}

fn compare_log(run: &Run, losses: &Losses) -> Result<(), String> {
    let bytes: u64 = run.damage().iter().map(|Damage { bytes, .. }| bytes).sum();
    let most = bytes / LEAST_BYTES;
    // With the record of a name go its stored points.
    let names: BTreeSet<&str> = losses.places.iter().map(|lost| &*lost.name).collect();
    let of_points = losses.slots <= most && losses.coarse <= COARSE_STAGES * most;
    let of_names = names.len() as u64 + losses.metrics <= most;
    if (of_points || of_names) && losses.events <= most {
        Ok(())
    } else {
        Err(format!("costs {losses:?}, and {bytes} bytes are reported"))
    }
}

/// Whether a slot is in rows of a damaged block, or over some.
fn is_of(run: &Run, lost: &LostSlot, part: &DamagedPart, file: &FileReport) -> bool {
    let id = run.id_of(&lost.name);
    let is_metric = part.metrics.zip(id).is_some_and(|((first, last), id)| first <= id && id <= last);
    let end = lost.slot + i64::from(lost.step);
    let is_time = part.span.is_some_and(|(from, until)| from < end && lost.slot < until);
    is_metric && is_time && file.table.stage.resolution() <= lost.step
}
