//! A value for each metric, by id.

use std::fmt;

use crate::MetricId;

/// Ids of a chunk. Few enough that metrics that come and go together free whole chunks.
const CHUNK: usize = 256;

/// A value for each metric, by id, in chunks. A chunk without a value is not allocated, so that ids that are never given
/// again cost a pointer for 256 of them.
///
/// ```
/// use metric::{Column, MetricId};
///
/// let mut column = Column::new(|| 0);
/// *column.entry(MetricId(1000)) = 7;
/// assert_eq!((column.get(MetricId(1000)), column.end()), (Some(&7), MetricId(1001)));
/// assert_eq!((column.get(MetricId(999)), column.get(MetricId(3))), (Some(&0), None));
/// *column.entry(MetricId(1000)) = 0;
/// column.extend_to(MetricId(5000));
/// column.free(MetricId(1000), |&value| value == 0);
/// assert_eq!((column.get(MetricId(1000)), column.memory_bytes() < 100), (None, true));
/// ```
pub struct Column<T> {
    chunks: Vec<Option<Box<[T; CHUNK]>>>,
    vacant: fn() -> T,
    end: u32,
}

impl<T> fmt::Debug for Column<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Column({} ids)", self.end)
    }
}

impl<T> Column<T> {
    /// No values. `vacant` makes the value of an id that has none, in a chunk of others that have.
    pub fn new(vacant: fn() -> T) -> Column<T> {
        Column { chunks: Vec::new(), vacant, end: 0 }
    }

    /// The id after the highest.
    pub fn end(&self) -> MetricId {
        MetricId(self.end)
    }

    /// Moves the end up to `end`, if it is below.
    pub fn extend_to(&mut self, end: MetricId) {
        self.end = self.end.max(end.0);
    }

    /// The value of an id; `None` where the chunk has no value.
    #[inline]
    pub fn get(&self, id: MetricId) -> Option<&T> {
        let chunk = self.chunks.get(id.index() / CHUNK)?.as_ref()?;
        Some(&chunk[id.index() % CHUNK])
    }

    /// As [`Column::get`], to change the value.
    #[inline]
    pub fn get_mut(&mut self, id: MetricId) -> Option<&mut T> {
        let chunk = self.chunks.get_mut(id.index() / CHUNK)?.as_mut()?;
        Some(&mut chunk[id.index() % CHUNK])
    }

    /// The value of an id, to set it; moves the end behind the id.
    pub fn entry(&mut self, id: MetricId) -> &mut T {
        self.extend_to(MetricId(id.0 + 1));
        let index = id.index() / CHUNK;
        if index >= self.chunks.len() {
            self.chunks.resize_with(index + 1, || None);
        }
        let chunk = self.chunks[index].get_or_insert_with(|| {
            let values: Box<[T]> = std::iter::repeat_with(self.vacant).take(CHUNK).collect();
            values.try_into().ok().expect("as many values as a chunk has")
        });
        &mut chunk[id.index() % CHUNK]
    }

    /// Frees the chunk of an id if all its values are vacant and ids behind it have been given.
    pub fn free(&mut self, id: MetricId, is_vacant: impl FnMut(&T) -> bool) {
        let index = id.index() / CHUNK;
        if (index + 1) * CHUNK > self.end as usize {
            return;
        }
        if let Some(chunk) = self.chunks.get_mut(index)
            && chunk.as_ref().is_some_and(|values| values.iter().all(is_vacant))
        {
            *chunk = None;
        }
    }

    /// The values of allocated chunks below the end, vacant ones included, by id.
    pub fn iter(&self) -> impl Iterator<Item = (MetricId, &T)> {
        let chunks = (0u32..).zip(&self.chunks);
        let values = chunks.filter_map(|(index, chunk)| Some((index * CHUNK as u32, chunk.as_ref()?)));
        let values = values.flat_map(|(first, chunk)| (first..).map(MetricId).zip(chunk.iter()));
        values.take_while(|(id, _)| id.0 < self.end)
    }

    /// The values of allocated chunks, to change them; those of vacant ids included, also above the end.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.chunks.iter_mut().flatten().flat_map(|chunk| chunk.iter_mut())
    }

    /// Bytes allocated.
    pub fn memory_bytes(&self) -> usize {
        let allocated = self.chunks.iter().flatten().count();
        self.chunks.capacity() * size_of::<Option<Box<[T; CHUNK]>>>() + allocated * CHUNK * size_of::<T>()
    }
}
