//! The errors of drawing, worded for the user who asked for the picture.

/// A picture that cannot be drawn.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// A parameter, or an argument of a function, that cannot be drawn.
    #[error("{param} must be {expected}, got '{given}'")]
    Option {
        /// Its name.
        param: &'static str,
        /// What was given.
        given: String,
        /// What is valid.
        expected: String,
    },
    /// An unknown `graphType`, in graphite-web's words.
    #[error("Invalid graphType '{0}', must be one of ['line', 'pie']")]
    GraphType(String),
    /// A picture of more pixels than allowed.
    #[error("an image of {width} x {height} pixels is too large; at most {limit} pixels are drawn")]
    TooLarge {
        /// Pixels across.
        width: u32,
        /// Pixels down.
        height: u32,
        /// The pixels allowed.
        limit: u32,
    },
    /// A value axis whose two limits are in the wrong order.
    #[error("a value axis cannot go from {min} to {max}: its minimum must be less than its maximum and its limit")]
    Axis {
        /// Its lower limit.
        min: f64,
        /// Its upper limit.
        max: f64,
    },
    /// A picture of more bytes than allowed.
    #[error("the image has more than {limit} bytes")]
    TooLong {
        /// The bytes allowed.
        limit: usize,
    },
    /// The caller asked to stop.
    #[error("the drawing was stopped")]
    Stopped,
}

impl Error {
    pub(crate) fn option(param: &'static str, given: &str, expected: &str) -> Error {
        // A message that quotes a megabyte helps no reader.
        let short: String = given.chars().take(100).collect();
        let given = if short.len() < given.len() { format!("{short}…") } else { short };
        Error::Option { param, given, expected: expected.to_owned() }
    }
}
