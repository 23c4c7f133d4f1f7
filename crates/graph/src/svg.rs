//! A picture as SVG.

use crate::{
    Error,
    color::Color,
    face,
    scene::{Anchor, Item, Paint, Scene, Shape, Step, Text},
};

/// Writes a picture, in at most `limit` bytes. `font` is the first choice of a face for text.
pub(crate) fn write(scene: &Scene, font: Option<&str>, limit: usize, stop: &dyn Fn() -> bool) -> Result<String, Error> {
    let mut out = String::with_capacity(16 << 10);
    let (width, height) = (scene.width, scene.height);
    out.push_str(&format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\""
    ));
    out.push_str(" font-family=\"");
    if let Some(font) = font {
        // A name in a list of names.
        escape(&mut out, &font.replace(['\'', '"', ',', ';'], " "));
        out.push_str(", ");
    }
    out.push_str(&format!("{}, 'DejaVu Sans', Verdana, Arial, sans-serif\">\n", face::NAME));
    out.push_str(&format!("<rect width=\"{width}\" height=\"{height}\""));
    paint(&mut out, "fill", scene.background);
    out.push_str("/>\n<g class=\"graphite\">\n");
    let mut open = false;
    for item in &scene.items {
        match item {
            Item::Part(name) => {
                out.push_str(if open { "</g>\n" } else { "" });
                out.push_str(&format!("<g class=\"{name}\">\n"));
                open = true;
            }
            Item::Shape(shape) => write_shape(&mut out, shape),
            Item::Text(text) => write_text(&mut out, text),
        }
        if out.len() > limit {
            return Err(Error::TooLong { limit });
        }
        if stop() {
            return Err(Error::Stopped);
        }
    }
    out.push_str(if open { "</g>\n</g>\n</svg>\n" } else { "</g>\n</svg>\n" });
    Ok(out)
}

fn write_shape(out: &mut String, shape: &Shape) {
    out.push_str("<path d=\"");
    for step in &shape.path {
        let numbers: &[f32] = match step {
            Step::Move(x, y) => {
                out.push('M');
                &[*x, *y]
            }
            Step::Line(x, y) => {
                out.push('L');
                &[*x, *y]
            }
            Step::Curve(points) => {
                out.push('C');
                points
            }
            Step::Close => {
                out.push('Z');
                &[]
            }
        };
        for (index, value) in numbers.iter().enumerate() {
            if index > 0 {
                out.push(' ');
            }
            number(out, *value);
        }
    }
    out.push('"');
    match shape.paint {
        Paint::Fill => paint(out, "fill", shape.color),
        Paint::Line { width, dash } => {
            out.push_str(" fill=\"none\"");
            paint(out, "stroke", shape.color);
            attribute(out, "stroke-width", width);
            out.push_str(" stroke-linejoin=\"round\"");
            if let Some(dash) = dash {
                attribute(out, "stroke-dasharray", dash);
            }
        }
    }
    match &shape.about {
        Some(about) => {
            out.push_str("><title>");
            escape(out, about);
            out.push_str("</title></path>\n");
        }
        None => out.push_str("/>\n"),
    }
}

fn write_text(out: &mut String, text: &Text) {
    out.push_str("<text");
    attribute(out, "x", text.x);
    attribute(out, "y", text.y);
    if text.rotation != 0.0 {
        out.push_str(" transform=\"rotate(");
        for (index, value) in [text.rotation, text.x, text.y].into_iter().enumerate() {
            out.push_str(if index > 0 { " " } else { "" });
            number(out, value);
        }
        out.push_str(")\"");
    }
    attribute(out, "font-size", text.size);
    match text.anchor {
        Anchor::Start => {}
        Anchor::Middle => out.push_str(" text-anchor=\"middle\""),
        Anchor::End => out.push_str(" text-anchor=\"end\""),
    }
    out.push_str(if text.bold { " font-weight=\"bold\"" } else { "" });
    out.push_str(if text.italic { " font-style=\"italic\"" } else { "" });
    // The text has the same width in any face of the viewer.
    attribute(out, "textLength", text.width);
    out.push_str(" lengthAdjust=\"spacingAndGlyphs\"");
    paint(out, "fill", text.color);
    out.push('>');
    escape(out, &text.text);
    out.push_str("</text>\n");
}

fn attribute(out: &mut String, name: &str, value: f32) {
    out.push(' ');
    out.push_str(name);
    out.push_str("=\"");
    number(out, value);
    out.push('"');
}

fn paint(out: &mut String, what: &str, color: Color) {
    let Color { red, green, blue, .. } = color;
    out.push_str(&format!(" {what}=\"#{red:02x}{green:02x}{blue:02x}\""));
    if color.opacity() < 1.0 {
        attribute(out, if what == "fill" { "fill-opacity" } else { "stroke-opacity" }, color.opacity());
    }
}

/// A number to a hundredth, as short as possible.
fn number(out: &mut String, value: f32) {
    let hundredths = (f64::from(value) * 100.0).round() as i64;
    if hundredths < 0 {
        out.push('-');
    }
    let (whole, part) = (hundredths.unsigned_abs() / 100, hundredths.unsigned_abs() % 100);
    let digits = |out: &mut String, value: u64| {
        let mut place = 1;
        while value / place >= 10 {
            place *= 10;
        }
        while place > 0 {
            out.push(char::from(b'0' + (value / place % 10) as u8));
            place /= 10;
        }
    };
    digits(out, whole);
    if part > 0 {
        out.push('.');
        if part < 10 {
            out.push('0');
        }
        digits(out, if part % 10 == 0 { part / 10 } else { part });
    }
}

/// Text as XML has it; characters that XML does not allow are left out.
fn escape(out: &mut String, text: &str) {
    for char in text.chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\t' => out.push(' '),
            '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}' => {}
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (-0.001, "0"),
            (1.5, "1.5"),
            (-12.34, "-12.34"),
            (0.05, "0.05"),
            (100.0, "100"),
            (1e4 + 0.5, "10000.5"),
        ] {
            let mut out = String::new();
            number(&mut out, value);
            assert_eq!(out, text);
        }
    }

    #[test]
    fn text_cannot_become_markup() {
        let mut out = String::new();
        escape(&mut out, "<script>\u{0}&\"\u{1b}</script>");
        assert_eq!(out, "&lt;script&gt;&amp;&quot;&lt;/script&gt;");
    }
}
