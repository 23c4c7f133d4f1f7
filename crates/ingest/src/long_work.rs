//! Work that takes longer than the other tasks of a thread should wait.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Does the work. If it is long, the other tasks of this thread move to another meanwhile, where the runtime has others.
pub(crate) fn do_work<R>(is_long: bool, work: impl FnOnce() -> R) -> R {
    let is_long = is_long && Handle::try_current().is_ok_and(|now| now.runtime_flavor() == RuntimeFlavor::MultiThread);
    if is_long { tokio::task::block_in_place(work) } else { work() }
}
