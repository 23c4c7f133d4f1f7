//! `format=dygraph`: `{"labels", "data": [[milliseconds, value, …], …]}`, a row for each time.

use render::Series;

use super::{
    contract::{Format, FormatInput, SeriesChunk},
    json_text::{TimeTexts, content_type, rickshaw_len},
};
use crate::encode::{
    json::{JsonStyle, json_string},
    python::{write_float, write_whole},
};

/// The format.
struct Dygraph {
    style: JsonStyle,
}

/// Makes the format.
pub(super) fn make(input: FormatInput<'_>) -> Box<dyn Format> {
    Box::new(Dygraph { style: input.options.style })
}

impl Format for Dygraph {
    fn content_type(&self) -> &'static str {
        content_type(&self.style)
    }

    fn least_bytes_per_point(&self, _: &Series) -> usize {
        "1.0, ".len()
    }

    fn has_chunks(&self) -> bool {
        false
    }

    fn write(&self, chunk: &SeriesChunk<'_>, out: &mut Vec<u8>) {
        write_rows(chunk.all, &self.style, out);
    }
}

/// Writes rows at the times of the first series. Values of the other series go to these times by index, as in
/// graphite-web. graphite-web fails for a longer series; this server omits the rest.
fn write_rows(series: &[Series], style: &JsonStyle, out: &mut Vec<u8>) {
    style.open(out);
    match series.first() {
        None => out.extend_from_slice(b"{}"),
        Some(first) => {
            out.extend_from_slice(b"{\"labels\" : [\"Time\"");
            for each in series {
                out.extend_from_slice(b", ");
                json_string(out, &each.name, true);
            }
            out.extend_from_slice(b"], \"data\" : [");
            let mut times = TimeTexts::of(first, 0);
            for row in 0..rickshaw_len(first) {
                out.extend_from_slice(if row > 0 { b", [" } else { b"[" });
                out.extend_from_slice(times.text());
                out.extend_from_slice(b"000");
                for each in series {
                    out.extend_from_slice(b", ");
                    let value = each.values.get(row).copied().unwrap_or(f64::NAN);
                    if value.is_nan() {
                        out.extend_from_slice(b"null");
                    } else if value.is_infinite() {
                        out.extend_from_slice(if value < 0.0 { b"-Infinity" } else { b"Infinity" });
                    } else if each.integers {
                        write_whole(out, value);
                    } else {
                        write_float(out, value);
                    }
                }
                out.push(b']');
                times.advance();
            }
            out.extend_from_slice(b"]}");
        }
    }
    style.close(out);
}
