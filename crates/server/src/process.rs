//! This process as the operating system sees it: CPU time, memory, open files.

use std::path::Path;

use host::Disk;

/// The process now. All zero where there is no `/proc`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Process {
    /// CPU time used since the start, user and system, seconds.
    pub cpu_seconds: f64,
    /// Resident memory, bytes.
    pub resident_bytes: u64,
    /// Open file descriptors.
    pub open_files: u64,
}

/// Ticks of `/proc/self/stat` a second. The kernel fixes it at 100 for user space on every
/// architecture this program is built for, whatever its own timer does.
const TICKS_PER_SECOND: f64 = 100.0;

impl Process {
    /// Reads `/proc/self`.
    pub fn read(disk: &dyn Disk) -> Process {
        let text = |path: &str| disk.read_to_string(Path::new(path)).unwrap_or_default();
        let (stat, status) = (text("/proc/self/stat"), text("/proc/self/status"));
        let open_files = disk.read_dir(Path::new("/proc/self/fd")).map_or(0, |entries| entries.len() as u64);
        Process { cpu_seconds: cpu_seconds(&stat), resident_bytes: bytes_of("VmRSS:", &status), open_files }
    }
}

/// Fields 14 and 15 of `/proc/self/stat`, counted from after the program's name. The name is in
/// parentheses and may contain blanks and parentheses.
fn cpu_seconds(stat: &str) -> f64 {
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = after_name.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok());
    ticks.sum::<u64>() as f64 / TICKS_PER_SECOND
}

/// Resident memory that no file backs, bytes.
pub fn anonymous_bytes(disk: &dyn Disk) -> u64 {
    let status = disk.read_to_string(Path::new("/proc/self/status")).unwrap_or_default();
    bytes_of("RssAnon:", &status)
}

fn bytes_of(field: &str, status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// The machine's name as carbon writes it in its own metrics: underscores for dots.
pub fn host_name(disk: &dyn Disk) -> String {
    machine_name(disk).replace('.', "_")
}

/// The machine's name, as others resolve it.
pub fn machine_name(disk: &dyn Disk) -> String {
    let text = |path: &str| disk.read_to_string(Path::new(path));
    let name = text("/proc/sys/kernel/hostname").or_else(|_| text("/etc/hostname"));
    let name = name.ok().map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
    name.unwrap_or_else(|| "localhost".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_read_after_a_name_with_blanks_and_parentheses() {
        let stat = "42 (a ) b) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 4 0 100 1000 100";
        assert_eq!(cpu_seconds(stat), 3.0);
        assert_eq!(cpu_seconds(""), 0.0);
    }

    #[test]
    fn resident_memory_is_given_in_kib() {
        assert_eq!(bytes_of("VmRSS:", "VmPeak:\t10 kB\nVmRSS:\t  2048 kB\n"), 2 << 20);
        assert_eq!(bytes_of("VmRSS:", ""), 0);
    }
}
