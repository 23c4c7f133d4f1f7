//! The server that is measured: its addresses, its processes and its folder, and waiting until it is at rest.

use std::{
    ops::Range,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use crate::{
    Error,
    cpu_time::Both,
    disk::Disk,
    encode::Protocol,
    http::Server,
    load::Load,
    process::Process,
    readable::{self, Readable},
    rest::{self, Rest},
};

/// A folder is settled when its size did not change for this long. VictoriaMetrics writes what it holds after five seconds.
const SETTLED: Duration = Duration::from_secs(7);
/// The longest wait for a folder to settle, because some servers write a little all the time.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest wait for a server to become idle by default, where reading back shows when its points are stored.
const IDLE_TIMEOUT_WHEN_READABLE: Duration = Duration::from_secs(30);
/// The wait in place of that for a server without a known process: it lets work of a second or two end.
const IDLE_UNSEEN: Duration = Duration::from_secs(3);

/// A server, with as many of its parts as the user named.
#[derive(Debug, Clone)]
pub(crate) struct MeasuredServer {
    pub(crate) receiver: String,
    pub(crate) protocol: Protocol,
    pub(crate) process: Option<Process>,
    /// Processes of the store that the server writes to.
    pub(crate) stores: Vec<Process>,
    pub(crate) disk: Option<PathBuf>,
    pub(crate) http: Option<String>,
    pub(crate) flush: Option<String>,
    /// Post to `flush` as soon as points are accepted, not when the server is idle.
    pub(crate) flush_at_once: bool,
    /// Metrics whose points must be readable before they count as stored; 0 for none.
    pub(crate) readable: u64,
    pub(crate) timeout: Duration,
    /// Longest wait until it is idle.
    pub(crate) idle_timeout: Duration,
}

/// The processes of a store. Each may be given once, and not the server's: its time would be counted twice.
pub(crate) fn stores(server: Option<u32>, stores: &[u32]) -> Result<Vec<Process>, Error> {
    for (place, store) in stores.iter().enumerate() {
        if server == Some(*store) || stores.iter().take(place).any(|other| other == store) {
            return Err(Error::Usage(format!("process {store} is given twice, and its time would be counted twice")));
        }
    }
    stores.iter().map(|store| Process::new(*store)).collect()
}

/// Longest wait until a server is idle: `given` seconds, or a default that depends on `readable`, the number of metrics that
/// are read back to know when points are stored.
pub(crate) fn idle_timeout(given: Option<u64>, readable: u64, timeout: u64) -> Duration {
    let default = Duration::from_secs(timeout);
    let default = if 0 < readable { default.min(IDLE_TIMEOUT_WHEN_READABLE) } else { default };
    given.map_or(default, Duration::from_secs)
}

impl MeasuredServer {
    /// Processor time so far.
    pub(crate) fn cpu_used(&self) -> Result<Both<Option<Duration>>, Error> {
        Ok(Both { server: rest::cpu(self.process.as_slice())?, stores: rest::cpu(&self.stores)? })
    }

    /// Waits until the server and its stores are idle, at most `idle_timeout`. Without a known process, waits a fixed time.
    pub(crate) fn rest(&self) -> Result<Both<Option<Rest>>, Error> {
        if self.process.is_none() && self.stores.is_empty() {
            thread::sleep(IDLE_UNSEEN);
        }
        let [server, stores] = rest::wait([self.process.as_slice(), &self.stores], self.idle_timeout)?;
        Ok(Both { server, stores })
    }

    /// Makes the server write out all it holds, where it has an address for that.
    pub(crate) fn write_out(&self) -> Result<(), Error> {
        let Some(flush) = &self.flush else { return Ok(()) };
        eprintln!("asking the server to write everything out");
        let answer = Server::new(flush, self.timeout)?.post()?;
        if !(200..300).contains(&answer.status) {
            answer.success()?;
        }
        Ok(())
    }

    /// Waits until these rows can be read, for a server with `readable` metrics.
    pub(crate) fn until_readable(&self, load: &Load, rows: Range<u32>) -> Result<Option<Readable>, Error> {
        let Some(http) = self.http.as_deref().filter(|_| 0 < self.readable) else { return Ok(None) };
        eprintln!("waiting until the points of {} metrics can be read", self.readable.min(load.series));
        let mut server = Server::new(http, self.timeout)?;
        readable::wait(&mut server, load, &rows, self.readable, self.timeout).map(Some)
    }

    /// The size of the folder once it does not change any more: idle servers may hold points that are not written yet.
    pub(crate) fn settled_disk_size(&self) -> Result<Option<Disk>, Error> {
        let Some(mut size) = self.disk_size()? else { return Ok(None) };
        let started = Instant::now();
        let mut since = started;
        while since.elapsed() < SETTLED && started.elapsed() < SETTLE_TIMEOUT {
            thread::sleep(Duration::from_millis(500));
            let next = self.disk_size()?.unwrap_or_default();
            if next != size {
                (size, since) = (next, Instant::now());
            }
        }
        Ok(Some(size))
    }

    /// The size of the folder now.
    pub(crate) fn disk_size(&self) -> Result<Option<Disk>, Error> {
        self.disk.as_deref().map(Disk::of).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_may_not_be_given_twice() {
        let me = std::process::id();
        assert_eq!(stores(None, &[me]).map(|stores| stores.len()).ok(), Some(1));
        assert!(matches!(stores(Some(me), &[me]), Err(Error::Usage(_))));
        assert!(matches!(stores(None, &[me, me]), Err(Error::Usage(_))));
        assert!(matches!(stores(None, &[u32::MAX]), Err(Error::Process { .. })));
    }

    #[test]
    fn a_server_whose_points_are_read_back_gets_half_a_minute_to_become_idle_by_default() {
        let seconds = Duration::from_secs;
        assert_eq!(idle_timeout(None, 0, 300), seconds(300));
        assert_eq!(idle_timeout(None, 50, 300), seconds(30));
        assert_eq!(idle_timeout(None, 50, 10), seconds(10));
        assert_eq!(idle_timeout(Some(120), 50, 300), seconds(120));
    }
}
