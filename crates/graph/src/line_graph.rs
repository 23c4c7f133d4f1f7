//! A graph of series over time.
//!
//! 1. Decide how each line looks, and which axis it belongs to.
//! 2. Lay out the parts around the plot; a small picture leaves some out.
//! 3. Fold values to pixels, stack them where requested, and find the value axes. Their labels decide how wide the plot
//!    is, so this repeats until the width stays.
//! 4. Draw: grid, areas, lines, labels, legend.

use jiff::tz::TimeZone;

use crate::{
    Error, Options, Picture, Series,
    axes::{self, SideAxis, TimeScale},
    color::Color,
    layout::{self, Area, Around, Faces, GIVING_WAY},
    legend::{Entry, Legend},
    options::{AreaMode, AxisOptions, LineMode, percent_decoded},
    scene::{Paint, Scene, Shape},
    skyline::{Band, Skyline, heights},
    time_axis::TimeAxis,
    trace::{Point, Tracer, clipped, path},
    value_axis::ValueAxis,
};

/// Series up to which a graph has a legend by default: graphite-web's `LEGEND_MAX_ITEMS`.
const LEGEND_MAX_ITEMS: usize = 10;

/// Rounds of the layout at most. Each only narrows the plot, by the width of a digit or so.
const ROUNDS: usize = 4;

/// Lays out a graph. Times are those of clocks in `zone`. `stop` is called now and then, and ends the work.
pub fn line_graph(
    options: &Options,
    series: &[Series],
    zone: &TimeZone,
    stop: &dyn Fn() -> bool,
) -> Result<Picture, Error> {
    let mut scene =
        Scene { width: options.width, height: options.height, background: options.look.background, items: Vec::new() };
    let font = options.font.name.clone();
    let start = series.iter().map(|series| series.start).min();
    let end = series.iter().map(|series| series.end).max();
    let (Some(start), true) = (start, start < end) else {
        layout::no_data(&mut scene, options);
        return Ok(Picture { scene, font });
    };
    let graph = Graph::new(options, series, start, zone)?;
    graph.draw(&mut scene, stop)?;
    Ok(Picture { scene, font })
}

/// A line of the graph.
struct Line<'a> {
    series: &'a Series,
    color: Color,
    width: f32,
    dash: Option<f32>,
    /// Whether it belongs to the second axis.
    right: bool,
    filled: bool,
    // Step 3: values folded to pixels, and stacked; seconds from one to the next.
    values: Vec<f64>,
    step: i64,
}

struct Graph<'a> {
    options: &'a Options,
    zone: &'a TimeZone,
    faces: Faces,
    lines: Vec<Line<'a>>,
    mode: LineMode,
    /// Whether there is a second axis.
    two_axes: bool,
    /// Unix seconds; the last time is later.
    from: i64,
    until: i64,
}

/// The positions of the parts.
struct Layout {
    margin: f32,
    area: Area,
    title: Vec<String>,
    side_titles: [Vec<String>; 2],
    legend: Option<Legend>,
    time_labels: bool,
    value_labels: bool,
}

/// The value axes: the only or left one, and the right one of two.
struct ValueAxes {
    left: ValueAxis,
    right: Option<ValueAxis>,
    /// Pixels across of the widest label of either.
    widths: [f32; 2],
}

impl<'a> Graph<'a> {
    /// Step 1.
    fn new(options: &'a Options, series: &'a [Series], start: i64, zone: &'a TimeZone) -> Result<Graph<'a>, Error> {
        let asked = &options.line;
        let two_axes = series.iter().any(|series| series.style.second_axis);
        let mut colors = options.look.lines.iter().cycle();
        let mut lines = Vec::with_capacity(series.len());
        for series in series {
            let style = &series.style;
            let side = match (two_axes, style.second_axis) {
                (false, _) => None,
                (true, false) => Some(&asked.left),
                (true, true) => Some(&asked.right),
            };
            let of_side = side.and_then(|side| side.color);
            let own = style.color.as_deref().map(|text| Color::read("the colour of color()", text)).transpose()?;
            let color = match of_side.or(own) {
                Some(color) => color,
                None => *colors.next().expect("there is a colour to take turns with"),
            };
            let width = side.and_then(|side| side.line_width);
            let own_width = style.line_width.map(|width| width.clamp(0.0, 1000.0) as f32);
            let dash = side.and_then(|side| side.dashed);
            let own_dash = style.dashed.filter(|dash| *dash > 0.0).map(|dash| dash.min(1000.0) as f32);
            lines.push(Line {
                series,
                color: style.alpha.map_or(color, |alpha| color.or_alpha(alpha.clamp(0.0, 1.0) as f32)),
                width: width.or(own_width).unwrap_or(asked.line_width),
                dash: dash.or(own_dash),
                right: style.second_axis,
                filled: style.stacked || asked.area_mode.fills(lines.is_empty()) && !style.infinite,
                values: Vec::new(),
                step: series.step.max(1),
            });
        }
        // A slope through a single value is invisible.
        let single = series.iter().any(|series| series.values.len() == 1);
        let mode = if asked.line_mode == LineMode::Slope && single { LineMode::Staircase } else { asked.line_mode };
        let end = |series: &Series| if mode == LineMode::Staircase { series.end } else { series.end - series.step };
        let until = series.iter().map(end).max().unwrap_or(start).max(start + 1);
        Ok(Graph { options, zone, faces: Faces::new(options), lines, mode, two_axes, from: start, until })
    }

    fn draw(mut self, scene: &mut Scene, stop: &dyn Fn() -> bool) -> Result<(), Error> {
        let (layout, axes) = self.arrange()?;
        let (options, area) = (self.options, layout.area);
        let scale = self.scale(&area);
        let times =
            TimeAxis::new(self.from, self.until, self.pixels(&area), self.zone, options.line.time_form.as_deref());
        let shows_axes = !options.line.graph_only && !options.line.hide_axes;
        let side_axes = axes.side_axes(&self, &layout);

        layout::draw_title(scene, &layout.title, &self.faces, options, layout.margin);
        for (lines, right) in layout.side_titles.iter().zip([false, true]) {
            axes::draw_side_title(scene, options, lines, &self.faces, &area, right, layout.margin);
        }
        if shows_axes && !options.line.hide_grid {
            let ruling = side_axes.iter().find(|side| side.labelled).or(side_axes.first()).map(|side| side.axis);
            let text_height = self.faces.heights().line;
            if let Some(axis) = ruling {
                axes::draw_grid(scene, options, &area, axis, &times, &scale, text_height);
            }
        }
        scene.part("lines");
        self.draw_areas(scene, &axes, &area, &scale, stop)?;
        self.draw_lines(scene, &axes, &area, &scale, stop)?;
        if shows_axes {
            scene.part("axes");
            axes::draw_frame(scene, options, &area);
            if layout.value_labels {
                axes::draw_value_labels(scene, options, &area, &side_axes, &self.faces);
            }
            if layout.time_labels {
                axes::draw_time_labels(scene, options, &area, &times, &scale, &self.faces);
            }
        }
        if let Some(legend) = &layout.legend {
            let top = options.height as f32 - layout.margin - legend.height();
            let edges = (top, layout.margin.max(1.0), options.width as f32 - layout.margin.max(1.0));
            legend.draw(scene, &self.faces.text, &options.font, options.look.foreground, edges);
        }
        Ok(())
    }

    /// Steps 2 and 3.
    fn arrange(&mut self) -> Result<(Layout, ValueAxes), Error> {
        let mut widths = [24.0f32; 2];
        let mut arranged = self.arranged(widths)?;
        for _ in 1..ROUNDS {
            if arranged.1.widths == widths {
                break;
            }
            // Never narrower again: two layouts that lead to each other would not end.
            let of_labels = arranged.1.widths;
            widths = if widths == [24.0; 2] { of_labels } else { [0, 1].map(|side| widths[side].max(of_labels[side])) };
            arranged = self.arranged(widths)?;
        }
        Ok(arranged)
    }

    /// The picture for this width of the labels of the value axes.
    fn arranged(&mut self, widths: [f32; 2]) -> Result<(Layout, ValueAxes), Error> {
        let layout = self.layout(widths);
        self.fold(&layout.area);
        let axes = self.value_axes(&layout.area)?;
        Ok((layout, axes))
    }

    /// Step 2: all parts of the request that have room.
    fn layout(&self, widths: [f32; 2]) -> Layout {
        let (width, height) = (self.options.width as f32, self.options.height as f32);
        // About half of the picture belongs to the plot.
        let is_enough =
            |area: &Area| area.width() >= (0.6 * width).min(120.0) && area.height() >= (0.4 * height).min(60.0);
        let mut hidden: Vec<Around> = Vec::new();
        let mut layout = self.layout_without(&hidden, widths);
        for gives_way in GIVING_WAY {
            if is_enough(&layout.area) {
                break;
            }
            hidden.push(gives_way);
            layout = self.layout_without(&hidden, widths);
        }
        layout
    }

    fn layout_without(&self, hidden: &[Around], widths: [f32; 2]) -> Layout {
        let (options, asked, faces) = (self.options, &self.options.line, &self.faces);
        let (width, height) = (options.width as f32, options.height as f32);
        let heights = faces.heights();
        let shows = |what: Around| !hidden.contains(&what) && !asked.graph_only;
        let margin = if asked.graph_only { 0.0 } else { margin(options) };
        let time_labels = shows(Around::TimeLabels) && !asked.hide_axes && !asked.hide_x_axis;
        let value_labels = shows(Around::ValueLabels) && !asked.hide_axes && !asked.hide_y_axis;

        let title = options.title.as_deref().filter(|_| shows(Around::Title));
        let title = layout::title_lines(title, &faces.title, width - 2.0 * margin);
        let mut area = Area { left: margin, top: margin, right: width - margin, bottom: height - margin };
        area.top += layout::title_height(&title, &faces.title);
        let legend = if shows(Around::Legend) { self.legend(width - 2.0 * margin, 0.5 * height) } else { None };
        area.bottom -= legend.as_ref().map_or(0.0, Legend::height);
        if time_labels {
            area.bottom -= axes::GAP_BELOW + heights.capital + 2.0;
        }
        let side = |text: &Option<String>, there: bool| {
            let text = text.as_deref().filter(|_| there && shows(Around::SideTitles));
            layout::title_lines(text, &faces.title, area.bottom - area.top)
        };
        let side_titles = [side(&asked.title_left, true), side(&asked.title_right, self.two_axes)];
        area.left += layout::title_height(&side_titles[0], &faces.title);
        area.right -= layout::title_height(&side_titles[1], &faces.title);
        if value_labels {
            let [left, right] = if self.two_axes {
                widths
            } else if asked.labels_right {
                [0.0, widths[0]]
            } else {
                [widths[0], 0.0]
            };
            area.left += if left > 0.0 { left + axes::GAP } else { 0.0 };
            area.right -= if right > 0.0 { right + axes::GAP } else { 0.0 };
        }
        let area = Area {
            left: area.left.ceil(),
            top: area.top.ceil(),
            right: area.right.floor().max(area.left.ceil() + 1.0),
            bottom: area.bottom.floor().max(area.top.ceil() + 1.0),
        };
        Layout { margin, area, title, side_titles, legend, time_labels, value_labels }
    }

    fn legend(&self, width: f32, height: f32) -> Option<Legend> {
        let asked = &self.options.legend;
        if asked.hidden.unwrap_or(self.lines.len() > LEGEND_MAX_ITEMS) {
            return None;
        }
        let is_shown = |line: &&Line<'_>| {
            let has_values = || line.series.values.iter().any(|value| !value.is_nan());
            let has_name = !line.series.name.is_empty() && !line.series.style.invisible;
            has_name && (!asked.without_null || has_values())
        };
        let entry = |line: &Line<'_>| {
            let color = if line.filled { self.area_color(line) } else { line.color };
            Entry { name: percent_decoded(&line.series.name), color, right: line.right }
        };
        let entries = self.lines.iter().filter(is_shown).map(entry).collect();
        Legend::new(entries, asked.unique, &self.faces.text, width, height)
    }

    /// Pixels from the first time to the last.
    fn pixels(&self, area: &Area) -> f64 {
        f64::from(area.width() - (self.options.line.line_width.min(10.0) + 1.0)).max(1.0)
    }

    fn scale(&self, area: &Area) -> TimeScale {
        TimeScale {
            from: self.from,
            left: f64::from(area.left + 0.5 + self.options.line.line_width.min(10.0) / 2.0),
            pixels_per_second: self.pixels(area) / (self.until - self.from) as f64,
        }
    }

    /// Step 3: folds values to pixels, and stacks them where requested.
    fn fold(&mut self, area: &Area) {
        let (pixels, least) = (self.pixels(area), self.options.line.min_x_step);
        let span = (self.until - self.from) as f64;
        let null_as_zero = self.options.line.null_as_zero;
        for line in &mut self.lines {
            let step = line.series.step.max(1);
            let values = span / step as f64;
            let per_pixel = if pixels / values < least {
                (values / (pixels / least).floor().max(1.0)).ceil().min(1e15) as usize
            } else {
                1
            };
            line.values = line.series.folded(per_pixel);
            line.step = step.saturating_mul(per_pixel as i64);
            if null_as_zero && line.values.iter().any(|value| !value.is_nan()) {
                line.values.iter_mut().filter(|value| value.is_nan()).for_each(|value| *value = 0.0);
            }
        }
    }

    /// The values of each line put on top of those before it, on the same axis, and the largest sum.
    fn stacked(&self, right: bool) -> (Vec<(usize, Vec<f64>)>, f64) {
        let members: Vec<usize> = (0..self.lines.len())
            .filter(|&index| self.lines[index].right == right && !self.lines[index].series.style.infinite)
            .collect();
        let mut totals: Vec<f64> = Vec::new();
        let mut stacked = Vec::with_capacity(members.len());
        let (mut start, mut step) = (self.from, 1);
        if let Some(first) = members.first().map(|&index| &self.lines[index]) {
            (start, step) = (first.series.start, first.step);
        }
        let alike = members.iter().all(|&index| {
            let line = &self.lines[index];
            (line.series.start, line.step) == (start, step)
        });
        for &index in &members {
            let line = &self.lines[index];
            let mut values = Vec::with_capacity(line.values.len());
            for (at, &value) in line.values.iter().enumerate() {
                // Sums are kept at the first line's times; others join them at the nearest.
                let slot = if alike {
                    at
                } else {
                    let time = line.series.start.saturating_add(line.step.saturating_mul(at as i64));
                    usize::try_from((time - start).div_euclid(step)).unwrap_or(0)
                };
                if totals.len() <= slot {
                    totals.resize(slot + 1, 0.0);
                }
                values.push(value + totals[slot]);
            }
            if alike {
                for (total, value) in totals.iter_mut().zip(&values) {
                    *total = if value.is_nan() { *total } else { *value };
                }
            } else {
                add_at_times(&mut totals, start, step, line, self.until);
            }
            stacked.push((index, values));
        }
        let largest = totals.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (stacked, largest)
    }

    /// Step 3: the axes.
    fn value_axes(&mut self, area: &Area) -> Result<ValueAxes, Error> {
        let asked = &self.options.line;
        let (left, right) = match self.two_axes {
            false => (self.value_axis(false, &asked.axis)?, None),
            true => (self.value_axis(false, &asked.left)?, Some(self.value_axis(true, &asked.right)?)),
        };
        let width = |axis: &ValueAxis| {
            let labels = axes::spaced_labels(axis, area.height(), self.faces.heights().line);
            labels.iter().map(|(_, label)| self.faces.text.width(label)).fold(0.0, f32::max).ceil()
        };
        let has_left = self.lines.iter().any(|line| !line.right);
        let widths = [if has_left { width(&left) } else { 0.0 }, right.as_ref().map_or(0.0, width)];
        Ok(ValueAxes { left, right, widths })
    }

    /// The axis of one side, whose lines are stacked where requested.
    fn value_axis(&mut self, right: bool, of: &AxisOptions) -> Result<ValueAxis, Error> {
        let asked = &self.options.line;
        let mut limits = self.limits(right);
        if asked.area_mode == AreaMode::Stacked {
            let (stacked, largest) = self.stacked(right);
            // The least single value, not the least sum, as in graphite-web.
            limits = limits.map(|(least, most)| (least, if largest.is_finite() { largest } else { most }));
            for (index, values) in stacked {
                self.lines[index].values = values;
            }
        }
        let nothing = if asked.log_base.is_some() { (1.0, 10.0) } else { (0.0, 1.0) };
        ValueAxis::new(limits.unwrap_or(nothing), of, &asked.divisors, asked.log_base, asked.units)
    }

    /// The least and the largest value of an axis, if it has one.
    fn limits(&self, right: bool) -> Option<(f64, f64)> {
        let logarithmic = self.options.line.log_base.is_some();
        let lines = self.lines.iter().filter(|line| line.right == right && !line.series.style.infinite);
        let values = lines.flat_map(|line| line.values.iter().copied());
        let shown = values.filter(|value| if logarithmic { *value > 0.0 } else { !value.is_nan() });
        shown.fold(None, |limits, value| {
            let (least, most) = limits.unwrap_or((value, value));
            Some((value.min(least), value.max(most)))
        })
    }

    /// The colour of a line's area.
    fn area_color(&self, line: &Line<'_>) -> Color {
        match self.options.area_alpha {
            Some(alpha) => line.color.or_alpha(alpha),
            None => line.color,
        }
    }

    /// The points of a line.
    fn trace(&self, line: &Line<'_>, axis: &ValueAxis, area: &Area, scale: &TimeScale) -> Vec<Vec<Point>> {
        let y = |value: f64| axes::y(axis, area, value);
        let tracer = Tracer {
            mode: self.mode,
            connected_limit: self.options.line.connected_limit,
            x: scale.x(line.series.start),
            step: line.step as f64 * scale.pixels_per_second,
            y: &y,
        };
        tracer.lines(&line.values, line.width)
    }

    /// Step 4: areas.
    fn draw_areas(
        &self,
        scene: &mut Scene,
        axes: &ValueAxes,
        area: &Area,
        scale: &TimeScale,
        stop: &dyn Fn() -> bool,
    ) -> Result<(), Error> {
        let mut shapes = Vec::new();
        let filled = || self.lines.iter().filter(|line| line.filled && !line.series.style.infinite);
        // Edges that meet let the ground shine through, so opaque areas reach under those before them a little.
        let covers = filled().all(|line| self.area_color(line).opacity() >= 1.0 && !line.series.style.invisible);
        let overlap = if covers { 0.75 } else { 0.0 };
        for right in [false, true] {
            let axis = axes.of(right);
            let zero = (f64::from(area.bottom) - axis.ground() * f64::from(area.height())) as f32;
            let zero = zero.clamp(area.top, area.bottom);
            let mut skylines = [Skyline::flat(area.left, area.right), Skyline::flat(area.left, area.right)];
            for line in filled().filter(|line| line.right == right) {
                if stop() {
                    return Err(Error::Stopped);
                }
                let traced = self.trace(line, axis, area, scale);
                let mut steps = Vec::new();
                for (skyline, sign) in skylines.iter_mut().zip([1.0f32, -1.0]) {
                    let most = if sign > 0.0 { zero - area.top } else { area.bottom - zero };
                    let bands: Vec<Band> = skyline.cover(&heights(&traced, zero, most, sign));
                    steps.extend(bands.iter().flat_map(|band| band.path(|height| zero - height * sign, overlap)));
                }
                if !line.series.style.invisible && !steps.is_empty() {
                    shapes.push(Shape {
                        path: steps,
                        paint: Paint::Fill,
                        color: self.area_color(line),
                        about: Some(line.series.name.to_string()),
                    });
                }
            }
        }
        if covers {
            shapes.reverse();
        }
        shapes.into_iter().for_each(|shape| scene.shape(shape));
        Ok(())
    }

    /// Step 4: lines, and the edges of areas that can be seen through.
    fn draw_lines(
        &self,
        scene: &mut Scene,
        axes: &ValueAxes,
        area: &Area,
        scale: &TimeScale,
        stop: &dyn Fn() -> bool,
    ) -> Result<(), Error> {
        let edged = self.options.area_alpha.is_some();
        let is_drawn = |line: &&Line<'_>| (!line.filled || edged) && !line.series.style.invisible && line.width > 0.0;
        // Areas' edges are drawn last.
        let (edges, lines): (Vec<_>, Vec<_>) = self.lines.iter().filter(is_drawn).partition(|line| line.filled);
        for line in lines.into_iter().chain(edges) {
            if stop() {
                return Err(Error::Stopped);
            }
            let traced = if line.series.style.infinite {
                infinite(line, area, scale)
            } else {
                let traced = self.trace(line, axes.of(line.right), area, scale);
                // A line along the edge of the plot is visible in all its width.
                let (top, bottom) = (area.top - line.width / 2.0, area.bottom + line.width / 2.0);
                traced.iter().flat_map(|line| clipped(line, top, bottom)).collect()
            };
            if !traced.is_empty() {
                scene.shape(Shape {
                    path: path(&traced),
                    paint: Paint::Line { width: line.width, dash: line.dash },
                    color: line.color,
                    about: Some(line.series.name.to_string()),
                });
            }
        }
        Ok(())
    }
}

/// A line from bottom to top for each value above zero.
fn infinite(line: &Line<'_>, area: &Area, scale: &TimeScale) -> Vec<Vec<Point>> {
    let at = |(index, _): (usize, &f64)| {
        let x = scale.x(line.series.start) + index as f64 * line.step as f64 * scale.pixels_per_second;
        vec![(x as f32, area.bottom), (x as f32, area.top)]
    };
    line.values.iter().enumerate().filter(|(_, value)| **value > 0.0).map(at).collect()
}

/// Adds a line to sums that are kept at other times than its own: each of its values holds until the next.
fn add_at_times(totals: &mut Vec<f64>, start: i64, step: i64, line: &Line<'_>, until: i64) {
    let slots = usize::try_from((until - start).div_euclid(step).saturating_add(1)).unwrap_or(0).min(1 << 20);
    if totals.len() < slots {
        totals.resize(slots, 0.0);
    }
    for (slot, total) in totals.iter_mut().enumerate() {
        let time = start.saturating_add(step.saturating_mul(slot as i64));
        let at = (time - line.series.start).div_euclid(line.step.max(1));
        let value = usize::try_from(at).ok().and_then(|at| line.values.get(at)).copied().unwrap_or(f64::NAN);
        *total += if value.is_nan() { 0.0 } else { value };
    }
}

/// The margin of the picture, pixels: graphite-web's ten, or less in a small picture.
pub(crate) fn margin(options: &Options) -> f32 {
    let (width, height) = (options.width as f32, options.height as f32);
    let small = width.min(height);
    options.margin.unwrap_or((0.06 * small).floor().min(10.0)).min((0.4 * small).floor())
}

impl ValueAxes {
    fn of(&self, right: bool) -> &ValueAxis {
        self.right.as_ref().filter(|_| right).unwrap_or(&self.left)
    }

    fn side_axes(&self, graph: &Graph<'_>, layout: &Layout) -> Vec<SideAxis<'_>> {
        let labels = layout.value_labels;
        match &self.right {
            None => vec![SideAxis { axis: &self.left, right: graph.options.line.labels_right, labelled: labels }],
            Some(right) => vec![
                SideAxis { axis: &self.left, right: false, labelled: labels && self.widths[0] > 0.0 },
                SideAxis { axis: right, right: true, labelled: labels },
            ],
        }
    }
}

impl AreaMode {
    /// Whether a line is filled, by whether it is the first.
    fn fills(self, first: bool) -> bool {
        match self {
            AreaMode::None => false,
            AreaMode::First => first,
            AreaMode::All | AreaMode::Stacked => true,
        }
    }
}
