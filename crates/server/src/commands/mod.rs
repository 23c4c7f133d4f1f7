//! The subcommands that do their work and exit.

mod ask;
mod backup;
mod cardinality;
mod check_config;
mod damage_text;
mod delete;
mod drain;
mod explain;
mod flush;
mod repair;
mod schema;
mod settings;
mod token;

pub use backup::{backup, restore, verify};
pub use cardinality::cardinality;
pub use check_config::check_config;
pub use delete::delete;
pub use drain::drain;
pub use explain::explain;
pub use flush::flush;
pub use repair::repair;
pub use schema::schema;
pub use settings::settings;
pub use token::token;
