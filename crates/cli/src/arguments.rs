//! The command line of `orlop`: its commands, help and errors.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{IsTerminal, stderr, stdout};

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

use crate::commands::bench::BenchArguments;
use crate::commands::completions::CompletionsArguments;
use crate::commands::devices::DevicesArguments;
use crate::commands::embed::EmbedArguments;
use crate::commands::imatrix::ImatrixArguments;
use crate::commands::inspect::InspectArguments;
use crate::commands::logits::LogitsArguments;
use crate::commands::man::ManArguments;
use crate::commands::perplexity::PerplexityArguments;
use crate::commands::plan::PlanArguments;
use crate::commands::pull::PullArguments;
use crate::commands::quantize::QuantizeArguments;
use crate::commands::rerank::RerankArguments;
use crate::commands::run::RunArguments;
use crate::commands::serve::ServeArguments;
use crate::commands::serve_rpc::ServeRpcArguments;
use crate::commands::synth::SynthArguments;
use crate::commands::tokenize::TokenizeArguments;
use crate::failure::Failure;
use crate::printer::Printer;
use crate::style::may_colour;

/// Run language models with memory planned in advance, or plan the memory of any tensor graph.
#[derive(Debug, Parser)]
#[command(name = "orlop", version, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// The commands; each declares its arguments in its own file.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Plan the memory of a model, a graph or a list of buffers.
    Plan(PlanArguments),
    /// Generate text from a prompt, or chat.
    Run(RunArguments),
    /// Serve a model over HTTP, with the APIs of OpenAI and Anthropic.
    Serve(ServeArguments),
    /// Download a model from Hugging Face, or a hub like it.
    Pull(PullArguments),
    /// Measure tokens per second.
    Bench(BenchArguments),
    /// Print the logits of given tokens.
    Logits(LogitsArguments),
    /// Tokenize a text.
    Tokenize(TokenizeArguments),
    /// Make embeddings of texts.
    Embed(EmbedArguments),
    /// Score documents for a query.
    Rerank(RerankArguments),
    /// Measure the perplexity of a text.
    Perplexity(PerplexityArguments),
    /// Show the metadata and tensors of a model file.
    Inspect(InspectArguments),
    /// Collect importance data for quantizing.
    Imatrix(ImatrixArguments),
    /// Quantize a model.
    Quantize(QuantizeArguments),
    /// Create a model with random weights.
    Synth(SynthArguments),
    /// Serve devices to clients of ggml's RPC protocol, such as llama.cpp.
    ServeRpc(ServeRpcArguments),
    /// List the devices of this machine.
    Devices(DevicesArguments),
    /// Print a shell completion script.
    Completions(CompletionsArguments),
    /// Print or write manual pages.
    Man(ManArguments),
}

/// The command line as data.
pub(crate) fn definition() -> clap::Command {
    Arguments::command()
}

const EXAMPLES: &str = "Examples:
  orlop run --chat \"What is an orlop?\" -n 60
  orlop devices

`orlop COMMAND --help` shows the options of a command.";

/// Parses the command line; `None` after printing help.
pub(crate) fn parse() -> Result<Option<Command>, Failure> {
    match Arguments::try_parse_from(expand_short_aliases(std::env::args_os())) {
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

/// The message of the argument parser, styled for a stream.
fn rendered(error: &clap::Error, stream: &impl IsTerminal) -> String {
    let text = error.render();
    let text = if may_colour(stream) { text.ansi().to_string() } else { text.to_string() };
    text.trim_end().to_owned()
}

/// Longest alias that may follow a single dash.
const SHORT_ALIAS: usize = 3;

/// Accepts short aliases with a single dash, as llama.cpp does: `-ngl` for `--ngl`.
fn expand_short_aliases(arguments: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    let aliases: BTreeSet<String> = definition()
        .get_subcommands()
        .flat_map(clap::Command::get_arguments)
        .flat_map(|argument| argument.get_visible_aliases().unwrap_or_default())
        .filter(|alias| alias.len() <= SHORT_ALIAS)
        .map(|alias| format!("-{alias}"))
        .collect();
    let mut only_values = false;
    arguments.map(move |argument| {
        only_values |= argument == "--";
        match argument.to_str() {
            Some(text) if !only_values && aliases.contains(text) => format!("-{text}").into(),
            _ => argument,
        }
    })
}

/// The first paragraph of the argument parser's message.
fn one_sentence(text: &str) -> String {
    let first: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let first = first.join(" ");
    let what = first.strip_prefix("error: ").unwrap_or(&first);
    format!("{what}; see `orlop --help` or `orlop COMMAND --help`")
}
