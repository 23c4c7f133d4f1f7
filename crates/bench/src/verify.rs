//! Reading points back over /render and comparing each with what was sent, to the last bit.

use std::{borrow::Cow, collections::BTreeMap, ops::Range};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{
    Error,
    http::{Answer, Server},
    load::Load,
};

/// A series of `format=json`.
#[derive(Deserialize)]
pub(crate) struct Series<'a> {
    #[serde(borrow)]
    pub(crate) target: Cow<'a, str>,
    /// The text of the value, because serde_json may miss the nearest double by a bit, and the time in Unix seconds.
    #[serde(borrow)]
    pub(crate) datapoints: Vec<(&'a RawValue, i64)>,
}

impl Series<'_> {
    /// The values that are not null, by time.
    pub(crate) fn values(&self) -> impl Iterator<Item = (i64, f64)> + '_ {
        self.datapoints.iter().filter_map(|(value, time)| Some((*time, value.get().parse().ok()?)))
    }
}

/// Reads the series of an answer.
pub(crate) fn series(answer: &Answer) -> Result<Vec<Series<'_>>, Error> {
    serde_json::from_slice(&answer.body).map_err(|error| answer.unexpected(format!("not Graphite's JSON: {error}")))
}

/// The result of reading points back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Verified {
    pub(crate) series: u64,
    /// Points sent and compared.
    pub(crate) checked: u64,
    /// Sent, but null or absent.
    pub(crate) missing: u64,
    /// Sent, but with another value.
    pub(crate) wrong: u64,
    /// A value where none was sent.
    pub(crate) extra: u64,
}

impl Verified {
    pub(crate) fn faithful(&self) -> Result<(), Error> {
        let Verified { checked, missing, wrong, extra, .. } = *self;
        match missing + wrong + extra {
            0 => Ok(()),
            _ => Err(Error::Unfaithful { checked, missing, wrong, extra }),
        }
    }
}

/// Slots before the first point and after the last that are read too, to find points that were never sent.
pub(crate) const MARGIN_ROWS: u32 = 5;

/// Reads `count` series of the load, spread evenly over it, with a margin before and after the points sent.
pub(crate) fn verify(server: &mut Server, load: &Load, count: u64) -> Result<Verified, Error> {
    let mut verified = Verified::default();
    let count = count.min(load.series);
    let rows = 0..load.rows;
    for place in 0..count {
        let index = load.series * place / count;
        for found in read(server, load, &[index], &rows, |_| false)?.unwrap_or_default() {
            compare(load, index, &rows, found, &mut verified);
        }
    }
    Ok(verified)
}

/// Reads the points of these series around these rows in one request, each by time. `None` for an answer that the caller
/// `forgives`.
pub(crate) fn read(
    server: &mut Server,
    load: &Load,
    indices: &[u64],
    rows: &Range<u32>,
    forgives: impl Fn(&Answer) -> bool,
) -> Result<Option<Vec<BTreeMap<i64, f64>>>, Error> {
    debug_assert!(rows.start < rows.end && rows.end <= load.rows, "rows of the load");
    // The window is (from, until].
    let margin = u64::from(MARGIN_ROWS * load.interval);
    let from = u64::from(load.time(rows.start)).saturating_sub(margin + 1).to_string();
    let until = (u64::from(load.time(rows.end - 1)) + margin).to_string();
    let names: Vec<String> = indices.iter().map(|index| load.names.name(*index)).collect();
    let mut parameters: Vec<(&str, &str)> = names.iter().map(|name| ("target", name.as_str())).collect();
    // Without noCache, graphite-web may repeat an earlier answer.
    parameters.extend([("format", "json"), ("from", &from), ("until", &until), ("noCache", "1")]);
    let answer = server.get("/render", &parameters)?;
    if forgives(&answer) {
        return Ok(None);
    }
    let answer = answer.success()?;
    let mut found = vec![BTreeMap::new(); names.len()];
    for series in series(&answer)? {
        let Some(place) = names.iter().position(|name| *name == series.target) else {
            return Err(answer.unexpected(format!("{} was not asked for", series.target)));
        };
        found[place].extend(series.values());
    }
    Ok(Some(found))
}

/// Adds the comparison of these rows of a series.
pub(crate) fn compare(
    load: &Load,
    index: u64,
    rows: &Range<u32>,
    mut found: BTreeMap<i64, f64>,
    verified: &mut Verified,
) {
    verified.series += 1;
    let expected = load.expected(index).into_iter().zip(0..);
    for (value, row) in expected.filter(|(_, row)| rows.contains(row)) {
        verified.checked += 1;
        match found.remove(&i64::from(load.time(row))) {
            None => verified.missing += 1,
            Some(read) if read.to_bits() != value.number().to_bits() => verified.wrong += 1,
            Some(_) => {}
        }
    }
    verified.extra += found.len() as u64;
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        http::tests::{fake, ok},
        load::tests::small,
    };

    /// Verifies the only series of a small load against an answer whose points `change` has changed.
    fn check(change: impl Fn(&mut Vec<(String, i64)>)) -> Result<Verified, Error> {
        let load = small(1, 3);
        let mut points: Vec<(String, i64)> = vec![("null".into(), i64::from(load.start) - 60)];
        for (row, value) in load.expected(0).into_iter().enumerate() {
            points.push((value.number().to_string(), i64::from(load.time(row as u32))));
        }
        change(&mut points);
        let points: Vec<String> = points.iter().map(|(value, time)| format!("[{value}, {time}]")).collect();
        let body =
            format!(r#"[{{"target": "{}", "tags": {{}}, "datapoints": [{}]}}]"#, load.names.name(0), points.join(", "));
        let mut server = Server::new(&fake(vec![ok(&body)]), Duration::from_secs(5))?;
        verify(&mut server, &load, 1)
    }

    #[test]
    fn unchanged_points_are_faithful() {
        let verified = check(|_| {}).expect("a valid answer");
        assert_eq!(verified, Verified { series: 1, checked: 3, ..Verified::default() });
        assert!(verified.faithful().is_ok());
    }

    #[test]
    fn a_null_and_an_absent_point_are_missing() {
        let verified = check(|points| {
            points[1].0 = "null".into();
            points.pop();
        })
        .expect("a valid answer");
        assert_eq!((verified.missing, verified.wrong, verified.extra), (2, 0, 0));
        assert!(verified.faithful().is_err());
    }

    #[test]
    fn a_value_that_differs_in_the_last_bit_is_wrong() {
        let verified = check(|points| {
            let value: f64 = points[2].0.parse().expect("a number");
            points[2].0 = f64::from_bits(value.to_bits() + 1).to_string();
        })
        .expect("a valid answer");
        assert_eq!((verified.missing, verified.wrong, verified.extra), (0, 1, 0));
    }

    #[test]
    fn a_value_where_none_was_sent_is_extra_and_a_shifted_point_is_missing_too() {
        let extra = check(|points| points[0].0 = "0".into()).expect("a valid answer");
        assert_eq!((extra.missing, extra.wrong, extra.extra), (0, 0, 1));
        let shifted = check(|points| points[3].1 += 60).expect("a valid answer");
        assert_eq!((shifted.missing, shifted.wrong, shifted.extra), (1, 0, 1));
    }

    #[test]
    fn an_answer_that_is_not_a_render_is_an_error() {
        let mut server = Server::new(&fake(vec![ok("<html>")]), Duration::from_secs(5)).expect("a valid address");
        assert!(matches!(verify(&mut server, &small(1, 1), 1), Err(Error::Answer { .. })));
    }
}
