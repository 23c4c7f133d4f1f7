//! The memory of a machine: how much it has, and may have.

use super::value::{Stop, Value};

/// Bytes that each kind of thing (list items, stack, memo) may have, whatever is allowed: 8 Mi values. A frame of 64 MiB
/// from a relay needs less. Beyond it the frame is rejected.
const MAX_BYTES: usize = (8 << 20) * size_of::<Value>();

/// Bytes of the first allocation of a kind.
const FIRST_BYTES: usize = 1 << 10;

/// Bytes of all arenas of a machine.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) used: usize,
    pub(super) allowed: usize,
    /// What a program needed that stopped for memory.
    pub(super) wanted: usize,
}

/// Makes room for `more` items.
#[inline]
pub(super) fn reserve<T>(arena: &mut Vec<T>, more: usize, memory: &mut Memory) -> Result<(), Stop> {
    if more <= arena.capacity() - arena.len() { Ok(()) } else { grow(arena, more, memory) }
}

#[cold]
#[inline(never)]
fn grow<T>(arena: &mut Vec<T>, more: usize, memory: &mut Memory) -> Result<(), Stop> {
    let most = MAX_BYTES / size_of::<T>();
    let needed = arena.len() + more;
    if most < needed {
        return Err(Stop::Bad);
    }
    let capacity = needed.max(2 * arena.capacity()).max(FIRST_BYTES / size_of::<T>()).min(most);
    let bytes = capacity * size_of::<T>();
    // The items may be copied: for a moment both are there.
    if memory.allowed < memory.used + bytes {
        memory.wanted = memory.used + bytes;
        return Err(Stop::Memory);
    }
    memory.used += (capacity - arena.capacity()) * size_of::<T>();
    arena.reserve_exact(capacity - arena.len());
    Ok(())
}
