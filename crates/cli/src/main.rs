//! The `orlop` command.
#![warn(clippy::unwrap_used)]

mod adapter_argument;
mod advice;
mod arguments;
mod chat;
mod commands;
mod default_model;
mod download_bars;
mod draft_arguments;
mod expert_file;
mod failure;
mod grammar_arguments;
mod graph_file;
mod hub;
mod input;
mod load;
mod measured_speeds;
mod memory_table;
mod model_arguments;
mod model_plan_file;
mod output;
mod place;
mod predicted;
mod printer;
mod problem_file;
mod quantity;
mod rpc_key;
mod style;
mod timings;

use std::process::ExitCode;

use arguments::Command;
use failure::Failure;

fn main() -> ExitCode {
    // Without it, all works as long as files stay as they are.
    let _ = orlop::gguf::handle_bus_errors();
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run() -> Result<(), Failure> {
    match arguments::parse()? {
        Some(Command::Embed(arguments)) => commands::embed::run(&arguments),
        Some(Command::Rerank(arguments)) => commands::rerank::run(&arguments),
        Some(Command::Inspect(arguments)) => commands::inspect::run(&arguments),
        Some(Command::Plan(arguments)) => commands::plan::run(&arguments),
        Some(Command::Run(arguments)) => commands::run::run(&arguments),
        Some(Command::Serve(arguments)) => commands::serve::run(&arguments),
        Some(Command::Pull(arguments)) => commands::pull::run(&arguments),
        Some(Command::Bench(arguments)) => commands::bench::run(&arguments),
        Some(Command::Logits(arguments)) => commands::logits::run(&arguments),
        Some(Command::Tokenize(arguments)) => commands::tokenize::run(&arguments),
        Some(Command::Perplexity(arguments)) => commands::perplexity::run(&arguments),
        Some(Command::Imatrix(arguments)) => commands::imatrix::run(&arguments),
        Some(Command::Quantize(arguments)) => commands::quantize::run(&arguments),
        Some(Command::Synth(arguments)) => commands::synth::run(&arguments),
        Some(Command::ServeRpc(arguments)) => commands::serve_rpc::run(&arguments),
        Some(Command::Devices(arguments)) => commands::devices::run(&arguments),
        Some(Command::Completions(arguments)) => commands::completions::run(&arguments),
        Some(Command::Man(arguments)) => commands::man::run(&arguments),
        None => Ok(()),
    }
}
