//! The program's settings.

mod cluster_kinds;
mod doors;
mod group;
mod idle_after;
mod kinds;
mod listener;
mod load;
mod prefix_limits;
mod show;
mod table;

pub use cluster_kinds::Hosts;
pub use idle_after::IdleAfter;
pub use kinds::{Address, Bytes, Fsync, Kind, LogFormat, Reserve};
pub use listener::{Listener, ListenerProtocol};
#[cfg(test)]
pub use load::load;
pub use load::{Overrides, Problem, Sources, ignored_variables, load_valid};
pub use show::{documented_toml, markdown};
#[cfg(test)]
pub use table::definitions;
pub use table::{ClusterAccess, Log, Settings};
