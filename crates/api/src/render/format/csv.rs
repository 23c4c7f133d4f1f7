//! `format=csv`: `name,time,value` lines, with times in a zone.

use jiff::tz::TimeZone;
use render::Series;

use super::{
    contract::{Format, FormatInput, SeriesChunk, Span},
    python_text::python_value,
};
use crate::encode::calendar::LocalClock;

/// The format.
struct Csv {
    zone: TimeZone,
}

/// Makes the format.
pub(super) fn make(input: FormatInput<'_>) -> Box<dyn Format> {
    Box::new(Csv { zone: input.options.zone })
}

impl Format for Csv {
    fn content_type(&self) -> &'static str {
        "text/csv"
    }

    fn least_bytes_per_point(&self, series: &Series) -> usize {
        series.name.len() + ",2023-11-14 22:13:20,\r\n".len()
    }

    fn write(&self, chunk: &SeriesChunk<'_>, out: &mut Vec<u8>) {
        let mut clock = LocalClock::new(&self.zone);
        chunk.parts().for_each(|(series, span)| write_span(series, &span, &mut clock, out));
    }
}

fn write_span(series: &Series, span: &Span, clock: &mut LocalClock<'_>, out: &mut Vec<u8>) {
    let mut name = Vec::new();
    csv_field(&series.name, &mut name);
    out.reserve((span.until - span.from) * (name.len() + 36));
    for (index, &value) in span.values(series).iter().enumerate() {
        out.extend_from_slice(&name);
        out.push(b',');
        let time = series.start.saturating_add(series.step.saturating_mul((span.from + index) as i64));
        clock.write(time, out);
        out.push(b',');
        python_value(value, series.integers, b"", out);
        out.extend_from_slice(b"\r\n");
    }
}

/// Writes a field in Python's excel dialect: with quotes when it contains a comma, a quote or a line end.
fn csv_field(text: &str, out: &mut Vec<u8>) {
    if !text.contains([',', '"', '\r', '\n']) {
        return out.extend_from_slice(text.as_bytes());
    }
    out.push(b'"');
    out.extend_from_slice(text.replace('"', "\"\"").as_bytes());
    out.push(b'"');
}
