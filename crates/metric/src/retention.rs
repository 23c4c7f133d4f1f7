//! A retention: the list of stages that a metric is kept in.

use std::{fmt, str::FromStr};

use crate::{Stage, StageError, Timestamp};

/// Stages from the finest to the coarsest. They keep whisper's rules.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Retention {
    // Invariant: at least one; each resolution a multiple of the one before and larger; each duration
    // longer than the one before; each stage has the points to fill one slot of the next.
    stages: Vec<Stage>,
}

/// Why a list of stages is not a retention. The rules are whisper's `validateArchiveList`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RetentionError {
    /// An empty list.
    #[error("a retention needs at least one stage")]
    Empty,
    /// The same precision twice.
    #[error("two stages have the precision {0} s; each may be there once")]
    SamePrecision(u32),
    /// A coarser precision that the finer one does not divide.
    #[error(
        "a precision of {coarse} s is not a multiple of {fine} s; every precision must be a multiple of the one before it"
    )]
    NotAMultiple {
        /// The finer precision.
        fine: u32,
        /// The coarser precision.
        coarse: u32,
    },
    /// A coarser stage that ends before the finer one.
    #[error("stage {coarse} does not keep longer than stage {fine}; a coarser stage must cover a longer time")]
    NotLonger {
        /// The finer stage.
        fine: Stage,
        /// The coarser stage.
        coarse: Stage,
    },
    /// A finer stage too short for a single slot of the next.
    #[error("stage {fine} has too few points to fill one slot of {coarse}; it needs {needed}")]
    TooFewPoints {
        /// The finer stage.
        fine: Stage,
        /// The coarser stage.
        coarse: Stage,
        /// Points that one slot of the coarser stage takes.
        needed: u32,
    },
    /// An invalid stage.
    #[error(transparent)]
    Stage(#[from] StageError),
    /// Text that is not in BigGraphite's form.
    #[error("'{0}' is not a retention; write it as 10080*60s:720*3600s")]
    Form(String),
}

impl Retention {
    /// Sorts the stages by precision and checks them.
    pub fn new(mut stages: Vec<Stage>) -> Result<Retention, RetentionError> {
        stages.sort_by_key(|stage| stage.resolution());
        if stages.is_empty() {
            return Err(RetentionError::Empty);
        }
        for pair in stages.windows(2) {
            let (fine, coarse) = (pair[0], pair[1]);
            if fine.resolution() == coarse.resolution() {
                return Err(RetentionError::SamePrecision(fine.resolution()));
            }
            if coarse.resolution() % fine.resolution() != 0 {
                return Err(RetentionError::NotAMultiple { fine: fine.resolution(), coarse: coarse.resolution() });
            }
            if coarse.duration() <= fine.duration() {
                return Err(RetentionError::NotLonger { fine, coarse });
            }
            let needed = coarse.resolution() / fine.resolution();
            if fine.points() < needed {
                return Err(RetentionError::TooFewPoints { fine, coarse, needed });
            }
        }
        Ok(Retention { stages })
    }

    /// The stages, finest first. Never empty.
    pub fn stages(&self) -> &[Stage] {
        &self.stages
    }

    /// The stage points arrive in.
    pub fn finest(&self) -> Stage {
        self.stages[0]
    }

    /// The stage that is kept longest.
    pub fn longest(&self) -> Stage {
        *self.stages.last().expect("a retention has a stage")
    }

    /// The finest stage that keeps `time` at `now`, as whisper chooses an archive: the first whose duration is at least
    /// the age. `None` when the longest does not keep it any more.
    pub fn stage_holding(&self, time: Timestamp, now: Timestamp) -> Option<usize> {
        let age = now - time;
        self.stages.iter().position(|stage| stage.duration() >= age)
    }
}

/// `10080*60s:720*3600s`, as BigGraphite keeps it in `metrics_metadata.config`.
impl fmt::Display for Retention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, stage) in self.stages.iter().enumerate() {
            if i > 0 {
                f.write_str(":")?;
            }
            write!(f, "{stage}")?;
        }
        Ok(())
    }
}

/// Reads what `Display` writes.
impl FromStr for Retention {
    type Err = RetentionError;

    fn from_str(text: &str) -> Result<Retention, RetentionError> {
        let form = || RetentionError::Form(text.to_owned());
        let mut stages = Vec::new();
        for part in text.split(':') {
            let (points, resolution) = part.split_once('*').ok_or_else(form)?;
            let resolution = resolution.strip_suffix('s').ok_or_else(form)?;
            let points = points.parse().map_err(|_| form())?;
            let resolution = resolution.parse().map_err(|_| form())?;
            stages.push(Stage::new(resolution, points)?);
        }
        Retention::new(stages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn biggraphites_text_is_read_and_written() {
        let text = "11520*60s:720*3600s:730*86400s";
        assert_eq!(text.parse::<Retention>().unwrap().to_string(), text);
        assert!("11520*60".parse::<Retention>().is_err());
        assert!("".parse::<Retention>().is_err());
    }

    #[test]
    fn whispers_rules_hold() {
        let check = |text: &str| text.parse::<Retention>().unwrap_err();
        assert_eq!(check("10*60s:20*60s"), RetentionError::SamePrecision(60));
        assert_eq!(check("10*60s:20*90s"), RetentionError::NotAMultiple { fine: 60, coarse: 90 });
        assert!(matches!(check("60*60s:1*3600s"), RetentionError::NotLonger { .. }));
        assert!(matches!(check("10*60s:20*3600s"), RetentionError::TooFewPoints { needed: 60, .. }));
    }

    #[test]
    fn the_finest_stage_that_holds_a_time_is_chosen() {
        let retention: Retention = "60*60s:48*3600s".parse().unwrap();
        let now = 1_000_000;
        assert_eq!(retention.stage_holding(now - 3600, now), Some(0));
        assert_eq!(retention.stage_holding(now - 3601, now), Some(1));
        assert_eq!(retention.stage_holding(now - 48 * 3600 - 1, now), None);
        assert_eq!(retention.stage_holding(now + 50, now), Some(0));
    }
}
