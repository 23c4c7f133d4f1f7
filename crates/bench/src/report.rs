//! Output: Markdown tables with aligned columns, or JSON.

use serde::Serialize;

/// Prints JSON, for programs.
pub(crate) fn print_json(report: &impl Serialize) {
    // Our reports are structs of numbers and texts, which always have a JSON form.
    println!("{}", serde_json::to_string_pretty(report).expect("a report has a JSON form"));
}

/// A table with aligned columns, all but the first to the right. Each row must have as many cells as the head.
pub(crate) fn table(head: &[String], rows: &[Vec<String>]) -> String {
    let widths: Vec<usize> = (0..head.len())
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column)).chain(head.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0).max(3)
        })
        .collect();
    let mut out = line(head, &widths);
    let rule: Vec<String> = widths
        .iter()
        .enumerate()
        .map(|(column, width)| if column == 0 { "-".repeat(*width) } else { format!("{}:", "-".repeat(width - 1)) })
        .collect();
    out.push_str(&line(&rule, &widths));
    for row in rows {
        out.push_str(&line(row, &widths));
    }
    out
}

/// A row of a table.
pub(crate) fn row<const CELLS: usize>(cells: [&str; CELLS]) -> Vec<String> {
    cells.map(str::to_owned).into()
}

fn line(cells: &[String], widths: &[usize]) -> String {
    let mut out = String::from("|");
    for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
        out.push_str(&if column == 0 { format!(" {cell:<width$} |") } else { format!(" {cell:>width$} |") });
    }
    out.push('\n');
    out
}

/// A number with three significant digits, and groups of thousands where it is large.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    if 1_000.0 <= size {
        let digits = format!("{:.0}", size);
        let mut out = String::from(if value < 0.0 { "-" } else { "" });
        for (place, digit) in digits.chars().enumerate() {
            if place != 0 && (digits.len() - place).is_multiple_of(3) {
                out.push(',');
            }
            out.push(digit);
        }
        out
    } else if 100.0 <= size || size == 0.0 {
        format!("{value:.0}")
    } else if 10.0 <= size {
        format!("{value:.1}")
    } else if 1.0 <= size {
        format!("{value:.2}")
    } else {
        format!("{value:.3}")
    }
}

/// A number, or a dash when it was not measured.
pub(crate) fn optional(value: Option<f64>) -> String {
    value.map_or_else(|| "–".into(), number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_about_three_digits() {
        let shown = [1_234_567.8, 999.6, 45.67, 1.234, 0.12345, 0.0, -2_500.0].map(number);
        assert_eq!(shown, ["1,234,568", "1000", "45.7", "1.23", "0.123", "0", "-2,500"]);
    }

    #[test]
    fn tables_are_markdown() {
        let shown = table(&row(["what", "n"]), &[row(["a", "1"]), row(["longer", "1000"])]);
        let expected = "| what   |    n |\n| ------ | ---: |\n| a      |    1 |\n| longer | 1000 |\n";
        assert_eq!(shown, expected);
    }
}
