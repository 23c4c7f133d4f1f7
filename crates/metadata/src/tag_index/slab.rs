//! Values under small numbers, in chunks, so that growth copies nothing and leaves little unused. A released number is
//! given again.

/// Values of a chunk.
const CHUNK: usize = 1024;

/// Values under numbers from 0 on.
pub(super) struct Slab<T> {
    // All but the last have CHUNK values.
    chunks: Vec<Vec<T>>,
    free: Vec<u32>,
}

impl<T: Default> Slab<T> {
    pub(super) fn new() -> Slab<T> {
        Slab { chunks: Vec::new(), free: Vec::new() }
    }

    /// Adds a value under a number that is free.
    pub(super) fn add(&mut self, value: T) -> u32 {
        if let Some(number) = self.free.pop() {
            *self.get_mut(number) = value;
            return number;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            // The first chunk grows as it is used; few tags need few bytes.
            let capacity = if self.chunks.is_empty() { 0 } else { CHUNK };
            self.chunks.push(Vec::with_capacity(capacity));
        }
        let chunk = self.chunks.len() - 1;
        self.chunks[chunk].push(value);
        (chunk * CHUNK + self.chunks[chunk].len() - 1) as u32
    }

    /// Frees a number, and returns its value.
    pub(super) fn release(&mut self, number: u32) -> T {
        self.free.push(number);
        std::mem::take(self.get_mut(number))
    }

    #[inline]
    pub(super) fn get(&self, number: u32) -> &T {
        &self.chunks[number as usize / CHUNK][number as usize % CHUNK]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, number: u32) -> &mut T {
        &mut self.chunks[number as usize / CHUNK][number as usize % CHUNK]
    }

    /// The values from a number on that are next to each other in memory, released ones as their default; none behind the last.
    pub(super) fn from(&self, number: u32) -> &[T] {
        let chunk = self.chunks.get(number as usize / CHUNK);
        chunk.and_then(|chunk| chunk.get(number as usize % CHUNK..)).unwrap_or_default()
    }

    /// Numbers given, released ones among them.
    pub(super) fn end(&self) -> u32 {
        let last = self.chunks.last().map_or(0, Vec::len);
        (self.chunks.len().saturating_sub(1) * CHUNK + last) as u32
    }

    /// All values, released ones as their default.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flatten()
    }

    /// As [`Slab::iter`], to change them.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.chunks.iter_mut().flatten()
    }

    /// Bytes allocated, without what the values have allocated.
    pub(super) fn memory_bytes(&self) -> usize {
        let values: usize = self.chunks.iter().map(|chunk| chunk.capacity() * size_of::<T>()).sum();
        values + self.free.capacity() * size_of::<u32>() + self.chunks.capacity() * size_of::<Vec<T>>()
    }
}
