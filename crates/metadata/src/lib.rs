//! Placeholder: being laid.
