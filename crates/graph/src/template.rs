//! The templates of graphite-web's `graphTemplates.conf.example`.

use crate::color::Color;

/// The colours of parts for which the request has none.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Template {
    pub background: Color,
    pub foreground: Color,
    pub major_line: Color,
    pub minor_line: Color,
    pub lines: Vec<Color>,
}

/// A row of the table. Empty fields are as in `default`.
struct Row {
    name: &'static str,
    background: &'static str,
    foreground: &'static str,
    major_line: &'static str,
    minor_line: &'static str,
    lines: &'static str,
}

/// Rows where only the lines differ from `default`.
const fn lines(name: &'static str, lines: &'static str) -> Row {
    Row { name, background: "", foreground: "", major_line: "", minor_line: "", lines }
}

const DEFAULT: Row = Row {
    name: "default",
    background: "white",
    foreground: "black",
    major_line: "rose",
    minor_line: "grey",
    lines: "blue,green,red,purple,brown,yellow,aqua,grey,magenta,pink,gold,rose",
};

const SOLARIZED: &str = "268bd2aa,859900aa,dc322faa,d33682aa,db4b16aa,b58900aa,2aa198aa,6c71c4aa";

const ROWS: [Row; 18] = [
    DEFAULT,
    Row {
        name: "solarized-light",
        background: "#fdf6e3",
        foreground: "#657b83",
        major_line: "#073642",
        minor_line: "#586e75",
        lines: SOLARIZED,
    },
    Row {
        name: "solarized-dark",
        background: "#002b36",
        foreground: "#839496",
        major_line: "#fdf6e3",
        minor_line: "#eee8d5",
        lines: SOLARIZED,
    },
    Row { background: "black", foreground: "white", major_line: "white", ..lines("classic", "") },
    Row {
        background: "black",
        foreground: "white",
        major_line: "white",
        ..lines("noc", "blue,green,red,yellow,purple,brown,aqua,grey,magenta,pink,gold,rose")
    },
    // Black on black in graphite-web: it has no foreground. `Look` takes a readable one.
    Row { background: "black", ..lines("summary", "#6666ff,#66ff66,#ff6666") },
    Row { major_line: "grey", minor_line: "rose", ..lines("alphas", "00ff00aa,ff000077,00337799") },
    lines("grafana", "#7eb26d,#eab839,#6ed0e0,#ef843c,#e24d42,#1f78c1,#ba43a9,#705da0,#508642,#cca300,#447ebc"),
    lines("ocean1", "f7fcf0,e0f3db,ccebc5,a8ddb5,7bccc4,4eb3d3,2b8cbe,0868ac,084081"),
    lines("ocean2", "084081,0868ac,2b8cbe,4eb3d3,7bccc4,a8ddb5,ccebc5,e0f3db,f7fcf0"),
    lines("forest1", "f7fcf5,e5f5e0,c7e9c0,a1d99b,74c476,41ab5d,238b45,005a32"),
    lines("forest2", "005a32,238b45,41ab5d,74c476,a1d99b,c7e9c0,e5f5e0,f7fcf5"),
    lines("sunset1", "fff5eb,fee6ce,fdd0a2,fdae6b,fd8d3c,f16913,d94801,8c2d04"),
    lines("sunset2", "8c2d04,d94801,f16913,fd8d3c,fdae6b,fdd0a2,fee6ce,fff5eb"),
    lines("moonlight1", "fcfbfd,efedf5,dadaeb,bcbddc,9e9ac8,807dba,6a51a3,4a1486"),
    lines("moonlight2", "4a1486,6a51a3,807dba,9e9ac8,bcbddc,dadaeb,efedf5,fcfbfd"),
    lines("lava1", "fff5f0,fee0d2,fcbba1,fc9272,fb6a4a,ef3b2c,cb181d,99000d"),
    lines("lava2", "99000d,cb181d,ef3b2c,fb6a4a,fc9272,fcbba1,fee0d2,fff5f0"),
];

impl Template {
    /// The template of a name; `default` for an unknown name, as in graphite-web.
    pub fn named(name: &str) -> Template {
        let row = ROWS.iter().find(|row| row.name == name).unwrap_or(&DEFAULT);
        let color = |text: &str, default: &str| {
            let text = if text.is_empty() { default } else { text };
            Color::parse(text).expect("the table holds colours")
        };
        let lines = if row.lines.is_empty() { DEFAULT.lines } else { row.lines };
        Template {
            background: color(row.background, DEFAULT.background),
            foreground: color(row.foreground, DEFAULT.foreground),
            major_line: color(row.major_line, DEFAULT.major_line),
            minor_line: color(row.minor_line, DEFAULT.minor_line),
            lines: lines.split(',').map(|text| color(text, "")).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_template_is_there_under_its_name_and_can_be_read() {
        for row in &ROWS {
            assert!(!row.name.is_empty(), "a row without a name");
            assert!(!Template::named(row.name).lines.is_empty(), "{}", row.name);
        }
        assert_ne!(Template::named("noc"), Template::named("default"));
        assert_eq!(Template::named("plain"), Template::named("default"));
    }
}
