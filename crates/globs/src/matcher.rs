//! Whether names match a pattern, one name at a time.

use regex_automata::hybrid::{
    LazyStateID,
    dfa::{Cache, DFA},
};

use crate::{
    error::GlobError,
    pattern::{automaton, start},
};

/// A pattern's automaton, with the states that it has reached so far.
pub struct Matcher {
    dfa: DFA,
    cache: Cache,
    start: LazyStateID,
}

impl Matcher {
    /// The matcher of a pattern, or `None` when nothing can match.
    ///
    /// # Errors
    /// As [`automaton`].
    pub fn new(pattern: &str) -> Result<Option<Matcher>, GlobError> {
        let Some(dfa) = automaton(pattern)? else { return Ok(None) };
        let mut cache = dfa.create_cache();
        let start = dfa.start_state(&mut cache, &start()).map_err(|_| GlobError::TooComplex)?;
        Ok(Some(Matcher { dfa, cache, start }))
    }

    /// Whether a whole path matches.
    ///
    /// # Errors
    /// The automaton outgrew its memory.
    pub fn matches(&mut self, path: &str) -> Result<bool, GlobError> {
        let mut state = self.start;
        for byte in path.bytes() {
            state = self.dfa.next_state(&mut self.cache, state, byte).map_err(|_| GlobError::TooComplex)?;
            if state.is_dead() {
                return Ok(false);
            }
        }
        let end = self.dfa.next_eoi_state(&mut self.cache, state).map_err(|_| GlobError::TooComplex)?;
        Ok(end.is_match())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, matching: &[&str], others: &[&str]) {
        let mut matcher = Matcher::new(pattern).unwrap().unwrap();
        for path in matching {
            assert!(matcher.matches(path).unwrap(), "{pattern} {path}");
        }
        for path in others {
            assert!(!matcher.matches(path).unwrap(), "{pattern} {path}");
        }
    }

    #[test]
    fn a_pattern_matches_whole_paths() {
        check("a.*", &["a.b", "a.b-c"], &["a", "a.b.c", "b.a", "xa.b"]);
        check("a.**.z", &["a.z", "a.b.z", "a.b.c.z"], &["a.b.z.c", "z"]);
        check("a.{b,c}?[0-9]", &["a.bx1", "a.cé2"], &["a.b1", "a.dx1", "a.bxx"]);
    }
}
