//! The messages by which nodes give each other their points in memory: bytes to values and back.
//!
//! ```text
//! request:  "PLBQ" version:u8 node_length:u8 node … count:u32, then for each metric
//!           length:u32 from:i64 until:i64 name_length:u16 name …
//! answer:   "PLBA" version:u8 node_length:u8 node … count:u32, then for each metric
//!           length:u32 runs:u16, and each run: stage:u8 (0 the first, 1 a coarse one) resolution:u32 slot:u32 values:u32, values:f64 …
//! probe:    a request without metrics
//! ```
//!
//! All numbers are little-endian. `node` is the id of the node that asks or answers, as in the table `nodes`. The node that
//! asks says it because it may be new: the other one reads that table then. The node that answers says it because an address may lead
//! to another node. A version adds to the end of records, whose length includes what is added; a reader skips what it does not know. So versions that differ by one understand each other, and a node answers in the version that it was asked in, or
//! in its own if that is older.

use ingest::{Head, HeadRequest, HeadRun};

/// The version that this program writes.
pub const VERSION: u8 = 1;

/// Metrics of a request, at most. A read of more asks in parts.
pub const MAX_METRICS: usize = 1 << 16;

/// Bytes of a request, at most: 96 for each metric. One of the longest name fits.
pub const MAX_REQUEST_BYTES: usize = 6 << 20;

/// Points of an answer, at most.
pub const MAX_POINTS: usize = 2_000_000;

/// Bytes of an answer, at most.
pub const MAX_ANSWER_BYTES: usize = 16 << 20;

const REQUEST: [u8; 4] = *b"PLBQ";
const ANSWER: [u8; 4] = *b"PLBA";

/// Why bytes are not a message.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum WireError {
    /// They are of no version that this program knows.
    #[error("version {given} is too far from {VERSION}, this program's")]
    Version {
        /// What they say.
        given: u8,
    },
    /// They are the answer of another node than the one that was asked.
    #[error("another node answers at its address; cassandra.peer_address of each node must lead to that node alone")]
    OtherNode,
    /// They end early, have too much, or are something else.
    #[error("not a message of a node: {0}")]
    Damaged(&'static str),
}

/// A request in its version.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    /// The version to answer in.
    pub version: u8,
    /// The id of the node that asks; empty where it has none.
    pub node: String,
    /// What is wanted.
    pub metrics: Vec<HeadRequest>,
}

/// As many of these as one request may have, and the others.
pub fn split_request(metrics: &[HeadRequest]) -> (&[HeadRequest], &[HeadRequest]) {
    // What is before the records is less than a record of the longest name.
    let mut left = MAX_REQUEST_BYTES - bytes_of_metric(usize::from(u16::MAX));
    let fits = |metric: &&HeadRequest| match left.checked_sub(bytes_of_metric(metric.name.len())) {
        Some(less) => {
            left = less;
            true
        }
        None => false,
    };
    metrics.split_at(metrics.iter().take(MAX_METRICS).take_while(fits).count())
}

fn bytes_of_metric(name: usize) -> usize {
    22 + name.min(usize::from(u16::MAX))
}

/// Writes a request of a node.
pub fn write_request(node: &str, metrics: &[HeadRequest]) -> Vec<u8> {
    let names: usize = metrics.iter().map(|metric| bytes_of_metric(metric.name.len())).sum();
    let mut out = Vec::with_capacity(10 + node.len() + names);
    out.extend_from_slice(&REQUEST);
    let node = &node.as_bytes()[..node.len().min(usize::from(u8::MAX))];
    out.extend_from_slice(&[VERSION, node.len() as u8]);
    out.extend_from_slice(node);
    out.extend_from_slice(&(metrics.len() as u32).to_le_bytes());
    for HeadRequest { name, span } in metrics {
        // Names are much shorter: 4 KiB at most.
        let name = &name.as_bytes()[..name.len().min(usize::from(u16::MAX))];
        out.extend_from_slice(&(18 + name.len() as u32).to_le_bytes());
        out.extend_from_slice(&span.start.to_le_bytes());
        out.extend_from_slice(&span.end.to_le_bytes());
        out.extend_from_slice(&(name.len() as u16).to_le_bytes());
        out.extend_from_slice(name);
    }
    out
}

/// Reads a request.
///
/// # Errors
/// The bytes are something else.
pub fn read_request(bytes: &[u8]) -> Result<Request, WireError> {
    let mut from = Bytes(bytes);
    let version = from.version(REQUEST)?;
    let [node_length] = from.take()?;
    let node = std::str::from_utf8(from.bytes(usize::from(node_length))?);
    let node = node.map_err(|_| WireError::Damaged("the id of its node is not UTF-8"))?.to_owned();
    let count = from.u32()? as usize;
    if count > MAX_METRICS {
        return Err(WireError::Damaged("too many metrics"));
    }
    // The bytes bound what is reserved.
    let mut metrics = Vec::with_capacity(count.min(bytes.len() / 22));
    for _ in 0..count {
        let mut record = from.record()?;
        let span = record.i64()?..record.i64()?;
        let length = u16::from_le_bytes(record.take()?);
        let name = std::str::from_utf8(record.bytes(usize::from(length))?);
        let name = name.map_err(|_| WireError::Damaged("a name is not UTF-8"))?.to_owned();
        metrics.push(HeadRequest { name, span });
    }
    from.end()?;
    Ok(Request { version: version.min(VERSION), node, metrics })
}

/// Writes the answer to a request of a version; `None` where it is longer than an answer may be.
pub fn write_answer(version: u8, node: &str, heads: &[Head]) -> Option<Vec<u8>> {
    let of_head = |head: &Head| 6 + head.iter().map(|run| 13 + 8 * run.values.len()).sum::<usize>();
    let node_length = u8::try_from(node.len()).ok()?;
    let bytes = 10 + node.len() + heads.iter().map(of_head).sum::<usize>();
    if bytes > MAX_ANSWER_BYTES || heads.iter().any(|head| head.len() > usize::from(u16::MAX)) {
        return None;
    }
    let mut out = Vec::with_capacity(bytes);
    out.extend_from_slice(&ANSWER);
    out.extend_from_slice(&[version, node_length]);
    out.extend_from_slice(node.as_bytes());
    out.extend_from_slice(&(heads.len() as u32).to_le_bytes());
    for head in heads {
        out.extend_from_slice(&(of_head(head) as u32 - 4).to_le_bytes());
        out.extend_from_slice(&(head.len() as u16).to_le_bytes());
        for HeadRun { is_coarse, resolution, first_slot, values } in head {
            out.push(u8::from(*is_coarse));
            for number in [*resolution, *first_slot, values.len() as u32] {
                out.extend_from_slice(&number.to_le_bytes());
            }
            values.iter().for_each(|value| out.extend_from_slice(&value.to_le_bytes()));
        }
    }
    Some(out)
}

/// Reads the answer of a node to a request of so many metrics.
///
/// # Errors
/// The bytes are something else, or of another node.
pub fn read_answer(bytes: &[u8], node: &str, metrics: usize) -> Result<Vec<Head>, WireError> {
    let mut from = Bytes(bytes);
    from.version(ANSWER)?;
    let [node_length] = from.take()?;
    if from.bytes(usize::from(node_length))? != node.as_bytes() {
        return Err(WireError::OtherNode);
    }
    let count = from.u32()? as usize;
    if count != metrics {
        return Err(WireError::Damaged("not as many metrics as were asked for"));
    }
    let mut heads = Vec::with_capacity(count);
    for _ in 0..count {
        let mut record = from.record()?;
        let runs = u16::from_le_bytes(record.take()?);
        let mut head = Head::with_capacity(usize::from(runs).min(record.0.len() / 13));
        for _ in 0..runs {
            let is_coarse = match record.take()? {
                [0] => false,
                [1] => true,
                _ => return Err(WireError::Damaged("an unknown kind of stage")),
            };
            let [resolution, first_slot, count] = [record.u32()?, record.u32()?, record.u32()?];
            if resolution == 0 {
                return Err(WireError::Damaged("a slot of no length"));
            }
            // The times of points are of 32 bits.
            let last = (u64::from(first_slot) + u64::from(count.saturating_sub(1))).checked_mul(u64::from(resolution));
            if last.is_none_or(|last| u64::from(u32::MAX) < last) {
                return Err(WireError::Damaged("a slot behind all times"));
            }
            let values = record.bytes((count as usize).checked_mul(8).ok_or(WireError::Damaged("it is too long"))?)?;
            let value = |bytes: &[u8]| f64::from_le_bytes(bytes.try_into().expect("chunks of eight"));
            head.push(HeadRun {
                is_coarse,
                resolution,
                first_slot,
                values: values.chunks_exact(8).map(value).collect(),
            });
        }
        heads.push(head);
    }
    from.end()?;
    Ok(heads)
}

/// What is left of a message.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn version(&mut self, magic: [u8; 4]) -> Result<u8, WireError> {
        if self.take::<4>()? != magic {
            return Err(WireError::Damaged("it begins otherwise"));
        }
        let [version] = self.take()?;
        if version == 0 || version.abs_diff(VERSION) > 1 {
            return Err(WireError::Version { given: version });
        }
        Ok(version)
    }

    fn bytes(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(WireError::Damaged("it ends early"))?;
        self.0 = rest;
        Ok(bytes)
    }

    fn take<const COUNT: usize>(&mut self) -> Result<[u8; COUNT], WireError> {
        Ok(self.bytes(COUNT)?.try_into().expect("as many as asked for"))
    }

    fn u32(&mut self) -> Result<u32, WireError> {
        self.take().map(u32::from_le_bytes)
    }

    fn i64(&mut self) -> Result<i64, WireError> {
        self.take().map(i64::from_le_bytes)
    }

    /// A record; what a later version has at its end is left in it.
    fn record(&mut self) -> Result<Bytes<'a>, WireError> {
        let length = self.u32()? as usize;
        self.bytes(length).map(Bytes)
    }

    fn end(&self) -> Result<(), WireError> {
        if self.0.is_empty() { Ok(()) } else { Err(WireError::Damaged("there is more behind its end")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: &str = "n1";

    fn requests() -> Vec<HeadRequest> {
        let request = |name: &str, span| HeadRequest { name: name.to_owned(), span };
        vec![request("a.b", 0..3600), request("ä;dc=x", -60..i64::MAX), request("", 5..5)]
    }

    fn heads() -> Vec<Head> {
        let run =
            |is_coarse, values: &[f64]| HeadRun { is_coarse, resolution: 60, first_slot: 7, values: values.to_vec() };
        vec![vec![run(false, &[1.0, -0.5]), run(true, &[1e300])], vec![], vec![run(false, &[f64::INFINITY])]]
    }

    #[test]
    fn messages_read_back_as_written() {
        let request = read_request(&write_request(NODE, &requests())).unwrap();
        assert_eq!(request, Request { version: VERSION, node: NODE.to_owned(), metrics: requests() });
        assert_eq!(read_answer(&write_answer(VERSION, NODE, &heads()).unwrap(), NODE, 3).unwrap(), heads());
        assert_eq!(read_request(&write_request("", &[])).unwrap().metrics, []);
        let bytes =
            write_answer(VERSION, NODE, &[vec![HeadRun { values: vec![f64::NAN], ..heads()[0][0].clone() }]]).unwrap();
        assert!(read_answer(&bytes, NODE, 1).unwrap()[0][0].values[0].is_nan());
    }

    /// A message of the next version, whose records begin at a place: each has four bytes more.
    fn of_next_version(bytes: &[u8], begin: usize) -> Vec<u8> {
        let (mut next, mut rest) = (bytes[..begin].to_vec(), &bytes[begin..]);
        next[4] = VERSION + 1;
        while let Some((length, more)) = rest.split_first_chunk::<4>() {
            let length = u32::from_le_bytes(*length);
            next.extend_from_slice(&(length + 4).to_le_bytes());
            next.extend_from_slice(&more[..length as usize]);
            next.extend_from_slice(b"more");
            rest = &more[length as usize..];
        }
        next
    }

    #[test]
    fn the_next_version_is_understood_and_answered_in_this_one() {
        let request = read_request(&of_next_version(&write_request(NODE, &requests()), 12)).unwrap();
        assert_eq!(request, Request { version: VERSION, node: NODE.to_owned(), metrics: requests() });
        assert_eq!(
            read_answer(&of_next_version(&write_answer(VERSION, NODE, &heads()).unwrap(), 12), NODE, 3).unwrap(),
            heads()
        );
        let mut distant = write_request(NODE, &requests());
        distant[4] = VERSION + 2;
        assert_eq!(read_request(&distant), Err(WireError::Version { given: VERSION + 2 }));
    }

    #[test]
    fn damaged_messages_are_errors_and_reserve_little() {
        let (request, answer) = (write_request(NODE, &requests()), write_answer(VERSION, NODE, &heads()).unwrap());
        for end in 0..request.len() {
            read_request(&request[..end]).unwrap_err();
        }
        for end in 0..answer.len() {
            read_answer(&answer[..end], NODE, 3).unwrap_err();
        }
        read_request(&[&request[..], b"x"].concat()).unwrap_err();
        read_answer(&[&answer[..], b"x"].concat(), NODE, 3).unwrap_err();
        assert_eq!(read_answer(&answer, NODE, 2), Err(WireError::Damaged("not as many metrics as were asked for")));
        read_answer(b"<html><body>502 Bad Gateway</body></html>", NODE, 3).unwrap_err();
        // Each byte changed: an error, or other values, and never more than the bytes have.
        for place in 0..answer.len() {
            let mut changed = answer.clone();
            changed[place] ^= 0xff;
            if let Ok(heads) = read_answer(&changed, NODE, 3) {
                assert!(heads.iter().flatten().map(|run| run.values.len()).sum::<usize>() <= answer.len() / 8);
            }
        }
        let huge = [&REQUEST[..], &[VERSION, 0], &u32::MAX.to_le_bytes()].concat();
        assert_eq!(read_request(&huge), Err(WireError::Damaged("too many metrics")));
    }

    #[test]
    fn an_answer_of_another_node_or_of_no_time_is_an_error() {
        let answer = write_answer(VERSION, "n2", &heads()).unwrap();
        assert_eq!(read_answer(&answer, NODE, 3), Err(WireError::OtherNode));
        for (resolution, first_slot, is_time) in [
            (u32::MAX, u32::MAX, false),
            (60, u32::MAX, false),
            (60, u32::MAX / 60, false),
            (60, u32::MAX / 60 - 1, true),
            (1, u32::MAX - 1, true),
        ] {
            let run = HeadRun { is_coarse: false, resolution, first_slot, values: vec![1.0, 2.0] };
            let answer = write_answer(VERSION, NODE, &[vec![run]]).unwrap();
            assert_eq!(read_answer(&answer, NODE, 1).is_ok(), is_time, "{resolution} {first_slot}");
        }
    }

    #[test]
    fn a_request_has_a_largest_size_and_more_metrics_are_several_requests() {
        for (count, name_length, expected) in [
            (0, 0, vec![]),
            (MAX_METRICS, 40, vec![MAX_METRICS]),
            (MAX_METRICS + 1, 40, vec![MAX_METRICS, 1]),
            (4000, 4096, vec![1511, 1511, 978]),
            (100, 70_000, vec![94, 6]),
        ] {
            let name = "x".repeat(name_length);
            let all: Vec<HeadRequest> = (0..count).map(|_| HeadRequest { name: name.clone(), span: 0..1 }).collect();
            let (mut rest, mut parts) = (&all[..], Vec::new());
            while !rest.is_empty() {
                let (part, more) = split_request(rest);
                let bytes = write_request(NODE, part);
                assert!(bytes.len() <= MAX_REQUEST_BYTES);
                assert_eq!(read_request(&bytes).unwrap().metrics.len(), part.len());
                parts.push(part.len());
                rest = more;
            }
            assert_eq!(parts, expected);
        }
    }

    #[test]
    fn an_answer_has_a_largest_size() {
        let run = |values| HeadRun { is_coarse: false, resolution: 1, first_slot: 0, values: vec![1.0; values] };
        assert!(write_answer(VERSION, NODE, &[vec![run(1_000_000)]]).is_some());
        assert!(write_answer(VERSION, NODE, &[vec![run(MAX_ANSWER_BYTES / 8)]]).is_none());
    }
}
