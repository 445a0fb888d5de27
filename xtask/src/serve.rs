//! `cargo xtask bench serve`: `orlop serve` and llama.cpp's server under the same load, alternating.

mod cells;
mod loader;
mod report;
mod servers;

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Value, json};

use crate::peers::{build, models};
use cells::Cell;
use report::Measured;
use servers::{Program, Server};

/// What to measure.
#[derive(Args)]
pub(crate) struct Serve {
    /// llama.cpp's server, `llama-server`; without it, only `orlop serve` is measured.
    #[arg(long, value_name = "PATH")]
    peer: Option<PathBuf>,
    /// An `orlop` that is built already [default: a release build]
    #[arg(long, value_name = "PATH")]
    orlop: Option<PathBuf>,
    /// Model file (.gguf) [default: SmolLM2-135M-Instruct]
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// What is measured.
    #[arg(long, value_name = "CELL,…", value_delimiter = ',', default_value = "chat,shared,stall,overload")]
    cells: Vec<Cell>,
    /// Numbers of clients.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,4,16,64")]
    streams: Vec<usize>,
    /// Rounds of alternating runs.
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: usize,
    /// Requests of each client in a round.
    #[arg(long, value_name = "N", default_value_t = 1)]
    requests: usize,
    /// Threads of each server.
    #[arg(short, long, value_name = "N", default_value_t = 2)]
    threads: usize,
    /// Write all measurements as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Starts the servers of each cell, drives them in turn, and prints what was measured.
pub(crate) fn run(arguments: &Serve) -> Result<()> {
    ensure!(arguments.rounds > 0 && arguments.requests > 0, "at least one round and one request are needed");
    let ours = arguments.orlop.clone().map_or_else(build::orlop, Ok)?;
    let model = match &arguments.model {
        Some(model) => model.clone(),
        None => models::default_model(&ours, &build::folder())?,
    };
    let mut programs = vec![Program::Orlop(ours)];
    if let Some(peer) = &arguments.peer {
        programs.push(Program::LlamaSplit(peer.clone()));
        programs.push(Program::LlamaUnified(peer.clone()));
    }
    let mut results = Vec::new();
    report::head();
    for cell in &arguments.cells {
        for load in cell.loads(&arguments.streams, arguments.requests) {
            let starts =
                programs.iter().map(|program| Server::start(program, &model, &load, arguments.threads));
            let servers = starts.collect::<Result<Vec<Server>>>()?;
            let mut measured: Vec<Measured> =
                servers.iter().map(|server| Measured::new(server.name(), cell.name(), &load)).collect();
            for round in 0..=arguments.rounds {
                for (server, measured) in servers.iter().zip(&mut measured) {
                    let outcome = load.drive(server.address(), round as u64)?;
                    // The first round warms up.
                    if round > 0 {
                        measured.add(outcome);
                    }
                }
            }
            for (server, measured) in servers.into_iter().zip(&mut measured) {
                measured.finish(&server)?;
                report::row(measured);
                results.push(measured.json());
            }
        }
    }
    match &arguments.json {
        Some(path) => write(path, &json!(results)),
        None => Ok(()),
    }
}

fn write(path: &PathBuf, value: &Value) -> Result<()> {
    let text = serde_json::to_string_pretty(value)?;
    std::fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))
}
