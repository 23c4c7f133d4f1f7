//! Metrictank's additions to `format=json`, which Grafana shows as the lineage of a series (`meta=true`).

use render::Origin;

use super::contract::Totals;
use crate::encode::json::{JsonStyle, LIST, OBJECT, json_string};

/// Writes the members before the list of series, up to its bracket.
pub(super) fn write_head(totals: &Totals, style: &JsonStyle, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"version\": \"v0.1\", \"meta\": {\"stats\": ");
    let stats = [
        ("executeplan.series-fetch.count", totals.series_read),
        ("executeplan.points-fetch.count", totals.points_read),
        ("executeplan.points-return.count", totals.points),
    ];
    style.items(out, OBJECT, 1, stats, |out, (name, number)| {
        json_string(out, name, true);
        out.extend_from_slice(format!(": {number}").as_bytes());
    });
    if !totals.missing_peers.is_empty() {
        out.extend_from_slice(b", \"missing-peers\": ");
        style.items(out, LIST, 1, &totals.missing_peers, |out, peer| json_string(out, peer, true));
    }
    out.extend_from_slice(b"}, \"series\": ");
}

/// Writes what is behind the list of series.
pub(super) fn write_foot(out: &mut Vec<u8>) {
    out.push(b'}');
}

/// Writes the origins of a series.
pub(super) fn write_origins(origins: &[Origin], style: &JsonStyle, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\"meta\": ");
    style.items(out, LIST, 3, origins, |out, origin| write_origin(origin, style, out));
}

fn write_origin(origin: &Origin, style: &JsonStyle, out: &mut Vec<u8>) {
    let Origin { source, normalized, consolidated, count } = origin;
    let (folded, how) = consolidated.map_or((0, "None"), |(folded, method)| (folded, consolidator(method)));
    let fields = [
        ("schema-name", Field::Text(&source.stages)),
        ("schema-retentions", Field::Text(&source.stages)),
        ("archive-read", Field::Number(source.stage as i64)),
        ("archive-interval", Field::Number(source.step)),
        ("aggnum-norm", Field::Number(*normalized)),
        ("consolidator-normfetch", Field::Consolidator(source.method)),
        ("aggnum-rc", Field::Number(folded)),
        ("consolidator-rc", Field::Consolidator(how)),
        ("count", Field::Number(i64::try_from(*count).unwrap_or(i64::MAX))),
    ];
    style.items(out, OBJECT, 4, fields, |out, (name, field)| {
        json_string(out, name, true);
        out.extend_from_slice(b": ");
        match field {
            Field::Text(text) => json_string(out, text, true),
            Field::Consolidator(name) => json_string(out, &format!("{name}Consolidator"), true),
            Field::Number(number) => out.extend_from_slice(number.to_string().as_bytes()),
        }
    });
}

enum Field<'a> {
    Text(&'a str),
    Consolidator(&'static str),
    Number(i64),
}

/// Metrictank's name of a method of `consolidateBy`.
fn consolidator(method: &'static str) -> &'static str {
    match method {
        "average" | "avg" => "Average",
        "avg_zero" => "AverageZero",
        "sum" => "Sum",
        "max" => "Maximum",
        "min" => "Minimum",
        "first" => "First",
        "last" => "Last",
        other => other,
    }
}
