//! What `plumbago verify` and `plumbago repair` say about damaged places.

use std::collections::BTreeMap;

use backup::{Checked, DamagedPart, KnownLoss, Report};
use host::{NotedFiles, utc};
use metric::MetricId;
use serde_json::{Map, Value, json};

/// Names of one damaged place that are listed.
const MOST_NAMES: usize = 20;

/// Names of metrics by id.
pub type Names = BTreeMap<MetricId, String>;

/// How many metrics with a known name may be touched, and the first of their names.
fn touched(part: &DamagedPart, names: &Names) -> (usize, Vec<String>) {
    let Some((first, last)) = part.metrics else { return (0, Vec::new()) };
    let touched = names.range(first.min(last)..=first.max(last));
    (touched.clone().count(), touched.take(MOST_NAMES).map(|(_, name)| name.clone()).collect())
}

/// A damaged place as a line without its end.
pub fn line(file: &Checked, part: &DamagedPart, names: &Names) -> String {
    let DamagedPart { what, offset, bytes, how, metrics, span } = part;
    let path = file.path.display();
    // Nothing is left of a file that is missing.
    let mut text = match bytes {
        0 => format!("{path}: {what}: {how}"),
        bytes => format!("{path}: {what}, bytes {offset} to {}: {how}", offset + bytes),
    };
    let (count, shown) = touched(part, names);
    match metrics {
        Some((first, last)) if count == 0 => {
            text += &format!("; of metrics whose names are not known (ids {first} to {last})");
        }
        Some(_) => {
            text += &format!("; of at most {count} metrics: {}", shown.join(", "));
            text += if shown.len() < count { ", …" } else { "" };
        }
        None => {}
    }
    if let Some((from, until)) = *span {
        text += &format!("; points from {} to {}", utc(from), utc(until));
    }
    text
}

/// A damaged place as members of a JSON object.
pub fn as_json(file: &Checked, part: &DamagedPart, names: &Names) -> Map<String, Value> {
    let (count, shown) = touched(part, names);
    let value = json!({
        "file": file.path.display().to_string(), "what": part.what, "offset": part.offset, "bytes": part.bytes,
        "why": part.how,
        "metrics": part.metrics.is_some().then_some(count), "names": shown,
        "metric_ids": part.metrics.map(|(first, last)| [first.0, last.0]),
        "span": part.span.map(|(from, until)| [from, until]),
    });
    match value {
        Value::Object(members) => members,
        _ => unreachable!("an object was written"),
    }
}

/// Lines about writes that a crash cut off: said, and no damage.
pub fn cut_off_lines(report: &Report) -> String {
    let line = |file: &Checked| {
        let (path, bytes) = (file.path.display(), file.cut_off);
        format!(
            "{path}: its last {bytes} bytes are the beginning of a write, as a crash leaves it; nothing of that write was promised\n"
        )
    };
    report.cut_off().map(line).collect()
}

/// Lines about files whose last sync failed: what is read is right, and may not be on the disk.
pub fn written_again_lines(report: &Report) -> String {
    let line = |file: &str, how: &str| {
        format!(
            "written again by the next start: {file}: {how}; a power cut before that start may take what was written last\n"
        )
    };
    match &report.written_again {
        NotedFiles::All => line("all files of the folder", "the last syncs of too many files failed to note each"),
        NotedFiles::Some(paths) => {
            paths.iter().map(|path| line(&path.display().to_string(), "its last sync failed")).collect()
        }
    }
}

/// [`written_again_lines`] in JSON: the paths, or that these are all.
pub fn written_again_json(report: &Report) -> Value {
    match &report.written_again {
        NotedFiles::All => json!("all"),
        NotedFiles::Some(paths) => paths.iter().map(|path| path.display().to_string()).collect(),
    }
}

/// Lines about what is lost for good since an earlier damage.
pub fn known_losses(report: &Report) -> String {
    let line = |loss: &KnownLoss| {
        let KnownLoss { file, how, metrics, span } = loss;
        let mut text = format!("lost before: {}: {how}", file.display());
        if let Some((first, last)) = metrics {
            text += &format!(" (ids {first} to {last})");
        }
        if let Some((from, until)) = *span {
            text += &format!("; points from {} to {}", utc(from), utc(until));
        }
        text + "\n"
    };
    report.known_losses.iter().map(line).collect()
}

/// [`known_losses`] in JSON.
pub fn known_losses_json(report: &Report) -> Vec<Value> {
    let value = |loss: &KnownLoss| {
        json!({
            "file": loss.file.display().to_string(), "why": loss.how,
            "metric_ids": loss.metrics.map(|(first, last)| [first.0, last.0]),
            "span": loss.span.map(|(from, until)| [from, until]),
        })
    };
    report.known_losses.iter().map(value).collect()
}

/// [`cut_off_lines`] in JSON.
pub fn cut_off_json(report: &Report) -> Vec<Value> {
    report.cut_off().map(|file| json!({"file": file.path.display().to_string(), "bytes": file.cut_off})).collect()
}
