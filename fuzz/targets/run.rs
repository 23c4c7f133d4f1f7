//! Runs: any bytes open or are damaged, never panic when decoded, and what was sealed opens at its own place only.
#![no_main]

use codec::{Codec, MAX_SLOTS, open_run, seal_run, segments};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let (place, bytes) = input.split_at(input.len().min(4));
    if let Ok(row) = open_run(place, bytes) {
        let (mut values, mut counts) = (vec![f64::NAN; MAX_SLOTS], vec![0; MAX_SLOTS]);
        let decoded = Codec::new().decode(row, 0..MAX_SLOTS, &mut values, &mut counts);
        assert!(decoded.is_ok() || segments(row).any(|segment| segment.is_err()) || !row.is_empty());
    }
    // Any bytes sealed are opened again, at their place, and nowhere else.
    let mut run = [&[0], bytes].concat();
    seal_run(place, &mut run);
    assert_eq!(open_run(place, &run), Ok(bytes));
    let elsewhere: Vec<u8> = place.iter().map(|byte| byte ^ 0x55).collect();
    assert!(place.is_empty() || open_run(&elsewhere, &run).is_err());
    if let Some(last) = run.last_mut() {
        *last ^= 1;
    }
    assert!(open_run(place, &run).is_err());
    // A row with a right checksum and wrong bytes is decoded or damaged.
    let (mut values, mut counts) = (vec![f64::NAN; MAX_SLOTS], vec![0; MAX_SLOTS]);
    let _ = Codec::new().decode(bytes, 0..MAX_SLOTS, &mut values, &mut counts);
});
