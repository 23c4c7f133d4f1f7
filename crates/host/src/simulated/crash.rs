//! What a power cut leaves: one of the legal states of the disk, chosen by random numbers.
//!
//! 1. Changes of directories that are not durable are lost, kept, kept up to one of them (as a file system with one
//!    journal does), or kept one by one (which POSIX allows). A rename is kept as a whole or not at all.
//! 2. Of each file the writes since its last sync are lost, kept, kept up to a byte of one of them, or kept by
//!    sectors in any order, with zeros where a later sector extends the file over one that is lost.

use std::{collections::HashMap, ops::Range, sync::Arc};

use super::tree::{Change, Directory, File, Node, ROOT, Tree, put};
use crate::Random;

/// Bytes that reach the disk together.
const SECTORS: [u64; 2] = [512, 4096];

/// A state that a power cut at this moment may leave.
pub(super) fn crash(tree: &Tree, random: &dyn Random) -> Tree {
    let mut left = tree.clone();
    let changes = std::mem::take(&mut left.unsynced);
    let kept: Box<dyn Fn(usize) -> bool> = match random.below(4) {
        0 => Box::new(|_| false),
        1 => Box::new(|_| true),
        2 => {
            let first = random.index(changes.len() + 1);
            Box::new(move |place| place < first)
        }
        _ => Box::new(|_| random.below(2) == 0),
    };
    for (place, change) in changes.iter().enumerate() {
        if kept(place) {
            left.make_durable(change);
        }
    }
    let mut found = Tree { files: HashMap::new(), directories: HashMap::new(), next: tree.next, ..Tree::default() };
    find_below(&left, ROOT, &mut found);
    let files_as = random.below(4);
    // In a fixed order, so that a seed gives the same state.
    let mut nodes: Vec<Node> = found.files.keys().copied().collect();
    nodes.sort_unstable();
    for node in nodes {
        let file = found.files.get_mut(&node).expect("its key was listed");
        let contents = match files_as {
            0 => file.durable.to_vec(),
            1 => file.live.to_vec(),
            _ => torn(file, random),
        };
        let contents = Arc::new(contents);
        found.used += contents.len() as u64;
        *file = File {
            live: contents.clone(),
            durable: contents,
            links: file.links,
            bad: std::mem::take(&mut file.bad),
            ..File::default()
        };
    }
    found
}

/// Everything that the durable entries name.
fn find_below(left: &Tree, node: Node, found: &mut Tree) {
    let entries = left.directories[&node].durable.clone();
    for &child in entries.values() {
        if let Some(file) = left.files.get(&child) {
            found.files.entry(child).or_insert_with(|| File { links: 0, ..file.clone() }).links += 1;
        } else if left.directories.contains_key(&child) {
            find_below(left, child, found);
        }
    }
    found.directories.insert(node, Directory { live: entries.clone(), durable: entries });
}

/// The contents of a file, with some of its last changes.
fn torn(file: &File, random: &dyn Random) -> Vec<u8> {
    let mut contents = file.durable.to_vec();
    // Lost, most of the time: the system wrote them back before it reported the error, or not at all.
    for change in &file.forsaken {
        if random.below(4) == 0 {
            change.apply(&mut contents);
        }
    }
    let changes = &file.unsynced;
    match random.below(4) {
        0 => {}
        1 => changes.iter().for_each(|change| change.apply(&mut contents)),
        2 => {
            let end = random.index(changes.len() + 1);
            changes[..end].iter().for_each(|change| change.apply(&mut contents));
            if let Some(Change::Write { offset, bytes }) = changes.get(end) {
                put(&mut contents, *offset as usize, &bytes[..random.index(bytes.len() + 1)]);
            }
        }
        _ => changes.iter().for_each(|change| keep_sectors(change, &mut contents, random)),
    }
    contents
}

fn keep_sectors(change: &Change, contents: &mut Vec<u8>, random: &dyn Random) {
    match change {
        Change::SetLen(_) => {
            if random.below(2) == 0 {
                change.apply(contents);
            }
        }
        Change::Write { offset, bytes } => {
            for part in sectors(*offset, bytes.len(), SECTORS[random.index(SECTORS.len())]) {
                if random.below(2) == 0 {
                    let from = *offset as usize + part.start;
                    put(contents, from, &bytes[part]);
                }
            }
        }
    }
}

/// The parts of a write that are in different sectors.
fn sectors(offset: u64, len: usize, sector: u64) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let at = offset + start as u64;
        let end = len.min(start + (sector - at % sector) as usize);
        let part = start..end;
        start = end;
        (!part.is_empty()).then_some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_cut_where_sectors_meet() {
        let parts: Vec<_> = sectors(500, 1000, 512).collect();
        assert_eq!(parts, [0..12, 12..524, 524..1000]);
    }
}
