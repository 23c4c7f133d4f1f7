//! The layout: the parts around a plot, and those that a small picture leaves out.

use crate::{
    Options,
    face::{Face, Heights},
    scene::{Anchor, Scene, Text},
};

/// The plot, pixels from the upper left corner of the picture; whole, so that lines at its edges are sharp.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Area {
    pub left: f32,
    pub top: f32,
    pub right: f32,
    pub bottom: f32,
}

impl Area {
    pub fn width(&self) -> f32 {
        self.right - self.left
    }

    pub fn height(&self) -> f32 {
        self.bottom - self.top
    }
}

/// The parts around a plot, the most dispensable last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Around {
    ValueLabels,
    TimeLabels,
    Title,
    SideTitles,
    Legend,
}

/// The parts that a small picture leaves out, in this order.
pub(crate) const GIVING_WAY: [Around; 5] =
    [Around::Legend, Around::SideTitles, Around::Title, Around::TimeLabels, Around::ValueLabels];

/// The faces of a picture.
pub(crate) struct Faces {
    pub text: Face,
    pub title: Face,
    pub title_size: f32,
}

impl Faces {
    pub fn new(options: &Options) -> Faces {
        let font = &options.font;
        // graphite-web's size of titles.
        let title_size = font.size + font.size.ln().floor();
        Faces {
            text: Face::new(font.size, font.bold, font.italic),
            title: Face::new(title_size, true, font.italic),
            title_size,
        }
    }

    pub fn heights(&self) -> Heights {
        self.text.heights()
    }
}

/// Lines of a title, at most.
const MAX_LINES: usize = 8;

/// The lines of a title, each shortened to fit.
pub(crate) fn title_lines(title: Option<&str>, face: &Face, width: f32) -> Vec<String> {
    let lines = title.into_iter().flat_map(str::lines).take(MAX_LINES);
    lines.map(|line| face.shortened(line, width)).collect()
}

/// The height of the lines of a title with the gap below them, pixels.
pub(crate) fn title_height(lines: &[String], face: &Face) -> f32 {
    if lines.is_empty() { 0.0 } else { lines.len() as f32 * face.heights().line + 4.0 }
}

/// Draws a title centred at the top.
pub(crate) fn draw_title(scene: &mut Scene, lines: &[String], faces: &Faces, options: &Options, top: f32) {
    if lines.is_empty() {
        return;
    }
    scene.part("title");
    let heights = faces.title.heights();
    for (index, line) in lines.iter().enumerate() {
        scene.text(Text {
            text: line.clone(),
            x: options.width as f32 / 2.0,
            y: (top + heights.capital + 1.0 + index as f32 * heights.line).round(),
            anchor: Anchor::Middle,
            size: faces.title_size,
            bold: true,
            italic: options.font.italic,
            rotation: 0.0,
            color: options.look.foreground,
            width: faces.title.width(line),
        });
    }
}

/// A picture without data, in graphite-web's words, colour and size.
pub(crate) fn no_data(scene: &mut Scene, options: &Options) {
    let (width, height) = (options.width as f32, options.height as f32);
    let size = (width * height).ln().max(4.0).min(height);
    let face = Face::new(size, false, false);
    let text = "No Data";
    scene.part("no-data");
    scene.text(Text {
        text: text.to_owned(),
        x: (width / 2.0).round(),
        y: ((height + face.heights().capital) / 2.0).round(),
        anchor: Anchor::Middle,
        size,
        bold: false,
        italic: false,
        rotation: 0.0,
        color: crate::color::Color::parse("red").expect("red is a colour"),
        width: face.width(text),
    });
}
