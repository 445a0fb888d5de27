//! The options of `orlop plan`.

use std::fmt::Display;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, Error, FromArgMatches};
use orlop::llm::{FileType, Synth};
use orlop::plan::{SolveOptions, Strategy};

use super::pictures::PictureArguments;
use crate::commands::quantize::parse_file_type;
use crate::draft_arguments::DraftArguments;
use crate::failure::Failure;
use crate::input::Kind;
use crate::model_arguments::SettingArguments;
use crate::quantity::parse_bytes;

const EXAMPLES: &str = "Examples:
  orlop synth random.gguf --preset smollm2-135m
  orlop plan -c 4096
  orlop plan random.gguf -c 8192 --budget cpu=200MiB
  orlop plan random.gguf --fit
  orlop plan --preset llama-7b --type Q4_K_M -c 4096
  printf 'id,lower,upper,size\\na,0,2,64\\nb,1,3,64\\nc,2,4,64\\n' > problem.csv
  orlop plan problem.csv --explain

Exit status: 0 success; 2 invalid arguments or input; 3 no plan found within the capacity; \
    4 no plan exists within the capacity; 1 other errors. \
    For a model, the output says whether it fits.";

/// What to plan, and how.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PlanArguments {
    #[command(flatten)]
    pub(super) given: GivenOptions,
    /// A model (.gguf), buffers with lifetimes (.csv with the columns id,lower,upper,size and optionally alignment), ggml
    /// graphs (.jsonl), or an Orlop graph (.json); all but models may be gzip-compressed [default: SmolLM2-135M-Instruct]
    pub(super) file: Option<PathBuf>,
    /// Model file, as in other commands.
    #[arg(short, long, value_name = "FILE", conflicts_with = "file")]
    pub(super) model: Option<PathBuf>,
    /// Print JSON: one object for a .csv or a model, one line per graph for graphs.
    #[arg(long)]
    pub(super) json: bool,
    /// Write the plan and the signature of its problem as JSON: for a model, one .csv or one graph.
    #[arg(long, value_name = "PLAN")]
    pub(super) save: Option<PathBuf>,
    /// List the buffers that are live at the peak.
    #[arg(long, conflicts_with = "json")]
    pub(super) explain: bool,
    #[command(flatten)]
    pub(super) order: OrderArguments,
    #[command(flatten)]
    pub(super) search: SearchArguments,
    #[command(flatten)]
    pub(super) selection: SelectionArguments,
    #[command(flatten)]
    pub(super) pictures: PictureArguments,
    #[command(flatten)]
    pub(super) settings: SettingArguments,
    #[command(flatten)]
    pub(super) draft: DraftArguments,
    #[command(flatten)]
    pub(super) prediction: PredictionArguments,
}

/// Options for models: which one, on which machine, and what is predicted of it.
#[derive(Debug, Args)]
pub(super) struct PredictionArguments {
    /// Plan a model with the dimensions of a known one instead of a file; see `orlop synth --help`.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["file", "model", "diff", "lora"],
        value_parser = PossibleValuesParser::new(Synth::PRESETS), hide_possible_values = true)]
    pub(super) preset: Option<String>,
    /// Quantization type of --preset, such as Q4_K_M, Q8_0 or F16.
    #[arg(long = "type", value_name = "TYPE", default_value = "Q4_0", requires = "preset",
        value_parser = parse_file_type)]
    pub(super) file_type: FileType,
    /// Plan for a machine that is described by a file (.json) instead of the devices of this one.
    #[arg(long, value_name = "FILE", conflicts_with = "device")]
    pub(super) machine: Option<PathBuf>,
    /// Number of prompt tokens to predict the speed of.
    #[arg(long, value_name = "N", default_value_t = 512)]
    pub(super) n_prompt: u64,
    /// Number of tokens in the context before the prompt and before generated tokens.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) n_depth: u64,
    /// List what fits: contexts and cache types with their memory and predicted speeds, and the largest type of the model
    /// that fits on the first device.
    #[arg(long, conflicts_with_all = ["save", "explain", "diff", "html", "svg", "map"])]
    pub(super) fit: bool,
}

/// Options for everything with steps.
#[derive(Debug, Args)]
pub(super) struct OrderArguments {
    /// Reorder steps to reduce memory, within their data dependencies, and also print the memory of the original order.
    /// With --output, graphs include the new order. Models are always reordered.
    #[arg(long)]
    pub(super) reorder: bool,
}

/// Options for everything but models.
#[derive(Debug, Args)]
pub(super) struct SearchArguments {
    /// Write the offsets: the .csv with a column `offset`; for graphs, one line of JSON each.
    #[arg(long, short, value_name = "OUT")]
    pub(super) output: Option<PathBuf>,
    /// Planning algorithm: ggml, order, size, lifetime, area, conflict, valley, repair, ...; best: all of them; exact:
    /// search until the plan is proven optimal.
    #[arg(long, value_name = "NAME", default_value = "best", value_parser = parse_strategy)]
    pub(super) strategy: Strategy,
    /// Continue until a plan within this many bytes (suffixes: k, M, G, KiB, MiB, GiB) is found, none is proven to exist,
    /// or --effort or --time-limit ends. For graphs: the sum over the buffers of each graph; in a graph of one buffer,
    /// steps are added that recompute results or copy them to other memory and back if no other plan fits.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub(super) capacity: Option<u64>,
    /// Work per buffer; counted, so the result is deterministic [default: some ten microseconds; unlimited for exact,
    /// and for best with --capacity or --time-limit]
    #[arg(long, value_name = "N")]
    pub(super) effort: Option<u64>,
    /// Continue until a plan is proven optimal, for at most this many seconds; the result then depends on the machine.
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(super) time_limit: Option<Duration>,
    /// Threads of the exact search; the plan is the same for any number.
    #[arg(long, value_name = "N", default_value = "1")]
    pub(super) search_threads: NonZeroUsize,
}

/// Options for files with several graphs.
#[derive(Debug, Args)]
pub(super) struct SelectionArguments {
    /// Plan only the graphs whose label contains TEXT.
    #[arg(long, value_name = "TEXT")]
    pub(super) graph: Option<String>,
}

impl SearchArguments {
    pub(super) fn options(&self) -> SolveOptions {
        let default = match self.continues() {
            true => SolveOptions::UNLIMITED,
            false => SolveOptions::with(self.strategy).effort,
        };
        let effort = self.effort.unwrap_or(default);
        SolveOptions { effort, threads: self.search_threads.get(), ..SolveOptions::with(self.strategy) }
    }

    /// Whether the search ends only with what was asked for: a plan within the capacity, a proof, or the end of the time.
    pub(super) fn continues(&self) -> bool {
        let is_limited = self.capacity.is_some() || self.time_limit.is_some();
        is_limited && self.effort.is_none() && self.strategy == Strategy::Best
    }
}

fn parse_strategy(name: &str) -> Result<Strategy, String> {
    name.parse::<Strategy>().map_err(|error| error.to_string())
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| "expected a non-negative number of seconds, such as 0.5 or 60".to_owned())
}

/// Groups of options that apply to some kinds of files only, with those kinds. Other options apply to all.
fn restricted_groups() -> [(Command, &'static [Kind]); 6] {
    let group = || Command::new("plan");
    [
        (OrderArguments::augment_args(group()), &[Kind::Model, Kind::Graphs, Kind::Graph]),
        (SearchArguments::augment_args(group()), &[Kind::Problem, Kind::Graphs, Kind::Graph]),
        (SelectionArguments::augment_args(group()), &[Kind::Graphs]),
        (SettingArguments::augment_args(group()), &[Kind::Model]),
        (DraftArguments::augment_args(group()), &[Kind::Model]),
        (PredictionArguments::augment_args(group()), &[Kind::Model]),
    ]
}

/// The ids of the options on the command line. It must be the first field of its struct, because parsing a field removes
/// its matches.
#[derive(Debug)]
pub(super) struct GivenOptions(Vec<String>);

impl FromArgMatches for GivenOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<GivenOptions, Error> {
        let is_given = |id: &&clap::Id| matches.value_source(id.as_str()) == Some(ValueSource::CommandLine);
        Ok(GivenOptions(matches.ids().filter(is_given).map(ToString::to_string).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = GivenOptions::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for GivenOptions {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

impl GivenOptions {
    /// Rejects options that apply to none of these kinds; `None` is a saved plan, which is not planned again.
    pub(super) fn check(&self, files: impl Display, kinds: &[Option<Kind>]) -> Result<(), Failure> {
        for (group, allowed) in restricted_groups() {
            if kinds.iter().flatten().any(|kind| allowed.contains(kind)) {
                continue;
            }
            let is_given = |option: &&clap::Arg| self.0.iter().any(|id| option.get_id() == id);
            let Some(option) = group.get_arguments().find(is_given) else { continue };
            let right: Vec<&str> = allowed.iter().map(Kind::plural).collect();
            let wrong: Vec<&str> =
                kinds.iter().map(|kind| kind.as_ref().map_or("saved plans", Kind::plural)).collect();
            return Err(Failure::BadInput(format!(
                "{files}: --{} applies to {}, not to {}; remove it",
                option.get_long().unwrap_or(option.get_id().as_str()),
                right.join(" and "),
                wrong.join(" or ")
            )));
        }
        Ok(())
    }
}
