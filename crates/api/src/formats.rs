//! The formats of `/render`: how series become bytes, a piece at a time.

use jiff::tz::TimeZone;
use render::Series;

use crate::{
    calendar::LocalClock,
    carbonapi::Protocol,
    carbonapi_series::{FetchHead, v2_span, v3_span},
    json::JsonStyle,
    msgpack, pickle,
    pieces::Pieces,
    write::{MAX_FLOAT_BYTES, float, int, json_string},
};

/// A format with its own options.
#[derive(Debug, Clone)]
pub(crate) enum Format {
    /// `[{"target", "tags", "datapoints": [[value, time], …]}, …]`.
    Json(JsonStyle, NullPoints),
    /// `name,time,value` lines, times in a zone.
    Csv(TimeZone),
    /// `name,start,end,step|value,…` lines.
    Raw,
    /// A list of dicts.
    Pickle,
    /// A list of maps.
    Msgpack,
    /// `{"labels", "data": [[milliseconds, value, …], …]}`: a row for each time.
    Dygraph(JsonStyle),
    /// `[{"target", "datapoints": [{"x", "y"}, …]}, …]`.
    Rickshaw(JsonStyle),
    /// A `MultiFetchResponse` of version 2.
    CarbonapiV2,
    /// A `MultiFetchResponse` of version 3, with what is said beside each series.
    CarbonapiV3(Vec<FetchHead>),
}

/// What becomes of points without a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NullPoints {
    /// They are written as null.
    Kept,
    /// They are left out (`noNullPoints`), and so is a series that has no others.
    Dropped,
}

impl Format {
    /// Content type of the answer.
    pub fn content_type(&self) -> &'static str {
        match self {
            Format::Json(style, _) | Format::Dygraph(style) | Format::Rickshaw(style) => match style.callback {
                Some(_) => "text/javascript",
                None => "application/json",
            },
            Format::Csv(_) => "text/csv",
            Format::Raw => "text/plain",
            Format::Pickle => "application/pickle",
            Format::Msgpack => "application/x-msgpack",
            Format::CarbonapiV2 => Protocol::V2.content_type(),
            Format::CarbonapiV3(_) => Protocol::V3.content_type(),
        }
    }

    /// The fewest bytes that a point takes, to reckon how large an answer is at least.
    fn least_bytes_per_point(&self, series: &Series) -> usize {
        match self {
            // `[1.0, 1700000000], `
            Format::Json(_, NullPoints::Kept) => 19,
            Format::Json(_, NullPoints::Dropped) => 0,
            // The name, `2023-11-14 22:13:20`, two commas and a line end.
            Format::Csv(_) => series.name.len() + 23,
            // `None,` is longer than `1.0,`.
            Format::Raw => 4,
            Format::Pickle | Format::Msgpack => 1,
            Format::Dygraph(_) => 5,
            // `{"x": 1700000000, "y": 1.0}, `
            Format::Rickshaw(_) => 29,
            // A double, and in version 2 whether it is there.
            Format::CarbonapiV2 => 9,
            Format::CarbonapiV3(_) => 8,
        }
    }
}

/// An answer to a render.
pub(crate) struct Answer {
    format: Format,
    series: Vec<Series>,
    spans: Vec<Span>,
    // Where the spans of each piece end.
    pieces: Vec<usize>,
}

/// Consecutive values of one series. The first of a series brings its head, the last its foot.
struct Span {
    series: usize,
    from: usize,
    until: usize,
}

/// Values of one piece: some 400 kB of JSON, which is a millisecond or two of work.
const VALUES_PER_PIECE: usize = 16_384;

/// What a series costs beside its values, in values.
const SERIES_COST: usize = 16;

impl Answer {
    /// Cuts an answer into pieces. Series that `format` leaves out are taken out here, so that every
    /// piece knows whether a comma goes before it.
    pub fn new(format: Format, mut series: Vec<Series>) -> Answer {
        match format {
            Format::Json(_, NullPoints::Dropped) => {
                series.retain(|series| series.values.iter().any(|value| !value.is_nan()));
            }
            // graphite-web asks `any(data)`: whether one of the series has a value at all, null or not.
            Format::Json(..) if series.iter().all(|series| series.values.is_empty()) => series.clear(),
            _ => {}
        }
        let mut spans = Vec::with_capacity(series.len());
        let mut pieces = Vec::new();
        let mut cost = 0;
        // Rows of all series at a time cannot be cut by series.
        let whole = matches!(format, Format::Dygraph(_));
        for (index, each) in series.iter().enumerate() {
            let len = each.values.len();
            let mut from = 0;
            loop {
                let until = if whole { len } else { len.min(from + VALUES_PER_PIECE) };
                spans.push(Span { series: index, from, until });
                cost += SERIES_COST + until - from;
                if cost >= VALUES_PER_PIECE && !whole {
                    pieces.push(spans.len());
                    cost = 0;
                }
                if until == len {
                    break;
                }
                from = until;
            }
        }
        if pieces.last() != Some(&spans.len()) {
            pieces.push(spans.len());
        }
        Answer { format, series, spans, pieces }
    }

    /// Bytes of the answer, at the least.
    pub fn least_bytes(&self) -> usize {
        let bytes = |series: &Series| {
            let per_point = self.format.least_bytes_per_point(series);
            series.name.len().saturating_add(per_point.saturating_mul(series.values.len()))
        };
        self.series.iter().map(bytes).fold(0, usize::saturating_add)
    }

    /// Content type of the answer.
    pub fn content_type(&self) -> &'static str {
        self.format.content_type()
    }
}

impl Pieces for Answer {
    fn count(&self) -> usize {
        self.pieces.len()
    }

    fn write(&self, piece: usize, out: &mut Vec<u8>) {
        let begin = if piece == 0 { 0 } else { self.pieces[piece - 1] };
        let spans = &self.spans[begin..self.pieces[piece]];
        let values: usize = spans.iter().map(|span| span.until - span.from).sum();
        let (first, last) = (piece == 0, piece + 1 == self.pieces.len());
        match &self.format {
            Format::Json(style, null_points) => {
                out.reserve(values * 28 + spans.len() * 200 + 64);
                self.json_like(style, spans, first, last, out, |series, span, out| {
                    json_span(series, span, style, *null_points, out);
                });
            }
            Format::Rickshaw(style) => {
                out.reserve(values * 40 + spans.len() * 200 + 64);
                self.json_like(style, spans, first, last, out, |series, span, out| {
                    rickshaw_span(series, span, style, out);
                });
            }
            Format::Csv(zone) => {
                let mut clock = LocalClock::new(zone);
                spans.iter().for_each(|span| csv_span(&self.series[span.series], span, &mut clock, out));
            }
            Format::Raw => {
                out.reserve(values * 12 + spans.len() * 100);
                spans.iter().for_each(|span| raw_span(&self.series[span.series], span, out));
            }
            Format::Pickle => {
                out.reserve(values * 9 + spans.len() * 300 + 16);
                if first {
                    pickle::begin(out);
                    pickle::list_begin(out);
                }
                spans.iter().for_each(|span| pickle_span(&self.series[span.series], span, out));
                if last {
                    pickle::list_end(out);
                    pickle::end(out);
                }
            }
            Format::Msgpack => {
                out.reserve(values * 9 + spans.len() * 300 + 16);
                if first {
                    msgpack::array(out, self.series.len());
                }
                spans.iter().for_each(|span| msgpack_span(&self.series[span.series], span, out));
            }
            Format::Dygraph(style) => dygraph(&self.series, style, out),
            Format::CarbonapiV2 => {
                out.reserve(values * 9 + spans.len() * 100);
                spans.iter().for_each(|span| v2_span(&self.series[span.series], span.from, span.until, out));
            }
            Format::CarbonapiV3(heads) => {
                out.reserve(values * 8 + spans.len() * 200);
                for span in spans {
                    v3_span(&self.series[span.series], &heads[span.series], span.from, span.until, out);
                }
            }
        }
    }
}

impl Answer {
    /// What JSON and rickshaw share: a list of objects, one a series.
    fn json_like(
        &self,
        style: &JsonStyle,
        spans: &[Span],
        first: bool,
        last: bool,
        out: &mut Vec<u8>,
        mut write: impl FnMut(&Series, &Span, &mut Vec<u8>),
    ) {
        if first {
            style.open(out);
            out.push(b'[');
        }
        for span in spans {
            if span.from == 0 {
                if span.series > 0 {
                    style.comma(out, 1);
                } else {
                    style.line(out, 1);
                }
            }
            write(&self.series[span.series], span, out);
        }
        if last {
            if !self.series.is_empty() {
                style.line(out, 0);
            }
            out.push(b']');
            style.close(out);
        }
    }
}

impl Span {
    fn is_first(&self) -> bool {
        self.from == 0
    }

    fn is_last(&self, series: &Series) -> bool {
        self.until == series.values.len()
    }

    fn values<'a>(&self, series: &'a Series) -> &'a [f64] {
        &series.values[self.from..self.until]
    }
}

/// Values that have a time among `times`, of which JSON and rickshaw take no more than Python's `zip` would.
fn shown_len(series: &Series, times: i64) -> usize {
    series.values.len().min(usize::try_from(times).unwrap_or(0))
}

/// Values that JSON shows: zipped with `range(start, end + 1, step)`.
fn json_len(series: &Series) -> usize {
    let span = series.end.saturating_sub(series.start);
    shown_len(series, if span < 0 { 0 } else { span / series.step.max(1) + 1 })
}

/// Values that rickshaw and dygraph show: zipped with `range(start, end, step)`.
fn rickshaw_len(series: &Series) -> usize {
    let span = series.end.saturating_sub(series.start);
    shown_len(series, if span <= 0 { 0 } else { (span - 1) / series.step.max(1) + 1 })
}

/// A value that has one: as Python's `json` writes it and graphite-web's view mends it.
fn json_value(value: f64, integers: bool, out: &mut Vec<u8>) {
    if !value.is_finite() {
        out.extend_from_slice(if value < 0.0 { b"-1e9999" } else { b"1e9999" });
    } else if integers {
        integer(value, out);
    } else {
        float(out, value);
    }
}

/// A value that Python holds as an integer. Beyond 2^63 it would print more digits than a float has, so it
/// is written as the float it is.
fn integer(value: f64, out: &mut Vec<u8>) {
    if value.fract() == 0.0 && value.abs() < 9e18 { int(out, value as i64) } else { float(out, value) }
}

/// Times of a series as text, one after the other.
struct Times {
    // The time as the end of a JSON point, `, 1700000000]`, with room for any.
    text: [u8; 24],
    digits: usize,
    time: i64,
    step: i64,
}

impl Times {
    fn new(time: i64, step: i64) -> Times {
        let mut times = Times { text: *b",                       ", digits: 0, time, step };
        times.spell();
        times
    }

    fn spell(&mut self) {
        let mut buffer = itoa::Buffer::new();
        let digits = buffer.format(self.time).as_bytes();
        self.digits = digits.len();
        self.text[2..2 + digits.len()].copy_from_slice(digits);
        self.text[2 + digits.len()] = b']';
    }

    fn text(&self) -> &[u8] {
        &self.text[2..2 + self.digits]
    }

    /// `, 1700000000]`: copied whole and cut, as a copy of known length is a few instructions and one of unknown
    /// length is a call.
    fn end_point(&self, out: &mut Vec<u8>) {
        let len = out.len() + self.digits + 3;
        out.extend_from_slice(&self.text);
        out.truncate(len);
    }

    fn next(&mut self) {
        self.time = self.time.saturating_add(self.step);
        self.spell();
    }
}

fn json_span(series: &Series, span: &Span, style: &JsonStyle, null_points: NullPoints, out: &mut Vec<u8>) {
    if span.is_first() {
        out.push(b'{');
        style.line(out, 2);
        out.extend_from_slice(b"\"target\": ");
        json_string(out, &series.name, style.ascii);
        style.comma(out, 2);
        out.extend_from_slice(b"\"tags\": ");
        style.items(out, *b"{}", 3, series.tags.iter(), |out, (tag, value)| {
            json_string(out, tag, style.ascii);
            out.extend_from_slice(b": ");
            json_string(out, value, style.ascii);
        });
        style.comma(out, 2);
        out.extend_from_slice(b"\"datapoints\": [");
    }
    let until = span.until.min(json_len(series));
    let from = span.from.min(until);
    let values = &series.values[from..until];
    let mut times = Times::new(series.start.saturating_add(series.step.saturating_mul(from as i64)), series.step);
    // Whether a point was written before this span.
    let mut any = match null_points {
        NullPoints::Kept => from > 0,
        NullPoints::Dropped => series.values[..from].iter().any(|value| !value.is_nan()),
    };
    if style.pretty {
        for &value in values {
            if !(value.is_nan() && null_points == NullPoints::Dropped) {
                if any {
                    style.comma(out, 3);
                } else {
                    style.line(out, 3);
                }
                any = true;
                out.push(b'[');
                style.line(out, 4);
                if value.is_nan() {
                    out.extend_from_slice(b"null")
                } else {
                    json_value(value, series.integers, out)
                }
                style.comma(out, 4);
                out.extend_from_slice(times.text());
                style.line(out, 3);
                out.push(b']');
            }
            times.next();
        }
    } else {
        for &value in values {
            out.reserve(MAX_FLOAT_BYTES + 32);
            if !value.is_nan() {
                out.extend_from_slice(if any { b", [" } else { b"[" });
                json_value(value, series.integers, out);
            } else if null_points == NullPoints::Kept {
                out.extend_from_slice(if any { b", [null" } else { b"[null" });
            } else {
                times.next();
                continue;
            }
            any = true;
            times.end_point(out);
            times.next();
        }
    }
    if span.is_last(series) {
        if any {
            style.line(out, 2);
        }
        out.push(b']');
        style.line(out, 1);
        out.push(b'}');
    }
}

fn rickshaw_span(series: &Series, span: &Span, style: &JsonStyle, out: &mut Vec<u8>) {
    if span.is_first() {
        out.push(b'{');
        style.line(out, 2);
        out.extend_from_slice(b"\"target\": ");
        json_string(out, &series.name, style.ascii);
        style.comma(out, 2);
        out.extend_from_slice(b"\"datapoints\": [");
    }
    let until = span.until.min(rickshaw_len(series));
    let from = span.from.min(until);
    let mut times = Times::new(series.start.saturating_add(series.step.saturating_mul(from as i64)), series.step);
    for (index, &value) in series.values[from..until].iter().enumerate() {
        if from + index > 0 {
            style.comma(out, 3);
        } else {
            style.line(out, 3);
        }
        out.push(b'{');
        style.line(out, 4);
        out.extend_from_slice(b"\"x\": ");
        out.extend_from_slice(times.text());
        style.comma(out, 4);
        out.extend_from_slice(b"\"y\": ");
        // graphite-web mends no infinity here, and what it writes is no JSON; ours reads as one.
        if value.is_nan() {
            out.extend_from_slice(b"null")
        } else {
            json_value(value, series.integers, out)
        }
        style.line(out, 3);
        out.push(b'}');
        times.next();
    }
    if span.is_last(series) {
        if until > 0 {
            style.line(out, 2);
        }
        out.push(b']');
        style.line(out, 1);
        out.push(b'}');
    }
}

/// `repr(value)` of what Python holds: a float, an int, or None.
fn python_value(value: f64, integers: bool, null: &[u8], out: &mut Vec<u8>) {
    if value.is_nan() {
        out.extend_from_slice(null);
    } else if value.is_infinite() {
        out.extend_from_slice(if value < 0.0 { b"-inf" } else { b"inf" });
    } else if integers {
        integer(value, out);
    } else {
        float(out, value);
    }
}

fn raw_span(series: &Series, span: &Span, out: &mut Vec<u8>) {
    if span.is_first() {
        out.extend_from_slice(series.name.as_bytes());
        for (value, mark) in [(series.start, b','), (series.end, b','), (series.step, b',')] {
            out.push(mark);
            int(out, value);
        }
        out.push(b'|');
    }
    for (index, &value) in span.values(series).iter().enumerate() {
        if span.from + index > 0 {
            out.push(b',');
        }
        python_value(value, series.integers, b"None", out);
    }
    if span.is_last(series) {
        out.push(b'\n');
    }
}

fn csv_span(series: &Series, span: &Span, clock: &mut LocalClock<'_>, out: &mut Vec<u8>) {
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

/// A field in Python's excel dialect: quoted when it has a comma, a quote or a line end.
fn csv_field(text: &str, out: &mut Vec<u8>) {
    if !text.contains([',', '"', '\r', '\n']) {
        return out.extend_from_slice(text.as_bytes());
    }
    out.push(b'"');
    out.extend_from_slice(text.replace('"', "\"\"").as_bytes());
    out.push(b'"');
}

fn pickle_span(series: &Series, span: &Span, out: &mut Vec<u8>) {
    if span.is_first() {
        pickle::dict_begin(out);
        pickle::text(out, "name");
        pickle::text(out, &series.name);
        for (key, value) in [("start", series.start), ("end", series.end), ("step", series.step)] {
            pickle::text(out, key);
            pickle::int(out, value);
        }
        pickle::text(out, "values");
        pickle::list_begin(out);
    }
    for &value in span.values(series) {
        if value.is_nan() {
            pickle::none(out);
        } else if series.integers && value.fract() == 0.0 && value.abs() < 9e18 {
            pickle::int(out, value as i64);
        } else {
            pickle::float(out, value);
        }
    }
    if span.is_last(series) {
        pickle::list_end(out);
        pickle::text(out, "pathExpression");
        pickle::text(out, &series.path_expression);
        pickle::text(out, "valuesPerPoint");
        pickle::int(out, 1);
        pickle::text(out, "consolidationFunc");
        pickle::text(out, series.consolidation.name());
        pickle::text(out, "xFilesFactor");
        pickle::float(out, series.x_files_factor);
        pickle::dict_end(out);
    }
}

fn msgpack_span(series: &Series, span: &Span, out: &mut Vec<u8>) {
    if span.is_first() {
        msgpack::map(out, 9);
        msgpack::text(out, "name");
        msgpack::text(out, &series.name);
        for (key, value) in [("start", series.start), ("end", series.end), ("step", series.step)] {
            msgpack::text(out, key);
            msgpack::int(out, value);
        }
        msgpack::text(out, "values");
        msgpack::array(out, series.values.len());
    }
    for &value in span.values(series) {
        if value.is_nan() { msgpack::nil(out) } else { msgpack::float(out, value) }
    }
    if span.is_last(series) {
        msgpack::text(out, "pathExpression");
        msgpack::text(out, &series.path_expression);
        msgpack::text(out, "valuesPerPoint");
        msgpack::int(out, 1);
        msgpack::text(out, "consolidationFunc");
        msgpack::text(out, series.consolidation.name());
        msgpack::text(out, "xFilesFactor");
        msgpack::float(out, series.x_files_factor);
    }
}

/// Rows at the first series' times. A series with other times is shown at the first one's all the same, by
/// index, as in graphite-web; where it is longer, graphite-web fails and we leave the rest out.
fn dygraph(series: &[Series], style: &JsonStyle, out: &mut Vec<u8>) {
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
            let mut times = Times::new(first.start, first.step);
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
                        integer(value, out);
                    } else {
                        float(out, value);
                    }
                }
                out.push(b']');
                times.next();
            }
            out.extend_from_slice(b"]}");
        }
    }
    style.close(out);
}
