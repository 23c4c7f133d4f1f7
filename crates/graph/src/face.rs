//! The built-in type face: the widths and outlines of texts.

use std::collections::HashMap;

use skrifa::{
    FontRef, GlyphId, MetadataProvider,
    charmap::Charmap,
    instance::{LocationRef, Size},
    metrics::GlyphMetrics,
    outline::{DrawSettings, Engine, HintingInstance, HintingOptions, OutlinePen, SmoothMode, Target},
};
use tiny_skia::{Path, PathBuilder, Transform};

static REGULAR: &[u8] = include_bytes!("../fonts/Roboto-Regular.ttf");
static BOLD: &[u8] = include_bytes!("../fonts/Roboto-Bold.ttf");

/// The name of the face, for SVG.
pub(crate) const NAME: &str = "Roboto";

/// A face at a size.
pub(crate) struct Face {
    font: FontRef<'static>,
    charmap: Charmap<'static>,
    metrics: GlyphMetrics<'static>,
    size: f32,
    italic: bool,
    // Outlines drawn before: the same letters come again and again.
    outlines: HashMap<GlyphId, Option<Path>>,
    // Fits outlines to whole rows of pixels, so that small text is sharp.
    hinting: Option<HintingInstance>,
}

/// Heights of a face, pixels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Heights {
    /// The height of a capital above the base line.
    pub capital: f32,
    /// The distance from a base line to the next.
    pub line: f32,
}

impl Face {
    /// The regular or bold face at a size in pixels.
    pub fn new(size: f32, bold: bool, italic: bool) -> Face {
        let bytes = if bold { BOLD } else { REGULAR };
        let font = FontRef::new(bytes).expect("the font is built in");
        let metrics = font.glyph_metrics(Size::new(size), LocationRef::default());
        Face { charmap: font.charmap(), metrics, font, size, italic, outlines: HashMap::new(), hinting: None }
    }

    /// The same face, made ready to give outlines that are fitted to pixels.
    pub fn fitted(mut self) -> Face {
        let target =
            Target::Smooth { mode: SmoothMode::Light, symmetric_rendering: true, preserve_linear_metrics: true };
        let options = HintingOptions { engine: Engine::Auto(None), target };
        let outlines = self.font.outline_glyphs();
        self.hinting = HintingInstance::new(&outlines, Size::new(self.size), LocationRef::default(), options).ok();
        self
    }

    /// Heights at this size.
    pub fn heights(&self) -> Heights {
        Heights { capital: (self.size * 0.711).round(), line: (self.size * 1.32).round() }
    }

    /// Pixels across.
    pub fn width(&self, text: &str) -> f32 {
        text.chars().map(|char| self.advance(char, self.glyph(char))).sum()
    }

    /// The text with its middle left out where it is wider than `width`: both ends of a metric's name tell it apart.
    pub fn shortened(&self, text: &str, width: f32) -> String {
        if self.width(text) <= width {
            return text.to_owned();
        }
        let advances: Vec<(char, f32)> =
            text.chars().map(|char| (char, self.advance(char, self.glyph(char)))).collect();
        let mut room = width - self.width("…");
        let (mut head, mut tail) = (0, advances.len());
        while head < tail {
            let front = head <= advances.len() - tail;
            let at = if front { head } else { tail - 1 };
            room -= advances.get(at).map_or(0.0, |(_, advance)| *advance);
            if room < 0.0 {
                break;
            }
            if front { head += 1 } else { tail -= 1 }
        }
        if head == 0 {
            return String::new();
        }
        let chars = |part: &[(char, f32)]| part.iter().map(|(char, _)| *char).collect::<String>();
        format!("{}…{}", chars(&advances[..head]), chars(&advances[tail..]))
    }

    /// The outline of a text that begins at (0, 0) on its base line; `None` for one without ink.
    pub fn outline(&mut self, text: &str) -> Option<Path> {
        let mut path = PathBuilder::new();
        let mut x = 0.0;
        for char in text.chars() {
            let glyph = self.glyph(char);
            if !self.outlines.contains_key(&glyph) {
                let outline = self.glyph_outline(glyph);
                self.outlines.insert(glyph, outline);
            }
            if let Some(Some(outline)) = self.outlines.get(&glyph)
                && let Some(moved) = outline.clone().transform(Transform::from_translate(x, 0.0))
            {
                path.push_path(&moved);
            }
            x += self.advance(char, glyph);
        }
        path.finish()
    }

    /// The outline of a glyph; `None` for one without ink.
    fn glyph_outline(&self, glyph: GlyphId) -> Option<Path> {
        let outline = self.font.outline_glyphs().get(glyph)?;
        let settings = match &self.hinting {
            Some(hinting) => DrawSettings::hinted(hinting, false),
            None => DrawSettings::unhinted(Size::new(self.size), LocationRef::default()),
        };
        let mut pen = Pen { path: PathBuilder::new(), slant: if self.italic { 0.2 } else { 0.0 } };
        // A glyph of the built-in font without an outline is left blank.
        outline.draw(settings, &mut pen).ok()?;
        pen.path.finish()
    }

    fn glyph(&self, char: char) -> GlyphId {
        self.charmap.map(char).unwrap_or_default()
    }

    fn advance(&self, char: char, glyph: GlyphId) -> f32 {
        let unknown = glyph == GlyphId::default();
        // Chinese, Japanese and Korean signs are as wide as high wherever they are drawn.
        if unknown && '\u{2e80}' <= char {
            return self.size;
        }
        self.metrics.advance_width(glyph).unwrap_or(0.0)
    }
}

/// Gathers outlines, up turned to down.
struct Pen {
    path: PathBuilder,
    slant: f32,
}

impl Pen {
    fn at(&self, x: f32, y: f32) -> (f32, f32) {
        (x + y * self.slant, -y)
    }
}

impl OutlinePen for Pen {
    fn move_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.at(x, y);
        self.path.move_to(x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.at(x, y);
        self.path.line_to(x, y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        let ((x1, y1), (x, y)) = (self.at(x1, y1), self.at(x, y));
        self.path.quad_to(x1, y1, x, y);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        let ((x1, y1), (x2, y2), (x, y)) = (self.at(x1, y1), self.at(x2, y2), self.at(x, y));
        self.path.cubic_to(x1, y1, x2, y2, x, y);
    }

    fn close(&mut self) {
        self.path.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_keeps_both_its_ends() {
        let face = Face::new(10.0, false, false);
        let name = "collectd.frankfurt.rack12.host0042.cpu.user.percent";
        let short = face.shortened(name, 120.0);
        assert!(face.width(&short) <= 120.0, "{short}");
        assert!(short.starts_with("collectd") && short.ends_with("percent"), "{short}");
        assert_eq!(face.shortened("short", 120.0), "short");
        assert_eq!(face.shortened(name, 2.0), "");
    }

    #[test]
    fn what_the_font_lacks_still_has_a_width() {
        let mut face = Face::new(10.0, true, true).fitted();
        assert_eq!(face.width("日本"), 20.0);
        assert!(face.outline("日本 ж Ω é").is_some());
        assert!(face.outline(" ").is_none());
    }
}
