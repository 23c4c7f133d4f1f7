//! The legend: names with their colours below the picture, in columns.

use std::collections::HashSet;

use crate::{
    color::Color,
    face::Face,
    options::Font,
    scene::{Anchor, Scene, Text},
};

/// A name in the legend.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub name: String,
    pub color: Color,
    /// Whether it belongs to the right axis; then it is at the right.
    pub right: bool,
}

/// Entries with their positions.
pub(crate) struct Legend {
    places: Vec<Place>,
    // Entries for which there was no row; a last row counts them.
    left_out: usize,
    rows: usize,
    row_height: f32,
    swatch: f32,
}

/// An entry with its position.
struct Place {
    entry: Entry,
    row: usize,
    /// Pixels from the left edge, or from the right edge for an entry at the right.
    shift: f32,
}

/// Pixels between a swatch and its name, and between columns.
const GAP: f32 = 5.0;
const COLUMN_GAP: f32 = 14.0;

/// Pixels between the picture and its legend.
const ABOVE: f32 = 8.0;

impl Legend {
    /// Lays out entries in `width` pixels and at most `height`; names that are too long are shortened. `None` where
    /// there are no entries, or there is no room for a row.
    pub fn new(mut entries: Vec<Entry>, unique: bool, face: &Face, width: f32, height: f32) -> Option<Legend> {
        if unique {
            let mut known = HashSet::new();
            entries.retain(|entry| known.insert(entry.name.clone()));
        }
        let row_height = face.heights().line + 2.0;
        let most_rows = ((height - ABOVE) / row_height).floor();
        if entries.is_empty() || most_rows < 1.0 || width < 24.0 {
            return None;
        }
        let swatch = (face.heights().capital + 1.0).max(4.0);
        let room = width - swatch - GAP;
        let longest = entries.iter().map(|entry| face.width(&entry.name)).fold(0.0, f32::max).min(room);
        let needed = swatch + GAP + longest.ceil();
        let columns = (((width + COLUMN_GAP) / (needed + COLUMN_GAP)).floor() as usize).max(1);
        let (right, left): (Vec<Entry>, Vec<Entry>) = entries.into_iter().partition(|entry| entry.right);
        // Each axis has half of the columns on its side, or both share the only one.
        let two_sided = !right.is_empty() && !left.is_empty() && columns > 1;
        let columns = if two_sided { columns / 2 } else { columns };
        let below = if two_sided { 0 } else { left.len().div_ceil(columns) };
        let place = |(index, entry): (usize, Entry), first_row: usize| Place {
            row: first_row + index / columns,
            shift: (index % columns) as f32 * (needed + COLUMN_GAP),
            entry: Entry { name: face.shortened(&entry.name, room), ..entry },
        };
        let mut places: Vec<Place> = left.into_iter().enumerate().map(|each| place(each, 0)).collect();
        places.extend(right.into_iter().enumerate().map(|each| place(each, below)));
        let all = places.len();
        let mut rows = places.iter().map(|place| place.row + 1).max().unwrap_or(1);
        if rows as f32 > most_rows {
            rows = most_rows as usize;
            places.retain(|place| place.row + 1 < rows);
        }
        Some(Legend { left_out: all - places.len(), places, rows, row_height, swatch })
    }

    /// The height, pixels, with the gap above it.
    pub fn height(&self) -> f32 {
        ABOVE + self.rows as f32 * self.row_height
    }

    /// Draws it with its gap beginning at `top`, from `left` to `right`.
    pub fn draw(&self, scene: &mut Scene, face: &Face, font: &Font, color: Color, (top, left, right): (f32, f32, f32)) {
        scene.part("legend");
        let capital = face.heights().capital;
        let row_top = |row: usize| (top + ABOVE + row as f32 * self.row_height).round();
        let line = |scene: &mut Scene, text: &str, x: f32, row: usize, anchor: Anchor, color: Color| {
            scene.text(Text {
                width: face.width(text),
                text: text.to_owned(),
                x,
                y: row_top(row) + ((self.swatch + capital) / 2.0).round(),
                anchor,
                size: font.size,
                bold: font.bold,
                italic: font.italic,
                rotation: 0.0,
                color,
            });
        };
        for Place { entry, row, shift } in &self.places {
            let (swatch_left, text_x, anchor) = if entry.right {
                let x = right - shift;
                (x - self.swatch, x - self.swatch - GAP, Anchor::End)
            } else {
                let x = left + shift;
                (x, x + self.swatch + GAP, Anchor::Start)
            };
            scene.rectangle(swatch_left.round(), row_top(*row), self.swatch, self.swatch, entry.color);
            line(scene, &entry.name, text_x, *row, anchor, color);
        }
        if self.left_out > 0 {
            let text = match self.places.len() {
                0 => format!("{} series", self.left_out),
                _ => format!("and {} more", self.left_out),
            };
            line(scene, &text, left, self.rows.saturating_sub(1), Anchor::Start, color);
        }
    }
}
