//! Random steps against the naive model. `SEED=8` repeats one seed, `SEED=100..200` a range of them; with `SHRINK=1` the
//! fewest steps that fail are printed.

use std::{ops::Range, time::Instant};

use rehearsal::{MORE_KINDS, Scenario, Work};

/// Steps of one seed.
const STEPS: usize = 60;

/// The seeds that are asked for.
fn asked_for() -> Option<Range<u64>> {
    let text = std::env::var("SEED").ok()?;
    let number = |text: &str| text.parse::<u64>().expect("SEED is a number or a range, such as 8 or 100..200");
    Some(match text.split_once("..") {
        Some((first, end)) => number(first)..number(end),
        None => number(&text)..number(&text) + 1,
    })
}

fn is_full() -> bool {
    std::env::var_os("REHEARSAL").is_some_and(|value| value == "full")
}

fn run(name: &str, first: u64) {
    let is_full = is_full();
    let seeds = match asked_for() {
        Some(seeds) if MORE_KINDS <= seeds.start && first < MORE_KINDS => return,
        Some(seeds) if seeds.start < MORE_KINDS && MORE_KINDS <= first => return,
        Some(seeds) => seeds,
        None => first..first + if is_full { 2000 } else { 40 },
    };
    let began = Instant::now();
    let (mut all, mut wrong) = (Work::default(), Vec::new());
    for seed in seeds.clone() {
        let scenario = Scenario::of(seed, STEPS);
        match scenario.perform() {
            Ok(work) => {
                all.steps += work.steps;
                all.points += work.points;
                all.calls += work.calls;
                all.faults += work.faults;
                all.deaths += work.deaths;
            }
            Err(error) => {
                println!("SEED={seed}: {error}");
                wrong.push(format!("SEED={seed}: {error}"));
            }
        }
        if std::env::var_os("SHRINK").is_some() {
            let (scenario, error) = scenario.shrink();
            println!("{error:?} {scenario:?}");
        }
    }
    println!(
        "| {name} | {} seeds | {} steps | {} points | {} calls | {} faults | {} deaths | {} exceptions | {:.1} s |",
        seeds.end - seeds.start,
        all.steps,
        all.points,
        all.calls,
        all.faults,
        all.deaths,
        wrong.len(),
        began.elapsed().as_secs_f64()
    );
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn random_steps_with_faults_are_served_as_the_model_says() {
    run("simulation", 0);
}

#[test]
fn random_steps_with_deletions_and_little_memory_are_served_as_the_model_says() {
    run("simulation of more kinds", MORE_KINDS);
}
