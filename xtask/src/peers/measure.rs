//! Alternating measurements of both programs.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::Shape;
use super::models::Case;
use super::process::{Programs, ask, command, first_output, say};
use super::traffic::Traffic;

/// The results of both programs in each round.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Pairs {
    pub(super) ours: Vec<f64>,
    pub(super) theirs: Vec<f64>,
}

impl Pairs {
    /// The ratio ours / theirs per round: minimum, median, maximum.
    pub(super) fn ratios(&self) -> [f64; 3] {
        let ratios: Vec<f64> =
            self.ours.iter().zip(&self.theirs).map(|(ours, theirs)| ours / theirs).collect();
        spread(&ratios)
    }

    pub(super) fn json(&self) -> Value {
        json!({ "ours": self.ours, "theirs": self.theirs, "ratio": spread_json(self.ratios()) })
    }
}

/// Minimum, median, maximum.
fn spread(values: &[f64]) -> [f64; 3] {
    [fold(values, f64::min), median(values), fold(values, f64::max)]
}

fn spread_json([least, middle, most]: [f64; 3]) -> Value {
    json!({ "min": least, "median": middle, "max": most })
}

fn fold(values: &[f64], pick: fn(f64, f64) -> f64) -> f64 {
    values.iter().copied().reduce(pick).unwrap_or(f64::NAN)
}

pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => sorted[count / 2],
        count => (sorted[count / 2 - 1] + sorted[count / 2]) / 2.0,
    }
}

/// One model, one number of threads.
pub(super) struct Measured {
    pub(super) name: String,
    pub(super) shape: Shape,
    /// Tests by name, in tokens per second: the mean of each run's repetitions.
    pub(super) tests: Vec<(String, Pairs)>,
    /// Seconds of whole processes.
    pub(super) wall: Pairs,
    /// Bytes read for a generated token.
    pub(super) bytes: f64,
    /// What is read, in each round.
    pub(super) readings: Vec<Reading>,
}

impl Measured {
    pub(super) fn new(programs: &Programs, case: &Case, shape: Shape, rounds: usize) -> Result<Measured> {
        let mut measured = Measured {
            name: case.name.clone(),
            shape,
            tests: Vec::new(),
            wall: Pairs::default(),
            bytes: Traffic::of(programs, &case.path)?.per_token(shape.depth, shape.generate),
            readings: Vec::new(),
        };
        for round in 0..rounds {
            say(&format!("{}, {} threads, round {} of {rounds}", case.name, shape.threads, round + 1));
            // Alternate the order: the first program affects the second.
            let sides = if round % 2 == 0 { [Side::Ours, Side::Theirs] } else { [Side::Theirs, Side::Ours] };
            measured.run(programs, case, sides[0])?;
            if shape.generate > 0 {
                measured.readings.push(measured.read(programs, case)?);
            }
            measured.run(programs, case, sides[1])?;
        }
        Ok(measured)
    }

    fn run(&mut self, programs: &Programs, case: &Case, side: Side) -> Result<()> {
        let Shape { prompt, generate, repetitions, .. } = self.shape;
        let mut command = self.shape.question(side, programs, case);
        let answer = ask(&mut command)?;
        let wall = answer.wall.as_secs_f64();
        let mut claimed = 0.0;
        for test in answer.json()?.as_array().context("expected a list of tests")? {
            let name = test["test"].as_str().context("a test has no name")?;
            let rate = test["tokens_per_second"].as_f64().context("a test has no rate")?;
            let tokens = if name.starts_with("pp") { prompt } else { generate };
            claimed += (repetitions + 1) as f64 * tokens as f64 / rate;
            pairs(&mut self.tests, name).push(side, rate);
        }
        // The warm-up repetition may be slower, but not much faster than the others.
        ensure!(
            claimed < 1.1 * wall + 0.05,
            "{command:?} says it computed for {claimed:.2} s, but it ran for {wall:.2} s only"
        );
        self.wall.push(side, wall);
        Ok(())
    }

    /// Generates tokens again, and measures memory bandwidth between them.
    fn read(&self, programs: &Programs, case: &Case) -> Result<Reading> {
        let shape = Shape { prompt: 0, ..self.shape };
        let mut command = shape.question(Side::Ours, programs, case);
        let answer = ask(command.arg("--reads"))?.json()?;
        let test = &answer[0];
        let number = |value: &Value| value.as_f64().context("no bandwidth was measured");
        let bytes_per_second = self.bytes * number(&test["tokens_per_second"])?;
        let rates = |kind: &str| -> Result<Rates> {
            let rates = &test["reads"][kind];
            Ok(Rates { mean: number(&rates["mean"])?, best: number(&rates["best"])? })
        };
        Ok(Reading { bytes_per_second, plain: rates("plain")?, large_pages: rates("large_pages")? })
    }

    /// Bytes read by generation as a share of a bandwidth of the same round: minimum, median, maximum.
    pub(super) fn shares(&self, of: fn(&Reading) -> f64) -> [f64; 3] {
        spread(
            &self.readings.iter().map(|reading| reading.bytes_per_second / of(reading)).collect::<Vec<_>>(),
        )
    }

    pub(super) fn json(&self) -> Value {
        let test = |(name, pairs): &(String, Pairs)| {
            let mut value = pairs.json();
            value["test"] = json!(name);
            value
        };
        json!({
            "model": self.name,
            "threads": self.shape.threads,
            "depth": self.shape.depth,
            "bytes_per_token": self.bytes,
            "reading": self.readings.iter().map(Reading::json).collect::<Vec<Value>>(),
            "tests": self.tests.iter().map(test).collect::<Vec<Value>>(),
            "wall_seconds": self.wall.json(),
        })
    }
}

/// The pairs of a test, created if missing.
fn pairs<'a>(tests: &'a mut Vec<(String, Pairs)>, name: &str) -> &'a mut Pairs {
    let place = tests.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
        tests.push((name.to_owned(), Pairs::default()));
        tests.len() - 1
    });
    &mut tests[place].1
}

impl Shape {
    /// The arguments of a program.
    fn question(self, side: Side, programs: &Programs, case: &Case) -> Command {
        let Shape { threads, prompt, generate, depth, repetitions } = self;
        let words = ["-p", "-n", "-d", "-t", "-r"].into_iter().map(str::to_owned);
        let numbers = [prompt, generate, depth, threads, repetitions].map(|number| number.to_string());
        let mut command = command(side.program(programs), &["bench"], &case.path);
        command.args(words.zip(numbers).flat_map(|(word, number)| [word, number]));
        if side == Side::Ours {
            command.arg("--json");
        }
        command
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Ours,
    Theirs,
}

impl Side {
    fn program(self, programs: &Programs) -> &std::path::Path {
        match self {
            Side::Ours => &programs.ours,
            Side::Theirs => &programs.theirs,
        }
    }
}

impl Pairs {
    fn push(&mut self, side: Side, value: f64) {
        match side {
            Side::Ours => self.ours.push(value),
            Side::Theirs => self.theirs.push(value),
        }
    }
}

/// Bytes per second of generation, and of reading memory with the same threads after each token.
pub(super) struct Reading {
    pub(super) bytes_per_second: f64,
    /// From memory in default pages.
    pub(super) plain: Rates,
    /// From memory in huge pages, if the system has them.
    pub(super) large_pages: Rates,
}

/// Mean and best of all passes.
pub(super) struct Rates {
    pub(super) mean: f64,
    pub(super) best: f64,
}

impl Reading {
    fn json(&self) -> Value {
        let rates = |rates: &Rates| json!({ "mean": rates.mean, "best": rates.best });
        json!({
            "generation": self.bytes_per_second,
            "plain": rates(&self.plain),
            "large_pages": rates(&self.large_pages),
        })
    }
}

const PROMPT: &str = "The capital of France is";

/// Seconds from start to first token, with the file in the page cache.
pub(super) fn starts(programs: &Programs, case: &Case, threads: usize, count: usize) -> Result<Pairs> {
    say(&format!("{}, {threads} threads, {count} starts", case.name));
    let threads = threads.to_string();
    let settings = ["-t", &threads, "-c", "512"];
    let ours = || {
        let mut command = command(&programs.ours, &["run"], &case.path);
        command.args(settings).args(["-n", "1", "--temp", "0", PROMPT]);
        first_output(&mut command).map(|time| time.as_secs_f64())
    };
    let theirs = || {
        let mut command = command(&programs.theirs, &["first"], &case.path);
        first_output(command.args(settings).arg(PROMPT)).map(|time| time.as_secs_f64())
    };
    let mut pairs = Pairs::default();
    for round in 0..=count {
        let (a, b) = if round % 2 == 0 {
            let ours = ours()?;
            (ours, theirs()?)
        } else {
            let theirs = theirs()?;
            (ours()?, theirs)
        };
        // The first of each may have read the file from disk.
        if round > 0 {
            pairs.push(Side::Ours, a);
            pairs.push(Side::Theirs, b);
        }
    }
    Ok(pairs)
}

/// Bytes of the buffers between weights and caches, for a context of 4,096 tokens.
pub(super) fn memory(programs: &Programs, case: &Case) -> Result<Pairs> {
    let mut plan = Command::new(&programs.ours);
    let plan = ask(plan.arg("plan").arg(&case.path).args(["--json", "-c", "4096", "-t", "1"]))?.json()?;
    let devices = plan["devices"].as_array().context("the plan has no devices")?;
    let ours: f64 = devices.iter().filter_map(|device| device["compute"].as_f64()).sum();
    let logged = ask(command(&programs.theirs, &["memory"], &case.path).args(["-c", "4096"]))?.stderr;
    let theirs = compute_buffers(&logged);
    ensure!(theirs > 0.0, "llama.cpp logged no size of a compute buffer");
    Ok(Pairs { ours: vec![ours], theirs: vec![theirs] })
}

/// The sum of lines such as `…: CPU compute buffer size =   97.31 MiB`.
pub(crate) fn compute_buffers(log: &str) -> f64 {
    let size = |line: &str| {
        let (_, size) = line.split_once("compute buffer size =")?;
        let mebibytes: f64 = size.trim().strip_suffix("MiB")?.trim().parse().ok()?;
        Some(mebibytes * f64::from(1 << 20))
    };
    log.lines().filter_map(size).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_those_of_rounds() {
        let pairs = Pairs { ours: vec![10.0, 30.0, 12.0], theirs: vec![10.0, 10.0, 8.0] };
        assert_eq!(pairs.ratios(), [1.0, 1.5, 3.0]);
        assert_eq!(median(&[1.0, 4.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn sizes_of_compute_buffers_are_found_in_a_log() {
        let log =
            "sched_reserve: layers\nsched_reserve:        CPU compute buffer size =    97.50 MiB\nx: done";
        assert_eq!(compute_buffers(log), 97.5 * 1048576.0);
        assert_eq!(compute_buffers("nothing"), 0.0);
    }
}
