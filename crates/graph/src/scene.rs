//! A picture as shapes in the order they are painted, in pixels from its upper left corner. The look of a
//! shape is decided once, here; SVG and PNG are two ways to write it.

use crate::color::Color;

/// A picture.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Scene {
    pub width: u32,
    pub height: u32,
    pub background: Color,
    pub items: Vec<Item>,
}

/// Something in a picture.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Item {
    /// Begins a part of the picture, with this name in SVG.
    Part(&'static str),
    Shape(Shape),
    Text(Text),
}

/// A path, filled or drawn.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Shape {
    pub path: Vec<Step>,
    pub paint: Paint,
    pub color: Color,
    /// The text that a viewer shows when the mouse is over it.
    pub about: Option<String>,
}

/// A step of a path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Step {
    Move(f32, f32),
    Line(f32, f32),
    /// A curve to the third point, with the others as control points.
    Curve([f32; 6]),
    Close,
}

/// How to paint a path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Paint {
    Fill,
    /// A line so many pixels wide, in dashes of so many where there are some.
    Line {
        width: f32,
        dash: Option<f32>,
    },
}

/// A line of text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Text {
    pub text: String,
    /// The position of its anchor, on the base line.
    pub x: f32,
    pub y: f32,
    pub anchor: Anchor,
    pub size: f32,
    pub bold: bool,
    pub italic: bool,
    /// Degrees, clockwise, about the anchor.
    pub rotation: f32,
    pub color: Color,
    /// Pixels across.
    pub width: f32,
}

/// The part of a text that is at its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

impl Scene {
    /// Begins a part of the picture.
    pub fn part(&mut self, name: &'static str) {
        self.items.push(Item::Part(name));
    }

    /// A filled rectangle.
    pub fn rectangle(&mut self, left: f32, top: f32, width: f32, height: f32, color: Color) {
        let (right, bottom) = (left + width, top + height);
        let path = vec![
            Step::Move(left, top),
            Step::Line(right, top),
            Step::Line(right, bottom),
            Step::Line(left, bottom),
            Step::Close,
        ];
        self.items.push(Item::Shape(Shape { path, paint: Paint::Fill, color, about: None }));
    }

    /// A shape.
    pub fn shape(&mut self, shape: Shape) {
        self.items.push(Item::Shape(shape));
    }

    /// A text.
    pub fn text(&mut self, text: Text) {
        self.items.push(Item::Text(text));
    }
}
