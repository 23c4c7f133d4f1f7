//! Values as lines: the points of a line, its gaps, and its part inside the plot.

use crate::{options::LineMode, scene::Step};

/// A position in the picture, pixels.
pub(crate) type Point = (f32, f32);

/// How the values of one series become points.
pub(crate) struct Tracer<'a> {
    pub mode: LineMode,
    /// Unknown values that a connected line may bridge.
    pub connected_limit: f64,
    /// The horizontal position of value number `i`: `x + i * step`.
    pub x: f64,
    pub step: f64,
    /// The vertical position of a value in the picture; NaN for one that cannot be shown.
    pub y: &'a dyn Fn(f64) -> f64,
}

/// Pixels far outside of every picture, where numbers of 32 bits lose their precision.
const FAR: f64 = 100_000.0;

impl Tracer<'_> {
    /// The line through values, in pieces without a gap. A value between two gaps is a piece as long as it is wide.
    pub fn lines(&self, values: &[f64], width: f32) -> Vec<Vec<Point>> {
        let mut lines: Vec<Vec<Point>> = Vec::new();
        let mut line: Vec<Point> = Vec::with_capacity(values.len());
        let mut missing = 0usize;
        for (index, &value) in values.iter().enumerate() {
            let y = if value.is_nan() { f64::NAN } else { (self.y)(value) };
            if y.is_nan() {
                missing += 1;
                continue;
            }
            let bridges = self.mode == LineMode::Connected && missing as f64 <= self.connected_limit;
            if missing > 0 && !bridges && !line.is_empty() {
                lines.push(std::mem::take(&mut line));
            }
            missing = 0;
            let (x, y) = ((self.x + index as f64 * self.step) as f32, y.clamp(-FAR, FAR) as f32);
            line.push((x, y));
            if self.mode == LineMode::Staircase {
                line.push(((self.x + (index + 1) as f64 * self.step) as f32, y));
            }
        }
        if !line.is_empty() {
            lines.push(line);
        }
        for line in &mut lines {
            if let [(x, y)] = line[..] {
                let reach = width.max(1.5) / 2.0;
                *line = vec![(x - reach, y), (x + reach, y)];
            }
        }
        lines
    }
}

/// The part of a line between two heights of the picture.
pub(crate) fn clipped(line: &[Point], top: f32, bottom: f32) -> Vec<Vec<Point>> {
    let inside = |(_, y): &Point| top <= *y && *y <= bottom;
    if line.iter().all(inside) {
        return vec![line.to_vec()];
    }
    let mut lines: Vec<Vec<Point>> = Vec::new();
    let mut current: Vec<Point> = Vec::new();
    for pair in line.windows(2) {
        let (&[a, b], true) = (pair, pair.len() == 2) else { continue };
        let Some((from, to)) = clipped_segment(a, b, top, bottom) else { continue };
        if current.last() != Some(&from) {
            if current.len() > 1 {
                lines.push(std::mem::take(&mut current));
            }
            current = vec![from];
        }
        current.push(to);
    }
    if current.len() > 1 {
        lines.push(current);
    }
    lines
}

fn clipped_segment(a: Point, b: Point, top: f32, bottom: f32) -> Option<(Point, Point)> {
    if a.1.max(b.1) < top || bottom < a.1.min(b.1) {
        return None;
    }
    let at = |y: f32| (a.0 + (b.0 - a.0) * ((y - a.1) / (b.1 - a.1)), y);
    let end = |point: Point| {
        if point.1 < top {
            at(top)
        } else if bottom < point.1 {
            at(bottom)
        } else {
            point
        }
    };
    Some((end(a), end(b)))
}

/// The steps of a path along lines.
pub(crate) fn path(lines: &[Vec<Point>]) -> Vec<Step> {
    let mut steps = Vec::with_capacity(lines.iter().map(Vec::len).sum());
    for line in lines {
        for (index, &(x, y)) in line.iter().enumerate() {
            steps.push(if index == 0 { Step::Move(x, y) } else { Step::Line(x, y) });
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(values: &[f64], mode: LineMode, connected_limit: f64) -> Vec<Vec<Point>> {
        Tracer { mode, connected_limit, x: 0.0, step: 10.0, y: &|value| value }.lines(values, 2.0)
    }

    const GAPS: [f64; 6] = [1.0, 2.0, f64::NAN, f64::NAN, 3.0, 4.0];

    #[test]
    fn a_gap_breaks_a_line_unless_it_is_bridged() {
        let (head, tail) = (vec![(0.0, 1.0), (10.0, 2.0)], vec![(40.0, 3.0), (50.0, 4.0)]);
        assert_eq!(lines(&GAPS, LineMode::Slope, 9.0), [head.clone(), tail.clone()]);
        assert_eq!(lines(&GAPS, LineMode::Connected, 1.0), [head.clone(), tail.clone()]);
        assert_eq!(lines(&GAPS, LineMode::Connected, 2.0), [[head, tail].concat()]);
        assert_eq!(lines(&GAPS[3..5], LineMode::Staircase, 0.0), [[(10.0, 3.0), (20.0, 3.0)]]);
    }

    #[test]
    fn a_value_between_gaps_is_seen() {
        assert_eq!(lines(&[f64::NAN, 5.0, f64::NAN], LineMode::Slope, 0.0), [[(9.0, 5.0), (11.0, 5.0)]]);
    }

    #[test]
    fn what_leaves_the_plot_is_cut_where_it_leaves() {
        let line = [(0.0, 5.0), (10.0, 15.0), (20.0, 5.0), (30.0, 25.0), (40.0, 20.0)];
        let expected = [vec![(0.0, 5.0), (5.0, 10.0)], vec![(15.0, 10.0), (20.0, 5.0), (22.5, 10.0)]];
        assert_eq!(clipped(&line, 0.0, 10.0), expected);
        assert_eq!(clipped(&[(0.0, -5.0), (10.0, 15.0)], 0.0, 10.0), [[(2.5, 0.0), (7.5, 10.0)]]);
        assert_eq!(clipped(&[(0.0, 50.0), (10.0, 51.0)], 0.0, 10.0), Vec::<Vec<Point>>::new());
    }
}
