//! Walks: the nodes of a segment, or of a list of names, that an automaton accepts.
//!
//! 1. The automaton reads a path byte by byte from the root of the transducer, depth first, so that nodes are
//!    visited in the order of their paths, each path before the paths below it.
//! 2. Where it accepts, there is a node if the path is a name (a leaf) or goes on with a dot (a branch).
//! 3. Where the automaton is dead, the walk skips the subtree.
//! 4. A place in the transducer whose subtree held no answer for a state of the automaton holds none when
//!    another path leads to it in the same state, and is not entered again. Equal subtrees are one place,
//!    so a pattern that matches nothing costs a walk through one host, not through all.
//! 5. Removed metrics stay in a segment until it is built again. They do not answer, nor do branches with no others
//!    below; where one was met, point 4 does not hold, since equal subtrees may have other metrics. Names that the caller
//!    may not see are treated like removed ones, and so are metrics without points in the times that are asked for.

use metric::MetricId;
use std::collections::HashSet;

use fst::raw::Node;
use globs::GlobError;
use regex_automata::hybrid::{
    LazyStateID,
    dfa::{Cache, DFA},
};

use crate::{
    found::Found,
    limits::{Budget, FindError},
    segment::Segment,
};

/// The automaton of one request, with the states it has met.
pub(crate) struct Glob {
    dfa: DFA,
    cache: Cache,
    start: LazyStateID,
}

impl Glob {
    /// The automaton of a pattern, or `None` when nothing can match.
    pub(crate) fn new(pattern: &str) -> Result<Option<Glob>, FindError> {
        let Some(dfa) = globs::automaton(pattern)? else { return Ok(None) };
        let mut cache = dfa.create_cache();
        let start = dfa.start_state(&mut cache, &globs::start()).map_err(|_| GlobError::TooComplex)?;
        Ok(Some(Glob { dfa, cache, start }))
    }

    /// The state after one more byte, or `None` when nothing that begins like this matches.
    #[inline]
    fn next(&mut self, state: LazyStateID, byte: u8) -> Result<Option<LazyStateID>, FindError> {
        let next = self.dfa.next_state(&mut self.cache, state, byte).map_err(|_| GlobError::TooComplex)?;
        Ok((!next.is_dead()).then_some(next))
    }

    /// Whether what was read so far matches.
    #[inline]
    fn accepts(&mut self, state: LazyStateID) -> Result<bool, FindError> {
        let end = self.dfa.next_eoi_state(&mut self.cache, state).map_err(|_| GlobError::TooComplex)?;
        Ok(end.is_match())
    }
}

/// A place on the way down that has transitions left to try.
struct Fork<'a> {
    node: Node<'a>,
    next: usize,
    state: LazyStateID,
    // Sum of the outputs on the way here: the rank of the first name beneath.
    rank: u64,
    path_len: usize,
    // Answers, and removed metrics met, when it was entered.
    found: usize,
    met: u64,
}

/// The nodes of a segment that a pattern names, in the order of paths.
pub(crate) fn segment(
    segment: &Segment,
    glob: &mut Glob,
    leaves_only: bool,
    removed: &HashSet<MetricId>,
    budget: &mut Budget<'_>,
) -> Result<Found, FindError> {
    let mut found = Found::default();
    let mut met = 0;
    let mut barren: HashSet<(usize, LazyStateID), foldhash::fast::FixedState> = HashSet::default();
    let mut path: Vec<u8> = Vec::new();
    let root = segment.fst.root();
    let mut forks = vec![Fork { node: root, next: 0, state: glob.start, rank: 0, path_len: 0, found: 0, met: 0 }];
    while let Some(fork) = forks.last_mut() {
        if fork.next == fork.node.len() {
            if fork.found == found.len() && fork.met == met {
                barren.insert((fork.node.addr(), fork.state));
            }
            forks.pop();
            continue;
        }
        path.truncate(fork.path_len);
        let mut node = fork.node;
        let mut state = fork.state;
        let mut rank = fork.rank;
        let mut index = fork.next;
        fork.next += 1;
        // Down a chain of single transitions until the next fork.
        loop {
            budget.spend(1)?;
            let transition = node.transition(index);
            let Some(next) = glob.next(state, transition.inp)? else { break };
            state = next;
            rank += transition.out.value();
            path.push(transition.inp);
            node = segment.fst.node(transition.addr);
            if node.len() == 1 && !node.is_final() {
                // Most places have one way on. Only before a dot may a path end here.
                if node.transition(0).inp == b'.' && !leaves_only && glob.accepts(state)? {
                    let is_shown = budget.limits.shown(path_text(&path), MetricId::NONE, true).1;
                    if is_shown && has_metrics_below(segment, node, rank, removed, budget)? {
                        budget.check(found.bytes(), found.len() + 1)?;
                        found.push(path_text(&path), MetricId::NONE, true)?;
                    } else {
                        met += 1;
                    }
                }
                index = 0;
                continue;
            }
            if glob.accepts(state)? {
                let mut id = match node.is_final() {
                    true => segment.id(rank + node.final_output().value()),
                    false => MetricId::NONE,
                };
                if id != MetricId::NONE && is_gone(id, removed, budget) {
                    (id, met) = (MetricId::NONE, met + 1);
                }
                let mut is_branch = node.find_input(b'.').is_some() && (id != MetricId::NONE || !leaves_only);
                if is_branch && !has_metrics_below(segment, node, rank, removed, budget)? {
                    (is_branch, met) = (false, met + 1);
                }
                if budget.limits.filter.is_some() && (id != MetricId::NONE || is_branch) {
                    let shown = budget.limits.shown(path_text(&path), id, is_branch);
                    met += u64::from(shown != (id, is_branch));
                    (id, is_branch) = shown;
                }
                if id != MetricId::NONE || is_branch {
                    budget.check(found.bytes(), found.len() + 1)?;
                    found.push(path_text(&path), id, is_branch)?;
                }
            }
            if node.len() == 1 {
                index = 0;
                continue;
            }
            if node.len() > 1 && !barren.contains(&(node.addr(), state)) {
                forks.push(Fork { node, next: 0, state, rank, path_len: path.len(), found: found.len(), met });
            }
            break;
        }
    }
    Ok(found)
}

/// Whether a metric does not answer.
#[inline]
fn is_gone(id: MetricId, removed: &HashSet<MetricId>, budget: &Budget<'_>) -> bool {
    !removed.is_empty() && removed.contains(&id) || budget.hides(id)
}

/// Whether a node has a dot with a metric below that is not gone. Each that is gone costs a visit, until the first other.
fn has_metrics_below(
    segment: &Segment,
    node: Node<'_>,
    rank: u64,
    removed: &HashSet<MetricId>,
    budget: &mut Budget<'_>,
) -> Result<bool, FindError> {
    let Some(dot) = node.find_input(b'.') else { return Ok(false) };
    if removed.is_empty() && budget.unseen.is_none() {
        return Ok(true);
    }
    let transition = node.transition(dot);
    let mut places = vec![(segment.fst.node(transition.addr), rank + transition.out.value())];
    while let Some((node, rank)) = places.pop() {
        budget.spend(1)?;
        if node.is_final() && !is_gone(segment.id(rank + node.final_output().value()), removed, budget) {
            return Ok(true);
        }
        let below = node.transitions().map(|next| (segment.fst.node(next.addr), rank + next.out.value()));
        places.extend(below);
    }
    Ok(false)
}

fn path_text(path: &[u8]) -> &str {
    std::str::from_utf8(path).expect("names are UTF-8 and a dot is one byte")
}

/// Adds to `found` the nodes on the way to one name, in the order of depth. `found` is then neither in order
/// nor free of repetitions.
pub(crate) fn name(
    name: &str,
    id: MetricId,
    glob: &mut Glob,
    leaves_only: bool,
    budget: &mut Budget<'_>,
    found: &mut Found,
) -> Result<(), FindError> {
    let mut state = glob.start;
    let limits = budget.limits;
    let is_shown_branch = |path: &str| limits.shown(path, MetricId::NONE, true).1;
    budget.spend(1)?;
    for (at, byte) in name.bytes().enumerate() {
        if byte == b'.' && !leaves_only && glob.accepts(state)? && is_shown_branch(&name[..at]) {
            found.push_unless_last(&name[..at], MetricId::NONE, true)?;
        }
        match glob.next(state, byte)? {
            Some(next) => state = next,
            None => return budget.spend(at as u64 / 4),
        }
    }
    budget.spend(name.len() as u64 / 4)?;
    if glob.accepts(state)? && limits.shown(name, id, false).0 != MetricId::NONE {
        found.push_unless_last(name, id, false)?;
    }
    Ok(())
}
