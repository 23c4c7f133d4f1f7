//! Names: the canonical form is within the limits, and is its own canonical form.
#![no_main]

use libfuzzer_sys::fuzz_target;
use metric::{MAX_COMPONENTS, canonical_name};

fuzz_target!(|raw: &[u8]| {
    let Ok(name) = canonical_name(raw) else { return };
    let dotted = name.split(';').next().unwrap_or_default();
    assert!(!dotted.is_empty());
    let components: Vec<&str> = dotted.split('.').collect();
    assert!(components.len() <= MAX_COMPONENTS && components.iter().all(|component| !component.is_empty()));
    assert!(name.bytes().all(|byte| byte >= b' ' && byte != 0x7f));
    assert_eq!(canonical_name(name.as_bytes()).as_deref(), Ok(&*name));
});
