//! `cargo xtask bench peers`: runs `orlop` and llama.cpp alternately on the same tests.

pub(crate) mod accuracy;
pub(crate) mod build;
pub(crate) mod measure;
pub(crate) mod models;
pub(crate) mod process;
mod report;
mod traffic;

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Value, json};

use measure::Measured;
use models::Case;
use process::Programs;

/// What to compare.
#[derive(Args)]
pub(crate) struct Peers {
    /// Model file (.gguf) instead of the default set; can be repeated.
    #[arg(long, value_name = "FILE")]
    model: Vec<PathBuf>,
    /// Only models whose name contains this.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Write all measurements as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Numbers of threads.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,2")]
    threads: Vec<usize>,
    /// Rounds of alternating runs.
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: usize,
    /// Repetitions within each run.
    #[arg(long, value_name = "N", default_value_t = 3)]
    repetitions: usize,
    /// Prompt tokens [default: 512 for small models, 128 for large ones]
    #[arg(short, long, value_name = "N")]
    prompt: Option<usize>,
    /// Tokens to generate [default: 128 for small models, 32 for large ones]
    #[arg(short = 'n', long, value_name = "N")]
    generate: Option<usize>,
    /// Tokens in the context before each test.
    #[arg(short, long, value_name = "N,…", value_delimiter = ',', default_value = "0")]
    depth: Vec<usize>,
    /// Starts of each program for the time to first token; 0: skip.
    #[arg(long, value_name = "N", default_value_t = 10)]
    starts: usize,
    /// Build jobs of llama.cpp [default: number of threads]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
}

/// The parameters of one test.
#[derive(Clone, Copy)]
struct Shape {
    threads: usize,
    prompt: usize,
    generate: usize,
    depth: usize,
    repetitions: usize,
}

/// Builds, checks, measures and reports.
pub(crate) fn run(peers: &Peers) -> Result<()> {
    ensure!(peers.rounds > 0 && peers.repetitions > 0, "at least one round and one repetition are needed");
    let programs = Programs { ours: build::orlop()?, theirs: build::llama_cpp(peers.jobs)? };
    let system = build::check_features(&programs)?;
    let cases = cases(peers, &programs)?;
    let mut results = Vec::new();
    for threads in &peers.threads {
        for case in &cases {
            for depth in &peers.depth {
                let shape = Shape {
                    threads: *threads,
                    prompt: peers.prompt.unwrap_or(case.prompt),
                    generate: peers.generate.unwrap_or(case.generate),
                    depth: *depth,
                    repetitions: peers.repetitions,
                };
                let measured = Measured::new(&programs, case, shape, peers.rounds)?;
                report::print(&measured);
                results.push(measured.json());
            }
            if peers.starts > 0 {
                let starts = measure::starts(&programs, case, *threads, peers.starts)?;
                report::print_starts(case, *threads, &starts);
                results.push(json!({ "model": case.name, "threads": threads, "first_token": starts.json() }));
            }
        }
    }
    for case in &cases {
        let memory = measure::memory(&programs, case)?;
        report::print_memory(case, &memory);
        results.push(json!({ "model": case.name, "compute_bytes": memory.json() }));
    }
    match &peers.json {
        Some(path) => write(path, &json!({ "llama_cpp": system, "results": results })),
        None => Ok(()),
    }
}

fn cases(peers: &Peers, programs: &Programs) -> Result<Vec<Case>> {
    let given = peers.model.iter().map(|path| Case::given(path)).collect::<Result<Vec<Case>>>()?;
    let wanted = |name: &str| peers.only.as_deref().is_none_or(|text| name.contains(text));
    let cases = if given.is_empty() { models::usual(programs, &wanted)? } else { given };
    ensure!(!cases.is_empty(), "no model has that in its name; there are {}", models::names().join(", "));
    Ok(cases)
}

fn write(path: &PathBuf, value: &Value) -> Result<()> {
    let text = serde_json::to_string_pretty(value)?;
    std::fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))
}
