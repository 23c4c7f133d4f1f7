//! Grid and labels: the lines behind a plot and the labels next to it.

use crate::{
    Options,
    color::Color,
    face::Face,
    layout::{Area, Faces},
    scene::{Anchor, Paint, Scene, Shape, Step, Text},
    time_axis::{Every, TimeAxis},
    value_axis::ValueAxis,
};

/// Pixels between the plot and its labels.
pub(crate) const GAP: f32 = 5.0;

/// Pixels between the plot and the labels of times: below the label of the lowest value.
pub(crate) const GAP_BELOW: f32 = 8.0;

/// The opacity of a grid: graphite-web's lines are this share of a pixel wide, which blurs them over two pixels.
const MAJOR: f32 = 0.4;
const MINOR: f32 = 0.22;

/// Pixels between lines of a grid, at the least.
const LEAST_MAJOR: f64 = 12.0;
const LEAST_MINOR: f64 = 5.0;

/// Where times are across a plot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeScale {
    pub from: i64,
    /// Pixels from the left edge of the picture to `from`.
    pub left: f64,
    pub pixels_per_second: f64,
}

impl TimeScale {
    pub fn x(&self, time: i64) -> f64 {
        self.left + (time - self.from) as f64 * self.pixels_per_second
    }

    fn pixels(&self, every: Every) -> f64 {
        every.seconds() as f64 * self.pixels_per_second
    }
}

/// A value axis on one side of a plot.
pub(crate) struct SideAxis<'a> {
    pub axis: &'a ValueAxis,
    pub right: bool,
    /// Whether it has labels; one of two may be without.
    pub labelled: bool,
}

/// The values with a label where labels are at least `apart` pixels from each other.
pub(crate) fn spaced_labels(axis: &ValueAxis, height: f32, apart: f32) -> Vec<(f64, String)> {
    let mut labels = axis.labels();
    let distance = match &labels[..] {
        [(first, _), (second, _), ..] => (axis.height(*second) - axis.height(*first)).abs() * f64::from(height),
        _ => return labels,
    };
    let every = (f64::from(apart) / distance.max(1e-9)).ceil().clamp(1.0, 1e6) as usize;
    let mut index = 0;
    labels.retain(|_| {
        index += 1;
        (index - 1) % every == 0
    });
    labels
}

/// The vertical position of a value in the picture.
pub(crate) fn y(axis: &ValueAxis, area: &Area, value: f64) -> f64 {
    f64::from(area.bottom) - axis.height(value) * f64::from(area.height())
}

/// A straight line a pixel wide, on whole pixels.
fn line(path: &mut Vec<Step>, from: (f64, f64), to: (f64, f64)) {
    let sharp = |value: f64| value.floor() as f32 + 0.5;
    if from.0 == to.0 {
        path.extend([Step::Move(sharp(from.0), from.1 as f32), Step::Line(sharp(to.0), to.1 as f32)]);
    } else {
        path.extend([Step::Move(from.0 as f32, sharp(from.1)), Step::Line(to.0 as f32, sharp(to.1))]);
    }
}

fn ruled(scene: &mut Scene, path: Vec<Step>, color: Color) {
    if !path.is_empty() {
        scene.shape(Shape { path, paint: Paint::Line { width: 1.0, dash: None }, color, about: None });
    }
}

/// Draws the grid: the lines of `axis` and of the times.
pub(crate) fn draw_grid(
    scene: &mut Scene,
    options: &Options,
    area: &Area,
    axis: &ValueAxis,
    times: &TimeAxis,
    scale: &TimeScale,
    text_height: f32,
) {
    scene.part("grid");
    let (left, right) = (f64::from(area.left), f64::from(area.right));
    let (top, bottom) = (f64::from(area.top), f64::from(area.bottom));
    let (mut major, mut minor) = (Vec::new(), Vec::new());

    let labels = spaced_labels(axis, area.height(), text_height);
    let heights: Vec<f64> = labels.iter().map(|(value, _)| y(axis, area, *value)).collect();
    for &y in &heights {
        if top - 0.5 <= y && y <= bottom + 0.5 {
            line(&mut major, (left, y.clamp(top, bottom)), (right, y.clamp(top, bottom)));
        }
    }
    let between = options.line.minor_lines;
    for pair in labels.windows(2).filter(|_| between > 0) {
        let [(lower, _), (upper, _)] = pair else { continue };
        let distance = (y(axis, area, *upper) - y(axis, area, *lower)).abs() / f64::from(between + 1);
        for index in (1..=between).filter(|_| distance >= LEAST_MINOR) {
            let value = lower + (upper - lower) * f64::from(index) / f64::from(between + 1);
            let y = y(axis, area, value);
            line(&mut minor, (left, y), (right, y));
        }
    }

    let down = |path: &mut Vec<Step>, every: Every, least: f64| {
        let stride = (least / scale.pixels(every).max(1e-9)).ceil().clamp(1.0, 1e9) as i64;
        for (time, reading) in times.times(every) {
            let x = scale.x(time);
            if reading % stride == 0 && left < x && x < right {
                line(path, (x, top), (x, bottom));
            }
        }
    };
    if scale.pixels(times.minor) >= LEAST_MINOR {
        down(&mut minor, times.minor, LEAST_MINOR);
    }
    down(&mut major, times.major, LEAST_MAJOR);

    ruled(scene, minor, options.look.minor_line.faded(MINOR));
    ruled(scene, major, options.look.major_line.faded(MAJOR));
}

/// Draws the sides of the plot that have an axis.
pub(crate) fn draw_frame(scene: &mut Scene, options: &Options, area: &Area) {
    let mut path = Vec::new();
    let (left, right) = (f64::from(area.left), f64::from(area.right));
    let (top, bottom) = (f64::from(area.top), f64::from(area.bottom));
    line(&mut path, (left, top), (left, bottom));
    line(&mut path, (right, top), (right, bottom));
    line(&mut path, (left, bottom), (right + 1.0, bottom));
    ruled(scene, path, options.look.foreground.faded(0.35));
}

/// Draws the labels of value axes.
pub(crate) fn draw_value_labels(
    scene: &mut Scene,
    options: &Options,
    area: &Area,
    axes: &[SideAxis<'_>],
    faces: &Faces,
) {
    let heights = faces.heights();
    for side in axes.iter().filter(|side| side.labelled) {
        for (value, label) in spaced_labels(side.axis, area.height(), heights.line) {
            let y = y(side.axis, area, value);
            if y < f64::from(area.top) - 1.0 || f64::from(area.bottom) + 1.0 < y {
                continue;
            }
            let baseline = (y as f32 + heights.capital / 2.0).round();
            let (x, anchor) =
                if side.right { (area.right + GAP, Anchor::Start) } else { (area.left - GAP, Anchor::End) };
            let lowest = options.height as f32 - 1.0;
            let y = baseline.min(lowest).max(heights.capital + 1.0);
            scene.text(text(options, &faces.text, label, x, y, anchor));
        }
    }
}

/// Draws the labels of times: as many as fit side by side, at round times.
pub(crate) fn draw_time_labels(
    scene: &mut Scene,
    options: &Options,
    area: &Area,
    times: &TimeAxis,
    scale: &TimeScale,
    faces: &Faces,
) {
    let baseline = area.bottom + GAP_BELOW + faces.heights().capital;
    let labels: Vec<(i64, i64, String, f32)> = times
        .times(times.label)
        .into_iter()
        .map(|(time, reading)| {
            let label = times.text(time);
            let width = faces.text.width(&label);
            (time, reading, label, width)
        })
        .collect();
    let widest = labels.iter().map(|(_, _, _, width)| *width).fold(0.0, f32::max);
    let stride = times.label.round_stride(f64::from(widest + 10.0) / scale.pixels(times.label).max(1e-9));
    // A label that cannot be centred on its time within the picture is moved a little, or left out.
    let (least, most) = (1.0, options.width as f32 - 1.0);
    let mut free_from = f32::NEG_INFINITY;
    for (time, reading, label, width) in labels {
        let x = scale.x(time) as f32;
        let moved = x.max(least + width / 2.0).min(most - width / 2.0);
        let is_here = reading % stride == 0 && (moved - x).abs() <= width / 4.0 && x <= area.right + 0.5;
        if is_here && free_from <= moved - width / 2.0 {
            scene.text(text(options, &faces.text, label, moved, baseline, Anchor::Middle));
            free_from = moved + width / 2.0 + 4.0;
        }
    }
}

/// A text in the colour and face of the picture.
fn text(options: &Options, face: &Face, text: String, x: f32, y: f32, anchor: Anchor) -> Text {
    let font = &options.font;
    Text {
        width: face.width(&text),
        text,
        x,
        y: y.round(),
        anchor,
        size: font.size,
        bold: font.bold,
        italic: font.italic,
        rotation: 0.0,
        color: options.look.foreground,
    }
}

/// Draws the lines of a title next to the plot, turned, outwards from the edge of the picture: the first at `x`.
pub(crate) fn draw_side_title(
    scene: &mut Scene,
    options: &Options,
    lines: &[String],
    faces: &Faces,
    area: &Area,
    right: bool,
    margin: f32,
) {
    if lines.is_empty() {
        return;
    }
    scene.part(if right { "vtitleRight" } else { "vtitle" });
    let heights = faces.title.heights();
    let (rotation, inwards) = if right { (90.0, -1.0) } else { (-90.0, 1.0) };
    let edge = if right { options.width as f32 - margin } else { margin };
    for (index, line) in lines.iter().enumerate() {
        scene.text(Text {
            text: line.clone(),
            x: edge + inwards * (heights.capital + 2.0 + index as f32 * heights.line),
            y: (area.top + area.bottom) / 2.0,
            anchor: Anchor::Middle,
            size: faces.title_size,
            bold: true,
            italic: options.font.italic,
            rotation,
            color: options.look.foreground,
            width: faces.title.width(line),
        });
    }
}
