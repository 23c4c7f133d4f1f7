//! Lines on their way to a file or a pipe.
//!
//! A thread of its own writes them: a pipe that is not read, or a disk that stalls, would otherwise stop every thread that
//! has a line.

use std::{
    collections::VecDeque,
    io::{self, Write},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Bytes that wait to be written, at most. Further lines are dropped and counted.
const MOST_BYTES: usize = 4 << 20;

/// How long the end of the program waits for its last lines to be written.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Waits for the last lines when it is dropped, for a second at most.
#[must_use = "the last lines would be lost"]
pub struct LastLines(Lines);

impl Drop for LastLines {
    fn drop(&mut self) {
        let Shared { queue, changed } = &*self.0.0;
        let waiting = |queue: &mut Queue| !queue.lines.is_empty() || queue.is_writing;
        let _ = changed.wait_timeout_while(lock(queue), LAST_LINES, waiting);
    }
}

/// Lines on their way to a thread that writes them. A clone is the same queue.
#[derive(Clone, Default)]
pub struct Lines(Arc<Shared>);

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Since lines were last written.
    dropped: u64,
    is_writing: bool,
}

impl Lines {
    /// A queue, and the thread that writes its lines. `dropped` is the line that says how many were dropped.
    pub fn written_to(
        name: &str,
        out: impl Write + Send + 'static,
        dropped: fn(u64) -> String,
    ) -> io::Result<(Lines, LastLines)> {
        let lines = Lines::default();
        lines.write_to(name, out, dropped)?;
        Ok((lines.clone(), LastLines(lines)))
    }

    fn write_to(
        &self,
        name: &str,
        mut out: impl Write + Send + 'static,
        dropped_line: fn(u64) -> String,
    ) -> io::Result<()> {
        let shared = self.0.clone();
        let write = move || {
            loop {
                let (line, dropped) = shared.next();
                let _ = out.write_all(&line);
                if 0 < dropped {
                    let _ = out.write_all(dropped_line(dropped).as_bytes());
                }
                lock(&shared.queue).is_writing = false;
                shared.changed.notify_all();
            }
        };
        std::thread::Builder::new().name(name.to_owned()).spawn(write).map(drop)
    }
}

/// A line without line ends and NUL but at its end, so that no text from outside can look like a line of its own. Other control
/// characters are for the caller to escape.
fn one_line(line: &[u8]) -> Vec<u8> {
    let (inside, end) = match line {
        [inside @ .., b'\n'] => (inside, &b"\n"[..]),
        _ => (line, &b""[..]),
    };
    let is_plain = |byte: &u8| !matches!(byte, b'\n' | b'\r' | 0);
    let mut escaped = Vec::with_capacity(line.len() + 16);
    for byte in inside {
        match is_plain(byte) {
            true => escaped.push(*byte),
            false => escaped.extend(byte.escape_ascii()),
        }
    }
    escaped.extend_from_slice(end);
    escaped
}

/// A call is a line.
impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let Shared { queue, changed } = &*self.0;
        let escaped = one_line(line);
        let mut queue = lock(queue);
        if MOST_BYTES < queue.bytes + escaped.len() {
            queue.dropped += 1;
        } else {
            queue.bytes += escaped.len();
            queue.lines.push_back(escaped);
            drop(queue);
            changed.notify_all();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    /// Waits for a line. Returns it, and how many were dropped behind the last one of the queue.
    fn next(&self) -> (Vec<u8>, u64) {
        let mut queue = self.changed.wait_while(lock(&self.queue), |queue| queue.lines.is_empty());
        let queue = queue.as_mut().unwrap_or_else(|poisoned| poisoned.get_mut());
        let line = queue.lines.pop_front().unwrap_or_default();
        queue.bytes -= line.len();
        queue.is_writing = true;
        let dropped = if queue.lines.is_empty() { std::mem::take(&mut queue.dropped) } else { 0 };
        (line, dropped)
    }
}

fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Stalls at each call until the test says so, and keeps what it gets.
    struct Stalling(mpsc::Receiver<()>, mpsc::Sender<Vec<u8>>);

    impl Write for Stalling {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            let _ = self.1.send(bytes.to_vec());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_call_is_one_line() {
        assert_eq!(one_line(b"a\n"), b"a\n");
        assert_eq!(one_line(b"a\nERROR b\r\n"), b"a\\nERROR b\\r\n");
        assert_eq!(one_line("\u{1b}[31mé\0".as_bytes()), "\u{1b}[31mé\\x00".as_bytes());
    }

    #[test]
    fn nothing_waits_for_lines_that_are_not_read_and_those_beyond_the_bound_are_counted() {
        let (go, stalls) = mpsc::channel();
        let (gets, got) = mpsc::channel();
        let mut lines = Lines::default();
        let dropped = |count| format!("{count} lines were dropped in time\n");
        lines.write_to("test", Stalling(stalls, gets), dropped).unwrap();
        let line = [b'x'; 1 << 10];
        let fit = MOST_BYTES / line.len();
        for _ in 0..2 * fit {
            assert_eq!(lines.write(&line).unwrap(), line.len());
        }
        assert!(lock(&lines.0.queue).bytes <= MOST_BYTES);
        // It is not waited for longer than a second, either.
        drop(LastLines(lines.clone()));
        drop(go);
        let mut written = Vec::new();
        while !written.ends_with(b"in time\n") {
            written.extend(got.recv_timeout(Duration::from_secs(20)).unwrap());
        }
        let kept = written.iter().filter(|&&byte| byte == b'x').count() / line.len();
        let dropped = (2 * fit - kept).to_string();
        assert!(String::from_utf8_lossy(&written).contains(&format!("{dropped} lines were dropped")));
        lines.write_all(b"after").unwrap();
        drop(LastLines(lines));
        assert_eq!(got.try_iter().last().unwrap(), b"after");
    }
}
