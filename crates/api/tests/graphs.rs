//! `/render` as a picture.

mod support;

use support::{Metric, NOW, Setup};

/// `count` metrics, each with one hour of points, one a minute.
fn many(count: usize) -> Vec<Metric> {
    let first = NOW - NOW % 60;
    let values = (0..60).map(|i| (first - i * 60, i as f64)).collect();
    let metric = Metric { name: String::new(), step: 60, kept: 1440, coarser: None, values };
    (0..count).map(|i| Metric { name: format!("many.m{i:04}"), ..metric.clone() }).collect()
}

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

/// Width and height of a PNG, from its first chunk.
fn size(png: &[u8]) -> (u32, u32) {
    assert_eq!(png.get(..8), Some(PNG));
    let number = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().expect("four bytes"));
    (number(16), number(20))
}

#[test]
fn a_picture_is_png_unless_the_format_is_svg() {
    let server = Setup::new(many(3)).start();
    for query in ["", "&format=png", "&format=poster", "&format="] {
        let answer = server.get(&format!("/render?target=many.*{query}&from=-2min"));
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("image/png")), "{query}");
        assert_eq!(size(&answer.body), (330, 250), "{query}");
        assert_eq!(answer.header("cache-control"), Some("max-age=60"));
    }
    let sized = server.get("/render?target=many.*&width=60&height=40&noCache=1");
    assert_eq!(size(&sized.body), (60, 40));
    assert!(sized.header("cache-control").is_some_and(|value| value.contains("no-store")));
}

#[test]
fn svg_contains_the_names_of_series_and_supports_jsonp() {
    let server = Setup::new(many(3)).start();
    let answer = server.get("/render?target=many.*&format=svg&from=-2min");
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("image/svg+xml")));
    assert!(answer.text().starts_with("<svg ") && answer.text().ends_with("</svg>\n"), "{}", answer.text());
    assert_eq!(answer.text().matches("<title>many.").count(), 3);
    let called = server.get("/render?target=many.*&format=svg&from=-2min&jsonp=show");
    assert_eq!(called.header("content-type"), Some("text/javascript"));
    let json = called.text().strip_prefix("show(").and_then(|text| text.strip_suffix(')')).expect("a call").to_owned();
    assert_eq!(serde_json::from_str::<String>(&json).expect("a string"), answer.text());
}

#[test]
fn functions_set_the_style_of_their_series() {
    let server = Setup::new(many(3)).start();
    let target = "color(many.*,'%23123456')";
    let answer = server.get(&format!("/render?target={target}&format=svg&from=-2min"));
    assert_eq!(answer.text().matches("stroke=\"#123456\"").count(), 3, "{}", answer.text());
    let wrong = server.get("/render?target=color(many.*,'mauve')&from=-2min");
    assert_eq!(wrong.status, 400);
    assert!(wrong.text().contains("colour") && wrong.text().contains("mauve"), "{}", wrong.text());
}

#[test]
fn a_picture_without_series_says_no_data() {
    let server = Setup::new(many(3)).start();
    for query in ["", "?target=nothing.at.all"] {
        let join = if query.is_empty() { '?' } else { '&' };
        let answer = server.get(&format!("/render{query}{join}format=svg"));
        assert_eq!(answer.status, 200);
        assert!(answer.text().contains(">No Data</text>"), "{}", answer.text());
        assert_eq!(size(&server.get(&format!("/render{query}")).body), (330, 250));
    }
}

#[test]
fn an_invalid_option_is_rejected_with_the_reason() {
    let server = Setup::new(many(3)).start();
    for (query, says) in [
        ("width=none", "width must be a number"),
        ("width=9999&height=9999", "too large"),
        ("lineMode=wavy", "slope, staircase, connected"),
        ("bgcolor=mauve", "bgcolor must be a colour"),
        ("yMin=5&yMax=4", "cannot go from 5 to 4"),
        ("format=pdf", "format=svg"),
        ("graphType=pie&pieMode=median", "average, maximum or minimum"),
        ("graphType=bar", "must be one of ['line', 'pie']"),
    ] {
        let answer = server.get(&format!("/render?target=many.*&from=-2min&{query}"));
        assert_eq!(answer.status, 400, "{query}");
        assert!(answer.text().contains(says), "{query}: {}", answer.text());
    }
    // Numbers ignore the width.
    assert_eq!(server.get("/render?target=many.*&format=json&width=none").status, 200);
}

#[test]
fn a_pie_has_slices_of_numbers_and_of_series() {
    let server = Setup::new(many(2)).start();
    let path = "/render?graphType=pie&format=svg&valueLabels=none&target=first:60&target=many.*&target=last:1e2";
    let answer = server.get(&format!("{path}&from=-2min"));
    let names = |text: &str| -> Vec<String> {
        let texts = text.split("</text>").filter_map(|part| part.rsplit_once('>'));
        texts.map(|(_, name)| name.to_owned()).filter(|name| !name.trim().is_empty()).collect()
    };
    let shown = names(answer.text());
    assert_eq!(shown.len(), 4, "{shown:?}");
    assert_eq!((shown[0].as_str(), shown[3].as_str()), ("first", "last"));
    // A pie ignores a format of numbers, as in graphite-web.
    assert_eq!(size(&server.get("/render?graphType=pie&format=json&target=a:1").body), (330, 250));
}
