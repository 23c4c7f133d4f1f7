//! Signals that end a process unless it says otherwise. They do not end this one.

/// SIGXFSZ comes with a write beyond a limit of the size of files (`ulimit -f`, `LimitFSIZE=` of systemd). Without it the write
/// fails with `EFBIG`, and is treated as a full disk is: points wait, `/ready` says why, and the write happens once there is
/// room. Those for users have no meaning here; supervisors and rotations of logs send them. Timers of a wrapper that became this
/// process by `exec` go on, and send the alarms.
const IGNORED: [libc::c_int; 5] = [libc::SIGXFSZ, libc::SIGUSR1, libc::SIGUSR2, libc::SIGALRM, libc::SIGVTALRM];

/// Ignores them for as long as the process runs.
pub fn ignore() {
    for signal in IGNORED {
        // SAFETY: `SIG_IGN` runs no code of ours, and the call touches no memory.
        unsafe {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
}
