//! How to draw a series. Numbers and names never depend on it.

/// The options that functions of the group *Graph* set for a series. Any value is fine; the graph checks them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GraphOptions {
    /// `color()`: a name or hexadecimal digits, as the user gave them.
    pub color: Option<String>,
    /// `alpha()`: how opaque, 0 to 1.
    pub alpha: Option<f64>,
    /// `lineWidth()`: pixels.
    pub line_width: Option<f64>,
    /// `dashed()`: pixels of a dash, and of the gap after it.
    pub dashed: Option<f64>,
    /// `secondYAxis()`.
    pub second_axis: bool,
    /// `stacked()` and `areaBetween()`: filled down to zero, or to the series of this kind before it. The values are
    /// sums already.
    pub stacked: bool,
    /// `drawAsInfinite()`, `verticalLine()`: a line from bottom to top wherever the value is above zero.
    pub infinite: bool,
    /// The lower bound of `areaBetween()`: it takes its room and shows nothing.
    pub invisible: bool,
}

/// The options of a series that has none.
pub(crate) const NO_OPTIONS: GraphOptions = GraphOptions {
    color: None,
    alpha: None,
    line_width: None,
    dashed: None,
    second_axis: false,
    stacked: false,
    infinite: false,
    invisible: false,
};
