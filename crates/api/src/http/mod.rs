//! HTTP below Graphite: connections, bodies, parameters, limits, rejections, and what the program observes of them.
//!
//! [`serve`] is the door for connections, [`respond`] and [`short`] are the door for answers.

mod body;
mod browsers;
mod chunks;
mod client;
mod connection;
mod counted_body;
mod extension;
mod gzip;
mod http1;
mod http2;
mod idle;
mod limits;
mod memory;
mod observation;
mod pace;
mod paced_stream;
mod parameters;
mod queue;
mod record;
mod rejection;
mod response;
mod server;

pub use body::{Body, BodyError, RequestBody, Response};
pub use browsers::{AllowedHosts, BrowserRules};
pub use extension::{Access, Answer, AskedFor, Extension, ExtensionRequest, Sender, SenderLimits};
pub use limits::Limits;
pub use memory::MemoryUse;
pub use observation::{Answered, Observer, RequestRecord, TakenPoints};
pub use pace::SlowBody;

pub(crate) use chunks::{AHEAD, Chunks, respond, respond_text};
pub(crate) use client::Client;
pub(crate) use counted_body::{BodyMemory, read_counted};
pub(crate) use gzip::Coding;
pub(crate) use http1::Handle;
pub(crate) use memory::{AnswerShare, MemoryBudget, MemoryShare};
pub(crate) use pace::BodyPace;
pub(crate) use parameters::Parameters;
pub(crate) use record::Recording;
pub(crate) use rejection::Rejection;
pub(crate) use response::{FREE_ANSWER_BYTES, counted, head, short, uncached_head};
pub(crate) use server::serve;
