//! The in-memory driver: the specification of the others.

/// Placeholder until the driver is written.
pub struct MemoryDriver;
