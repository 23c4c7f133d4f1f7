//! Logs of requests: queries, slow queries, and an audit of writes, administration and refused clients. A line of JSON each.

use std::{
    io::{self, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use api::{Access, RequestRecord};
use host::{Clock, Disk, Host, MinuteLog, Open};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use crate::{
    lines::{LastLines, Lines},
    settings::Log,
};

/// Lines a second about clients that are refused. Others are counted by the next line.
const REFUSED_PER_SECOND: u32 = 10;

/// The logs that the settings ask for.
pub struct RequestLog {
    queries: Option<Lines>,
    slow: Option<Lines>,
    slow_after: Duration,
    audit: Option<Lines>,
    refused: Mutex<Refused>,
    clock: Arc<dyn Clock>,
    /// Written when the program ends.
    _last: Vec<LastLines>,
}

/// Refused clients of the current second.
#[derive(Default)]
struct Refused {
    second: Option<Instant>,
    lines: u32,
    suppressed: u64,
}

/// Which log a request belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Query,
    Audit,
    /// A client without the credential or the scope, or a page of another site.
    Refused,
    /// Health checks and scrapes.
    Nothing,
}

impl RequestLog {
    /// The logs of the settings; `None` if there are none, and then requests have no records.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn open(settings: &Log, host: &Host) -> anyhow::Result<Option<RequestLog>> {
        let mut last = Vec::new();
        let mut log = |path: &Option<PathBuf>, setting: &str| -> anyhow::Result<Option<Lines>> {
            let Some(path) = path else { return Ok(None) };
            let file = LogFile { disk: host.disk.clone(), path: path.clone(), failures: MinuteLog::new() };
            file.append(b"").with_context(|| format!("cannot write {} ({setting})", path.display()))?;
            let (lines, last_lines) = Lines::written_to(setting, file, dropped)?;
            last.push(last_lines);
            Ok(Some(lines))
        };
        let (queries, slow) =
            (log(&settings.queries, "log.queries")?, log(&settings.slow_queries, "log.slow_queries")?);
        let audit = log(&settings.audit, "log.audit")?;
        if queries.is_none() && slow.is_none() && audit.is_none() {
            return Ok(None);
        }
        let (slow_after, clock, refused) = (settings.slow_after, host.clock.clone(), Mutex::default());
        Ok(Some(RequestLog { queries, slow, slow_after, audit, refused, clock, _last: last }))
    }

    /// Writes the line of a request where it belongs.
    pub fn add(&self, record: &RequestRecord) {
        match kind(record) {
            Kind::Nothing => {}
            Kind::Audit => write(&self.audit, || line(record, self.clock.now(), 0)),
            Kind::Refused => {
                if self.audit.is_some()
                    && let Some(suppressed) = self.refused.lock().is_due(self.clock.instant())
                {
                    write(&self.audit, || line(record, self.clock.now(), suppressed));
                }
            }
            Kind::Query => {
                write(&self.queries, || line(record, self.clock.now(), 0));
                if self.slow_after <= record.answered_in.max(record.sent_in) {
                    write(&self.slow, || line(record, self.clock.now(), 0));
                }
            }
        }
    }
}

impl Refused {
    /// Whether a line is due, and how many came without one before it.
    fn is_due(&mut self, now: Instant) -> Option<u64> {
        let is_same = |second: Instant| now.saturating_duration_since(second) < Duration::from_secs(1);
        if !self.second.is_some_and(is_same) {
            (self.second, self.lines) = (Some(now), 0);
        }
        if REFUSED_PER_SECOND <= self.lines {
            self.suppressed += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

fn kind(record: &RequestRecord) -> Kind {
    if matches!(record.status, Some(401 | 403 | 421)) {
        return Kind::Refused;
    }
    match record.access {
        Some(Access::Health | Access::Metrics | Access::Peer) => Kind::Nothing,
        Some(Access::Admin | Access::Delete | Access::Write) => Kind::Audit,
        _ if record.is_write => Kind::Audit,
        _ => Kind::Query,
    }
}

fn write(lines: &Option<Lines>, line: impl FnOnce() -> String) {
    if let Some(lines) = lines {
        // A line more or less does not stop a request: those that find no room are counted.
        _ = lines.clone().write_all(line().as_bytes());
    }
}

fn dropped(count: u64) -> String {
    format!("{}\n", json!({"dropped_lines": count}))
}

/// One line, for every reader: JSON has no line feeds within texts, and other characters that some take for the end of a line,
/// or for commands of a terminal, are written as their numbers.
fn line(record: &RequestRecord, now: i64, suppressed: u64) -> String {
    let seconds = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e6;
    let mut line = Map::new();
    let mut add = |key: &str, value: Value| _ = line.insert(key.to_owned(), value);
    add("time", host::utc(now).into());
    add("kind", record.kind.into());
    add("who", record.who.as_str().into());
    add("address", record.peer.to_string().into());
    add("method", record.method.as_str().into());
    add("path", record.path.as_str().into());
    if 0 < record.asked_bytes {
        add("asked", record.asked.as_str().into());
        add("asked_bytes", record.asked_bytes.into());
    }
    record.grafana.iter().for_each(|(name, value)| add(name, value.as_str().into()));
    // A client that left before the answer has no status.
    add("status", record.status.into());
    if record.status.is_some() {
        add("seconds", seconds(record.answered_in).into());
    }
    add("sent_seconds", seconds(record.sent_in).into());
    add("series", record.series.into());
    add("points", record.points.into());
    if 0 < record.rejected {
        add("rejected", record.rejected.into());
    }
    add("bytes", record.bytes.into());
    add("whole", record.is_whole.into());
    if let Some(limit) = record.limit {
        add("limit", limit.into());
    }
    if 0 < suppressed {
        add("refused_without_a_line", suppressed.into());
    }
    let mut text = String::new();
    for character in Value::Object(line).to_string().chars() {
        match character {
            _ if is_escaped(character) => text += &format!("\\u{:04x}", u32::from(character)),
            _ => text.push(character),
        }
    }
    text.push('\n');
    text
}

/// Characters that end a line for some readers, command a terminal, or change the order in which text is shown.
fn is_escaped(character: char) -> bool {
    let orders = ['\u{61c}', '\u{200e}', '\u{200f}', '\u{2028}', '\u{2029}'];
    character.is_control()
        || orders.contains(&character)
        || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A file that is opened for each write, so that another program may rename or remove it at any time.
struct LogFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    failures: MinuteLog,
}

impl LogFile {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.disk.open(Path::new(&self.path), Open::ReadWrite)?;
        file.seek(SeekFrom::End(0))?;
        file.write_all(bytes)
    }
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Err(error) = self.append(bytes)
            && let Some(suppressed) = self.failures.is_due(host::SystemClock.instant())
        {
            tracing::error!(file = %self.path.display(), %error, suppressed,
                "cannot write a log of requests; lines are lost; logging this once a minute");
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(access: Option<Access>, status: u16) -> RequestRecord {
        RequestRecord {
            kind: "render",
            access,
            is_write: false,
            who: "a\nb\"".to_owned(),
            peer: ([127, 0, 0, 1], 5).into(),
            method: "GET".to_owned(),
            path: "/render".to_owned(),
            asked: "a.*\u{2028}\r\n\u{85}\u{9b}\u{7f}\u{202e}\u{2066}".to_owned(),
            asked_bytes: 13,
            grafana: vec![("dashboard", "x1".to_owned())],
            status: Some(status),
            answered_in: Duration::from_micros(1500),
            sent_in: Duration::from_millis(2),
            series: 3,
            points: 60,
            rejected: 0,
            bytes: 1000,
            is_whole: true,
            limit: Some("query.max_series"),
        }
    }

    #[test]
    fn a_line_is_one_line_of_json() {
        let line = line(&record(Some(Access::Read), 422), 1_795_338_900, 2);
        assert!(
            !line.trim_end().contains(|c: char| c.is_control() || ['\u{2028}', '\u{202e}', '\u{2066}'].contains(&c)),
            "{line}"
        );
        assert_eq!(
            serde_json::from_str::<Value>(&line).unwrap(),
            json!({
                "time": "2026-11-22T09:15:00Z", "kind": "render", "who": "a\nb\"", "address": "127.0.0.1:5", "method": "GET",
                "path": "/render", "asked": "a.*\u{2028}\r\n\u{85}\u{9b}\u{7f}\u{202e}\u{2066}", "asked_bytes": 13, "dashboard": "x1", "status": 422,
                "seconds": 0.0015, "sent_seconds": 0.002, "series": 3, "points": 60, "bytes": 1000, "whole": true,
                "limit": "query.max_series", "refused_without_a_line": 2,
            })
        );
    }

    #[test]
    fn a_request_is_in_the_log_for_its_kind() {
        let check = |access, status, expected| assert_eq!(kind(&record(access, status)), expected);
        check(Some(Access::Read), 200, Kind::Query);
        check(None, 404, Kind::Query);
        check(Some(Access::Events), 200, Kind::Query);
        check(Some(Access::Admin), 200, Kind::Audit);
        check(Some(Access::Write), 200, Kind::Audit);
        check(Some(Access::Read), 401, Kind::Refused);
        check(Some(Access::Admin), 403, Kind::Refused);
        check(Some(Access::Health), 200, Kind::Nothing);
        check(Some(Access::Metrics), 200, Kind::Nothing);
        let event = RequestRecord { is_write: true, ..record(Some(Access::Events), 200) };
        assert_eq!(kind(&event), Kind::Audit);
    }

    #[test]
    fn refused_clients_have_ten_lines_a_second() {
        let (mut refused, start) = (Refused::default(), Instant::now());
        let due = |refused: &mut Refused, millis| refused.is_due(start + Duration::from_millis(millis));
        assert!((0..10).all(|i| due(&mut refused, i) == Some(0)));
        assert!((10..15).all(|i| due(&mut refused, i).is_none()));
        assert_eq!(due(&mut refused, 1000), Some(5));
        assert_eq!(due(&mut refused, 1001), Some(0));
    }
}
