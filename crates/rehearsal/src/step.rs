//! What is done to a node.

use std::time::Duration;

/// A point of a sender.
#[derive(Debug, Clone)]
pub struct Sent {
    /// Name.
    pub name: String,
    /// Seconds before now.
    pub age: i64,
    /// Value.
    pub value: f64,
}

/// One step of a rehearsal.
#[derive(Debug, Clone)]
pub enum Step {
    /// Lines of several connections, each in order, all at the same time.
    Send(Vec<Vec<Sent>>),
    /// Everything to the store.
    Flush,
    /// The rules with this number.
    Rules(usize),
    /// A user deletes the metrics of these names.
    Delete(Vec<String>),
    /// Time passes.
    Pass(Duration),
    /// The store frees expired points.
    Expire,
    /// An event.
    Event(String),
    /// A clean stop and a start.
    Restart,
    /// The process is killed, and started again.
    Kill,
    /// The power fails; the number chooses the state of the disk.
    PowerCut(u64),
    /// Everything that is served is compared with the model.
    Check,
}
