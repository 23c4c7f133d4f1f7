//! What can be wrong with a request, said to the person who made it.

/// A target that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// No expression begins where one was expected.
    #[error("no metric name or function call at character {at} of '{target}'")]
    Nothing {
        /// Bytes from the start of the target.
        at: usize,
        /// The target, shortened.
        target: String,
    },
    /// The target is longer than we read.
    #[error("a target of {bytes} bytes is too long; at most {most} are read")]
    Long {
        /// Its length.
        bytes: usize,
        /// The bound.
        most: usize,
    },
    /// Calls are nested deeper than we follow, or so that reading them would take forever.
    #[error("the target is nested too deeply or too intricately; at most {most} levels are read")]
    Deep {
        /// The bound.
        most: usize,
    },
}

/// Why a request cannot be planned or evaluated. Except for the last, it asks for a change of the request.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// The target cannot be read.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// A function that does not exist.
    #[error("Received request for unknown function: {name}{}", suggestion(.nearest))]
    UnknownFunction {
        /// As it was written.
        name: String,
        /// The known name that is most like it.
        nearest: Option<&'static str>,
    },
    /// `template()` around what it cannot take.
    #[error("invalid template() syntax, only string/numeric arguments are allowed")]
    Template,
    /// Values of `template()` that make paths too long.
    #[error("template() makes paths of more than {most} bytes; shorten its values")]
    Filled {
        /// The bound.
        most: usize,
    },
    /// An argument is missing, superfluous or of the wrong kind.
    #[error("{function}: {parameter} {problem}")]
    Argument {
        /// The function, as the request calls it.
        function: &'static str,
        /// The parameter, by its documented name.
        parameter: String,
        /// What was given and what would do.
        problem: String,
    },
    /// The arguments are well formed, and the function refuses them or what they stand for.
    #[error("{function}: {problem}")]
    Refused {
        /// The function, as the request calls it.
        function: &'static str,
        /// What it refuses and why.
        problem: String,
    },
    /// Evaluation would produce more points than the budget has.
    #[error("the request needs more than {points} points; ask for fewer series or a shorter time")]
    Budget {
        /// What the budget had.
        points: usize,
    },
    /// Functions that move time inside of each other multiply what must be fetched.
    #[error("the request needs more than {most} fetches; functions that move time multiply inside of each other")]
    Fetches {
        /// The bound.
        most: usize,
    },
    /// The caller no longer wants the answer.
    #[error("the request was cancelled")]
    Cancelled,
}

impl Error {
    /// The status with which graphite-web 1.1.10 answers the same mistake. It answers 400 to what it
    /// checks and 500 to what it trips over; we answer 400 to both.
    pub fn graphite_web_status(&self) -> u16 {
        match self {
            Error::UnknownFunction { .. } | Error::Template | Error::Refused { .. } => 400,
            Error::Parse(_)
            | Error::Filled { .. }
            | Error::Argument { .. }
            | Error::Budget { .. }
            | Error::Fetches { .. }
            | Error::Cancelled => 500,
        }
    }
}

fn suggestion(nearest: &Option<&'static str>) -> String {
    nearest.map_or(String::new(), |name| format!(" (did you mean {name}?)"))
}
