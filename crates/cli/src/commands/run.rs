//! `orlop run`.

mod trace;

use std::io::{IsTerminal, Read, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use orlop::llm::{End, Outputs, Sampler, SamplingOptions, Special, TextStream, generate};
use serde::Serialize;

use crate::failure::Failure;
use crate::load::{MemoryReport, failure, load, tokenizer};
use crate::model_arguments::ModelArguments;
use crate::printer::Printer;

use trace::Trace;

/// What to say to a model.
#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// The text to go on from; without it, what comes on standard input.
    #[arg(value_name = "PROMPT")]
    prompt: Option<String>,
    /// The same, as llama.cpp's users write it.
    #[arg(short, long = "prompt", value_name = "TEXT", conflicts_with = "prompt")]
    p: Option<String>,
    #[command(flatten)]
    model: ModelArguments,
    /// Tokens to generate; -1 for as many as there are.
    #[arg(short, long = "n-predict", value_name = "N", default_value_t = -1, allow_hyphen_values = true)]
    n: i64,
    #[command(flatten)]
    sampling: SamplingArguments,
    /// Take special tokens in the prompt for text.
    #[arg(long)]
    no_special: bool,
    /// Write what each device did when, and what its memory held, in the format of Chrome's trace viewer.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Print one JSON object: `prompt_tokens`, `tokens`, `text`, `timings`, `memory`.
    #[arg(long)]
    json: bool,
}

/// How the next token is chosen.
#[derive(Debug, Args)]
pub(crate) struct SamplingArguments {
    /// Temperature; 0 always takes the most likely token.
    #[arg(long, value_name = "T", default_value_t = SamplingOptions::default().temperature)]
    temp: f32,
    /// Only the K most likely tokens; 0 for all.
    #[arg(long, value_name = "K", default_value_t = SamplingOptions::default().top_k)]
    top_k: usize,
    /// Only the most likely tokens that make up P together; 1 for all.
    #[arg(long, value_name = "P", default_value_t = SamplingOptions::default().top_p)]
    top_p: f32,
    /// Only tokens at least P times as likely as the most likely; 0 for all.
    #[arg(long, value_name = "P", default_value_t = SamplingOptions::default().min_p)]
    min_p: f32,
    /// Makes the choice repeatable.
    #[arg(short, long, value_name = "N")]
    seed: Option<u64>,
}

impl SamplingArguments {
    fn sampler(&self) -> Sampler {
        let options = SamplingOptions {
            temperature: self.temp,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            ..SamplingOptions::default()
        };
        Sampler::new(options, self.seed.unwrap_or_else(random_seed))
    }
}

#[derive(Serialize)]
struct Answer {
    prompt_tokens: Vec<u32>,
    tokens: Vec<u32>,
    text: String,
    timings: Timings,
    memory: MemoryReport,
}

#[derive(Serialize)]
struct Timings {
    load_s: f64,
    prompt_s: f64,
    prompt_tokens_per_second: f64,
    generate_s: f64,
    generate_tokens_per_second: f64,
}

/// Goes on from a prompt.
pub(crate) fn run(arguments: &RunArguments) -> Result<(), Failure> {
    let prompt = prompt(arguments)?;
    let trace = arguments.trace.as_deref().map(Trace::begin).transpose()?;
    let mut loaded = load(&arguments.model, Outputs::Last)?;
    if trace.is_some() {
        loaded.engine.record();
    }
    let tokenizer = tokenizer(&loaded.model)?;
    let special = if arguments.no_special { Special::AsText } else { Special::Parse };
    let prompt_tokens = tokenizer.prompt(&prompt, special);
    let mut sampler = arguments.sampling.sampler();
    let limit = usize::try_from(arguments.n).ok();
    let (mut tokens, mut text, mut stream) = (Vec::new(), String::new(), TextStream::new());
    let mut out = std::io::stdout().lock();
    let begin = Instant::now();
    let mut first = None;
    let mut broken = None;
    let end = generate(&mut loaded.engine, &tokenizer, &mut sampler, &prompt_tokens, limit, &mut |token| {
        first.get_or_insert_with(|| begin.elapsed());
        tokens.push(token);
        let piece = if tokenizer.is_end(token) { "" } else { stream.push(tokenizer.decode(token)) };
        if arguments.json {
            text.push_str(piece);
            return ControlFlow::Continue(());
        }
        match out.write_all(piece.as_bytes()).and_then(|()| out.flush()) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                broken = Some(error);
                ControlFlow::Break(())
            }
        }
    });
    let end = end.map_err(failure)?;
    if let Some(error) = broken {
        return Err(Failure::printing(error));
    }
    let prompt_time = first.unwrap_or_else(|| begin.elapsed());
    let timings = Timings::new(loaded.took, prompt_tokens.len(), prompt_time, tokens.len(), begin.elapsed());
    let rest = stream.finish();
    let traced = trace.map(|trace| trace.finish(&loaded.engine)).transpose()?;
    if arguments.json {
        text.push_str(rest);
        let memory = MemoryReport::new(&loaded.engine.memory()).with_peak();
        drop(out);
        return Printer::new().json(&Answer { prompt_tokens, tokens, text, timings, memory });
    }
    writeln!(out, "{rest}").map_err(Failure::printing)?;
    let mut notes = std::io::stderr().lock();
    if end == End::ContextFull {
        let context = loaded.engine.blueprint().context();
        let _ = writeln!(notes, "orlop: the context of {context} tokens is full; ask for a larger one (-c)");
    }
    let _ = writeln!(notes, "\n{timings}");
    if let Some(summary) = traced {
        let _ = writeln!(notes, "{summary}");
    }
    Ok(())
}

impl Timings {
    fn new(load: Duration, fed: usize, prompt: Duration, made: usize, all: Duration) -> Timings {
        let generate = all.saturating_sub(prompt);
        let rate =
            |count: usize, time: Duration| if count == 0 { 0.0 } else { count as f64 / time.as_secs_f64() };
        Timings {
            load_s: load.as_secs_f64(),
            prompt_s: prompt.as_secs_f64(),
            prompt_tokens_per_second: rate(fed, prompt),
            generate_s: generate.as_secs_f64(),
            generate_tokens_per_second: rate(made.saturating_sub(1), generate),
        }
    }
}

impl std::fmt::Display for Timings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "loaded in {:.2} s; prompt in {:.2} s ({:.1} tokens/s); generated in {:.2} s ({:.1} tokens/s)",
            self.load_s,
            self.prompt_s,
            self.prompt_tokens_per_second,
            self.generate_s,
            self.generate_tokens_per_second,
        )
    }
}

fn prompt(arguments: &RunArguments) -> Result<String, Failure> {
    if let Some(prompt) = arguments.prompt.as_ref().or(arguments.p.as_ref()) {
        return Ok(prompt.clone());
    }
    let mut input = std::io::stdin();
    if input.is_terminal() {
        return Err(Failure::BadInput("there is no prompt; write one behind `orlop run`".to_owned()));
    }
    let mut text = String::new();
    input.read_to_string(&mut text).map_err(|error| {
        Failure::BadInput(format!("the prompt on standard input cannot be read: {error}"))
    })?;
    Ok(text)
}

/// A seed that differs from run to run.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}
