//! The `orlop` command.

mod arguments;
mod commands;
mod failure;
mod graph_file;
mod input;
mod output;
mod printer;
mod problem_file;
mod quantity;

use std::process::ExitCode;

use arguments::Command;
use failure::Failure;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run() -> Result<(), Failure> {
    match arguments::parse()? {
        Some(Command::Inspect(arguments)) => commands::inspect::run(&arguments),
        Some(Command::Plan(arguments)) => commands::plan::run(&arguments),
        None => Ok(()),
    }
}
