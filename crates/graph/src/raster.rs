//! A picture as PNG.

use std::collections::HashMap;

use png::{BitDepth, ColorType, Compression, Encoder};
use tiny_skia::{
    FillRule, LineCap, LineJoin, Paint as Ink, Path, PathBuilder, Pixmap, PremultipliedColorU8, Stroke, StrokeDash,
    Transform,
};

use crate::{
    Error,
    color::Color,
    face::Face,
    scene::{Anchor, Item, Paint, Scene, Shape, Step, Text},
};

/// Paints a picture.
pub(crate) fn write(scene: &Scene, stop: &dyn Fn() -> bool) -> Result<Vec<u8>, Error> {
    let too_large = Error::TooLarge { width: scene.width, height: scene.height };
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
    let Some(path) = path(&shape.path) else { return };
    match shape.paint {
        Paint::Fill => {
            pixels.fill_path(&path, &ink(shape.color), FillRule::Winding, Transform::identity(), None);
        }
        Paint::Line { width, dash } => {
            let stroke = Stroke {
                width,
                line_cap: LineCap::Butt,
                line_join: LineJoin::Round,
                dash: dash.and_then(|dash| StrokeDash::new(vec![dash, dash], 0.0)),
                ..Stroke::default()
            };
            pixels.stroke_path(&path, &ink(shape.color), &stroke, Transform::identity(), None);
        }
    }
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
        // Fitting is to rows of pixels, which turned text has not.
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

/// The file: three bytes a pixel where nothing shows through, else four.
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
    encoder.set_compression(Compression::Balanced);
    let written = encoder.write_header().and_then(|mut writer| {
        writer.write_image_data(&bytes)?;
        writer.finish()
    });
    written.expect("memory takes what is written, and the bytes are as many as the header says");
    file
}
