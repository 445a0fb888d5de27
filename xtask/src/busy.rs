//! `cargo xtask bench busy`: threads on a machine that also runs other programs, simulated by busy loops.
//!
//! Each round runs every program with every number of threads, so ratios compare runs of the same minute.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::peers::build;
use crate::peers::measure::median;
use crate::peers::models::default_model;
use crate::peers::process::{ask, command, say};

/// What to measure.
#[derive(Args)]
pub(crate) struct Busy {
    /// Model file (.gguf) [default: the default model of `orlop`]
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// An `orlop` that is there, instead of building one.
    #[arg(long, value_name = "FILE")]
    orlop: Option<PathBuf>,
    /// Another build of `orlop` to compare with.
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// The program around llama.cpp that `bench peers` builds.
    #[arg(long, value_name = "FILE")]
    peer: Option<PathBuf>,
    /// Numbers of threads.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,2")]
    threads: Vec<usize>,
    /// Numbers of busy loops.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "0,1,2,4")]
    loops: Vec<usize>,
    /// Rounds of alternating runs.
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,
    /// Prompt tokens.
    #[arg(short, long, value_name = "N", default_value_t = 128)]
    prompt: usize,
    /// Tokens to generate.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 64)]
    generate: usize,
}

/// A program with a number of threads, and its results: for each test, one of each round.
struct Cell {
    name: &'static str,
    program: PathBuf,
    /// Whether JSON has to be asked for.
    asks_for_json: bool,
    threads: usize,
    rates: Vec<(String, Vec<f64>)>,
}

/// Measures and prints a table for each number of busy loops.
pub(crate) fn run(busy: &Busy) -> Result<()> {
    ensure!(
        busy.rounds > 0 && !busy.threads.is_empty(),
        "at least one round and one number of threads are needed"
    );
    let orlop = busy.orlop.clone().map_or_else(build::orlop, Ok)?;
    let model =
        busy.model.clone().map_or_else(|| default_model(&orlop, &build::folder().join("models")), Ok)?;
    for loops in &busy.loops {
        let mut cells = cells(busy, &orlop);
        beside_loops(*loops, || {
            for round in 0..busy.rounds {
                say(&format!("{loops} busy loops, round {} of {}", round + 1, busy.rounds));
                // Alternate the order: a program affects the next one.
                let order: Box<dyn Iterator<Item = &mut Cell>> = if round % 2 == 0 {
                    Box::new(cells.iter_mut())
                } else {
                    Box::new(cells.iter_mut().rev())
                };
                for cell in order {
                    cell.run(busy, &model)?;
                }
            }
            anyhow::Ok(())
        })?;
        print(*loops, &cells);
    }
    Ok(())
}

fn cells(busy: &Busy, orlop: &Path) -> Vec<Cell> {
    let others = [("baseline", &busy.baseline, true), ("llama.cpp", &busy.peer, false)];
    let others = others.into_iter().filter_map(|(name, path, json)| Some((name, path.clone()?, json)));
    let programs: Vec<_> = std::iter::once(("orlop", orlop.to_owned(), true)).chain(others).collect();
    let cell = |(name, program, asks_for_json): &(&'static str, PathBuf, bool), threads: usize| Cell {
        name,
        program: program.clone(),
        asks_for_json: *asks_for_json,
        threads,
        rates: Vec::new(),
    };
    programs.iter().flat_map(|program| busy.threads.iter().map(|threads| cell(program, *threads))).collect()
}

/// Runs `work` while this many threads spin.
fn beside_loops<R>(loops: usize, work: impl FnOnce() -> R) -> R {
    /// Ends the loops even if the work panics.
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..loops {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let _stop = Stop(&stop);
        work()
    })
}

impl Cell {
    fn run(&mut self, busy: &Busy, model: &Path) -> Result<()> {
        let mut command = command(&self.program, &["bench"], model);
        for (word, number) in
            [("-p", busy.prompt), ("-n", busy.generate), ("-d", 0), ("-t", self.threads), ("-r", 1)]
        {
            command.arg(word).arg(number.to_string());
        }
        if self.asks_for_json {
            command.arg("--json");
        }
        for test in ask(&mut command)?.json()?.as_array().context("expected a list of tests")? {
            let name = test["test"].as_str().context("a test has no name")?;
            let rate = test["tokens_per_second"].as_f64().context("a test has no rate")?;
            match self.rates.iter_mut().find(|(known, _)| known == name) {
                Some((_, rates)) => rates.push(rate),
                None => self.rates.push((name.to_owned(), vec![rate])),
            }
        }
        Ok(())
    }
}

/// Tokens per second, and the ratios to the first cell: median, least and most of all rounds.
fn print(loops: usize, cells: &[Cell]) {
    let Some(first) = cells.first() else { return };
    for cell in cells {
        for ((test, rates), (_, base)) in cell.rates.iter().zip(&first.rates) {
            let [least, middle, most] = ratios(rates, base);
            println!(
                "{loops} busy loops  {:<10} {} threads  {test:<8} {:>9.1} tokens/s  {middle:>5.2} × ({least:.2} to {most:.2})",
                cell.name,
                cell.threads,
                median(rates),
            );
        }
    }
}

/// Ratios of each round: minimum, median, maximum.
fn ratios(rates: &[f64], base: &[f64]) -> [f64; 3] {
    let ratios: Vec<f64> = rates.iter().zip(base).map(|(rate, base)| rate / base).collect();
    let end = |pick: fn(f64, f64) -> f64| ratios.iter().copied().reduce(pick).unwrap_or(f64::NAN);
    [end(f64::min), median(&ratios), end(f64::max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_compare_runs_of_the_same_round() {
        assert_eq!(ratios(&[2.0, 30.0, 4.0], &[1.0, 10.0, 4.0]), [1.0, 2.0, 3.0]);
    }

    #[test]
    fn loops_end_with_the_work() {
        assert_eq!(beside_loops(3, || 7), 7);
        assert!(std::panic::catch_unwind(|| beside_loops(2, || panic!("on purpose"))).is_err());
    }
}
