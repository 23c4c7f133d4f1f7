//! The sockets that points come in by.
//!
//! Each connection is one task with one batch: it reads the available bytes, decodes them, and waits in
//! [`crate::Acceptor::accept`] while the pipeline is full, which stops its socket being read. Bad input never ends a
//! connection. A clean stop reads what the kernel already holds before it closes; from a sender that never pauses, for
//! two seconds at most.

mod body;
mod budget;
mod connection;
mod door;
mod frames;
mod intake;
mod lines;
mod listener;
mod message;
mod socket;
mod udp;

pub use body::{BodyFormat, TakenBody, take_body};
pub use budget::{BudgetShare, BudgetUse, OutOfMemory, ReceiveBudget};
pub use door::{Allows, Door, Refused};
pub use frames::serve_frames;
pub use lines::serve_lines;
pub use listener::{ConnectionCap, Connections, ReceiverLimits};
pub use message::FrameFormat;
pub use udp::{serve_datagrams, serve_datagrams_behind};
