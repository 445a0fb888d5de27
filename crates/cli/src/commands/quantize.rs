//! `orlop quantize`.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use orlop::gguf::GgufFile;
use orlop::llm::{Error, FileType, MixturePolicy, Quantization, quantize};

use crate::commands::inspect::refused;
use crate::failure::Failure;
use crate::load::bar;
use crate::model_arguments::parse_threads;
use crate::printer::Printer;

const EXAMPLES: &str = "Examples:
  orlop synth random.gguf --preset smollm2-135m
  orlop quantize random.gguf small.gguf Q8_0

Exit status: 0 written; 2 arguments or file make no sense; 1 anything else.";

/// Which model to store anew, and how.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct QuantizeArguments {
    /// A model (.gguf); of a split one, any part.
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// The file to write; it gets its name when it is whole.
    #[arg(value_name = "OUT")]
    output: PathBuf,
    /// What to store it as, such as Q4_K_M, Q8_0 or F16.
    #[arg(value_name = "TYPE", value_parser = parse_file_type)]
    file_type: FileType,
    /// Give every matrix the same type.
    #[arg(long)]
    pure: bool,
    /// Threads; without it, as many as there are.
    #[arg(short, long, value_name = "N", value_parser = parse_threads)]
    threads: Option<usize>,
}

/// Stores a model in other element types.
pub(crate) fn run(arguments: &QuantizeArguments) -> Result<(), Failure> {
    let model = GgufFile::open(&arguments.input).map_err(|error| refused(&arguments.input, &error))?;
    let quantization = Quantization {
        file_type: arguments.file_type,
        spread: if arguments.pure { MixturePolicy::Pure } else { MixturePolicy::Mixed },
        threads: arguments
            .threads
            .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)),
    };
    let bar = bar("quantizing");
    let quantized = quantize(&model, &arguments.output, &quantization, &mut |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let quantized = quantized.map_err(|error| unwritten(&arguments.output, error))?;
    if quantized.again > 0 {
        let count = quantized.again;
        let note = "had been quantised before; start from the original weights for better quality";
        // Where standard error is closed there is nobody left to tell.
        let _ = writeln!(std::io::stderr(), "orlop: {count} tensors {note}");
    }
    let (from, to) = (mebibytes(quantized.from), mebibytes(quantized.to));
    Printer::new().line(format!(
        "{}: {to:.1} MiB where it was {from:.1} MiB; {} tensors changed, {} kept",
        arguments.output.display(),
        quantized.changed,
        quantized.kept,
    ))
}

/// Names that are in use for files, but of types that nothing here can encode.
const READ_ELSEWHERE: [&str; 17] = [
    "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "IQ3_XXS", "IQ3_XS", "IQ3_S", "IQ3_M", "TQ1_0",
    "TQ2_0", "NVFP4", "Q1_0", "Q2_0", "Q2_K_S", "Q8_K",
];

pub(crate) fn parse_file_type(name: &str) -> Result<FileType, String> {
    FileType::from_name(name).ok_or_else(|| {
        let known: Vec<&str> = FileType::all().map(FileType::name).collect();
        let what = match READ_ELSEWHERE.iter().any(|other| other.eq_ignore_ascii_case(name)) {
            true => "it cannot be encoded here",
            false => "it is not known",
        };
        format!("{what}; there are {}", known.join(", "))
    })
}

/// What went wrong while a model was written, and what to do about it.
pub(crate) fn unwritten(path: &Path, error: Error) -> Failure {
    let path = path.display();
    match error {
        Error::File(orlop::gguf::Error::Open { source, .. }) => {
            Failure::BadInput(format!("{path} cannot be made: {source}; check the path"))
        }
        Error::File(orlop::gguf::Error::Data { tensor, source })
            if source.kind() == ErrorKind::InvalidData =>
        {
            Failure::BadInput(format!("the tensor `{tensor}` is no good: {source}; get the model anew"))
        }
        Error::File(orlop::gguf::Error::Data { source, .. } | orlop::gguf::Error::Write(source)) => {
            Failure::Other(anyhow::anyhow!(
                "{path} cannot be written: {source}; check the space that is left there"
            ))
        }
        error => Failure::BadInput(error.to_string()),
    }
}

pub(crate) fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
