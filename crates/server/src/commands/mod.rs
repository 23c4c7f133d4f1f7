//! The subcommands that do their work and exit.

mod check_config;
mod explain;
mod flush;
mod schema;
mod settings;

pub use check_config::check_config;
pub use explain::explain;
pub use flush::flush;
pub use schema::schema;
pub use settings::settings;
