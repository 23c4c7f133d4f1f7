//! A limit of the size of files: `ulimit -f`, `LimitFSIZE=` of systemd.

/// Makes a write beyond the limit fail with `EFBIG` instead of ending the process with a signal, so that it is treated as a
/// full disk is: points wait, `/ready` says why, and the write happens once there is room.
pub fn fail_at_the_limit() {
    // SAFETY: `SIG_IGN` runs no code of ours, and the call touches no memory.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}
