//! A picture as PNG.

use std::collections::HashMap;

use png::{BitDepth, ColorType, DeflateCompression, Encoder, Filter};
use tiny_skia::{
    FillRule, LineCap, LineJoin, Paint as Ink, Path, PathBuilder, Pixmap, PremultipliedColorU8, Stroke, StrokeDash,
    Transform,
};

use crate::{
    Error,
    color::Color,
    face::Face,
    options::MAX_PIXELS,
    scene::{Anchor, Item, Paint, Scene, Shape, Step, Text},
};

/// Paints a picture.
pub(crate) fn write(scene: &Scene, stop: &dyn Fn() -> bool) -> Result<Vec<u8>, Error> {
    let too_large = Error::TooLarge { width: scene.width, height: scene.height, limit: MAX_PIXELS };
    let mut pixels = Pixmap::new(scene.width, scene.height).ok_or(too_large)?;
    pixels.fill(skia_color(scene.background));
    let mut faces = HashMap::new();
    for item in &scene.items {
        match item {
            Item::Part(_) => {}
            Item::Shape(shape) => paint_shape(&mut pixels, shape),
            Item::Text(text) => paint_text(&mut pixels, text, &mut faces),
        }
        if stop() {
            return Err(Error::Stopped);
        }
    }
    Ok(encode(&pixels))
}

fn paint_shape(pixels: &mut Pixmap, shape: &Shape) {
    let ink = ink(shape.color);
    match shape.paint {
        Paint::Fill => {
            if let Some(path) = path(&shape.path) {
                pixels.fill_path(&path, &ink, FillRule::Winding, Transform::identity(), None);
            }
        }
        Paint::Line { width, dash } => {
            let stroke = Stroke {
                width,
                line_cap: LineCap::Butt,
                // The corners of a thin line are invisible, and round ones take longer.
                line_join: if width < 2.0 { LineJoin::Bevel } else { LineJoin::Round },
                dash: dash.and_then(|dash| StrokeDash::new(vec![dash, dash], 0.0)),
                ..Stroke::default()
            };
            // A transparent line would show where lengths meet, and dashes are counted from the beginning.
            let whole = dash.is_some() || shape.color.opacity() < 1.0;
            let lengths = if whole { vec![shape.path.clone()] } else { lengths(&shape.path) };
            for path in lengths.iter().filter_map(|length| path(length)) {
                pixels.stroke_path(&path, &ink, &stroke, Transform::identity(), None);
            }
        }
    }
}

/// Points that are stroked at a time.
const LENGTH: usize = 128;

/// A path of straight lines in lengths, each beginning with the last piece of the one before, so that its corner is
/// drawn. The time to stroke a path grows with the square of the number of its lines that cross a row of pixels.
fn lengths(steps: &[Step]) -> Vec<Vec<Step>> {
    let mut lengths: Vec<Vec<Step>> = Vec::new();
    let mut length: Vec<Step> = Vec::with_capacity(LENGTH + 2);
    for &step in steps {
        if length.len() >= LENGTH {
            let (last, before) = (length.pop(), length.last().copied());
            length.extend(last);
            lengths.push(std::mem::take(&mut length));
            if let (Some(Step::Line(x0, y0) | Step::Move(x0, y0)), Some(Step::Line(x, y)), Step::Line(..)) =
                (before, last, step)
            {
                length.extend([Step::Move(x0, y0), Step::Line(x, y)]);
            } else if let (Some(Step::Move(x, y)), Step::Line(..)) = (last, step) {
                length.push(Step::Move(x, y));
            }
        }
        length.push(step);
    }
    lengths.push(length);
    lengths
}

fn path(steps: &[Step]) -> Option<Path> {
    let mut path = PathBuilder::with_capacity(steps.len(), steps.len());
    for step in steps {
        match *step {
            Step::Move(x, y) => path.move_to(x, y),
            Step::Line(x, y) => path.line_to(x, y),
            Step::Curve([x1, y1, x2, y2, x, y]) => path.cubic_to(x1, y1, x2, y2, x, y),
            Step::Close => path.close(),
        }
    }
    path.finish()
}

/// A face's size in bits, whether it is bold, and whether it is italic and turned.
type FaceKey = (u32, bool, bool, bool);

fn paint_text(pixels: &mut Pixmap, text: &Text, faces: &mut HashMap<FaceKey, Face>) {
    let turned = text.rotation != 0.0;
    let face = faces.entry((text.size.to_bits(), text.bold, text.italic, turned)).or_insert_with(|| {
        let face = Face::new(text.size, text.bold, text.italic);
        // Outlines fit rows of pixels; turned text has none.
        if turned { face } else { face.fitted() }
    });
    let Some(outline) = face.outline(&text.text) else { return };
    let shift = match text.anchor {
        Anchor::Start => 0.0,
        Anchor::Middle => -text.width / 2.0,
        Anchor::End => -text.width,
    };
    let transform = if turned {
        Transform::from_translate(shift, 0.0).post_rotate(text.rotation).post_translate(text.x, text.y)
    } else {
        Transform::from_translate((text.x + shift).round(), text.y.round())
    };
    pixels.fill_path(&outline, &ink(text.color), FillRule::Winding, transform, None);
}

fn skia_color(color: Color) -> tiny_skia::Color {
    let alpha = (color.opacity() * 255.0).round() as u8;
    tiny_skia::Color::from_rgba8(color.red, color.green, color.blue, alpha)
}

fn ink(color: Color) -> Ink<'static> {
    let mut ink = Ink::default();
    ink.set_color(skia_color(color));
    ink
}

/// The file: three bytes a pixel for an opaque picture, else four.
fn encode(pixels: &Pixmap) -> Vec<u8> {
    let opaque = pixels.pixels().iter().all(|pixel| pixel.alpha() == 255);
    let bytes: Vec<u8> = if opaque {
        pixels.pixels().iter().flat_map(|pixel| [pixel.red(), pixel.green(), pixel.blue()]).collect()
    } else {
        let straight = |pixel: &PremultipliedColorU8| {
            let color = pixel.demultiply();
            [color.red(), color.green(), color.blue(), color.alpha()]
        };
        pixels.pixels().iter().flat_map(straight).collect()
    };
    let mut file = Vec::with_capacity(32 << 10);
    let mut encoder = Encoder::new(&mut file, pixels.width(), pixels.height());
    encoder.set_color(if opaque { ColorType::Rgb } else { ColorType::Rgba });
    encoder.set_depth(BitDepth::Eight);
    // Measured on graphs: two thirds of the library's own choice in bytes, and half in time. Filters are for photographs.
    encoder.set_deflate_compression(DeflateCompression::Level(3));
    encoder.set_filter(Filter::NoFilter);
    let written = encoder.write_header().and_then(|mut writer| {
        writer.write_image_data(&bytes)?;
        writer.finish()
    });
    written.expect("memory takes what is written, and the bytes are as many as the header says");
    file
}
