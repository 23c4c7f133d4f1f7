//! Flipped bits in the files of a stopped and of a killed node.

use rehearsal::{Cost, Flip};

#[test]
fn a_flipped_bit_costs_what_it_hit_and_is_reported() {
    let is_full = std::env::var_os("REHEARSAL").is_some_and(|value| value == "full");
    let (mut refused, mut harmless, mut lost, mut wrong) = (0, 0, 0, Vec::new());
    let flips = if is_full { 1000 } else { 20 };
    for seed in 0..flips {
        let flip = Flip { seed, is_killed: seed % 2 == 0 };
        match flip.run() {
            Ok((place, Cost::Refused(why))) => {
                println!("{flip:?}: {place}: {why}");
                refused += 1;
            }
            Ok((_, Cost::Lost(losses, _))) if losses == Default::default() => harmless += 1,
            Ok((place, cost)) => {
                println!("{flip:?}: {place}: {cost:?}");
                lost += 1;
            }
            Err(error) => {
                println!("{flip:?}: {error}");
                wrong.push(format!("{flip:?}: {error}"));
            }
        }
    }
    println!(
        "| flips | {flips} | {harmless} harmless | {lost} lost rows | {refused} refused | {} exceptions |",
        wrong.len()
    );
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A flip in the only block of a file of rows: coarse slots of a metric behind the last one of the file were lost, too.
#[test]
fn a_damaged_block_costs_nothing_of_a_metric_behind_the_last_of_its_file() {
    let mut costs = 0;
    for seed in 0..6 {
        let cost = Flip { seed, is_killed: true }.run_in("/datapoints_900p_1s_0/900004/8-8.rows");
        assert!(matches!(&cost, Ok((_, Cost::Lost(..)))), "{cost:?}");
        costs += usize::from(matches!(cost, Ok((_, Cost::Lost(losses, 1))) if 0 < losses.coarse));
    }
    assert!(0 < costs, "no flip hit the block");
}
