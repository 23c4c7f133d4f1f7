//! Points on a disk in memory, whose calls fail, whose power is cut, and whose bytes rot.

mod damage;
mod meanwhile;
mod model;
mod node;
