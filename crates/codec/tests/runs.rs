//! Facts about runs: sealed rows.

use codec::{Codec, open_run, seal_run};

fn run(place: &[u8], first: usize, values: &[f64], counts: &[u32]) -> Vec<u8> {
    let mut run = vec![0];
    Codec::new().encode(first, values, counts, &mut run);
    seal_run(place, &mut run);
    run
}

#[test]
fn a_run_is_opened_where_it_was_sealed() {
    let values = [1.5, f64::NAN, -0.0, f64::INFINITY, 86_400.25];
    let counts = [60, 0, u32::MAX, 1, 32_768];
    let run = run(b"place", 7, &values, &counts);
    let row = open_run(b"place", &run).unwrap();
    let (mut got, mut counted) = ([f64::NAN; 8], [0; 8]);
    assert_eq!(Codec::new().decode(row, 5..13, &mut got, &mut counted), Ok(true));
    let bits = |values: &[f64]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    let nan = f64::NAN;
    assert_eq!(bits(&got), bits(&[nan, nan, 1.5, nan, -0.0, f64::INFINITY, 86_400.25, nan]));
    assert_eq!(counted, [0, 0, 60, 0, u32::MAX, 1, 32_768, 0]);
    assert!(open_run(b"placf", &run).is_err(), "another place");
    assert!(open_run(b"", &run).is_err(), "another place");
}

#[test]
fn a_run_without_a_value_is_opened_too() {
    let run = run(b"", 7, &[f64::NAN], &[]);
    assert_eq!(run.len(), 5);
    assert_eq!(open_run(b"", &run), Ok(&[][..]));
}

#[test]
fn every_flipped_bit_and_every_cut_is_found() {
    let values: Vec<f64> = (0..60).map(|i| f64::from(i * 7 % 11) / 10.0).collect();
    let run = run(b"place", 1_940, &values, &[]);
    for at in 0..run.len() * 8 {
        let mut damaged = run.clone();
        damaged[at / 8] ^= 1 << (at % 8);
        assert!(open_run(b"place", &damaged).is_err(), "bit {at}");
    }
    for len in 0..run.len() {
        assert!(open_run(b"place", &run[..len]).is_err(), "{len} bytes");
    }
}

#[test]
fn a_later_version_is_named() {
    let mut run = run(b"", 0, &[1.0], &[]);
    run[0] = 2;
    assert_eq!(open_run(b"", &run).unwrap_err().to_string(), "a run of version 2; this program reads version 1");
}

/// The bytes of version 1: programs of other versions share the tables.
#[test]
fn the_bytes_of_a_run_stay_the_same() {
    let hex = |run: &[u8]| run.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(hex(&run(b"place", 3, &[12.5, 12.25, 13.0], &[])), "0140030301c41331960133c26ab4");
    assert_eq!(
        hex(&run(b"place", 3, &[12.5, f64::NAN, 13.0], &[60, 0, 86_400])),
        "012503030500fa010a007888c50a78c93e89"
    );
}
