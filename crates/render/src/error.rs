//! The errors of a request, worded for the user who sent it.

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
    /// The target is too long.
    #[error("a target of {bytes} bytes is too long; at most {most} are read")]
    Long {
        /// Its length.
        bytes: usize,
        /// The bound.
        most: usize,
    },
    /// Calls are nested too deeply, or so that reading them would take forever.
    #[error("the target is nested too deeply or too intricately; at most {most} levels are read")]
    Deep {
        /// The bound.
        most: usize,
    },
}

/// A request that cannot be planned or evaluated. All but the last ask for a change of the request.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// The target cannot be read.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// A function that does not exist.
    #[error("Received request for unknown function: {name}{}", suggestion(.nearest))]
    UnknownFunction {
        /// The name in the request.
        name: String,
        /// The function with the nearest name.
        nearest: Option<&'static str>,
    },
    /// `template()` around arguments that it does not take.
    #[error("invalid template() syntax, only string/numeric arguments are allowed")]
    Template,
    /// Values of `template()` that make paths too long.
    #[error("template() makes paths of more than {most} bytes; shorten its values")]
    Filled {
        /// The bound.
        most: usize,
    },
    /// More values of `template()` than anyone has variables.
    #[error("template() has more than {most} values")]
    TemplateValues {
        /// The bound.
        most: usize,
    },
    /// An argument is missing, superfluous or of the wrong kind.
    #[error("{function}: {parameter} {problem}")]
    Argument {
        /// The function, by the name in the request.
        function: &'static str,
        /// The parameter, by its documented name.
        parameter: String,
        /// What was given, and what is valid.
        problem: String,
    },
    /// The arguments are well formed, and the function rejects them or their series.
    #[error("{function}: {problem}")]
    Rejected {
        /// The function, by the name in the request.
        function: &'static str,
        /// What it rejects and why.
        problem: String,
    },
    /// Evaluation would produce more points than the budget has.
    #[error("the request needs more than {points} points; ask for fewer series or a shorter time")]
    Budget {
        /// The points of the budget.
        points: usize,
    },
    /// The memory for queries is spent. The caller knows the bound.
    #[error("the request needs more memory than there is for queries")]
    Memory,
    /// Functions that move time, inside of each other, need too many fetches.
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
    /// The status with which graphite-web 1.1.10 answers the same mistake: 400 where it checks, 500 where it fails. We
    /// answer 400 to both.
    pub fn graphite_web_status(&self) -> u16 {
        match self {
            Error::UnknownFunction { .. } | Error::Template | Error::Rejected { .. } => 400,
            Error::Parse(_)
            | Error::Filled { .. }
            | Error::TemplateValues { .. }
            | Error::Argument { .. }
            | Error::Budget { .. }
            | Error::Memory
            | Error::Fetches { .. }
            | Error::Cancelled => 500,
        }
    }
}

fn suggestion(nearest: &Option<&'static str>) -> String {
    nearest.map_or(String::new(), |name| format!(" (did you mean {name}?)"))
}
