//! `orlop synth`.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use clap::builder::PossibleValuesParser;
use orlop::llm::{FileType, MixturePolicy, Synth};

use crate::commands::quantize::{mebibytes, parse_file_type, unwritten};
use crate::failure::Failure;
use crate::load::bar;
use crate::printer::Printer;

const EXAMPLES: &str = "Examples:
  orlop synth random.gguf --preset smollm2-135m
  orlop bench -m random.gguf -p 16 -n 4 -r 1

Exit status: 0 written; 2 arguments make no sense; 1 anything else.";

/// What random model to make.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SynthArguments {
    /// The file to write; it gets its name when it is whole.
    #[arg(value_name = "OUT")]
    output: PathBuf,
    /// Whose dimensions it gets.
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(Synth::PRESETS))]
    preset: String,
    /// What to store it as, such as Q4_K_M, Q8_0 or F16.
    #[arg(long = "type", value_name = "TYPE", default_value = "Q4_0", value_parser = parse_file_type)]
    file_type: FileType,
    /// Give every matrix the same type.
    #[arg(long)]
    pure: bool,
    /// Equal numbers give equal files.
    #[arg(short, long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

/// Writes a model of random weights.
pub(crate) fn run(arguments: &SynthArguments) -> Result<(), Failure> {
    let preset = Synth::preset(&arguments.preset)
        .ok_or_else(|| Failure::BadInput(format!("there is no preset `{}`", arguments.preset)))?;
    let synth = Synth {
        file_type: arguments.file_type,
        spread: if arguments.pure { MixturePolicy::Pure } else { MixturePolicy::Mixed },
        seed: arguments.seed,
        ..preset
    };
    let bar = bar("writing");
    let begin = Instant::now();
    let written = synth.create(&arguments.output, &mut |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let bytes = written.map_err(|error| unwritten(&arguments.output, error))?;
    let seconds = begin.elapsed().as_secs_f64();
    let path = arguments.output.display();
    Printer::new().line(format!("{path}: {:.1} MiB in {seconds:.2} s", mebibytes(bytes)))
}
