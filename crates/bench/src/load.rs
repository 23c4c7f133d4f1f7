//! The points to send: a number of names times a number of points, row by row in time as a fleet reports.

use std::{
    ops::Range,
    time::{SystemTime, UNIX_EPOCH},
};

use crate::{
    Error,
    encode::{Encoder, Protocol},
    names::Names,
    values::{Value, Values, Walk},
};

/// A buffer of at least this many bytes goes to the socket.
pub(crate) const BUFFER_BYTES: usize = 256 << 10;

/// Everything that is sent in one measurement. Row `r` is the point of every metric at `start + r * interval`.
#[derive(Debug, Clone)]
pub(crate) struct Load {
    pub(crate) names: Names,
    pub(crate) values: Values,
    pub(crate) series: u64,
    pub(crate) rows: u32,
    /// Epoch seconds of row 0, a multiple of `interval`.
    pub(crate) start: u32,
    /// Seconds.
    pub(crate) interval: u32,
}

impl Load {
    /// Checks that the last row has a time that fits in carbon's 32 bits.
    pub(crate) fn check(self) -> Result<Load, Error> {
        let last = u64::from(self.start) + u64::from(self.rows) * u64::from(self.interval);
        if self.series == 0 || self.rows == 0 || self.interval == 0 || u32::try_from(last).is_err() {
            let load = format!("{} names of {} points every {} s", self.series, self.rows, self.interval);
            return Err(Error::Usage(format!(
                "{load} cannot be sent; each must be at least 1, and the last before 2106"
            )));
        }
        Ok(self)
    }

    /// Epoch seconds of a row.
    pub(crate) fn time(&self, row: u32) -> u32 {
        self.start + row * self.interval
    }

    /// The values of a series in every row.
    pub(crate) fn expected(&self, index: u64) -> Vec<Value> {
        let mut walk = self.walk(index);
        (0..self.rows).map(|_| walk.advance()).collect()
    }

    fn walk(&self, index: u64) -> Walk {
        Walk::new(self.names.seed, index, self.values.kind(self.names.kind(index)))
    }

    /// One connection's part of the load, of `parts` about equal ones.
    pub(crate) fn part(&self, part: u64, parts: u64, protocol: Protocol) -> Part {
        let series = self.series * part / parts..self.series * (part + 1) / parts;
        let mut names = Vec::new();
        let mut ends = Vec::new();
        for index in series.clone() {
            names.extend_from_slice(self.names.name(index).as_bytes());
            ends.push(names.len());
        }
        let walks = series.map(|index| self.walk(index)).collect();
        Part { load: self.clone(), names, ends, walks, row: 0, next: 0, encoder: Encoder::new(protocol) }
    }
}

/// A load whose last row is at `until`, or at the current time.
pub(crate) fn ending(
    names: Names,
    values: Values,
    series: u64,
    rows: u32,
    interval: u32,
    until: Option<u32>,
) -> Result<Load, Error> {
    let until = until.unwrap_or_else(now);
    let last = until.checked_div(interval).map_or(0, |slots| slots * interval);
    let start = last.checked_sub(rows.saturating_sub(1).saturating_mul(interval));
    let start =
        start.ok_or_else(|| Error::Usage(format!("{rows} points every {interval} s reach back beyond 1970")))?;
    Load { names, values, series, rows, start, interval }.check()
}

/// Epoch seconds.
pub(crate) fn now() -> u32 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u32::try_from(now.as_secs()).unwrap_or(u32::MAX)
}

/// The points of one connection, in order, made on demand.
pub(crate) struct Part {
    load: Load,
    /// The names without gaps, and the end of each.
    names: Vec<u8>,
    ends: Vec<usize>,
    walks: Vec<Walk>,
    /// The next point: its row, and its metric in the row.
    row: u32,
    next: usize,
    encoder: Encoder,
}

impl Part {
    /// Fills a buffer with the next points of these rows; `false` at their end. Ask for rows in order and for each once:
    /// the values of a row depend on the row before.
    pub(crate) fn fill(&mut self, rows: &Range<u32>, out: &mut Vec<u8>) -> bool {
        debug_assert!(rows.start <= self.row, "rows are made in order");
        out.clear();
        while self.row < rows.end && out.len() < BUFFER_BYTES {
            let Some(walk) = self.walks.get_mut(self.next) else {
                (self.row, self.next) = (self.row + 1, 0);
                continue;
            };
            let first = if self.next == 0 { 0 } else { self.ends[self.next - 1] };
            let name = &self.names[first..self.ends[self.next]];
            self.encoder.point(name, walk.advance(), self.load.time(self.row), out);
            self.next += 1;
        }
        self.encoder.finish(out);
        !out.is_empty()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::names::Pattern;

    pub(crate) fn small(series: u64, rows: u32) -> Load {
        let names = Names { root: "servers".into(), pattern: Pattern::Hosts, seed: 7 };
        Load { names, values: Values::Mixed, series, rows, start: 1_700_000_040, interval: 60 }
    }

    fn lines(load: &Load, parts: u64, rows: Range<u32>) -> Vec<String> {
        let mut bytes = Vec::new();
        for part in 0..parts {
            let (mut part, mut buffer) = (load.part(part, parts, Protocol::Line), Vec::new());
            while part.fill(&rows, &mut buffer) {
                bytes.extend_from_slice(&buffer);
            }
        }
        String::from_utf8(bytes).expect("lines are ASCII").lines().map(str::to_owned).collect()
    }

    #[test]
    fn every_metric_has_a_point_in_every_row_with_the_value_expected() {
        let load = small(250, 40);
        let mut sent = lines(&load, 3, 0..40);
        let mut expected = Vec::new();
        for index in 0..250 {
            for (row, value) in load.expected(index).into_iter().enumerate() {
                let mut text = Vec::new();
                value.write(&mut text);
                let text = String::from_utf8(text).expect("digits are ASCII");
                expected.push(format!("{} {text} {}", load.names.name(index), load.time(row as u32)));
            }
        }
        sent.sort();
        expected.sort();
        assert_eq!(sent, expected);
    }

    #[test]
    fn rows_go_out_in_the_order_of_time() {
        let times: Vec<String> =
            lines(&small(100, 5), 1, 0..5).iter().map(|line| line[line.len() - 10..].to_owned()).collect();
        assert!(times.is_sorted());
    }

    #[test]
    fn a_load_that_ends_after_the_last_carbon_time_is_rejected() {
        assert!(Load { start: u32::MAX - 30, ..small(1, 1) }.check().is_err());
        assert!(small(0, 1).check().is_err());
        assert!(small(1, 1).check().is_ok());
    }

    #[test]
    fn the_last_row_is_in_the_slot_of_the_end() {
        let load =
            ending(small(1, 1).names, Values::Mixed, 10, 30, 60, Some(1_700_000_059)).expect("the load is sendable");
        assert_eq!((load.time(29), load.start), (1_700_000_040, 1_700_000_040 - 29 * 60));
        assert!(ending(small(1, 1).names, Values::Mixed, 10, 30, 60, Some(100)).is_err());
        assert!(ending(small(1, 1).names, Values::Mixed, 10, 30, 0, Some(100)).is_err());
    }
}
