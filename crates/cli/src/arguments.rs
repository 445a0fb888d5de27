//! What may be written behind `orlop`.

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand};
use orlop::plan::{Options, Strategy};

use crate::failure::Failure;
use crate::printer::Printer;
use crate::quantity::parse_bytes;

/// Plans every byte of a tensor graph before anything runs.
#[derive(Debug, Parser)]
#[command(name = "orlop", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Plan memory, and say how good the plan is.
    Plan(PlanArguments),
    /// Say what is in a model file.
    Inspect(InspectArguments),
}

const STATUS_HELP: &str = "Exit status: 0 planned; 2 arguments or input make no sense; 3 not within the \
    capacity, though a plan may exist; 4 no plan can exist within the capacity; 1 anything else.";

/// What to plan, and how.
#[derive(Debug, Args)]
#[command(after_help = STATUS_HELP)]
pub(crate) struct PlanArguments {
    /// Buffers with lifetimes (.csv with the columns id,lower,upper,size and perhaps alignment), graphs that
    /// ggml planned (.jsonl), or a graph of our own (.json); each may be gzip-compressed.
    pub(crate) file: PathBuf,
    /// Print JSON: one object for a .csv, one line a graph for graphs.
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the places found: the columns of a .csv plus `offset`; for graphs, one line of JSON each.
    #[arg(long, short, value_name = "OUT")]
    pub(crate) output: Option<PathBuf>,
    /// How to look for a plan: ggml, order, size, lifetime, area, conflict, or best, which tries them all.
    #[arg(long, value_name = "NAME", default_value = "best", value_parser = parse_strategy)]
    pub(crate) strategy: Strategy,
    /// Stop at the first plan within so many bytes (a number, or one with k, M, G, KiB, MiB, GiB), and fail if
    /// there is none. For graphs this is about the buffers of each graph together.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub(crate) capacity: Option<u64>,
    /// Work allowed per buffer, counted, so that equal input gives equal output.
    #[arg(long, value_name = "N", default_value_t = Options::DEFAULT_EFFORT)]
    pub(crate) effort: u64,
    /// Say what is in memory where most is.
    #[arg(long, conflicts_with = "json")]
    pub(crate) explain: bool,
}

impl PlanArguments {
    /// How to search, as the planner wants to hear it.
    pub(crate) fn search(&self) -> Options {
        Options { strategy: self.strategy, effort: self.effort }
    }
}

/// Which model file to look into, and how closely.
#[derive(Debug, Args)]
#[command(after_help = "Exit status: 0 read; 2 arguments or file make no sense; 1 anything else.")]
pub(crate) struct InspectArguments {
    /// A model (.gguf); of a split one, any part.
    pub(crate) file: PathBuf,
    /// Print one JSON object: `version`, `metadata`, and `tensors` with each tensor.
    #[arg(long)]
    pub(crate) json: bool,
    /// List every tensor.
    #[arg(long)]
    pub(crate) tensors: bool,
    /// Print long arrays and strings whole.
    #[arg(long)]
    pub(crate) full: bool,
}

fn parse_strategy(name: &str) -> Result<Strategy, String> {
    match name {
        "exact" => Err("the exact search is not there yet, use best".to_owned()),
        name => name.parse::<Strategy>().map_err(|error| error.to_string()),
    }
}

/// Reads the command line; `None` when it asked for help and got it.
pub(crate) fn parse() -> Result<Option<Command>, Failure> {
    match Arguments::try_parse() {
        Ok(arguments) => Ok(Some(arguments.command)),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                Printer::new().line(error.to_string().trim_end()).map(|()| None)
            }
            _ => Err(Failure::BadInput(one_sentence(&error.to_string()))),
        },
    }
}

/// Shortens what the argument parser says, which is several paragraphs, to its first.
fn one_sentence(text: &str) -> String {
    let first: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let first = first.join(" ");
    let what = first.strip_prefix("error: ").unwrap_or(&first);
    format!("{what}; see `orlop --help` or `orlop COMMAND --help`")
}
