//! A pie: each slice a number's share of all.

use std::f64::consts::{PI, TAU};

use crate::{
    Error, Options, Picture,
    color::Color,
    layout::{self, Faces},
    legend::{Entry, Legend},
    line_graph::margin,
    options::{PieLabels, percent_decoded},
    scene::{Anchor, Paint, Scene, Shape, Step, Text},
};

/// A slice of a pie.
#[derive(Debug, Clone, PartialEq)]
pub struct Slice {
    /// Its name in the legend.
    pub name: String,
    /// Its size. A value that is not a number above zero takes no room.
    pub value: f64,
}

/// Lays out a pie. `stop` is called now and then, and ends the work.
pub fn pie_graph(options: &Options, slices: &[Slice], stop: &dyn Fn() -> bool) -> Result<Picture, Error> {
    let mut scene =
        Scene { width: options.width, height: options.height, background: options.look.background, items: Vec::new() };
    let size = |slice: &Slice| if slice.value.is_finite() { slice.value.clamp(0.0, 1e300) } else { 0.0 };
    let total: f64 = slices.iter().map(size).sum();
    let font = options.font.name.clone();
    if !total.is_finite() || total <= 0.0 {
        layout::no_data(&mut scene, options);
        return Ok(Picture { scene, font });
    }
    let faces = Faces::new(options);
    let (width, height) = (options.width as f32, options.height as f32);
    let margin = margin(options);
    let colors = options.look.lines.iter().cycle().map(|color| match options.area_alpha {
        Some(alpha) => color.or_alpha(alpha),
        None => *color,
    });
    let colored: Vec<(&Slice, Color)> = slices.iter().zip(colors).collect();

    let title = layout::title_lines(options.title.as_deref(), &faces.title, width - 2.0 * margin);
    let title = if height < 80.0 { Vec::new() } else { title };
    let top = margin + layout::title_height(&title, &faces.title);
    let hides_legend = options.legend.hidden.unwrap_or(false) || height < 80.0 || width < 80.0;
    let entry =
        |(slice, color): &(&Slice, Color)| Entry { name: percent_decoded(&slice.name), color: *color, right: false };
    let legend = if hides_legend {
        None
    } else {
        let entries = colored.iter().map(entry).collect();
        Legend::new(entries, options.legend.unique, &faces.text, width - 2.0 * margin, 0.45 * height)
    };
    let bottom = height - margin - legend.as_ref().map_or(0.0, Legend::height);

    layout::draw_title(&mut scene, &title, &faces, options, margin);
    let center = (f64::from(width) / 2.0, f64::from(top + bottom) / 2.0);
    let radius = (f64::from(width / 2.0 - margin).min(f64::from(bottom - top) / 2.0) * 0.95).max(1.0);
    scene.part("slices");
    let mut angle = -PI / 2.0;
    let mut middles = Vec::with_capacity(slices.len());
    for (slice, color) in &colored {
        if stop() {
            return Err(Error::Stopped);
        }
        let turn = TAU * size(slice) / total;
        middles.push(angle + turn / 2.0);
        if turn > 0.0 {
            let path = sector(center, radius, angle, turn);
            let about = Some(slice.name.clone());
            scene.shape(Shape { path, paint: Paint::Fill, color: *color, about });
        }
        angle += turn;
    }
    // The ground shows between slices, so that neighbours of one colour look separate.
    let mut cuts = Vec::new();
    if slices.iter().filter(|slice| size(slice) > 0.0).count() > 1 {
        let mut angle = -PI / 2.0;
        for slice in slices.iter().filter(|slice| size(slice) > 0.0) {
            cuts.push(Step::Move(center.0 as f32, center.1 as f32));
            cuts.push(Step::Line((center.0 + radius * angle.cos()) as f32, (center.1 + radius * angle.sin()) as f32));
            angle += TAU * size(slice) / total;
        }
        let color = options.look.background;
        scene.shape(Shape { path: cuts, paint: Paint::Line { width: 1.0, dash: None }, color, about: None });
    }

    let has_room = radius >= 3.2 * f64::from(options.font.size);
    if options.pie.labels != PieLabels::None && has_room {
        scene.part("labels");
        for ((slice, _), middle) in colored.iter().zip(middles) {
            if let Some(label) = label(options, size(slice), 100.0 * size(slice) / total) {
                draw_label(&mut scene, options, &faces, label, center, radius, middle);
            }
        }
    }
    if let Some(legend) = &legend {
        let edges = (bottom, margin.max(1.0), width - margin.max(1.0));
        legend.draw(&mut scene, &faces.text, &options.font, options.look.foreground, edges);
    }
    Ok(Picture { scene, font })
}

/// Draws the label of a slice, unless it is too small.
fn label(options: &Options, value: f64, percent: f64) -> Option<String> {
    let least = options.pie.labels_min;
    match options.pie.labels {
        PieLabels::Percent if percent >= least => Some(format!("{percent:.2}%")),
        PieLabels::Number if value >= least => {
            let exact = value < 10.0 && value.fract() != 0.0;
            Some(if exact { format!("{value:.2}") } else { format!("{:.0}", value.trunc()) })
        }
        _ => None,
    }
}

fn draw_label(
    scene: &mut Scene,
    options: &Options,
    faces: &Faces,
    label: String,
    center: (f64, f64),
    radius: f64,
    middle: f64,
) {
    // Out where slices are wide.
    let reach = radius * 0.62;
    let (x, y) = (center.0 + reach * middle.cos(), center.1 + reach * middle.sin());
    let turned = options.pie.rotated;
    let middle = middle.rem_euclid(TAU);
    let upright = if PI / 2.0 < middle && middle <= 1.5 * PI { middle - PI } else { middle };
    let rotation = if turned { upright.to_degrees() as f32 } else { 0.0 };
    // The base line is half a capital below the middle.
    let drop = f64::from(faces.heights().capital) / 2.0;
    let turn = f64::from(rotation).to_radians();
    let font = &options.font;
    scene.text(Text {
        width: faces.text.width(&label),
        text: label,
        x: (x - drop * turn.sin()) as f32,
        y: (y + drop * turn.cos()) as f32,
        anchor: Anchor::Middle,
        size: font.size,
        bold: font.bold,
        italic: font.italic,
        rotation,
        color: options.pie.labels_color,
    });
}

/// The path of a slice: arcs of at most a quarter as curves.
fn sector((x, y): (f64, f64), radius: f64, from: f64, turn: f64) -> Vec<Step> {
    let on = |angle: f64| (x + radius * angle.cos(), y + radius * angle.sin());
    let begin = on(from);
    let whole = turn > TAU - 1e-9;
    let mut steps = if whole {
        vec![Step::Move(begin.0 as f32, begin.1 as f32)]
    } else {
        vec![Step::Move(x as f32, y as f32), Step::Line(begin.0 as f32, begin.1 as f32)]
    };
    let arcs = (turn / (PI / 2.0)).ceil().max(1.0);
    let each = turn / arcs;
    let reach = 4.0 / 3.0 * (each / 4.0).tan() * radius;
    for index in 0..arcs as usize {
        let (start, end) = (from + each * index as f64, from + each * (index + 1) as f64);
        let ((x0, y0), (x1, y1)) = (on(start), on(end));
        let points = [
            x0 - reach * start.sin(),
            y0 + reach * start.cos(),
            x1 + reach * end.sin(),
            y1 - reach * end.cos(),
            x1,
            y1,
        ];
        steps.push(Step::Curve(points.map(|value| value as f32)));
    }
    steps.push(Step::Close);
    steps
}
