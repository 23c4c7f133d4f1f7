//! Whole graphs: their contents in SVG, and that PNG shows the same.

use std::sync::Arc;

use expect_test::{Expect, expect};
use graph::{Error, Fold, Options, Series, Slice, Style, line_graph, pie_graph};
use jiff::tz::TimeZone;

/// 2026-11-20 12:00:00 UTC, a Friday.
const START: i64 = 1_795_176_000;

fn series(name: &str, step: i64, values: Vec<f64>) -> Series {
    Series {
        name: name.into(),
        start: START,
        end: START + step * values.len() as i64,
        step,
        values: Arc::new(values),
        fold: Fold::Average,
        x_files_factor: 0.0,
        style: Style::default(),
    }
}

fn ramp(name: &str, count: usize) -> Series {
    series(name, 60, (0..count).map(|index| index as f64).collect())
}

fn options(query: &str) -> Result<Options, Error> {
    let pairs: Vec<(&str, &str)> = query.split('&').filter_map(|pair| pair.split_once('=')).collect();
    let value = |name: &str| pairs.iter().rev().find(|(known, _)| *known == name).map(|(_, value)| *value);
    Options::read(&value)
}

fn try_svg(query: &str, series: &[Series]) -> Result<String, Error> {
    line_graph(&options(query)?, series, &TimeZone::UTC, &|| false)?.svg(1 << 24, &|| false)
}

fn svg(query: &str, series: &[Series]) -> String {
    try_svg(query, series).unwrap_or_else(|error| panic!("{query}: {error}"))
}

/// The items of a part of a picture, a line each.
fn part<'a>(svg: &'a str, name: &str) -> Vec<&'a str> {
    let begin = format!("<g class=\"{name}\">");
    svg.lines().skip_while(|line| *line != begin).skip(1).take_while(|line| *line != "</g>").collect()
}

/// An attribute of an item.
fn attribute<'a>(item: &'a str, name: &str) -> &'a str {
    let begin = format!(" {name}=\"");
    item.split_once(begin.as_str()).and_then(|(_, rest)| rest.split_once('"')).map_or("", |(value, _)| value)
}

/// The text of an item.
fn text(item: &str) -> &str {
    item.split_once('>').and_then(|(_, rest)| rest.split_once("</text>")).map_or("", |(text, _)| text)
}

/// The texts of a part whose anchor is of that kind.
fn texts<'a>(svg: &'a str, name: &str, anchor: &str) -> Vec<&'a str> {
    let items = part(svg, name).into_iter();
    items.filter(|item| item.starts_with("<text") && attribute(item, "text-anchor") == anchor).map(text).collect()
}

/// Colours of the paths of a part, by what they are painted with.
fn colors<'a>(svg: &'a str, name: &str, paint: &str) -> Vec<&'a str> {
    let items = part(svg, name).into_iter();
    items.filter(|item| item.starts_with("<path")).map(|item| attribute(item, paint)).collect()
}

#[test]
fn a_graph_is_labelled_as_graphite_web_labels_it() {
    let mut lines =
        include_str!("axes.txt").lines().filter(|line| line.starts_with("graph") || line.starts_with("shows"));
    let mut compared = 0;
    while let (Some(asked), Some(shown)) = (lines.next(), lines.next()) {
        let asked: Vec<&str> = asked.split('\t').collect();
        let ["graph", query, start, step, values @ ..] = &asked[..] else { panic!("{asked:?}") };
        let shown: Vec<&str> = shown.split('\t').skip(2).collect();
        let (values_shown, times_shown) = shown.split_at(shown.iter().position(|word| *word == "/").unwrap());
        let values = values.iter().map(|value| value.parse().unwrap()).collect();
        let series = Series { start: start.parse().unwrap(), ..series("a", step.parse().unwrap(), values) };
        let query = query.replace("%25", "%");
        let svg = svg(&query, &[Series { end: series.start + series.step * series.values.len() as i64, ..series }]);
        assert_eq!(texts(&svg, "axes", "end"), values_shown, "{query}");
        // Where graphite-web's labels would overlap, some are left out here.
        let times = texts(&svg, "axes", "middle");
        assert!(
            !times.is_empty() && times.iter().all(|time| times_shown.contains(time)),
            "{query}: {times:?} of {times_shown:?}"
        );
        compared += 1;
    }
    assert!(compared > 30, "the recording was not found");
}

#[test]
fn a_graph_has_its_parts() {
    let svg = svg("title=T%0Ab&vtitle=left", &[ramp("a&b", 60)]);
    let parts: Vec<&str> =
        svg.lines().filter_map(|line| line.strip_prefix("<g class=\"")?.strip_suffix("\">")).collect();
    assert_eq!(parts, ["graphite", "title", "vtitle", "grid", "lines", "axes", "legend"]);
    assert_eq!(texts(&svg, "title", "middle"), ["T", "b"]);
    assert_eq!(texts(&svg, "vtitle", "middle"), ["left"]);
    assert_eq!(texts(&svg, "legend", ""), ["a&amp;b"]);
    assert!(part(&svg, "lines")[0].ends_with("<title>a&amp;b</title></path>"));
}

fn check(query: &str, series: &[Series], name: &str, expected: Expect) {
    let items = part(&svg(query, series), name).join("\n");
    expected.assert_eq(&items);
}

#[test]
fn modes_draw_the_same_values_differently() {
    let values = vec![0.0, 10.0, f64::NAN, 10.0, 0.0];
    let gappy = [series("a", 60, values)];
    let query = "width=100&height=100&graphOnly=true&yMin=0&yMax=10&lineWidth=1";
    check(
        query,
        &gappy,
        "lines",
        expect![[r##"
        <path d="M1 100L25.5 0M74.5 0L99 100" fill="none" stroke="#6464ff" stroke-width="1" stroke-linejoin="round"><title>a</title></path>"##]],
    );
    check(
        &format!("{query}&lineMode=connected"),
        &gappy,
        "lines",
        expect![[r##"
        <path d="M1 100L25.5 0L74.5 0L99 100" fill="none" stroke="#6464ff" stroke-width="1" stroke-linejoin="round"><title>a</title></path>"##]],
    );
    check(
        &format!("{query}&lineMode=staircase"),
        &gappy,
        "lines",
        expect![[r##"
        <path d="M1 100L20.6 100L20.6 0L40.2 0M59.8 0L79.4 0L79.4 100L99 100" fill="none" stroke="#6464ff" stroke-width="1" stroke-linejoin="round"><title>a</title></path>"##]],
    );
    check(
        &format!("{query}&drawNullAsZero=true"),
        &gappy,
        "lines",
        expect![[r##"
        <path d="M1 100L25.5 0L50 100L74.5 0L99 100" fill="none" stroke="#6464ff" stroke-width="1" stroke-linejoin="round"><title>a</title></path>"##]],
    );
    check(
        &format!("{query}&areaMode=all"),
        &gappy,
        "lines",
        expect![[r##"
        <path d="M1 100L25.5 0L25.5 100L1 100ZM74.5 0L99 100L99 100L74.5 100Z" fill="#6464ff"><title>a</title></path>"##]],
    );
}

#[test]
fn stacked_lines_are_sums_and_what_is_opaque_overlaps() {
    let two = [series("a", 60, vec![2.0; 3]), series("b", 60, vec![3.0; 3])];
    check(
        "width=100&height=100&graphOnly=true&yMin=0&yMax=10&areaMode=stacked&areaAlpha=0.5&lineWidth=1",
        &two,
        "lines",
        expect![[r##"
            <path d="M1 80L50 80L99 80L99 100L50 100L1 100Z" fill="#6464ff" fill-opacity="0.5"><title>a</title></path>
            <path d="M1 50L50 50L99 50L99 80L50 80L1 80Z" fill="#00c800" fill-opacity="0.5"><title>b</title></path>
            <path d="M1 80L50 80L99 80" fill="none" stroke="#6464ff" stroke-width="1" stroke-linejoin="round"><title>a</title></path>
            <path d="M1 50L50 50L99 50" fill="none" stroke="#00c800" stroke-width="1" stroke-linejoin="round"><title>b</title></path>"##]],
    );
    let svg = svg("areaMode=stacked&yMin=0", &two);
    assert_eq!(colors(&svg, "lines", "fill"), ["#00c800", "#6464ff"], "the lower area is painted last");
    assert_eq!(texts(&svg, "axes", "end").last(), Some(&"5.0"));
}

#[test]
fn lines_of_other_times_are_stacked_by_time() {
    let mut late = series("late", 60, vec![1.0; 5]);
    (late.start, late.end) = (START + 300, START + 600);
    let coarse = series("coarse", 300, vec![10.0, 20.0]);
    let fine = series("fine", 60, vec![1.0; 10]);
    let svg = svg("areaMode=stacked", &[fine, coarse, late]);
    assert_eq!(texts(&svg, "axes", "end").last(), Some(&"25.0"));
}

#[test]
fn a_series_is_drawn_as_its_functions_say() {
    let style = |style: Style| Series { style, ..ramp("a", 10) };
    let drawn = [
        style(Style { color: Some("red".to_owned()), line_width: Some(4.0), ..Style::default() }),
        style(Style { alpha: Some(0.25), dashed: Some(7.0), ..Style::default() }),
        style(Style { color: Some("#ff000080".to_owned()), alpha: Some(0.25), ..Style::default() }),
        style(Style { invisible: true, ..Style::default() }),
    ];
    let svg = svg("lineWidth=2&uniqueLegend=true", &drawn);
    let items = part(&svg, "lines");
    let looks: Vec<[&str; 4]> = items
        .iter()
        .map(|item| ["stroke", "stroke-width", "stroke-opacity", "stroke-dasharray"].map(|name| attribute(item, name)))
        .collect();
    assert_eq!(looks, [["#c80032", "4", "", ""], ["#6464ff", "2", "0.25", "7"], ["#ff0000", "2", "0.5", ""]]);
    assert_eq!(texts(&svg, "legend", ""), ["a"]);
    let error = try_svg("", &[style(Style { color: Some("puce".to_owned()), ..Style::default() })]).unwrap_err();
    assert!(error.to_string().starts_with("the colour of color() must be a colour"), "{error}");
}

#[test]
fn the_room_between_two_lines_is_filled() {
    let low = Series {
        style: Style { stacked: true, invisible: true, ..Style::default() },
        ..series("low", 60, vec![2.0; 3])
    };
    let high = Series { style: Style { stacked: true, ..Style::default() }, ..series("high", 60, vec![5.0; 3]) };
    let query = "width=100&height=100&graphOnly=true&yMin=0&yMax=10&lineWidth=1";
    check(
        query,
        &[low, high],
        "lines",
        expect![[r##"
        <path d="M1 50L50 50L99 50L99 80L50 80L1 80Z" fill="#00c800"><title>high</title></path>"##]],
    );
}

#[test]
fn a_second_axis_has_its_own_scale_and_looks() {
    let right = Series { style: Style { second_axis: true, ..Style::default() }, ..series("r", 60, vec![1e6, 5e6]) };
    let svg = svg(
        "yMaxLeft=50&yMinRight=0&yStepRight=2500000&leftColor=green&rightWidth=3&rightDashed=true&vtitleRight=bytes",
        &[ramp("l", 2), right],
    );
    assert_eq!(texts(&svg, "axes", "end"), ["0", "10.0", "20.0", "30.0", "40.0", "50.0"]);
    assert_eq!(texts(&svg, "axes", ""), ["0", "2.5 M", "5.0 M"]);
    assert_eq!(texts(&svg, "vtitleRight", "middle"), ["bytes"]);
    assert_eq!(texts(&svg, "legend", "end"), ["r"]);
    let lines = part(&svg, "lines");
    assert_eq!((attribute(lines[0], "stroke"), attribute(lines[0], "stroke-width")), ("#00c800", "1.2"));
    assert_eq!((attribute(lines[1], "stroke-dasharray"), attribute(lines[1], "stroke-width")), ("5", "3"));
}

#[test]
fn values_beyond_the_axis_stay_in_the_plot() {
    let wild = [series("a", 60, vec![0.0, 1e300, -1e300, f64::INFINITY, f64::NEG_INFINITY, 5.0, 0.0])];
    for query in ["yMin=0&yMax=10", "yMin=0&yMax=10&areaMode=all", "yMin=1&yMax=10&logBase=10", ""] {
        let svg = svg(&format!("width=100&height=100&graphOnly=true&lineWidth=1&{query}"), &wild);
        for item in part(&svg, "lines") {
            let numbers = attribute(item, "d").split(|char: char| !char.is_ascii_digit() && !".-".contains(char));
            let outside: Vec<&str> =
                numbers.filter(|number| number.parse::<f32>().is_ok_and(|at| !(-1.0..=101.0).contains(&at))).collect();
            assert!(outside.is_empty(), "{query}: {outside:?}");
        }
    }
}

#[test]
fn a_legend_is_hidden_above_ten_series_and_never_crowds_out_the_plot() {
    let many = |count: usize| -> Vec<Series> { (0..count).map(|index| ramp(&format!("s{index}"), 5)).collect() };
    assert_eq!(texts(&svg("", &many(10)), "legend", "").len(), 10);
    assert!(part(&svg("", &many(11)), "legend").is_empty());
    assert!(part(&svg("hideLegend=true", &many(2)), "legend").is_empty());
    assert_eq!(texts(&svg("hideLegend=false&height=2000", &many(11)), "legend", "").len(), 11);
    let svg = svg("hideLegend=false", &many(500));
    let names = texts(&svg, "legend", "");
    let more: usize =
        names.last().unwrap().strip_prefix("and ").unwrap().strip_suffix(" more").unwrap().parse().unwrap();
    assert_eq!(names.len() - 1 + more, 500);
}

#[test]
fn nulls_and_doubles_are_kept_out_of_the_legend_where_asked() {
    let drawn = [ramp("a", 5), ramp("a", 5), series("null", 60, vec![f64::NAN; 5])];
    assert_eq!(texts(&svg("", &drawn), "legend", ""), ["a", "a", "null"]);
    assert_eq!(texts(&svg("uniqueLegend=true&hideNullFromLegend=true", &drawn), "legend", ""), ["a"]);
}

#[test]
fn what_is_hidden_is_not_there() {
    let drawn = [ramp("a", 60)];
    for (query, parts) in [
        ("hideGrid=true", "lines axes legend"),
        ("hideAxes=true", "lines legend"),
        ("graphOnly=true&title=t&vtitle=v&hideLegend=false", "lines"),
    ] {
        let svg = svg(query, &drawn);
        let found: Vec<&str> =
            svg.lines().filter_map(|line| line.strip_prefix("<g class=\"")?.strip_suffix("\">")).skip(1).collect();
        assert_eq!(found.join(" "), parts, "{query}");
    }
    assert!(texts(&svg("hideYAxis=true", &drawn), "axes", "end").is_empty());
    assert!(texts(&svg("hideXAxis=true", &drawn), "axes", "middle").is_empty());
    assert_eq!(
        texts(&svg("yAxisSide=right", &drawn), "axes", ""),
        ["0", "10.0", "20.0", "30.0", "40.0", "50.0", "60.0"]
    );
}

#[test]
fn nothing_to_draw_is_said() {
    for nothing in [vec![], vec![series("a", 60, vec![])]] {
        assert_eq!(texts(&svg("", &nothing), "no-data", "middle"), ["No Data"]);
    }
    assert_eq!(texts(&svg("", &[series("a", 60, vec![f64::NAN; 5])]), "axes", "end").last(), Some(&"1.00"));
}

#[test]
fn more_values_than_pixels_are_folded_as_the_series_says() {
    let values: Vec<f64> = (0..1000).map(|index| f64::from(index % 10)).collect();
    let query = "width=110&margin=5&hideLegend=true&hideYAxis=true&yMax=max";
    let points = |query: &str, fold: Fold| {
        let svg = svg(query, &[Series { fold, ..series("a", 60, values.clone()) }]);
        let path = attribute(part(&svg, "lines")[0], "d").to_owned();
        path.split(['M', 'L']).skip(1).filter_map(|point| point.split_once(' ')?.1.parse().ok()).collect::<Vec<f32>>()
    };
    assert_eq!(points(&format!("{query}&minXStep=0"), Fold::Max).len(), 1000);
    // Eleven at a time: every tenth value is the largest, so every eleven have it, and nearly every eleven have a zero.
    let (largest, least) = (points(query, Fold::Max), points(query, Fold::Min));
    assert_eq!((largest.len(), least.len()), (91, 91));
    assert!(largest.iter().all(|y| *y == largest[0]), "{largest:?}");
    assert!(least[..90].iter().all(|y| *y == least[0]), "{least:?}");
}

/// Width, height, channels and bytes of a PNG.
fn decoded(bytes: &[u8]) -> (u32, u32, usize, Vec<u8>) {
    let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().expect("it is a PNG");
    let mut pixels = vec![0; reader.output_buffer_size().expect("it has a size")];
    let frame = reader.next_frame(&mut pixels).expect("it has pixels");
    (frame.width, frame.height, frame.color_type.samples(), pixels)
}

fn png(query: &str, series: &[Series]) -> Vec<u8> {
    let picture = line_graph(&options(query).unwrap(), series, &TimeZone::UTC, &|| false).unwrap();
    picture.png(&|| false).unwrap()
}

#[test]
fn a_png_has_the_size_and_colors_that_were_asked_for() {
    let (width, height, channels, pixels) = decoded(&png("width=97&height=53&bgcolor=102030", &[ramp("a", 60)]));
    assert_eq!((width, height, channels), (97, 53, 3));
    assert_eq!(pixels[..3], [0x10, 0x20, 0x30]);
    // A flat line of the colour, many pixels wide, fills the plot.
    let flat = [series("a", 60, vec![5.0; 9])];
    let query = "width=60&height=40&graphOnly=true&yMin=0&yMax=10&lineWidth=100&colorList=ff8800";
    let (_, _, _, pixels) = decoded(&png(query, &flat));
    let at = 3 * (20 * 60 + 30);
    assert_eq!(pixels[at..at + 3], [0xff, 0x88, 0x00]);
    let (_, _, channels, pixels) = decoded(&png("width=60&height=40&graphOnly=true&bgcolor=ffffff00", &flat));
    assert_eq!((channels, pixels[3]), (4, 0));
}

#[test]
fn the_same_request_gives_the_same_bytes() {
    let drawn = [ramp("a", 60), ramp("b", 7)];
    assert_eq!(png("areaMode=stacked", &drawn), png("areaMode=stacked", &drawn));
    assert_eq!(svg("areaMode=stacked", &drawn), svg("areaMode=stacked", &drawn));
}

#[test]
fn no_size_font_or_margin_breaks_the_layout() {
    let long = "x".repeat(300);
    let drawn = [ramp(&long, 60), Series { style: Style { second_axis: true, ..Style::default() }, ..ramp("b", 3) }];
    for size in ["1", "2", "7", "20", "33", "60", "200", "2000"] {
        for other in ["1", "15", "40", "1000"] {
            for more in [
                "",
                "margin=0",
                "margin=5000",
                "fontSize=200",
                "fontSize=1",
                "graphOnly=true",
                "areaMode=stacked&logBase=2",
            ] {
                let query = format!("width={size}&height={other}&title={long}&vtitle=v&vtitleRight={long}&{more}");
                svg(&query, &drawn);
                let slow = size == "2000" && other == "1000";
                if !slow {
                    png(&query, &drawn);
                }
            }
        }
    }
}

#[test]
fn a_long_answer_is_rejected_and_a_stopped_one_ends() {
    let picture = line_graph(&options("").unwrap(), &[ramp("a", 200)], &TimeZone::UTC, &|| false).unwrap();
    assert_eq!(picture.svg(1000, &|| false), Err(Error::TooLong { limit: 1000 }));
    assert_eq!(picture.svg(1 << 20, &|| true), Err(Error::Stopped));
    assert_eq!(picture.png(&|| true), Err(Error::Stopped));
    assert_eq!(
        line_graph(&options("").unwrap(), &[ramp("a", 200)], &TimeZone::UTC, &|| true).unwrap_err(),
        Error::Stopped
    );
}

fn pie(query: &str, values: &[f64]) -> String {
    let slices: Vec<Slice> =
        values.iter().enumerate().map(|(index, value)| Slice { name: format!("s{index}"), value: *value }).collect();
    pie_graph(&options(query).unwrap(), &slices, &|| false).unwrap().svg(1 << 20, &|| false).unwrap()
}

#[test]
fn a_pie_says_shares_or_numbers() {
    let values = [50.0, 25.0, 22.5, 2.5];
    let svg = pie("title=P", &values);
    assert_eq!(texts(&svg, "labels", "middle"), ["50.00%", "25.00%", "22.50%"]);
    assert_eq!(texts(&svg, "legend", ""), ["s0", "s1", "s2", "s3"]);
    assert_eq!(colors(&svg, "slices", "fill")[..4], ["#6464ff", "#00c800", "#c80032", "#c864ff"]);
    assert_eq!(
        texts(&pie("valueLabels=number&valueLabelsMin=0", &values), "labels", "middle"),
        ["50", "25", "22", "2.50"]
    );
    assert!(part(&pie("valueLabels=none", &values), "labels").is_empty());
    assert!(pie("pieLabels=rotated", &values).contains(" transform=\"rotate("));
    assert_eq!(texts(&pie("", &[0.0, -1.0, f64::NAN]), "no-data", "middle"), ["No Data"]);
    // One slice is a whole circle.
    assert_eq!(texts(&pie("", &[3.0, 0.0]), "labels", "middle"), ["100.00%"]);
}
