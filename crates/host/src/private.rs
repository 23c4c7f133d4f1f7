//! Rights on the files that this process makes.

use rustix::{fs::Mode, process::umask};

/// Files and directories that this process makes from now on are its user's alone.
pub fn make_new_files_private() {
    umask(Mode::RWXG | Mode::RWXO);
}
