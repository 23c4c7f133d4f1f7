//! Bits that flip in the files of a machine without a process.

use host::{Random as _, SeededRandom};

use crate::{Fidelity, Machine, Run, Step, StoreKind, check::Losses, workload, workload::points};

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
    /// Runs the workload, ends the process, flips the bit, and goes on. Returns the file and the cost.
    ///
    /// # Errors
    /// What is wrong, in one sentence.
    pub fn run(self) -> Result<(String, Cost), String> {
        let random = SeededRandom::new(self.seed);
        let mut run = Run::new(Machine::new(StoreKind::Embedded, 1));
        run.perform(&workload())?;
        if self.is_killed {
            run.kill()
        } else {
            run.stop()?
        }
        let files: Vec<_> = run.machine.disk.files(&run.machine.data).into_iter().filter(|(_, len)| 0 < *len).collect();
        let (path, len) = &files[random.index(files.len())];
        let (byte, bit) = (random.index(*len as usize), random.below(8));
        // What is on the disk of a killed process may be shorter.
        let flip = |contents: &mut Vec<u8>| contents.get_mut(byte).into_iter().for_each(|byte| *byte ^= 1 << bit);
        run.machine.disk.rot(path, flip).map_err(|error| error.to_string())?;
        let place = format!("{} byte {byte} of {len} bit {bit}", path.display());
        if let Err(refused) = run.start() {
            return Ok((place, Cost::Refused(refused)));
        }
        let wrong = |error: String| format!("{place}: {error}");
        let losses = run.check(Fidelity::Damaged).map_err(wrong)?;
        let findings = run.damage().len();
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
