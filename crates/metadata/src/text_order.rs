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

/// Texts that are read without a pause.
const PASS: usize = 1024;

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

/// Texts that are sorted by their numbers. The text of a number never changes, but it may go away.
pub(crate) trait Texts {
    /// The text with a number. Where one that is gone comes among the others does not matter.
    fn text(&self, number: u32) -> Option<&[u8]>;

    /// Called between some texts and the next, to let others change something.
    fn pause(&mut self) {}

    /// Does work that needs no text.
    fn without(&mut self, work: &mut dyn FnMut()) {
        work();
    }
}

/// Sorts the numbers of texts by texts; those of equal texts by number.
pub(crate) fn sort_by_text(order: &mut [Keyed], texts: &mut impl Texts) {
    // Groups to sort, and how many bytes all texts of each have in common.
    let mut groups = vec![(0..order.len(), 0)];
    let mut read = 0;
    while let Some((range, known)) = groups.pop() {
        let begin = range.start;
        let group = &mut order[range];
        read += group.len();
        if PASS < read {
            texts.pause();
            read = 0;
        }
        if group.len() <= FEW {
            compare(group, known, texts);
            continue;
        }
        let shared = known + shared_bytes(group, known, texts);
        let mut shortest = usize::MAX;
        for some in group.chunks_mut(PASS) {
            texts.pause();
            for one in some {
                let Some(text) = texts.text(one.place) else { continue };
                one.key = key(&text[shared..]);
                shortest = shortest.min(text.len());
            }
        }
        // All are gone: their keys never differ.
        if shortest == usize::MAX {
            continue;
        }
        if group.len() <= PASS {
            group.sort_unstable();
        } else {
            texts.without(&mut || group.sort_unstable());
        }
        let mut at = begin;
        for same in group.chunk_by_mut(|a, b| a.key == b.key) {
            let (from, behind) = (at, shared + KEY_BYTES);
            at += same.len();
            // The key of a text that ends within it is that of the same text with zeros behind.
            let is_long = |one: &Keyed| texts.text(one.place).is_none_or(|text| behind <= text.len());
            if behind <= shortest || same.iter().all(is_long) {
                if same.len() > 1 {
                    groups.push((from..at, behind));
                }
            } else {
                compare(same, shared, texts);
            }
        }
    }
}

/// Sorts texts that have their first bytes in common.
fn compare(group: &mut [Keyed], known: usize, texts: &impl Texts) {
    let rest = |one: &Keyed| texts.text(one.place).map(|text| &text[known..]);
    if group.len() > 1 {
        group.sort_unstable_by(|a, b| rest(a).cmp(&rest(b)).then(a.place.cmp(&b.place)));
    }
}

/// How many bytes texts have in common behind those that are known.
fn shared_bytes(group: &[Keyed], known: usize, texts: &mut impl Texts) -> usize {
    let Some(first) = group.first() else { return 0 };
    let mut shared = usize::MAX;
    for some in group.chunks(PASS) {
        texts.pause();
        let Some(first) = texts.text(first.place) else { return 0 };
        let first = &first[known..];
        shared = some.iter().fold(shared.min(first.len()), |shared, one| {
            let Some(other) = texts.text(one.place) else { return shared };
            let other = &other[known..];
            match other.get(..shared) == Some(&first[..shared]) {
                true => shared,
                false => first[..shared].iter().zip(other).take_while(|(a, b)| a == b).count(),
            }
        });
    }
    shared
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

    struct Fixed<'a>(&'a [Vec<u8>]);

    impl Texts for Fixed<'_> {
        fn text(&self, number: u32) -> Option<&[u8]> {
            Some(&self.0[number as usize])
        }
    }

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
                sort_by_text(&mut order, &mut Fixed(&texts));
                assert_eq!(order.iter().map(|one| one.place).collect::<Vec<_>>(), expected);
            }
        }
    }

    /// Texts, some of them go away in each pause.
    struct Going {
        texts: Vec<Option<Vec<u8>>>,
        random: SeededRandom,
    }

    impl Texts for Going {
        fn text(&self, number: u32) -> Option<&[u8]> {
            self.texts[number as usize].as_deref()
        }

        fn pause(&mut self) {
            for _ in 0..self.random.index(30) {
                let gone = self.random.index(self.texts.len());
                self.texts[gone] = None;
            }
        }
    }

    #[test]
    fn texts_that_go_away_meanwhile_leave_the_others_in_order() {
        for seed in 0..20 {
            let random = SeededRandom::new(SeededRandom::test_seed(seed));
            let text = |_| {
                let tail = (0..random.index(20)).map(|_| b'0' + random.below(3) as u8);
                Some(b"requests;app=0;".iter().copied().chain(tail).collect::<Vec<u8>>())
            };
            let texts = (0..4 * PASS).map(text).collect();
            let mut going = Going { texts, random };
            let mut order: Vec<Keyed> = (0..4 * PASS as u32).map(Keyed::new).collect();
            sort_by_text(&mut order, &mut going);
            let left: Vec<&[u8]> = order.iter().filter_map(|one| going.text(one.place)).collect();
            assert!(left.is_sorted() && PASS < left.len() && left.len() < 4 * PASS);
            let mut places: Vec<u32> = order.iter().map(|one| one.place).collect();
            places.sort_unstable();
            assert!(places.into_iter().eq(0..4 * PASS as u32), "each number is still there once");
        }
    }
}
