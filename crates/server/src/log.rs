//! Log lines: their destination and format.
//!
//! A thread of its own writes them: a pipe that is not read, or a disk that stalls, would otherwise stop every thread that
//! logs.

use std::{
    collections::VecDeque,
    io::{self, Write},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::settings::{Log, LogFormat};

/// Bytes that wait to be written, at most. Further lines are dropped and counted.
const MOST_BYTES: usize = 4 << 20;

/// How long the end of the program waits for its last lines to be written.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Sends events to standard error from now on. Once per process. The last lines are written when the answer is dropped.
pub fn start(settings: &Log) -> anyhow::Result<LastLines> {
    let lines = Lines::default();
    lines.write_to(io::stderr())?;
    let last = LastLines(lines.clone());
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(settings.level.filter())
        .with_writer(move || lines.clone())
        .with_target(false)
        // A full disk or a closed pipe must not stop the program, nor add lines to the log.
        .log_internal_errors(false);
    let started = match settings.format {
        LogFormat::Json => subscriber.json().flatten_event(true).try_init(),
        LogFormat::Auto | LogFormat::Text => {
            subscriber.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).try_init()
        }
    };
    started.map_err(|error| anyhow::anyhow!("cannot start the log: {error}"))?;
    Ok(last)
}

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
struct Lines(Arc<Shared>);

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
    /// Starts the thread.
    fn write_to(&self, mut out: impl Write + Send + 'static) -> io::Result<()> {
        let shared = self.0.clone();
        let write = move || {
            loop {
                let (line, dropped) = shared.next();
                let _ = out.write_all(&line);
                if 0 < dropped {
                    let _ = writeln!(out, "{dropped} log lines were dropped: nothing read them in time");
                }
                lock(&shared.queue).is_writing = false;
                shared.changed.notify_all();
            }
        };
        std::thread::Builder::new().name("log".to_owned()).spawn(write).map(drop)
    }
}

/// A call is a line, as the subscriber writes it.
impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let Shared { queue, changed } = &*self.0;
        let mut queue = lock(queue);
        if MOST_BYTES < queue.bytes + line.len() {
            queue.dropped += 1;
        } else {
            queue.bytes += line.len();
            queue.lines.push_back(line.to_vec());
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
    fn nothing_waits_for_lines_that_are_not_read_and_those_beyond_the_bound_are_counted() {
        let (go, stalls) = mpsc::channel();
        let (gets, got) = mpsc::channel();
        let mut lines = Lines::default();
        lines.write_to(Stalling(stalls, gets)).unwrap();
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
        assert!(String::from_utf8_lossy(&written).contains(&format!("{dropped} log lines were dropped")));
        lines.write_all(b"after").unwrap();
        drop(LastLines(lines));
        assert_eq!(got.try_iter().last().unwrap(), b"after");
    }
}
