//! Patterns whose braces multiply are rejected before they take memory.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

/// The system's allocator, with the bytes in use and their peak.
struct Counting;

static USED: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        PEAK.fetch_max(USED.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        USED.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes that a pattern may take, its automaton included.
const MOST: usize = 128 << 20;

/// The peak of memory while both readings of a pattern are made, and whether it is accepted.
fn peak(pattern: &str) -> (usize, bool) {
    let before = USED.load(Relaxed);
    PEAK.store(before, Relaxed);
    let parts = globs::parts(pattern).is_ok();
    let automaton = globs::automaton(pattern).is_ok();
    assert!(parts || !automaton, "{}…", &pattern[..40.min(pattern.len())]);
    (PEAK.load(Relaxed) - before, automaton)
}

#[test]
fn no_pattern_takes_more_memory_than_its_bound() {
    let components = |component: &str| vec![component; 64].join(".");
    let hosts = |count: usize| (0..count).map(|i| format!("host-{i:05}")).collect::<Vec<_>>().join(",");
    let rejected = [
        // Ten thousand alternatives in each of 64 components.
        components("{a,b,c,d,e,f,g,h,i,j}{a,b,c,d,e,f,g,h,i,j}{a,b,c,d,e,f,g,h,i,j}{a,b,c,d,e,f,g,h,i,j}"),
        components("{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}"),
        // Few alternatives of many characters.
        format!("{{a,b}}{{a,b}}{{a,b}}{{a,b}}{{a,b}}{}", "x".repeat(60_000)),
        // Braces in braces.
        format!("{}a{}", "{a,b,".repeat(6_000), "}".repeat(6_000)),
    ];
    for pattern in rejected {
        let (bytes, is_accepted) = peak(&pattern);
        assert!(!is_accepted, "{}…", &pattern[..40]);
        assert!(bytes < MOST, "{} MiB for {}…", bytes >> 20, &pattern[..40]);
    }
    for pattern in [format!("servers.{{{}}}.cpu.*", hosts(4_000)), "{a,b}{c,d}.{e,f}?.*".to_owned()] {
        let (bytes, is_accepted) = peak(&pattern);
        assert!(is_accepted, "{}…", &pattern[..20.min(pattern.len())]);
        assert!(bytes < MOST, "{} MiB for {}…", bytes >> 20, &pattern[..20]);
    }
    // The longest lists that fit: whatever the answer, within the bound.
    for pattern in [hosts(5_900), "*?".repeat(30_000), "[a-z]*".repeat(10_000), "{*,?}".repeat(12_000)] {
        let pattern = format!("{{{pattern}}}");
        let (bytes, _) = peak(&pattern);
        assert!(bytes < MOST, "{} MiB for {}…", bytes >> 20, &pattern[..20]);
    }
}
