//! Sorts many texts that lie somewhere else, by their bytes.
//!
//! Names are long and begin alike, so a comparison of two waits for memory twice and passes many bytes:
//!
//! 1. What all texts of a group begin with is left out, and the 8 bytes behind it are a key next to their neighbours' keys.
//! 2. The group is sorted by its keys alone.
//! 3. Texts with the same key are a group of their own, which is sorted in the same way behind these bytes. A few texts are compared as
//!    they are.

/// Texts of a group that are compared as they are, at most.
const FEW: usize = 12;

/// Bytes of a key.
const KEY_BYTES: usize = size_of::<u64>();

/// The number of a text, and a part of the text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Keyed {
    // First: the number decides where keys are equal.
    key: u64,
    /// The number of the text.
    pub place: u32,
}

impl Keyed {
    /// The number of a text.
    pub(crate) fn new(place: u32) -> Keyed {
        Keyed { key: 0, place }
    }
}

/// Sorts the numbers of texts by texts; those of equal texts by number.
pub(crate) fn sort_by_text<'a>(order: &mut [Keyed], text: impl Fn(u32) -> &'a [u8]) {
    // Groups to sort, and how many bytes all texts of each have in common.
    let mut groups = vec![(0..order.len(), 0)];
    while let Some((range, known)) = groups.pop() {
        let begin = range.start;
        let group = &mut order[range];
        if group.len() <= FEW {
            compare(group, known, &text);
            continue;
        }
        let shared = known + shared_bytes(group, known, &text);
        let mut shortest = usize::MAX;
        for one in group.iter_mut() {
            let text = text(one.place);
            one.key = key(&text[shared..]);
            shortest = shortest.min(text.len());
        }
        group.sort_unstable();
        let mut at = begin;
        for same in group.chunk_by_mut(|a, b| a.key == b.key) {
            let (from, behind) = (at, shared + KEY_BYTES);
            at += same.len();
            // The key of a text that ends within it is that of the same text with zeros behind.
            if behind <= shortest || same.iter().all(|one| behind <= text(one.place).len()) {
                if same.len() > 1 {
                    groups.push((from..at, behind));
                }
            } else {
                compare(same, shared, &text);
            }
        }
    }
}

/// Sorts texts that have their first bytes in common.
fn compare<'a>(group: &mut [Keyed], known: usize, text: &impl Fn(u32) -> &'a [u8]) {
    if group.len() > 1 {
        group.sort_unstable_by(|a, b| text(a.place)[known..].cmp(&text(b.place)[known..]).then(a.place.cmp(&b.place)));
    }
}

/// How many bytes texts have in common behind those that are known.
fn shared_bytes<'a>(group: &[Keyed], known: usize, text: &impl Fn(u32) -> &'a [u8]) -> usize {
    let Some(first) = group.first() else { return 0 };
    let first = &text(first.place)[known..];
    group.iter().fold(first.len(), |shared, one| {
        let other = &text(one.place)[known..];
        match other.get(..shared) == Some(&first[..shared]) {
            true => shared,
            false => first[..shared].iter().zip(other).take_while(|(a, b)| a == b).count(),
        }
    })
}

/// The first bytes, as a number that sorts as they do.
fn key(text: &[u8]) -> u64 {
    match text.first_chunk() {
        Some(&bytes) => u64::from_be_bytes(bytes),
        None => {
            let mut bytes = [0; KEY_BYTES];
            bytes[..text.len()].copy_from_slice(text);
            u64::from_be_bytes(bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use host::{Random, SeededRandom};

    use super::*;

    #[test]
    fn texts_are_in_the_order_of_their_bytes_and_equal_ones_in_the_order_of_numbers() {
        let random = SeededRandom::new(SeededRandom::test_seed(11));
        for count in [0, 1, 2, FEW, FEW + 1, 100, 3000] {
            for letters in [1, 2, 40] {
                let texts: Vec<Vec<u8>> = (0..count)
                    .map(|_| {
                        // Common beginnings of all lengths, zeros at the end, and texts that are there several times.
                        let begin = [0, 7, 8, 9, 30][random.index(5)];
                        let tail = (0..random.index(20)).map(|_| random.below(letters) as u8);
                        b"requests;app=0;cell=1;dc=2;host=web".iter().copied().take(begin).chain(tail).collect()
                    })
                    .collect();
                let mut expected: Vec<u32> = (0..count as u32).collect();
                expected.sort_by_key(|&place| &texts[place as usize]);
                let mut order: Vec<Keyed> = (0..count as u32).map(Keyed::new).collect();
                sort_by_text(&mut order, |place| &texts[place as usize]);
                assert_eq!(order.iter().map(|one| one.place).collect::<Vec<_>>(), expected);
            }
        }
    }
}
