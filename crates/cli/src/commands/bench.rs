//! `orlop bench`: tokens per second of prompt processing and generation.

mod reads;

use std::time::{Duration, Instant};

use clap::Args;
use orlop::llm::{Blueprint, Engine, Error, LayerSplit, Outputs, PAGE_ROWS, Part};
use serde::Serialize;

use self::reads::{Rates, Reads, Report};
use crate::advice;
use crate::expert_file::ExpertStatsArguments;
use crate::failure::Failure;
use crate::load::{failure, load_or, model_file, repack};
use crate::model_arguments::{ModelArguments, Predictions};
use crate::predicted::with_file_speed;
use crate::printer::Printer;

const EXAMPLES: &str = "Examples:
  orlop bench -p 64 -n 16 -r 2
  orlop bench -p 128 -n 0 -r 1 -t 1 --json
  orlop bench -p 0 -n 32 --reads
  orlop bench -p 0 -n 32 --sequences 1,4,16";

/// Arguments of `orlop bench`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchArguments {
    #[command(flatten)]
    model: ModelArguments,
    /// Number of prompt tokens; 0: skip this test.
    #[arg(short, long = "n-prompt", value_name = "N", default_value_t = 512)]
    p: usize,
    /// Number of tokens to generate with greedy sampling on the device, without reading logits back; 0: skip this test.
    #[arg(short, long = "n-gen", value_name = "N", default_value_t = 128)]
    n: usize,
    /// Repetitions of each test, after one warm-up run.
    #[arg(short, long, value_name = "N", default_value_t = 5)]
    repetitions: usize,
    /// Number of tokens in the context before each test.
    #[arg(short, long = "n-depth", value_name = "N", default_value_t = 0)]
    depth: usize,
    /// Also generate in this many sequences at once, which share the weights they read; a list such as 1,4,16 (also -npl).
    #[arg(
        long,
        visible_alias = "npl",
        value_name = "LIST",
        value_delimiter = ',',
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    sequences: Vec<u64>,
    /// Measure memory read bandwidth after each generated token, with the same threads. Generation reads all weights for
    /// every token, so this bounds its speed.
    #[arg(long)]
    reads: bool,
    #[command(flatten)]
    expert_stats: ExpertStatsArguments,
    /// Print JSON: a list of tests.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Test {
    test: String,
    /// Sequences that were fed together.
    #[serde(skip_serializing_if = "Option::is_none")]
    sequences: Option<u64>,
    threads: usize,
    device: String,
    tokens_per_second: f64,
    stddev: f64,
    /// What was expected, where one sequence is fed.
    #[serde(skip_serializing_if = "Option::is_none")]
    predicted_tokens_per_second: Option<f64>,
    /// Per repetition.
    samples: Vec<f64>,
    /// Memory bandwidth between tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    reads: Option<Report>,
}

impl BenchArguments {
    /// Without -c, the tests determine the context: suggests smaller tests that fit.
    fn refused(&self, error: Error) -> Failure {
        let smaller = |context: Option<u64>| {
            let room = usize::try_from(context?).ok()?.checked_sub(self.depth).filter(|room| *room > 0)?;
            Some(format!("-p {} -n {}", self.p.min(room), self.n.min(room)))
        };
        let offers = match &error {
            Error::DoesNotFit { largest, divided, .. } if self.model.settings.context == 0 => {
                let divided = divided.and_then(|LayerSplit { layers, context }| {
                    Some(format!("-ngl {layers} {}", smaller(Some(context))?))
                });
                smaller(*largest).into_iter().chain(divided).collect()
            }
            _ => Vec::new(),
        };
        match (advice::does_not_fit(&error), offers.as_slice()) {
            (Some((what, _)), [_, ..]) => {
                Failure::OverLimits(format!("{what}; {} fits", offers.join(" or ")))
            }
            _ => failure(error),
        }
    }
}

/// Measures prompt processing and generation.
pub(crate) fn run(arguments: &BenchArguments) -> Result<(), Failure> {
    let stats = arguments.expert_stats.begin()?;
    let mut model = stats.counting(&arguments.model);
    if model.settings.context == 0 {
        let one = (arguments.depth + arguments.p.max(arguments.n)).max(1) as u64;
        let each = ((arguments.depth + arguments.n) as u64).next_multiple_of(PAGE_ROWS);
        let most = arguments.sequences.iter().max().copied().unwrap_or(0);
        model.settings.context = one.max(each.saturating_mul(most));
    }
    // Those that are fed together, and the first one.
    model.settings.predictions = Predictions::Printed;
    model.settings.sequences = arguments.sequences.iter().max().map_or(1, |most| most.saturating_add(1));
    let mut loaded = load_or(&model, Outputs::Last, |error| arguments.refused(error))?;
    stats.check(loaded.model.config())?;
    repack(&mut loaded)?;
    let threads = model.settings.threads();
    let device = model.settings.device.join(",");
    // Measured before the tests, which read the file, too.
    let file = model_file(model.model.as_deref())?;
    let blueprint =
        with_file_speed(loaded.engine.blueprint(), Some(&file), model.settings.no_measure).into_owned();
    let mut tests = Vec::new();
    let reads = arguments.reads.then(|| Reads::new(threads)).transpose();
    let mut reads = reads.map_err(|error| Failure::Other(error.into()))?;
    let kinds = [("pp", arguments.p, usize::MAX), ("tg", arguments.n, 1)];
    for (kind, count, batch) in kinds.into_iter().filter(|(_, count, _)| *count > 0) {
        let mut rates = Vec::with_capacity(arguments.repetitions);
        let mut between = reads.as_mut().filter(|_| kind == "tg");
        for repetition in 0..=arguments.repetitions {
            let between = between.as_deref_mut().filter(|_| repetition > 0);
            let rate =
                measure(&mut loaded.engine, arguments.depth, count, batch, between).map_err(failure)?;
            if repetition > 0 {
                rates.push(rate);
            }
        }
        let reads = between.map(Reads::report);
        let (tokens_per_second, stddev) = mean_and_deviation(&rates);
        let depth = if arguments.depth > 0 { format!("@d{}", arguments.depth) } else { String::new() };
        let test = format!("{kind}{count}{depth}");
        let device = device.clone();
        let predicted = predicted(&blueprint, arguments.depth, count, batch).map_err(failure)?;
        tests.push(Test {
            test,
            sequences: None,
            threads,
            device,
            tokens_per_second,
            stddev,
            predicted_tokens_per_second: Some(predicted),
            samples: rates,
            reads,
        });
    }
    for count in &arguments.sequences {
        tests.push(
            several(arguments, &mut loaded.engine, *count, (threads, device.clone())).map_err(failure)?,
        );
    }
    stats.finish()?;
    let mut printer = Printer::new();
    if arguments.json {
        return printer.json(&tests);
    }
    for test in tests {
        let predicted = test.predicted_tokens_per_second;
        let predicted = predicted.map_or(String::new(), |rate| format!(" (predicted {rate:.2} tokens/s)"));
        let Test { test, sequences, threads, device, tokens_per_second, stddev, reads, .. } = test;
        let test = sequences.map_or(test.clone(), |sequences| format!("{test} x {sequences}"));
        printer.line(format!(
            "{test:<14} {device}, {threads} threads: {tokens_per_second:9.2} ± {stddev:.2} tokens/s{predicted}"
        ))?;
        if let Some(Report { plain, large_pages }) = reads {
            let shown =
                |Rates { mean, best }: Rates| format!("{:.1} GB/s (best {:.1})", mean / 1e9, best / 1e9);
            let (plain, large) = (shown(plain), shown(large_pages));
            printer.line(format!("{:<14} read bandwidth: {plain}; with huge pages: {large}", "memory"))?;
        }
    }
    Ok(())
}

/// Tokens per second that are expected of a test.
fn predicted(blueprint: &Blueprint, depth: usize, count: usize, batch: usize) -> Result<f64, Error> {
    let (count, depth) = (count as u64, depth as u64);
    Ok(match batch {
        // On average, half of the generated tokens are behind.
        1 => blueprint.speed_forecast(1, depth + count / 2)?.generation_tokens_per_second,
        _ => blueprint.speed_forecast(count, depth)?.prompt_tokens_per_second,
    })
}

/// Tokens per second of all sequences that generate together, each with `depth` tokens in its context.
fn several(
    arguments: &BenchArguments,
    engine: &mut Engine,
    count: u64,
    (threads, device): (usize, String),
) -> Result<Test, Error> {
    let vocabulary = engine.config().vocabulary;
    engine.truncate(0);
    let mut samples = Vec::with_capacity(arguments.repetitions);
    for repetition in 0..=arguments.repetitions {
        let ids = (0..count).map(|_| engine.start_sequence()).collect::<Result<Vec<_>, Error>>()?;
        for (number, id) in ids.iter().enumerate().filter(|_| arguments.depth > 0) {
            let tokens: Vec<u32> = (0..arguments.depth as u64)
                .map(|index| ((index * 7919 + number as u64) % vocabulary) as u32)
                .collect();
            engine.feed_parts(&[Part::silent(*id, &tokens)], &mut |_| Ok(()))?;
        }
        let mut best: Vec<u32> = (0..count).map(|number| (number * 31 % vocabulary) as u32).collect();
        let begin = Instant::now();
        for _ in 0..arguments.n {
            let tokens = best.clone();
            let each = ids.iter().zip(&tokens);
            let parts: Vec<Part<'_>> =
                each.map(|(id, token)| Part::last(*id, std::slice::from_ref(token))).collect();
            engine.feed_parts(&parts, &mut |mut rows| {
                rows.best()?.for_each(|(row, token)| best[row.part] = token);
                Ok(())
            })?;
        }
        let rate = (count * arguments.n as u64) as f64 / begin.elapsed().as_secs_f64();
        ids.into_iter().try_for_each(|id| engine.end_sequence(id))?;
        if repetition > 0 {
            samples.push(rate);
        }
    }
    let (tokens_per_second, stddev) = mean_and_deviation(&samples);
    let depth = if arguments.depth > 0 { format!("@d{}", arguments.depth) } else { String::new() };
    let test = format!("tg{}{depth}", arguments.n);
    Ok(Test {
        test,
        sequences: Some(count),
        threads,
        device,
        tokens_per_second,
        stddev,
        predicted_tokens_per_second: None,
        samples,
        reads: None,
    })
}

/// Tokens per second with `depth` tokens in the context. Bandwidth measurements between batches are not counted.
fn measure(
    engine: &mut Engine,
    depth: usize,
    count: usize,
    batch: usize,
    mut between: Option<&mut Reads>,
) -> Result<f64, Error> {
    let vocabulary = engine.config().vocabulary as usize;
    // Arbitrary, but not all equal.
    let tokens: Vec<u32> = (0..depth + count).map(|index| (index * 7919 % vocabulary) as u32).collect();
    if engine.len() > depth {
        engine.truncate(depth);
    }
    let before = engine.len();
    if before < depth {
        engine.feed(&tokens[before..depth])?;
    }
    let (begin, mut apart) = (Instant::now(), Duration::ZERO);
    for tokens in tokens[depth..].chunks(batch.min(count)) {
        engine.feed(tokens)?;
        engine.last_best()?;
        if let Some(reads) = &mut between {
            let begin = Instant::now();
            reads.pass();
            apart += begin.elapsed();
        }
    }
    Ok(count as f64 / (begin.elapsed() - apart).as_secs_f64())
}

fn mean_and_deviation(rates: &[f64]) -> (f64, f64) {
    let count = rates.len().max(1) as f64;
    let mean = rates.iter().sum::<f64>() / count;
    let squares = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>();
    (mean, (squares / (count - 1.0).max(1.0)).sqrt())
}
