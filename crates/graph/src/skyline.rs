//! Areas: each is filled from its line down to zero, or to the areas that came before it.
//!
//! The outline of everything filled so far is kept as straight pieces from left to right. Where a new line
//! is higher, the band between is its area, and the line becomes the outline. Below zero everything is upside down.

use crate::{scene::Step, trace::Point};

/// The filled area on one side of zero.
pub(crate) struct Skyline {
    // Invariant: without gaps, ascending.
    pieces: Vec<Piece>,
}

/// A straight piece, by the heights above zero of its ends, pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Piece {
    from: f32,
    until: f32,
    first: f32,
    last: f32,
}

/// An area without a gap: heights of its upper and its lower edge, both from left to right.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Band {
    upper: Vec<Point>,
    lower: Vec<Point>,
}

/// Pixels that are too narrow to be visible.
const NARROW: f32 = 1e-3;

impl Piece {
    fn height(&self, x: f32) -> f32 {
        let share = (x - self.from) / (self.until - self.from);
        self.first + (self.last - self.first) * share.clamp(0.0, 1.0)
    }

    fn part(&self, from: f32, until: f32) -> Piece {
        Piece { from, until, first: self.height(from), last: self.height(until) }
    }
}

impl Skyline {
    /// Nothing filled, from `left` to `right`.
    pub fn flat(left: f32, right: f32) -> Skyline {
        Skyline { pieces: vec![Piece { from: left, until: right, first: 0.0, last: 0.0 }] }
    }

    /// Fills below lines, whose points are given by their height above zero, and returns the filled bands.
    pub fn cover(&mut self, lines: &[Vec<Point>]) -> Vec<Band> {
        let over: Vec<Piece> = lines.iter().flat_map(|line| pieces(line)).collect();
        let mut outline: Vec<Piece> = Vec::with_capacity(self.pieces.len() + over.len());
        let mut bands: Vec<Band> = Vec::new();
        let mut next = 0;
        for floor in &self.pieces {
            let mut x = floor.from;
            while floor.until - x > NARROW {
                while over.get(next).is_some_and(|line| line.until - x <= NARROW) {
                    next += 1;
                }
                let Some(line) = over.get(next).filter(|line| line.from < floor.until - NARROW) else {
                    outline.push(floor.part(x, floor.until));
                    break;
                };
                if x + NARROW < line.from {
                    outline.push(floor.part(x, line.from));
                    x = line.from;
                }
                let until = line.until.min(floor.until);
                lay(line.part(x, until), floor.part(x, until), &mut outline, &mut bands);
                x = until;
            }
        }
        self.pieces = outline;
        bands
    }
}

/// Compares a piece of a line with a piece of the outline of the same length.
fn lay(line: Piece, floor: Piece, outline: &mut Vec<Piece>, bands: &mut Vec<Band>) {
    let (first, last) = (line.first - floor.first, line.last - floor.last);
    if first <= 0.0 && last <= 0.0 {
        outline.push(floor);
    } else if first >= 0.0 && last >= 0.0 {
        outline.push(line);
        let touches = |band: &Band| band.upper.last().is_some_and(|(x, _)| (x - line.from).abs() <= NARROW);
        if !bands.last().is_some_and(touches) {
            bands.push(Band::default());
        }
        if let Some(band) = bands.last_mut() {
            band.extend(line, floor);
        }
    } else {
        // They cross.
        let x = line.from + (line.until - line.from) * (first / (first - last));
        for (from, until) in [(line.from, x), (x, line.until)] {
            if until - from > NARROW {
                let (mut line, mut floor) = (line.part(from, until), floor.part(from, until));
                // Rounding must not make them cross again.
                let higher = line.first + line.last > floor.first + floor.last;
                if higher {
                    (line.first, line.last) = (line.first.max(floor.first), line.last.max(floor.last));
                } else {
                    (floor.first, floor.last) = (floor.first.max(line.first), floor.last.max(line.last));
                }
                lay(line, floor, outline, bands);
            }
        }
    }
}

/// The pieces of a line that have a length.
fn pieces(line: &[Point]) -> impl Iterator<Item = Piece> {
    let piece = |pair: &[Point]| match pair {
        &[(from, first), (until, last)] if until - from > NARROW => Some(Piece { from, until, first, last }),
        _ => None,
    };
    line.windows(2).filter_map(piece)
}

impl Band {
    fn extend(&mut self, line: Piece, floor: Piece) {
        for (edge, piece) in [(&mut self.upper, line), (&mut self.lower, floor)] {
            let (begin, end) = ((piece.from, piece.first), (piece.until, piece.last));
            if edge.last() != Some(&begin) {
                edge.push(begin);
            }
            edge.push(end);
        }
    }

    /// The band as a path. `y` says where a height is in the picture; the lower edge is lowered by `overlap` where it
    /// is above zero.
    pub fn path(&self, y: impl Fn(f32) -> f32, overlap: f32) -> Vec<Step> {
        let mut steps = Vec::with_capacity(self.upper.len() + self.lower.len() + 1);
        let upper = self.upper.iter().map(|&(x, height)| (x, y(height)));
        let lower = self.lower.iter().rev().map(|&(x, height)| (x, y((height - overlap).max(0.0))));
        for (index, (x, y)) in upper.chain(lower).enumerate() {
            steps.push(if index == 0 { Step::Move(x, y) } else { Step::Line(x, y) });
        }
        steps.push(Step::Close);
        steps
    }
}

/// The part of lines that is on one side of a height of the picture, with heights above it: `sign` is 1 for the part
/// further up in the picture, -1 for the part further down. The other side has height zero.
pub(crate) fn heights(lines: &[Vec<Point>], zero: f32, most: f32, sign: f32) -> Vec<Vec<Point>> {
    let of_line = |line: &Vec<Point>| {
        let mut heights: Vec<Point> = Vec::with_capacity(line.len() + 8);
        let mut before: Option<Point> = None;
        for &(x, y) in line {
            let height = (zero - y) * sign;
            // The places where the line crosses a bound stay corners when it is cut there.
            if let Some((x0, height0)) = before {
                let mut shares: Vec<f32> = [0.0, most]
                    .into_iter()
                    .filter(|bound| (height0 - bound) * (height - bound) < 0.0)
                    .map(|bound| (bound - height0) / (height - height0))
                    .collect();
                shares.sort_by(f32::total_cmp);
                heights.extend(shares.into_iter().map(|share| {
                    let crossed = height0 + (height - height0) * share;
                    (x0 + (x - x0) * share, crossed.clamp(0.0, most))
                }));
            }
            heights.push((x, height.clamp(0.0, most)));
            before = Some((x, height));
        }
        heights
    };
    lines.iter().map(of_line).collect()
}

#[cfg(test)]
mod tests {
    use host::{Random, SeededRandom};

    use super::*;

    /// The area of bands by the shoelace formula.
    fn area(bands: &[Band]) -> f32 {
        let of_band = |band: &Band| {
            let points: Vec<Point> = band
                .path(|height| height, 0.0)
                .into_iter()
                .filter_map(|step| match step {
                    Step::Move(x, y) | Step::Line(x, y) => Some((x, y)),
                    _ => None,
                })
                .collect();
            let turns = points.iter().zip(points.iter().cycle().skip(1));
            turns.map(|(a, b)| a.0 * b.1 - b.0 * a.1).sum::<f32>().abs() / 2.0
        };
        bands.iter().map(of_band).sum()
    }

    #[test]
    fn a_line_takes_what_no_line_took_before_it() {
        let mut skyline = Skyline::flat(0.0, 100.0);
        assert_eq!(area(&skyline.cover(&[vec![(0.0, 10.0), (100.0, 10.0)]])), 1000.0);
        // Higher on the right half only: a triangle.
        assert_eq!(area(&skyline.cover(&[vec![(0.0, 0.0), (100.0, 20.0)]])), 250.0);
        assert_eq!(area(&skyline.cover(&[vec![(0.0, 5.0), (100.0, 5.0)]])), 0.0);
        assert_eq!(area(&skyline.cover(&[vec![(0.0, 20.0), (50.0, 20.0)], vec![(90.0, 20.0), (100.0, 20.0)]])), 510.0);
    }

    #[test]
    fn the_areas_of_any_lines_are_those_below_the_highest() {
        let source = SeededRandom::new(SeededRandom::test_seed(20_261_121));
        let random = |bound: u64| source.below(bound);
        for _ in 0..200 {
            let mut skyline = Skyline::flat(0.0, 64.0);
            let mut highest = vec![0.0f32; 64 * 16];
            let mut filled = 0.0;
            for _ in 0..5 {
                let points = 2 + random(6);
                let line: Vec<Point> =
                    (0..points).map(|index| ((index * 64 / (points - 1)) as f32, random(50) as f32)).collect();
                for (sample, high) in highest.iter_mut().enumerate() {
                    let x = (sample as f32 + 0.5) / 16.0;
                    let piece = pieces(&line).find(|piece| piece.from <= x && x < piece.until);
                    *high = high.max(piece.map_or(0.0, |piece| piece.height(x)));
                }
                filled += area(&skyline.cover(&[line]));
                let below: f32 = highest.iter().sum::<f32>() / 16.0;
                assert!((filled - below).abs() < 2.0, "filled {filled}, below the highest line {below}");
            }
        }
    }

    #[test]
    fn what_is_below_zero_has_no_height() {
        let lines = [vec![(0.0, 0.0), (10.0, 20.0)]];
        assert_eq!(heights(&lines, 10.0, 100.0, 1.0), [[(0.0, 10.0), (5.0, 0.0), (10.0, 0.0)]]);
        assert_eq!(heights(&lines, 10.0, 100.0, -1.0), [[(0.0, 0.0), (5.0, 0.0), (10.0, 10.0)]]);
        assert_eq!(heights(&lines, 10.0, 5.0, 1.0), [[(0.0, 5.0), (2.5, 5.0), (5.0, 0.0), (10.0, 0.0)]]);
    }
}
