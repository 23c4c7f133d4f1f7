//! A target, parsed.

/// An expression of the target language. Pipes are nested calls: `a | f(x)` is `f(a, x)`.
#[derive(Debug, Clone, PartialEq)]
pub enum Expression {
    /// Names to fetch: a glob without its backslash escapes.
    Path(String),
    /// Names to fetch by their tags: a whole `seriesByTag(...)` call as it was written.
    SeriesByTag(String),
    /// A function and its arguments.
    Call(Call),
    /// An expression in whose paths `$name` is replaced.
    Template(Box<Expression>, Vec<(String, Argument)>),
}

/// A function call.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The function.
    pub function: String,
    /// Arguments by position.
    pub positional: Vec<Argument>,
    /// Arguments by name, in the order given.
    pub named: Vec<(String, Argument)>,
}

/// An argument of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Argument {
    /// `true` or `false`, in any case.
    Boolean(bool),
    /// A number without fraction or exponent.
    Integer(i64),
    /// Any other number, and `inf`.
    Float(f64),
    /// `none`, in any case.
    None,
    /// The text between quotes, as it is.
    Text(String),
    /// Series.
    Expression(Expression),
}

impl Expression {
    /// The leftmost path of an expression, following first arguments. The nodes of a name that is a function call are
    /// those of this path.
    pub(crate) fn first_path(&self) -> Option<&str> {
        let mut expression = self;
        loop {
            match expression {
                Expression::Path(path) => return Some(path),
                Expression::SeriesByTag(_) | Expression::Template(..) => return None,
                Expression::Call(call) => match call.positional.first()? {
                    Argument::Expression(first) => expression = first,
                    _ => return None,
                },
            }
        }
    }
}
