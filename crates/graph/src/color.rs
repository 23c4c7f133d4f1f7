//! Colours: graphite-web's names, and the digits of HTML.

use crate::error::Error;

/// Red, green, blue, and how opaque.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Color {
    pub red: u8,
    pub green: u8,
    pub blue: u8,
    /// 0 to 1; `None` where the text does not define it; then the painter decides.
    pub alpha: Option<f32>,
}

/// graphite-web's own names (`colorAliases`), different from a browser's colours of these names.
const NAMES: [(&str, [u8; 3]); 22] = [
    ("black", [0, 0, 0]),
    ("white", [255, 255, 255]),
    ("blue", [100, 100, 255]),
    ("green", [0, 200, 0]),
    ("red", [200, 0, 50]),
    ("yellow", [255, 255, 0]),
    ("orange", [255, 165, 0]),
    ("purple", [200, 100, 255]),
    ("brown", [150, 100, 50]),
    ("cyan", [0, 255, 255]),
    ("aqua", [0, 150, 150]),
    ("gray", [175, 175, 175]),
    ("grey", [175, 175, 175]),
    ("magenta", [255, 0, 255]),
    ("pink", [255, 100, 100]),
    ("gold", [200, 200, 0]),
    ("rose", [200, 150, 200]),
    ("darkblue", [0, 0, 255]),
    ("darkgreen", [0, 255, 0]),
    ("darkred", [255, 0, 0]),
    ("darkgray", [111, 111, 111]),
    ("darkgrey", [111, 111, 111]),
];

impl Color {
    pub const BLACK: Color = Color::of([0, 0, 0]);
    pub const WHITE: Color = Color::of([255, 255, 255]);

    const fn of([red, green, blue]: [u8; 3]) -> Color {
        Color { red, green, blue, alpha: None }
    }

    /// Reads a name, `rrggbb` or `rrggbbaa`, with or without `#` before it. More digits are ignored, as in
    /// graphite-web, where only a colour of exactly eight digits defines its opacity.
    pub fn parse(text: &str) -> Option<Color> {
        let text = text.trim();
        if let Some((_, rgb)) = NAMES.iter().find(|(name, _)| *name == text) {
            return Some(Color::of(*rgb));
        }
        let digits = text.strip_prefix('#').unwrap_or(text);
        let digits = digits.strip_prefix("%23").unwrap_or(digits);
        let byte = |at: usize| {
            let pair = digits.get(at..at + 2)?;
            pair.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u8::from_str_radix(pair, 16).ok())?
        };
        let mut color = Color::of([byte(0)?, byte(2)?, byte(4)?]);
        if digits.len() == 8 {
            color.alpha = Some(f32::from(byte(6)?) / 255.0);
        }
        Some(color)
    }

    /// Reads the colour that a parameter or function gives.
    pub fn read(param: &'static str, text: &str) -> Result<Color, Error> {
        let expected = "a colour: a name such as red or darkgrey, or digits such as ff8800 or #ff880080";
        Color::parse(text).ok_or_else(|| Error::option(param, text, expected))
    }

    /// Its opacity, 1 where undefined.
    pub fn opacity(self) -> f32 {
        self.alpha.unwrap_or(1.0)
    }

    /// The same colour with this opacity, unless the text of the colour defines one.
    pub fn or_alpha(self, alpha: f32) -> Color {
        Color { alpha: Some(self.alpha.unwrap_or(alpha)), ..self }
    }

    /// The same colour with its opacity times `share`.
    pub fn faded(self, share: f32) -> Color {
        Color { alpha: Some(self.opacity() * share), ..self }
    }

    /// The brightness, 0 to 1, by the weights of sRGB.
    fn brightness(self) -> f32 {
        (0.299 * f32::from(self.red) + 0.587 * f32::from(self.green) + 0.114 * f32::from(self.blue)) / 255.0
    }

    /// Whether text in this colour can be read on a ground of that.
    pub fn is_legible_on(self, ground: Color) -> bool {
        (self.brightness() - ground.brightness()).abs() > 0.25
    }

    /// Black or white: the one that is easier to read on a ground of this colour.
    pub fn contrary(self) -> Color {
        // A transparent ground is mostly on a light page.
        if self.brightness() > 0.5 || self.opacity() < 0.5 { Color::BLACK } else { Color::WHITE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_color_is_a_name_of_graphites_or_digits() {
        assert_eq!(Color::parse("blue"), Some(Color::of([100, 100, 255])));
        for text in ["ff8000", "#ff8000", "%23ff8000", "FF8000", "ff80001"] {
            assert_eq!(Color::parse(text), Some(Color::of([255, 128, 0])), "{text}");
        }
        assert_eq!(Color::parse("#ff800080").and_then(|color| color.alpha), Some(128.0 / 255.0));
        for text in ["", "ff", "fff", "zzzzzz", "+f+f+f", "ff800ö", "navy", "日本語"] {
            assert_eq!(Color::parse(text), None, "{text}");
        }
    }
}
