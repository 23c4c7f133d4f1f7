//! The processor time and the memory of another process, from /proc.

use std::time::Duration;

use serde::Serialize;

use crate::Error;

/// Ticks a second in /proc/PID/stat. It is USER_HZ, which is 100 on every Linux that matters here.
const TICKS: u64 = 100;

/// A process to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    pid: u32,
}

/// Bytes of memory in use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Memory {
    pub(crate) resident: u64,
    /// The part that no file backs.
    pub(crate) anonymous: u64,
    /// The most that was ever resident.
    pub(crate) peak: u64,
}

impl Process {
    pub(crate) fn new(pid: u32) -> Result<Process, Error> {
        let process = Process { pid };
        process.cpu()?;
        Ok(process)
    }

    /// User and system time so far, of all threads, those that have ended included.
    pub(crate) fn cpu(self) -> Result<Duration, Error> {
        parse_cpu(&self.read("stat")?).ok_or_else(|| self.invalid("stat"))
    }

    pub(crate) fn memory(self) -> Result<Memory, Error> {
        parse_memory(&self.read("status")?).ok_or_else(|| self.invalid("status"))
    }

    /// Resets the peak, on a best-effort basis: without the right to do so, the peak is that of the whole life.
    pub(crate) fn forget_peak(self) {
        _ = std::fs::write(format!("/proc/{}/clear_refs", self.pid), "5");
    }

    fn read(self, file: &str) -> Result<String, Error> {
        std::fs::read_to_string(format!("/proc/{}/{file}", self.pid))
            .map_err(|error| Error::Process { pid: self.pid, why: error.to_string() })
    }

    fn invalid(self, file: &str) -> Error {
        Error::Process { pid: self.pid, why: format!("invalid {file}") }
    }
}

fn parse_cpu(stat: &str) -> Option<Duration> {
    // The name of the program is in parentheses and may hold anything, parentheses and blanks too. The state is the
    // third field of proc(5), utime the 14th and stime the 15th.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(Duration::from_millis((user + system) * (1_000 / TICKS)))
}

fn parse_memory(status: &str) -> Option<Memory> {
    let bytes = |key: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kibibytes * 1024)
    };
    Some(Memory { resident: bytes("VmRSS")?, anonymous: bytes("RssAnon")?, peak: bytes("VmHWM")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_found_after_a_name_with_parentheses_and_blanks() {
        let stat =
            "42 (a) b (c)) S 1 42 42 0 -1 4194560 500 0 3 0 1234 66 7 8 20 0 5 0 100 1000 10 18446744073709551615";
        assert_eq!(parse_cpu(stat), Some(Duration::from_millis(13_000)));
        assert_eq!(parse_cpu("42 (a) S 1"), None);
    }

    #[test]
    fn memory_is_read_in_bytes() {
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\nRssAnon:\t     512 kB\nRssFile:\t 512 kB\n";
        assert_eq!(parse_memory(status), Some(Memory { resident: 1 << 20, anonymous: 512 << 10, peak: 2 << 20 }));
        assert_eq!(parse_memory("Name:\tkthreadd\n"), None);
    }

    #[test]
    fn our_own_process_can_be_measured_and_a_missing_one_cannot() {
        let myself = Process::new(std::process::id()).expect("we are here");
        assert!(0 < myself.memory().expect("we have memory").resident);
        assert!(Process::new(u32::MAX).is_err());
    }
}
