//! Random steps against the naive model. `SEED=…` repeats one seed.

use rehearsal::{simulate, steps};

/// Steps of one seed.
const STEPS: usize = 60;

#[test]
fn random_steps_with_faults_are_served_as_the_model_says() {
    let is_full = std::env::var_os("REHEARSAL").is_some_and(|value| value == "full");
    let one: Option<u64> = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = one.map_or(0..if is_full { 2000 } else { 6 }, |seed| seed..seed + 1);
    let (mut all, mut wrong) = (rehearsal::Work::default(), Vec::new());
    for seed in seeds.clone() {
        match simulate(seed, &steps(seed, STEPS)) {
            Ok(work) => {
                all.steps += work.steps;
                all.points += work.points;
                all.faults += work.faults;
                all.deaths += work.deaths;
            }
            Err(error) => {
                println!("SEED={seed}: {error}");
                wrong.push(format!("SEED={seed}: {error}"));
            }
        }
    }
    println!(
        "| simulation | {} seeds | {} steps | {} points | {} faults | {} deaths | {} exceptions |",
        seeds.end - seeds.start,
        all.steps,
        all.points,
        all.faults,
        all.deaths,
        wrong.len()
    );
    assert!(wrong.is_empty(), "{wrong:#?}");
}
