//! `orlop synth`: models with random weights.

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

Exit status: 0 success; 2 invalid arguments; 1 other errors.";

/// Arguments of `orlop synth`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SynthArguments {
    /// Output file; renamed to this name when complete.
    #[arg(value_name = "OUT")]
    output: PathBuf,
    /// Model whose dimensions to use.
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(Synth::PRESETS))]
    preset: String,
    /// Quantization type, such as Q4_K_M, Q8_0 or F16.
    #[arg(long = "type", value_name = "TYPE", default_value = "Q4_0", value_parser = parse_file_type)]
    file_type: FileType,
    /// Quantize all matrices to the same type.
    #[arg(long)]
    pure: bool,
    /// Random seed; equal seeds give equal files.
    #[arg(short, long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

/// Writes a model with random weights.
pub(crate) fn run(arguments: &SynthArguments) -> Result<(), Failure> {
    let preset = Synth::preset(&arguments.preset).ok_or_else(|| {
        Failure::BadInput(format!("unknown preset `{}`; see `orlop synth --help`", arguments.preset))
    })?;
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
