//! What may be written behind `orlop`.

use std::ffi::OsString;
use std::io::{IsTerminal, stderr, stdout};
use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand};
use orlop::plan::{SolveOptions, Strategy};

use crate::commands::bench::BenchArguments;
use crate::commands::completions::CompletionsArguments;
use crate::commands::devices::DevicesArguments;
use crate::commands::logits::LogitsArguments;
use crate::commands::man::ManArguments;
use crate::commands::perplexity::PerplexityArguments;
use crate::commands::plan::{Given, PictureArguments};
use crate::commands::quantize::QuantizeArguments;
use crate::commands::run::RunArguments;
use crate::commands::synth::SynthArguments;
use crate::commands::tokenize::TokenizeArguments;
use crate::failure::Failure;
use crate::model_arguments::SettingArguments;
use crate::printer::Printer;
use crate::quantity::parse_bytes;
use crate::style::may_colour;

/// Runs language models, and plans every byte before anything runs.
#[derive(Debug, Parser)]
#[command(name = "orlop", version, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Plan memory, and say how good the plan is.
    Plan(PlanArguments),
    /// Go on from a prompt, or chat.
    Run(RunArguments),
    /// Measure tokens a second.
    Bench(BenchArguments),
    /// Print a model's logits for given tokens.
    Logits(LogitsArguments),
    /// Cut a text into tokens.
    Tokenize(TokenizeArguments),
    /// Say how surprised a model is by a text.
    Perplexity(PerplexityArguments),
    /// Say what is in a model file.
    Inspect(InspectArguments),
    /// Store a model in other element types.
    Quantize(QuantizeArguments),
    /// Make a model of random weights.
    Synth(SynthArguments),
    /// List the devices of this machine.
    Devices(DevicesArguments),
    /// Print what makes a shell complete commands and options.
    Completions(CompletionsArguments),
    /// Print or write manual pages.
    Man(ManArguments),
}

/// All that may be written, as data.
pub(crate) fn definition() -> clap::Command {
    Arguments::command()
}

const EXAMPLES: &str = "Examples:
  orlop run --chat \"What is an orlop?\" -n 60
  orlop devices

`orlop COMMAND --help` has more.";

const PLAN_HELP: &str = "Examples:
  orlop synth random.gguf --preset smollm2-135m
  orlop plan -c 4096
  orlop plan random.gguf -c 8192 --budget cpu=200MiB
  printf 'id,lower,upper,size\\na,0,2,64\\nb,1,3,64\\nc,2,4,64\\n' > problem.csv
  orlop plan problem.csv --explain

Exit status: 0 planned; 2 arguments or input make no sense; 3 not within the \
    capacity, though a plan may exist; 4 no plan can exist within the capacity; 1 anything else. \
    Of a model it is said whether it fits.";

/// What to plan, and how.
#[derive(Debug, Args)]
#[command(after_help = PLAN_HELP)]
pub(crate) struct PlanArguments {
    #[command(flatten)]
    pub(crate) given: Given,
    /// A model (.gguf), buffers with lifetimes (.csv with the columns id,lower,upper,size and perhaps alignment), graphs that
    /// ggml planned (.jsonl), or a graph of our own (.json); each but a model may be gzip-compressed. Without it: the
    /// default model.
    pub(crate) file: Option<PathBuf>,
    /// A model, as other commands take it.
    #[arg(short, long, value_name = "FILE", conflicts_with = "file")]
    pub(crate) model: Option<PathBuf>,
    /// Print JSON: one object for a .csv, one line a graph for graphs.
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the places found: the columns of a .csv plus `offset`; for graphs, one line of JSON each.
    #[arg(long, short, value_name = "OUT")]
    pub(crate) output: Option<PathBuf>,
    /// How to look for a plan: ggml, order, size, lifetime, area, conflict, valley, repair, ..., best, which tries them
    /// all, or exact, which goes on until no smaller plan can exist.
    #[arg(long, value_name = "NAME", default_value = "best", value_parser = parse_strategy)]
    pub(crate) strategy: Strategy,
    /// Stop at the first plan within so many bytes (a number, or one with k, M, G, KiB, MiB, GiB), and fail if
    /// there is none. For graphs this is about the buffers of each graph together.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub(crate) capacity: Option<u64>,
    /// Work allowed per buffer, counted, so that equal input gives equal output. Without it: a few microseconds' worth,
    /// and no limit for exact.
    #[arg(long, value_name = "N")]
    pub(crate) effort: Option<u64>,
    /// Stop after so many seconds with the best plan so far, which then depends on the machine.
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) time_limit: Option<Duration>,
    /// Let steps change places where that takes less memory, within all that depends on what, and show what the given
    /// order takes beside it. With --output, graphs get their order, too. Models are ordered so anyway.
    #[arg(long)]
    pub(crate) reorder: bool,
    /// Write the plan, with the signature of what it is a plan of, as JSON: for a model, one problem or one graph.
    #[arg(long, value_name = "PLAN")]
    pub(crate) save: Option<PathBuf>,
    /// Say what is in memory where most is.
    #[arg(long, conflicts_with = "json")]
    pub(crate) explain: bool,
    #[command(flatten)]
    pub(crate) pictures: PictureArguments,
    #[command(flatten)]
    pub(crate) settings: SettingArguments,
}

impl PlanArguments {
    /// How to search, as the planner wants to hear it.
    pub(crate) fn search(&self) -> SolveOptions {
        let own = SolveOptions::with(self.strategy);
        SolveOptions { effort: self.effort.unwrap_or(own.effort), ..own }
    }
}

const INSPECT_HELP: &str = "Examples:
  orlop inspect
  orlop synth random.gguf --preset smollm2-135m
  orlop inspect random.gguf
  orlop inspect random.gguf --tensors

Exit status: 0 read; 2 arguments or file make no sense; 1 anything else.";

/// Which model file to look into, and how closely.
#[derive(Debug, Args)]
#[command(after_help = INSPECT_HELP)]
pub(crate) struct InspectArguments {
    /// A model (.gguf); of a split one, any part. Without it: the default model.
    pub(crate) file: Option<PathBuf>,
    /// The same, as other commands take it.
    #[arg(short, long, value_name = "FILE", conflicts_with = "file")]
    pub(crate) model: Option<PathBuf>,
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
    name.parse::<Strategy>().map_err(|error| error.to_string())
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| "give a number of seconds from 0, such as 0.5 or 60".to_owned())
}

/// Reads the command line; `None` when it asked for help and got it.
pub(crate) fn parse() -> Result<Option<Command>, Failure> {
    match Arguments::try_parse_from(spelled_out(std::env::args_os())) {
        Ok(arguments) => Ok(Some(arguments.command)),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                Printer::new().line(rendered(&error, &stdout())).map(|()| None)
            }
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                Err(Failure::NoCommand(rendered(&error, &stderr())))
            }
            _ => Err(Failure::BadInput(one_sentence(&error.to_string()))),
        },
    }
}

/// What the argument parser says, for a stream.
fn rendered(error: &clap::Error, stream: &impl IsTerminal) -> String {
    let text = error.render();
    let text = if may_colour(stream) { text.ansi().to_string() } else { text.to_string() };
    text.trim_end().to_owned()
}

/// Options of several letters behind one dash, as llama.cpp's users write them.
const SHORT: [(&str, &str); 4] = [
    ("-ub", "--ubatch-size"),
    ("-ngl", "--n-gpu-layers"),
    ("-ctk", "--cache-type-k"),
    ("-ctv", "--cache-type-v"),
];

/// The same with two dashes.
fn spelled_out(arguments: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    let mut plain = false;
    arguments.map(move |argument| {
        plain |= argument == "--";
        match SHORT.into_iter().find(|(short, _)| !plain && argument == *short) {
            Some((_, long)) => long.into(),
            None => argument,
        }
    })
}

/// Shortens what the argument parser says, which is several paragraphs, to its first.
fn one_sentence(text: &str) -> String {
    let first: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let first = first.join(" ");
    let what = first.strip_prefix("error: ").unwrap_or(&first);
    format!("{what}; see `orlop --help` or `orlop COMMAND --help`")
}
