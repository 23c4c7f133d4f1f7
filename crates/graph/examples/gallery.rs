//! Draws graphs of every kind into a folder, for the eye: `cargo run -p graph --example gallery -- FOLDER`.
//! With `--time` it draws one graph many times and says how long each takes.

use std::{path::Path, sync::Arc, time::Instant};

use graph::{Fold, Options, Series, Slice, Style, line_graph, pie_graph};
use jiff::tz::TimeZone;

/// 2026-11-20 12:00:00 UTC.
const START: i64 = 1_795_176_000;

/// A wavy series, different for each number, with a gap in every third.
fn wave(number: usize, points: usize, step: i64, level: f64) -> Series {
    let mut state = number as u64 * 7919 + 17;
    let mut noise = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as f64 / (1u64 << 31) as f64
    };
    let value = |index: usize| {
        let turn = index as f64 / points as f64 * 12.0 + number as f64;
        let value = level * (number as f64 + 2.0 + turn.sin() * 0.7 + noise() * 0.3);
        let in_gap = number % 3 == 2 && (points / 3..points / 3 + points / 12).contains(&index);
        if in_gap { f64::NAN } else { value }
    };
    let values: Vec<f64> = (0..points).map(value).collect();
    Series {
        name: format!("collectd.host{number:02}.load.shortterm").into(),
        start: START,
        end: START + points as i64 * step,
        step,
        values: Arc::new(values),
        fold: Fold::Average,
        x_files_factor: 0.0,
        style: Style::default(),
    }
}

fn waves(count: usize, points: usize, step: i64, level: f64) -> Vec<Series> {
    (0..count).map(|number| wave(number, points, step, level)).collect()
}

fn styled(mut series: Series, style: Style) -> Series {
    series.style = style;
    series
}

fn options(query: &str) -> Options {
    let pairs: Vec<(&str, &str)> = query.split('&').filter_map(|pair| pair.split_once('=')).collect();
    let value = |name: &str| pairs.iter().rev().find(|(known, _)| *known == name).map(|(_, value)| *value);
    Options::read(&value).expect("the gallery asks for what there is")
}

/// Name, parameters, series.
fn line_graphs() -> Vec<(&'static str, &'static str, Vec<Series>)> {
    let second = |series| styled(series, Style { second_axis: true, ..Style::default() });
    let mut two = waves(3, 1440, 60, 10.0);
    two.push(second(wave(7, 1440, 60, 1e6)));
    let mut long = waves(8, 300, 60, 1.0);
    for series in &mut long {
        series.name =
            format!("averageSeries(collectd.frankfurt.rack12.*.{}.cpu.total.user.percent-active)", series.name).into();
    }
    let between = vec![
        styled(wave(1, 300, 60, 1.0), Style { stacked: true, invisible: true, ..Style::default() }),
        styled(wave(4, 300, 60, 1.0), Style { stacked: true, ..Style::default() }),
        styled(wave(2, 300, 60, 1.5), Style { color: Some("red".to_owned()), dashed: Some(5.0), ..Style::default() }),
    ];
    let mut events = waves(2, 300, 60, 1.0);
    let marks = (0..300).map(|index| if index % 70 == 35 { 1.0 } else { f64::NAN }).collect();
    let mut mark = wave(9, 300, 60, 1.0);
    mark.values = Arc::new(marks);
    mark.style = Style { infinite: true, color: Some("darkgrey".to_owned()), dashed: Some(3.0), ..Style::default() };
    events.push(mark);
    let mut signed = waves(2, 300, 60, 1.0);
    for (series, sign) in signed.iter_mut().zip([1.0, -1.0]) {
        series.values = Arc::new(series.values.iter().map(|value| value * sign).collect());
    }
    vec![
        ("plain", "", waves(3, 1440, 60, 10.0)),
        ("one", "title=Requests a second", waves(1, 60, 60, 1234.0)),
        ("ten", "width=586&height=308&title=Load&vtitle=runnable tasks", waves(10, 1440, 60, 1.0)),
        ("many", "width=586&height=308&hideLegend=false", waves(40, 1440, 60, 1.0)),
        ("stacked", "width=586&height=308&areaMode=stacked&title=Stacked", waves(6, 1440, 60, 1e9)),
        (
            "stacked-alpha",
            "width=586&height=308&areaMode=stacked&areaAlpha=0.4&template=solarized-light",
            waves(6, 1440, 60, 1.0),
        ),
        (
            "all-alpha",
            "width=586&height=308&areaMode=all&areaAlpha=0.3&lineWidth=2&template=grafana",
            waves(4, 1440, 60, 1.0),
        ),
        ("first", "areaMode=first", waves(3, 300, 60, 1.0)),
        ("signed", "areaMode=all", signed),
        ("between", "width=586&height=308", between),
        ("events", "", events),
        ("noc", "width=586&height=308&template=noc&title=Night&lineWidth=2", waves(5, 1440, 60, 1.0)),
        ("dark", "width=586&height=308&template=solarized-dark&vtitle=percent&yMin=0", waves(5, 10080, 60, 1.0)),
        ("summary", "template=summary", waves(3, 300, 60, 1.0)),
        (
            "axes",
            "width=586&height=308&vtitle=left&vtitleRight=bytes a second&rightDashed=true&yUnitSystem=binary&title=Two axes",
            two.clone(),
        ),
        ("axes-small", "", two),
        ("right", "yAxisSide=right&bgcolor=222222", waves(2, 300, 60, 1.0)),
        ("long", "width=400&height=300", long.clone()),
        ("long-wide", "width=1200&height=400", long),
        ("staircase", "lineMode=staircase&lineWidth=2", waves(2, 24, 3600, 1.0)),
        ("log", "logBase=10&minorY=8", vec![wave(0, 300, 60, 1.0), wave(1, 300, 60, 1000.0)]),
        ("tiny", "width=60&height=40", waves(3, 1440, 60, 10.0)),
        ("small", "width=120&height=80", waves(3, 1440, 60, 10.0)),
        ("spark", "width=150&height=30&graphOnly=true&bgcolor=ffffff00&lineWidth=1", waves(1, 1440, 60, 10.0)),
        ("big", "width=1600&height=900&fontSize=14&title=A wall&areaMode=none&lineWidth=2", waves(10, 10080, 60, 1e6)),
        ("minutes", "", waves(2, 30, 10, 1.0)),
        ("year", "width=800", waves(2, 365, 86400, 1.0)),
        ("decade", "", waves(2, 3650, 86400, 1.0)),
        ("font", "fontSize=16&fontBold=true&fontItalic=true&title=Größe Ωж", waves(2, 300, 60, 1.0)),
        ("no-data", "", Vec::new()),
    ]
}

fn save(folder: &Path, name: &str, picture: &graph::Picture) {
    let png = picture.png(&|| false).expect("it is drawn");
    let svg = picture.svg(1 << 30, &|| false).expect("it is written");
    println!("{name}: png {} bytes, svg {} bytes", png.len(), svg.len());
    std::fs::write(folder.join(format!("{name}.png")), png).expect("the folder can be written");
    std::fs::write(folder.join(format!("{name}.svg")), svg).expect("the folder can be written");
}

fn main() {
    let folder = std::env::args().nth(1).expect("a folder, or --time");
    if folder == "--time" {
        for (name, query) in
            [("330x250", ""), ("586x308", "width=586&height=308"), ("1600x900", "width=1600&height=900")]
        {
            let series = waves(10, 1440, 60, 1.0);
            let options = options(query);
            let mut times: Vec<[f64; 3]> = (0..50)
                .map(|_| {
                    let begin = Instant::now();
                    let picture = line_graph(&options, &series, &TimeZone::UTC, &|| false).expect("it is laid out");
                    let laid_out = begin.elapsed();
                    let svg = picture.svg(1 << 30, &|| false).expect("it is written");
                    let written = begin.elapsed();
                    let png = picture.png(&|| false).expect("it is drawn");
                    std::hint::black_box((svg, png));
                    [laid_out, written - laid_out, begin.elapsed() - written].map(|time| time.as_secs_f64() * 1e3)
                })
                .collect();
            times.sort_by(|a, b| a[2].total_cmp(&b[2]));
            let [layout, svg, png] = times[25];
            println!("{name}, 10 series of 1440: layout {layout:.2} ms, svg {svg:.2} ms, png {png:.2} ms");
        }
        return;
    }
    let folder = Path::new(&folder);
    for (name, query, series) in line_graphs() {
        let picture = line_graph(&options(query), &series, &TimeZone::UTC, &|| false).expect("it is laid out");
        save(folder, name, &picture);
    }
    let slices: Vec<Slice> = [40.0, 25.0, 20.0, 10.5, 4.5]
        .iter()
        .enumerate()
        .map(|(index, value)| Slice { name: format!("disk{index}.used"), value: *value })
        .collect();
    for (name, query) in [
        ("pie", "title=Disks"),
        ("pie-rotated", "pieLabels=rotated&valueLabels=number&template=grafana"),
        ("pie-tiny", "width=60&height=40"),
    ] {
        save(folder, name, &pie_graph(&options(query), &slices, &|| false).expect("it is laid out"));
    }
}
