//! `orlop quantize`: converts a model to other element types.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use orlop::gguf::GgufFile;
use orlop::llm::{Error, FileType, Importance, MixturePolicy, Quantization, quantize};

use crate::commands::inspect::refused;
use crate::failure::Failure;
use crate::load::bar;
use crate::model_arguments::parse_threads;
use crate::printer::Printer;

const EXAMPLES: &str = "Examples:
  orlop synth random.gguf --preset smollm2-135m
  orlop quantize random.gguf small.gguf Q8_0

Exit status: 0 success; 2 invalid arguments or file; 1 other errors.";

/// Arguments of `orlop quantize`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct QuantizeArguments {
    /// Model file (.gguf), or any part of a split model.
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// Output file; renamed to this name when complete.
    #[arg(value_name = "OUT")]
    output: PathBuf,
    /// Quantization type, such as Q4_K_M, Q8_0 or F16.
    #[arg(value_name = "TYPE", value_parser = parse_file_type)]
    file_type: FileType,
    /// Importance data, as made by `llama-imatrix`; types below four bits need it.
    #[arg(long, value_name = "FILE")]
    imatrix: Option<PathBuf>,
    /// Quantize all matrices to the same type.
    #[arg(long)]
    pure: bool,
    /// Number of threads [default: number of hardware threads]
    #[arg(short, long, value_name = "N", value_parser = parse_threads)]
    threads: Option<usize>,
}

/// Quantizes a model.
pub(crate) fn run(arguments: &QuantizeArguments) -> Result<(), Failure> {
    let model = GgufFile::open(&arguments.input).map_err(|error| refused(&arguments.input, &error))?;
    let importance = arguments.imatrix.as_deref().map(Importance::open).transpose();
    let importance = importance.map_err(|error| Failure::BadInput(error.to_string()))?;
    let quantization = Quantization {
        importance: importance.as_ref(),
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
        let note = "were already quantized; start from the original weights for better quality";
        let _ = writeln!(std::io::stderr(), "orlop: {count} tensors {note}");
    }
    if quantized.unweighted > 0 {
        let count = quantized.unweighted;
        let note = "got a type that needs importance data; use --imatrix for better quality";
        let _ = writeln!(std::io::stderr(), "orlop: {count} tensors {note}");
    }
    let (from, to) = (mebibytes(quantized.from), mebibytes(quantized.to));
    Printer::new().line(format!(
        "{}: {from:.1} MiB -> {to:.1} MiB; {} tensors quantized, {} unchanged",
        arguments.output.display(),
        quantized.changed,
        quantized.kept,
    ))
}

pub(crate) fn parse_file_type(name: &str) -> Result<FileType, String> {
    FileType::from_name(name).ok_or_else(|| {
        let known: Vec<&str> = FileType::all().map(FileType::name).collect();
        format!("unknown type; supported: {}", known.join(", "))
    })
}

/// The failure for an error while writing a model, with advice.
pub(crate) fn unwritten(path: &Path, error: Error) -> Failure {
    let path = path.display();
    match error {
        Error::File(orlop::gguf::Error::Open { source, .. }) => {
            Failure::BadInput(format!("{path}: cannot create the file: {source}; check the path"))
        }
        Error::File(orlop::gguf::Error::Data { tensor, source })
            if source.kind() == ErrorKind::InvalidData =>
        {
            Failure::BadInput(format!("invalid tensor `{tensor}`: {source}; get a new copy of the model"))
        }
        Error::File(orlop::gguf::Error::Data { source, .. } | orlop::gguf::Error::Write(source)) => {
            Failure::Other(anyhow::anyhow!("{path}: cannot write the file: {source}; check the free space"))
        }
        error => Failure::BadInput(error.to_string()),
    }
}

pub(crate) fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
